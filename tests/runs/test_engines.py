"""The engines: the same store from each, and none is stopped by one bad run or one dead worker."""

import multiprocessing
import os
import shutil
import signal
import threading
import time
from dataclasses import replace
from itertools import pairwise
from multiprocessing import resource_tracker, util
from pathlib import Path

import pytest
from builders.specs import paper_spec
from builders.sweeps import contents
from builders.worlds import write_relation

from askwell.evaluation.outcomes import read_outcomes
from askwell.runs import engines as pool
from askwell.runs.engines import TRIES, Ended, InProcess, Lost, Pool, Started, choose_engine, run_plan
from askwell.runs.plan import plan_sweep
from askwell.runs.store import FailedRun, Store, new_or_open_store, unfinished_run
from askwell.runs.worker import RunDone, RunElsewhere, RunOutcome, RunTask, do_run
from askwell.specs.run_spec import read_sweep


def run_sweep(path: Path, engine=None, **instead):
    sweep = read_sweep(path, {key: str(value) for key, value in instead.items()})
    assert sweep.store is not None
    store = new_or_open_store(Path(sweep.store))
    plan = plan_sweep(sweep, path, store)
    events: list = []
    failed = run_plan(plan, engine or choose_engine(sweep), store, events.append)
    return plan, events, failed


@pytest.fixture(scope="module")
def undisturbed(world, tmp_path_factory):
    """The store of a sweep in this process, its plan and events."""
    folder = tmp_path_factory.mktemp("undisturbed")
    plan, events, failed = run_sweep(world.write_sweep(folder))
    assert failed == []
    return folder / "store", plan, events


def test_each_run_is_kept_whole(undisturbed):
    store, plan, events = undisturbed
    assert len(plan.runs) == 16
    assert sorted(path.name for path in (store / "runs").iterdir()) == sorted(task.spec.id for task in plan.runs)
    for task in plan.runs:
        folder = store / "runs" / task.spec.id
        names = {"run.json", "environment.json"}
        names |= {f"{kept}.parquet" for kept in ("facts", "dev", "train", "controls")}
        tuned = task.spec.setting == "soft"
        more = {"mixture", "history.jsonl"} if tuned else set()
        assert {path.name for path in folder.iterdir()} == names | more
        record = Store(store, "").read(task.spec.id).record
        assert record.spec == task.spec
        ranks = [outcome.rank for outcome in read_outcomes(folder / "facts.parquet")]
        assert record.test.micro["P@1"] == pytest.approx(100 * sum(rank <= 1 for rank in ranks) / len(ranks))
        assert len(record.prompts) == len(task.spec.templates)
        assert bool(record.history) == tuned
        assert str(store) not in (folder / "environment.json").read_text()
    starts = [event.task.spec.id for event in events if isinstance(event, Started)]
    ends = [event.task.spec.id for event in events if isinstance(event, Ended)]
    assert starts == ends == [task.spec.id for task in plan.runs]


def test_a_run_equals_the_same_steps_by_hand(undisturbed, world):
    from askwell import Mixture, TrainingSpec, evaluate, load_lm, load_prompts, load_relation, train

    store, plan, _ = undisturbed
    [task] = [
        task for task in plan.runs
        if (task.spec.lm, task.spec.relation, task.spec.prompts, task.spec.setting)
        == ("bert", "places/capital", "many", "soft")
    ]  # fmt: skip
    relation = load_relation("places/capital", data=world.data)
    mixture = Mixture(
        load_lm(world.folder / "bert", device="cpu"), load_prompts("many/capital", data=world.data), paper_spec()
    )
    train(mixture, relation, TrainingSpec(epochs=2, threads=1))
    expected = evaluate(mixture, relation)
    record = Store(store, "").read(task.spec.id).record
    assert [prompt.weight for prompt in record.prompts] == mixture.weights.tolist()
    assert record.test == expected.figures()
    assert read_outcomes(store / "runs" / task.spec.id / "facts.parquet") == list(expected.outcomes)


