"""What the commands that do runs share: bars during a run, and what is printed at the end."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import torch
from rich.table import Table

from askwell.baselines.autoprompt import SearchProgress
from askwell.baselines.fine_tuning import FineTuningProgress
from askwell.cli.progress import BaselineBar, EvaluationBar, TrainingBar
from askwell.cli.terminal import counted, note, note_left_out_facts, note_left_out_prompts
from askwell.cli.terminal import out as terminal
from askwell.data.facts import Relation
from askwell.errors import BadOption
from askwell.evaluation.controls import MAJORITY, PRIOR, PRIOR_CORRECTED, PRIOR_MASKED_X
from askwell.evaluation.evaluate import EvaluationFigures
from askwell.evaluation.metrics import METRICS
from askwell.runs.record import RunRecord
from askwell.runs.run import Asking, Built, RunProgress
from askwell.runs.seeds import SeveralRuns
from askwell.training.checkpoint import CHECKPOINT
from askwell.training.loop import available_threads

if TYPE_CHECKING:
    from askwell.evaluation.knowledge import KnowledgeFigures

_CONTROLS = {MAJORITY: "train's ys by frequency", PRIOR: "the prompts' prior", PRIOR_MASKED_X: "the same with x masked"}


def set_threads(threads: int | None) -> int:
    """Sets how many CPU threads torch uses (default: OMP_NUM_THREADS, or all), and returns their number."""
    if threads is not None and threads < 1:
        raise BadOption(f"--threads {threads}: at least one is needed")
    if threads is not None or "OMP_NUM_THREADS" not in os.environ:  # torch respects it by itself
        torch.set_num_threads(threads or available_threads())
    return torch.get_num_threads()


def note_counts(relation: Relation) -> None:
    """Notes what is worth knowing about a relation's facts: repeated lines, leaks, several right ys."""
    for line in relation.counts.lines():
        note(line)


