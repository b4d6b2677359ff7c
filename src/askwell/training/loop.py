"""The training loop: build, step, score on dev, keep the best."""

import math
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from askwell.data.facts import Relation
from askwell.errors import NothingLeft
from askwell.evaluation.evaluate import score_facts
from askwell.mixture.encode import EncodedFacts, LeftOutFact, count_reasons, encode_facts
from askwell.mixture.mixture import Mixture
from askwell.specs.training import TrainingSpec
from askwell.training.checkpoint import State, load_checkpoint, run_id, save_checkpoint
from askwell.training.objective import Objective
from askwell.training.optimiser import choose_tuned, moments_of, optimizer_of, penalty, rates_of, restore_moments, step
from askwell.training.plan import Plan, plan_of


@dataclass(frozen=True)
class Progress:
    """Where a training run stands."""

    pairs_done: int
    """(fact, prompt) pairs that were trained on."""
    pairs: int
    """Pairs of the whole run, at most."""
    loss: float | None
    """Mean -log p(y | x, r) since dev was last scored; None where nothing was trained on since."""
    record: dict[str, Any] | None
    """The line of the history, when dev has just been scored."""
    history: tuple[dict[str, Any], ...]


@dataclass(frozen=True)
class TrainingResult:
    """What a training run did. The mixture is left in its best state."""

    history: tuple[dict[str, Any], ...]
    left_out: dict[str, tuple[LeftOutFact, ...]]
    """Facts of train and dev that could not be asked."""

    @property
    def best(self) -> dict[str, Any]:
        """The record of the state that was kept."""
        return best_of(self.history)


def train(
    mixture: Mixture,
    relation: Relation,
    spec: TrainingSpec | None = None,
    *,
    folder: Path | None = None,
    resume: bool = False,
    progress: Callable[[Progress], None] | None = None,
) -> TrainingResult:
    """Tunes the mixture on a relation's train facts and leaves it in the state that was best on its dev facts.

    With a `folder`, a checkpoint is kept there after each stretch of the plan, from which `resume` goes on: an
    interrupted run that is resumed equals one that was not. Ctrl-C leaves the mixture in its best state so far.
    """
    spec = spec or TrainingSpec()
    threads_before = torch.get_num_threads()
    spec = spec.model_copy(update={"threads": spec.threads or threads_before})
    torch.set_num_threads(spec.threads or threads_before)
    choose_tuned(mixture, spec)
    facts, dev, left_out = _encode(mixture, relation)
    run = run_id(mixture, relation, spec)
    rates = rates_of(mixture, facts, spec)
    state = load_checkpoint(folder, run, mixture.lm.device) if folder is not None and resume else None
    if state is not None:
        mixture.load_state_dict(state.parameters)
    else:
        untuned = _copy(mixture)
        state = State([_score(mixture, dev, relation, round_=0, pairs=0, train_loss=None)], untuned, untuned, {})
    objective = Objective(mixture, facts, spec.method)
    if spec.minutes is not None and state.pairs is None:
        state.pairs = _pairs_within(spec.minutes, mixture, objective, len(facts))
    sizes = {"facts": len(facts), "dev_facts": len(dev), "prompts": len(mixture.prompts)}
    plan = plan_of(spec, **sizes, seed=mixture.spec.seed, pairs=state.pairs)
    optimizer = optimizer_of(mixture, spec, rates)
    if optimizer is not None and state.moments:
        restore_moments(optimizer, state.moments)
    if folder is not None and not state.stretches:
        save_checkpoint(folder, run, state)

    def tell(pairs_since: int, record: dict[str, Any] | None) -> None:
        if progress is not None:
            loss = state.loss / state.facts if state.facts else None
            done = plan.pairs_after(state.stretches) + pairs_since
            progress(Progress(done, plan.pairs, loss, record, tuple(state.history)))

    try:
        tell(0, state.history[-1])
        while not is_over(state, plan):
            _stretch(mixture, objective, optimizer, spec, plan, state, tell)
            if spec.drop_below and state.stretches == plan.drop_after:
                mixture.drop_prompts(spec.drop_below)
            record = None
            if plan.scores_dev(state.stretches):
                round_, pairs = len(state.history), plan.pairs_after(state.stretches)
                record = _score(mixture, dev, relation, round_, pairs, state.loss / state.facts)
                state.history.append(record)
                state.loss, state.facts = 0.0, 0
            state.parameters, state.moments = _copy(mixture), moments_of(optimizer)
            if best_of(state.history) is record:
                state.best = state.parameters
            if folder is not None:
                save_checkpoint(folder, run, state)
            tell(0, record)
    finally:
        mixture.load_state_dict(state.best)
        _describe(mixture, relation, spec, state, plan, left_out, len(facts), len(dev))
        mixture.learned_from["step_sizes"] = rates.as_json()
        torch.set_num_threads(threads_before)
    return TrainingResult(tuple(state.history), left_out)


def is_over(state: State, plan: Plan) -> bool:
    """Whether a run has ended: by its plan, or since dev has not got better."""
    if state.stretches >= len(plan.ends):
        return True
    since_best = state.history[-1]["round"] - best_of(state.history)["round"]
    return plan.patience is not None and since_best >= plan.patience


