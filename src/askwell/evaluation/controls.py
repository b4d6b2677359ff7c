"""Controls: answers that do not look at x, so that their scores need no knowledge of x.

- "majority" gives the ys of train by how often they occur there (repeated lines counted). A y that does not occur in
train ranks after all that do; all such answers of the vocabulary are tied. Ys that are not among the LM's answers are
  skipped.
- "prior" gives the mean of the prompts' own answers p(y | x, r) over x's of train.
- "prior-masked-x" gives what the prompts answer to one mask token in the place of x, where the LM is asked with masks.

There is also "prior-corrected", which does look at x: answers are ranked by log p(y | x, r) - log prior(y), so
that an answer which the prompts give to everything counts for little. It is another score of the same LM, not one of
the controls that a score is compared with.
"""

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from askwell.data.facts import Relation, SplitName
from askwell.errors import NothingLeft
from askwell.evaluation.agreement import sum_dtype
from askwell.evaluation.answer_lists import AnswerList
from askwell.evaluation.metrics import RANK_METRICS, Scores, scores_of
from askwell.evaluation.outcomes import Outcome
from askwell.lms.batches import PLACES, Words, words_of
from askwell.mixture.encode import why_unaskable
from askwell.mixture.mixture import Mixture

MAJORITY, PRIOR, PRIOR_MASKED_X, PRIOR_CORRECTED = "majority", "prior", "prior-masked-x", "prior-corrected"
MOST_XS_OF_PRIOR = 500
"""A prior is the mean over at most this many x's of train."""


@dataclass(frozen=True)
class Prior:
    """One distribution over a mixture's answers, given to every x."""

    log_probs: Float[Tensor, " answers"]
    description: str
    """What it is made from, in words."""


def majority(answers: AnswerList, relation: Relation) -> Prior:
    """The relative frequencies of the ys of train, among its facts whose y is one of the answers."""
    counts = Counter(fact.y for fact in relation.train)
    shares = torch.zeros(answers.count, dtype=torch.float64)
    for number, count in zip(answers.numbers_of(list(counts)), counts.values(), strict=True):
        if number is not None:
            shares[number] += count
    total = int(shares.sum())
    if not total:
        raise NothingLeft(
            f"train facts of {relation.name}", {f"y is none of {answers.vocabulary}": len(relation.train)}
        )
    mixture = answers.mixture
    log_shares = (shares / total).log().to(device=mixture.lm.device, dtype=sum_dtype(mixture))
    return Prior(log_shares, f"how often each y occurs in {total} train facts")


@torch.no_grad()
def prompt_prior(answers: AnswerList, relation: Relation, *, most: int = MOST_XS_OF_PRIOR, seed: int = 0) -> Prior:
    """The mean of p(y | x, r) over the distinct x's of train; of more than `most`, that many are drawn with the seed.
    It takes as long as asking about that many facts, but only the memory of a few of them."""
    mixture = answers.mixture
    distinct = sorted({fact.x for fact in relation.train})
    # Drawn first: most of a million x's are never asked, and tokenising them takes as long as the rest of a run.
    drawn = distinct if len(distinct) <= most else sorted(random.Random(seed).sample(distinct, most))
    reasons = why_unaskable(mixture, drawn, answers.kind)
    xs = [x for x, reason in zip(drawn, reasons, strict=True) if reason is None]
    if not xs:
        raise NothingLeft(f"train x's of {relation.name}", Counter(reason for reason in reasons if reason))
    description = f"the mean of the answers to all {len(xs)} x's of train"
    if len(drawn) < len(distinct):
        description = (
            f"the mean of the answers to {len(xs)} of the {len(distinct)} x's of train, drawn with the seed {seed}"
        )
    words = words_of(xs, mixture.lm.wording, mixture.lm.device)
    total = torch.full((answers.count,), -torch.inf, dtype=sum_dtype(mixture), device=mixture.lm.device)
    for some in torch.arange(len(xs), device=mixture.lm.device).split(answers.facts_at_once):
        # Summed as logarithms: tiny probabilities would underflow to a prior of 0.
        total = torch.logaddexp(total, answers.log_probs(words, some).to(total.dtype).logsumexp(0))
    return Prior(total - torch.log(torch.tensor(len(xs), dtype=total.dtype)), description)


