"""The runs of one cell of a table: one relation and seed each, and what they score together."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import fmean, stdev
from typing import Literal

from askwell.evaluation.evaluate import Outcome
from askwell.evaluation.outcomes import read_outcomes
from askwell.store.folder import PER_FACT
from askwell.tables.kept import KeptRun

Average = Literal["micro", "macro"]
METRICS = ("P@1", "P@10", "MRR")


@dataclass(frozen=True)
class Score:
    """A mean over seeds, in per cent."""

    mean: float
    deviation: float | None
    """The standard deviation over seeds; None if there are not two."""
    seeds: int
    """How many seeds all relations have in common."""

    @property
    def text(self) -> str:
        """The score with one decimal, and its deviation if there is one."""
        return f"{self.mean:.1f}" if self.deviation is None else f"{self.mean:.1f} ± {self.deviation:.1f}"


@dataclass(frozen=True)
class RunGroup:
    """Runs of one LM, source and kind, over relations and seeds."""

    runs: tuple[KeptRun, ...]

    @cached_property
    def by_relation(self) -> Mapping[str, Mapping[int, KeptRun]]:
        """The runs by relation and seed."""
        runs: dict[str, dict[int, KeptRun]] = {}
        for run in sorted(self.runs, key=lambda run: (run.spec.relation, run.spec.seed)):
            runs.setdefault(run.spec.relation, {})[run.spec.seed] = run
        return runs

    @property
    def ids(self) -> frozenset[str]:
        """The ids of the runs."""
        return frozenset(run.spec.id for run in self.runs)

    @property
    def relations(self) -> tuple[str, ...]:
        """The names of the relations, sorted."""
        return tuple(self.by_relation)

    @cached_property
    def seeds(self) -> tuple[int, ...]:
        """The seeds that every relation was run with."""
        return tuple(sorted(frozenset.intersection(*(frozenset(runs) for runs in self.by_relation.values()))))

    @property
    def outcome_seeds(self) -> frozenset[int]:
        """The seeds that any relation was run with."""
        return frozenset(run.spec.seed for run in self.runs)

    @property
    def facts(self) -> int:
        """Test facts that were asked, over all relations."""
        return sum(next(iter(runs.values())).facts for runs in self.by_relation.values())

    @property
    def left_out(self) -> int:
        """Test facts that could not be asked, over all relations."""
        return sum(next(iter(runs.values())).left_out for runs in self.by_relation.values())

    @property
    def settings(self) -> tuple[str, ...]:
        """The names of the settings, sorted."""
        return tuple(sorted({run.spec.setting for run in self.runs}))

    def score(self, metric: str, average: Average = "micro") -> Score:
        """The mean over facts (micro) or of the relations' means (macro); a relation counts by its mean over seeds."""
        over_seeds = [
            (fmean(run.score(metric) for run in runs.values()), next(iter(runs.values())).facts)
            for runs in self.by_relation.values()
        ]
        each = [
            _averaged([(runs[seed].score(metric), runs[seed].facts) for runs in self.by_relation.values()], average)
            for seed in self.seeds
        ]
        return Score(_averaged(over_seeds, average), stdev(each) if len(each) > 1 else None, len(each))

    @cached_property
    def outcomes(self) -> dict[int, list[Outcome]]:
        """What was made of each test fact, by seed."""
        found: dict[int, list[Outcome]] = {}
        for runs in self.by_relation.values():
            for seed, run in runs.items():
                found.setdefault(seed, []).extend(_outcomes(run.folder))
        return found


def _outcomes(folder: Path) -> list[Outcome]:
    return read_outcomes(folder / PER_FACT)


def _averaged(scores: Sequence[tuple[float, int]], average: Average) -> float:
    if average == "macro":
        return fmean(score for score, _ in scores)
    return sum(score * facts for score, facts in scores) / sum(facts for _, facts in scores)
