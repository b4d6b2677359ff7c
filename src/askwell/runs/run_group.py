"""Runs that belong together: the folds of a relation as one run, and the runs of several relations and seeds as a
group, with what they score together."""

import math
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import fmean, stdev
from typing import Any, Self

from askwell.answers.reply import LeftOutFact
from askwell.data.facts import Fact, SplitName
from askwell.data.split import fold_of
from askwell.errors import UsageError
from askwell.evaluation.knowledge import PRIOR_CORRECTED
from askwell.evaluation.metrics import METRICS, Average
from askwell.evaluation.outcomes import Outcome
from askwell.evaluation.scoring import Evaluation, together
from askwell.runs.folder import Run
from askwell.runs.record import FITTED
from askwell.specs.run_spec import ControlKind, RunSpec
from askwell.views.printable import counted

NO_SET = "own facts"
"""The set of relations whose names do not mention one."""
_MOST_OWN_SETS = 8
ControlRuns = Mapping[str, Mapping[ControlKind, Run]]
"""By the id of a run: its control runs, by the kind of LM that knows nothing."""


def fact_set_of(relation: str) -> str:
    """Return the set of a relation: what precedes the ':' or '/' of its name."""
    first, *rest = re.split(r"[:/]", relation, maxsplit=1)
    return first if rest and first else NO_SET


@dataclass(frozen=True, repr=False)
class KeptRun(Run):
    """A run that tables and figures show, and what they need to know about it besides its record."""

    fact_set: str
    """The set of its relation."""
    is_before: bool = False
    """Whether it stands for its prompts before they were tuned."""
    folds: "tuple[KeptRun, ...]" = ()
    """The runs whose facts it has together, if it stands for the folds of one relation."""

    @property
    def spec(self) -> RunSpec:
        """What was run."""
        return self.record.spec

    @property
    def parts(self) -> "tuple[KeptRun, ...]":
        """Its folds, or itself alone."""
        return self.folds or (self,)

    @cached_property
    def test(self) -> list[Outcome]:
        """The outcome of each test fact, of all folds; before tuning, if it stands for that, as far as it was kept."""
        if self.folds:
            return [outcome for fold in self.folds for outcome in (fold.untuned if self.is_before else fold.test)]
        return self.untuned if self.is_before else super().test

    @property
    def before(self) -> "KeptRun | None":
        """The same run before tuning, if it was scored then."""
        untuned = self.record.untuned
        record = self.record.model_copy(update={"test": untuned})
        return None if untuned is None else replace(self, record=record, is_before=True)

    @property
    def facts(self) -> int:
        """Test facts that were asked."""
        return self.record.test.facts

    def score(self, metric: str) -> float:
        """Return the test score; a log-loss can be infinite."""
        score = super().score(metric)
        return math.inf if score is None else score


def kept_runs(runs: Sequence[Run]) -> list[KeptRun]:
    """Return the runs that tables show: all but controls, which say nothing about what an LM knows.

    A few relations of one's own are a set each, since nobody asked for their mean; and several sets if their runs have
    different numbers of test facts.
    """
    ordinary = [run for run in runs if run.record.spec.control is None]
    if not ordinary:
        raise UsageError(f"all {len(runs)} runs are controls: LMs that know nothing; tables need runs of real LMs")
    names = [run.record.spec.relation for run in ordinary]
    own = {name for name in names if fact_set_of(name) == NO_SET}
    sets = {name: name if name in own and len(own) <= _MOST_OWN_SETS else fact_set_of(name) for name in names}
    return _by_test_facts(
        _with_folds([KeptRun(run.folder, run.record, run.remarks, sets[run.record.spec.relation]) for run in ordinary])
    )


