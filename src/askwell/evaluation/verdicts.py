"""What became of each fact when an LM was changed: kept, hidden, gone or new, beside what guessing gives.

An LM has one of three states for a fact: its hard prompts answer ("by hand"), only its tuned prompts do ("tuned
only"), or neither ("not"). A fact is hidden if it was answered by hand before and is answered by tuned prompts alone
after. A right answer can be a guess, so hidden facts are counted beyond what guesses would give.
"""

import math
import re
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from askwell.errors import BadOption, UsageError
from askwell.evaluation.comparison import Comparison, compare
from askwell.evaluation.outcomes import FactKey, Outcome, by_fact
from askwell.evaluation.scoring import TENS, WORDS, label_of, parted

State = Literal["by hand", "tuned only", "not"]
Verdict = Literal["kept", "hidden", "gone", "new", "unknown"]
STATES: tuple[State, ...] = get_args(State)
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)
BEYOND_CONTROL = "tuned prompts beyond the best control"
"""The score by which removed facts are told from facts that were never told; those whose y the control cannot give at
all have none."""

_RESAMPLES = 9_999
_LENGTHS, _FREQUENCIES = ("1", "2", "3", "4 or more"), ("0", "1 to 9", "10 to 99", "100 or more")
_DRAWN, _CONTROL, _NEVER_TOLD = "what it answers elsewhere", "the best control", "facts that were never told"


def verdict_of(before: State, after: State) -> Verdict:
    """Return what became of a fact with these two states."""
    if before == "not":
        return "unknown" if after == "not" else "new"
    if after == "not":
        return "gone"
    return "hidden" if before == "by hand" and after == "tuned only" else "kept"


@dataclass(frozen=True)
class AskedLM:
    """How one LM answered: with hard prompts, and with prompts tuned on it."""

    name: str
    by_hand: Sequence[Outcome]
    tuned: Sequence[Outcome]


@dataclass(frozen=True)
class Answered:
    """What both LMs made of one fact."""

    relation: str
    x: str
    y: str
    before: State
    after: State
    verdict: Verdict
    before_answers: tuple[str, str]
    """The best answers of the hard and of the tuned prompts."""
    after_answers: tuple[str, str]
    right: tuple[bool, bool, bool, bool]
    """Whether each of the four is right, in this order."""
    carried_over: bool | None
    """Whether the prompts tuned on BEFORE find the fact in AFTER; None if they were not asked."""
    score: float | None
    """The log-probability that AFTER's tuned prompts give y, minus the best control's; None where either is 0."""


@dataclass(frozen=True)
class Share:
    """Facts with a verdict, of those that can have it, and the exact (Clopper-Pearson) interval of the share."""

    count: int
    of: int
    low: float
    high: float
    guessed: float | None
    """The share of the same verdict among wrong ys drawn from the relation for the same x's, which no LM knows."""


@dataclass(frozen=True)
class BeyondGuessing:
    """Hidden facts, and how many of them guessing does not explain, with a bootstrap interval over ys.

    The interval lies between none and all hidden facts, which is all that their number can be. Its lower end is at most
    that of the exact interval of the share of hidden facts, since a bootstrap over a few facts that are all alike has
    no width."""

    hidden: int
    at_risk: int
    """Facts that were answered by hand before and no longer are."""
    guesses: float
    """How many of them AFTER's tuned prompts would find without knowing them."""
    control: str
    """What this is estimated from: the largest of the available estimates."""
    beyond: float
    low: float
    high: float


@dataclass(frozen=True)
class RocArea:
    """How well forgotten facts can be told apart from facts that were never told: 0.5 if forgetting was perfect."""

    by: str
    forgotten: int
    never_told: int
    area: float
    low: float
    high: float


@dataclass(frozen=True)
class Verdicts:
    """What became of all facts. `table` has a row for each state before, a column for each state after."""

    before: str
    after: str
    confidence: float
    facts: int
    only_before: int
    """Facts that only BEFORE could be asked, which are left out."""
    only_after: int
    table: dict[State, dict[State, int]]
    verdicts: dict[Verdict, Share]
    hidden: BeyondGuessing
    never_told: dict[Verdict, int] | None
    """The verdicts of facts that neither LM was told, which count nowhere else; None if there are no such facts."""
    by_hand: Comparison
    """AFTER against BEFORE with hard prompts: paired tests, and flips in both directions."""
    tuned: Comparison
    parts: dict[str, dict[str, dict[Verdict, int]]]
    """The counts of verdicts by relation and its kind (1-1, N-1, N-M), by the number of words of y, by the frequency of
    y in train, and by whether AFTER was made to forget the fact; kind and forgetting only where they are known."""
    roc: tuple[RocArea, ...]
    changed: tuple[Answered, ...]
    """Facts that are not kept and not unknown, and those that came into reach; hidden ones first."""


