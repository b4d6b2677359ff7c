"""What became of facts when an LM was changed: kept, hidden, gone, new or unknown, beside what guessing would give.

An LM answers a fact *by hand* if its hard prompts do, *tuned only* if only prompts that were tuned on it do, and *not*
otherwise. A fact that was answered by hand and now needs tuned prompts is hidden; one that neither answer is gone.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from askwell.data.facts import Fact
from askwell.errors import UsageError
from askwell.evaluation.outcomes import Outcome
from askwell.evaluation.significance import bootstrap_interval

State = Literal["by hand", "tuned only", "not"]
Verdict = Literal["kept", "hidden", "gone", "new", "unknown"]
STATES: tuple[State, ...] = get_args(State)
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)


@dataclass(frozen=True)
class Ways:
    """The outcomes of the same facts, asked of one LM in two ways."""

    hard: Sequence[Outcome]
    tuned: Sequence[Outcome]


@dataclass(frozen=True)
class JudgedFact:
    """A fact, and what became of it."""

    relation: str
    x: str
    y: str
    before: State
    after: State
    verdict: Verdict
    answers: tuple[str, ...]
    """The best answers: before by hand and tuned, after by hand and tuned."""
    guessed: Mapping[Verdict, float]
    """How probable each verdict would be if y were another of the relation's ys, drawn by how often they occur."""


@dataclass(frozen=True)
class Share:
    """How many facts have a verdict, and how many more than guessing gives, with 95 % intervals of the shares."""

    facts: int
    share: float
    low: float | None
    high: float | None
    guessed: float
    """The expected number of facts with this verdict if right answers were guesses."""
    beyond: float
    """The share beyond guessing."""
    beyond_low: float | None
    beyond_high: float | None


@dataclass(frozen=True)
class Verdicts:
    """What became of all facts that were asked of both LMs in both ways."""

    facts: tuple[JudgedFact, ...]
    unsettled: int
    """Facts that are left out, since a search was cut before it was known whether y is the best answer."""
    table: Mapping[State, Mapping[State, int]]
    """The number of facts by the state before and the state after."""
    shares: Mapping[Verdict, Share]


def state_of(hard: bool, tuned: bool) -> State:
    """Return how an LM answers a fact, given which ways of asking answer it."""
    return "by hand" if hard else "tuned only" if tuned else "not"


def verdict_of(before: State, after: State) -> Verdict:
    """Return what became of a fact."""
    if before == "not":
        return "unknown" if after == "not" else "new"
    if after == "not":
        return "gone"
    return "hidden" if before == "by hand" and after == "tuned only" else "kept"


def judge(before: Ways, after: Ways, *, seed: int = 0) -> Verdicts:
    """Compare two LMs fact by fact, on the facts that were asked of both in both ways."""
    sides = [_by_fact(outcomes) for outcomes in (before.hard, before.tuned, after.hard, after.tuned)]
    shared = [fact for fact in sides[0] if all(fact in side for side in sides[1:])]
    if not shared:
        raise UsageError("no fact was asked of both LMs, so there is nothing to compare")
    settled = [fact for fact in shared if all(_is_known(side[fact]) for side in sides)]
    frequencies = _y_frequencies(sides[0][fact] for fact in shared)
    judged = tuple(_judged([side[fact] for side in sides], frequencies[fact[0]]) for fact in settled)
    table = {one: dict.fromkeys(STATES, 0) for one in STATES}
    for fact in judged:
        table[fact.before][fact.after] += 1
    return Verdicts(judged, len(shared) - len(settled), table, {name: _share(judged, name, seed) for name in VERDICTS})


def _by_fact(outcomes: Sequence[Outcome]) -> dict[tuple[str, Fact], Outcome]:
    return {(outcome.relation, Fact(outcome.x, outcome.y)): outcome for outcome in outcomes}


def _is_known(outcome: Outcome) -> bool:
    """Tell whether it is known if y is the best answer."""
    return (outcome.rank < 2) == (outcome.rank_at_most < 2)


def _judged(outcomes: Sequence[Outcome], frequencies: Mapping[str, int]) -> JudgedFact:
    of_fact = outcomes[0]
    answers = tuple(outcome.answers[0] if outcome.answers else "" for outcome in outcomes)
    before, after = (state_of(*(one.rank < 2 for one in pair)) for pair in (outcomes[:2], outcomes[2:]))
    return JudgedFact(
        of_fact.relation,
        of_fact.x,
        of_fact.y,
        before,
        after,
        verdict_of(before, after),
        answers,
        _guessed(answers, {y: count for y, count in frequencies.items() if y not in of_fact.golds}),
    )


def _guessed(answers: Sequence[str], frequencies: Mapping[str, int]) -> dict[Verdict, float]:
    """Return how probable each verdict would be if y were one of the other ys, drawn by their frequency."""
    total = sum(frequencies.values())
    found = dict.fromkeys(VERDICTS, 0.0)
    for y in {*answers} & frequencies.keys():
        is_answer = [answer == y for answer in answers]
        verdict = verdict_of(state_of(*is_answer[:2]), state_of(*is_answer[2:]))
        found[verdict] += frequencies[y] / total
    found["unknown"] += 1 - math.fsum(found.values())
    return found


def _y_frequencies(outcomes: Iterable[Outcome]) -> dict[str, Counter[str]]:
    """Return how often each y occurs in each relation."""
    found: dict[str, Counter[str]] = {}
    for outcome in outcomes:
        found.setdefault(outcome.relation, Counter())[outcome.y] += 1
    return found


def _share(judged: Sequence[JudgedFact], verdict: Verdict, seed: int) -> Share:
    has = np.array([float(fact.verdict == verdict) for fact in judged])
    guessed = np.array([fact.guessed[verdict] for fact in judged])
    low, high = _interval(has, seed)
    beyond_low, beyond_high = _interval(has - guessed, seed)
    mean, beyond = (float(values.mean()) if len(values) else 0.0 for values in (has, has - guessed))
    return Share(int(has.sum()), mean, low, high, float(guessed.sum()), beyond, beyond_low, beyond_high)


def _interval(values: np.ndarray, seed: int) -> tuple[float, float] | tuple[None, None]:
    if len(values) < 2:
        return None, None
    found = bootstrap_interval([np.stack([values, np.ones_like(values)], axis=1)], seed=seed, largest=1.0)
    return (None, None) if found is None else (max(-1.0, found[0]), min(1.0, found[1]))
