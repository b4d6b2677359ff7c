"""Two runs into one folder: the second is refused with a message; a killed one does not block it."""

import os
import signal
from pathlib import Path

import pytest

from askwell.errors import BadOption
from askwell.runs.folder import hold_folder


@pytest.fixture
def other_process(tmp_path: Path):
    """A process that holds the folder until it is killed."""
    reader, writer = os.pipe()
    child = os.fork()  # a copy of this process: a new one would import torch for seconds
    if child == 0:
        try:
            with hold_folder(tmp_path / "out"):
                os.write(writer, b"held")
                signal.pause()
        finally:
            os.kill(os.getpid(), signal.SIGKILL)
    os.close(writer)
    with os.fdopen(reader) as told:
        assert told.read(4) == "held"
    yield child
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


def test_the_second_is_told_that_the_folder_is_in_use(other_process: int, tmp_path: Path) -> None:
    with pytest.raises(BadOption, match="in use by another run"), hold_folder(tmp_path / "out"):
        pass
    with hold_folder(tmp_path / "other"):
        pass
    assert list((tmp_path / "out").iterdir()) == []  # the lock is no file


def test_a_killed_process_does_not_stand_in_the_way(tmp_path: Path) -> None:
    child = os.fork()
    if child == 0:
        try:
            hold_folder(tmp_path / "out").__enter__()
        finally:
            os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    with hold_folder(tmp_path / "out"):
        pass
    with hold_folder(tmp_path / "out"):  # it is free again when the block has ended
        pass
