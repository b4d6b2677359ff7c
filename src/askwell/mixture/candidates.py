"""Candidates: the words that answers are chosen from, each by itself or several for one label."""

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float, Int
from torch import Tensor

from askwell.calls import checked, checked_or
from askwell.data.facts import Relation
from askwell.errors import BadFile, BadOption, NothingLeft
from askwell.files import read_text
from askwell.lms.batches import Words, words_of
from askwell.mixture import distributions
from askwell.mixture.answer_tree import candidate_log_probs
from askwell.mixture.answers import AnswerKind
from askwell.mixture.encode import default_kind
from askwell.views.document import Document, overview
from askwell.views.printable import counted
from askwell.views.shown import ShowsItself

if TYPE_CHECKING:
    from askwell.mixture.mixture import Mixture


@checked_or("candidates can be given as they are, without Candidates: candidates=['Paris', 'Rome']")
@dataclass(frozen=True, repr=False)
class Candidates(ShowsItself):
    """Words that answers are ranked among, instead of everything that the LM could answer."""

    name: str
    words: tuple[str, ...]
    labels: tuple[str, ...] | None = None
    """The label of each word; None if the words are the labels."""

    def summary(self) -> Document:
        """The labels with their words, or the words."""
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

    def answers(self, mixture: "Mixture") -> tuple[Int[Tensor, " candidates"], tuple[str, ...]]:
        """The one-token answers of a mixture that are candidates, in ascending order, and the words that are not."""
        numbers = mixture.answer_space.numbers_of(self.words)
        found = sorted({number for number in numbers if number is not None})
        if not found:
            raise NothingLeft("candidates", {"word is not one token of the LM": len(self.words)})
        left_out = tuple(word for word, number in zip(self.words, numbers, strict=True) if number is None)
        return torch.tensor(found, device=mixture.lm.device), left_out


GivenCandidates = Candidates | Mapping[str, str | Iterable[str]] | Iterable[str] | Path | None
"""What can be given as candidates: words, a dictionary from labels to words, a file, or `Candidates`."""


_LONGEST_CANDIDATE = 10_000
"""Characters."""


@checked
def read_candidates(path: Path | str) -> Candidates:
    """The words of a file, one per line; if every line has the form "label: word, word", labels with their words.

    The space after the colon is required, so that 10:30 is a word. A word that occurs twice counts once.
    """
    path = Path(path)
    lines = {number: line.strip() for number, line in enumerate(read_text(path).split("\n"), start=1) if line.strip()}
    if not lines:
        raise BadFile(path, "holds no words; it should have one candidate per line")
    if not all(re.search(r"^[^:].*?:(\s|$)", line) for line in lines.values()):
        for number, line in lines.items():
            _check_length(path, number, line)
        return Candidates(path.stem, _distinct(lines.values()))
    label_of: dict[str, str] = {}
    line_of: dict[str, int] = {}
    for number, line in lines.items():
        label, words = (part.strip() for part in re.split(r":(?:\s|$)", line, maxsplit=1))
        line_of.setdefault(label, number)
        of_label = _distinct(word.strip() for word in words.split(","))
        if not of_label:
            raise BadFile(path, f"line {number}: {label!r} has no words; write {label}: word, word")
        for word in of_label:
            _check_length(path, number, word)
            if label_of.setdefault(word, label) != label:
                problem = f"{word!r} is already a word of {label_of[word]!r} and cannot also be one of {label!r}"
                raise BadFile(path, f"line {number}: {problem}")
    for word, label in label_of.items():
        if word != label and word in line_of:
            problem = f"{word!r} is both a label and a word of {label!r}; facts with it would be ambiguous"
            raise BadFile(path, f"line {line_of[word]}: {problem}")
    return Candidates(path.stem, tuple(label_of), tuple(label_of.values()))


