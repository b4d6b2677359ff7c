"""The demo's figures: for each way to ask and each relation, which test facts were answered right.

What was found, in plain sentences. Each is chosen by the figures and says no more than they do.

Some questions with the answers to them, drawn by lot from the test facts and not by how well they were answered.
"""

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from scipy.stats import fisher_exact

from askwell.data.facts import Fact, Relation
from askwell.data.testbed import told
from askwell.demo.results import DEEP, MANUAL, MINED, MIXTURE, RANDOM, SINGLE, RunResult, answered_by_frequency
from askwell.evaluation.outcomes import Outcome
from askwell.evaluation.significance import sign_test

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
        """What everyone should know, in the order in which it is best read."""
        return (*self.tuning, *self.withheld, *self.variants)


def findings_of(figures: Figures, results: Iterable[RunResult], lm: str) -> Findings:
    """The findings of a demo on this LM."""
    return Findings(
        tuning=tuple(_on_tuning(figures, lm)),
        variants=tuple(_on_variants(figures)),
        withheld=tuple(_on_withheld(figures)),
        elicited=tuple(_on_relation(figures, relation) for relation in figures.relations),
        learning=tuple(_on_learning([result for result in results if result.run.method == MIXTURE])),
    )


def _on_tuning(figures: Figures, lm: str) -> list[str]:
    hard, soft = figures.macro(MANUAL.name, "told"), figures.macro(MIXTURE.name, "told")
    if hard is None or soft is None:
        return ["No told fact was asked, so nothing can be said of what tuning elicits."]
    comparison = figures.compare(MIXTURE.name, MANUAL.name, "told")
    sentences = [
        f"Asked with a hand-written prompt, {lm} gets {hard:.1f} % of the told facts right{_averaged(figures)}; asked "
        f"with a tuned mixture of soft prompts, {soft:.1f} %. {_fact_by_fact(comparison, 'the mixture', 'told')}"
    ]
    if len(figures.relations) > 1:
        sentences.append(_by_relation(figures))
    return sentences


def _by_relation(figures: Figures) -> str:
    """For which relations tuning helped, made no clear difference, or did harm."""
    groups: dict[str, list[str]] = {"better": [], "unclear": [], "worse": []}
    for relation in figures.relations:
        hard, soft = (figures.p_at_1(method.name, relation, "told") for method in (MANUAL, MIXTURE))
        if hard is not None and soft is not None:
            verdict = figures.compare(MIXTURE.name, MANUAL.name, "told", relation).verdict
            groups[verdict].append(f"{relation} ({hard:.1f} → {soft:.1f})")
    begin = {
        "better": "helped clearly for",
        "unclear": "made no clear difference for",
        "worse": "did harm for",
    }
    told = [f"{begin[verdict]} {_listed(names)}" for verdict, names in groups.items() if names]
    return f"Relation by relation, on told facts, tuning {'; it '.join(told)}."


def _on_variants(figures: Figures) -> list[str]:
    """How the mixture stands against other ways to ask; those that make no clear difference share a sentence."""
    clear, unclear = [], []
    for first, second, one, other in (
        (MIXTURE, MINED, "the tuned mixture", "the hard prompts mined from the text"),
        (SINGLE, MIXTURE, "a single soft prompt", "the mixture"),
        (DEEP, MIXTURE, "tuning all layers", "tuning the first alone"),
        (RANDOM, MIXTURE, "beginning with random vectors", "beginning with words"),
    ):
        comparison = figures.compare(first.name, second.name, "told")
        if not comparison.facts:
            continue
        counts = f"{figures.count_right(first.name, 'told')} against {figures.count_right(second.name, 'told')}"
        if comparison.verdict == "unclear":
            unclear.append(f"{one} does not differ clearly from {other} ({counts})")
        else:
            clear.append(
                f"{one[0].upper()}{one[1:]} does {comparison.verdict} than {other}: {counts} of {comparison.facts} "
                f"told facts right ({_p(comparison.p)})."
            )
    facts = sum(len(figures.facts(relation, "told")) for relation in figures.relations)
    return clear + ([f"As far as {facts} told facts can tell, {_listed(unclear)}."] if unclear else [])


def _on_relation(figures: Figures, relation: str) -> str:
    told, withheld = (figures.p_at_1(MIXTURE.name, relation, kind) for kind in KINDS)
    counts = [len(figures.facts(relation, kind)) for kind in KINDS]
    prior = figures.p_at_1(PRIOR, relation, "withheld")
    if told is None or withheld is None or prior is None:
        kind = "told" if told is None else "withheld"
        return f"{relation}: no {kind} fact was asked."
    comparison = figures.compare(MIXTURE.name, PRIOR, "withheld", relation)
    guess = {
        "better": f"more than the {prior:.1f} % that the most frequent answer gets: it guesses by more than that",
        "worse": f"less than the {prior:.1f} % that the most frequent answer gets",
        "unclear": f"not clearly other than the {prior:.1f} % that the most frequent answer gets",
    }[comparison.verdict]
    return (
        f"{relation}: the mixture gets {told:.1f} % of {counts[0]} told facts right and {withheld:.1f} % of "
        f"{counts[1]} withheld ones, {guess}."
    )


