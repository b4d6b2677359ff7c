"""Outcomes made by hand."""

import math

from askwell.evaluation.outcomes import Outcome


def outcome(
    x: str, rank: float, *, y: str = "y", relation: str = "r", log_probability: float = -1.0, best: str = "z"
) -> Outcome:
    return Outcome(
        relation=relation,
        x=x,
        y=y,
        golds=(y,),
        rank=float(rank),
        raw_rank=float(rank),
        log_probability=log_probability,
        answers=(y if rank == 1 else best,),
        probabilities=(math.exp(log_probability),),
    )


def run(ranks: dict[str, float], relation: str = "r") -> list[Outcome]:
    """A run of one relation: the rank of each x's y."""
    return [outcome(x, rank, relation=relation) for x, rank in ranks.items()]
