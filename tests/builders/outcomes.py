"""Outcomes made by hand."""

from collections.abc import Mapping, Sequence
from typing import Any

from askwell.evaluation.comparison import Difference
from askwell.evaluation.knowledge import Knowledge, knowledge
from askwell.evaluation.outcomes import Outcome


def outcome(
    x: str,
    y: str = "y",
    rank: float = 1.0,
    *,
    relation: str = "r",
    golds: tuple[str, ...] = (),
    raw_rank: float | None = None,
    log_probability: float = -1.0,
    answers: Mapping[str, float] | None = None,
) -> Outcome:
    """What a mixture made of a fact; unless answers are given, the best is y if its rank is 1, and z otherwise."""
    answers = answers or {y if rank == 1 else "z": 0.5}
    return Outcome(
        relation=relation,
        x=x,
        y=y,
        golds=golds or (y,),
        rank=float(rank),
        raw_rank=float(rank if raw_rank is None else raw_rank),
        log_probability=log_probability,
        answers=tuple(answers),
        probabilities=tuple(answers.values()),
    )


def run(ranks: Mapping[str, float], relation: str = "r") -> list[Outcome]:
    """A run of one relation: the rank of each x's y, which is always the same word."""
    return [outcome(x, rank=rank, relation=relation) for x, rank in ranks.items()]


def run_of_distinct_ys(
    ranks: Sequence[float], relation: str = "r", confidences: Sequence[float] | None = None
) -> list[Outcome]:
    """A run of one relation: the rank of y0 for x0, of y1 for x1, and so on, and how probable the best answers are."""
    made = []
    for number, (rank, p) in enumerate(zip(ranks, confidences or [0.5] * len(ranks), strict=True)):
        y = f"y{number}"
        made.append(outcome(f"x{number}", y, rank, relation=relation, answers={y if rank == 1 else "z": p}))
    return made


def knowledge_over(outcomes: Any, controls: Any, **options: Any) -> Knowledge:
    """The gain over the best of some controls."""
    found = knowledge(outcomes, controls, **options)
    assert found is not None
    return found


def interval(found: Difference | Knowledge) -> tuple[float, float]:
    """The interval of a difference or gain that has one."""
    assert found.low is not None
    assert found.high is not None
    return found.low, found.high
