"""Told and withheld facts of the testbed: what each method of the demo gets right, compared and put into words.

Each sentence is chosen by the figures and says no more than they do.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from scipy.stats import fisher_exact

from askwell.data.facts import Fact
from askwell.evaluation.significance import sign_test

FactKind = Literal["told", "withheld"]
FACT_KINDS: tuple[FactKind, ...] = ("told", "withheld")
MANUAL, PARAPHRASED, MINED = "manual", "paraphrased", "mined"
SINGLE, MIXTURE, DEEP, RANDOM = "soft-single", "soft-mixture", "deep-mixture", "random-mixture"
MOST_FREQUENT = "most-frequent"
"""A method that asks no LM: the most frequent y of train."""
_CHANCE = 0.05

Verdict = Literal["better", "worse", "unclear"]


@dataclass(frozen=True)
class Comparison:
    """One method against another, on the same facts."""

    won: int
    """Facts that the first answers right and the second does not."""
    lost: int
    facts: int
    p: float
    """Of the two-sided sign test: the probability of so uneven a result if neither is better."""

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

    @property
    def relations(self) -> tuple[str, ...]:
        """The relations' names."""
        return tuple(self.told)

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

    def compare(self, first: str, second: str, kind: FactKind, relation: str | None = None) -> Comparison:
        """Two methods fact by fact, in one relation or in all of them."""
        facts = self.facts(kind, relation)
        pairs = [(self.right[first][name][fact], self.right[second][name][fact]) for name, fact in facts]
        won, lost = pairs.count((True, False)), pairs.count((False, True))
        return Comparison(won, lost, len(pairs), sign_test(won, lost))


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
    return Findings(
        tuning=tuple(_on_tuning(figures, lm)),
        variants=tuple(_on_variants(figures)),
        withheld=tuple(_on_withheld(figures)),
        elicited=tuple(_on_relation(figures, relation) for relation in figures.relations),
        learning=tuple(_on_learning(curves)),
    )


def _on_tuning(figures: ToldFigures, lm: str) -> list[str]:
    hard, soft = figures.macro(MANUAL, "told"), figures.macro(MIXTURE, "told")
    if hard is None or soft is None:
        return ["No told facts were asked, so nothing can be said about what tuning elicits."]
    sentences = [
        f"Asked with a hand-written prompt, {lm} gets {hard:.1f} % of the told facts right{_averaged(figures)}; asked "
        f"with a tuned mixture of soft prompts, {soft:.1f} %. {_fact_by_fact(figures, 'told')}"
    ]
    if len(figures.relations) > 1:
        sentences.append(_by_relation(figures))
    return sentences


def _by_relation(figures: ToldFigures) -> str:
    """For which relations tuning helped, made no clear difference, or did harm."""
    groups: dict[str, list[str]] = {"better": [], "unclear": [], "worse": []}
    for relation in figures.relations:
        hard, soft = (figures.p_at_1(method, relation, "told") for method in (MANUAL, MIXTURE))
        if hard is not None and soft is not None:
            verdict = figures.compare(MIXTURE, MANUAL, "told", relation).verdict
            groups[verdict].append(f"{relation} ({hard:.1f} → {soft:.1f})")
    begin = {"better": "clearly helped", "unclear": "made no clear difference to", "worse": "hurt"}
    told = [f"{begin[verdict]} {_listed(names)}" for verdict, names in groups.items() if names]
    return f"Relation by relation, on told facts, tuning {'; it '.join(told)}."


def _on_variants(figures: ToldFigures) -> list[str]:
    """How the mixture compares with other methods; those that make no clear difference share a sentence."""
    clear, unclear = [], []
    for first, second, one, other in (
        (MIXTURE, MINED, "the tuned mixture", "the hard prompts mined from the text"),
        (SINGLE, MIXTURE, "a single soft prompt", "the mixture"),
        (DEEP, MIXTURE, "tuning all layers", "tuning the first alone"),
        (RANDOM, MIXTURE, "starting from random vectors", "starting from words"),
    ):
        comparison = figures.compare(first, second, "told")
        if not comparison.facts:
            continue
        counts = f"{figures.count_right(first, 'told')} against {figures.count_right(second, 'told')}"
        if comparison.verdict == "unclear":
            unclear.append(f"{one} does not differ clearly from {other} ({counts})")
        else:
            clear.append(
                f"{one[0].upper()}{one[1:]} does {comparison.verdict} than {other}: {counts} of {comparison.facts} "
                f"told facts right ({_p(comparison.p)})."
            )
    facts = len(figures.facts("told"))
    return clear + ([f"As far as {facts} told facts can tell, {_listed(unclear)}."] if unclear else [])


