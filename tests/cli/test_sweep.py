"""`askwell sweep`: plans, runs, continues, and says what went wrong."""

import pytest
from builders.sweeps import as_toml
from builders.worlds import TEMPLATES, write_relation


@pytest.fixture
def sweep_file(lms, facts, tmp_path):
    """A sweep of two LMs, one relation, one prompt, two settings."""

    def write(**changed):
        table = {
            "store": str(tmp_path / "store"),
            "lms": [str(lms["bert"]), str(lms["llama"])],
            "facts": [str(facts)],
            "prompts": {"hand": [TEMPLATES[0]]},
            "settings": {"init": {"tuned": False}, "soft": {"epochs": 1}},
            "engine": "in-process",
        } | changed
        path = tmp_path / "sweep.toml"
        path.write_text(as_toml(table))
        return path

    return write


def test_a_dry_run_shows_the_plan_and_leaves_the_disk_as_it_was(askwell, sweep_file, tmp_path):
    path = sweep_file()
    before = sorted(tmp_path.rglob("*"))
    done = askwell("sweep", path, "--dry-run")
    assert done.code == 0, done.err
    assert "4 runs, 0 of them done; 4 to do" in done.out
    assert "about" in done.out
    document = askwell("sweep", path, "--dry-run", "--json").json
    assert [(run["lm"], run["setting"], run["was_done"]) for run in document["runs"]] == [
        ("bert", "init", False), ("bert", "soft", False), ("llama", "init", False), ("llama", "soft", False),
    ]  # fmt: skip
    assert document["estimated_seconds"] > 0
    assert sorted(tmp_path.rglob("*")) == before


def test_a_sweep_is_done_once(askwell, sweep_file, tmp_path):
    path = sweep_file()
    done = askwell("sweep", path, "--json")
    assert done.code == 0, done.err
    assert {run["id"] for run in done.json["runs"]} == {folder.name for folder in (tmp_path / "store/runs").iterdir()}
    assert all(run["failure"] is None for run in done.json["runs"])
    assert "4 runs, 0 of them done; 4 to do: about" in done.err
    assert "4/4  P@1" in done.err
    again = askwell("sweep", path)
    assert again.code == 0
    assert "4 runs, all done" in again.err
    assert "4 of 4 runs are in" in again.out.replace("\n", " ")


def test_options_take_the_place_of_the_file(askwell, sweep_file, tmp_path):
    path = sweep_file(settings={"init": {"tuned": False}}, workers=1, engine="pool")
    done = askwell("sweep", path, "--store", tmp_path / "elsewhere", "--engine", "pool", "--workers", 0)
    assert done.code == 2
    assert "sweep.toml: workers" in done.err
    assert "--store" in askwell("sweep", sweep_file(store="/proc/askwell"), "--dry-run").err
    assert not (tmp_path / "store").exists()


def test_a_store_must_be_named(askwell, sweep_file, tmp_path):
    path = sweep_file()
    path.write_text("\n".join(line for line in path.read_text().splitlines() if not line.startswith('"store"')))
    done = askwell("sweep", path)
    assert done.code == 2
    assert "store is missing" in done.err


@pytest.mark.parametrize(
    ("changed", "part"),
    [
        ({"facts": ["nowhere"]}, "facts: nowhere"),
        ({"lms": ["./nowhere"]}, "lms: ./nowhere"),
        ({"seeds": [1, 1]}, "seeds: 1 is given twice"),
        ({"setings": {}}, "did you mean settings?"),
    ],
)
def test_a_bad_sweep_is_one_message_and_nothing_is_written(askwell, sweep_file, tmp_path, changed, part):
    path = sweep_file(**changed)
    done = askwell("sweep", path)
    assert done.code == 2
    assert done.err.splitlines()[-1].startswith(f"askwell: {path}: ")
    assert part in done.err
    assert "Traceback" not in done.err
    assert not (tmp_path / "store").exists()


def test_a_run_that_fails_is_told_at_the_end(askwell, sweep_file, lms, tmp_path):
    no_word = [("Paris", "東京")]
    facts = write_relation(tmp_path / "bad", train=no_word, dev=no_word, test=no_word)
    path = sweep_file(lms=[str(lms["bert"])], facts=[str(facts)])
    done = askwell("sweep", path)
    assert done.code == 1
    assert "the LM's tokenizer does not know" in done.out
    assert "2 of 2 runs failed" in done.err
    told = askwell("runs", tmp_path / "store", "--failed", "--json").json
    assert len(told) == 2
    assert "y has a character" in askwell("runs", tmp_path / "store", "--failed").out
