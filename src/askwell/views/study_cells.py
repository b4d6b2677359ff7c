"""The runs that tables show, the kind of each, and what the runs of one cell score together.

The kind of a run follows from its spec, whatever its setting is called.
"""

import math
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import fmean, stdev
from typing import Any

import numpy as np

from askwell.data.split import fold_of
from askwell.errors import UsageError
from askwell.evaluation.comparison import Outcomes, pair_outcomes
from askwell.evaluation.metrics import METRICS, Average
from askwell.evaluation.outcomes import Outcome
from askwell.evaluation.scoring import EvaluationFigures
from askwell.evaluation.significance import permutation_test
from askwell.runs.folder import Run
from askwell.runs.several_runs import scored_together
from askwell.specs.mixture_spec import AUTO_LEAD_IN, NO_LEAD_IN
from askwell.specs.run_spec import RunSpec
from askwell.views.printable import counted

NO_SET = "own facts"
"""The set of relations whose names do not mention one."""
_MOST_OWN_SETS = 8
INIT, SOFT, DEEP = "init", "soft", "deep"
WEIGHTS, VECTORS = "weights only", "vectors only"
ARROWS = (INIT, SOFT, DEEP)
"""The kinds that follow each other in the paper's tables."""
KINDS = (*ARROWS, WEIGHTS, VECTORS)
"""All kinds that have a name, in the order of tables."""
_IN_WORDS = {
    INIT: "untuned",
    SOFT: "tuned",
    DEEP: "tuned at all layers",
    WEIGHTS: "only weights tuned",
    VECTORS: "only vectors tuned",
}
EM = "EM"
AUTO, STATIC = "auto", "static"
"""The weighting that a run chooses itself, and the one that does not depend on x; each of the others gets its own row,
under its name."""

_SHALLOW = {("vectors", "weights"): SOFT, ("weights",): WEIGHTS, ("vectors",): VECTORS, (): "nothing tuned"}
_DEEP = {("vectors", "layers", "weights"): DEEP}
# Kind, row and seed show these; everything else is how a run was done.
_IN_THE_KIND = {"tune_vectors", "tune_layers", "tune_weights", "method"}
_IN_THE_ROW = {"deep", "weighting", "initial", "copies", "combine", "weights", "seed", "prefix", "shots"}


def fact_set_of(relation: str) -> str:
    """Return the set of a relation: what precedes the ':' or '/' of its name."""
    first, *rest = re.split(r"[:/]", relation, maxsplit=1)
    return first if rest and first else NO_SET


def kind_of(spec: RunSpec) -> str:
    """Return what was tuned: one of KINDS, or a description of what was tuned in a deep mixture."""
    training, deep = spec.training, spec.mixture.deep
    if training is None:
        return INIT
    parts = {
        "vectors": training.tune_vectors and not spec.mixture.keeps_words,
        "layers": training.tune_layers and deep,
        "weights": training.tune_weights,
    }
    tuned = tuple(name for name, is_tuned in parts.items() if is_tuned)
    return (_DEEP if deep else _SHALLOW).get(tuned) or f"deep, {' and '.join(tuned) or 'nothing'} tuned"


def extras_of(spec: RunSpec) -> tuple[str, ...]:
    """Return what distinguishes a run from plain ones of its kind, which have other rows: EM, data-dependent, …"""
    mixture, training = spec.mixture, spec.training
    extras = {
        EM: training is not None and training.method == "em",
        f"weighted by x ({mixture.weighting})": mixture.weighting not in (AUTO, STATIC),
        "product of experts": mixture.combine == "product",
        "published weights": mixture.weights == "file",
        f"{mixture.copies} copies": mixture.copies > 1,
        "lead-in": mixture.lead_in not in (NO_LEAD_IN, AUTO_LEAD_IN),
        f"prefix of {mixture.prefix}": mixture.prefix > 0,
        f"{mixture.shots} shots": bool(mixture.shots),
    }
    return tuple(name for name, applies in extras.items() if applies)


def in_words(kind: str) -> str:
    """Return a kind as people are told of it, without the paper's names."""
    return _IN_WORDS.get(kind, kind)


def place_of(kind: str) -> tuple[int, str]:
    """Return the place of a kind in the order of tables, to sort by."""
    return KINDS.index(kind) if kind in KINDS else len(KINDS), kind


def source_of(spec: RunSpec) -> str:
    """Return the name of the prompts; where vectors began at random, only their positions come from the prompts."""
    initial = spec.mixture.initial
    return spec.prompts if initial == "words" else f"{initial} ({spec.prompts})"


