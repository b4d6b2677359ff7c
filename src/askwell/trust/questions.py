"""Outcomes as questions: one for each x, with the best answer's probability and whether it is right."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float

from askwell.errors import UserMistake
from askwell.evaluation.evaluate import Outcome


@dataclass(frozen=True)
class Questions:
    """What was answered to some questions."""

    confidences: Float[np.ndarray, " questions"]
    """The probability of the best answer."""
    right: Bool[np.ndarray, " questions"]
    """Whether the best answer is right."""


def questions_of(outcomes: Sequence[Outcome]) -> Questions:
    """One question for each x of each relation, in the order in which they come.

    An x with several facts is asked once. Its best answer is right if it is a gold of any split, or if one of its
    facts has the raw rank 1 (an LM that lower-cases writes its answers otherwise than the facts).
    """
    by_x = outcomes_by_x(outcomes)
    if not by_x:
        raise UserMistake("there are no outcomes, and so no questions")
    return Questions(
        np.array([of_x[0].probabilities[0] for of_x in by_x]),
        np.array(
            [of_x[0].answers[0] in of_x[0].golds or any(outcome.raw_rank == 1 for outcome in of_x) for of_x in by_x]
        ),
    )


def outcomes_by_x(outcomes: Sequence[Outcome]) -> list[list[Outcome]]:
    """The outcomes of each x of each relation, in the order in which they come."""
    groups: dict[tuple[str, str], list[Outcome]] = {}
    for outcome in outcomes:
        groups.setdefault((outcome.relation, outcome.x), []).append(outcome)
    return list(groups.values())
