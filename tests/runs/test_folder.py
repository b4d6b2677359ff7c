"""Reading runs: a single one, a folder of them, a store; anything else is refused."""

import json

import duckdb
import pytest
from builders.outcomes import run_of_distinct_ys
from builders.stores import A, B, keep, new_store, record_of, spec_of
from builders.worlds import frozen

from askwell.errors import BadFile, BadOption, DamagedFile
from askwell.evaluation.outcomes import read_outcomes, write_outcomes
from askwell.mixture.mixture import Mixture
from askwell.runs.folder import (
    check_folder,
    clear_folder,
    column_text,
    delete_run,
    hold_folder,
    is_run,
    load_runs,
    outcomes_of,
    read_run,
    run_folders,
    write_remarks,
    write_run,
)
from askwell.runs.query import choose_run, select_runs
from askwell.runs.record import Remarks


def save(folder, ranks=(1, 20), relation=A, **spec):
    made = spec_of(relation, **spec)
    outcomes = run_of_distinct_ys(ranks, relation)
    write_run(folder, record_of(made, ranks), {"test": outcomes, "dev": outcomes}, {})
    return outcomes


def test_a_run_is_read_as_it_was_written(tmp_path):
    outcomes = save(tmp_path / "one", seed=4)
    run = read_run(tmp_path / "one")
    assert run.record == record_of(spec_of(seed=4), (1, 20))
    assert (run.test, run.dev, run.controls, run.mixture) == (outcomes, outcomes, {}, None)
    assert [found.folder for found in load_runs(tmp_path / "one")] == [tmp_path / "one"]


@pytest.mark.parametrize(("name", "beside"), [("run[1]", "run1"), ("run*", "run2"), ("run?", "run3")])
def test_the_name_of_a_folder_is_no_pattern(name, beside, tmp_path):
    outcomes, others = save(tmp_path / name, (1, 20)), save(tmp_path / beside, (3, 4))
    assert read_run(tmp_path / name).test == outcomes
    assert read_run(tmp_path / beside).test == others


def test_the_runs_of_seeds_and_folds_are_found_beside_others(tmp_path):
    for name in ("one", "seeds/seed-0", "seeds/seed-1", "folds/fold-1", "other/old"):
        save(tmp_path / name)
    (tmp_path / "seeds" / "seed-2").mkdir()
    found = run_folders(tmp_path)
    assert [str(one.relative_to(tmp_path)) for one in found] == ["folds/fold-1", "one", "seeds/seed-0", "seeds/seed-1"]
    assert [column_text("folder", str(one)) for one in found] == ["folds/fold-1", "one", "seeds/seed-0", "seeds/seed-1"]
    assert run_folders(tmp_path / "seeds") == [tmp_path / "seeds" / "seed-0", tmp_path / "seeds" / "seed-1"]


def test_relations_stand_together_and_seeds_apart(tmp_path):
    first, second = save(tmp_path / "relations" / "a", relation=A), save(tmp_path / "relations" / "b", relation=B)
    assert outcomes_of(load_runs(tmp_path / "relations")) == first + second
    first, second = save(tmp_path / "seeds" / "1", seed=1), save(tmp_path / "seeds" / "2", (1, 1), seed=2)
    assert outcomes_of(load_runs(tmp_path / "seeds")) == {1: first, 2: second}
    save(tmp_path / "twice" / "one", seed=1)
    save(tmp_path / "twice" / "two", seed=1, setting="other")
    with pytest.raises(BadFile, match=r"set:a with seed 1 .*one"):
        outcomes_of(load_runs(tmp_path / "twice"))


def test_runs_of_a_store_are_selected(tmp_path):
    store = new_store(tmp_path)
    keep(store, (1, 1), setting="soft")
    keep(store, (1, 20), setting="init", tuned=False)
    assert [run.record.spec.setting for run in select_runs(tmp_path, "P@1 > 60")] == ["soft"]
    assert len(select_runs(tmp_path)) == 2
    with pytest.raises(BadOption, match="`where`"):
        select_runs(tmp_path, "P@1 < 0")
    with pytest.raises(BadFile, match="nothing was tuned"):  # no mixture was saved with these
        choose_run(tmp_path)