def _by_test_facts(runs: Sequence[KeptRun]) -> list[KeptRun]:
    """Return the runs, with a set for each number of test facts of a relation that is a set of its own."""
    counts: dict[str, dict[str, int]] = defaultdict(dict)
    for run in runs:
        of_relation, facts = counts[run.spec.relation], run.spec.facts_sha256
        of_relation[facts] = max(of_relation.get(facts, 0), run.facts + run.record.test.left_out_count)
    apart = {name for name, of_facts in counts.items() if len({*of_facts.values()}) > 1}
    return [
        replace(run, fact_set=f"{run.fact_set}, {counted(counts[run.fact_set][run.spec.facts_sha256], 'test fact')}")
        if run.fact_set == run.spec.relation and run.fact_set in apart
        else run
        for run in runs
    ]


def _with_folds(runs: Sequence[KeptRun]) -> list[KeptRun]:
    """Return the runs, with one in place of the folds of each relation, which has their facts together."""
    alike: dict[tuple[Any, ...], dict[int, KeptRun]] = defaultdict(dict)
    for place, run in enumerate(runs):
        number, count = fold_of(run.record.relation.split_by) or (place, 0)
        same = run.spec.model_copy(update={"facts_sha256": ""}).id
        split = (run.folder.parent, run.record.relation.split_seed, same) if count else place
        alike[count, split][number] = run
    return [folds_together([*folds.values()]) for folds in alike.values()]


def folds_together(folds: Sequence[KeptRun]) -> KeptRun:
    """Return the folds of one relation as one run, in which each fact is answered by a mixture that did not learn from
    it."""
    first = folds[0]
    if len(folds) == 1:
        return first
    before = [before for run in folds if (before := run.before) is not None and before.test]
    whole = {
        "test": together([*map(evaluation_of, folds)]).figures(),
        "untuned": together([*map(evaluation_of, before)]).figures() if len(before) == len(folds) else None,
        "effective_prompts": fmean(run.record.effective_prompts for run in folds),
    }
    return replace(first, record=first.record.model_copy(update=whole), folds=tuple(folds))


def evaluation_of(run: Run) -> Evaluation:
    """Return the test outcomes of a run as an evaluation."""
    found = run.record.test
    return Evaluation(
        "test",
        found.vocabulary,
        tuple(run.test),
        tuple(LeftOutFact(Fact(left.x, left.y), left.reason) for left in found.left_out_facts),
        answers=found.answers,
        labels=found.labels,
        ranked_pairs=found.ranked_pairs,
    )


def control_runs(runs: Sequence[Run]) -> ControlRuns:
    """Return the control runs among some, under the ids of the runs that differ from them in the LM alone."""
    found: dict[str, dict[ControlKind, Run]] = {}
    for run in runs:
        spec = run.record.spec
        if spec.control is not None:
            found.setdefault(spec.model_copy(update={"control": None}).id, {})[spec.control] = run
    return found


def controls_of(runs: Sequence[KeptRun], of_runs: ControlRuns) -> dict[str, dict[SplitName, dict[int, list[Outcome]]]]:
    """Return dev and test outcomes by seed of every control that all of these runs have."""
    times: Counter[str] = Counter()
    found: dict[str, dict[SplitName, dict[int, list[Outcome]]]] = {}
    for run in runs:
        of_run = {name: of for name, of in run.controls.items() if {"dev", "test"} <= of.keys()}
        of_run |= {kind: {"dev": of.dev, "test": of.test} for kind, of in of_runs.get(run.spec.id, {}).items()}
        times.update(of_run.keys())
        for name, by_split in of_run.items():
            for split in ("dev", "test"):
                by_seed = found.setdefault(name, {}).setdefault(split, {})
                by_seed.setdefault(run.spec.seed, []).extend(by_split[split])
    return {name: of for name, of in found.items() if times[name] == len(runs) and name != PRIOR_CORRECTED}