def _on_relation(figures: ToldFigures, relation: str) -> str:
    told, withheld = (figures.p_at_1(MIXTURE, relation, kind) for kind in FACT_KINDS)
    prior = figures.p_at_1(MOST_FREQUENT, relation, "withheld")
    if told is None or withheld is None or prior is None:
        return f"{relation}: no {'told' if told is None else 'withheld'} facts were asked."
    guess = {
        "better": f"more than the {prior:.1f} % from always giving the most frequent answer; it guesses better",
        "worse": f"less than the {prior:.1f} % from always giving the most frequent answer",
        "unclear": f"not clearly different from the {prior:.1f} % from always giving the most frequent answer",
    }[figures.compare(MIXTURE, MOST_FREQUENT, "withheld", relation).verdict]
    counts = [len(figures.facts(kind, relation)) for kind in FACT_KINDS]
    return (
        f"{relation}: the mixture gets {told:.1f} % of {counts[0]} told facts right and {withheld:.1f} % of "
        f"{counts[1]} withheld ones, {guess}."
    )


def _on_withheld(figures: ToldFigures) -> list[str]:
    soft, hard = figures.macro(MIXTURE, "withheld"), figures.macro(MANUAL, "withheld")
    prior, told = figures.macro(MOST_FREQUENT, "withheld"), figures.macro(MIXTURE, "told")
    if soft is None or hard is None or prior is None:
        return ["No withheld facts were asked, so nothing can be said about guessing."]
    sentences = [
        "Withheld facts appear nowhere in the LM's text and follow from nothing in it, so a right answer there is a "
        f"guess, not knowledge. The tuned mixture guesses {soft:.1f} % of them right, the hand-written prompt "
        f"{hard:.1f} %, and always giving the most frequent answer of the training facts {prior:.1f} %"
        f"{_averaged(figures)}."
    ]
    if told is not None:
        difference = f"{told:.1f} % of told facts against {soft:.1f} % of withheld ones"
        sentences.append(
            {
                "better": f"The mixture gets {difference} right: it owes the {told - soft:.1f} points between them to "
                "what the LM was told; the rest may be guesses.",
                "worse": f"The mixture does worse on told facts than on withheld ones ({difference}): everything it "
                "gets right may be a guess.",
                "unclear": f"The mixture is not clearly better on told facts than on withheld ones ({difference}): "
                "everything it gets right may be a guess.",
            }[figures.told_against_withheld(MIXTURE)]
        )
    change = {
        "better": "Tuning raises the score on withheld facts, too, which cannot be knowledge: a better prompt also "
        "guesses better.",
        "worse": "Tuning lowers the score on withheld facts.",
        "unclear": "Tuning makes no clear difference on withheld facts.",
    }[figures.compare(MIXTURE, MANUAL, "withheld").verdict]
    return [*sentences, f"{change} {_fact_by_fact(figures, 'withheld')}"]


def _on_learning(curves: Curves) -> list[str]:
    """How much training it took to make most of the gain on dev."""
    gained, not_gained = [], []
    for relation, curve in curves.items():
        first, best = curve[0][1], max(score for _, score in curve)
        if best > first:
            enough = next(pairs for pairs, score in curve if score >= first + 0.9 * (best - first))
            gained.append(f"{enough:.0f} for {relation}")
        else:
            not_gained.append(relation)
    sentences = []
    if gained:
        most = max(pairs for curve in curves.values() for pairs, _ in curve)
        sentences.append(
            "The number of (fact, prompt) pairs after which the mixture had made nine tenths of its gain in dev P@1 "
            f"was {_listed(gained)}, of at most {most:.0f}."
        )
    if not_gained:
        sentences.append(f"Tuning the mixture did not raise dev P@1 for {_listed(not_gained)}.")
    return sentences


def _fact_by_fact(figures: ToldFigures, kind: FactKind) -> str:
    """Where the mixture and the hand-written prompt differ, and whether chance explains that."""
    comparison = figures.compare(MIXTURE, MANUAL, kind)
    if comparison.won == comparison.lost == 0:
        return f"Fact by fact, both do the same on all {comparison.facts} {kind} facts."
    chance = "chance could explain that" if comparison.verdict == "unclear" else "chance does not explain that"
    return (
        f"Of {comparison.facts} {kind} facts, the mixture answers {comparison.won} that the hand-written prompt "
        f"misses, and misses {comparison.lost} that the prompt answers; {chance} (sign test, {_p(comparison.p)})."
    )


def _averaged(figures: ToldFigures) -> str:
    count = len(figures.relations)
    return f" (the mean over {count} relations)" if count > 1 else ""


def _p(p: float) -> str:
    return "p < 0.001" if p < 0.001 else f"p = {p:.3f}" if p < 0.1 else f"p = {p:.2f}"


def _listed(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
