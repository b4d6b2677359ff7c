"""The schedule of a training run: which facts each step takes, how large it is, and when dev is scored."""

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from askwell.specs.training import TrainingSpec

_PAIRS = 2000
STRETCHES = 8
"""A cycle is cut into so many stretches; after each the run can be interrupted and go on."""
WARM_UP = 0.1
"""The fraction of the cycle in which the step size grows."""
_PAIRS_OF_STEP = 32
_PAPER_EPOCHS, _PAPER_PATIENCE, _PAPER_FACTS = 16, 4, 64


@dataclass(frozen=True)
class Schedule:
    """The steps of a run, in stretches."""

    facts: int
    """Training facts."""
    prompts: int
    batch: int
    """Facts of a step; the last step of an epoch takes what is left."""
    ends: tuple[int, ...]
    """The number of steps done at the end of each stretch."""
    score_every: int
    """Dev is scored after every so many stretches."""
    patience: int | None
    """Stop after so many dev scores without a better one; None: never."""
    is_cycle: bool
    seed: int

    @property
    def steps(self) -> int:
        """Steps of the whole run, at most."""
        return self.ends[-1] if self.ends else 0

    @property
    def pairs(self) -> int:
        """(fact, prompt) pairs of the whole run, at most."""
        return self.pairs_after(len(self.ends))

    def pairs_after(self, stretches: int) -> int:
        """(fact, prompt) pairs of so many stretches."""
        steps = self.ends[stretches - 1] if stretches else 0
        epochs, left = divmod(steps, self._steps_of_epoch)
        return (epochs * self.facts + min(left * self.batch, self.facts)) * self.prompts

    @property
    def drop_after(self) -> int:
        """The number of stretches after which prompts may be dropped: a third of the run."""
        return ceil(len(self.ends) / 3)

    def scores_dev(self, stretches: int) -> bool:
        """Whether dev is scored when so many stretches are done."""
        return stretches % self.score_every == 0 or stretches == len(self.ends)

    def batches(self, stretch: int) -> Iterator[tuple[Int[Tensor, " facts"], float]]:
        """The facts of each step of a stretch, and the fraction of the largest step size that it takes."""
        order, order_of = torch.empty(0, dtype=torch.long), -1
        for step in range(self.ends[stretch - 1] if stretch else 0, self.ends[stretch]):
            epoch, place = divmod(step, self._steps_of_epoch)
            if epoch != order_of:
                order = torch.from_numpy(np.random.default_rng([self.seed, epoch]).permutation(self.facts))
                order_of = epoch
            yield order[place * self.batch : (place + 1) * self.batch], self._fraction(step)

    @property
    def _steps_of_epoch(self) -> int:
        return ceil(self.facts / self.batch)

    def _fraction(self, step: int) -> float:
        if not self.is_cycle or self.steps == 1:
            return 1.0
        return warm_up_and_decay(step, self.steps, peak=WARM_UP * self.steps)


def warm_up_and_decay(step: int, steps: int, *, peak: float | int) -> float:
    """The fraction of the largest step size that a step takes: up in a straight line for `peak` steps, then down in one
    that ends at 0 after all steps."""
    warm_up = (step + 1) / peak
    return min(warm_up, (steps - step) / (steps - peak)) if steps > peak else warm_up


def default_pairs(prompts: int) -> int:
    """The cycle's budget, if none is given: 4,000 pairs for one prompt, which must be good by itself, down to 2,000 for
    many, of which some are good from the start."""
    return round(_PAIRS * (1 + 1 / prompts))


def schedule_of(
    spec: TrainingSpec, *, facts: int, dev_facts: int, prompts: int, seed: int, pairs: int | None = None
) -> Schedule:
    """The schedule for so many facts and prompts; `pairs` is the budget, where it was measured from minutes."""
    batch = spec.batch_facts
    if spec.recipe == "paper":
        batch = batch or _PAPER_FACTS
        epochs = _PAPER_EPOCHS if spec.epochs is None else spec.epochs
        ends = tuple(ceil(facts / batch) * epoch for epoch in range(1, epochs + 1))
        return Schedule(facts, prompts, batch, ends, 1, spec.patience or _PAPER_PATIENCE, is_cycle=False, seed=seed)
    batch = min(batch or max(1, round(_PAIRS_OF_STEP / prompts)), facts)
    passes = (pairs or spec.pairs or default_pairs(prompts)) / (facts * prompts) if spec.epochs is None else spec.epochs
    steps = max(1, round(passes * ceil(facts / batch))) if passes else 0
    ends = tuple(sorted({round(steps * stretch / STRETCHES) for stretch in range(1, STRETCHES + 1)} - {0}))
    # Dev is scored as often as all scores together cost no more than the training itself.
    scores = max(1, min(STRETCHES, int(passes * facts / max(1, dev_facts))))
    return Schedule(facts, prompts, batch, ends, ceil(STRETCHES / scores), None, is_cycle=True, seed=seed)
