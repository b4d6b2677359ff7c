"""Answers of any length by brute force: every string of up to three of a few tokens, each with its probability from the
reference, one sentence at a time.

The tiny LMs keep their vocabularies, but their answers are spelled with four tokens alone; which of the spellings are
the tokenizer's own is asked of the public tokenizer.
"""

import functools
import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import agreement
import reference
import torch
from agreement import CAUSAL, SEQ2SEQ, Twin, exact, ids, moved, script
from builders import tiny
from torch import Tensor

from askwell.mixture.mixture import Mixture
from askwell.specs.mixture_spec import MixtureSpec

ONE_OF_EACH = ["bert", "gpt2", "bart"]
TEMPLATES = ["The capital of [X] is [Y] .", "[X], its capital is [Y]."]
SAME_END = ["Boston born [X] was in [Y]", "[X] [Y]"]
"""Two templates that end with y."""
LONGEST = 3
KEPT = {
    "wordpiece": "Rome Cass ##att ##vik",
    "byte-level": "ĠRome ĠCass att vik",
    "albert": "▁rome ▁cass att vik",
}
"""Two tokens that begin a word and two that do not: Rome, Cassatt, Rome Cass, Rome Cassatt, Cassattvik and more."""


# Each takes as long as the tiny LM itself.
pieces = functools.cache(agreement.pieces)
x_ids = functools.cache(agreement.x_ids)


@functools.cache
def end_of(name: str, template: str, x: str) -> int | None:
    """What follows y in the tokenised sentence: the next prompt or special token, x's first, or the end of the text."""
    if name not in CAUSAL and name not in SEQ2SEQ:
        return None
    written = pieces(name, template)
    after = written[[piece.kind for piece in written].index("y") + 1 :]
    if name in CAUSAL:
        after = [piece for piece in after if piece.kind == "prompt"]
    if not after:
        return exact(name).tokenizer.eos_token_id
    return x_ids(name, template, x)[0] if after[0].kind == "x" else after[0].ids[0]


def few_tokens(
    name: str, templates: Sequence[str] = TEMPLATES, tokens: Sequence[int] | None = None, **spec: Any
) -> tuple[Mixture, Twin]:
    """A mixture whose answers have up to three of a few tokens, and the reference's copy of it."""
    choices = {"answers": "any-length", "longest_answer": LONGEST, **spec}
    mixture = moved(exact(name), templates, MixtureSpec.model_validate(choices))
    spelt_with(mixture, tokens or ids(name, KEPT[script(name)]))
    return mixture, Twin.of(name, templates, mixture)


def with_ends(name: str, templates: Sequence[str], x: str) -> tuple[int, ...]:
    """The few tokens, and those that end answers to some prompts."""
    ends = {end for template in templates if (end := end_of(name, template, x)) is not None}
    return (*ids(name, KEPT[script(name)]), *sorted(ends))


def spelt_with(mixture: Mixture, tokens: Sequence[int]) -> None:
    """Lets a mixture's answers be spelled with these tokens alone."""
    every = range(mixture.lm.vocabulary_size)
    mixture.long_answers.__dict__["never"] = [token for token in every if token not in tokens]


@functools.cache
def spellings(
    name: str, longest: int = LONGEST, tokens: tuple[int, ...] | None = None, without: frozenset[int] = frozenset()
) -> dict[str, list[int]]:
    """Every string after a space with its tokens, as far as the tokenizer itself spells it so and without some of
    them."""
    tokenizer: Any = exact(name).tokenizer
    kept = [token for token in tokens or ids(name, KEPT[script(name)]) if token not in without]
    found = {}
    for size in range(1, longest + 1):
        for tokens in itertools.product(kept, repeat=size):
            text = tokenizer.decode(list(tokens)).strip()
            if tokenizer(f" {text}", add_special_tokens=False)["input_ids"] == list(tokens):
                found[text] = list(tokens)
    return found


def by_prompt(
    twin: Twin, x: str, y_ids: Sequence[int], log_lengths: Sequence[float] = (), x_tokens: list[int] | None = None
) -> Tensor:
    """log p(y | t, x) of each prompt [T]; other tokens can stand in the place of x's."""
    name, lm = twin.name, exact(twin.name)
    log_length = log_lengths[len(y_ids) - 1] if log_lengths else 0.0
    return torch.stack(
        [
            reference.log_p_answer(
                lm.model, lm.tokenizer, tiny.FAMILY[name], pieces(name, template), x_tokens or x_ids(name, template, x),
                y_ids, end_of(name, template, x), twin.vectors[t], twin.deltas[t] or None, log_length,
            )
            for t, template in enumerate(twin.templates)
        ]
    )  # fmt: skip


def every_answer(
    twin: Twin,
    x: str,
    log_lengths: Sequence[float] = (),
    *,
    data_dependent: bool = False,
    x_tokens: list[int] | None = None,
    spelt: Mapping[str, list[int]] | None = None,
) -> dict[str, float]:
    """log p(y | x, r) of every string, the most probable first."""
    with torch.no_grad():
        log_weights = twin.log_weights(x if data_dependent else None)
        found = {
            text: float(reference.log_mixture(log_weights, list(by_prompt(twin, x, tokens, log_lengths, x_tokens))))
            for text, tokens in (spelt or spellings(twin.name)).items()
            if not log_lengths or len(tokens) <= len(log_lengths)
        }
    return best_first(found)


