"""What a mixture computes about encoded facts: p(y | t, x) and p(x | t) of each prompt, and p(y | x, r) of all of them.

Training reads the probability of the gold y, with gradients; evaluation reads those of all answers, without.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from askwell.lms.batches import Words
from askwell.mixture import product
from askwell.mixture.encode import EncodedFacts

if TYPE_CHECKING:
    from askwell.mixture.mixture import Mixture

Observer = Callable[
    [Int[Tensor, " pairs"], Int[Tensor, " pairs"], Float[Tensor, " pairs"], Float[Tensor, "pairs answers"]], None
]
"""Called with each prompt's own distribution while the prompts are combined: the rows of facts and the prompts of some
pairs, the weight of each pair, and p(y | t, x) of every answer y."""


# ── of the gold y, with gradients ─────────────────────────────────────────────────────────────────────────────────


def log_likelihood(mixture: "Mixture", facts: EncodedFacts, chosen: Int[Tensor, " facts"]) -> Float[Tensor, " facts"]:
    """log p(y | x, r) of the chosen facts' y, with gradients into everything that is tuned; in a product, only into the
    weights. It is `Mixture.forward` for facts that were encoded once, since training reads them many times."""
    if mixture.spec.combine == "product":
        if facts.kind.is_long:
            return product.product_log_likelihood(mixture, facts, chosen)
        return _product_log_likelihood(mixture, facts.xs, facts.answers[chosen], chosen)
    return (mixture.log_weights_for(facts.xs, chosen) + fact_log_probs(mixture, facts, chosen)).logsumexp(1)


def fact_log_probs(
    mixture: "Mixture", facts: EncodedFacts, chosen: Int[Tensor, " facts"]
) -> Float[Tensor, "facts prompts"]:
    """log p(y | t, x) of the chosen facts' y under every prompt, whether y is one token or longer."""
    if not facts.kind.is_long:
        return gold_log_probs(mixture, facts.xs, facts.gold_tokens, chosen)
    lengths = facts.kind.lengths_on(mixture.lm)
    return mixture.long_answers.log_probs(mixture.tuned, facts.xs, facts.ys, chosen, lengths)


def gold_log_probs(
    mixture: "Mixture", xs: Words, gold_tokens: Int[Tensor, "places texts"], facts: Int[Tensor, " facts"]
) -> Float[Tensor, "facts prompts"]:
    """log p(y | t, x) of the gold y for each of the given facts and every prompt.

    It is -inf where y has no token, and for prompts that were dropped.
    """
    return mixture.pairs.gold_log_probs(mixture.tuned, xs, gold_tokens, facts)


def log_p_x(mixture: "Mixture", xs: Words, facts: Int[Tensor, " facts"]) -> Float[Tensor, "facts prompts"]:
    """log p(x | t): how probable each prompt finds x itself."""
    return mixture.pairs.log_p_x(mixture.tuned, xs, facts)


def facts_at_once(mixture: "Mixture", facts: EncodedFacts) -> int:
    """How many of these facts can be trained on in one forward and backward pass within bounded memory."""
    if not facts.kind.is_long:
        return mixture.pairs.facts_at_once(mixture.pairs.bytes_of_fact(facts.xs))
    if mixture.spec.combine == "product":
        return product.facts_at_once(mixture, facts)
    return mixture.pairs.facts_at_once(mixture.long_answers.bytes_of_fact(facts.xs, facts.ys))


def _product_log_likelihood(
    mixture: "Mixture", xs: Words, answers: Int[Tensor, " facts"], facts: Int[Tensor, " facts"]
) -> Float[Tensor, " facts"]:
    """log p(y | x, r) of the gold y in a product, with gradients into the weights alone."""
    by_prompt = torch.stack([prompt_log_probs(mixture, xs, facts, t) for t in range(len(mixture.prompts))], dim=1)
    everywhere = by_prompt.isfinite().all(1)
    scores = torch.einsum("t,fta->fa", mixture.weights, by_prompt.nan_to_num(neginf=0.0))
    scores = scores.masked_fill(~everywhere, -torch.inf)
    return scores.gather(1, answers[:, None])[:, 0] - scores.logsumexp(1)


# ── of every answer, without gradients ────────────────────────────────────────────────────────────────────────────


@torch.no_grad()
def log_probs(
    mixture: "Mixture",
    xs: Words,
    facts: Int[Tensor, " facts"],
    answers: Int[Tensor, " answers"] | None = None,
    observer: Observer | None = None,
) -> Float[Tensor, "facts answers"]:
    """log p(y | x, r) of every answer y, or of the given ones. At most facts × answers numbers are held at once."""
    if mixture.spec.combine == "product":
        whole = combine(mixture, xs, facts, _one_by_one(mixture, xs, facts, observer))
        return whole if answers is None else whole[:, answers]
    weights = mixture.log_weights_for(xs, facts).exp()
    total = _summed(mixture, xs, facts, weights, answers, observer)
    # Probabilities that are tiny beside the largest have lost digits; they are summed again, as logarithms.
    lossy = (total < torch.finfo(total.dtype).tiny ** 0.75).any(1)
    found = total.log_()
    if lossy.any():
        exact = combine(mixture, xs, facts[lossy], _one_by_one(mixture, xs, facts[lossy]))
        found[lossy] = exact if answers is None else exact[:, answers]
    return found


