"""log p(y | x, r) of the right answers of facts, with gradients: what training maximises.

A mixture adds up the prompts' probabilities of whole answers. A product of experts over answers of any length goes
token by token: the prompts' distributions are multiplied, each to the power of its weight, and normalised. For answers
of one token that is the product over answers. If answers end with different tokens after different prompts, the end of
the answer is one more event in the normalisation, shared by all prompts. In masked LMs, how many tokens answers have is
p(m | r, x, t) in a mixture and p(m | r) in a product.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from askwell.answers.encode import EncodedFacts
from askwell.errors import BadOption
from askwell.prompts.long_answers import log_p_of_lengths
from askwell.prompts.prompt_set import PromptSet
from askwell.prompts.weights import Evidence


@dataclass(frozen=True)
class ReadOnce:
    """What the LM says of facts, which does not change while neither vectors nor layers of the prompts are tuned."""

    gold: Float[Tensor, "facts prompts"]
    """log p(y | t, x), given y's length where lengths are learned."""
    evidence: Evidence | None
    """What the prompts' weights depend on."""
    lengths: Int[Tensor, "facts prompts"] | None = None
    """The number of tokens of y, where lengths are learned."""
    of_blanks: Float[Tensor, "facts prompts lengths"] | None = None
    """How certain the prompts are of what stands at m blanks, where lengths are learned."""

    @classmethod
    def joined(cls, parts: "Sequence[ReadOnce]") -> "ReadOnce":
        """Concatenate what was read of several batches."""
        others = ([getattr(one, name) for one in parts] for name in ("evidence", "lengths", "of_blanks"))
        joined = (None if column[0] is None else torch.cat(column) for column in others)
        return cls(torch.cat([one.gold for one in parts]), *joined)

    def of(self, rows: Int[Tensor, " some"]) -> "ReadOnce":
        """Return what was read of some of the facts."""
        others = (None if part is None else part[rows] for part in (self.evidence, self.lengths, self.of_blanks))
        return ReadOnce(self.gold[rows], *others)


@dataclass(frozen=True)
class Likelihood:
    """log p(y | x, r) of some facts, and its parts where it has them."""

    total: Float[Tensor, " facts"]
    joint: Float[Tensor, "facts prompts"] | None = None
    """log p(t | r, x) + log p(y | t, x), up to a constant the posterior over prompts; None in a product."""
    by_prompt: Float[Tensor, "facts prompts"] | None = None
    """log p(y | t, x), where the total is the sum over prompts of `joint`, so that EM has a bound to raise."""


def likelihood(
    prompts: PromptSet, encoded: EncodedFacts, rows: Int[Tensor, " facts"], known: ReadOnce | None = None
) -> Likelihood:
    """Return log p(y | x, r) of the facts in these rows, with gradients into everything that is tuned; in a product,
    only into the weights. What was read before need not be read again."""
    if prompts.is_product:
        return Likelihood(_product(prompts, encoded, rows))
    log_weights, gold = _read(prompts, encoded, rows) if known is None else _known(prompts, encoded, rows, known)
    joint = log_weights + gold
    return Likelihood(joint.logsumexp(1), joint, gold)


@torch.no_grad()
def read_once(prompts: PromptSet, encoded: EncodedFacts, rows: Int[Tensor, " facts"]) -> ReadOnce:
    """Return what `likelihood` need not read again while neither vectors nor layers are tuned."""
    evidence = prompts.evidence(encoded.xs, rows)
    log_lengths = encoded.kind.log_lengths if encoded.kind.is_long else ()
    if not prompts.has_learned(log_lengths):
        return ReadOnce(gold_log_probs(prompts, encoded, rows), evidence)
    tuned, answers = prompts.tuned, prompts.long_answers
    return ReadOnce(
        answers.log_probs(tuned, encoded.xs, encoded.ys, rows),
        evidence,
        encoded.ys.lengths[prompts.pairs.y_places][:, rows].T,
        answers.certainty_of_blanks(tuned, encoded.xs, rows, len(log_lengths)),
    )


def _read(
    prompts: PromptSet, encoded: EncodedFacts, rows: Int[Tensor, " facts"]
) -> tuple[Float[Tensor, "facts prompts"], Float[Tensor, "facts prompts"]]:
    """Return log p(t | r, x) and log p(y | t, x)."""
    if not encoded.kind.is_long:
        return prompts.log_weights_for(encoded.xs, rows), gold_log_probs(prompts, encoded, rows)
    log_weights, lengths = prompts.weights_and_lengths(encoded.xs, rows, encoded.kind.log_lengths)
    return log_weights, prompts.long_answers.log_probs(prompts.tuned, encoded.xs, encoded.ys, rows, lengths)


