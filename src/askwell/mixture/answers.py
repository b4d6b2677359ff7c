"""Answers: surface words, each with its token in every form that the prompts of a mixture need; and candidates, the
words among which answers are ranked.

Where all prompts need one form, the answers are the LM's tokens. Where some need " Paris" and some "Paris", both
tokens are the single answer Paris, and a token without a partner in the other form is a separate answer.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from askwell.lms.batches import PLACES, SpeltTexts
from askwell.lms.frozen import FrozenLM
from askwell.lms.tokenisation import Place
from askwell.lms.vocabulary import special_tokens, token_text
from askwell.specs.mixture_spec import LONGEST_ANSWER, AnswersName


@dataclass(frozen=True)
class AnswerKind:
    """What counts as an answer: one token of the LM, or a string of any length up to a limit."""

    any_length: bool = False
    longest: int = 1
    """The most tokens of an answer."""
    log_lengths: tuple[float, ...] = ()
    """log p(m | r) of a masked LM's answers, from one token on; empty for LMs that tell where an answer ends."""
    through: tuple[int, ...] = ()
    """Tokens that end an answer after some prompt but are also part of a train y or a candidate: answers may go on
    after them. At any other token that ends an answer after some prompt, it is over."""

    @property
    def name(self) -> AnswersName:
        """The kind's name in specs and tables."""
        return "any-length" if self.any_length else "one-token"

    @property
    def is_long(self) -> bool:
        """Whether an answer can have more than one token: a masked LM's answers may all have one."""
        return self.any_length and len(self.log_lengths) != 1

    def describe(self, lm_name: str) -> str:
        """The answers that the right one is ranked among, in words; the limit is named only if it was chosen."""
        if self.longest == LONGEST_ANSWER:
            return f"all answers of any length of {lm_name}"
        return f"all answers of up to {self.longest} tokens of {lm_name}"

    def lengths_on(self, lm: FrozenLM) -> Float[Tensor, " lengths"] | None:
        """log p(m | r) as a tensor; None if there is none."""
        if not self.log_lengths:
            return None
        return torch.tensor(self.log_lengths, dtype=lm.parameter_dtype, device=lm.device)


ONE_TOKEN = AnswerKind()


@dataclass(frozen=True)
class SpelledWord:
    """A surface word, and the tokens that spell it at each place."""

    word: str
    tokens: tuple[tuple[int, ...], ...]
    """One sequence of one or more tokens for each of PLACES."""

    def single_token(self, place: Place, unknown: int | None) -> int | None:
        """The one token that spells it at a place, if there is one."""
        tokens = self.tokens[PLACES.index(place)]
        return tokens[0] if len(tokens) == 1 and tokens[0] != unknown else None


def spell(lm: FrozenLM, word: str) -> SpelledWord:
    """A word as an answer."""
    return SpelledWord(word, tuple(tuple(lm.wording.encode(word, place)) for place in PLACES))


class AnswerSpace:
    """All single-token answers that the prompts of a mixture can give."""

    def __init__(self, lm: FrozenLM, places: Iterable[Place]) -> None:
        self._lm = lm
        self._words: dict[int, str] = {}
        needed = set(places)
        self.places = tuple(place for place in PLACES if place in needed)
        size = lm.vocabulary_size
        if len(self.places) == 1:
            self._answer_of = {self.places[0]: torch.arange(size)}
            self.count = size
        else:
            self._answer_of, self.count = _join_forms(lm, size)

    @cached_property
    def tokens(self) -> Int[Tensor, "places answers"]:
        """The token of each answer at each place, -1 where it has none."""
        table = torch.full((len(PLACES), self.count), -1)
        for place, answers in self._answer_of.items():
            table[PLACES.index(place), answers] = torch.arange(len(answers))
        return table.to(self._lm.device)

    @cached_property
    def askable(self) -> Int[Tensor, " askable"]:
        """The numbers of the answers that can be given: all except special tokens."""
        special = torch.tensor(special_tokens(self._lm), dtype=torch.long)
        is_given = torch.ones(self.count, dtype=torch.bool)
        for answers in self._answer_of.values():
            is_given[answers[special]] = False
        return is_given.nonzero()[:, 0].to(self._lm.device)

    @property
    def description(self) -> str:
        """How many answers there are, and of which LM."""
        return f"all {self.count} one-token answers of {self._lm.identity.name}"

    def number_of(self, answer: SpelledWord) -> int | None:
        """The number of an answer; None if it is not one token at any place that the prompts need."""
        for place in self.places:
            token = answer.single_token(place, self._lm.wording.unknown_id)
            if token is not None:
                return int(self._answer_of[place][token])
        return None

    def word(self, number: int) -> str:
        """The surface word of an answer."""
        if number not in self._words:
            self._words[number] = token_text(self._lm, self._written_with[number])
        return self._words[number]

    @cached_property
    def _written_with(self) -> list[int]:
        """For each answer the token that shows its word."""
        return self.tokens.amax(0).tolist()

    def numbers_of(self, words: Sequence[str]) -> list[int | None]:
        """The number of each word, None for one that is not an answer."""
        return self.numbers_of_spelt(SpeltTexts(words, self._lm.wording))

    def numbers_of_spelt(self, words: SpeltTexts) -> list[int | None]:
        """The same for words that are already tokenised."""
        numbers = np.full(len(words), -1)
        for place in reversed(self.places):  # the first place at which a word is one token tells its number
            tokens = words.single(place)
            is_one = (tokens >= 0) & (tokens != self._lm.wording.unknown_id)
            numbers[is_one] = self._answer_of[place].numpy()[tokens[is_one]]
        return [None if number < 0 else number for number in numbers.tolist()]


def _join_forms(lm: FrozenLM, size: int) -> tuple[dict[Place, Tensor], int]:
    """For each place the answer of every token: tokens that spell the same word in their places are one answer."""
    names = lm.tokenizer.convert_ids_to_tokens(list(range(size)))
    marker, marks = lm.wording.marker, lm.wording.marks
    numbers: dict[tuple[str, str], int] = {}
    answer_of = {}
    for place in PLACES:
        answers = []
        for token, name in enumerate(names):
            word = name.removeprefix(marker) if isinstance(name, str) else f"<{token}>"
            marked = isinstance(name, str) and name.startswith(marker)
            # A bracket glued to a letter is the same token as after a space, and its ## form is never written.
            fits_place = not marked if lm.wording.stands_alone(word) else marked == (place is marks)
            key = (word, "word" if fits_place else f"not for {place}")
            answers.append(numbers.setdefault(key, len(numbers)))
        answer_of[place] = torch.tensor(answers)
    return answer_of, len(numbers)