def best_of(history: "list[dict[str, Any]] | tuple[dict[str, Any], ...]") -> dict[str, Any]:
    """The record with the best dev P@1; of equal ones that with the lower log-loss, then the earlier."""

    def badness(record: dict[str, Any]) -> tuple[float, float]:
        log_loss = record["dev"]["log_loss"]
        return -record["dev"]["P@1"], math.inf if log_loss is None else log_loss

    return min(history, key=badness)


def available_threads() -> int:
    """The CPU cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _stretch(
    mixture: Mixture,
    objective: Objective,
    optimizer: torch.optim.Optimizer | None,
    spec: TrainingSpec,
    plan: Plan,
    state: State,
    tell: Callable[[int, None], None],
) -> None:
    """The steps of the next stretch of the plan."""
    facts_done = 0
    posteriors = torch.zeros_like(mixture.weight_logits)
    for batch, share in plan.batches(state.stretches):
        for chunk in batch.to(mixture.lm.device).split(objective.facts_at_once):
            loss = objective.loss(chunk)
            if optimizer is not None:
                (loss.to_minimise / len(batch)).backward()
            state.loss += loss.negative_log_likelihood
            posteriors += loss.posteriors
        if optimizer is not None:
            if spec.l2:
                (spec.l2 * penalty(mixture)).backward()
            step(optimizer, share)
        facts_done += len(batch)
        state.facts += len(batch)
        tell(facts_done * plan.prompts, None)
    if spec.method == "em" and spec.tune_weights and mixture.weighting.closed_form:
        mean_posterior = (posteriors / facts_done).clamp(min=torch.finfo(posteriors.dtype).tiny)
        is_dropped = mixture.weight_logits == -torch.inf
        mixture.weight_logits.data.copy_(mean_posterior.log().masked_fill(is_dropped, -torch.inf))
    state.stretches += 1


def _pairs_within(minutes: float, mixture: Mixture, objective: Objective, facts: int) -> int:
    """About how many pairs can be trained on in so many minutes, dev scores included; the mixture stays as it is."""
    batch = torch.arange(min(facts, max(1, 64 // len(mixture.prompts))), device=mixture.lm.device)
    seconds = []
    for _ in range(3):  # the first is slower: memory is still to be had
        began = time.perf_counter()
        for chunk in batch.split(objective.facts_at_once):
            objective.loss(chunk).to_minimise.backward()
        seconds.append(time.perf_counter() - began)
    for parameter in mixture.parameters():
        parameter.grad = None
    of_pair = min(seconds) / (len(batch) * len(mixture.prompts))
    # All dev scores together cost at most a third of the training pairs: they have no backward pass.
    return max(1, int(minutes * 60 / of_pair * 0.75))


def _encode(
    mixture: Mixture, relation: Relation
) -> tuple[EncodedFacts, EncodedFacts, dict[str, tuple[LeftOutFact, ...]]]:
    encoded, left_out = {}, {}
    for split in ("train", "dev"):
        encoded[split], without = encode_facts(mixture, relation.split(split))
        left_out[split] = tuple(without)
        if not len(encoded[split]):
            raise NothingLeft(f"{split} facts of {relation.name}", count_reasons(without))
    return encoded["train"], encoded["dev"], left_out


def _score(
    mixture: Mixture, dev: EncodedFacts, relation: Relation, round_: int, pairs: int, train_loss: float | None
) -> dict[str, Any]:
    """The history's line: what the mixture scores on dev after so many pairs."""
    record = {
        "round": round_,
        "pairs": pairs,
        "train_loss": train_loss,
        "dev": score_facts(mixture, dev, relation),
        "effective_prompts": mixture.effective_prompts,
    }
    if mixture.temperature is not None:
        record["temperature"] = mixture.temperature
    return record


def _copy(mixture: Mixture) -> dict[str, Tensor]:
    return {name: tensor.detach().clone() for name, tensor in mixture.state_dict().items()}


def _describe(
    mixture: Mixture,
    relation: Relation,
    spec: TrainingSpec,
    state: State,
    plan: Plan,
    left_out: dict[str, tuple[LeftOutFact, ...]],
    facts: int,
    dev_facts: int,
) -> None:
    """Notes on the mixture what it was learned from and how well it does on dev."""
    best = best_of(state.history)
    mixture.learned_from = {
        "relation": {"name": relation.name, "sha256": relation.digest, **relation.counts.as_json()},
        "train_facts": facts,
        "dev_facts": dev_facts,
        "left_out": {split: count_reasons(without) for split, without in left_out.items()},
        "training": spec.model_dump(),
        "pairs": plan.pairs_after(state.stretches),
        "planned_pairs": plan.pairs,
        "best_pairs": best["pairs"],
        "finished": is_over(state, plan),
    }
    vocabulary = f"all {mixture.answer_space.count} answers of {mixture.lm.identity.name}"
    mixture.scores = {"dev": {**best["dev"], "vocabulary": vocabulary}}