def how_of(spec: RunSpec) -> dict[str, Any]:
    """Return all choices of a run that its kind, row and seed do not show."""
    return {
        **spec.mixture.model_dump(mode="json", exclude=_IN_THE_ROW),
        **({} if spec.training is None else spec.training.model_dump(mode="json", exclude=_IN_THE_KIND)),
        **spec.model_dump(mode="json", include={"threads", "device", "dtype"}),
    }


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
    def figures(self) -> EvaluationFigures:
        """Its figures on test facts."""
        untuned = self.record.untuned if self.is_before else None
        return self.record.test if untuned is None else untuned

    @property
    def facts(self) -> int:
        """Test facts that were asked."""
        return self.figures.facts

    def score(self, metric: str) -> float:
        """Return the test score; a log-loss can be infinite."""
        score = self.figures.score(metric) if self.is_before else super().score(metric)
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
        of_relation[facts] = max(of_relation.get(facts, 0), run.facts + run.figures.left_out_count)
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
    return [_together([*folds.values()]) for folds in alike.values()]


def _together(folds: Sequence[KeptRun]) -> KeptRun:
    first = folds[0]
    if len(folds) == 1:
        return first
    records = [run.record for run in folds]
    before = [record.untuned for record in records if record.untuned is not None]
    untuned = scored_together([run.untuned for run in folds], before) if len(before) == len(folds) else None
    together = {
        "test": scored_together([run.test for run in folds], [record.test for record in records]).figures(),
        "untuned": None if untuned is None or not untuned.outcomes else untuned.figures(),
        "effective_prompts": fmean(record.effective_prompts for record in records),
    }
    return replace(first, record=first.record.model_copy(update=together), folds=tuple(folds))


@dataclass(frozen=True)
class Score:
    """A mean over seeds, in the metric's unit."""

    metric: str
    mean: float
    deviation: float | None
    """The standard deviation over seeds; None for a single one."""
    seeds: int
    """How many seeds all relations have in common."""

    @property
    def text(self) -> str:
        """The score as its metric is shown, with its deviation if there is one."""
        shown = METRICS[self.metric].text
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

    def in_words(self, kind: str) -> str:
        """Return what was tuned in its runs, as people are told of it, or that they were kept as they had been."""
        return f"kept {self.kept}" if self.kept else in_words(kind)

    @property
    def left_out(self) -> int:
        """Test facts that could not be asked, over all relations."""
        return sum(run.figures.left_out_count for run in self.firsts)

    def score(self, metric: str, average: Average = "micro") -> Score:
        """Return the mean over facts (micro) or of the relations' means (macro), each relation's over its seeds."""
        weights = None if average == "macro" else [run.facts for run in self.firsts]
        of_relations = [fmean(run.score(metric) for run in runs.values()) for runs in self.by_relation.values()]
        of_seeds = [
            fmean([runs[seed].score(metric) for runs in self.by_relation.values()], weights) for seed in self.seeds
        ]
        deviation = stdev(of_seeds) if len(of_seeds) > 1 else None
        return Score(metric, fmean(of_relations, weights), deviation, len(of_seeds))

    @property
    def before(self) -> "RunGroup | None":
        """The same runs before tuning, if all of them were scored then; of seeds that make no difference, the first."""
        if any(run.record.untuned is None for run in self.runs):
            return None
        group = RunGroup(tuple(replace(run, is_before=True) for run in self.runs))
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


@dataclass(frozen=True)
class Step:
    """From one cell to the next: the gain in points and the p-value of the paired permutation test."""

    gain: float
    p: float | None
    """None where the outcomes of single facts are not known."""
    changed: int = 0
    """How many facts were not answered equally well."""


def change_of(
    before: RunGroup | None, after: RunGroup | None, metric: str, among: Callable[[Outcome], bool] | None = None
) -> Step | None:
    """Return the step between two cells, all relations together; None if they share no relation or no seed.

    `among` limits it to some facts, where the outcomes of single facts are known.
    It is the micro difference of `compare`, without the intervals, which take long on many facts.
    """
    if before is None or after is None or not {*before.relations} & {*after.relations}:
        return None
    if not before.has_outcomes:
        return Step(after.score(metric).mean - before.score(metric).mean, None)
    a, b = _by_seed(after, among), _by_seed(before, among)
    if isinstance(a, dict) and isinstance(b, dict) and not a.keys() & b.keys():
        return None
    value, pairs = METRICS[metric].value, pair_outcomes(a, b).pairs
    differences: dict[tuple[str, ...], float] = defaultdict(float)
    for pair in pairs:
        differences[pair.unit("fact")] += value(pair.a) - value(pair.b)
    sums = np.array([*differences.values()])
    sums[np.abs(sums) < 1e-12] = 0.0  # seeds that cancel out except for the last bits
    gain = METRICS[metric].scale * float(sums.sum()) / len(pairs)
    return Step(gain, permutation_test(sums).p, int(np.count_nonzero(sums)))


def _by_seed(group: RunGroup, among: Callable[[Outcome], bool] | None) -> Outcomes:
    """Return a group's outcomes by seed; a group with one seed is compared with every seed of the other."""
    found = {seed: [*filter(among, outcomes)] for seed, outcomes in group.outcomes.items()} if among else group.outcomes
    return found if len(found) > 1 else next(iter(found.values()))
