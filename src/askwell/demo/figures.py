"""The demo's figures: for each way to ask and each relation, which test facts were answered right."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from scipy.stats import fisher_exact

from askwell.comparison.sign_test import sign_test
from askwell.demo.prior import answered_by_frequency
from askwell.demo.run import RunResult
from askwell.facts import Fact, Relation
from askwell.testbed.world import told

Kind = Literal["told", "withheld"]
KINDS: tuple[Kind, ...] = ("told", "withheld")
PRIOR = "most-frequent"
"""The name of a way to answer that asks no LM: train's most frequent y."""
_CHANCE = 0.05


Verdict = Literal["better", "worse", "unclear"]


@dataclass(frozen=True)
class Comparison:
    """One way to ask against another, on the same facts."""

    won: int
    """Facts that the first answers right and the second does not."""
    lost: int
    facts: int
    p: float
    """Of the two-sided sign test: how probable so uneven a result is if neither is better."""

    @property
    def verdict(self) -> Verdict:
        """Whether the first is better, as far as these facts can tell."""
        if self.p >= _CHANCE:
            return "unclear"
        return "better" if self.won > self.lost else "worse"


@dataclass(frozen=True)
class Figures:
    """Which facts were answered right, by whom."""

    right: Mapping[str, Mapping[str, Mapping[Fact, bool]]]
    """By method and relation; all methods have the same facts of a relation."""
    told: Mapping[str, frozenset[Fact]]
    """By relation: the facts that the LM's text tells. All others are withheld."""
    left_out: Mapping[str, int]
    """By relation: test facts that some method could not be asked."""

    @property
    def relations(self) -> tuple[str, ...]:
        """The relations' names."""
        return tuple(self.told)

    def facts(self, relation: str, kind: Kind) -> list[Fact]:
        """The facts of one kind that were asked."""
        asked = next(iter(self.right.values()))[relation]
        return [fact for fact in asked if (fact in self.told[relation]) == (kind == "told")]

    def p_at_1(self, method: str, relation: str, kind: Kind) -> float | None:
        """The share of facts answered right, in per cent; None if there are none."""
        facts = self.facts(relation, kind)
        return 100 * sum(self.right[method][relation][fact] for fact in facts) / len(facts) if facts else None

    def macro(self, method: str, kind: Kind) -> float | None:
        """The mean of the relations' shares, over those that have facts of the kind."""
        shares = [self.p_at_1(method, relation, kind) for relation in self.relations]
        there = [share for share in shares if share is not None]
        return sum(there) / len(there) if there else None

    def count_right(self, method: str, kind: Kind) -> int:
        """How many facts were answered right, over all relations."""
        return sum(
            self.right[method][relation][fact] for relation in self.relations for fact in self.facts(relation, kind)
        )

    def told_against_withheld(self, method: str) -> Verdict:
        """Whether a method does better on told facts: over all facts (Fisher's exact test) and in the macro mean."""
        counts = {kind: sum(len(self.facts(relation, kind)) for relation in self.relations) for kind in KINDS}
        right = {kind: self.count_right(method, kind) for kind in KINDS}
        told, withheld = (self.macro(method, kind) for kind in KINDS)
        if told is None or withheld is None:
            return "unclear"
        test = fisher_exact([[right[kind], counts[kind] - right[kind]] for kind in KINDS])
        gap = right["told"] / counts["told"] - right["withheld"] / counts["withheld"]
        if float(test.pvalue) >= _CHANCE or gap * (told - withheld) <= 0:
            return "unclear"
        return "better" if gap > 0 else "worse"

    def compare(self, first: str, second: str, kind: Kind, relation: str | None = None) -> Comparison:
        """Two methods fact by fact, in one relation or in all of them."""
        pairs = [
            (self.right[first][name][fact], self.right[second][name][fact])
            for name in ([relation] if relation else self.relations)
            for fact in self.facts(name, kind)
        ]
        won, lost = pairs.count((True, False)), pairs.count((False, True))
        return Comparison(won, lost, len(pairs), sign_test(won, lost))


def figures_of(results: Iterable[RunResult]) -> Figures:
    """The figures of all runs, and of the most frequent y, on the facts that every method was asked."""
    right: dict[str, dict[str, dict[Fact, bool]]] = {}
    facts: dict[str, Relation] = {}
    train_ys: dict[str, tuple[str, ...]] = {}
    for result in results:
        facts[result.run.relation], train_ys[result.run.relation] = result.run.facts, result.train_ys
        answered = {Fact(outcome.x, outcome.y): outcome.rank <= 1 for outcome in result.outcomes}
        right.setdefault(result.run.method.name, {})[result.run.relation] = answered
    for relation in facts:
        everywhere = frozenset.intersection(*(frozenset(of_method[relation]) for of_method in right.values()))
        for of_method in right.values():
            of_method[relation] = {fact: hit for fact, hit in of_method[relation].items() if fact in everywhere}
    asked = next(iter(right.values()))
    right[PRIOR] = {
        name: answered_by_frequency(train_ys[name], relation.golds, asked[name]) for name, relation in facts.items()
    }
    left_out = {name: len(frozenset(relation.test)) - len(asked[name]) for name, relation in facts.items()}
    return Figures(right, {name: told(name) for name in facts}, left_out)
