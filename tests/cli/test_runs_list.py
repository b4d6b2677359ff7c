"""`askwell runs` on the store of a small sweep."""

import csv
import io

import pytest
from builders.sweeps import as_toml
from builders.worlds import TEMPLATES

from askwell.runs.folder import read_run


@pytest.fixture
def store(askwell, lms, facts, tmp_path):
    table = {
        "store": str(tmp_path / "store"),
        "lms": [str(lms["bert"])],
        "facts": [str(facts)],
        "seeds": [0, 1],
        "prompts": {"hand": [TEMPLATES[0]], "both": TEMPLATES[:2]},
        "settings": {"init": {"tuned": False, "seeds": [0]}, "soft": {"epochs": 1}},
        "engine": "in-process",
    }
    (tmp_path / "sweep.toml").write_text(as_toml(table))
    done = askwell("sweep", tmp_path / "sweep.toml")
    assert done.code == 0, done.err
    return tmp_path / "store"


def test_prompts_that_were_typed_are_shown(askwell, lms, facts, tmp_path):
    run = ("train", "--lm", lms["bert"], "--facts", facts, "--epochs", "1", "--prompts")
    for name, prompts in (("one", TEMPLATES[:1]), ("two", TEMPLATES[:2])):
        done = askwell(*run, *prompts, "--out", tmp_path / "runs" / name)
        assert done.code == 0, done.err
    shown = askwell("runs", tmp_path / "runs").out
    assert f"“{TEMPLATES[0]}”" in shown
    assert "2 prompts" in shown
    assert "given" not in shown


def test_runs_are_listed_filtered_and_sorted(askwell, store):
    runs = askwell("runs", store, "--json").json
    assert [(run["prompts"], run["setting"], run["seed"]) for run in runs] == [
        ("both", "init", 0), ("both", "soft", 0), ("both", "soft", 1),
        ("hand", "init", 0), ("hand", "soft", 0), ("hand", "soft", 1),
    ]  # fmt: skip
    some = askwell("runs", store, "--where", "prompts = 'hand' and setting = 'soft'", "--sort", "P@1", "--json").json
    assert len(some) == 2
    assert some[0]["P@1"] >= some[1]["P@1"]
    short = some[0]["id"][:8]  # as the table shows it
    assert [run["id"] for run in askwell("runs", store, "--where", f"id = '{short}'", "--json").json] == [some[0]["id"]]
    table = askwell("runs", store, "--where", "not tuned")
    assert table.code == 0
    assert "2 runs of" in table.out
    rows = list(csv.DictReader(io.StringIO(askwell("runs", store, "--csv").out)))
    assert [row["id"] for row in rows] == [run["id"] for run in runs]
    for run in runs:
        assert (store / "runs" / run["id"] / "facts.parquet").is_file()

    one = store / "runs" / runs[1]["id"]
    assert askwell("runs", one, "--name", "first try", "--note", "one epoch").code == 0
    named = askwell("runs", store, "--where", "name = 'first try'", "--json").json
    assert [(run["id"], run["note"], run["folder"]) for run in named] == [(runs[1]["id"], "one epoch", str(one))]
    shown = askwell("runs", store).out
    assert "first try" in shown
    assert runs[1]["id"][:8] in shown
    record = read_run(one).record
    assert f"{record.environment.began:%Y-%m-%d %H:%M}" in shown
    assert askwell("runs", one, "--name", "").code == 0
    assert "first try" not in askwell("runs", store).out
    for_several = askwell("runs", store, "--name", "all")
    assert for_several.code == 2
    assert "--name and --note are for one run, and here are 6" in for_several.err

    compared = askwell("compare", *(store / "runs" / run["id"] for run in runs[:2]), "--json")
    assert compared.code == 0, compared.err

    for mistake in (["--sort", "p"], ["--where", "nothing = 1"], ["--csv", "--json"], ["--failed", "--csv"]):
        refused = askwell("runs", store, *mistake)
        assert refused.code == 2
        assert mistake[0] in refused.err or "--csv" in refused.err
    assert askwell("runs", store.parent).code == 2