def _known(
    prompts: PromptSet, encoded: EncodedFacts, rows: Int[Tensor, " facts"], known: ReadOnce
) -> tuple[Float[Tensor, "facts prompts"], Float[Tensor, "facts prompts"]]:
    """Return the same from what was read, with gradients into weights and learned lengths."""
    log_weights = prompts.log_weights_for(encoded.xs, rows, known.evidence)
    if known.of_blanks is None or known.lengths is None:
        return log_weights, known.gold
    log_weights, of_lengths = prompts.weigh_lengths(log_weights, known.of_blanks)
    of_golds = log_p_of_lengths(known.lengths.flatten(), of_lengths.flatten(0, 1))
    return log_weights, known.gold + of_golds.view_as(known.gold)


def gold_log_probs(
    prompts: PromptSet,
    encoded: EncodedFacts,
    rows: Int[Tensor, " facts"],
    vectors: Float[Tensor, "prompt_tokens embedding"] | None = None,
) -> Float[Tensor, "facts prompts"]:
    """Return log p(y | t, x) of the facts' ys under every prompt, whether y is one token or longer; -inf for dropped
    prompts. The prompts can be read with other vectors than their own."""
    tuned = prompts.tuned if vectors is None else replace(prompts.tuned, vectors=vectors)
    if not encoded.kind.is_long:
        return prompts.pairs.gold_log_probs(tuned, encoded.xs, encoded.gold_tokens, rows)
    lengths = prompts.log_lengths_for(encoded.xs, rows, encoded.kind.log_lengths, tuned)
    return prompts.long_answers.log_probs(tuned, encoded.xs, encoded.ys, rows, lengths)


# ── products ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def multiply(
    log_probs: Float[Tensor, "*rest prompts vocabulary"],
    log_end: Float[Tensor, "*rest prompts"] | None,
    exponents: Float[Tensor, " prompts"],
    *,
    one_end: bool,
) -> tuple[Float[Tensor, "*rest vocabulary"], Float[Tensor, "*rest"] | None, Float[Tensor, "*rest"]]:
    """Return the products of tokens and of the end, and the log of their normaliser."""
    tokens = torch.einsum("...tv,t->...v", log_probs, exponents)
    log_total = tokens.logsumexp(-1)
    if log_end is None:
        return tokens, None, log_total
    end = torch.einsum("...t,t->...", log_end, exponents)
    return tokens, end, log_total if one_end else torch.logaddexp(log_total, end)


def check_one_form(prompts: PromptSet) -> None:
    """Refuse prompts that need y in different forms, whose tokens cannot be multiplied with each other."""
    if len(prompts.token_words.places) > 1:
        raise BadOption(
            "a product of experts over answers of any length needs prompts that write y in one form, either after a "
            "space or glued to what comes before it: leave out the others, or take `answers` one-token",
            answers="--answers",
        )


def _product(prompts: PromptSet, encoded: EncodedFacts, rows: Int[Tensor, " facts"]) -> Float[Tensor, " facts"]:
    """Return log p(y | x, r) in a product, with gradients into the weights alone."""
    if encoded.kind.is_long:
        return _product_of_steps(prompts, encoded, rows)
    xs, answers = encoded.xs, encoded.answers[rows]
    by_prompt = torch.stack([prompts.word_log_probs(xs, rows, t) for t in range(len(prompts.prompts))], dim=1)
    everywhere = by_prompt.isfinite().all(1)
    scores = torch.einsum("t,fta->fa", prompts.weights, by_prompt.nan_to_num(neginf=0.0))
    scores = scores.masked_fill(~everywhere, -torch.inf)
    return scores.gather(1, answers[:, None])[:, 0] - scores.logsumexp(1)


def _product_of_steps(
    prompts: PromptSet, encoded: EncodedFacts, rows: Int[Tensor, " facts"]
) -> Float[Tensor, " facts"]:
    check_one_form(prompts)
    answers, exponents = prompts.long_answers, prompts.weights
    with torch.no_grad():
        steps = [answers.steps(prompts.tuned, encoded.xs, encoded.ys, rows, t) for t in range(len(prompts.prompts))]
    by_prompt = torch.stack([step.log_probs for step in steps], dim=1)
    of_target = torch.stack([step.log_probs.gather(1, step.targets[:, None])[:, 0] for step in steps], dim=1)
    ends = None
    if not answers.fills_masks:
        ends = torch.stack([step.log_probs.gather(1, step.ends[:, None])[:, 0] for step in steps], dim=1)
    _, _, log_total = multiply(by_prompt, ends, exponents, one_end=answers.has_one_end)
    of_steps = of_target @ exponents - log_total
    total = of_steps.new_zeros(len(rows)).index_add(0, steps[0].pairs, of_steps)
    if not encoded.kind.log_lengths:
        return total
    log_lengths = torch.tensor(encoded.kind.log_lengths, dtype=prompts.lm.parameter_dtype, device=prompts.lm.device)
    lengths = encoded.ys.lengths[prompts.pairs.y_places[0], rows]  # all prompts need y in one form
    return total + log_p_of_lengths(lengths, log_lengths)
