"""`askwell report`, on a store made by hand and on that of a small sweep."""

import csv
import io

import pytest
from builders.stores import keep, keep_arrows, new_store
from builders.sweeps import as_toml
from builders.worlds import TEMPLATES


@pytest.fixture
def store(tmp_path):
    made = new_store(tmp_path / "store")
    keep_arrows(made)
    keep(made, [1], lm="another", prompts="single", control="random-weights")
    return made.folder


def test_all_formats_are_written_and_named(askwell, store):
    done = askwell("report", store, "--drawn", 0)
    assert done.code == 0, done.err
    assert "16.7" in done.out
    assert "58.3 ± 11.8" in done.out
    assert "another" not in done.out
    for name in ("report.md", "report.tex", "report.html", "tables/all_scores-set.csv", "figures/scores-set.svg",
                 "figures/scores-set.pdf"):  # fmt: skip
        assert name in done.err
        assert (store / "report" / name).stat().st_size > 100
    rows = list(csv.DictReader(io.StringIO((store / "report" / "tables" / "all_scores-set.csv").read_text())))
    assert {row["lm"] for row in rows} == {"bert-base-cased"}
    again = {path: path.read_bytes() for path in (store / "report").rglob("*") if path.is_file()}
    assert askwell("report", store, "--drawn", 0).code == 0
    assert all(path.read_bytes() == content for path, content in again.items())


def test_some_formats_elsewhere_some_runs(askwell, store, tmp_path):
    out = tmp_path / "elsewhere"
    done = askwell("report", store, "--out", out, "--format", "markdown", "csv", "--where", "not tuned", "--json")
    assert done.code == 0, done.err
    seen = {path.name for path in out.iterdir() if not path.name.startswith(".")}
    assert seen == {"report.md", "tables", "figures"}
    document = done.json
    assert document["runs"] == 2
    figures = document["tables"]["all_scores-set"]["figures"]
    values = {(figure["kind"], figure["figure"]): figure["value"] for figure in figures if figure["average"] == "micro"}
    assert values["init", "P@1"] == pytest.approx(100 / 6)
    assert {kind for kind, _ in values} == {"init"}
    assert str(out / "report.md") in document["files"]


def test_the_papers_figures_stand_beside_ours(askwell, tmp_path):
    made = new_store(tmp_path / "store")
    keep(made, [1, 20], "trex_original/P19", setting="init", tuned=False)
    done = askwell("report", made.folder)
    assert done.code == 0, done.err
    lines = [line.split() for line in done.out.splitlines()]
    assert ["the", "paper", "34.1", "62.0", "43.6"] in lines
    assert "What to bear in mind when comparing" in (made.folder / "report" / "report.html").read_text()


def test_mistakes_are_one_clear_error(askwell, store, tmp_path):
    empty = new_store(tmp_path / "empty").folder
    (tmp_path / "no.json").write_text("[]")
    for arguments, told in [
        ((tmp_path / "nowhere",), "there is no such folder"),
        ((empty,), "there is no run here"),
        ((store, "--format", "word"), "word"),
        ((store, "--where", "colour = 3"), "--where colour = 3"),
        ((store, "--where", "P@1 > 200"), "no run in"),
        ((store, "--drawn", "-1"), "for --drawn. Must be >= 0"),
        ((store, "--out", tmp_path / "no.json"), "--out"),
    ]:
        refused = askwell("report", *arguments)
        assert refused.code == 2, (arguments, refused.err)
        assert told in refused.err
        assert "Traceback" not in refused.err
        assert refused.out == ""


def test_a_real_sweep_with_its_prompts_drawn(askwell, lms, facts, tmp_path):
    table = {
        "store": str(tmp_path / "store"),
        "lms": [str(lms["bert"])],
        "facts": [str(facts)],
        "prompts": {"both": TEMPLATES[:2]},
        "settings": {
            "init": {"tuned": False},
            "soft": {"epochs": 1},
            "dd": {"epochs": 1, "weighting": "data-dependent"},
        },
        "engine": "in-process",
    }
    (tmp_path / "sweep.toml").write_text(as_toml(table))
    swept = askwell("sweep", tmp_path / "sweep.toml")
    assert swept.code == 0, swept.err
    runs = {run["setting"]: run for run in askwell("runs", tmp_path / "store", "--json").json}
    done = askwell("report", tmp_path / "store", "--drawn", 4, "--json")
    assert done.code == 0, done.err
    assert done.json["problems"] == []
    names = {path.name for path in (tmp_path / "store" / "report" / "figures").iterdir()}
    assert {"prompts-bert-capitals-both-soft.svg", "prompts-bert-capitals-both-soft.pdf"} <= names
    assert {"curves-capitals.svg", "curves-capitals.pdf"} <= names
    main = done.json["tables"]["all_scores-capitals"]["figures"]
    values = {(figure["prompts"], figure["kind"], figure["figure"]): figure["value"] for figure in main}
    for name, setting, kind in (
        ("both", "init", "init"),
        ("both", "soft", "soft"),
        ("both, weighted by x (data-dependent)", "dd", "soft"),
    ):
        for metric in ("P@1", "P@10", "MRR"):
            assert values[name, kind, metric] == pytest.approx(runs[setting][metric])
    weights = done.json["tables"]["effective_prompts-capitals"]["figures"]
    temperature = next(f["value"] for f in weights if f["figure"] == "T" and "data-dependent" in f["prompts"])
    assert temperature == pytest.approx(runs["dd"]["temperature"])