def test_a_data_dependent_run_tells_how_much_its_weights_depend_on_x(world, tmp_path):
    import numpy as np
    import torch

    from askwell import Mixture, load_lm, load_prompts, load_relation

    settings = {"dependent": {"tuned": False, "weighting": "data-dependent"}, "static": {"tuned": False}}
    changed = {"facts": ["places/other"], "prompts": {"many": ["many"]}, "settings": settings}
    plan, _, failed = run_sweep(world.write_sweep(tmp_path, lms=[str(world.folder / "bert")], **changed))
    assert failed == []
    records = {task.spec.setting: Store(tmp_path / "store", "").read(task.spec.id).record for task in plan.runs}
    mixture = Mixture(
        load_lm(world.folder / "bert", device="cpu"),
        load_prompts("many/other", data=world.data),
        paper_spec(weighting="data-dependent"),
    )
    facts, _ = mixture.encode(load_relation("places/other", data=world.data).test)
    with torch.no_grad():
        likelihoods = np.exp(mixture.log_p_x(facts.xs, torch.arange(len(facts))).double().numpy())
    posterior = likelihoods / likelihoods.sum(1, keepdims=True)  # equal weights, T = 1
    expected = float(-(posterior * np.log2(posterior)).sum(1).mean())
    assert records["dependent"].mean_entropy_over_x == pytest.approx(expected, rel=1e-5)
    assert records["dependent"].temperature == 1.0
    assert (records["static"].mean_entropy_over_x, records["static"].temperature) == (None, None)


def test_what_is_done_is_not_done_again(undisturbed, world):
    store, _, _ = undisturbed
    before = {path: path.stat().st_mtime_ns for path in store.rglob("*")}
    plan, events, failed = run_sweep(world.write_sweep(store.parent))
    assert (len(plan.done), plan.to_do, events, failed) == (16, (), [], [])
    assert plan.estimate(1) == 0.0
    assert {path: path.stat().st_mtime_ns for path in store.rglob("*")} == before


def is_left_to_another(event) -> bool:
    return isinstance(event, Ended) and isinstance(event.outcome, RunElsewhere)


@pytest.mark.parametrize("ends", ["with the run", "without it"])
def test_a_run_that_another_sweep_has_under_way_is_left_to_it(ends, undisturbed, world, tmp_path):
    path = world.write_sweep(tmp_path)
    store = new_or_open_store(tmp_path / "store")
    plan = plan_sweep(read_sweep(path), path, store)
    new_or_open_store(tmp_path / "store").make()  # both were planned before there was a store
    held = plan.runs[0]
    events: list = []
    sweeping = threading.Thread(target=run_plan, args=(plan, InProcess(), store, events.append), daemon=True)
    with unfinished_run(held.spec.id, store.unfinished) as elsewhere:
        sweeping.start()
        until = time.monotonic() + 240
        while sum(isinstance(event, Ended) for event in events) < len(plan.runs) and time.monotonic() < until:
            time.sleep(0.05)
        left_to_others = [event.task.spec.id for event in events if is_left_to_another(event)]
        assert left_to_others == [held.spec.id]
        assert held.spec.id not in store.done()
        if ends == "with the run":
            shutil.copytree(undisturbed[0] / "runs" / held.spec.id, elsewhere.result, dirs_exist_ok=True)
            elsewhere.finish(store.run_folder(held.spec.id))
    sweeping.join(240)
    assert not sweeping.is_alive()
    starts = [event.task.spec.id for event in events if isinstance(event, Started)]
    assert starts.count(held.spec.id) == (1 if ends == "with the run" else 2)
    ended = [event.task.spec.id for event in events if isinstance(event, Ended) and not is_left_to_another(event)]
    assert sorted(ended) == sorted(task.spec.id for task in plan.runs)
    assert store.done() == {task.spec.id for task in plan.runs}
    assert not store.unfinished.exists()


def test_a_larger_sweep_does_only_what_is_new(undisturbed, world, tmp_path):
    store, plan, _ = undisturbed
    settings = {"init": {"tuned": False}, "soft": {"epochs": 2}, "weights": {"epochs": 1, "tune_vectors": False}}
    path = world.write_sweep(tmp_path, store=str(store), settings=settings)
    larger = plan_sweep(read_sweep(path), path, new_or_open_store(store))
    assert larger.done == {task.spec.id for task in plan.runs}
    assert [task.spec.setting for task in larger.to_do] == ["weights"] * 8
    assert set(larger.seconds) == {task.spec.id for task in larger.to_do}


def test_files_made_where_the_store_is_not_seen_make_the_same_run(undisturbed, tmp_path):
    store, plan, _ = undisturbed
    task = plan.runs[1]
    away = replace(task, store=replace(task.store, folder=tmp_path / "not here"))
    done = do_run(away)
    assert isinstance(done, RunDone)
    assert done.files is not None
    assert list(tmp_path.iterdir()) == []
    collected = Store(tmp_path / "collected", "other")
    collected.make()
    collected.put(done.id, done.files)
    expected = {name: content for name, content in contents(store).items() if task.spec.id in name}
    assert contents(collected.folder) == expected


