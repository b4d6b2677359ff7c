"""What can be seen of a mixture's soft prompts: for each tuned vector the words that are nearest to it.

Only the vectors that the LM reads as words (layer 0) have nearest words; a deep mixture's Δ of later layers have not,
and of them only the norms are told.

What must be said beside the words, so that they are not taken for more than they are.
"""

import math
import sys
import unicodedata
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from transformers.convert_slow_tokenizer import bytes_to_unicode

from askwell.errors import BadOption, NotFinite
from askwell.evaluation.nearest_words import nearest_words
from askwell.lms.frozen import FrozenLM
from askwell.lms.tokenisation import Place
from askwell.mixture.answers import token_text
from askwell.mixture.mixture import Mixture
from askwell.mixture.prompts import Prompt

TIE = "‿"
"""Stands before a piece that goes on from its left neighbour without a space."""
SPACE = "␣"
"""Stands for a space that is a token of its own."""
# They join letters of many scripts and emoji: harmless inside a word, invisible alone.
_JOINERS = "\u200c\u200d"


@dataclass(frozen=True)
class Word:
    """A token of the LM and p(w | v) of it."""

    token: int
    text: str
    """As a person reads it, without the tokenizer's marks."""
    glued: bool
    """Whether it goes on from its left neighbour without a space."""
    p: float
    brightness: float
    """Where log p stands between chance (0: no more than one over all the LM's words) and certainty (1)."""

    @property
    def shown(self) -> str:
        """The word as it is drawn: nothing invisible in it, and a tie before it if it is glued."""
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
    """The words that come next after the tuned one, nearest first."""

    @property
    def is_same_word(self) -> bool:
        """Whether the tuned word is still the original one."""
        return self.tuned.token == self.original.token

    def as_json(self) -> dict[str, Any]:
        """The token as plain data."""
        return {
            "kind": "token",
            "original": asdict(self.original),
            "tuned": asdict(self.tuned),
            "size_ratio": self.size_ratio,
            "next_nearest": [asdict(word) for word in self.next_nearest],
        }


@dataclass(frozen=True)
class BlankPlace:
    """Where x or y stands in the sentence."""

    name: str
    glued: bool

    @property
    def shown(self) -> str:
        """The blank as it is drawn."""
        return (TIE if self.glued else "") + self.name

    def as_json(self) -> dict[str, Any]:
        """The blank as plain data."""
        return {"kind": "blank", "name": self.name, "glued": self.glued}


@dataclass(frozen=True)
class PromptWords:
    """One soft prompt in words."""

    weight: float
    template: str
    copy: int | None
    """Which copy of its template this is, counted from 1; None if there is only one."""
    copies: int
    items: tuple[PromptToken | BlankPlace, ...]
    """Prompt tokens and the two blanks, as they follow each other in the sentence."""
    original_is_initial: bool
    """Whether the vectors started from the original words; False if they were drawn at random at their places."""
    cut_text: str
    """What the template says after y, where the LM does not read it and it has no vectors."""
    deep_norms: dict[str, tuple[float, ...]]
    """For each stack of a deep mixture, layer 1 first: the mean of |Δ| over the prompt's tokens."""

    @property
    def tokens(self) -> list[PromptToken]:
        """The prompt tokens alone."""
        return [item for item in self.items if isinstance(item, PromptToken)]

    def as_json(self) -> dict[str, Any]:
        """The prompt as plain data."""
        return {
            "weight": self.weight,
            "template": self.template,
            "copy": self.copy,
            "copies": self.copies,
            "original_is_initial": self.original_is_initial,
            "cut_text": self.cut_text,
            "items": [item.as_json() for item in self.items],
            "deep_norms": {stack: list(norms) for stack, norms in self.deep_norms.items()},
        }


@torch.no_grad()
def look_at(mixture: Mixture, nearest: int = 3) -> list[PromptWords]:
    """The mixture's prompts in words, heaviest first; `nearest` words are told beside each tuned one."""
    if nearest < 0:
        raise BadOption(f"nearest is {nearest}: it counts words, so take 0 or more")
    _check_finite(mixture)
    ids = torch.tensor(
        [token for prompt in mixture.prompts for token in prompt.token_ids], dtype=torch.long, device=mixture.lm.device
    )
    found = nearest_words(mixture.lm, mixture.vectors, ids, nearest + 1)
    ratios = (mixture.vectors.norm(dim=1) / mixture.initial_vectors.norm(dim=1)).tolist()
    best, best_p, p_of_original = found.words.tolist(), found.p.tolist(), found.p_of_asked.tolist()
    tell = _Words(mixture.lm)
    tokens = []
    for row, original in enumerate(ids.tolist()):
        words = [tell.word(token, p) for token, p in zip(best[row], best_p[row], strict=True)]
        ratio = ratios[row] if ratios[row] < float("inf") else None  # neither infinite nor NaN
        tokens.append(PromptToken(tell.word(original, p_of_original[row]), words[0], ratio, tuple(words[1:])))
    weights, copies = mixture.weights.tolist(), mixture.spec.copies
    prompts = []
    for number, (prompt, first) in enumerate(zip(mixture.prompts, mixture.pairs.first_rows, strict=True)):
        rows = slice(first, first + len(prompt.token_ids))
        prompts.append(
            PromptWords(
                weight=weights[number],
                template=prompt.template.text,
                copy=number % copies + 1 if copies > 1 else None,
                copies=copies,
                items=_in_order(prompt, tokens[rows]),
                original_is_initial=mixture.spec.initial == "words",
                cut_text=prompt.template.after if _is_cut(prompt) else "",
                deep_norms=_deep_norms(mixture, rows) if prompt.token_ids else {},
            )
        )
    return sorted(prompts, key=lambda prompt: -prompt.weight)  # the sort is stable: ties stay in their order


