"""Runs in progress: locked by a living process, taken over or removed once it is dead, moved into place in one step."""

import os
import signal
from pathlib import Path

import pytest

from askwell.errors import CannotWrite
from askwell.runs.store import Store, UnderWay, unfinished_run

RUN, OTHER = "a" * 64, "b" * 64


def left_by_a_killed_process(parent: Path, run: str = RUN) -> Path:
    """The folder of a process that held it, wrote some files and died."""
    reader, writer = os.pipe()
    child = os.fork()  # a copy of this process: a new one would import torch for seconds
    if child == 0:
        try:
            unfinished = unfinished_run(run, parent).__enter__()
            (unfinished.folder / "checkpoint").write_text("half way")
            (unfinished.result / "spec.json").write_text("half a fi")
            os.write(writer, os.fsencode(unfinished.folder))
        finally:
            os.kill(os.getpid(), signal.SIGKILL)
    os.close(writer)
    with os.fdopen(reader) as told:
        folder = told.read()
    assert os.waitpid(child, 0)[1] == signal.SIGKILL
    assert folder
    return Path(folder)


def test_a_result_comes_into_place_whole_and_leaves_nothing_behind(tmp_path):
    with unfinished_run(RUN, tmp_path / "unfinished") as unfinished:
        (unfinished.result / "spec.json").write_text("{}")
        (unfinished.folder / "checkpoint").write_text("…")
        assert not (tmp_path / "runs").exists()
        unfinished.finish(tmp_path / "runs" / RUN)
    assert [path.name for path in (tmp_path / "runs" / RUN).iterdir()] == ["spec.json"]
    assert list((tmp_path / "unfinished").iterdir()) == []


def test_of_two_that_do_the_same_run_the_first_stands(tmp_path):
    with unfinished_run(RUN, tmp_path / "unfinished") as slow:
        (slow.result / "spec.json").write_text("slow")
        with unfinished_run(RUN, tmp_path / "unfinished") as fast:
            assert fast.folder != slow.folder
            (fast.result / "spec.json").write_text("fast")
            fast.finish(tmp_path / "runs" / RUN)
        slow.finish(tmp_path / "runs" / RUN)
    assert (tmp_path / "runs" / RUN / "spec.json").read_text() == "fast"
    assert list((tmp_path / "unfinished").iterdir()) == []


def test_a_run_under_way_is_left_to_the_process_that_does_it(tmp_path):
    store = Store(tmp_path, "id")
    with unfinished_run(RUN, store.unfinished, alone=True) as first:
        assert store.is_under_way(RUN)
        assert not store.is_under_way(OTHER)
        with pytest.raises(UnderWay), unfinished_run(RUN, store.unfinished, alone=True):
            pass
        assert [path for path in store.unfinished.iterdir() if path.is_dir()] == [first.folder]
    assert not store.is_under_way(RUN)
    left = left_by_a_killed_process(store.unfinished)
    assert not store.is_under_way(RUN)
    with unfinished_run(RUN, store.unfinished, alone=True) as unfinished:
        assert unfinished.folder == left


def test_a_checkpoint_is_kept_while_another_process_does_the_run(tmp_path):
    with unfinished_run(RUN, tmp_path):
        left = left_by_a_killed_process(tmp_path)
        with pytest.raises(UnderWay), unfinished_run(RUN, tmp_path, alone=True):
            pass
        assert (left / "checkpoint").read_text() == "half way"


def test_what_a_killed_process_left_is_taken_over_with_its_checkpoint_but_without_its_result(tmp_path):
    folder = left_by_a_killed_process(tmp_path)
    with unfinished_run(OTHER, tmp_path) as other:
        assert other.folder != folder
    with unfinished_run(RUN, tmp_path) as unfinished:
        assert unfinished.folder == folder
        assert (folder / "checkpoint").read_text() == "half way"
        assert list(unfinished.result.iterdir()) == []
    assert list(tmp_path.iterdir()) == []


def test_only_what_is_dead_and_not_to_go_on_is_removed(tmp_path):
    store = Store(tmp_path, "id")
    store.unfinished.mkdir()
    going_on = left_by_a_killed_process(store.unfinished, RUN)
    dead = left_by_a_killed_process(store.unfinished, OTHER)
    with unfinished_run("c" * 64, store.unfinished) as alive:
        assert store.clean(but={RUN}) == 1
        assert going_on.is_dir()
        assert not dead.exists()
        assert alive.folder.is_dir()
        assert store.clean() == 1
        assert alive.result.is_dir()
    assert list(store.unfinished.iterdir()) == []


@pytest.mark.parametrize(("error", "kept"), [(ValueError, False), (KeyboardInterrupt, True)])
def test_an_error_removes_the_folder_and_an_interruption_keeps_the_checkpoint(tmp_path, error, kept):
    def work() -> None:
        with unfinished_run(RUN, tmp_path) as unfinished:
            (unfinished.folder / "checkpoint").write_text("half way")
            raise error

    with pytest.raises(error):
        work()
    assert [path.read_text() for path in tmp_path.glob("*/checkpoint")] == ["half way"] * kept
    with unfinished_run(RUN, tmp_path) as unfinished:
        assert (unfinished.folder / "checkpoint").exists() == kept


def test_a_place_that_cannot_be_written_is_a_clear_failure(tmp_path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(CannotWrite, match="cannot be written"), unfinished_run(RUN, tmp_path / "file"):
        pass
