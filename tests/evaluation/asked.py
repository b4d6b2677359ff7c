"""Outcomes made by hand."""

from askwell.evaluation.outcomes import Outcome


def outcome(
    x: str,
    y: str,
    rank: float = 1.0,
    *,
    relation: str = "r",
    golds: tuple[str, ...] = (),
    raw_rank: float | None = None,
    log_probability: float = -1.0,
    answers: dict[str, float] | None = None,
) -> Outcome:
    answers = answers or {"?": 0.5}
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