def judge(
    before: AskedLM,
    after: AskedLM,
    *,
    never_told: Collection[FactKey] = (),
    forgotten: Collection[FactKey] = (),
    control: Sequence[Outcome] = (),
    prior: Sequence[Outcome] = (),
    carried_over: Sequence[Outcome] = (),
    frequency: Mapping[tuple[str, str], int] | None = None,
    kinds: Mapping[str, str] | None = None,
    confidence: float = 0.95,
    seed: int = 0,
) -> Verdicts:
    """Give each fact its verdict, on the facts that all four outcomes have.

    `never_told` are facts that neither LM can know, and `forgotten` those that AFTER was made to forget, if that is
    known. `control` and `prior` are the outcomes of the controls of AFTER's tuned prompts with the best P@1 and the
    best log-loss on dev, `carried_over` those of BEFORE's tuned prompts asked of AFTER, and `frequency` says how often
    train has a y, by relation and y, and `kinds` of which kind a relation is.
    """
    sides = [by_fact(side) for side in (before.by_hand, before.tuned, after.by_hand, after.tuned)]
    both = sorted(set.intersection(*({*side} for side in sides)))
    if not both:
        raise UsageError(f"{before.name} and {after.name} have no fact in common that both can be asked")
    moved, priors, guesser = by_fact(carried_over), by_fact(prior), by_fact(control)
    answered = {key: _answered(key, [side[key] for side in sides], moved.get(key), priors.get(key)) for key in both}
    kept_keys = [key for key in both if key not in never_told]
    told = [answered[key] for key in kept_keys]
    aside = [one for key, one in answered.items() if key in never_told]
    if not told:
        raise UsageError("all facts are ones that neither LM was told: there is nothing to lose")
    kept = [[side[key] for key in kept_keys] for side in sides]
    counts = Counter(one.verdict for one in told)
    known = counts["kept"] + counts["hidden"] + counts["gone"]
    of = {verdict: len(told) - known if verdict in ("new", "unknown") else known for verdict in VERDICTS}
    guessed = _guessed_shares(kept)
    rest = {"kept": 3, "hidden": 0, "gone": 1, "new": 2, "unknown": 3}
    return Verdicts(
        before=before.name,
        after=after.name,
        confidence=confidence,
        facts=len(told),
        only_before=len((sides[0].keys() & sides[1].keys()) - {*both}),
        only_after=len((sides[2].keys() & sides[3].keys()) - {*both}),
        table={
            row: {column: sum((one.before, one.after) == (row, column) for one in told) for column in STATES}
            for row in STATES
        },
        verdicts={one: _share(counts[one], of[one], confidence, guessed[one]) for one in VERDICTS},
        hidden=_beyond_guessing(
            told, aside, kept, {key: guesser[key] for key in kept_keys if key in guesser}, confidence, seed
        ),
        never_told=None if not aside else _counted(aside),
        by_hand=compare(kept[2], kept[0], seed=seed),
        tuned=compare(kept[3], kept[1], seed=seed),
        parts=_all_parts(told, frequency, kinds or {}, forgotten),
        roc=_roc(answered, sides, forgotten, never_told, confidence, seed),
        changed=tuple(
            sorted(
                (one for one in told if rest[one.verdict] < 3 or one.before != one.after),
                key=lambda one: (rest[one.verdict], one.relation, one.x, one.y),
            )
        ),
    )


def _answered(key: FactKey, sides: Sequence[Outcome], moved: Outcome | None, prior: Outcome | None) -> Answered:
    right = [side.at_worst().rank <= 1 for side in sides]
    states = [_state(*right[:2]), _state(*right[2:])]
    best = [side.answers[0] if side.answers else "" for side in sides]
    score = math.inf if prior is None else sides[3].log_probability - prior.log_probability
    return Answered(
        *key,
        before=states[0],
        after=states[1],
        verdict=verdict_of(*states),
        before_answers=(best[0], best[1]),
        after_answers=(best[2], best[3]),
        right=(right[0], right[1], right[2], right[3]),
        carried_over=None if moved is None else moved.at_worst().rank <= 1,
        score=score if math.isfinite(score) else None,
    )


def _state(by_hand: bool, tuned: bool) -> State:
    return "by hand" if by_hand else "tuned only" if tuned else "not"


