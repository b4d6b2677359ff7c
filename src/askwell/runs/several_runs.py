"""Several runs of one relation, over seeds or folds: executing them; the mean, spread and agreement of seeds; and folds
scored together."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, combinations
from pathlib import Path
from typing import Any

import numpy as np

from askwell.errors import BadOption, UsageError
from askwell.evaluation.comparison import Comparison, compare
from askwell.evaluation.confidence import outcomes_by_x, questions_of
from askwell.evaluation.knowledge import PRIOR_CORRECTED, Knowledge, knowledge
from askwell.evaluation.metrics import METRICS, Scores
from askwell.evaluation.outcomes import Outcome
from askwell.evaluation.scoring import Evaluation, EvaluationFigures
from askwell.evaluation.significance import wilson_interval
from askwell.files import to_json
from askwell.runs.folder import Run, is_run, read_run
from askwell.runs.record import RunRecord
from askwell.runs.run_group import KeptRun, Spread, controls_of, evaluation_of, folds_together
from askwell.specs.run_spec import RunSpec
from askwell.training.checkpoint import CHECKPOINT


@dataclass(frozen=True)
class RunPair:
    """Two runs, compared on the questions that both were asked."""

    first: int
    second: int
    questions: int
    same: float
    """The fraction of questions with the same best answer."""
    right: int
    """Questions that at least one of the two answers right."""
    same_of_right: float | None
    """The fraction of these with the same best answer; None if there are none."""


@dataclass(frozen=True)
class RunConsistency:
    """Whether runs that differ only in their seed give the same answers."""

    runs: int
    pairs: tuple[RunPair, ...]
    same: float
    """The mean over all pairs of runs."""
    same_of_right: float | None
    """The mean over the pairs for which it is defined."""


def run_consistency(runs: Sequence[Sequence[Outcome]]) -> RunConsistency:
    """Measure how far two or more runs agree on the same facts; questions that only one of two was asked are left out.

    Answers are compared as words, so the runs may be of different mixtures and LMs.
    """
    pairs: list[RunPair] = []
    answers = [_best_answers(outcomes) for outcomes in runs]
    for first, second in combinations(range(len(runs)), 2):
        both = [(answers[first][question], answers[second].get(question)) for question in answers[first]]
        shared = [(one, other) for one, other in both if other is not None]
        if not shared:
            raise UsageError("two runs have no question in common, so their answers cannot be compared")
        same = np.array([one == other for (one, _), (other, _) in shared])
        right = np.array([one or other for (_, one), (_, other) in shared])
        of_right = float(same[right].mean()) if right.any() else None
        pairs.append(RunPair(first, second, len(shared), float(same.mean()), int(right.sum()), of_right))
    defined = [pair.same_of_right for pair in pairs if pair.same_of_right is not None]
    return RunConsistency(
        runs=len(runs),
        pairs=tuple(pairs),
        same=float(np.mean([pair.same for pair in pairs])),
        same_of_right=float(np.mean(defined)) if defined else None,
    )


def _best_answers(outcomes: Sequence[Outcome]) -> dict[tuple[str, str], tuple[str, bool]]:
    """Return the best answer to each x of each relation, and whether it is right."""
    by_x, right = outcomes_by_x(outcomes), questions_of(outcomes).right.tolist()
    return {
        (of_x[0].relation, of_x[0].x): (of_x[0].answers[0], is_right)
        for of_x, is_right in zip(by_x, right, strict=True)
    }


def spreads_of(scores: Sequence[Mapping[str, float]]) -> dict[str, Spread]:
    """Return the mean and spread of each score that all of the runs have, by its name."""
    names = (name for name in scores[0] if all(name in of_run for of_run in scores))
    return {name: Spread.of([of_run[name] for of_run in scores]) for name in names}


@dataclass(frozen=True)
class SeveralRuns:
    """Several runs on the same facts; scores are means over facts, in the units of their metrics."""

    relation: str
    vocabulary: str
    runs: int
    facts: tuple[int, ...]
    """The distinct numbers of facts asked."""
    left_out: tuple[int, ...]
    scores: dict[str, Spread]
    consistency: RunConsistency


def several_runs(evaluations: Sequence[Evaluation]) -> list[SeveralRuns]:
    """Combine all evaluations of each relation that was evaluated more than once."""
    by_relation: dict[str, list[Evaluation]] = {}
    for evaluation in evaluations:
        by_relation.setdefault(evaluation.outcomes[0].relation, []).append(evaluation)
    return [_combined(name, runs) for name, runs in by_relation.items() if len(runs) > 1 and _same_questions(runs)]


def _same_questions(runs: Sequence[Evaluation]) -> bool:
    """Tell whether there are questions that all runs were asked, which folds do not have."""
    return bool(set.intersection(*({outcome.x for outcome in run.outcomes} for run in runs)))


def over_seeds(runs: Sequence[Run]) -> SeveralRuns:
    """Combine runs of one relation that differ in their seeds."""
    return _combined(runs[0].record.relation.name, [*map(evaluation_of, runs)])


def seeds_as_json(folder: Path, runs: Sequence[Run]) -> dict[str, Any]:
    """Return runs that differ in their seeds, combined and with the scores of each, as plain JSON."""
    scores = {run.record.spec.seed: run.record.test.micro for run in runs}
    by_seed = {str(seed): of_seed for seed, of_seed in scores.items()}
    return {"out": str(folder), "seeds": list(scores), **to_json(over_seeds(runs)), "by_seed": by_seed}


@dataclass(frozen=True)
class Pooled:
    """The folds of one relation, scored together: each fact once, by a mixture that did not learn from it."""

    folds: int
    tuned: EvaluationFigures
    untuned: EvaluationFigures | None
    low: float
    """Wilson's 95 % interval of the tuned P@1, facts taken as independent."""
    high: float
    gain: Comparison | None
    """The tuned mixtures (A) and the untuned prompts (B), paired by fact."""
    knowledge: Knowledge | None
    """The gain over the control that is best on the dev facts of all folds."""
    corrected: float | None
    """P@1 with each answer's probability divided by its prior."""
    by_fold: dict[str, Scores]