@functools.cache
def enumerated(name: str, x: str, counts: tuple[int, ...] = (), *, data_dependent: bool = False) -> dict[str, float]:
    """The same of `few_tokens(name)`; a masked LM has train ys of these lengths."""
    _, twin = few_tokens(name, weighting="data-dependent" if data_dependent else "static")
    log_lengths = lengths_by_hand(counts) if tiny.FAMILY[name] == "masked" else ()
    return every_answer(twin, x, log_lengths, data_dependent=data_dependent)


def best_first(log_probs: Mapping[str, float]) -> dict[str, float]:
    """The answers in the order of their probabilities."""
    return dict(sorted(log_probs.items(), key=lambda item: -item[1]))


def mean_of(each: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """The log of the mean probability of every string."""
    mean = {text: math.fsum(math.exp(of_x[text]) for of_x in each) / len(each) for text in each[0]}
    return best_first({text: math.log(p) for text, p in mean.items()})


def rank_among(log_probs: Mapping[str, float], y: str, others: Sequence[str] = ()) -> float:
    """The rank of y with other right answers left out; infinite behind the tenth."""
    texts = list(log_probs)
    excluded = [texts.index(other) for other in others]
    rank = reference.rank(list(log_probs.values()), texts.index(y), excluded)
    return rank if rank <= 10 else math.inf


def lengths_by_hand(counts: Sequence[int]) -> list[float]:
    """log p(m | r) from how many train ys have one token, two tokens, and so on."""
    total = sum(counts) + len(counts) / 2
    return [math.log((count + 0.5) / total) for count in counts]


# The product of experts


def product_steps(twin: Twin, x: str, y_ids: Sequence[int]) -> list[tuple[list[Tensor], list[int | None]]]:
    """For each step of an answer the log distribution [vocabulary] of each prompt, and the token that each prompt
    reads there; the last step of LMs that write answers out is the end."""
    name, family = twin.name, tiny.FAMILY[twin.name]
    steps: list[tuple[list[Tensor], list[int | None]]] = []
    for step in range(len(y_ids) + (family != "masked")):
        blanks = len(y_ids) - step if family == "masked" else 0
        distributions, targets = [], []
        for t, template in enumerate(twin.templates):
            distributions.append(_next(twin, t, x, tuple(y_ids[:step]), blanks))
            targets.append(end_of(name, template, x) if step == len(y_ids) else y_ids[step])
        steps.append((distributions, targets))
    return steps


@torch.no_grad()
def _next(twin: Twin, t: int, x: str, done: tuple[int, ...], blanks: int) -> Tensor:
    """The log distribution of what follows the first tokens of an answer: from a sentence that ends there, or from one
    in which this many masks follow."""
    asked = (_next, t, x, done, blanks)
    if asked not in twin._asked:
        twin._asked[asked] = _read_next(twin, t, x, done, blanks)
    return twin._asked[asked]


def _read_next(twin: Twin, t: int, x: str, done: tuple[int, ...], blanks: int) -> Tensor:
    name, lm, vectors = twin.name, exact(twin.name), twin.vectors[t]
    written, x_tokens = pieces(name, twin.templates[t]), x_ids(name, twin.templates[t], x)
    if blanks:
        filled = [*done, *[lm.tokenizer.mask_token_id] * blanks]
        sentence, y_at = reference.fill_answer(lm.model, written, vectors, x_tokens, filled)
        return reference.log_probabilities(lm.model, sentence, None)[y_at[len(done)]]
    up_to_there = [*reference.before(written, "y"), reference.Piece("special", list(done))]
    if tiny.FAMILY[name] == "causal":
        sentence = reference.fill(lm.model, up_to_there, vectors, x_tokens, None)
        return reference.log_probabilities(lm.model, sentence, None)[-1]
    start = reference.Piece("special", [lm.model.config.decoder_start_token_id])
    encoder = reference.fill(lm.model, written, vectors, x_tokens, lm.tokenizer.mask_token_id)
    decoder = reference.fill(lm.model, [start, *up_to_there], vectors, x_tokens, None)
    return reference.seq2seq_log_probabilities(lm.model, encoder, decoder, None)[-1]


def log_product(twin: Twin, weights: Tensor, x: str, y_ids: Sequence[int], log_lengths: Sequence[float] = ()) -> Tensor:
    """log p(y | x, r) of a product with these exponents, with gradients into them.

    Step by step, the prompts' distributions are multiplied and normalised; that the answer is over is an event beside
    the tokens where it is another token for each prompt.
    """
    total = torch.tensor(log_lengths[len(y_ids) - 1] if log_lengths else 0.0, dtype=torch.float64)
    steps = product_steps(twin, x, y_ids)
    has_one_end = len({end_of(twin.name, template, x) for template in twin.templates}) == 1
    for distributions, targets in steps:
        product = torch.ones_like(distributions[0])
        of_target, of_end = torch.ones(2, dtype=torch.float64).unbind()
        for weight, log_p, target, template in zip(weights, distributions, targets, twin.templates, strict=True):
            product = product * log_p.exp() ** weight
            of_target = of_target * log_p[target].exp() ** weight
            end = end_of(twin.name, template, x)
            of_end = of_end if end is None else of_end * log_p[end].exp() ** weight
        everything = product.sum() if has_one_end else product.sum() + of_end
        total = total + (of_target / everything).log()
    return total


def every_product(
    twin: Twin,
    weights: Tensor,
    x: str,
    log_lengths: Sequence[float] = (),
    spelt: Mapping[str, list[int]] | None = None,
) -> dict[str, float]:
    """log p(y | x, r) of every string under a product, the most probable first."""
    return best_first(
        {
            text: float(log_product(twin, weights.detach(), x, tokens, log_lengths))
            for text, tokens in (spelt or spellings(twin.name)).items()
            if not log_lengths or len(tokens) <= len(log_lengths)
        }
    )
