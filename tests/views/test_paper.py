"""The paper's figures are shown next to ours only if LM, facts and source are the same, with a note on what differs."""

from builders.stores import keep, new_store

from askwell.views.study import study_of


def beside(store) -> dict[tuple[str, str, str, str], float]:
    study = study_of(store.runs(), drawn=0)
    return {
        (table.name, record["prompts"], record["kind"], record["figure"]): record["paper"]
        for table in study.tables
        for record in table.records
        if record["paper"] is not None
    }


def test_the_same_lm_facts_and_source(tmp_path):
    store = new_store(tmp_path)
    for lm in ("google-bert/bert-base-cased", "testbed:bert"):
        keep(store, [1], "trex_original/P19", lm=lm)
        keep(store, [20], "trex_original/P19", lm=lm, setting="deep", mixture={"deep": True})
        keep(store, [1], "trex_original/P19", lm=lm, mixture={"initial": "random"})
        keep(store, [1], "trex_original/P19", lm=lm, setting="em", training={"method": "em"})
    found = beside(store)
    scores = {key[1:3]: value for key, value in found.items() if key[0] == "paper-trex_original" and key[3] == "P@1"}
    assert scores == {
        ("mined", "soft"): 48.8, ("mined", "deep"): 50.7, ("random (mined)", "soft"): 47.3,
        ("random (mined)", "deep"): 48.1,
    }  # fmt: skip
    assert found["effective_prompts-trex_original", "mined", "soft", "max"] == 21.0
    table = study_of(store.runs(), drawn=0).tables[1].table
    assert [(group.heading, group.note) for group in table.groups] == [
        ("tuned", "soft in the paper"),
        ("tuned at all layers", "deep in the paper"),
    ]
    ours, theirs = ([cell.text for cell in row.cells] for row in table.rows[:2])
    assert ours == ["100.0"] * 3 + ["0.0", "0.0", "5.0"]
    assert theirs == ["48.8", "79.6", "59.4", "50.7", "80.7", "61.1"]


def test_tables_with_one_figure_for_tuned_prompts(tmp_path):
    store = new_store(tmp_path)
    keep(store, [1], "google_re/place_of_birth", prompts="single", templates=["[X] in [Y] ."], lm="bert-large-cased")
    keep(store, [1], "google_re/place_of_birth", prompts="mined", mixture={"initial": "random"}, lm="bert-large-cased")
    keep(store, [1], "trex_distinct/P19")
    keep(store, [1], "trex_original/P19", lm="bert-large-cased", training={"tune_vectors": False})
    found = beside(store)
    assert ("paper-google_re", "single", "init", "P@1") not in found  # no run was left untuned
    assert found["paper-google_re", "single", "soft", "MRR"] == 18.9
    assert ("paper-google_re", "single", "deep", "P@1") not in found
    assert not any(prompts == "random (mined)" for _, prompts, _, _ in found)
    assert found["paper-trex_distinct", "mined", "soft", "P@10"] == 45.2
    ablation = {key[2]: value for key, value in found.items() if key[0] == "paper-trex_original" and key[3] == "P@1"}
    assert ablation == {"weights only": 40.0}


def test_what_differs_by_definition_is_told_from_the_runs(tmp_path):
    store = new_store(tmp_path)
    keep(store, [1, 1], "trex_original/P19", left_out=3)
    told = " ".join(study_of(store.runs(), drawn=0).sets[0].beside_the_paper)
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
    told = " ".join(study_of(full.runs(), drawn=0).sets[0].beside_the_paper)
    for absent in ("Training:", "Sample:", "Facts:"):
        assert absent not in told


def test_without_a_figure_of_the_paper_nothing_is_said_of_it(tmp_path):
    store = new_store(tmp_path)
    keep(store, [1], "testbed:capital")
    assert study_of(store.runs(), drawn=0).sets[0].beside_the_paper == ()
