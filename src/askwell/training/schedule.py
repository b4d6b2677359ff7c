"""The schedule of a training run: the facts and the size of each step, when dev is scored, and when the run ends."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import ceil, inf
from typing import Literal

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from askwell.specs.training_spec import TrainingSpec
from askwell.training.history import HistoryLine, best_of, loss_or_inf

_PAIRS = {"cycle": (2000, 2000, 4000), "plateau": (1600, 2400, 2800)}
"""The pairs of a mixture of many prompts; what is added to them, divided by the number of prompts; and the maximum."""
STRETCHES = 8
"""A cycle has this many stretches; after each, the run can be interrupted and resumed."""
WARM_UP = 0.1
"""The fraction of the cycle in which the step size grows."""
_PAIRS_OF_STEP = 32
_PAPER_EPOCHS, _PAPER_PATIENCE, _PAPER_FACTS = 16, 4, 64

PLATEAU_STRETCH, PLATEAU_FACTS = 128, 16
"""A stretch of a run that ends by itself: this many pairs, or the pairs of this many facts."""
PLATEAU_FACTS_OF_STEP = 16
"""The most facts that one of its steps takes: more make a step more expensive, but hardly better."""
PLATEAU_WARM_UP = 4
"""The steps of such a run in which the step size grows."""
PLATEAU_LEAST = 48
"""The fewest steps that it takes: on SmolLM2, what few dev facts said of the first steps ended many a run too early."""
PLATEAU_FALL = 0.04
"""It ends when dev's log-loss is lower by less than this many nats than it was after half of the pairs."""
PLATEAU_MEAN = 4.0
"""How much more the last steps count in the mean over steps: the mean age of what it averages is a sixth of the run."""
PLATEAU_SCORES = 17
"""If fewer dev scores than this fit into the limit, they cannot decide when to stop, and the run is one cycle."""
_COST_OF_SCORE = 1 / 3
"""The cost of a pair that is only asked, as on dev, relative to one that is trained on."""
_MOST_OF_STRETCH, _MOST_OF_SCORE, _LEAST_SCORED = 1 / 6, 1 / 12, 32
"""One dev score costs at most the first fraction of the stretch before it; if the run is one cycle, at most the second
fraction of all training. At least this many dev facts are asked."""
_MOST_OF_SCORES = 1 / 8
"""If such a run is one cycle, all dev scores but the first cost at most this fraction of the training; there is always
one at the end."""


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
    """The number of stretches between two dev scores."""
    patience: int | None
    """Stop after this many dev scores without a better one; None to never stop for this reason."""
    recipe: Literal["plateau", "cycle", "paper"]
    seed: int

    @property
    def ends_by_itself(self) -> bool:
        """Whether the run ends when dev's log-loss no longer falls, and its result is the mean over the last steps."""
        return self.recipe == "plateau"

    def is_over(self, stretches: int, history: Sequence[HistoryLine]) -> bool:
        """Tell whether a run ends after this many stretches: all steps are done, or dev has stopped improving."""
        if stretches >= len(self.ends):
            return True
        if self.ends_by_itself:
            if self.patience is not None:
                return scores_since_fall(history) >= self.patience
            least = PLATEAU_LEAST * self.batch * self.prompts
            return history[-1].pairs >= least and fall_of_second_half(history) < PLATEAU_FALL
        return self.patience is not None and history[-1].round - best_of(history).round >= self.patience

    def weight_in_mean(self, step: int) -> float:
        """Return how much a step, counted from 0, weighs when it is added to the mean over steps.

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
        """Return the number of steps in this many stretches."""
        return self.ends[stretches - 1] if stretches else 0

    def pairs_after(self, stretches: int) -> int:
        """Return the number of (fact, prompt) pairs in this many stretches."""
        epochs, left = divmod(self.steps_after(stretches), self._steps_of_epoch)
        return (epochs * self.facts + min(left * self.batch, self.facts)) * self.prompts

    @property
    def drop_after(self) -> int:
        """The number of stretches after which prompts may be dropped: a third of the run."""
        return ceil(len(self.ends) / 3)

    def scores_dev(self, stretches: int) -> bool:
        """Tell whether dev is scored when this many stretches are done."""
        return stretches % self.score_every == 0 or stretches == len(self.ends)

    def batches(self, stretch: int) -> Iterator[tuple[Int[Tensor, " facts"], float]]:
        """Yield the facts of each step of a stretch, and the fraction of the largest step size that it takes."""
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
            return min(1.0, (step + 1) / min(PLATEAU_WARM_UP, self.steps))
        if self.recipe == "paper" or self.steps == 1:
            return 1.0
        return warm_up_and_decay(step, self.steps, peak=WARM_UP * self.steps)


def warm_up_and_decay(step: int, steps: int, *, peak: float | int) -> float:
    """Return the fraction of the largest step size that a step takes: a linear warm-up for `peak` steps, then a linear
    decay to 0 after all steps."""
    warm_up = (step + 1) / peak
    return min(warm_up, (steps - step) / (steps - peak)) if steps > peak else warm_up


def posterior_power(first: float, step: int, steps: int) -> float:
    """Return α, the power of the posteriors over prompts in a step: from its first value it grows linearly to 1 in the
    first half of the steps."""
    return min(1.0, first + (1 - first) * 2 * step / steps)


def default_pairs(prompts: int, recipe: Literal["plateau", "cycle"] = "plateau") -> int:
    """Return the default budget: for one prompt, which must be good by itself, 4,000 pairs of a cycle, or at most 2,800
    of a run that ends by itself; for many, of which some are good from the start, down to 2,000 or 1,600."""
    of_many, shared_out, most = _PAIRS[recipe]
    return min(most, round(of_many + shared_out / prompts))


def scored_dev_facts(spec: TrainingSpec, *, fact_count: int, dev_facts: int, prompts: int) -> int:
    """Return how many dev facts are asked each time that dev is scored: all, or, in a run that ends by itself, as many
    as its budget allows."""
    if spec.recipe != "plateau":
        return dev_facts
    pairs = spec.pairs or default_pairs(prompts) if spec.epochs is None else spec.epochs * fact_count * prompts
    stretch = max(PLATEAU_STRETCH, PLATEAU_FACTS * prompts)
    each_time = max(_LEAST_SCORED, int(stretch * _MOST_OF_STRETCH / (_COST_OF_SCORE * prompts) + 1e-6))
    few_times = max(_LEAST_SCORED, int(round(pairs * _MOST_OF_SCORE / (_COST_OF_SCORE * prompts), 6)))
    every = stretch * _stretches_between(min(dev_facts, each_time) * prompts, stretch)
    is_followed = spec.patience is not None or pairs >= PLATEAU_SCORES * every
    return min(dev_facts, each_time if is_followed else few_times)


def _stretches_between(asked: int, trained: int) -> int:
    """Return how many stretches there are between two dev scores, from the pairs that a score asks and those that a
    stretch trains on."""
    return max(1, int(_COST_OF_SCORE * asked / (_MOST_OF_STRETCH * trained) + 1e-6))


def fall_of_second_half(history: Sequence[HistoryLine]) -> float:
    """Return how far dev's log-loss has fallen since the last score that was made within the first half of the pairs.

    It is not compared with the lowest of all: the first steps often find a good prior over answers, which is lost again
    before x is used. Nor are neighbouring scores compared: a run that learns slowly, as one prompt on a causal LM does,
    gains little from one to the next, but much over its second half.
    """
    now = history[-1]
    before = next(line for line in reversed(history) if 2 * line.pairs <= now.pairs)
    after = loss_or_inf(now.dev)
    return 0.0 if after == inf else loss_or_inf(before.dev) - after


def scores_since_fall(history: Sequence[HistoryLine]) -> int:
    """Count the dev scores since one whose log-loss was lower than that of the one before."""
    losses = [inf, *(loss_or_inf(line.dev) for line in history)]
    since = 0
    for before, loss in pairwise(losses):
        since = 0 if loss < before else since + 1
    return since


def schedule_of(
    spec: TrainingSpec, *, fact_count: int, dev_facts: int, prompts: int, seed: int, pairs: int | None = None
) -> Schedule:
    """Build the schedule for this many facts and prompts, with this many dev facts at each score; `pairs` is the
    budget, where it was measured from minutes."""
    batch = spec.batch_facts
    if spec.recipe == "paper":
        batch = batch or _PAPER_FACTS
        epochs = _PAPER_EPOCHS if spec.epochs is None else spec.epochs
        ends = tuple(ceil(fact_count / batch) * epoch for epoch in range(1, epochs + 1))
        return Schedule(fact_count, prompts, batch, ends, 1, spec.patience or _PAPER_PATIENCE, spec.recipe, seed)
    most_facts = PLATEAU_FACTS_OF_STEP if spec.recipe == "plateau" else _PAIRS_OF_STEP
    batch = min(batch or max(1, min(most_facts, round(_PAIRS_OF_STEP / prompts))), fact_count)
    budget = pairs or spec.pairs or default_pairs(prompts, spec.recipe)
    passes = budget / (fact_count * prompts) if spec.epochs is None else spec.epochs
    steps = max(1, round(passes * ceil(fact_count / batch))) if passes else 0
    of_stretch = max(ceil(PLATEAU_STRETCH / (batch * prompts)), ceil(PLATEAU_FACTS / batch))
    score_every = _stretches_between(dev_facts, of_stretch * batch)
    if spec.recipe == "plateau" and (spec.patience is not None or steps >= PLATEAU_SCORES * score_every * of_stretch):
        ends = tuple(min(end, steps) for end in range(of_stretch, steps + of_stretch, of_stretch)) if steps else ()
        return Schedule(fact_count, prompts, batch, ends, score_every, spec.patience, spec.recipe, seed)
    ends = tuple(sorted({round(steps * stretch / STRETCHES) for stretch in range(1, STRETCHES + 1)} - {0}))
    # Dev is scored as often as it can be without all scores costing more than the training itself, or, if no budget was
    # given, than a smaller fraction of it: the last state of a cycle is nearly always the best.
    most = 1.0 if spec.recipe == "cycle" else _MOST_OF_SCORES / _COST_OF_SCORE
    scores = max(1, min(STRETCHES, int(most * passes * fact_count / max(1, dev_facts))))
    return Schedule(fact_count, prompts, batch, ends, ceil(STRETCHES / scores), None, "cycle", seed)
