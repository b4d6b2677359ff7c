"""How two runs differ on the facts that both answered: by how much, how significantly, and where."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from statistics import fmean
from typing import Annotated, Any, Literal, Protocol, runtime_checkable

import numpy as np
from pydantic import Field

from askwell.errors import BadOption, NothingSettled, UsageError, checked, first_few
from askwell.evaluation.metrics import Metric, metric_named
from askwell.evaluation.outcomes import FactKey, Outcome
from askwell.evaluation.significance import SIGNIFICANT, bootstrap_interval, permutation_test, sign_test

Unit = Literal["fact", "x", "y"]
"""What the tests take as one independent unit: a fact, all facts of an x, or all facts of a y (of one relation)."""

Outcomes = Sequence[Outcome] | Mapping[int, Sequence[Outcome]]
"""The outcomes of one run, or of one run for each seed."""


@runtime_checkable
class HasOutcomes(Protocol):
    """An evaluation, a run, or several runs."""

    @property
    def outcomes(self) -> "Outcomes":
        """An outcome for each fact, for each seed if there are several."""
        ...


@dataclass(frozen=True)
class Pair:
    """One fact as both runs answered it, with the same seed."""

    a: Outcome
    b: Outcome

    def unit(self, unit: Unit) -> tuple[str, ...]:
        """Return the pair's unit. Repeated lines of a fact, and its seeds, always belong to the same one."""
        relation, x, y = self.a.key
        units = {"fact": (relation, x, y), "x": (relation, x), "y": (relation, y)}
        if unit not in units:
            raise BadOption(f"there is no unit {unit!r}: choose one of {', '.join(units)}")
        return units[unit]


@dataclass(frozen=True)
class Paired:
    """The pairs of two runs, sorted by fact, and how many outcomes have no partner."""

    pairs: tuple[Pair, ...]
    seeds: tuple[int, ...]
    """The seeds that were paired; empty if neither side has several."""
    only_a: int
    only_b: int


def pair_outcomes(a: Outcomes, b: Outcomes) -> Paired:
    """Pair the same facts and, if both sides have several seeds, the same seeds.

    A side without seeds (a baseline that has none) is paired with every seed of the other. A fact that occurs n times
    in one run and m times in the other makes min(n, m) pairs."""
    of_a, of_b = _by_seed(a, b), _by_seed(b, a)
    seeds = sorted(of_a.keys() & of_b.keys())
    if not seeds:
        seeds_a, seeds_b = (", ".join(map(str, sorted(side))) or "none" for side in (of_a, of_b))
        raise UsageError(
            f"no seed was run on both sides: A has {seeds_a}, B has {seeds_b}; name runs of the same seeds"
        )
    pairs = []
    for seed in seeds:
        in_a, in_b = _numbered(of_a[seed]), _numbered(of_b[seed])
        pairs += [(key, Pair(in_a[key], in_b[key])) for key in in_a.keys() & in_b.keys()]
    only_a, only_b = (sum(map(len, side.values())) - len(pairs) for side in (of_a, of_b))
    if not pairs:
        raise UsageError(
            f"the two runs have no fact in common: A has {only_a} facts of {_relations(of_a)}, B {only_b} of "
            f"{_relations(of_b)}; compare runs on the same relation and split"
        )
    pairs.sort(key=lambda numbered: numbered[0])  # so that the order of rows in a file changes no random draw
    has_seeds = isinstance(a, Mapping) or isinstance(b, Mapping)
    return Paired(tuple(pair for _, pair in pairs), tuple(seeds) if has_seeds else (), only_a, only_b)


def _by_seed(side: Outcomes, other: Outcomes) -> dict[int, Sequence[Outcome]]:
    """Return the outcomes of each seed; a side without seeds has those of the other, or a single one."""
    if isinstance(side, Mapping):
        return dict(side)
    return {int(seed): side for seed in other} if isinstance(other, Mapping) else {0: side}


def _numbered(outcomes: Sequence[Outcome]) -> dict[tuple[str, str, str, int], Outcome]:
    """Return outcomes by fact, with the n-th line of a repeated fact under the number n."""
    times: Counter[FactKey] = Counter()
    numbered = {}
    for outcome in outcomes:
        if not isinstance(outcome, Outcome):
            raise BadOption(f"{type(outcome).__name__} is not an Outcome; {_COMPARED}")
        numbered[*outcome.key, times[outcome.key]] = outcome
        times[outcome.key] += 1
    return numbered


_COMPARED = "compare evaluations, runs (askwell.load_runs reads them), or lists of outcomes"


def _outcomes(run: Any) -> Outcomes:
    if isinstance(run, HasOutcomes):
        return run.outcomes
    if isinstance(run, str) or not isinstance(run, Iterable):
        raise BadOption(f"{type(run).__name__} has no outcomes; {_COMPARED}")
    if isinstance(run, Mapping) and any(not isinstance(of_seed, Iterable) for of_seed in run.values()):
        raise BadOption(f"a dictionary has a list of outcomes for each seed; {_COMPARED}")
    return run


