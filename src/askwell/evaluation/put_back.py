"""What single vectors are worth: the mixture is asked again with one of them where it started, all else as it is."""

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from askwell.data.facts import Fact
from askwell.errors import BadOption
from askwell.mixture.mixture import Mixture


@dataclass(frozen=True)
class PutBack:
    """The mean of log p(y | x, r) over some facts, and how it changes when vectors are put back to their start."""

    facts: int
    log_probability: float
    changes: tuple[float, ...]
    """For each group of vectors: the mean with these at their start, minus the mean as it is."""


@torch.no_grad()
def put_back(
    mixture: Mixture,
    facts: Sequence[Fact],
    groups: Sequence[Sequence[int]],
    progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> PutBack:
    """Ask about the facts with each group of rows of `mixture.vectors` at its start in turn, also in deeper layers.

    Facts that the mixture cannot answer, or gives no probability at all, are left out.
    """
    encoded, _ = mixture.encode(facts)
    answers = mixture.answering(kind=encoded.kind)
    encoded, _ = answers.choose(encoded)
    if not len(encoded):
        raise BadOption("put_back: the mixture can be asked about none of these facts")
    batches = encoded.rows.split(answers.facts_at_once(encoded))

    def asked() -> torch.Tensor:
        return torch.cat([answers.likelihood(encoded, rows).total for rows in batches]).double()

    as_it_is = asked()
    known, changes = as_it_is.isfinite(), []
    for done, rows in enumerate(groups):
        with _at_start(mixture, rows):
            changes.append(float((asked() - as_it_is)[known].mean()))
        progress(done + 1, len(groups))
    return PutBack(int(known.sum()), float(as_it_is[known].mean()), tuple(changes))


@contextmanager
def _at_start(mixture: Mixture, rows: Sequence[int]) -> Generator[None]:
    """Put vectors back to their start, and in the end to where they were."""
    deltas = [delta for layers in mixture.layer_deltas.values() for delta in layers]
    starts = [mixture.initial_vectors, *map(torch.zeros_like, deltas)]
    tuned, at = [mixture.vectors, *deltas], list(rows)
    kept = [one[at].clone() for one in tuned]
    try:
        for one, start in zip(tuned, starts, strict=True):
            one[at] = start[at]
        yield
    finally:
        for one, values in zip(tuned, kept, strict=True):
            one[at] = values
