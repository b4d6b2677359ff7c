"""A candidate vocabulary: the words among which answers are ranked."""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from jaxtyping import Int
from torch import Tensor

from askwell.errors import BadFile, NothingLeft
from askwell.text_file import read_text

if TYPE_CHECKING:
    from askwell.mixture.mixture import Mixture


@dataclass(frozen=True)
class Candidates:
    """Words among which answers are ranked, in place of the LM's whole vocabulary."""

    name: str
    words: tuple[str, ...]

    @property
    def digest(self) -> str:
        """A hash of the words as a set."""
        return hashlib.sha256("\n".join(sorted(self.words)).encode()).hexdigest()

    def answers(self, mixture: "Mixture") -> tuple[Int[Tensor, " candidates"], int]:
        """The answers of a mixture that are candidates, in rising order, and how many words are no answer of it."""
        numbers = mixture.answer_space.numbers_of(self.words)
        found = sorted({number for number in numbers if number is not None})
        if not found:
            raise NothingLeft("candidates", {"word is not one token of the LM": len(self.words)})
        return torch.tensor(found, device=mixture.lm.device), numbers.count(None)


def read_candidates(path: Path | str) -> Candidates:
    """The words of a file, one a line; a word that stands twice counts once."""
    path = Path(path)
    words = _distinct(line.strip() for line in read_text(path).split("\n"))
    if not words:
        raise BadFile(path, "holds no words; it should have one candidate a line")
    return Candidates(path.stem, words)


def _distinct(words: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(word for word in words if word))
