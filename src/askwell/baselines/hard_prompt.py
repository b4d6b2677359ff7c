"""Prompts given as tokens rather than as text.

The tokenizer may turn the text of tokens that a search found into other tokens: it may merge two of them, or split them
differently. So a prompt of given tokens is built on a template with as many tokens, and the word vectors of the given
ones are put in their places, which is exact. If the text is tokenised back to the same tokens, the template is that
text, and the prompt is one that anyone can type.
"""

from collections.abc import Sequence
from dataclasses import replace

import torch

from askwell.data.templates import Template, parse_template
from askwell.errors import BadTemplate, LMUnavailable
from askwell.lms.frozen import FrozenLM
from askwell.lms.tokenisation import WITH_A_SPACE, Beginning, Place, PromptTokens, tokenise
from askwell.lms.vocabulary import begins_word, token_text
from askwell.mixture.mixture import Mixture
from askwell.prompts.prompt import Prompt, usable_prompts
from askwell.specs.mixture_spec import MixtureSpec

_COMMON_WORDS = ("the", "of", "is", "in", "a", "and")


def blank_template(lm: FrozenLM, count: int) -> Template:
    """Return a template "[X] … [Y] ." with room for this many tokens between the blanks, filled with a common word."""
    for word in _COMMON_WORDS:
        template = parse_template(" ".join(["[X]", *[word] * count, "[Y] ."]))
        if len(tokenise(template, lm.wording).between) == count:
            return template
    raise LMUnavailable(
        f"the LM {lm.identity.name} has none of the words {', '.join(_COMMON_WORDS)} as one token, so it has no "
        "placeholder for trigger tokens"
    )


def prompt_of(lm: FrozenLM, template: Template, beginning: Beginning = WITH_A_SPACE) -> Prompt:
    """Return the template as a prompt of the LM; if the LM cannot use it, the error says why."""
    return usable_prompts(lm, [template], beginning)[0][0]


def set_tokens(mixture: Mixture, tokens: Sequence[int]) -> None:
    """Put the word vectors of these tokens at the prompt tokens of a mixture of one prompt."""
    ids = torch.tensor(tokens, dtype=torch.long, device=mixture.lm.device)
    with torch.no_grad():
        mixture.vectors.copy_(mixture.lm.word_vectors(ids))
        mixture.initial_vectors.copy_(mixture.vectors)


def hard_mixture(lm: FrozenLM, shape: Prompt, tokens: Sequence[int], spec: MixtureSpec) -> Mixture:
    """Return a mixture of one prompt of the given shape that asks with exactly these tokens."""
    mixture = Mixture(lm, [as_text(lm, shape, tokens) or shape.template], spec)
    set_tokens(mixture, tokens)
    return mixture


def as_text(lm: FrozenLM, shape: Prompt, tokens: Sequence[int]) -> Template | None:
    """Return the template whose text the LM reads as exactly these tokens, None if there is none."""
    text = spelt(lm, shape, tokens)
    try:
        template = parse_template(text)
    except BadTemplate:  # the tokens themselves spell a blank
        return None
    is_same = tokenise(template, lm.wording, shape.tokens.beginning) == _with_tokens(shape, tokens)
    return template if is_same else None


def spelt(lm: FrozenLM, shape: Prompt, tokens: Sequence[int]) -> str:
    """Return the tokens as a person would write them around the blanks."""
    new, old, template = _with_tokens(shape, tokens), shape.tokens, shape.template
    texts = {}
    for stretch in ("before", "between", "after"):
        text, written = getattr(template, stretch), getattr(new, stretch)
        if written != getattr(old, stretch):
            words = ((" " if begins_word(lm, token) else "") + word_of(lm, token) for token in written)
            text = "".join(words) + (" " if text.endswith(" ") else "")
        texts[stretch] = text
    return f"{texts['before']}{template.first}{texts['between']}{template.second}{texts['after']}".strip()


def _with_tokens(shape: Prompt, tokens: Sequence[int]) -> PromptTokens:
    """Return the prompt with these tokens, and with its own where the LM does not read: after y, for a causal LM."""
    old = shape.tokens
    every = (*tokens, *(*old.before, *old.between, *old.after)[len(shape.token_ids) :])
    first, second = len(old.before), len(old.before) + len(old.between)
    return replace(old, before=every[:first], between=every[first:second], after=every[second:])


def word_of(lm: FrozenLM, token: int) -> str:
    """Return the letters of a token, "" for a space alone."""
    text = token_text(lm, token)
    is_space = lm.wording.marks is Place.SPACED and text.startswith((lm.wording.marker, "␣"))
    return "" if is_space else text
