"""Told and withheld facts of the testbed: what each method of the demo gets right, compared and put into words."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Literal

from scipy.stats import fisher_exact

from askwell.data.facts import Fact
from askwell.evaluation.significance import sign_test
from askwell.views.to_html import sentences

FactKind = Literal["told", "withheld"]
FACT_KINDS: tuple[FactKind, ...] = ("told", "withheld")
MANUAL, SINGLE, MIXTURE, DEEP = "manual", "soft-single", "soft-mixture", "deep-mixture"
"""Methods of the demo that the code names; demo.toml has all of them."""
MOST_FREQUENT = "most-frequent"
"""A method that asks no LM: the most frequent y of train."""
_CHANCE = 0.05

Verdict = Literal["better", "worse", "unclear"]
Spelling = Literal["one token", "several tokens"]
SPELLINGS: tuple[Spelling, ...] = ("one token", "several tokens")
"""How an LM spells a y."""


@dataclass(frozen=True)
class MethodComparison:
    """One method against another, on the same facts."""

    won: int
    """Facts that the first answers right and the second does not."""
    lost: int
    facts: int
    p: float
    """The p-value of the two-sided sign test."""

    @property
    def verdict(self) -> Verdict:
        """Whether the first is better, as far as these facts show."""
        if self.p >= _CHANCE:
            return "unclear"
        return "better" if self.won > self.lost else "worse"


@dataclass(frozen=True)
class ToldFigures:
    """Which facts each method answers right."""

    right: Mapping[str, Mapping[str, Mapping[Fact, bool]]]
    """By method and relation; all methods have the same facts of a relation."""
    told: Mapping[str, frozenset[Fact]]
    """By relation: the facts that the LM's text tells. All others are withheld."""
    several_tokens: Mapping[str, frozenset[Fact]] = field(default_factory=dict)
    """By relation: the facts whose y the LM spells in several tokens."""

    @property
    def relations(self) -> tuple[str, ...]:
        """The relations' names."""
        return tuple(self.told)

    def as_json(self, method: str) -> dict[str, Any]:
        """The P@1 of a method by relation and kind of fact, and over all relations."""
        by_relation = {
            relation: {
                kind: {"P@1": self.p_at_1(method, relation, kind), "facts": len(self.facts(kind, relation))}
                for kind in FACT_KINDS
            }
            for relation in self.relations
        }
        return by_relation | {"macro": {kind: {"P@1": self.macro(method, kind)} for kind in FACT_KINDS}}

    def spelt(self, relation: str, kind: FactKind, spelling: Spelling) -> list[Fact]:
        """The facts of one kind that were asked and whose y the LM spells so."""
        several = self.several_tokens.get(relation, frozenset())
        is_wanted = spelling == "several tokens"
        return [fact for _, fact in self.facts(kind, relation) if (fact in several) == is_wanted]

    def p_at_1_spelt(self, method: str, relation: str, kind: FactKind, spelling: Spelling) -> float | None:
        """The percentage of such facts answered right; None if there are none."""
        facts = self.spelt(relation, kind, spelling)
        return 100 * sum(self.right[method][relation][fact] for fact in facts) / len(facts) if facts else None

    def lengths_as_json(self, method: str) -> dict[str, Any]:
        """The P@1 of a method by relation, kind of fact and how the LM spells y, where some y has several tokens."""
        return {
            relation: {
                kind: {
                    spelling: {
                        "P@1": self.p_at_1_spelt(method, relation, kind, spelling),
                        "facts": len(self.spelt(relation, kind, spelling)),
                    }
                    for spelling in SPELLINGS
                }
                for kind in FACT_KINDS
            }
            for relation in self.with_several_tokens
        }

    @property
    def with_several_tokens(self) -> tuple[str, ...]:
        """The relations in which the LM spells the y of a fact that was asked in several tokens."""
        return tuple(
            relation
            for relation in self.relations
            if any(self.spelt(relation, kind, "several tokens") for kind in FACT_KINDS)
        )

    def facts(self, kind: FactKind, relation: str | None = None) -> list[tuple[str, Fact]]:
        """The facts of one kind that were asked, for one relation or all of them, each with its relation."""
        asked = next(iter(self.right.values()))
        return [
            (name, fact)
            for name in ([relation] if relation else self.relations)
            for fact in asked[name]
            if (fact in self.told[name]) == (kind == "told")
        ]

    def count_right(self, method: str, kind: FactKind, relation: str | None = None) -> int:
        """How many of these facts a method answers right."""
        return sum(self.right[method][name][fact] for name, fact in self.facts(kind, relation))

    def p_at_1(self, method: str, relation: str, kind: FactKind) -> float | None:
        """The percentage of facts answered right; None if there are none."""
        count = len(self.facts(kind, relation))
        return 100 * self.count_right(method, kind, relation) / count if count else None

    def macro(self, method: str, kind: FactKind) -> float | None:
        """The mean of the relations' percentages, over those that have facts of the kind."""
        shares = [self.p_at_1(method, relation, kind) for relation in self.relations]
        there = [share for share in shares if share is not None]
        return sum(there) / len(there) if there else None

    def told_against_withheld(self, method: str) -> Verdict:
        """Whether a method does better on told facts: over all facts (Fisher's exact test) and in the macro mean."""
        counts = {kind: len(self.facts(kind)) for kind in FACT_KINDS}
        right = {kind: self.count_right(method, kind) for kind in FACT_KINDS}
        told, withheld = (self.macro(method, kind) for kind in FACT_KINDS)
        if told is None or withheld is None:
            return "unclear"
        test = fisher_exact([[right[kind], counts[kind] - right[kind]] for kind in FACT_KINDS])
        gap = right["told"] / counts["told"] - right["withheld"] / counts["withheld"]
        if float(test.pvalue) >= _CHANCE or gap * (told - withheld) <= 0:
            return "unclear"
        return "better" if gap > 0 else "worse"

    def compare(self, first: str, second: str, kind: FactKind, relation: str | None = None) -> MethodComparison:
        """Two methods fact by fact, in one relation or in all of them."""
        facts = self.facts(kind, relation)
        pairs = [(self.right[first][name][fact], self.right[second][name][fact]) for name, fact in facts]
        won, lost = pairs.count((True, False)), pairs.count((False, True))
        return MethodComparison(won, lost, len(pairs), sign_test(won, lost))