def _relations(runs: Mapping[int, Sequence[Outcome]]) -> str:
    return first_few(sorted({outcome.relation for run in runs.values() for outcome in run})) or "no relation"


@dataclass(frozen=True)
class Difference:
    """Two scores, A minus B, the interval of the difference, and the p-value of the paired permutation test."""

    a: float
    b: float
    difference: float
    low: float | None
    """None, like `high`, where a relation has one unit, or all have the same log-loss: see `bootstrap_interval`."""
    high: float | None
    p: float
    """Not a number where only the scores are known, and not the answers to single facts."""
    exact: bool
    """Whether p counts all sign flips, or a sample of them."""
    alike: bool = False
    """Whether all units differ alike, so that drawing them shows nothing: see `bootstrap_interval`."""
    changed: Annotated[int, Field(exclude=True)] = field(default=0, compare=False)
    """How many units differ; no file has it."""

    @property
    def is_clear(self) -> bool:
        """Whether p is below the line."""
        return self.p < SIGNIFICANT


@dataclass(frozen=True)
class RelationComparison:
    """The two scores of one relation, and in how many of its units A and B are better."""

    facts: int
    a: float
    b: float
    difference: float
    wins: int
    losses: int


@dataclass(frozen=True)
class ChangedFact:
    """A fact on which the two runs differ; figures are means over its seeds."""

    relation: str
    x: str
    y: str
    a: float
    b: float
    a_rank: float
    b_rank: float
    a_answer: str | None
    """The best answer; with several seeds, the most frequent one."""
    b_answer: str | None
    difference: float
    """A minus B."""


@dataclass(frozen=True)
class Comparison:
    """What `compare` found. Scores are in the metric's unit."""

    metric: str
    unit: Unit
    confidence: float
    facts: int
    """Pairs of outcomes: the facts that both answered, each as often as it was asked (repeated lines, seeds)."""
    only_a: int
    only_b: int
    seeds: tuple[int, ...]
    """The seeds that were paired; empty if neither side has several."""
    micro: Difference
    """The mean over facts."""
    macro: Difference
    """The mean of the relations' means."""
    wins: int
    """Units (facts, by default) for which A is better."""
    losses: int
    ties: int
    sign_p: float
    """The p-value of the sign test on wins and losses."""
    relations: dict[str, RelationComparison]
    changed: tuple[ChangedFact, ...]
    """All facts with a difference, the largest first."""
    unsettled: Annotated[int, Field(exclude_if=lambda count: not count)] = 0
    """Pairs that are left out, since a search was cut before it was known what they contribute to the score."""


@checked
def compare(
    a: Outcomes | HasOutcomes,
    b: Outcomes | HasOutcomes,
    metric: str = "P@1",
    *,
    unit: Unit = "fact",
    confidence: float = 0.95,
    resamples: int = 9_999,
    seed: int = 0,
) -> Comparison:
    """Compare two runs on the facts that both answered. A run is one returned by `load_runs`, an evaluation, a list of
    outcomes, or a dictionary with such a list for each seed.

    The permutation test flips the signs of whole units; the bootstrap draws whole units, for the macro average within
    each relation. With `unit="y"` all facts of a relation with one y are a unit, which is the careful choice if a run
    may owe its score to a preference for some ys. Facts for which a search was cut before it was known what they
    contribute are left out.
    """
    if not 0 < confidence < 1:
        raise BadOption(f"the confidence {confidence} is not between 0 and 1")
    if resamples < 1:
        raise BadOption(f"{resamples} resamples: at least one is needed")
    by = metric_named(metric)
    paired = pair_outcomes(_outcomes(a), _outcomes(b))
    pairs = [pair for pair in paired.pairs if by.is_known(pair.a) and by.is_known(pair.b)]
    if not pairs:
        raise NothingSettled(f"the search was cut for all {len(paired.pairs)} facts before their {metric} was known")
    values = np.array([[by.value(pair.a), by.value(pair.b)] for pair in pairs])
    if not np.isfinite(values).all():
        unanswered = [f"{count} in {run}" for run, count in zip("AB", np.isinf(values).sum(0), strict=True) if count]
        raise UsageError(
            f"the {metric} is infinite, since some facts have probability 0 ({', '.join(unanswered)}): choose "
            "another metric"
        )
    units, sums = _summed(values, [pair.unit(unit) for pair in pairs])
    relation_of = np.array([relation for relation, *_ in units])
    by_relation = {name: sums[relation_of == name] for name in dict.fromkeys(relation_of.tolist())}
    differences = _differences(sums)
    wins, losses = _wins_and_losses(differences, by)
    difference = partial(_difference, metric=by, confidence=confidence, resamples=resamples, seed=seed)
    return Comparison(
        metric=metric,
        unit=unit,
        confidence=confidence,
        facts=len(pairs),
        only_a=paired.only_a,
        only_b=paired.only_b,
        seeds=paired.seeds,
        micro=difference([np.concatenate(list(by_relation.values()))]),
        macro=difference(list(by_relation.values())),
        wins=wins,
        losses=losses,
        ties=len(differences) - wins - losses,
        sign_p=sign_test(wins, losses),
        relations={name: _of_relation(of_relation, by) for name, of_relation in by_relation.items()},
        changed=_changed(pairs, values, by),
        unsettled=len(paired.pairs) - len(pairs),
    )


