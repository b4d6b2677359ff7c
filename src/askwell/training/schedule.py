"""The schedule of a training run: which facts each step takes, how large it is, when dev is scored, and when the run
is over."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import ceil, inf
from typing import Literal

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from askwell.specs.training import TrainingSpec
from askwell.training.result import HistoryLine, best_of, loss_or_inf

_PAIRS = 2000
STRETCHES = 8
"""A cycle is cut into this many stretches; after each the run can be interrupted and go on."""
WARM_UP = 0.1
"""The fraction of the cycle in which the step size grows."""
_PAIRS_OF_STEP = 32
_PAPER_EPOCHS, _PAPER_PATIENCE, _PAPER_FACTS = 16, 4, 64

PLATEAU_STEPS, PLATEAU_FACTS = 4, 16
"""A stretch of a run that ends by itself: this many steps, or enough for this many facts. The first one warms up."""
PLATEAU_PAIRS = 384
"""It ends when dev's log-loss has not fallen over this many pairs, or at one score where they are further apart."""
PLATEAU_FALL, _FALL_PAIRS = 0.16, 500
"""What counts as falling from one score to the next: this many nats per 1,000 pairs in between, of which at most
the second number count."""
PLATEAU_MEAN = 4.0
"""How much more the last steps count in the mean over steps: the mean age of what it holds is a sixth of the run."""
PLATEAU_SCORES = 12
"""Where fewer dev scores than this fit into the limit, there is too little to end a run by, and it is one cycle."""
_COST_OF_SCORE = 1 / 3
"""A pair that is only asked, as on dev, costs about this much of one that is trained on."""


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
    """Dev is scored after every this many stretches."""
    patience: int | None
    """Stop after this many dev scores without a better one; None: never."""
    recipe: Literal["plateau", "cycle", "paper"]
    seed: int
    least_fall: float = 0.0
    """How much dev's log-loss has to fall from one score to the next to count as falling, where that ends the run."""

    @property
    def ends_by_itself(self) -> bool:
        """Whether the run ends when dev's log-loss no longer falls, and its result is the mean over the last steps."""
        return self.recipe == "plateau"

    def is_over(self, stretches: int, history: Sequence[HistoryLine]) -> bool:
        """Whether a run has ended after this many stretches: all steps are done, or dev has not got better."""
        if stretches >= len(self.ends):
            return True
        if self.patience is None:
            return False
        if self.ends_by_itself:
            return scores_since_fall(history, self.least_fall) >= self.patience
        return history[-1].round - best_of(history).round >= self.patience

    def weight_in_mean(self, step: int) -> float:
        """How much a step, counted from 0, weighs in the mean over steps when it is added to it.

        With these weights each step counts in proportion to a power of its number: the first steps are soon forgotten,
        whatever the length of the run turns out to be.
        """
        return (PLATEAU_MEAN + 1) / (PLATEAU_MEAN + step + 1)

    @property
    def steps(self) -> int:
        """Steps of the whole run, at most."""
        return self.ends[-1] if self.ends else 0

    @property
    def pairs(self) -> int:
        """(fact, prompt) pairs of the whole run, at most."""
        return self.pairs_after(len(self.ends))

    def steps_after(self, stretches: int) -> int:
        """Steps of this many stretches."""
        return self.ends[stretches - 1] if stretches else 0

    def pairs_after(self, stretches: int) -> int:
        """(fact, prompt) pairs of this many stretches."""
        epochs, left = divmod(self.steps_after(stretches), self._steps_of_epoch)
        return (epochs * self.facts + min(left * self.batch, self.facts)) * self.prompts

    @property
    def drop_after(self) -> int:
        """The number of stretches after which prompts may be dropped: a third of the run."""
        return ceil(len(self.ends) / 3)

    def scores_dev(self, stretches: int) -> bool:
        """Whether dev is scored when this many stretches are done."""
        return stretches % self.score_every == 0 or stretches == len(self.ends)

    def batches(self, stretch: int) -> Iterator[tuple[Int[Tensor, " facts"], float]]:
        """The facts of each step of a stretch, and the fraction of the largest step size that it takes."""
        order, order_of = torch.empty(0, dtype=torch.long), -1
        for step in range(self.steps_after(stretch), self.ends[stretch]):
            epoch, place = divmod(step, self._steps_of_epoch)
            if epoch != order_of:
                order = torch.from_numpy(np.random.default_rng([self.seed, epoch]).permutation(self.facts))
                order_of = epoch
            yield order[place * self.batch : (place + 1) * self.batch], self._fraction(step)

    @property
    def _steps_of_epoch(self) -> int:
        return ceil(self.facts / self.batch)

    def _fraction(self, step: int) -> float:
        if self.recipe == "plateau":
            return min(1.0, (step + 1) / self.ends[0])
        if self.recipe == "paper" or self.steps == 1:
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


def scores_since_fall(history: Sequence[HistoryLine], least: float) -> int:
    """The number of dev scores since one whose log-loss was lower, by at least so much, than that of the one before.

    It is not compared with the lowest of all: the first steps often find a good prior over answers that is lost again
    before x is made use of.
    """
    losses = [inf, *(loss_or_inf(line.dev) for line in history)]
    since = 0
    for before, loss in pairwise(losses):
        since = 0 if loss <= before - least and loss < inf else since + 1
    return since


def schedule_of(
    spec: TrainingSpec, *, facts: int, dev_facts: int, prompts: int, seed: int, pairs: int | None = None
) -> Schedule:
    """The schedule for this many facts and prompts; `pairs` is the budget, where it was measured from minutes."""
    batch = spec.batch_facts
    if spec.recipe == "paper":
        batch = batch or _PAPER_FACTS
        epochs = _PAPER_EPOCHS if spec.epochs is None else spec.epochs
        ends = tuple(ceil(facts / batch) * epoch for epoch in range(1, epochs + 1))
        return Schedule(facts, prompts, batch, ends, 1, spec.patience or _PAPER_PATIENCE, spec.recipe, seed)
    batch = min(batch or max(1, round(_PAIRS_OF_STEP / prompts)), facts)
    passes = (pairs or spec.pairs or default_pairs(prompts)) / (facts * prompts) if spec.epochs is None else spec.epochs
    steps = max(1, round(passes * ceil(facts / batch))) if passes else 0
    of_stretch = max(PLATEAU_STEPS, ceil(PLATEAU_FACTS / batch))
    # Dev is scored as often as that costs no more than the training in between.
    score_every = max(1, round(_COST_OF_SCORE * dev_facts / (of_stretch * batch)))
    if spec.recipe == "plateau" and (spec.patience is not None or steps >= PLATEAU_SCORES * score_every * of_stretch):
        ends = tuple(min(end, steps) for end in range(of_stretch, steps + of_stretch, of_stretch)) if steps else ()
        between = score_every * of_stretch * batch * prompts
        patience = spec.patience or max(1, round(PLATEAU_PAIRS / between))
        least_fall = PLATEAU_FALL * min(between, _FALL_PAIRS) / 1000
        return Schedule(facts, prompts, batch, ends, score_every, patience, spec.recipe, seed, least_fall)
    ends = tuple(sorted({round(steps * stretch / STRETCHES) for stretch in range(1, STRETCHES + 1)} - {0}))
    # Dev is scored as often as all scores together cost no more than the training itself.
    scores = max(1, min(STRETCHES, int(passes * facts / max(1, dev_facts))))
    return Schedule(facts, prompts, batch, ends, ceil(STRETCHES / scores), None, "cycle", seed)
