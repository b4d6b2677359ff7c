"""Commands killed at any of their steps on disk: no file is half written, and the same command finishes the work."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from builders.killed import FULL, count_steps, kill_at, spread
from builders.servers import served
from builders.sweeps import as_toml, contents, files_in

from askwell.cli.main import main
from askwell.runs.folder import is_run, load_runs, read_run
from askwell.runs.probe_results import RESULTS, ProbedRun, read_results
from askwell.runs.record import Environment
from askwell.server.client import Client
from askwell.server.settings import Settings

KILLS = 40 if FULL else 1
REPORT_KILLS = 20 if FULL else 1
SERVE_KILLS = 20 if FULL else 1
NEWER_KILLS = 10 if FULL else 1


def command(*arguments: object) -> Callable[[], None]:
    return lambda: main([str(argument) for argument in arguments])


def run_here(*arguments: object) -> None:
    with pytest.raises(SystemExit) as stop:
        main([str(argument) for argument in arguments])
    assert not stop.value.code


PROMPT = ("--prompts", "[X] lies in [Y] .")


def test_a_training_run_killed_at_any_step(lms, facts, tmp_path):
    train = ("train", "--lm", lms["bert"], "--facts", facts, *PROMPT, "--pairs", 24)
    goes_on_to_the_same_run(train, tmp_path, KILLS)


def test_a_transfer_killed_at_any_step(lms, facts, tmp_path):
    learned = tmp_path / "learned"
    run_here("train", "--lm", lms["bert"], "--facts", facts, *PROMPT, "--pairs", 12, "--out", learned)
    transfer = ("transfer", learned, "--lm", lms["roberta"], "--facts", facts, "--tune", "--pairs", 24)
    goes_on_to_the_same_run(transfer, tmp_path, NEWER_KILLS)


def goes_on_to_the_same_run(words: tuple[object, ...], folder: Path, kills: int) -> None:
    """Whatever a command that tunes is killed at, it can be continued or begun anew, and ends with the same files."""
    run_here(*words, "--out", folder / "whole")
    expected, out = files_in(folder / "whole"), folder / "run"
    again = (*words, "--out", out)
    steps = count_steps(out, command(*again))
    for step in spread(steps, kills):
        shutil.rmtree(out, ignore_errors=True)
        assert kill_at(step, out, command(*again))
        if out.is_dir() and is_run(out):  # all but the checkpoint's removal was done
            assert read_run(out).record.test.facts
        begun = (out / "checkpoint.safetensors").exists()
        run_here(*again, "--resume" if begun else "--overwrite")
        assert without_asides(files_in(out)) == expected


def is_aside(name: str) -> bool:
    """Whether a file was being written, aside from the one whose place it was to take."""
    return any(part.startswith(".") for part in Path(name).parts)


def without_asides(files: dict) -> dict:
    """Without what a kill leaves beside a file that was just being written."""
    return {name: content for name, content in files.items() if not is_aside(name)}


def test_a_sweep_in_one_process_killed_at_any_step(lms, facts, tmp_path):
    table = {
        "lms": [str(lms["bert"])], "facts": [str(facts)], "prompts": {"hand": ["[X] lies in [Y] ."]},
        "settings": {"init": {"tuned": False}, "soft": {"pairs": 24}}, "engine": "in-process", "seeds": [0],
    }  # fmt: skip
    path, store = tmp_path / "sweep.toml", tmp_path / "store"
    path.write_text(as_toml(table))
    run_here("sweep", path, "--store", tmp_path / "whole")
    expected = contents(tmp_path / "whole")
    sweep = ("sweep", path, "--store", store)
    steps = count_steps(store, command(*sweep))
    for step in spread(steps, KILLS):
        shutil.rmtree(store, ignore_errors=True)
        assert kill_at(step, store, command(*sweep))
        if (store / "runs").is_dir() and list((store / "runs").iterdir()):
            assert all(run.record.test.facts for run in load_runs(store))
        run_here(*sweep)
        assert contents(store) == expected


def test_a_diff_killed_at_any_step(lms, facts, tmp_path):
    diff = ("diff", lms["bert"], "--after-bits", 2, "--facts", facts, *PROMPT, "--pairs", 12, "--out")
    goes_on_to_the_same_store(diff, tmp_path, lambda out: {path.name: path.read_bytes() for path in out.glob("diff.*")})


def test_a_probe_killed_at_any_step(lms, facts, tmp_path):
    settings = ("--settings", "hard-prompt", "examples", "soft-prompt", "--minutes", 0.001, "--workers", 1)
    probe = ("probe", lms["bert"], "--set", facts, *PROMPT, *settings, "--out")

    def kept(out: Path) -> list[ProbedRun]:
        runs = read_results(out / RESULTS).values()
        return [run.model_copy(update={"environment": Environment()}) for run in runs]

    goes_on_to_the_same_store(probe, tmp_path, kept)


def goes_on_to_the_same_store(words: tuple[object, ...], folder: Path, kept: Callable[[Path], Any]) -> None:
    """Whatever a command with a store of its own is killed at, the same command ends with the same runs and files."""
    whole, out = folder / "whole", folder / "out"
    run_here(*words, whole)
    steps = count_steps(out, command(*words, out))
    for step in spread(steps, NEWER_KILLS):
        shutil.rmtree(out, ignore_errors=True)
        assert kill_at(step, out, command(*words, out))
        run_here(*words, out)
        assert contents(out) == contents(whole)
        assert kept(out) == kept(whole)


def test_a_report_killed_at_any_step(lms, facts, tmp_path):
    run = tmp_path / "run"
    given = ("--lm", lms["bert"], "--facts", facts, "--prompts", "[X] lies in [Y] .", "--pairs", 12)
    run_here("train", *given, "--out", run)
    options = ("--drawn", 0, "--format", "csv", "markdown")
    run_here("report", run, "--out", tmp_path / "whole", *options)
    expected, out = files_of(tmp_path / "whole"), tmp_path / "report"
    report = ("report", run, "--out", out, *options)
    steps = count_steps(out, command(*report))
    for step in spread(steps, REPORT_KILLS):
        shutil.rmtree(out, ignore_errors=True)
        assert kill_at(step, out, command(*report))
        for name, content in files_of(out).items():  # each file is whole or not there
            assert is_aside(name) or content == expected[name]
        run_here(*report)
        assert {name: content for name, content in files_of(out).items() if name in expected} == expected


def files_of(folder: Path) -> dict[str, bytes]:
    paths = [path for path in folder.rglob("*") if path.is_file()] if folder.exists() else []
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


def test_a_service_killed_while_it_trains(lms, facts, tmp_path):
    run = tmp_path / "runs" / "first"
    given = ("--lm", lms["bert"], "--facts", facts, "--prompts", "[X] lies in [Y] .", "--pairs", 12)
    run_here("train", *given, "--out", run)
    kept = files_of(run)
    folder = tmp_path / "runs"
    body = {
        "lm": "testbed:bert", "relation": "testbed:symbol", "templates": ["the symbol of [X] is [Y] ."], "pairs": 24,
    }  # fmt: skip

    def train_in_service() -> None:
        with served(Settings(runs=folder, threads=1)) as service, Client(service.address) as client:
            job = client._call("POST", "/api/v1/jobs", json=body)["id"]
            while (state := client._call("GET", f"/api/v1/jobs/{job}")["state"]) in ("waiting", "running"):
                pass
            assert state == "done"

    def others() -> list[Path]:
        return [path for path in folder.iterdir() if path != run]

    steps = count_steps(folder, train_in_service)
    assert len(load_runs(folder)) == 2
    for step in spread(steps, SERVE_KILLS):
        for path in others():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        assert kill_at(step, folder, train_in_service)
        assert files_of(run) == kept  # what it served is as it was
        with served(Settings(runs=folder, threads=1)) as service, Client(service.address) as client:
            assert client.ask("Paris", mixture="first", top=1)
            assert json.dumps(client.mixtures)
        assert all(one.record.test.facts for one in load_runs(folder))
