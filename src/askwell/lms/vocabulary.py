"""The LM's tokens as words: which words are one token, and what tokens spell."""

from collections.abc import Callable, Iterable, Sequence
from functools import cache, cached_property

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from askwell.lms.batches import PLACES, TokenisedTexts
from askwell.lms.frozen import FrozenLM
from askwell.lms.tokenisation import Place


class TokenWords:
    """All words that are one token of an LM in the forms that some prompts need.

    Where all prompts need one form, the words are the LM's tokens. Where some need " Paris" and some "Paris", both
    tokens are the single word Paris, and a token without a partner in the other form is a separate word.
    """

    def __init__(self, lm: FrozenLM, places: Iterable[Place]) -> None:
        self._lm = lm
        self._texts: dict[int, str] = {}
        needed = set(places)
        self.places = tuple(place for place in PLACES if place in needed)
        size = lm.vocabulary_size
        if len(self.places) == 1:
            self._word_of = {self.places[0]: torch.arange(size)}
            self.count = size
        else:
            self._word_of, self.count = _join_forms(lm, size)

    @cached_property
    def tokens(self) -> Int[Tensor, "places words"]:
        """The token of each word at each place, -1 where it has none."""
        table = torch.full((len(PLACES), self.count), -1)
        for place, words in self._word_of.items():
            table[PLACES.index(place), words] = torch.arange(len(words))
        return table.to(self._lm.device)

    @cached_property
    def askable(self) -> Int[Tensor, " askable"]:
        """The numbers of the words that can be answers: all except special tokens."""
        special = torch.tensor(special_tokens(self._lm), dtype=torch.long)
        is_given = torch.ones(self.count, dtype=torch.bool)
        for words in self._word_of.values():
            is_given[words[special]] = False
        return is_given.nonzero()[:, 0].to(self._lm.device)

    @cached_property
    def has_all_forms(self) -> list[bool]:
        """Whether each word is one token at every place that the prompts need."""
        needed = [PLACES.index(place) for place in self.places]
        return (self.tokens[needed] >= 0).all(0).tolist()

    def word(self, number: int) -> str:
        """Return a word as a person would read it."""
        if number not in self._texts:
            self._texts[number] = token_text(self._lm, self._written_with[number])
        return self._texts[number]

    @cached_property
    def _written_with(self) -> list[int]:
        """For each word the token that shows it."""
        return self.tokens.amax(0).tolist()

    def numbers_of(self, texts: Sequence[str] | TokenisedTexts) -> list[int | None]:
        """Return the number of each text, None for one that is not one token at any place that the prompts need."""
        tokenised = texts if isinstance(texts, TokenisedTexts) else TokenisedTexts(texts, self._lm.wording)
        numbers = np.full(len(tokenised), -1)
        for place in reversed(self.places):  # the first place at which a text is one token tells its number
            tokens = tokenised.single(place)
            is_one = (tokens >= 0) & (tokens != self._lm.wording.unknown_id)
            numbers[is_one] = self._word_of[place].numpy()[tokens[is_one]]
        return [None if number < 0 else number for number in numbers.tolist()]


def _join_forms(lm: FrozenLM, size: int) -> tuple[dict[Place, Tensor], int]:
    """Return the word of every token at each place: tokens that spell the same word in their places are one."""
    names = lm.tokenizer.convert_ids_to_tokens(list(range(size)))
    marker, marks = lm.wording.marker, lm.wording.marks
    numbers: dict[tuple[str, str], int] = {}
    word_of = {}
    for place in PLACES:
        words = []
        for token, name in enumerate(names):
            word = name.removeprefix(marker) if isinstance(name, str) else f"<{token}>"
            marked = isinstance(name, str) and name.startswith(marker)
            # A bracket glued to a letter is the same token as after a space, and its ## form is never written.
            fits_place = not marked if lm.wording.stands_alone(word) else marked == (place is marks)
            key = (word, "word" if fits_place else f"not for {place}")
            words.append(numbers.setdefault(key, len(numbers)))
        word_of[place] = torch.tensor(words)
    return word_of, len(numbers)


def special_tokens(lm: FrozenLM) -> list[int]:
    """Return the tokens that are never part of an answer, such as [UNK], as far as the LM's distribution has them."""
    return sorted(token for token in all_special_tokens(lm) if token < lm.vocabulary_size)


def all_special_tokens(lm: FrozenLM) -> set[int]:
    """Return all special tokens of the LM's tokenizer."""
    added = {token for token, content in lm.tokenizer.added_tokens_decoder.items() if content.special}
    return added | set(lm.tokenizer.all_special_ids)


def token_text(lm: FrozenLM, token: int) -> str:
    """Return a token as a person would read it."""
    name = lm.tokenizer.convert_ids_to_tokens(token)
    if not isinstance(name, str):
        return f"<{token}>"
    if lm.wording.marks is Place.GLUED:
        return name.removeprefix(lm.wording.marker)
    text = lm.tokenizer.convert_tokens_to_string([name])
    return text.strip() or "".join("↵" if character in "\n\r" else "␣" for character in text) or name


def begins_word(lm: FrozenLM, token: int) -> bool:
    """Tell whether a token is written with a space before it."""
    name = lm.tokenizer.convert_ids_to_tokens(token)
    is_marked = isinstance(name, str) and name.startswith(lm.wording.marker)
    return is_marked == (lm.wording.marks is Place.SPACED)


def speller(lm: FrozenLM, place: Place) -> Callable[[tuple[int, ...]], str | None]:
    """Return the function that gives the string which tokens spell at a place; None where the tokenizer would spell it
    otherwise, for special and unknown tokens, and for nothing but space."""
    refused = all_special_tokens(lm)

    @cache
    def spelt(tokens: tuple[int, ...]) -> str | None:
        names = [str(name) for name in lm.tokenizer.convert_ids_to_tokens(list(tokens))]
        if refused & {*tokens}:
            return None
        if lm.wording.marks is Place.GLUED:
            names = [names[0].removeprefix(lm.wording.marker), *names[1:]]
        text = lm.tokenizer.convert_tokens_to_string(names).strip()
        return text if text and tuple(lm.wording.encode(text, place)) == tokens else None

    return spelt
