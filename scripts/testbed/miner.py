"""Mines templates: the sentences in which the x and the y of a fact occur together, with blanks for both.

This is the mining of LPAQA (Jiang et al. 2020) for short sentences: the whole sentence becomes the template.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from askwell.data.facts import Fact


@dataclass(frozen=True)
class Mined:
    """A template that was found, and how well it did."""

    template: str
    count: int
    """How many (sentence, fact) pairs have this form."""
    precision: float
    """Of the places where the template occurs with some x of the facts, the fraction with a right y."""
    weight: float
    """count × precision, normalised over the templates that were kept."""


class _Spot(NamedTuple):
    """A name in a sentence: words[start:end]."""

    start: int
    end: int
    name: str


def mine(sentences: Iterable[str], facts: Iterable[Fact], keep: int, least: int = 2) -> list[Mined]:
    """The `keep` templates with the greatest weights among those that occur at least `least` times, heaviest first.

    The words of a sentence are separated by single spaces; a name is found where all of its words occur.
    """
    ys: dict[str, set[str]] = {}
    for fact in facts:
        ys.setdefault(fact.x, set()).add(fact.y)
    names_x = _Names(ys)

    with_x: list[tuple[list[str], list[_Spot]]] = []
    hits: Counter[str] = Counter()
    for sentence in sentences:
        words = sentence.split(" ")
        spots = names_x.spots(words)
        if spots:
            with_x.append((words, spots))
        for x in spots:
            right = [y for y in ys[x.name] if y in sentence]  # a quick look, before the words are compared
            if right:
                hits.update(_blank(words, x, y) for y in _Names(right).spots(words) if _apart(x, y))

    # Precision costs another pass over the sentences, so only frequent templates come that far.
    frequent = [template for template in _heaviest(hits, 3 * keep) if hits[template] >= least]
    places = _places(frequent, with_x, longest_y=_longest(y for those in ys.values() for y in those))
    precision = {template: hits[template] / places[template] for template in frequent}
    weights = {template: hits[template] * precision[template] for template in frequent}
    best = _heaviest(weights, keep)
    total = sum(weights[template] for template in best)
    return [Mined(template, hits[template], precision[template], weights[template] / total) for template in best]


class _Names:
    """Names to be found in sentences."""

    def __init__(self, names: Iterable[str]) -> None:
        self.names = frozenset(names)
        self.first_words = frozenset(name.partition(" ")[0] for name in self.names)
        self.longest = _longest(self.names)

    def spots(self, words: Sequence[str]) -> list[_Spot]:
        """All places where one of the names occurs."""
        return [
            _Spot(start, end, name)
            for start, word in enumerate(words)
            if word in self.first_words
            for end in range(start + 1, min(start + self.longest, len(words)) + 1)
            if (name := " ".join(words[start:end])) in self.names
        ]


def _longest(names: Iterable[str]) -> int:
    return max((name.count(" ") + 1 for name in names), default=0)


def _apart(one: _Spot, other: _Spot) -> bool:
    return one.end <= other.start or other.end <= one.start


def _blank(words: Sequence[str], x: _Spot, y: _Spot) -> str:
    (first, first_blank), (second, second_blank) = sorted([(x, "[X]"), (y, "[Y]")])
    between = words[first.end : second.start]
    return " ".join([*words[: first.start], first_blank, *between, second_blank, *words[second.end :]])


def _places(
    templates: Iterable[str], with_x: Iterable[tuple[Sequence[str], Sequence[_Spot]]], longest_y: int
) -> Counter[str]:
    """In how many places each template occurs with one of the spots at [X] and at most `longest_y` words at [Y]."""
    # By length and by where the blanks are: few templates are left to compare with a sentence.
    of_shape: dict[tuple[int, int, int], set[str]] = {}
    for template in templates:
        form = template.split(" ")
        of_shape.setdefault((len(form), form.index("[X]"), form.index("[Y]")), set()).add(template)
    shapes = sorted(of_shape)
    places: Counter[str] = Counter()
    for words, spots in with_x:
        for x in spots:
            length_x = x.end - x.start
            for shape in shapes:
                length, at_x, at_y = shape
                length_y = len(words) - length - length_x + 2
                if not 1 <= length_y <= longest_y or x.start != at_x + (length_y - 1 if at_y < at_x else 0):
                    continue
                start_y = at_y + (length_x - 1 if at_x < at_y else 0)
                template = _blank(words, x, _Spot(start_y, start_y + length_y, ""))
                places[template] += template in of_shape[shape]
    return places


def _heaviest(weights: Mapping[str, int | float], most: int) -> list[str]:
    """The heaviest first; equal ones by their text, so that the order of sentences does not matter."""
    return sorted(weights, key=lambda template: (-weights[template], template))[:most]