def _share(count: int, of: int, confidence: float, guessed: float | None) -> Share:
    from scipy import stats  # imported here, since it takes a second

    if not of:
        return Share(count, of, 0.0, 1.0, guessed)
    interval = stats.binomtest(count, of).proportion_ci(confidence, method="exact")
    return Share(count, of, float(interval.low), float(interval.high), guessed)


def _guessed_shares(sides: Sequence[Sequence[Outcome]]) -> dict[Verdict, float]:
    """Return the share of each verdict, of all facts, if every y were a wrong one drawn from its relation: the exact
    expectation, over the ys of the facts in their frequencies."""
    ys: dict[str, Counter[str]] = {}
    for outcome in sides[0]:
        ys.setdefault(outcome.relation, Counter())[outcome.y] += 1
    total: dict[Verdict, float] = dict.fromkeys(VERDICTS, 0.0)
    for of_fact in zip(*sides, strict=True):
        counts, golds = ys[of_fact[0].relation], {*of_fact[0].golds, of_fact[0].y}
        wrong = sum(counts.values()) - sum(counts[gold] for gold in golds)
        answers = [one.answers[0] if one.answers else "" for one in of_fact]
        rest = 1.0
        for y in {*answers} - golds:
            share = counts[y] / wrong if wrong else 0.0
            right = [answer == y for answer in answers]
            total[verdict_of(_state(*right[:2]), _state(*right[2:]))] += share
            rest -= share
        total["unknown"] += rest
    return {verdict: share / len(sides[0]) for verdict, share in total.items()}


def _beyond_guessing(
    told: Sequence[Answered],
    aside: Sequence[Answered],
    sides: Sequence[Sequence[Outcome]],
    control: Mapping[FactKey, Outcome],
    confidence: float,
    seed: int,
) -> BeyondGuessing:
    """Count the hidden facts beyond guessing.

    Units of the bootstrap are the ys of a relation: prompts that know nothing prefer some ys, and answer all facts of
    such a y alike. What is estimated from facts that were never told is drawn again as well.
    """
    at_risk = [one for one in told if one.before == "by hand" and one.after != "by hand"]
    hidden = np.array([one.verdict == "hidden" for one in at_risk], dtype=float)
    estimates = {_DRAWN: np.array([_says(one, sides[3]) for one in at_risk])}
    if control:
        keys = [(one.relation, one.x, one.y) for one in at_risk]
        estimates[_CONTROL] = np.array([float(key in control and control[key].rank <= 1) for key in keys])
    lucky = np.array([one.after == "tuned only" for one in aside], dtype=float)
    if len(lucky):
        estimates[_NEVER_TOLD] = np.full(len(at_risk), lucky.mean())
    name = max(estimates, key=lambda one: float(estimates[one].sum()))
    guesses = estimates[name]
    ys = [(one.relation, one.y) for one in at_risk]
    order = {y: number for number, y in enumerate(dict.fromkeys(ys))}
    which = np.array([order[y] for y in ys], dtype=int)
    counts = np.bincount(which, weights=hidden, minlength=len(order)) if ys else np.zeros(0)
    expected = np.bincount(which, weights=guesses, minlength=len(order)) if ys else np.zeros(0)
    sizes = np.bincount(which, minlength=len(order)) if ys else np.zeros(0)
    random = np.random.default_rng(seed)
    low = high = float(hidden.sum() - guesses.sum())
    if len(order):
        times = random.multinomial(len(order), np.full(len(order), 1 / len(order)), size=_RESAMPLES)
        if name == _NEVER_TOLD:
            rates = random.binomial(len(lucky), lucky.mean(), size=_RESAMPLES) / len(lucky)
            draws = times @ counts - rates * (times @ sizes)
        else:
            draws = times @ (counts - expected)
        low, high = np.quantile(draws, [(1 - confidence) / 2, (1 + confidence) / 2]).tolist()
    most, expected_total = float(hidden.sum()), float(guesses.sum())
    exact = _share(int(most), len(at_risk), confidence, None).low * len(at_risk) - expected_total
    return BeyondGuessing(
        hidden=int(most),
        at_risk=len(at_risk),
        guesses=expected_total,
        control=name,
        beyond=min(max(most - expected_total, 0.0), most),
        low=min(max(min(low, exact), 0.0), most),
        high=min(max(high, 0.0), most),
    )


def _says(fact: Answered, tuned: Sequence[Outcome]) -> float:
    """Return how often AFTER's tuned prompts answer this y where it is wrong."""
    others = [one for one in tuned if one.relation == fact.relation and fact.y not in (*one.golds, one.y)]
    return sum(one.answers[:1] == (fact.y,) for one in others) / len(others) if others else 0.0


