"""Two thousand hostile files, names and options (a hundred thousand in `make test-full`): every command keeps the rule.

Cases are drawn from fixed seeds, so that a failure can be reproduced: those of shard 0 by hypothesis, the others by a
random generator, which takes a fraction of the time. `make test` runs shard 1, `make test-full` shards 0 to 49. Each
shard that has passed is written down where ASKWELL_FUZZ_PROGRESS names a file, and a later run skips it.
"""

import os
import shutil
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from fuzz.cheap import load_whole_lms_once, parse_options_quickly
from fuzz.draws import Draws, FromHypothesis, FromSeed
from fuzz.kinds import KINDS, World, base_commands
from fuzz.rule import Broken, Ended, hold, stop_here
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from hypothesis.strategies import DataObject

from askwell.cli.commands import COMMANDS, GROUPS

TIMES = int(os.environ.get("ASKWELL_FUZZ_TIMES") or (50 if os.environ.get("ASKWELL_TEST_FULL") else 1))
PROGRESS = os.environ.get("ASKWELL_FUZZ_PROGRESS")


@pytest.fixture
def shard_folder(tmp_path: Path) -> Iterator[Path]:
    """In memory where there is such a place: each case makes and removes many small files."""
    in_memory = Path("/dev/shm")
    if not os.access(in_memory, os.W_OK) or shutil.disk_usage(in_memory).free < 2**30:
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir=in_memory, prefix="askwell-fuzz-") as folder:
        yield Path(folder)


@pytest.fixture
def cache(monkeypatch: pytest.MonkeyPatch, shard_folder: Path) -> Path:
    folder = shard_folder / "cache"
    monkeypatch.setenv("ASKWELL_CACHE", str(folder))
    monkeypatch.delenv("ASKWELL_DATA", raising=False)
    monkeypatch.delenv("ASKWELL_TOKEN", raising=False)
    return folder


@pytest.fixture(autouse=True)
def _as_far_as_reading_goes(monkeypatch: pytest.MonkeyPatch, world: World) -> None:
    """Commands end where they have read all that they read; what is the same for all cases is made once."""
    import askwell.cli.data
    import askwell.cli.running
    import askwell.lms.available
    import askwell.runs.diff_lms
    import askwell.runs.engines
    import askwell.runs.probe_lms
    import askwell.server.app
    import askwell.training.loop

    do_run = askwell.cli.running.run
    monkeypatch.setattr(
        askwell.cli.running,
        "run",
        lambda *given, **options: (do_run if options.get("resume") else stop_here)(*given, **options),
    )
    monkeypatch.setattr(askwell.training.loop, "step", stop_here)
    monkeypatch.setattr(askwell.runs.engines, "run_plan", stop_here)
    monkeypatch.setattr(askwell.runs.probe_lms, "run_plan", stop_here)
    monkeypatch.setattr(askwell.runs.diff_lms, "run", stop_here)
    monkeypatch.setattr(askwell.server.app, "serve", stop_here)
    monkeypatch.setattr(askwell.cli.data, "pull_sets", stop_here)
    monkeypatch.setattr(askwell.lms.available, "_fetch_and_convert", stop_here)
    monkeypatch.setattr(torch, "set_num_threads", lambda _threads: None)
    load_whole_lms_once(monkeypatch, world)
    parse_options_quickly(monkeypatch)


def case_of(kind: str, draws: Draws, world: World, folder: Path, cache: Path) -> Ended:
    """One case in a folder of its own; raises Broken if it does not keep the rule."""
    case = Path(tempfile.mkdtemp(dir=folder))
    try:
        (case / "tmp").mkdir()
        (case / "out").mkdir()
        tempfile.tempdir = str(case / "tmp")
        arguments = KINDS[kind].make(draws, world, case)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return hold(arguments, case, cache)
    finally:
        tempfile.tempdir = None
        shutil.rmtree(case, ignore_errors=True)


def cases(kind: str, number: int, count: int, world: World, folder: Path, cache: Path) -> list[Ended]:
    """So many cases of a kind; raises Broken if some do not keep the rule."""
    ended: list[Ended] = []
    if number:
        broken = []
        for case in range(count):
            try:
                ended.append(case_of(kind, FromSeed(f"{kind}-{number}-{case}"), world, folder, cache))
            except Broken as problem:
                broken.append(f"case {case}: {problem}")
        if broken:
            raise Broken(f"{len(broken)} of {count} cases\n" + "\n".join(broken[:5]))
        return ended

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
        ended.append(case_of(kind, FromHypothesis(data), world, folder, cache))

    each()
    return ended


SHARDS = [(kind, number) for kind in KINDS for number in (range(TIMES) if TIMES > 1 else (1,))]


@pytest.mark.parametrize(("kind", "number"), SHARDS, ids=[f"{kind}-{number}" for kind, number in SHARDS])
def test_every_command_keeps_the_rule(
    kind: str, number: int, world: World, shard_folder: Path, cache: Path, record_property
) -> None:
    if is_done(kind, number):
        pytest.skip(f"passed before, says {PROGRESS}")
    ended = cases(kind, number, KINDS[kind].cases, world, shard_folder, cache)
    assert {end.code for end in ended} <= {0, 1, 2}
    record_property("cases", len(ended))
    note_done(kind, number)


FOUND = [("typed words", 21, 75), ("mixtures", 10, 1), ("mixtures", 14, 23), ("LMs", 13, 32)]
FOUND += [("LMs", 13, 47)]
"""Of the long checks, cases that broke the rule once: the kind, the shard and the number in it."""


@pytest.mark.parametrize(("kind", "number", "case"), FOUND)
def test_what_broke_the_rule_once_keeps_it(
    kind: str, number: int, case: int, world: World, shard_folder: Path, cache: Path
) -> None:
    assert case_of(kind, FromSeed(f"{kind}-{number}-{case}"), world, shard_folder, cache).code in (0, 1, 2)


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


def test_every_command_is_tried(world: World) -> None:
    names = [(command.name,) for command in COMMANDS]
    names += [(group, command.name) for group, (_, commands) in GROUPS.items() for command in commands]
    assert {*names} <= base_commands(world).keys()