@torch.no_grad()
def prompt_log_probs(
    mixture: "Mixture", xs: Words, facts: Int[Tensor, " facts"], prompt: int
) -> Float[Tensor, "facts answers"]:
    """log p(y | t, x) of every answer y under one prompt; -inf if the prompt has no token for it."""
    of_tokens = mixture.pairs.log_probs(mixture.tuned, xs, facts, prompt)
    if len(mixture.answer_space.places) == 1:
        return of_tokens
    tokens = mixture.answer_space.tokens[mixture.pairs.y_places[prompt]]
    return of_tokens[:, tokens.clamp(min=0)].masked_fill(tokens < 0, -torch.inf)


def answer_log_probs(
    mixture: "Mixture", log_probs: Float[Tensor, "xs prompts vocabulary"]
) -> Float[Tensor, "xs prompts answers"]:
    """Log-probabilities of tokens as those of the answers that the tokens spell at the prompts' places."""
    space = mixture.answer_space
    if len(space.places) == 1:
        return log_probs
    tokens = space.tokens[mixture.pairs.y_places]
    spelt = log_probs.gather(2, tokens.clamp(min=0).expand(len(log_probs), -1, -1))
    return spelt.masked_fill(tokens < 0, -torch.inf)


@torch.no_grad()
def combine(
    mixture: "Mixture", xs: Words, facts: Int[Tensor, " facts"], by_prompt: Iterable[Float[Tensor, "facts answers"]]
) -> Float[Tensor, "facts answers"]:
    """log p(y | x, r) from the prompts' own log-probabilities, which are taken one after the other."""
    shape = (len(facts), mixture.answer_space.count)
    like: Any = {"dtype": mixture.weight_logits.dtype, "device": mixture.lm.device}
    if mixture.spec.combine == "product":
        scores = torch.zeros(shape, **like)
        for weight, own in zip(mixture.weights, by_prompt, strict=True):
            # An answer for which one prompt has no token is not one of the product's, even if that prompt weighs 0.
            scores += torch.where(own == -torch.inf, -torch.inf, weight * own.nan_to_num(neginf=0.0))
        return scores.log_softmax(1)
    total = torch.full(shape, -torch.inf, **like)
    for log_weight, own in zip(mixture.log_weights_for(xs, facts).T, by_prompt, strict=True):
        total = torch.logaddexp(total, own + log_weight[:, None])
    return total


def _one_by_one(
    mixture: "Mixture", xs: Words, facts: Int[Tensor, " facts"], observer: Observer | None = None
) -> Iterator[Float[Tensor, "facts answers"]]:
    rows = torch.arange(len(facts), device=mixture.lm.device)
    for prompt in range(len(mixture.prompts)):
        own = prompt_log_probs(mixture, xs, facts, prompt)
        if observer is not None:
            observer(rows, torch.full_like(rows, prompt), mixture.weights[prompt].expand(len(rows)), own.exp())
        yield own


def _summed(
    mixture: "Mixture",
    xs: Words,
    facts: Int[Tensor, " facts"],
    weights: Float[Tensor, "facts prompts"],
    answers: Int[Tensor, " answers"] | None,
    observer: Observer | None,
) -> Float[Tensor, "facts answers"]:
    """p(y | x, r): the prompts' distributions, weighted and summed as probabilities, as the batches come."""
    space, pairs = mixture.answer_space, mixture.pairs
    count = space.count if answers is None else len(answers)
    total = torch.zeros(len(facts), count, dtype=mixture.weight_logits.dtype, device=mixture.lm.device)
    tokens = space.tokens if answers is None else space.tokens[:, answers]
    takes_all = len(space.places) == 1 and answers is None
    answered_at = [(of_place >= 0).nonzero()[:, 0] for of_place in tokens]
    columns_of = [(answered, of_place[answered]) for answered, of_place in zip(answered_at, tokens, strict=True)]
    for rows, prompts, probabilities in pairs.distributions(mixture.tuned, xs, facts):
        of_pairs = weights[rows, prompts]
        if observer is not None:
            observer(rows, prompts, of_pairs, _over_answers(mixture, probabilities, prompts))
        probabilities.mul_(of_pairs[:, None])
        places = pairs.y_places[prompts].tolist()
        # Row by row: index_add_ would write out an index as large as the probabilities.
        for row, (fact, place) in enumerate(zip(rows.tolist(), places, strict=True)):
            if takes_all:
                total[fact].add_(probabilities[row])
            else:
                answered, spelt = columns_of[place]
                total[fact, answered] += probabilities[row, spelt]
    return total


def _over_answers(
    mixture: "Mixture", probs: Float[Tensor, "pairs vocabulary"], prompts: Int[Tensor, " pairs"]
) -> Float[Tensor, "pairs answers"]:
    """Probabilities of tokens as those of the answers that the tokens spell at the prompts' places."""
    if len(mixture.answer_space.places) == 1:
        return probs
    tokens = mixture.answer_space.tokens[mixture.pairs.y_places[prompts]]
    return probs.gather(1, tokens.clamp(min=0)).masked_fill(tokens < 0, 0)
