"""What each single prompt of a mixture answers to some x's, beside the mixture's own answer.

Consistency: do several ways of asking, or several runs, give the same answer to the same question?

Shares are from 0 to 1. Agreement is not truth: all can be wrong together.

The disagreement of a mixture's prompts as a sign that an answer is wrong, held against the answer's probability.

A score over several runs, as mean and spread: one seed alone may be luck.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from statistics import fmean, stdev
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from askwell.errors import BadOption, UserMistake
from askwell.evaluation.abstention import risk_coverage
from askwell.evaluation.outcomes import Outcome
from askwell.evaluation.questions import outcomes_by_x, questions_of
from askwell.lms.batches import Words, words_of
from askwell.mixture.answers import Candidates
from askwell.mixture.mixture import Mixture

# x's × answers numbers in one table; three or four such tables are held at once, however many prompts there are.
_NUMBERS_AT_ONCE = 2**22


@dataclass(frozen=True)
class PromptAnswers:
    """The best answers of a mixture's prompts; prompts that were dropped are not among them."""

    prompts: tuple[int, ...]
    """The numbers of the prompts that were asked."""
    best: Int[np.ndarray, "xs prompts"]
    """The number of each prompt's best answer."""
    of_mixture: Int[np.ndarray, " xs"]
    """The number of the mixture's best answer."""
    weights: Float[np.ndarray, "xs prompts"]
    """p(t | r), or p(t | r, x) of a data-dependent mixture; the exponents of a product."""
    divergences: Float[np.ndarray, " xs"]
    """The Jensen–Shannon divergence of the prompts' distributions, by these weights, in nats: the entropy of their
    mean, less the mean of their entropies. It is 0 where all are the same."""