def _check_length(path: Path, number: int, word: str) -> None:
    """Refuses what no LM answers with, and what takes seconds to spell in tokens."""
    if len(word) > _LONGEST_CANDIDATE:
        raise BadFile(path, f"a candidate of {len(word):,} characters, more than {_LONGEST_CANDIDATE:,}", number)


def as_candidates(given: GivenCandidates) -> Candidates | None:
    """Candidates in any form: words, labels with their words, a file, or `Candidates`."""
    if given is None or isinstance(given, Candidates):
        return given
    if isinstance(given, str | Path):
        return read_candidates(given)
    if not isinstance(given, Mapping):
        words = list(given) if isinstance(given, Iterable) else [given]
        if not words or not all(isinstance(word, str) for word in words):
            raise BadOption(f"candidates are words, such as ['Paris', 'Rome']; got {str(words)[:60]}")
        return Candidates("candidates", _distinct(word.strip() for word in words))
    of_label = {
        label: list(words) if isinstance(words, Iterable) and not isinstance(words, str) else [words]
        for label, words in given.items()
    }
    label_of: dict[str, str] = {}
    for label, words in of_label.items():
        if not words:
            raise BadOption(f"the label {label!r} has no words; write {{{label!r}: ['word', …]}}")
        for word in words:
            if not isinstance(word, str):
                raise BadOption(f"the words of the label {label!r} must be strings, not {type(word).__name__}")
            if label_of.setdefault(word, label) != label:
                raise BadOption(
                    f"{word!r} is a word of {label_of[word]!r} and of {label!r}; it can belong to only one label"
                )
    for word, label in label_of.items():
        if word != label and word in of_label:
            raise BadOption(f"{word!r} is both a label and a word of {label!r}; facts with it would be ambiguous")
    return Candidates("candidates", tuple(label_of), tuple(label_of.values()))


def train_candidates(relation: Relation) -> Candidates:
    """The ys of a relation's train facts."""
    return Candidates(f"the ys of {relation.name}'s train facts", _distinct(fact.y for fact in relation.train))


def find_candidates(file: Path | None, among: str | None, relation: Relation) -> Candidates | None:
    """The candidates of a file, or the ys of train; None if neither is given."""
    if file is not None and among is not None:
        raise BadOption("--candidates and --among both name the candidates: give only one of them")
    if file is not None:
        return read_candidates(file)
    return None if among is None else train_candidates(relation)


def _distinct(words: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(word for word in words if word))


def unaskable_candidates(mixture: "Mixture", candidates: Candidates) -> tuple[str, ...]:
    """The words that the mixture cannot answer with."""
    return CandidateScorer(mixture, candidates, default_kind(mixture)).left_out