def paired_difference(a: Outcomes, b: Outcomes, metric: str) -> Difference:
    """Return the micro difference of `compare` without its interval, which takes long on many facts. A fact whose
    search was cut counts as it does in the scores."""
    by, pairs = metric_named(metric), pair_outcomes(a, b).pairs
    values = np.array([[by.value(pair.a), by.value(pair.b)] for pair in pairs])
    sums = _summed(values, [pair.unit("fact") for pair in pairs])[1]
    return _difference([sums], metric=by, confidence=None, resamples=9_999, seed=0)


def _summed(values: np.ndarray, keys: Sequence[tuple[str, ...]]) -> tuple[list[tuple[str, ...]], np.ndarray]:
    """Return the distinct keys in order, and for each a row: the sum of A, the sum of B, the number of pairs."""
    number = {key: place for place, key in enumerate(dict.fromkeys(keys))}
    which = [number[key] for key in keys]
    sums = [np.bincount(which, weights=values[:, 0]), np.bincount(which, weights=values[:, 1]), np.bincount(which)]
    return list(number), np.column_stack(sums)


def _difference(
    strata: Sequence[np.ndarray], *, metric: Metric, confidence: float | None, resamples: int, seed: int
) -> Difference:
    """Compute the mean of the strata's means for A and B, with test and, at a confidence, interval."""
    score_a, score_b = (
        metric.scale * float(np.mean([units[:, side].sum() / units[:, 2].sum() for units in strata])) for side in (0, 1)
    )
    parts = [_differences(units) for units in strata]
    # One stratum needs no division, and counts of right answers stay whole numbers, for which the test is exact.
    weighted = parts if len(strata) == 1 else [p / u[:, 2].sum() for p, u in zip(parts, strata, strict=True)]
    differences = np.concatenate(weighted)
    test = permutation_test(differences, resamples=resamples, seed=seed)
    interval = (
        None
        if confidence is None
        else bootstrap_interval(
            [np.stack([part, units[:, 2]], axis=1) for part, units in zip(parts, strata, strict=True)],
            confidence=confidence,
            resamples=resamples,
            seed=seed,
            largest=metric.most,
        )
    )
    low, high = (None, None) if interval is None else (metric.scale * end for end in interval)
    alike = all(np.ptp(part / units[:, 2]) < 1e-12 for part, units in zip(parts, strata, strict=True))
    changed = int(np.count_nonzero(differences))
    return Difference(score_a, score_b, score_a - score_b, low, high, test.p, test.exact, alike, changed)


def _of_relation(units: np.ndarray, metric: Metric) -> RelationComparison:
    count = int(units[:, 2].sum())
    score_a, score_b = (metric.scale * float(units[:, side].sum()) / count for side in (0, 1))
    wins, losses = _wins_and_losses(_differences(units), metric)
    return RelationComparison(count, score_a, score_b, score_a - score_b, wins, losses)


def _differences(units: np.ndarray) -> np.ndarray:
    """Return the sum of A minus the sum of B for each unit; differences in only the last bits of a sum count as 0."""
    return np.where(np.isclose(units[:, 0], units[:, 1], rtol=1e-12, atol=0), 0.0, units[:, 0] - units[:, 1])


def _wins_and_losses(differences: np.ndarray, metric: Metric) -> tuple[int, int]:
    more, less = int((differences > 0).sum()), int((differences < 0).sum())
    return (more, less) if metric.higher_is_better else (less, more)


def _changed(pairs: Sequence[Pair], values: np.ndarray, metric: Metric) -> tuple[ChangedFact, ...]:
    """Return the facts with a difference, the largest first, then by name."""
    facts, sums = _summed(values, [pair.unit("fact") for pair in pairs])
    of_fact: dict[tuple[str, ...], list[Pair]] = {}
    for pair in pairs:
        of_fact.setdefault(pair.unit("fact"), []).append(pair)
    changed = []
    for place in np.flatnonzero(_differences(sums)):
        sum_a, sum_b, count = sums[place].tolist()
        in_a, in_b = zip(*((pair.a, pair.b) for pair in of_fact[facts[place]]), strict=True)
        changed.append(
            ChangedFact(
                *facts[place],
                a=(a := metric.scale * sum_a / count),
                b=(b := metric.scale * sum_b / count),
                a_rank=fmean(outcome.rank for outcome in in_a),
                b_rank=fmean(outcome.rank for outcome in in_b),
                a_answer=_most_common(in_a),
                b_answer=_most_common(in_b),
                difference=a - b,
            )
        )
    return tuple(sorted(changed, key=lambda fact: (-abs(fact.difference), fact.relation, fact.x, fact.y)))


def _most_common(outcomes: Sequence[Outcome]) -> str | None:
    counted = Counter(answer for outcome in outcomes for answer in outcome.answers[:1])
    return counted.most_common(1)[0][0] if counted else None