def test_a_folder_that_is_another_store_is_not_written(undisturbed, tmp_path):
    _, plan, _ = undisturbed
    task = plan.runs[0]
    other = Store(tmp_path, "another")
    other.make()
    done = do_run(replace(task, store=replace(task.store, folder=tmp_path)))
    assert isinstance(done, RunDone)
    assert done.files is not None
    assert other.done() == frozenset()


def test_a_worker_with_another_lm_refuses(undisturbed, world, tmp_path):
    _, plan, _ = undisturbed
    task = plan.runs[0]
    other = replace(task, lm=replace(task.lm, name=str(world.folder / "llama")), store=Store(tmp_path, "empty"))
    failed = do_run(other)
    assert isinstance(failed, FailedRun)
    assert "different LM" in failed.message


def test_a_run_that_cannot_be_done_stops_no_other_and_is_tried_again(world, tmp_path):
    no_word = [("Paris", "東京")]
    bad = write_relation(tmp_path / "bad", train=no_word, dev=no_word, test=no_word)
    facts, prompts = [str(bad), "places/other"], {"a": ["[X] in [Y]"]}
    path = world.write_sweep(tmp_path, lms=[str(world.folder / "bert")], facts=facts, prompts=prompts)
    plan, _, failed = run_sweep(path, InProcess())
    store = Store(tmp_path / "store", "")
    assert [failure.message for failure in failed] == [
        "no test facts of bad left: 1 × y has a character that the LM's tokenizer does not know",
        "no train facts of bad left: 1 × y has a character that the LM's tokenizer does not know",
    ]
    assert {failure.id for failure in store.failures()} == {task.spec.id for task in plan.runs[:2]}
    assert store.done() == {task.spec.id for task in plan.runs[2:]}
    assert not store.unfinished.exists()
    again, events, failed = run_sweep(path, InProcess())
    assert len(again.to_do) == len(failed) == 2
    assert len(events) == 4


def die_always(_task: RunTask):
    os.kill(os.getpid(), signal.SIGKILL)


def die_once(task: RunTask) -> RunDone:
    mark = task.store.folder / f"{task.spec.id}.died"
    if task.spec.setting == "soft" and not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return RunDone(task.spec.id, 1.0, 0.0)


def tell_pid(task: RunTask) -> RunDone:
    return RunDone(task.spec.id, float(os.getpid()), 0.0)


def do_and_tell_pid(task: RunTask) -> RunOutcome:
    done = do_run(task)
    return tell_pid(task) if isinstance(done, RunDone) else done


class DiesWhenDone(InProcess):
    """Does runs, and is killed each time before it can say so."""

    def run(self, tasks, do, tell) -> None:
        for task in tasks:
            tell(Started(task))
            do(task)
            tell(Ended(task, FailedRun.of(task.spec, "its worker died")))


def test_a_run_that_is_there_has_not_failed_though_its_worker_died(world, tmp_path):
    path = world.write_sweep(tmp_path, lms=[str(world.folder / "bert")], facts=["places/other"])
    plan, events, failed = run_sweep(path, DiesWhenDone())
    store = Store(tmp_path / "store", "")
    assert failed == store.failures() == []
    assert store.done() == {task.spec.id for task in plan.runs}
    ends = [event.outcome for event in events if isinstance(event, Ended)]
    assert len(ends) == len(plan.runs)
    for task, end in zip(plan.runs, ends, strict=True):
        ranks = [outcome.rank for outcome in read_outcomes(store.run_folder(task.spec.id) / "facts.parquet")]
        assert isinstance(end, RunDone)
        assert end.p_at_1 == pytest.approx(100 * sum(rank <= 1 for rank in ranks) / len(ranks))


def test_a_run_that_is_there_is_not_done_again_when_its_worker_is_replaced(undisturbed, monkeypatch):
    store, plan, _ = undisturbed
    before = contents(store)
    monkeypatch.setattr("askwell.runs.worker.run", lambda *_arguments, **_options: pytest.fail("it was done again"))
    done = do_run(plan.runs[1])
    assert isinstance(done, RunDone)
    assert done.files is None
    assert contents(store) == before


def test_why_a_run_had_failed_is_forgotten_when_it_is_there(undisturbed, world):
    """Its worker can be killed when the run is in the store already, but the note of its failure not yet removed."""
    folder, plan, _ = undisturbed
    store = Store(folder, "")
    store.note_failure(FailedRun.of(plan.runs[0].spec, "its worker died"))
    assert store.failures() == []
    assert run_sweep(world.write_sweep(folder.parent))[1:] == ([], [])
    assert list((folder / "failed").iterdir()) == []