class CandidateScorer:
    """The probabilities of candidates under a mixture, with gradients into everything that is tuned."""

    def __init__(self, mixture: "Mixture", candidates: Candidates, kind: AnswerKind) -> None:
        self.mixture, self.candidates, self.kind = mixture, candidates, kind
        label_of = dict(zip(candidates.words, candidates.labels or candidates.words, strict=True))
        spelt = {word: self._spelt(word) for word in label_of}
        self.left_out = tuple(word for word, tokens in spelt.items() if tokens is None)
        if len(self.left_out) == len(spelt):
            raise NothingLeft("candidates", {"it cannot be spelled in the LM's tokens, or is too long": len(spelt)})
        # Words that the LM spells in the same way (good and Good, if it is uncased) are one.
        first: dict[tuple[tuple[int, ...], ...], str] = {}
        for word, tokens in spelt.items():
            if tokens is not None:
                same = first.setdefault(tokens, word)
                if candidates.labels is not None and label_of[same] != label_of[word]:
                    raise BadOption(
                        f"the LM spells {same!r} ({label_of[same]}) and {word!r} ({label_of[word]}) in the same way, "
                        f"so they cannot belong to two labels of {candidates.name}"
                    )
        self.labels = tuple(dict.fromkeys(label_of[word] for word in first.values()))
        """Labels with at least one word that the LM can answer with."""
        numbers = {label: number for number, label in enumerate(self.labels)}
        self._words, device = list(first.values()), mixture.lm.device
        self._ys = words_of(self._words, mixture.lm.wording, device)
        of_label: list[list[int]] = [[] for _ in self.labels]
        for number, word in enumerate(self._words):
            of_label[numbers[label_of[word]]].append(number)
        most = max(map(len, of_label))
        # The words of each label, padded with its last word to the most words that a label has.
        self._of_label = torch.tensor([row + row[-1:] * (most - len(row)) for row in of_label], device=device)
        self._is_padding = torch.tensor([[n >= len(row) for n in range(most)] for row in of_label], device=device)
        self._number_of = numbers if candidates.labels is not None else {}
        self._by_tokens = {tokens: numbers[label_of[word]] for tokens, word in first.items()}

    def number_of(self, y: str) -> int | None:
        """The number of the label that y is, or is a word of; None if there is none."""
        if y in self._number_of:
            return self._number_of[y]
        tokens = self._spelt(y)
        return None if tokens is None else self._by_tokens.get(tokens)

    def by_prompt(self, xs: Words, facts: Int[Tensor, " facts"]) -> Float[Tensor, "facts prompts labels"]:
        """log p(label | t, x): the sum over its words, not normalised over labels."""
        of_words = self._of_words(xs, facts)
        if self.candidates.labels is None:
            return of_words
        return of_words[..., self._of_label].masked_fill(self._is_padding, -torch.inf).logsumexp(-1)

    def log_probs(
        self, xs: Words, facts: Int[Tensor, " facts"], log_weights: Float[Tensor, "facts prompts"]
    ) -> Float[Tensor, "facts labels"]:
        """log p(label | x, r), not normalised over labels; the weights are the exponents of a product."""
        return self.combine(self.by_prompt(xs, facts), log_weights)

    def combine(
        self, by_prompt: Float[Tensor, "facts prompts labels"], log_weights: Float[Tensor, "facts prompts"]
    ) -> Float[Tensor, "facts labels"]:
        """The prompts' log-probabilities as the mixture's, or the product's."""
        if self.mixture.spec.combine == "product":
            everywhere = by_prompt.isfinite().all(1)
            scores = torch.einsum("ft,ftl->fl", log_weights.exp(), by_prompt.nan_to_num(neginf=0.0))
            return scores.masked_fill(~everywhere, -torch.inf)
        return (by_prompt + log_weights[..., None]).logsumexp(1)

    def _of_words(self, xs: Words, facts: Int[Tensor, " facts"]) -> Float[Tensor, "facts prompts words"]:
        mixture = self.mixture
        if self.kind.any_length:
            lengths = self.kind.lengths_on(mixture.lm)
            return candidate_log_probs(mixture.long_answers, mixture.tuned, xs, facts, self._ys, lengths)
        each = [distributions.prompt_log_probs(mixture, xs, facts, prompt) for prompt in range(len(mixture.prompts))]
        return torch.stack([log_probs[:, self._one_token] for log_probs in each], dim=1)

    @cached_property
    def _one_token(self) -> Int[Tensor, " words"]:
        numbers = self.mixture.answer_space.numbers_of(self._words)
        return torch.tensor(numbers, device=self.mixture.lm.device)

    def _spelt(self, word: str) -> tuple[tuple[int, ...], ...] | None:
        """The word's tokens at each place, or its number among one-token answers; None if it cannot be an answer."""
        if not self.kind.any_length:
            (number,) = self.mixture.answer_space.numbers_of([word])
            return None if number is None else ((number,),)
        wording = self.mixture.lm.wording
        forms = tuple(tuple(wording.encode(word, place)) for place in self.mixture.answer_space.places)
        longest = len(self.kind.log_lengths) or self.kind.longest
        fits = all(0 < len(tokens) <= longest and wording.unknown_id not in tokens for tokens in forms)
        return forms if fits else None