def visible(text: str) -> str:
    """The text with every character that could not be seen, or would act on what draws it, written as an escape."""
    if not text.strip(" " + _JOINERS):
        return "".join(_escape(char) if char in _JOINERS else SPACE for char in text or " ")
    shown = "".join(char if char.isprintable() or char in _JOINERS else _escape(char) for char in text)
    return f"◌{shown}" if unicodedata.category(shown[0]).startswith("M") else shown  # a mark needs a letter to sit on


def brightness(p: float, words: int) -> float:
    """0 for a word that is no more probable than chance among so many words, 1 for a certain one, by log p.

    By p itself, all would be dark: in BERT even a word's own vector gives it little more than chance.
    """
    return 1.0 if p * words > words - 1 else max(0.0, 1 + math.log(max(p, sys.float_info.min)) / math.log(words))


def _escape(char: str) -> str:
    return char.encode("unicode_escape").decode()


class _Words:
    """Tokens of an LM as words."""

    def __init__(self, lm: FrozenLM) -> None:
        self._lm, self._marker = lm, lm.wording.marker
        self._special = frozenset(lm.tokenizer.all_special_ids)
        self._bytes = {char: byte for byte, char in bytes_to_unicode().items()} if self._marker == "Ġ" else {}

    def word(self, token: int, p: float) -> Word:
        """The token as a word of probability p."""
        name = self._lm.tokenizer.convert_ids_to_tokens(token)
        is_plain = isinstance(name, str) and token not in self._special
        glued = is_plain and name.startswith(self._marker) == (self._lm.wording.marks is Place.GLUED)
        text = self._text(token, name) if is_plain else token_text(self._lm, token)
        return Word(token, text, glued, p, brightness(p, self._lm.word_count))

    def _text(self, token: int, name: str) -> str:
        if all(char in self._bytes for char in name):  # byte-level: a token may hold parts of characters
            spelled = bytes(self._bytes[char] for char in name)
            return spelled.decode(errors="backslashreplace").removeprefix(" ")
        return "" if name == self._marker else token_text(self._lm, token)


def _in_order(prompt: Prompt, tokens: list[PromptToken]) -> tuple[PromptToken | BlankPlace, ...]:
    places = {"[X]": prompt.tokens.x_place, "[Y]": prompt.tokens.y_place}
    first, second = (BlankPlace(name, places[name] is Place.GLUED) for name in _blank_names(prompt))
    first_at = len(prompt.tokens.before)
    second_at = first_at + len(prompt.tokens.between)
    return (*tokens[:first_at], first, *tokens[first_at:second_at], second, *tokens[second_at:])


def _blank_names(prompt: Prompt) -> tuple[str, str]:
    return prompt.template.first, prompt.template.second


def _is_cut(prompt: Prompt) -> bool:
    tokens = prompt.tokens
    return len(prompt.token_ids) < len(tokens.before) + len(tokens.between) + len(tokens.after)


def _deep_norms(mixture: Mixture, rows: slice) -> dict[str, tuple[float, ...]]:
    return {
        stack: tuple(float(delta[rows].norm(dim=1).mean()) for delta in layers)
        for stack, layers in mixture.layer_deltas.items()
    }


def _check_finite(mixture: Mixture) -> None:
    finite = mixture.vectors.isfinite().all(1)
    for prompt, first in zip(mixture.prompts, mixture.pairs.first_rows, strict=True):
        if not finite[first : first + len(prompt.token_ids)].all():
            raise NotFinite(
                f"the prompt {prompt.template.text!r} has vectors that are not finite, so no word is nearest to them"
            )


NOT_AN_EXPLANATION = "Nearest words are not an explanation of a soft prompt."


def notes_on_prompt(prompt: PromptWords) -> list[str]:
    """What is particular to one prompt: what of its template is not read, and how far later layers are moved."""
    notes = []
    if prompt.cut_text.strip():
        notes.append(f"cut after [Y], not read by the LM: “{visible(prompt.cut_text.strip())}”")
    for stack, norms in prompt.deep_norms.items():
        name = "" if stack == "layers" else f" {stack}"
        layers = "layer 1" if len(norms) == 1 else f"layers 1 to {len(norms)}"
        notes.append(f"mean |Δ| of{name} {layers}: {' '.join(f'{norm:#.2g}' for norm in norms)}")
    return notes


def copy_of(prompt: PromptWords) -> str:
    """Which copy of its template the prompt is, if there are several."""
    return "" if prompt.copy is None else f"copy {prompt.copy} of {prompt.copies}"


def notes_on_all(prompts: Sequence[PromptWords]) -> list[str]:
    """What holds for the whole drawing."""
    notes = []
    if any(not prompt.original_is_initial for prompt in prompts):
        notes.append(
            "The vectors started at random, not from words: an original word here only stands at that place of the "
            "template, and |v0| is the length of the random vector."
        )
    if any(prompt.deep_norms for prompt in prompts):
        notes.append("Later layers are tuned, too (Δ): the words tell nothing of that.")
    if any(_is_glued(item) for prompt in prompts for item in prompt.items):
        notes.append(f"{TIE} goes on from what stands before it, without a space.")
    return [*notes, f"{NOT_AN_EXPLANATION} Even an untuned vector's nearest word need not be its own."]


def _is_glued(item: PromptToken | BlankPlace) -> bool:
    if isinstance(item, BlankPlace):
        return item.glued
    return item.tuned.glued or item.original.glued