def test_what_is_no_run(tmp_path):
    with pytest.raises(BadFile, match="no such folder"):
        load_runs(tmp_path / "nowhere")
    with pytest.raises(BadFile, match="no run here"):
        load_runs(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(BadFile, match="this is a file"):
        load_runs(tmp_path / "file")
    assert not is_run(tmp_path)


def test_a_damaged_record_is_named(tmp_path):
    save(tmp_path / "run")
    path = tmp_path / "run" / "run.json"
    document = json.loads(path.read_text())
    for broken in ("{", json.dumps(document | {"version": 0}), json.dumps(document | {"prompts": 3})):
        path.write_text(broken)
        with pytest.raises(DamagedFile, match=r"run\.json is damaged"):
            read_run(tmp_path / "run")
    path.write_text(json.dumps(document | {"version": 2, "new": 1}))
    with pytest.raises(DamagedFile, match=r"run\.json was written by a later askwell .*: upgrade askwell"):
        read_run(tmp_path / "run")


def test_parquet_files_of_something_else(tmp_path):
    (tmp_path / "text.parquet").write_text("text")
    with pytest.raises(BadFile, match="not a Parquet file of facts"):
        read_outcomes(tmp_path / "text.parquet")
    with duckdb.connect() as database:
        database.execute(f"COPY (SELECT 1 AS one) TO '{tmp_path / 'other.parquet'}'")
    with pytest.raises(BadFile, match="found one"):
        read_outcomes(tmp_path / "other.parquet")


def test_a_folder_is_cleared_of_a_run_and_of_nothing_else(tmp_path):
    save(tmp_path / "run")
    (tmp_path / "run" / "notes.txt").write_text("mine")
    (tmp_path / "run" / "README.md").write_text("mine, too")
    with pytest.raises(BadOption, match="already holds a run"):
        check_folder(tmp_path / "run", resume=False, overwrite=False)
    with pytest.raises(BadOption, match="finished"):
        check_folder(tmp_path / "run", resume=True, overwrite=False)
    clear_folder(tmp_path / "run")
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == ["README.md", "notes.txt"]
    write_outcomes([], tmp_path / "run" / "facts.parquet")
    assert not is_run(tmp_path / "run")


def test_a_run_is_named_noted_and_deleted(tmp_path):
    folder = tmp_path / "run"
    save(folder)
    record = (folder / "run.json").read_bytes()
    assert read_run(folder).remarks == Remarks()
    write_remarks(folder, name=" first try ")
    write_remarks(folder, note="ten prompts,\nno examples")
    assert json.loads((folder / "about.json").read_text()) == {"name": "first try", "note": "ten prompts,\nno examples"}
    assert read_run(folder).remarks == Remarks(name="first try", note="ten prompts,\nno examples")
    for wrong in ("two\nlines", "x" * 201, "\ud800"):
        with pytest.raises(BadOption, match=r"single line|at most 200|unicode"):
            write_remarks(folder, name=wrong)
    write_remarks(folder, name="", note="")
    assert not (folder / "about.json").exists()
    assert (folder / "run.json").read_bytes() == record
    (folder / "about.json").write_text("[]")
    with pytest.raises(DamagedFile, match=r"about\.json"):
        read_run(folder)
    with hold_folder(folder), pytest.raises(BadOption, match="in use"):
        delete_run(folder)
    (folder / "mine.txt").write_text("mine")
    delete_run(folder)
    assert [path.name for path in folder.iterdir()] == ["mine.txt"]
    with pytest.raises(BadFile, match="no complete run"):
        delete_run(folder)
    (folder / "mine.txt").unlink()
    save(folder)
    Mixture(frozen("bert"), "[X] in [Y] .").save_pretrained(folder / "mixture")
    (folder / "mixture" / "tokenizer_path.txt").write_text("vocab.txt")
    delete_run(folder)
    assert not folder.exists()
