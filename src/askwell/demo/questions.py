"""Some questions with the answers to them, drawn by lot from the test facts and not by how well they were answered."""

import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from askwell.demo.figures import KINDS, Kind
from askwell.demo.plan import MANUAL, MIXTURE
from askwell.demo.run import RunResult
from askwell.evaluation.evaluate import Outcome
from askwell.facts import Fact
from askwell.testbed.world import told

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
