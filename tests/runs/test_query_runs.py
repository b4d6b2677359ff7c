"""Queries over a store made by hand."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from builders.outcomes import run_of_distinct_ys
from builders.specs import paper_spec
from builders.stores import figures_of, record_of

from askwell.errors import BadFile, BadOption, DamagedFile
from askwell.evaluation.metrics import METRICS, Metric
from askwell.runs.folder import write_run
from askwell.runs.query import query_runs
from askwell.runs.store import FailedRun, Store, open_store
from askwell.specs.run_spec import PromptText, RunSpec
from askwell.specs.training_spec import TrainingSpec


def spec_of(lm: str, setting: str, seed: int, **mixture) -> RunSpec:
    return RunSpec(
        lm=lm, lm_sha256="1", relation="capital", facts_sha256="2", prompts="hand",
        templates=(PromptText(template="[X] in [Y]"),), setting=setting, mixture=paper_spec(seed=seed, **mixture),
        training=None if setting == "init" else TrainingSpec(),
    )  # fmt: skip


def put(store: Store, spec: RunSpec, p_at_1: float, log_loss: float | None = 1.5) -> None:
    figures = replace(figures_of([1] * 8, spec.lm, "capital", "test", 2), log_loss=log_loss)
    test, dev = (replace(figures, micro={"P@1": score, "P@10": 90.0, "MRR": 50.0}) for score in (p_at_1, p_at_1 + 1))
    prompts = [{"template": "[X] in [Y]", "weight": 1 / 3}] * 3
    record = record_of(spec, [1] * 8, effective_prompts=2.5, prompts=prompts, test=test, dev=dev)
    outcomes = run_of_distinct_ys([1] * 8, "capital")
    write_run(store.run_folder(spec.id), record, {"test": outcomes, "dev": outcomes}, {})


@pytest.fixture
def store(tmp_path) -> Store:
    made = Store(tmp_path / "made [by] hand", "id")
    made.make()
    put(made, spec_of("testbed:bert", "soft", 1), 40.0)
    put(made, spec_of("testbed:bert", "soft", 0, deep=True), 60.0)
    put(made, spec_of("testbed:bert", "init", 0), 10.0, log_loss=None)
    put(made, spec_of("o'hara/lm", "soft", 0), 50.0)
    return made


def test_all_runs_in_the_order_of_their_labels(store):
    found = query_runs(store.runs()).records()
    assert [(run["lm"], run["setting"], run["seed"], run["P@1"]) for run in found] == [
        ("o'hara/lm", "soft", 0, 50.0),
        ("testbed:bert", "init", 0, 10.0),
        ("testbed:bert", "soft", 0, 60.0),
        ("testbed:bert", "soft", 1, 40.0),
    ]
    init = found[1]
    assert init["id"] == spec_of("testbed:bert", "init", 0).id
    told = ("relation", "prompts", "P@10", "MRR", "log_loss", "dev_P@1", "facts", "left_out", "n_prompts", "tuned",
            "deep", "method", "seconds", "askwell", "temperature", "effective_prompts")  # fmt: skip
    assert [init[name] for name in told] == [
        "capital", "hand", 90.0, 50.0, None, 11.0, 8, 2, 3, False, False, None, 2.0, "1", None, 2.5,
    ]  # fmt: skip
    assert (found[2]["deep"], found[2]["tuned"], found[2]["method"]) == (True, True, "gradient")


@pytest.mark.parametrize(
    ("where", "scores"),
    [
        ("lm = 'testbed:bert' and setting = 'soft'", [60.0, 40.0]),
        ("P@1 > 40", [50.0, 60.0]),
        ('"P@1" >= 40 and dev_P@1 < 52', [50.0, 40.0]),
        ("lm like 'o''hara%' or not tuned", [50.0, 10.0]),
        ("deep", [60.0]),
        ("log_loss is null", [10.0]),
        ("setting = 'P@1'", []),
    ],
)
def test_a_condition_is_sql_over_the_columns(store, where, scores):
    assert [run["P@1"] for run in query_runs(store.runs(), where=where).records()] == scores


def test_scores_are_sorted_best_first_and_the_rest_upwards(store):
    assert [run["P@1"] for run in query_runs(store.runs(), sort="P@1").records()] == [60.0, 50.0, 40.0, 10.0]
    assert [run["seed"] for run in query_runs(store.runs(), sort="seed").records()] == [0, 0, 0, 1]


def test_a_metric_sorts_by_its_name_and_by_its_column(store):
    by_name, by_column = (query_runs(store.runs(), sort=sort) for sort in ("log-loss", "log_loss"))
    assert len(by_name) == 4
    assert by_name.records() == by_column.records()


def test_what_is_not_whole_is_not_seen(store):
    (store.unfinished / ("c" * 64 + "-x" + "/result")).mkdir(parents=True)
    assert len(query_runs(store.runs())) == 4


def test_an_empty_store_has_no_runs(tmp_path):
    made = Store(tmp_path, "id")
    made.make()
    assert query_runs(made.runs(), where="P@1 > 3", sort="P@1") == []


def test_mistakes_are_named(store):
    with pytest.raises(BadOption, match="did you mean setting"):
        query_runs(store.runs(), sort="seting")
    with pytest.raises(BadOption, match=r"^`where` settin = 3: there is no column settin; did you mean setting\?$"):
        query_runs(store.runs(), where="settin = 3")
    with pytest.raises(BadOption, match=r"no column colour; choose from folder, name, note, id, lm, relation"):
        query_runs(store.runs(), where="colour = 3")
    with pytest.raises(BadOption, match=r"`where` seed = = 3: .*syntax.*The columns are folder, name"):
        query_runs(store.runs(), where="seed = = 3")
    with pytest.raises(BadOption, match="`where`"):
        query_runs(store.runs(), where="lm = (select content from read_text('/etc/hostname'))")


def test_a_damaged_file_is_named(store):
    path = store.run_folder(spec_of("testbed:bert", "init", 0).id) / "run.json"
    path.write_text('{"test": ')
    with pytest.raises(DamagedFile, match=r"run\.json is damaged"):
        query_runs(store.runs())


def test_a_folder_that_is_no_store(tmp_path):
    with pytest.raises(BadFile, match="not a store of runs"):
        open_store(tmp_path)
    (tmp_path / "store.json").write_text('{"format": "askwell-store", "version": 99}')
    with pytest.raises(DamagedFile, match=r"written by a later askwell \(version 99 of its format.*upgrade askwell"):
        open_store(tmp_path)


def test_a_failure_is_kept_until_the_run_is_done(store):
    spec = spec_of("testbed:bert", "em", 7)
    store.note_failure(FailedRun.of(spec, "no facts left"))
    assert [(failure.id, failure.message) for failure in store.failures()] == [(spec.id, "no facts left")]
    assert store.failures()[0].spec == spec
    store.put(spec.id, {"some file": b""})
    assert store.failures() == []
    assert spec.id in store.done()


def test_where_a_run_was_made_names_no_path_machine_or_user():
    import getpass
    import socket

    from askwell.runs.record import environment

    made_with = environment().model_dump(exclude_none=True)
    assert set(made_with) - {"git"} == {"version", "askwell", "python", "torch", "transformers", "platform"}
    text = json.dumps(made_with)
    assert str(Path.cwd()) not in text
    assert socket.gethostname() not in text
    assert f'"{getpass.getuser()}"' not in text


def test_a_metric_that_is_newer_than_a_run_comes_from_its_outcomes(store, monkeypatch):
    newer = Metric("P@7", lambda outcome: float(outcome.rank <= 7))
    monkeypatch.setattr("askwell.evaluation.metrics.METRICS", {**METRICS, "P@7": newer})
    assert [run.score("P@7") for run in store.runs()] == [100.0] * 4
    assert {run.score("P@1") for run in store.runs()} == {10.0, 40.0, 50.0, 60.0}  # as the records say