@torch.no_grad()
def prompt_answers(mixture: Mixture, xs: Sequence[str], *, candidates: Candidates | None = None) -> PromptAnswers:
    """The answers of every prompt to each x, which must all be askable.

    With candidates, best answers are the best among them; divergences are those of the whole distributions.
    """
    allowed = None if candidates is None else candidates.answers(mixture)[0]
    kept = (mixture.weight_logits > -torch.inf).nonzero()[:, 0].tolist()
    words = words_of(xs, mixture.lm.wording, mixture.lm.device)
    at_once = max(1, _NUMBERS_AT_ONCE // mixture.answer_space.count)
    parts = [
        _some(mixture, words, chosen, kept, allowed)
        for chosen in torch.arange(len(xs), device=mixture.lm.device).split(at_once)
    ]
    best, of_mixture, weights, divergences = (torch.cat(column).cpu().numpy() for column in zip(*parts, strict=True))
    return PromptAnswers(tuple(kept), best, of_mixture, weights, divergences)


def _some(
    mixture: Mixture,
    words: Words,
    chosen: Int[Tensor, " xs"],
    kept: list[int],
    allowed: Int[Tensor, " candidates"] | None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Best answers, the mixture's, weights and divergences; the prompts are asked one after the other."""
    log_p_x = mixture.log_p_x(words, chosen) if mixture.weighting.reads_x else None
    weights = mixture.log_weights(len(chosen), log_p_x).exp().double()[:, kept]
    mean = torch.zeros(len(chosen), mixture.answer_space.count, dtype=torch.float64, device=mixture.lm.device)
    mean_of_entropies = mean.new_zeros(len(chosen))
    best = []
    for column, prompt in enumerate(kept):
        log_probs = mixture.prompt_log_probs(words, chosen, prompt)
        best.append(_best(log_probs, allowed))
        probs = log_probs.double().exp_()
        mean += weights[:, column, None] * probs
        mean_of_entropies += weights[:, column] * torch.special.entr(probs).sum(1)
    of_mixture = mean if mixture.spec.combine == "mixture" else mixture.log_probs(words, chosen)
    # Rounding can leave a tiny negative number where all prompts say the same.
    divergences = (torch.special.entr(mean).sum(1) - mean_of_entropies).clamp(min=0)
    return torch.stack(best, 1), _best(of_mixture, allowed), weights, divergences


def _best(values: Float[Tensor, "xs answers"], allowed: Int[Tensor, " candidates"] | None) -> Int[Tensor, " xs"]:
    """The number of the best answer of each row; of equal ones the first, as everywhere."""
    return values.argmax(1) if allowed is None else allowed[values[:, allowed].argmax(1)]


@dataclass(frozen=True)
class Agreement:
    """How often the prompts of a mixture have the same best answer, as a mean over questions."""

    questions: int
    pairs: float
    """Of all pairs of prompts, the share that gives the same answer."""
    weighted: float | None
    """The same with pairs counted by the product of their weights; None where one prompt has all the weight."""
    all_agree: float
    """The share of questions to which all prompts give the same answer."""
    with_mixture: float
    """The weight of the prompts whose answer is the mixture's own."""


@dataclass(frozen=True)
class Consistency:
    """How far the prompts of a mixture agree: hard prompts that are paraphrases of each other, or soft ones."""

    prompts: int
    all: Agreement
    right: Agreement | None
    """Among questions that the mixture answers right; None if there are none."""

    def as_json(self) -> dict[str, Any]:
        """All figures by name."""
        return asdict(self)


@dataclass(frozen=True)
class RunPair:
    """Two runs on the questions that both were asked."""

    first: int
    second: int
    questions: int
    same: float
    """The share of questions with the same best answer."""
    right: int
    """Questions that at least one of the two answers right."""
    same_of_right: float | None
    """The share with the same best answer among these; None if there are none."""


@dataclass(frozen=True)
class RunConsistency:
    """Whether runs that differ in their seed alone answer the same."""

    runs: int
    pairs: tuple[RunPair, ...]
    same: float
    """The mean over all pairs of runs."""
    same_of_right: float | None
    """The mean over the pairs that have it."""

    def as_json(self) -> dict[str, Any]:
        """All figures by name."""
        return asdict(self) | {"pairs": [asdict(pair) for pair in self.pairs]}


def consistency(answers: PromptAnswers, right: Bool[np.ndarray, " xs"]) -> Consistency:
    """How far the prompts agree on all x's, and on those that the mixture answers right."""
    if len(answers.prompts) < 2:
        raise BadOption("one prompt alone has none to agree with: consistency is about two prompts or more")
    return Consistency(
        prompts=len(answers.prompts),
        all=_agreement(answers.best, answers.weights, answers.of_mixture),
        right=_agreement(answers.best[right], answers.weights[right], answers.of_mixture[right])
        if right.any()
        else None,
    )


def run_consistency(runs: Sequence[Sequence[Outcome]]) -> RunConsistency:
    """How far runs agree, from what each made of the same facts; questions that only one of two was asked are left out.

    Answers are compared as words, so the runs may be of different mixtures and LMs.
    """
    if len(runs) < 2:
        raise BadOption("one run alone has none to agree with: consistency over seeds is about two runs or more")
    answers = [_best_answers(outcomes) for outcomes in runs]
    pairs = tuple(
        _run_pair(first, second, answers[first], answers[second]) for first, second in combinations(range(len(runs)), 2)
    )
    of_right = [pair.same_of_right for pair in pairs if pair.same_of_right is not None]
    return RunConsistency(
        runs=len(runs),
        pairs=pairs,
        same=float(np.mean([pair.same for pair in pairs])),
        same_of_right=float(np.mean(of_right)) if of_right else None,
    )


def _agreement(
    best: Int[np.ndarray, "xs prompts"], weights: Float[np.ndarray, "xs prompts"], of_mixture: Int[np.ndarray, " xs"]
) -> Agreement:
    prompts = best.shape[1]
    pairs, weighted, all_agree = [], [], []
    for answers, shares in zip(best, weights / weights.sum(1, keepdims=True), strict=True):
        which = np.unique(answers, return_inverse=True)[1]
        counts, totals = np.bincount(which), np.bincount(which, weights=shares)
        pairs.append((counts * (counts - 1)).sum() / (prompts * (prompts - 1)))
        alone = (shares**2).sum()  # pairs of a prompt with itself, which count nowhere
        if alone < 1 - 1e-12:
            weighted.append(((totals**2).sum() - alone) / (1 - alone))
        all_agree.append(len(counts) == 1)
    with_mixture = (weights * (best == of_mixture[:, None])).sum(1) / weights.sum(1)
    return Agreement(
        questions=len(best),
        pairs=float(np.mean(pairs)),
        weighted=float(np.mean(weighted)) if weighted else None,
        all_agree=float(np.mean(all_agree)),
        with_mixture=float(with_mixture.mean()),
    )


def _best_answers(outcomes: Sequence[Outcome]) -> dict[tuple[str, str], tuple[str, bool]]:
    """The best answer to each x of each relation, and whether it is right."""
    by_x, right = outcomes_by_x(outcomes), questions_of(outcomes).right.tolist()
    return {
        (of_x[0].relation, of_x[0].x): (of_x[0].answers[0], is_right)
        for of_x, is_right in zip(by_x, right, strict=True)
    }


def _run_pair(
    first: int,
    second: int,
    of_first: dict[tuple[str, str], tuple[str, bool]],
    of_second: dict[tuple[str, str], tuple[str, bool]],
) -> RunPair:
    shared = [question for question in of_first if question in of_second]
    if not shared:
        raise UserMistake("two runs have no question in common, so they cannot agree on one")
    same = np.array([of_first[question][0] == of_second[question][0] for question in shared])
    right = np.array([of_first[question][1] or of_second[question][1] for question in shared])
    return RunPair(
        first=first,
        second=second,
        questions=len(shared),
        same=float(same.mean()),
        right=int(right.sum()),
        same_of_right=float(same[right].mean()) if right.any() else None,
    )


@dataclass(frozen=True)
class SignalAreas:
    """The area under the risk–coverage curve of several signals on the same questions: the smaller the better."""

    questions: int
    areas: dict[str, float]
    best_possible: float
    """If all right answers came before all wrong ones."""
    no_signal: float
    """If answers came in random order: the share of wrong ones."""

    def as_json(self) -> dict[str, float | int | dict[str, float]]:
        """All figures by name."""
        return asdict(self)


def disagreement(answers: PromptAnswers) -> Float[np.ndarray, " xs"]:
    """For each x the weight of the prompts whose best answer is not the mixture's, from 0 to 1."""
    same = answers.best == answers.of_mixture[:, None]
    return 1 - (answers.weights * same).sum(1) / answers.weights.sum(1)


def signals_of(
    confidences: Float[np.ndarray, " questions"], answers: PromptAnswers
) -> dict[str, Float[np.ndarray, " questions"]]:
    """Three signals that are larger for surer answers: the probability, and the prompts' agreement in two senses."""
    return {
        "probability": confidences,
        "agreement": 1 - disagreement(answers),
        "divergence": -answers.divergences,
    }


def compare_signals(
    signals: Mapping[str, Float[np.ndarray, " questions"]], right: Bool[np.ndarray, " questions"]
) -> SignalAreas:
    """The area of each signal, with the best possible one and that of no signal at all."""
    return SignalAreas(
        questions=len(right),
        areas={name: risk_coverage(values, right).area for name, values in signals.items()},
        best_possible=risk_coverage(right.astype(np.float64), right).area,
        no_signal=float((~right).mean()),
    )


@dataclass(frozen=True)
class Spread:
    """Several values of the same score."""

    runs: int
    mean: float
    deviation: float | None
    """The standard deviation of a single run, with n - 1 in its denominator; None for one run."""
    low: float
    high: float

    def as_json(self) -> dict[str, float | int | None]:
        """All figures by name."""
        return asdict(self)


def spread_of(values: Sequence[float]) -> Spread:
    """The mean and spread of the values of some runs."""
    if not values:
        raise BadOption("no runs, no mean over them")
    deviation = stdev(values) if len(values) > 1 else None
    return Spread(len(values), fmean(values), deviation, min(values), max(values))


def spreads_of(scores: Sequence[Mapping[str, float]]) -> dict[str, Spread]:
    """The mean and spread of each score of some runs, under the names that all of them have."""
    names = [name for name in scores[0] if all(name in of_run for of_run in scores)] if scores else []
    if not names:
        raise BadOption("the runs have no score in common")
    return {name: spread_of([of_run[name] for of_run in scores]) for name in names}
