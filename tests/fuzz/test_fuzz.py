"""Two thousand hostile files, names and options (a hundred thousand in `make test-full`): every command keeps the rule.

Cases are drawn by hypothesis from a fixed seed for each shard, so that a failure can be had again. Each shard that has
passed is written down where ASKWELL_FUZZ_PROGRESS names a file, and a later run skips it.
"""

import os
import shutil
import tempfile
import warnings
from pathlib import Path

import pytest
import torch
from fuzz.kinds import KINDS, World
from fuzz.rule import Ended, hold, stop_here
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from hypothesis.strategies import DataObject

TIMES = int(os.environ.get("ASKWELL_FUZZ_TIMES") or (50 if os.environ.get("ASKWELL_TEST_FULL") else 1))
PROGRESS = os.environ.get("ASKWELL_FUZZ_PROGRESS")


@pytest.fixture
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    folder = tmp_path / "cache"
    monkeypatch.setenv("ASKWELL_CACHE", str(folder))
    monkeypatch.delenv("ASKWELL_DATA", raising=False)
    monkeypatch.delenv("ASKWELL_TOKEN", raising=False)
    return folder


@pytest.fixture(autouse=True)
def _as_far_as_reading_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands end where they have read all that they read; whole LMs are loaded once."""
    import askwell.cli.data
    import askwell.cli.running
    import askwell.lms.pull
    import askwell.runs.sweep
    import askwell.server.app
    import askwell.testbed.train_lm
    import askwell.training.loop

    do_run = askwell.cli.running.run
    monkeypatch.setattr(
        askwell.cli.running,
        "run",
        lambda *given, **options: (do_run if options.get("resume") else stop_here)(*given, **options),
    )
    monkeypatch.setattr(askwell.training.loop, "step", stop_here)
    monkeypatch.setattr(askwell.runs.sweep, "go", stop_here)
    monkeypatch.setattr(askwell.server.app, "serve", stop_here)
    monkeypatch.setattr(askwell.testbed.train_lm, "train_lm", stop_here)
    monkeypatch.setattr(askwell.cli.data, "pull_sets", stop_here)
    monkeypatch.setattr(askwell.lms.pull, "_fetch_and_convert", stop_here)
    monkeypatch.setattr(torch, "set_num_threads", lambda _threads: None)


def cases(kind: str, number: int, count: int, world: World, folder: Path, cache: Path) -> list[Ended]:
    """So many cases of a kind; raises Broken at the first that does not keep the rule."""
    ended: list[Ended] = []

    @seed(number)
    @settings(
        max_examples=count,
        deadline=None,
        database=None,
        phases=(Phase.generate,),
        suppress_health_check=list(HealthCheck),
    )
    @given(st.data())
    def each(data: DataObject) -> None:
        case = Path(tempfile.mkdtemp(dir=folder))
        try:
            (case / "tmp").mkdir()
            (case / "out").mkdir()
            tempfile.tempdir = str(case / "tmp")
            arguments = KINDS[kind].make(data, world, case)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                ended.append(hold(arguments, case, cache))
        finally:
            tempfile.tempdir = None
            shutil.rmtree(case, ignore_errors=True)

    each()
    return ended


SHARDS = [(kind, number) for kind in KINDS for number in range(TIMES)]


@pytest.mark.parametrize(("kind", "number"), SHARDS, ids=[f"{kind}-{number}" for kind, number in SHARDS])
def test_every_command_keeps_the_rule(kind: str, number: int, world: World, tmp_path: Path, cache: Path) -> None:
    if is_done(kind, number):
        pytest.skip(f"passed before, says {PROGRESS}")
    ended = cases(kind, number, KINDS[kind].cases, world, tmp_path, cache)
    assert {end.code for end in ended} <= {0, 1, 2}
    note_done(kind, number)


def is_done(kind: str, number: int) -> bool:
    return (
        PROGRESS is not None
        and Path(PROGRESS).exists()
        and f"{kind}-{number}" in Path(PROGRESS).read_text().split("\n")
    )


def note_done(kind: str, number: int) -> None:
    if PROGRESS is not None:
        with Path(PROGRESS).open("a") as file:
            file.write(f"{kind}-{number}\n")


def test_there_are_two_thousand_cases() -> None:
    assert sum(kind.cases for kind in KINDS.values()) == 2000