def pooled(runs: Sequence[Run]) -> Pooled:
    """Score runs on the folds of one relation together."""
    whole = folds_together([KeptRun(run.folder, run.record, run.remarks, "") for run in runs])
    before, corrected = whole.before, [run.controls.get(PRIOR_CORRECTED, {}).get("test", ()) for run in runs]
    low, high = wilson_interval(sum(outcome.rank <= 1 for outcome in whole.test), whole.facts)
    return Pooled(
        len(runs),
        whole.record.test,
        whole.record.untuned,
        100 * low,
        100 * high,
        None if before is None else compare(whole, before),
        knowledge(whole.test, controls_of(whole.parts, {})),
        METRICS["P@1"].mean([*chain(*corrected)]) if all(corrected) else None,
        {run.folder.name: run.record.test.micro for run in runs},
    )


def _combined(relation: str, evaluations: Sequence[Evaluation]) -> SeveralRuns:
    return SeveralRuns(
        relation=relation,
        vocabulary="; ".join(dict.fromkeys(evaluation.vocabulary for evaluation in evaluations)),
        runs=len(evaluations),
        facts=tuple(sorted({len(evaluation.outcomes) for evaluation in evaluations})),
        left_out=tuple(sorted({len(evaluation.left_out) for evaluation in evaluations})),
        scores=spreads_of([evaluation.micro for evaluation in evaluations]),
        consistency=run_consistency([evaluation.outcomes for evaluation in evaluations]),
    )


_MOST = 1000
"""Of seeds, or of folds."""


def seeds_of(text: str) -> list[int]:
    """Parse --seeds: a list such as 0,1,2, or the number of seeds, counted from 0."""
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() for part in parts):
        raise BadOption(f"`seeds` {text}: give seeds such as 0,1,2, or how many of them", seeds="--seeds")
    if any(len(part) > 18 for part in parts):
        raise BadOption(f"`seeds` {text}: a seed has at most 18 digits", seeds="--seeds")
    seeds = [int(part) for part in parts]
    if len(seeds) == 1:
        if seeds[0] > _MOST:
            raise BadOption(f"`seeds` {text}: at most {_MOST} seeds", seeds="--seeds")
        seeds = list(range(seeds[0]))
    if len(seeds) < 2 or len({*seeds}) < len(seeds):
        raise BadOption(f"`seeds` {text}: a spread needs at least two different seeds", seeds="--seeds")
    return seeds


def run_each(
    specs: Mapping[Path, RunSpec],
    do: Callable[[RunSpec, Path, bool], RunRecord],
    *,
    resume: bool,
    note: Callable[[str], None] | None = None,
) -> list[Run]:
    """Execute runs in their folders, one after the other.

    `do` is given the spec, the folder, and whether to continue a run that was started there. With `resume`, complete
    runs are not repeated.
    """
    tell = note or (lambda _text: None)
    runs = []
    for folder, spec in specs.items():
        if resume and folder.is_dir() and is_run(folder) and not (folder / CHECKPOINT).exists():
            run = read_run(folder)
            if run.record.id != spec.id:
                raise BadOption(
                    f"`resume`: the run in {folder} has other facts or options; name another `folder`",
                    resume="--resume",
                    folder="--out",
                )
            tell(f"{folder} is already done")
        else:
            tell(f"{folder}:")
            begun = folder.is_dir() and any(folder.iterdir())
            do(spec, folder, resume and begun)
            run = read_run(folder)
        runs.append(run)
    return runs
