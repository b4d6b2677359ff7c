"""A mixture's soft prompts in words: the words nearest to each tuned vector, and notes on how to read them.

Only the vectors that the LM reads as words (layer 0) have nearest words. Of the Δ that a deep mixture adds to later
layers, only the norms are shown.
"""

import math
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any

from askwell.errors import BadOption, NotFinite, checked
from askwell.views.printable import counted, visible

if TYPE_CHECKING:  # a page about runs whose prompts are not drawn needs no torch
    from askwell.lms.frozen import FrozenLM
    from askwell.mixture.mixture import Mixture

TIE = "‿"
"""Precedes a piece that continues its left neighbour without a space."""


@dataclass(frozen=True)
class Word:
    """A token of the LM, and its p(w | v)."""

    token: int
    text: str
    """As a person reads it, without the tokenizer's marks."""
    glued: bool
    """Whether it continues its left neighbour without a space."""
    p: float
    brightness: float
    """Where log p lies between chance among all words of the LM (0) and certainty (1)."""

    @property
    def shown(self) -> str:
        """The word as it is drawn: without invisible characters, and with a tie before it if it is glued."""
        return (TIE if self.glued else "") + visible(self.text)


@dataclass(frozen=True)
class PromptToken:
    """One vector of a prompt: the word at its place in the hard prompt, and the words nearest to what it is now."""

    original: Word
    """w0, with p(w0 | v)."""
    tuned: Word
    """argmax p(w | v)."""
    size_ratio: float | None
    """|v| / |v0|, None if v0 is 0."""
    next_nearest: tuple[Word, ...]
    """The words that follow the tuned one, nearest first."""
    kind: str = "token"

    @property
    def is_same_word(self) -> bool:
        """Whether the tuned word is still the original word."""
        return self.tuned.token == self.original.token


@dataclass(frozen=True)
class BlankPlace:
    """Where x or y is in the sentence."""

    name: str
    glued: bool
    kind: str = "blank"

    @property
    def shown(self) -> str:
        """The blank as it is drawn."""
        return (TIE if self.glued else "") + self.name


@dataclass(frozen=True)
class PromptWords:
    """One soft prompt in words."""

    weight: float
    template: str
    copy: int | None
    """Which copy of its template this is, counted from 1; None if there is only one."""
    copies: int
    items: tuple[PromptToken | BlankPlace, ...]
    """Prompt tokens and the two blanks, in the order of the sentence."""
    original_is_initial: bool
    """Whether the vectors started from the original words; False if they were drawn at random."""
    cut_text: str
    """What follows y in the template, if the LM does not read that; it has no vectors."""
    end: str
    """Its first token, where answers of any length end with it: the LM has to predict it."""
    deep_norms: dict[str, tuple[float, ...]]
    """For each stack of a deep mixture, from layer 1: the mean of |Δ| over the prompt's tokens."""

    sentences: tuple[int, ...] = ()
    """At which items a further sentence begins, where examples come before the question."""

    @property
    def lines(self) -> list[tuple[PromptToken | BlankPlace, ...]]:
        """The items, each sentence by itself."""
        ends = (*self.sentences, len(self.items))
        return [self.items[start:end] for start, end in zip((0, *self.sentences), ends, strict=True)]

    @property
    def tokens(self) -> list[PromptToken]:
        """The prompt tokens alone."""
        return [item for item in self.items if isinstance(item, PromptToken)]

    def as_json(self) -> dict[str, Any]:
        """Return the prompt as plain data."""
        return asdict(self)


@checked
def nearest_words(mixture: "Mixture", nearest: int = 3) -> list[PromptWords]:
    """Return the prompts of a mixture in words, heaviest first, with the `nearest` words next to each tuned one."""
    if nearest < 0:
        raise BadOption(f"nearest is {nearest}: it counts words, so it cannot be negative")
    import torch

    from askwell.evaluation.projection import closest_words
    from askwell.prompts.prompt import original_tokens

    with torch.no_grad():
        lm, ids = mixture.lm, original_tokens(mixture.prompts)
        original = torch.tensor(ids, dtype=torch.long, device=lm.device)
        found = zip(*(part.tolist() for part in closest_words(lm, mixture.vectors, original, nearest + 1)), strict=True)
        ratios = (mixture.vectors.norm(dim=1) / mixture.initial_vectors.norm(dim=1)).tolist()
        tokens = []
        for token, (words, ps, p), ratio in zip(ids, found, ratios, strict=True):
            tuned, *others = (_word(lm, *one) for one in zip(words, ps, strict=True))
            is_known = ratio < float("inf")  # neither infinite nor NaN
            tokens.append(PromptToken(_word(lm, token, p), tuned, ratio if is_known else None, tuple(others)))
        prompts = [_prompt_words(mixture, number, tokens) for number in range(len(mixture.prompts))]
    first, *others = sorted(prompts, key=lambda prompt: -prompt.weight)  # the sort is stable: ties stay in their order
    shared = mixture.prompts[0].shared_tokens
    return [first, *(replace(one, items=one.items[shared:], sentences=()) if shared else one for one in others)]