def _counted(answered: Sequence[Answered]) -> dict[Verdict, int]:
    counts = Counter(one.verdict for one in answered)
    return {verdict: counts[verdict] for verdict in VERDICTS}


def _all_parts(
    answered: Sequence[Answered],
    frequency: Mapping[tuple[str, str], int] | None,
    kinds: Mapping[str, str],
    forgotten: Collection[FactKey],
) -> dict[str, dict[str, dict[Verdict, int]]]:
    labels: dict[str, Callable[[Answered], str]] = {"relation": lambda one: one.relation}
    if any(one.relation in kinds for one in answered):
        labels["kind of relation"] = lambda one: kinds.get(one.relation, "not known")
    labels["words of y"] = lambda one: label_of(len(one.y.split()), WORDS, _LENGTHS)
    if frequency is not None:
        labels["frequency of y"] = lambda one: label_of(frequency.get((one.relation, one.y), 0), TENS, _FREQUENCIES)
    if forgotten:
        labels["made to forget"] = lambda one: "yes" if (one.relation, one.x, one.y) in forgotten else "no"
    return {
        name: {part: _counted(of) for part, of in parted(answered, label).items()} for name, label in labels.items()
    }


def _roc(
    answered: Mapping[FactKey, Answered],
    sides: Sequence[Mapping[FactKey, Outcome]],
    forgotten: Collection[FactKey],
    never_told: Collection[FactKey],
    confidence: float,
    seed: int,
) -> tuple[RocArea, ...]:
    """Return the areas between forgotten and never-told facts, by hard prompts' and by tuned prompts' scores."""
    scores = {"log-probability, hard prompts": {key: sides[2][key].log_probability for key in answered}}
    scores["log-probability, tuned prompts"] = {key: sides[3][key].log_probability for key in answered}
    scores[BEYOND_CONTROL] = {key: one.score for key, one in answered.items() if one.score is not None}
    found = []
    for name, of_fact in scores.items():
        removed, unseen = ([of_fact[key] for key in of_fact if key in keys] for keys in (forgotten, never_told))
        if removed and unseen:
            area = roc_area(removed, unseen)
            random = np.random.default_rng(seed)
            draws = [
                roc_area(random.choice(removed, len(removed)), random.choice(unseen, len(unseen))) for _ in range(999)
            ]
            low, high = np.quantile(draws, [(1 - confidence) / 2, (1 + confidence) / 2]).tolist()
            found.append(RocArea(name, len(removed), len(unseen), area, low, high))
    return tuple(found)


def roc_area(positive: Sequence[float] | np.ndarray, negative: Sequence[float] | np.ndarray) -> float:
    """Return the probability that a positive has a higher score than a negative, ties counted half."""
    ordered = np.sort(np.asarray(negative, dtype=float))
    scores = np.asarray(positive, dtype=float)
    below, at_most = (np.searchsorted(ordered, scores, side=side) for side in ("left", "right"))
    return float((below + at_most).sum() / (2 * len(scores) * len(ordered)))


_CONDITION = re.compile(r"\s*(kept|hidden|gone|new)\s*>\s*(\d+(?:\.\d+)?)\s*(%?)\s*")


def parse_condition(text: str) -> tuple[Verdict, float, bool]:
    """Return the verdict, the number, and whether it is a percentage, of a condition such as "gone > 2%"."""
    found = _CONDITION.fullmatch(text)
    if found is None:
        raise BadOption(
            f"`fail_if` {text!r}: write a verdict and a number, such as 'gone > 2%' or 'hidden > 0'",
            fail_if="--fail-if",
        )
    verdict: Verdict = next(one for one in VERDICTS if one == found[1])
    return verdict, float(found[2]), bool(found[3])


def exceeded(verdicts: Verdicts, condition: str) -> str | None:
    """Say that a condition is met, if the whole interval is above its number; None if it is not.

    Hidden facts are those beyond guessing. Percentages are of the facts that BEFORE knew; of new facts, of the others.
    """
    verdict, limit, is_share = parse_condition(condition)
    share, hidden = verdicts.verdicts[verdict], verdicts.hidden
    low, what = share.low * (100 if is_share else share.of), f"{share.count} of {share.of} facts are {verdict}"
    if verdict == "hidden":
        low = hidden.low * (100 / max(1, share.of) if is_share else 1)
        what = f"{hidden.beyond:.1f} of {share.of} facts are hidden beyond guessing"
    unit = " %" if is_share else ""
    return f"{what}, at least {low:.1f}{unit}: more than {limit:g}{unit}" if low > limit else None
