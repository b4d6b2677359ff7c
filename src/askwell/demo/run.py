"""Does the runs of a plan, and keeps each in its folder when it is whole."""

import json
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import torch

from askwell.demo.plan import THREADS, Plan, Run
from askwell.demo.prior import ys_by_frequency
from askwell.errors import DamagedFile
from askwell.evaluation.evaluate import Outcome, evaluate
from askwell.evaluation.outcomes import read_outcomes, write_outcomes
from askwell.lms import FrozenLM
from askwell.lms.load import load_lm
from askwell.look import look_at, words_svg
from askwell.mixture import Mixture
from askwell.mixture.encode import count_reasons, encode_facts
from askwell.mixture.save import save_mixture
from askwell.training.checkpoint import CHECKPOINT
from askwell.training.loop import train
from askwell.write import write_whole

RUNS, RESULT, PER_FACT, DRAWING, SAVED = "runs", "result.json", "facts.parquet", "prompts.svg", "mixture"


@dataclass(frozen=True)
class RunResult:
    """What came out of a run."""

    run: Run
    folder: Path
    outcomes: tuple[Outcome, ...]
    """What was made of each test fact."""
    left_out: dict[str, int]
    """Test facts that could not be asked, by reason."""
    vocabulary: str
    history: tuple[dict[str, Any], ...]
    """Dev scores while it was tuned; empty for hard prompts."""
    best_round: int | None
    prompts: int
    effective_prompts: float
    train_ys: tuple[str, ...]
    """The ys of the training facts that could be asked, the most frequent first."""

    @property
    def drawing(self) -> str:
        """The soft prompts, as SVG."""
        return (self.folder / DRAWING).read_text(encoding="utf-8")


@dataclass(frozen=True)
class Step:
    """Where the demo stands."""

    number: int
    """Of the run, counted from 1."""
    runs: int
    run: Run
    share: float
    """How much of the run is done, from 0 to 1."""
    result: RunResult | None = None
    """When the run is whole."""
    was_there: bool = False
    """Whether it was found whole from an earlier time."""


def run_demo(plan: Plan, out: Path, progress: Callable[[Step], None] | None = None) -> list[RunResult]:
    """The results of all runs of a plan. What an earlier, interrupted demo has left in the folder is not done again."""
    tell = progress or (lambda _step: None)
    lm = load_lm(plan.lm, device="cpu")
    results = []
    with _threads(THREADS):
        for number, run in enumerate(plan.runs, 1):
            folder = out / RUNS / run.folder_name(_identity(lm))
            was_there = (folder / RESULT).exists()
            if not was_there:

                def move(share: float, number: int = number, run: Run = run) -> None:
                    tell(Step(number, len(plan.runs), run, share))

                move(0.0)
                _do(run, lm, folder, move)
            result = read_result(run, folder)
            results.append(result)
            tell(Step(number, len(plan.runs), run, 1.0, result, was_there))
    return results


def read_result(run: Run, folder: Path) -> RunResult:
    """The result of a whole run."""
    path = folder / RESULT
    try:
        kept = json.loads(path.read_text(encoding="utf-8"))
        return RunResult(
            run=run,
            folder=folder,
            outcomes=tuple(read_outcomes(folder / PER_FACT)),
            left_out=kept["left_out"],
            vocabulary=kept["vocabulary"],
            history=tuple(kept["history"]),
            best_round=kept["best_round"],
            prompts=kept["prompts"],
            effective_prompts=kept["effective_prompts"],
            train_ys=tuple(kept["train_ys"]),
        )
    except (ValueError, KeyError, TypeError, OSError, duckdb.Error) as error:
        raise DamagedFile(
            f"{path} or a file beside it is damaged ({error}); remove {folder} and start again"
        ) from error


def _do(run: Run, lm: FrozenLM, folder: Path, move: Callable[[float], None]) -> None:
    """Does a run, and writes its result last: a folder with a result is whole."""
    relation = run.facts
    mixture = Mixture(lm, run.templates, run.mixture_spec)
    tuning = 0.8 if run.method.tuned else 0.0  # about the share of a run's time
    history, best_round = (), None
    if run.method.tuned:
        folder.mkdir(parents=True, exist_ok=True)
        result = train(
            mixture,
            relation,
            folder=folder,
            resume=True,
            progress=lambda state: move(tuning * state.pairs_done / max(1, state.pairs)),
        )
        history, best_round = result.history, result.best["round"]
    evaluation = evaluate(
        mixture, relation, progress=lambda done, total: move(tuning + (1 - tuning) * done / max(1, total))
    )
    write_outcomes(evaluation.outcomes, folder / PER_FACT)
    if run.method.tuned:
        save_mixture(mixture, folder / SAVED)
        title = f"{run.method.label} of soft prompts for {run.relation}"
        write_whole(folder / DRAWING, words_svg(look_at(mixture), title, heading=False))
    kept = {
        "run": run.description(_identity(lm)),
        "figures": evaluation.as_json(),
        "left_out": count_reasons(evaluation.left_out),
        "vocabulary": evaluation.vocabulary,
        "history": list(history),
        "best_round": best_round,
        "prompts": len(mixture.prompts),
        "effective_prompts": mixture.effective_prompts,
        "train_ys": ys_by_frequency(encode_facts(mixture, relation.train)[0].facts),
    }
    write_whole(folder / RESULT, json.dumps(kept, ensure_ascii=False, indent=1) + "\n")
    (folder / CHECKPOINT).unlink(missing_ok=True)


def _identity(lm: FrozenLM) -> dict[str, Any]:
    return {**lm.identity.model_dump(mode="json"), "runs": [str(lm.dtype), lm.device.type]}


@contextmanager
def _threads(count: int) -> Generator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