def _prompt_words(mixture: "Mixture", number: int, tokens: Sequence[PromptToken]) -> PromptWords:
    """Return one prompt in words, given the tokens of all prompts."""
    from askwell.lms.tokenisation import Place

    prompt, copies, rows = mixture.prompts[number], mixture.spec.copies, mixture.pairs.rows[number]
    before, between, after = (len(part) for part in (prompt.tokens.before, prompt.tokens.between, prompt.tokens.after))
    rows, is_cut = list(rows), len(prompt.token_ids) < before + between + after
    if not mixture.vectors[rows].isfinite().all():
        raise NotFinite(
            f"the prompt {prompt.template.text!r} has vectors that are not finite, so they have no nearest word"
        )
    places = {"[X]": prompt.tokens.x_place, "[Y]": prompt.tokens.y_place}
    blanks = [BlankPlace(name, places[name] is Place.GLUED) for name in (prompt.template.first, prompt.template.second)]
    items: list[PromptToken | BlankPlace] = [tokens[row] for row in rows]
    items.insert(before, blanks[0])
    items.insert(before + between + 1, blanks[1])
    return PromptWords(
        weight=float(mixture.weights[number]),
        template=prompt.template.text,
        copy=number % copies + 1 if copies > 1 else None,
        copies=copies,
        items=tuple(items),
        original_is_initial=mixture.spec.initial == "words",
        cut_text=prompt.template.after if is_cut else "",
        end=_end(mixture, number) if is_cut else "",
        deep_norms={
            stack: tuple(float(delta[rows].norm(dim=1).mean()) for delta in layers)
            for stack, layers in (mixture.layer_deltas.items() if prompt.token_ids else ())
        },
        sentences=prompt.tokens.sentences,
    )


def _end(mixture: "Mixture", number: int) -> str:
    """Return the text of the token that ends answers to a prompt; none if answers have one token."""
    end = mixture.long_answers.end_of(number)
    if end is None or mixture.answer_kind is None or not mixture.answer_kind.any_length:
        return ""
    return str(mixture.lm.tokenizer.decode([end])).strip()


def _word(lm: "FrozenLM", token: int, p: float) -> Word:
    """Return a token as a word of probability p."""
    from askwell.lms.tokenisation import Place
    from askwell.lms.vocabulary import token_text

    marker, name = lm.wording.marker, lm.tokenizer.convert_ids_to_tokens(token)
    text, glued = token_text(lm, token), False
    if isinstance(name, str) and token not in lm.tokenizer.all_special_ids:
        glued = name.startswith(marker) == (lm.wording.marks is Place.GLUED)
        of_bytes = _bytes_of_characters() if marker == "Ġ" else {}
        if all(char in of_bytes for char in name):  # byte-level: a token may hold parts of characters
            text = bytes(of_bytes[char] for char in name).decode(errors="backslashreplace").removeprefix(" ")
        elif name == marker:
            text = ""
    return Word(token, text, glued, p, brightness(p, lm.word_count))


@cache
def _bytes_of_characters() -> dict[str, int]:
    """Return the bytes that byte-level tokenizers write as characters."""
    from transformers.convert_slow_tokenizer import bytes_to_unicode

    return {char: byte for byte, char in bytes_to_unicode().items()}


def brightness(p: float, words: int) -> float:
    """Compute 0 for a word no more probable than chance among this many, 1 for a certain one; linear in log p.

    Linear in p, all would be dark: in BERT even a word's own vector makes it hardly more probable than chance.
    """
    return 1.0 if p * words > words - 1 else max(0.0, 1 + math.log(max(p, sys.float_info.min)) / math.log(words))


NOT_AN_EXPLANATION = "Nearest words are not an explanation of a soft prompt."


def notes_on_prompt(prompt: PromptWords) -> list[str]:
    """Return notes on one prompt: which part of its template is not read, and how far later layers are moved."""
    notes = []
    if prompt.sentences:
        notes.append(f"{counted(len(prompt.sentences), 'example')} before the question, each on a new line")
    if cut := prompt.cut_text.strip():
        notes.append(_note_on_cut(cut, prompt.end))
    for stack, norms in prompt.deep_norms.items():
        name = "" if stack == "layers" else f" {stack}"
        layers = "layer 1" if len(norms) == 1 else f"layers 1 to {len(norms)}"
        notes.append(f"mean |Δ| of{name} {layers}: {' '.join(f'{norm:#.2g}' for norm in norms)}")
    return notes


def _note_on_cut(cut: str, end: str) -> str:
    """Say what becomes of the text after y."""
    if not end:
        return f"cut off after [Y], not read by the LM: “{visible(cut)}”"
    if end == cut:
        return f"after [Y], where an answer ends: “{visible(cut)}”"
    return f"cut off after [Y]: “{visible(cut)}”; an answer ends where “{visible(end)}” follows"


def copy_of(prompt: PromptWords) -> str:
    """Say which copy of its template the prompt is, if there are several."""
    return "" if prompt.copy is None else f"copy {prompt.copy} of {prompt.copies}"


def notes_on_all(prompts: Sequence[PromptWords]) -> list[str]:
    """Return notes on the whole drawing."""
    notes = []
    if any(not prompt.original_is_initial for prompt in prompts):
        notes.append(
            "The vectors started at random, not from words: an original word only marks a place in the template here, "
            "and |v0| is the length of the random vector."
        )
    if any(prompt.deep_norms for prompt in prompts):
        notes.append("Later layers are tuned, too (Δ), which the words do not show.")
    items = [item for prompt in prompts for item in prompt.items]
    words = [word for item in items if isinstance(item, PromptToken) for word in (item.tuned, item.original)]
    if any(one.glued for one in (*words, *(item for item in items if isinstance(item, BlankPlace)))):
        notes.append(f"{TIE} marks a piece that continues what precedes it, without a space.")
    return [*notes, f"{NOT_AN_EXPLANATION} Even an untuned vector need not be nearest to its own word."]
