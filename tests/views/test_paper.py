"""The paper's figures are shown next to ours only if LM, facts and source are the same, with a note on what differs."""

import json

import pytest
from builders.stores import keep, new_store

from askwell.errors import BadFile
from askwell.views.paper_figures import Paper, read_paper
from askwell.views.study import study_of


def arrows(init, soft, deep):
    return {"P@1": {"init": init, "soft": soft, "deep": deep}}


# Figures made up for these tests, in the form of the file.
TABLES = {
    "trex_original": {
        "bert-base-cased": {"soft-min": arrows(11.0, 12.0, None), "soft-ran": arrows(0.5, 13.0, 14.0)},
    },
    "google_re": {"bert-base-cased": {"lama": {"P@1": 1.5}, "lpaqa": {"P@1": 2.5}, "soft-sin": {"P@1": 3.5}}},
    "ablation: bert-large-cased, trex_original, mined": {"baseline": {"P@1": 21.0}, "both": {"P@1": 22.0}},
    "distinct_y: trex_original, mined": {"bert-base-cased": {"lpaqa": {"P@1": 31.0}, "soft": {"P@1": 32.0}}},
    "effective_prompts": {"trex_original-min": {"mean": 12.5, "std": 4.0, "min": 4.6, "max": 21.0}},
    "relation_statistics": {"trex_original": {"mean_pairs": 1715}},
}  # fmt: skip


@pytest.fixture
def paper(tmp_path):
    path = tmp_path / "paper.json"
    path.write_text(json.dumps(TABLES))
    return read_paper(path)


def beside(store, paper) -> dict[tuple[str, str, str, str], float]:
    study = study_of(store.runs(), paper, drawn=0)
    return {
        (table.name, record["prompts"], record["kind"], record["figure"]): record["paper"]
        for table in study.tables
        for record in table.records
        if record["paper"] is not None
    }


def test_the_same_lm_facts_and_source(tmp_path, paper):
    store = new_store(tmp_path)
    for lm in ("google-bert/bert-base-cased", "testbed:bert"):
        keep(store, [1], "trex_original/P19", lm=lm)
        keep(store, [1], "trex_original/P19", lm=lm, mixture={"initial": "random"})
        keep(store, [1], "trex_original/P19", lm=lm, setting="em", training={"method": "em"})
    found = beside(store, paper)
    scores = {key[1:3]: value for key, value in found.items() if key[0] == "main-trex_original"}
    assert scores == {
        ("mined", "init"): 11.0, ("mined", "soft"): 12.0, ("random (mined)", "init"): 0.5,
        ("random (mined)", "soft"): 13.0, ("random (mined)", "deep"): 14.0,
    }  # fmt: skip
    assert found["effective_prompts-trex_original", "mined", "soft", "max"] == 21.0
    main = study_of(store.runs(), paper, drawn=0).tables[0].table
    row = next(row for row in main.rows if row.heading == "the paper")
    assert [cell.text for cell in row.cells] == ["11.0", "–", "–", "12.0", *["–"] * 5]


def test_tables_with_one_figure_for_tuned_prompts(tmp_path, paper):
    store = new_store(tmp_path)
    keep(store, [1], "google_re/place_of_birth", prompts="single", templates=["[X] in [Y] ."])
    keep(store, [1], "google_re/place_of_birth", prompts="paraphrased")
    keep(store, [1], "trex_distinct/P19")
    keep(store, [1], "trex_original/P19", lm="bert-large-cased", training={"tune_vectors": False})
    found = beside(store, paper)
    assert found["main-google_re", "single", "init", "P@1"] == 1.5
    assert found["main-google_re", "single", "soft", "P@1"] == 3.5
    assert found["main-google_re", "paraphrased", "init", "P@1"] == 2.5
    assert ("main-google_re", "paraphrased", "soft", "P@1") not in found
    assert found["distinct_y-trex_distinct", "mined", "init", "P@1"] == 31.0
    assert found["distinct_y-trex_distinct", "mined", "soft", "P@1"] == 32.0
    assert found["ablation-trex_original", "mined", "init", "P@1"] == 21.0
    assert found["ablation-trex_original", "mined", "soft", "P@1"] == 22.0


def test_what_differs_by_definition_is_told_from_the_runs(tmp_path, paper):
    store = new_store(tmp_path)
    keep(store, [1, 1], "trex_original/P19", left_out=3)
    told = " ".join(study_of(store.runs(), paper, drawn=0).sets[0].beside_the_paper)
    assert "other right answers for the same x" in told
    assert "3 of 5 facts (over all runs) could not be asked" in told
    assert "until the log-loss on dev no longer falls, by gradient" in told
    assert (
        "trex_original has 20 facts per relation (1 relation) here, including train and dev, 1715 in the paper" in told
    )
    full = new_store(tmp_path / "full")
    keep(full, [1], "trex_original/P19", templates=["[X] in [Y] ."], training={"recipe": "paper", "method": "em"},
         counts={"read": 1710})  # fmt: skip
    keep(full, [1], "trex_original/P19", setting="init", tuned=False, counts={"read": 1710})
    told = " ".join(study_of(full.runs(), paper, drawn=0).sets[0].beside_the_paper)
    for absent in ("Training:", "Sample:", "Facts:"):
        assert absent not in told


def test_without_a_figure_of_the_paper_nothing_is_said_of_it(tmp_path, paper):
    store = new_store(tmp_path)
    keep(store, [1], "testbed:capital")
    assert study_of(store.runs(), paper, drawn=0).sets[0].beside_the_paper == ()


def test_the_file_is_found_in_the_data_folder_or_beside_it(tmp_path, monkeypatch):
    monkeypatch.setenv("ASKWELL_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("ASKWELL_DATA", raising=False)
    assert read_paper(None) is None
    (tmp_path / "shared" / "data").mkdir(parents=True)
    monkeypatch.setenv("ASKWELL_DATA", str(tmp_path / "shared" / "data"))
    assert read_paper(None) is None
    (tmp_path / "shared" / "paper_tables.json").write_text(json.dumps(TABLES))
    assert read_paper(None) == Paper(TABLES)
    (tmp_path / "shared" / "data" / "paper_tables.json").write_text(json.dumps({"conceptnet": {}}))
    assert read_paper(None) == Paper({"conceptnet": {}})


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("{", "this is not JSON"),
        ("[1]", "not the paper's tables"),
        ('{"a": {}}', "not the paper's tables"),
        ('{"google_re": {"bert": "high"}}', "google_re: an object whose leaves"),
    ],
)
def test_a_file_that_is_no_such_json(tmp_path, content, problem):
    path = tmp_path / "paper.json"
    path.write_text(content)
    with pytest.raises(BadFile, match=problem):
        read_paper(path)
    with pytest.raises(BadFile):
        read_paper(tmp_path / "none.json")


def test_the_paper_file_itself_is_read(shared_data):
    paper = read_paper(shared_data.parent / "paper_tables.json")
    assert paper is not None
    assert {"trex_original", "trex_extended", "google_re", "conceptnet"} <= set(paper.tables)
    assert paper.pairs_a_relation("trex_extend") == 885