@pytest.fixture
def quick_start(monkeypatch):
    """Workers are copies of this process, since new ones would import torch for seconds; they do not use it here."""
    monkeypatch.setattr(pool, "_PROCESSES", multiprocessing.get_context("fork"))


def test_a_worker_that_dies_is_replaced_and_its_run_tried_again(undisturbed, quick_start, tmp_path):
    _, plan, _ = undisturbed
    tasks = [replace(task, store=Store(tmp_path, "")) for task in plan.runs[:4]]
    events: list = []
    Pool(2).run(tasks, die_once, events.append)
    lost = [event.task.spec.id for event in events if isinstance(event, Lost)]
    assert sorted(lost) == sorted(task.spec.id for task in tasks if task.spec.setting == "soft")
    assert {event.task.spec.id for event in events if isinstance(event, Ended)} == {task.spec.id for task in tasks}
    assert all(isinstance(event.outcome, RunDone) for event in events if isinstance(event, Ended))


def test_a_run_whose_worker_always_dies_is_given_up(undisturbed, quick_start):
    _, plan, _ = undisturbed
    events: list = []
    Pool(1).run(plan.runs[:1], die_always, events.append)
    assert [type(event) for event in events] == [Started, Lost] * (TRIES - 1) + [Started, Ended]
    assert "its worker died (signal 9) 3 times" in events[-1].outcome.message


@pytest.fixture(scope="module")
def interrupted_workers(world, tmp_path_factory):
    """The store and events of a pool of two, and what its workers told.

    Each of them got Ctrl-C before Python was up in it.
    """
    folder, events = tmp_path_factory.mktemp("pool"), []
    path = world.write_sweep(folder)
    store = new_or_open_store(folder / "store")
    plan = plan_sweep(read_sweep(path), path, store)
    store.make()

    def tell(event) -> None:
        events.append(event)
        if isinstance(event, Started):
            for worker in multiprocessing.active_children():
                assert worker.pid is not None
                os.kill(worker.pid, signal.SIGINT)

    told, terminal = folder / "err.txt", os.dup(2)
    with told.open("wb") as errors:
        os.dup2(errors.fileno(), 2)
        try:
            Pool(2).run(plan.runs, do_and_tell_pid, tell)
        finally:
            os.dup2(terminal, 2)
            os.close(terminal)
    store.clean()
    return store.folder, events, told.read_text()


@pytest.mark.slow
def test_the_pool_leaves_the_same_store(undisturbed, interrupted_workers):
    store, plan, _ = undisturbed
    other, events, _ = interrupted_workers
    assert len(events) == 2 * len(plan.runs)
    assert contents(other) == contents(store)


@pytest.mark.slow
def test_workers_ignore_ctrl_c_from_their_first_instruction(interrupted_workers):
    _, events, told = interrupted_workers
    assert {type(event) for event in events} == {Started, Ended}
    assert all(isinstance(event.outcome, RunDone) for event in events if isinstance(event, Ended))
    assert told == ""


@pytest.mark.slow
def test_runs_of_one_lm_go_to_the_same_worker(interrupted_workers):
    _, events, _ = interrupted_workers
    started = [event.task.spec.lm for event in events if isinstance(event, Started)]
    assert sorted(started[:2]) == ["bert", "llama"]  # each worker begins with an LM of its own
    lms_of: dict = {}
    for event in events:
        if isinstance(event, Ended):
            lms_of.setdefault(event.outcome.p_at_1, []).append(event.task.spec.lm)
    assert len(lms_of) <= 2
    for lms in lms_of.values():  # and changes over at most once, when there is no other run of its LM
        assert sum(one != next_ for one, next_ in pairwise(lms)) <= 1


def test_ctrl_c_while_a_worker_is_started_leaves_no_worker_and_no_traceback(undisturbed, monkeypatch, capfd):
    _, plan, _ = undisturbed
    resource_tracker.ensure_running()
    start, pids, told = util.spawnv_passfds, [], []

    def start_and_interrupt(*arguments) -> int:
        """The worker is there, but has not been told yet what it is to be."""
        pids.append(start(*arguments))
        os.kill(os.getpid(), signal.SIGINT)
        return pids[-1]

    monkeypatch.setattr(util, "spawnv_passfds", start_and_interrupt)
    with pytest.raises(KeyboardInterrupt):
        Pool(2).run(plan.runs[:4], tell_pid, told.append)
    assert told == []
    assert len(pids) == 1
    with pytest.raises(ChildProcessError):  # it has ended, and been waited for
        os.waitpid(pids[0], 0)
    assert capfd.readouterr().err == ""
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, ())
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
