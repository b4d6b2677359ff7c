"""Candidates: the words that answers are chosen from, each by itself or several for one label."""

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePath

from askwell.data.facts import Relation
from askwell.errors import AskwellError, BadFile, BadOption, checked, checked_or
from askwell.files import read_text
from askwell.views.document import Document, overview
from askwell.views.printable import counted
from askwell.views.to_text import ShowsItself


@checked_or("candidates can be given as they are, without Candidates: candidates=['Paris', 'Rome']")
@dataclass(frozen=True, repr=False)
class Candidates(ShowsItself):
    """Words that answers are ranked among, instead of everything that the LM could answer."""

    name: str
    words: tuple[str, ...]
    labels: tuple[str, ...] | None = None
    """The label of each word; None if the words are the labels."""

    def summary(self) -> Document:
        """Summarise the labels with their words, or the words."""
        if self.labels is None:
            rows = [(word,) for word in self.words]
            return overview(f"Candidates {self.name}: {counted(len(rows), 'word')}", ("word",), rows)
        labelled = [(label, ", ".join(words)) for label, words in self.words_of.items()]
        return overview(f"Candidates {self.name}: {counted(len(labelled), 'label')}", ("label", "words"), labelled)

    @property
    def digest(self) -> str:
        """A hash of the words, as a set, with their labels."""
        lines = self.words if self.labels is None else map(": ".join, zip(self.labels, self.words, strict=True))
        return hashlib.sha256("\n".join(sorted(lines)).encode()).hexdigest()

    @property
    def names(self) -> tuple[str, ...]:
        """The labels, or the words if there are none, each once."""
        return tuple(dict.fromkeys(self.labels or self.words))

    @cached_property
    def words_of(self) -> dict[str, tuple[str, ...]]:
        """The words of each label; empty if there are no labels."""
        found: dict[str, list[str]] = {}
        for label, word in zip(self.labels or (), self.words if self.labels else (), strict=True):
            found.setdefault(label, []).append(word)
        return {label: tuple(words) for label, words in found.items()}


GivenCandidates = Candidates | Mapping[str, str | Iterable[str]] | Iterable[str] | Path | None
"""What can be given as candidates: words, a dictionary from labels to words, a file, or `Candidates`."""


_LONGEST_CANDIDATE = 10_000
"""In characters."""


@checked
def load_candidates(path: Path | str) -> Candidates:
    """Read the words of a file, one per line; if every line has the form "label: word, word", labels with their words.

    The space after the colon is required, so that 10:30 is a word. A word that occurs twice counts once.
    """
    return parse_candidates(read_text(Path(path)), Path(path))


def parse_candidates(text: str, path: Path) -> Candidates:
    """Read the words in the text of a file, which errors name."""
    lines = {number: line.strip() for number, line in enumerate(text.split("\n"), start=1) if line.strip()}
    if not lines:
        raise BadFile(path, "holds no words; it should have one candidate per line")
    if not all(re.search(r"^[^:].*?:(\s|$)", line) for line in lines.values()):
        for number, line in lines.items():
            _check_length(path, number, line)
        return Candidates(path.stem, _distinct(lines.values()))
    found: list[tuple[int, str, str]] = []
    for number, line in lines.items():
        label, words = (part.strip() for part in re.split(r":(?:\s|$)", line, maxsplit=1))
        of_label = _distinct(word.strip() for word in words.split(","))
        if not of_label:
            raise BadFile(path, f"line {number}: {label!r} has no words; write {label}: word, word")
        for word in of_label:
            _check_length(path, number, word)
            found.append((number, label, word))
    return _labelled(path.stem, found, lambda number, problem: BadFile(path, f"line {number}: {problem}"))


def _labelled(
    name: str, words: Iterable[tuple[int, str, str]], error: Callable[[int, str], AskwellError]
) -> Candidates:
    """Return words with their labels, each after the number of its line, which an error names."""
    label_of: dict[str, str] = {}
    line_of: dict[str, int] = {}
    for number, label, word in words:
        line_of.setdefault(label, number)
        if label_of.setdefault(word, label) != label:
            problem = f"{word!r} is already a word of {label_of[word]!r} and cannot also be one of {label!r}"
            raise error(number, problem)
    for word, label in label_of.items():
        if word != label and word in line_of:
            problem = f"{word!r} is both a label and a word of {label!r}; facts with it would be ambiguous"
            raise error(line_of[word], problem)
    return Candidates(name, tuple(label_of), tuple(label_of.values()))


def _check_length(path: Path, number: int, word: str) -> None:
    """Refuse what no LM answers with, and what takes seconds to tokenise."""
    if len(word) > _LONGEST_CANDIDATE:
        raise BadFile(path, f"a candidate of {len(word):,} characters, more than {_LONGEST_CANDIDATE:,}", number)


def candidates_of(words: Iterable[str]) -> Candidates:
    """Return words as candidates."""
    words = list(words)
    if not words or not all(isinstance(word, str) for word in words):
        raise BadOption(f"candidates are words, such as ['Paris', 'Rome']; got {str(words)[:60]}")
    return Candidates("candidates", _distinct(word.strip() for word in words))


def as_candidates(given: GivenCandidates) -> Candidates | None:
    """Convert words, labels with their words, a file, or `Candidates` to `Candidates`."""
    if given is None or isinstance(given, Candidates):
        return given
    if isinstance(given, str | Path):
        return load_candidates(given)
    if not isinstance(given, Mapping):
        return candidates_of(given if isinstance(given, Iterable) else [given])
    found = []
    for label, words in given.items():
        of_label = list(words) if isinstance(words, Iterable) and not isinstance(words, str) else [words]
        if not of_label:
            raise BadOption(f"the label {label!r} has no words; write {{{label!r}: ['word', …]}}")
        for word in of_label:
            if not isinstance(word, str):
                raise BadOption(f"the words of the label {label!r} must be strings, not {type(word).__name__}")
            found.append((0, label, word))
    return _labelled("candidates", found, lambda _number, problem: BadOption(problem))


def train_candidates(relation: Relation) -> Candidates:
    """Return the ys of a relation's train facts."""
    return Candidates(f"the ys of {relation.name}'s train facts", _distinct(fact.y for fact in relation.train))


def find_candidates(file: Path | None, among: str | None, relation: Relation) -> Candidates | None:
    """Return the candidates of a file, or of the relation's file in a folder, or the ys of train; None if neither is
    given."""
    if file is not None and among is not None:
        raise BadOption("--candidates and --among both name the candidates: give only one of them")
    if file is not None:
        # A folder, such as an imported set's answer spaces, has a file for each relation.
        return load_candidates(file / f"{PurePath(relation.name).name}.txt" if file.is_dir() else file)
    return None if among is None else train_candidates(relation)


def _distinct(words: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(word for word in words if word))
