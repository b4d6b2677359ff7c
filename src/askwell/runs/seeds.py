"""Several runs of one relation, such as over seeds: mean and spread of their scores, and whether they agree."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from askwell.data.facts import Relation
from askwell.errors import BadOption
from askwell.evaluation.scoring import Evaluation
from askwell.evaluation.several_runs import RunConsistency, Spread, run_consistency, spreads_of
from askwell.files import to_json
from askwell.runs.folder import Run, is_run, read_run
from askwell.runs.record import RunRecord
from askwell.specs.run_spec import RunSpec
from askwell.training.checkpoint import CHECKPOINT


@dataclass(frozen=True)
class SeveralRuns:
    """Several runs on the same facts; scores are means over facts, in the units of their metrics."""

    relation: str
    vocabulary: str
    runs: int
    facts: tuple[int, ...]
    """The different numbers of facts asked."""
    left_out: tuple[int, ...]
    scores: dict[str, Spread]
    consistency: RunConsistency


def several_runs(evaluations: Sequence[Evaluation]) -> list[SeveralRuns]:
    """For each relation that was evaluated more than once, all of its evaluations together."""
    by_relation: dict[str, list[Evaluation]] = {}
    for evaluation in evaluations:
        by_relation.setdefault(evaluation.outcomes[0].relation, []).append(evaluation)
    return [
        _together(name, runs, (len(run.left_out) for run in runs))
        for name, runs in by_relation.items()
        if len(runs) > 1
    ]


@dataclass(frozen=True)
class SeedRuns:
    """Runs of one relation that differ in their seeds, and where they are."""

    folder: Path
    runs: tuple[Run, ...]

    def together(self) -> SeveralRuns:
        """Mean and spread of their scores, and whether they agree."""
        return _together_over_seeds(self.runs)

    def as_json(self) -> dict[str, Any]:
        """The runs together, and the scores of each seed, as plain JSON."""
        scores = {run.record.spec.seed: run.record.test.micro for run in self.runs}
        by_seed = {str(seed): of_seed for seed, of_seed in scores.items()}
        return {"out": str(self.folder), "seeds": list(scores), **to_json(self.together()), "by_seed": by_seed}


def _together_over_seeds(runs: Sequence[Run]) -> SeveralRuns:
    evaluations = [Evaluation("test", run.record.test.vocabulary, tuple(run.test), ()) for run in runs]
    left_out = [run.record.test.left_out_count for run in runs]
    return _together(runs[0].record.relation.name, evaluations, left_out)


def _together(relation: str, evaluations: Sequence[Evaluation], left_out: Iterable[int]) -> SeveralRuns:
    return SeveralRuns(
        relation=relation,
        vocabulary="; ".join(dict.fromkeys(evaluation.vocabulary for evaluation in evaluations)),
        runs=len(evaluations),
        facts=tuple(sorted({len(evaluation.outcomes) for evaluation in evaluations})),
        left_out=tuple(sorted({*left_out})),
        scores=spreads_of([evaluation.micro for evaluation in evaluations]),
        consistency=run_consistency([evaluation.outcomes for evaluation in evaluations]),
    )


_MOST_SEEDS = 1000


def seeds_of(text: str) -> list[int]:
    """The seeds that --seeds names: a list such as 0,1,2, or how many, counted from 0."""
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() for part in parts):
        raise BadOption(f"--seeds {text}: give seeds such as 0,1,2, or how many of them")
    if any(len(part) > 18 for part in parts):
        raise BadOption(f"--seeds {text}: a seed has at most 18 digits")
    seeds = [int(part) for part in parts]
    if len(seeds) == 1:
        if seeds[0] > _MOST_SEEDS:
            raise BadOption(f"--seeds {text}: at most {_MOST_SEEDS} seeds")
        seeds = list(range(seeds[0]))
    if len(seeds) < 2 or len({*seeds}) < len(seeds):
        raise BadOption(f"--seeds {text}: a spread needs at least two different seeds")
    return seeds


def check_seeds(relations: Sequence[Relation]) -> None:
    """Refuses relations that differ from seed to seed."""
    if len({relation.digest for relation in relations}) > 1:
        raise BadOption(
            "--seeds: a single file of facts would be split differently for each seed, and runs on different facts "
            "do not show the spread of a score; give a folder with train.jsonl, dev.jsonl and test.jsonl"
        )


def run_seeds(
    specs: Sequence[RunSpec],
    out: Path,
    do: Callable[[RunSpec, Path, bool], RunRecord],
    *,
    resume: bool,
    note: Callable[[str], None] | None = None,
) -> SeedRuns:
    """Does runs that differ in their seeds, in the folders seed-0 and so on.

    `do` is given the spec, the folder, and whether to continue a run that was started there. With `resume`, complete
    runs are not repeated.
    """
    tell = note or (lambda _text: None)
    runs = []
    for spec in specs:
        folder = out / f"seed-{spec.seed}"
        if resume and folder.is_dir() and is_run(folder) and not (folder / CHECKPOINT).exists():
            run = read_run(folder)
            if run.record.id != spec.id:
                raise BadOption(f"--resume: the run in {folder} has other facts or options; name another --out")
            tell(f"seed {spec.seed} is already done, in {folder}")
        else:
            tell(f"seed {spec.seed}, in {folder}")
            begun = folder.is_dir() and any(folder.iterdir())
            do(spec, folder, resume and begun)
            run = read_run(folder)
        runs.append(run)
    return SeedRuns(out, tuple(runs))