class RunBars:
    """A bar for whatever a run is doing. If interrupted, it says how to continue."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._bar: Any = None
        self._shown = ""

    def __enter__(self) -> "RunBars":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._close()
        if kind is not None and issubclass(kind, KeyboardInterrupt) and (self._folder / CHECKPOINT).exists():
            note(
                f"interrupted: the best state so far is saved in {self._folder}; the same command with --resume "
                "continues from there"
            )
        if kind is not None and self._folder.is_dir() and not any(self._folder.iterdir()):
            self._folder.rmdir()

    def __call__(self, state: RunProgress) -> None:
        """Follows the run."""
        if isinstance(state, Built):
            note_left_out_prompts(state.mixture)
            if state.mixture.weighting.reads_x and state.mixture.finds_every_x_alike:
                note(
                    "data-dependent weights have no effect here: no prompt has a word before x, so a causal LM finds x "
                    "equally probable with all of them"
                )
        elif isinstance(state, Asking):
            bar = self._switch(state.what, lambda: EvaluationBar(state.what))
            bar(state.done, state.total)
        else:
            searched = isinstance(state, SearchProgress | FineTuningProgress)
            bar = self._switch("tuning", BaselineBar if searched else TrainingBar)
            bar(state)

    def _switch(self, what: str, make: Callable[[], Any]) -> Any:
        """The bar for what is being done; the one for what was done before is closed."""
        if self._shown != what or self._bar is None:
            self._close()
            self._bar, self._shown = make(), what
            self._bar.__enter__()
        return self._bar

    def _close(self) -> None:
        if self._bar is not None:
            self._bar.__exit__(None, None, None)
            self._bar = None


def print_record(record: RunRecord, folder: Path) -> None:
    """The summary of a run: scores, controls, and what to do next."""
    if record.training is not None:
        for split, left_out in record.training.left_out.items():
            note_left_out_facts(split, left_out)
    note_left_out_facts("test", record.test.left_out, record.test.left_out_facts)
    name = record.spec.baseline or ("tuned" if record.spec.training is not None else "as they are")
    print_scores({"untuned": record.untuned, name: record.test})
    print_controls(record)
    tuned = record.spec.training is not None and record.training is not None and record.training.pairs is not None
    found = record.training.found.get("prompt") if record.training is not None else None
    lines = []
    if found is not None:
        lines.append(f"found: {found}")
    elif len(record.prompts) == 1 and record.spec.baseline is not None:
        lines.append(f"prompt: {record.prompts[0].template}")
    seconds = record.environment.seconds or 0.0
    if tuned and record.training is not None:
        lines.append(
            f"effective prompts: {record.effective_prompts:.1f} of {len(record.prompts)}; the state after "
            f"{record.training.best_pairs} of {record.training.pairs} pairs was best on dev; {seconds:.0f} s in all."
        )
    follow = f"askwell compare {folder} OTHER" if record.spec.baseline else f'askwell ask {folder} "…"'
    lines.append(f"Saved in {folder}. Next: {follow}, or askwell show {folder}")
    terminal.print("\n".join(lines), soft_wrap=True, markup=False)


def print_scores(evaluations: "dict[str, EvaluationFigures | None]") -> None:
    """A row of scores for each evaluation."""
    shown = {name: evaluation for name, evaluation in evaluations.items() if evaluation is not None}
    last = list(shown.values())[-1]
    table = Table("", *METRICS, title=f"{counted(last.facts, 'test fact')}, {last.vocabulary}")
    for name, evaluation in shown.items():
        table.add_row(name, *(metric.text(evaluation.score(key)) for key, metric in METRICS.items()))
    terminal.print(table)


def print_controls(record: RunRecord) -> None:
    """Prints how well answers that ignore x score, and the gain over the best of them."""
    for name, problem in record.controls_missing.items():
        note(f"no control {name} for {record.relation.name}: {problem}")
    corrected = record.controls.get(PRIOR_CORRECTED)
    score = None if corrected is None or corrected.test is None else corrected.test["P@1"]
    for line in control_lines(record.knowledge, score):
        terminal.print(line, markup=False, soft_wrap=True)


def control_lines(found: "KnowledgeFigures | None", corrected: float | None) -> list[str]:
    """The controls in a few sentences."""
    if found is None:
        return []
    each = ", ".join(f"{_CONTROLS.get(name, name)} {scores.test:.1f}" for name, scores in found.controls.items())
    verdict = "" if found.is_there else "; that may be chance"
    best = _CONTROLS.get(found.control, found.control)
    lines = [
        f"P@1 without looking at x: {each}.",
        f"Gain over the best of them (chosen on dev: {best}): {found.gain:.1f} ({found.low:.1f} to {found.high:.1f} at "
        f"{100 * found.confidence:.0f} %){verdict}.",
    ]
    if corrected is not None:
        lines.append(
            f"P@1 if each answer's probability is divided by the prompts' prior for it, so that a mere preference "
            f"for some answers no longer counts: {corrected:.1f}."
        )
    return lines


def print_several(several: SeveralRuns) -> None:
    """A table of the scores of several runs, and a sentence about their answers."""
    facts, left_out = ("–".join(map(str, counts)) for counts in (several.facts, several.left_out))
    title = f"{several.relation}: {several.runs} runs, {facts} facts ({left_out} left out), {several.vocabulary}"
    table = Table("", "mean", "std. dev.", "min", "max", title=title)
    for name, spread in several.scores.items():
        figures: Sequence[float | None] = (spread.mean, spread.deviation, spread.low, spread.high)
        table.add_row(name, *(METRICS[name].text(figure) for figure in figures))
    terminal.print(table)
    right = several.consistency.same_of_right
    among = "" if right is None else f", {100 * right:.1f} % where one of the two is right"
    terminal.print(
        f"Two runs give the same answer to {100 * several.consistency.same:.1f} % of the x's{among}.",
        markup=False,
        soft_wrap=True,
    )
