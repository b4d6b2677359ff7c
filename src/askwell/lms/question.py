"""A prompt as a question to an LM: what each of its stacks reads, and where the answer is read.

A stack is a sequence of layers with its own input: a masked or causal LM has one, a seq2seq LM an encoder and a
decoder.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import NamedTuple

from askwell.lms.tokenisation import PromptTokens


class Token(NamedTuple):
    """A fixed token of a question."""

    id: int
    prompt_token: int = -1
    """Which of the prompt's tokens this is, counted from 0; -1 for special tokens and masks, which are not tuned."""


class X(StrEnum):
    """What is at x's blank."""

    SHOWN = "shown"
    MASKED = "masked"
    ABSENT = "absent"


@dataclass(frozen=True)
class Stream:
    """What one stack reads: fixed tokens on both sides of x, and room for y's own tokens where they are read."""

    left: tuple[Token, ...]
    right: tuple[Token, ...]
    x: X = X.SHOWN
    y_at: int | None = None
    """How many of the fixed tokens come before y's tokens; None if y has none here."""
    y_after_x: bool = False
    """Whether x's tokens come before y's."""


@dataclass(frozen=True)
class Question:
    """One prompt put to an LM. The answer is read from the last stream."""

    streams: Mapping[str, Stream]
    read_at: int
    """The first position that is read, counted without x's tokens."""
    read_after_x: bool
    """Whether x's tokens come before that position."""
    reads_x: bool = False
    """Whether x's tokens are read, one position each, rather than y's blank."""
    end: int | None = None
    """The token that follows an answer of any length and marks its end; None if there is none, because the number of
    y's tokens is given (masked LMs), or if x's first token follows it (`ends_with_x`)."""
    ends_with_x: bool = False
    fills_masks: bool = False
    """Whether y's tokens are masks of which the first are filled in, rather than the tokens themselves."""


class Unusable(Exception):
    """A prompt that a family of LMs cannot use; the message says why."""


@dataclass(frozen=True)
class Sentence:
    """A prompt between the LM's special tokens, with a token at y's blank."""

    left: tuple[Token, ...]
    right: tuple[Token, ...]
    y_at: int
    y_after_x: bool

    def until_y(self) -> Stream:
        """Return all that comes before y."""
        if self.y_after_x:
            return Stream(self.left, self.right[: self.y_at - len(self.left)])
        return Stream(self.left[: self.y_at], (), X.ABSENT)

    def around_y(self) -> Stream:
        """Return the whole sentence with room for any number of tokens at y."""
        if self.y_after_x:
            at = self.y_at - len(self.left)
            right = self.right[:at] + self.right[at + 1 :]
            return Stream(self.left, right, y_at=self.y_at, y_after_x=True)
        left = self.left[: self.y_at] + self.left[self.y_at + 1 :]
        return Stream(left, self.right, y_at=self.y_at)

    def through_y(self) -> Stream:
        """Return all that comes before y, and then any number of tokens of y."""
        return replace(self.until_y(), y_at=self.y_at, y_after_x=self.y_after_x)

    def until_after_x(self) -> Stream:
        """Return all up to the last of x's tokens."""
        return Stream(self.left, ())


def lay_out(prompt: PromptTokens, prefix: Sequence[int], suffix: Sequence[int], y: int) -> Sentence:
    """Return the sentence of a prompt, with token `y` at y's blank."""
    numbers = iter(range(len(prompt.before) + len(prompt.between) + len(prompt.after)))
    before, between, after = (
        tuple(Token(id_, next(numbers)) for id_ in stretch) for stretch in (prompt.before, prompt.between, prompt.after)
    )
    start, end = tuple(map(Token, prefix)), tuple(map(Token, suffix))
    if prompt.x_first:
        left, right = start + before, (*between, Token(y), *after, *end)
        return Sentence(left, right, y_at=len(left) + len(between), y_after_x=True)
    left, right = (*start, *before, Token(y), *between), after + end
    return Sentence(left, right, y_at=len(start) + len(before), y_after_x=False)