@dataclass(frozen=True)
class Findings:
    """The sentences, by what they are about."""

    tuning: tuple[str, ...]
    variants: tuple[str, ...]
    withheld: tuple[str, ...]
    elicited: tuple[str, ...]
    """Relation by relation, what the mixture gets right of told and of withheld facts."""
    learning: tuple[str, ...]

    @property
    def main(self) -> tuple[str, ...]:
        """The main findings, in the order in which they are best read."""
        return (*self.tuning, *self.withheld, *self.variants)


Curves = Mapping[str, Sequence[tuple[float, float]]]
"""By relation: pairs trained on, and dev P@1."""


def findings_of(figures: ToldFigures, curves: Curves, lm: str) -> Findings:
    """The findings on an LM; the curves are those of the mixture."""
    facts = {"figures": figures, "lm": lm, "by_verdict": _by_verdict(figures), **_learning(curves)}
    parts = (field.name for field in fields(Findings))
    return Findings(**{part: tuple(sentences("findings.txt.jinja", part=part, **facts)) for part in parts})


def _by_verdict(figures: ToldFigures) -> dict[Verdict, list[str]]:
    """The relations for which tuning clearly helped, made no clear difference, or hurt; empty for a single relation."""
    groups: dict[Verdict, list[str]] = {"better": [], "unclear": [], "worse": []}
    for relation in figures.relations if len(figures.relations) > 1 else ():
        hard, soft = (figures.p_at_1(method, relation, "told") for method in (MANUAL, MIXTURE))
        if hard is not None and soft is not None:
            verdict = figures.compare(MIXTURE, MANUAL, "told", relation).verdict
            groups[verdict].append(f"{relation} ({hard:.1f} → {soft:.1f})")
    return {verdict: names for verdict, names in groups.items() if names}


def _learning(curves: Curves) -> dict[str, Any]:
    """How much training it took to reach most of the gain on dev."""
    gained, not_gained = [], []
    for relation, curve in curves.items():
        first, best = curve[0][1], max(score for _, score in curve)
        if best > first:
            enough = next(pairs for pairs, score in curve if score >= first + 0.9 * (best - first))
            gained.append(f"{enough:.0f} for {relation}")
        else:
            not_gained.append(relation)
    most = max((pairs for curve in curves.values() for pairs, _ in curve), default=0.0)
    return {"gained": gained, "not_gained": not_gained, "most": most}