@torch.no_grad()
def masked_prior(answers: AnswerList) -> Prior | None:
    """p(y | r) with one mask token in place of x; None if the LM is not asked with masks.

    Weights that depend on x are left at p(t | r), since there is no x.
    """
    mixture = answers.mixture
    words = masked_x(mixture)
    if words is None:
        return None
    only = torch.zeros(1, dtype=torch.long, device=mixture.lm.device)
    log_weights = mixture.weight_logits.detach().log_softmax(0) if mixture.weighting.reads_x else None
    log_probs = answers.log_probs(words, only, log_weights=log_weights)
    return Prior(log_probs[0].to(sum_dtype(mixture)), "the answer to one mask token in place of x")


def masked_x(mixture: Mixture) -> Words | None:
    """One mask token as an x; None if the LM is not asked with masks."""
    mask, device = mixture.lm.tokenizer.mask_token_id, mixture.lm.device
    if mask is None or not mixture.lm.family.masks_x:
        return None
    ids = torch.full((len(PLACES), 1, 1), mask, device=device)
    return Words(ids, torch.ones(len(PLACES), 1, dtype=torch.long, device=device))


def priors_of(answers: AnswerList, relation: Relation, *, seed: int = 0) -> tuple[dict[str, Prior], dict[str, str]]:
    """Majority, prior and prior with x masked, by name, and why those that are missing are not available."""
    priors: dict[str, Prior] = {}
    missing: dict[str, str] = {}
    try:
        priors[MAJORITY] = majority(answers, relation)
    except NothingLeft as nothing:
        missing[MAJORITY] = str(nothing)
    try:
        priors[PRIOR] = prompt_prior(answers, relation, seed=seed)
    except NothingLeft as nothing:
        missing |= {PRIOR: str(nothing), PRIOR_CORRECTED: str(nothing)}
    if (masked := masked_prior(answers)) is not None:
        priors[PRIOR_MASKED_X] = masked
    return priors, missing


@dataclass(frozen=True)
class ControlFigures:
    """What a control is, and its scores on each split, as means over facts."""

    description: str
    test: Scores | None = None
    dev: Scores | None = None


@dataclass(frozen=True)
class Controls:
    """The outcomes of the controls, and of the prior-corrected answers, on some splits of a relation."""

    descriptions: dict[str, str]
    """What each is, by name."""
    outcomes: dict[str, dict[SplitName, list[Outcome]]]
    """By name and split."""
    missing: dict[str, str]
    """What is not available (a control, a split), and why."""

    @property
    def controls(self) -> dict[str, dict[SplitName, list[Outcome]]]:
        """The outcomes of the controls alone."""
        return {name: by_split for name, by_split in self.outcomes.items() if name != PRIOR_CORRECTED}

    def figures(self) -> dict[str, ControlFigures]:
        """The scores of each by name."""
        return {
            name: ControlFigures(self.descriptions[name], *(_scores(by_split.get(split)) for split in ("test", "dev")))
            for name, by_split in self.outcomes.items()
        }


def controls_together(found: Sequence[Controls]) -> Controls:
    """The controls that all of several mixtures have, as one; if one LM is causal, there is none with x masked."""
    if not found:
        return Controls({}, {}, {})
    names = [name for name in found[0].outcomes if all(name in one.outcomes for one in found)]
    descriptions = {}
    for name in names:
        each = list(dict.fromkeys(one.descriptions[name] for one in found))
        descriptions[name] = each[0] if len(each) == 1 else f"{each[0]}; likewise for each relation"
    outcomes = {
        name: {
            split: [outcome for one in found for outcome in one.outcomes[name].get(split, [])]
            for split in found[0].outcomes[name]
        }
        for name in names
    }
    return Controls(descriptions, outcomes, {})


def _scores(outcomes: Sequence[Outcome] | None) -> Scores | None:
    return None if outcomes is None else scores_of(outcomes, RANK_METRICS)