def _on_withheld(figures: Figures) -> list[str]:
    soft, hard = figures.macro(MIXTURE.name, "withheld"), figures.macro(MANUAL.name, "withheld")
    prior, told = figures.macro(PRIOR, "withheld"), figures.macro(MIXTURE.name, "told")
    if soft is None or hard is None or prior is None:
        return ["No withheld fact was asked, so nothing can be said of what a prior gives."]
    sentences = [
        "Withheld facts stand nowhere in the LM's text and follow from nothing in it, so a right answer there is a "
        f"guess, not knowledge. The tuned mixture guesses {soft:.1f} % of them, the hand-written prompt {hard:.1f} %, "
        f"and always giving the most frequent answer of the training facts {prior:.1f} %{_averaged(figures)}."
    ]
    if told is not None:
        difference = f"{told:.1f} % of told facts against {soft:.1f} % of withheld ones"
        sentences.append(
            {
                "better": f"The mixture gets {difference} right: the {told - soft:.1f} points between them it owes to "
                "what the LM was told, the rest may be guesses.",
                "worse": f"The mixture does worse on told facts than on withheld ones ({difference}): what it gets "
                "right may all be guesses.",
                "unclear": f"The mixture does not clearly do better on told facts than on withheld ones "
                f"({difference}): what it gets right may all be guesses.",
            }[figures.told_against_withheld(MIXTURE.name)]
        )
    tuned = figures.compare(MIXTURE.name, MANUAL.name, "withheld")
    sentences.append(
        {
            "better": "Tuning raises the withheld facts, too, which cannot be knowledge: a better prompt also "
            "guesses better.",
            "worse": "Tuning lowers the withheld facts.",
            "unclear": "Tuning makes no clear difference to the withheld facts.",
        }[tuned.verdict]
        + f" {_fact_by_fact(tuned, 'the mixture', 'withheld')}"
    )
    return sentences


def _on_learning(mixtures: Sequence[RunResult]) -> list[str]:
    """After how much training most of the gain on dev was there."""
    gained, not_gained = [], []
    for result in mixtures:
        scores = [(record["pairs"], record["dev"]["P@1"]) for record in result.history]
        first, best = scores[0][1], max(score for _, score in scores)
        if best > first:
            enough = next(pairs for pairs, score in scores if score >= first + 0.9 * (best - first))
            gained.append(f"{result.run.relation} {enough}")
        else:
            not_gained.append(result.run.relation)
    sentences = []
    if gained:
        sentences.append(
            "The mixture had nine tenths of its gain in dev P@1 after so many (fact, prompt) pairs: "
            f"{_listed(gained)}, of at most {max(result.history[-1]['pairs'] for result in mixtures)}."
        )
    if not_gained:
        sentences.append(f"On dev, tuning the mixture did not raise P@1 for {_listed(not_gained)}.")
    return sentences


def _fact_by_fact(comparison: Comparison, who: str, kind: Kind) -> str:
    """The wins and losses against the hand-written prompt, and whether chance explains them."""
    if comparison.won == comparison.lost == 0:
        return f"Fact by fact, {comparison.facts} {kind} facts come out the same."
    chance = "chance could explain that" if comparison.verdict == "unclear" else "chance does not explain that"
    return (
        f"Of {comparison.facts} {kind} facts, {who} answers {comparison.won} that the hand-written prompt misses, and "
        f"misses {comparison.lost} that it answers; {chance} (sign test, {_p(comparison.p)})."
    )


def _averaged(figures: Figures) -> str:
    count = len(figures.relations)
    return f" (the mean over {count} relations)" if count > 1 else ""


def _p(p: float) -> str:
    return "p < 0.001" if p < 0.001 else f"p = {p:.3f}" if p < 0.1 else f"p = {p:.2f}"


def _listed(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


QUESTIONS: Mapping[Kind, int] = {"told": 3, "withheld": 2}
"""How many are drawn for each relation."""


@dataclass(frozen=True)
class Answer:
    """The most probable answer to a question."""

    text: str
    probability: float
    right: bool


@dataclass(frozen=True)
class Question:
    """An x, and what hard and soft prompts answer."""

    relation: str
    x: str
    golds: tuple[str, ...]
    kind: Kind
    hard: Answer
    """Of the hand-written prompt."""
    soft: Answer
    """Of the tuned mixture."""


def draw_questions(results: Iterable[RunResult], seed: int) -> list[Question]:
    """A few questions for each relation, about x's whose golds are all told or all withheld."""
    outcomes: dict[str, dict[str, dict[str, Outcome]]] = {}
    for result in results:
        if result.run.method in (MANUAL, MIXTURE):
            by_x = {outcome.x: outcome for outcome in result.outcomes}
            outcomes.setdefault(result.run.relation, {})[result.run.method.name] = by_x
    questions = []
    for relation, by_method in outcomes.items():
        hard, soft = by_method[MANUAL.name], by_method[MIXTURE.name]
        for kind in KINDS:
            xs = sorted(x for x in hard.keys() & soft.keys() if _kinds_of(relation, hard[x]) == {kind})
            drawn = random.Random(f"{seed} {relation} {kind}").sample(xs, min(len(xs), QUESTIONS[kind]))
            questions += [Question(relation, x, hard[x].golds, kind, _answer(hard[x]), _answer(soft[x])) for x in drawn]
    return questions


def _kinds_of(relation: str, outcome: Outcome) -> set[Kind]:
    return {"told" if Fact(outcome.x, gold) in told(relation) else "withheld" for gold in outcome.golds}


def _answer(outcome: Outcome) -> Answer:
    return Answer(outcome.answers[0], outcome.probabilities[0], outcome.answers[0] in outcome.golds)