@dataclass(frozen=True)
class Spread:
    """Several values of the same score."""

    runs: int
    mean: float
    deviation: float | None
    """The standard deviation of a single run, with n - 1 in its denominator; None for one run."""
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Self:
        """Return the mean and spread of some values."""
        deviation = stdev(values) if len(values) > 1 else None
        return cls(len(values), fmean(values), deviation, min(values), max(values))

    def text(self, metric: str) -> str:
        """Return the mean as its metric is shown, with the deviation if there is one."""
        shown = METRICS[metric].text
        return shown(self.mean) if self.deviation is None else f"{shown(self.mean)} ± {shown(self.deviation)}"


@dataclass(frozen=True)
class RunGroup:
    """The runs of a cell: one LM, source and kind, with a run for each relation and seed."""

    runs: tuple[KeptRun, ...]

    @cached_property
    def by_relation(self) -> Mapping[str, Mapping[int, KeptRun]]:
        """The runs by relation and seed."""
        runs: dict[str, dict[int, KeptRun]] = defaultdict(dict)
        for run in sorted(self.runs, key=lambda run: (run.spec.relation, run.spec.seed)):
            runs[run.spec.relation][run.spec.seed] = run
        return runs

    @property
    def relations(self) -> tuple[str, ...]:
        """The names of the relations, sorted."""
        return tuple(self.by_relation)

    @cached_property
    def seeds(self) -> tuple[int, ...]:
        """The seeds that every relation was run with."""
        return tuple(sorted(set.intersection(*({*runs} for runs in self.by_relation.values()))))

    @property
    def firsts(self) -> list[KeptRun]:
        """One run of each relation, with its first seed."""
        return [next(iter(runs.values())) for runs in self.by_relation.values()]

    @property
    def facts(self) -> int:
        """Test facts that were asked, over all relations."""
        return sum(run.facts for run in self.firsts)

    @property
    def has_outcomes(self) -> bool:
        """Whether the answers to its facts are known, and not only the score."""
        return all(run.test for run in self.runs)

    @property
    def kept(self) -> str:
        """How its prompts were before tuning, if no step was better on dev in any of its runs; empty otherwise."""
        states = dict.fromkeys(part.record.as_written for run in self.runs for part in run.parts)
        return " or ".join(states) if all(states) and not self.runs[0].is_before else ""

    @property
    def has_fitted_weights(self) -> bool:
        """Whether all that was found is weights: they were fitted, and the vectors kept as they had been."""
        return FITTED in self.kept

    @property
    def left_out(self) -> int:
        """Test facts that could not be asked, over all relations."""
        return sum(run.record.test.left_out_count for run in self.firsts)

    def score(self, metric: str, average: Average = "micro") -> Spread:
        """Return the mean over facts (micro) or of the relations' means (macro), each relation's over its seeds. Its
        spread is over the seeds that all relations have."""
        weights = None if average == "macro" else [run.facts for run in self.firsts]
        of_relations = [fmean(run.score(metric) for run in runs.values()) for runs in self.by_relation.values()]
        of_seeds = [
            fmean([runs[seed].score(metric) for runs in self.by_relation.values()], weights) for seed in self.seeds
        ]
        return replace(Spread.of(of_seeds), mean=fmean(of_relations, weights))

    @property
    def before(self) -> "RunGroup | None":
        """The same runs before tuning, if all of them were scored then; of seeds that make no difference, the first."""
        group = RunGroup(tuple(before for run in self.runs if (before := run.before) is not None))
        if len(group.runs) < len(self.runs):
            return None
        if all(len({run.score("P@1") for run in of.values()}) == 1 for of in group.by_relation.values()):
            return RunGroup(tuple(group.firsts))
        return group

    def among(self, relations: Collection[str]) -> "RunGroup":
        """Return the runs of these relations."""
        return RunGroup(tuple(run for run in self.runs if run.spec.relation in relations))

    @cached_property
    def outcomes(self) -> dict[int, list[Outcome]]:
        """The outcome of each test fact, by seed."""
        found: dict[int, list[Outcome]] = defaultdict(list)
        for runs in self.by_relation.values():
            for seed, run in runs.items():
                found[seed] += run.test
        return found
