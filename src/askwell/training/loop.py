"""The training loop: build, step, score on dev, keep the best."""

import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from askwell.errors import NothingLeft
from askwell.evaluation import rank_facts, scores_of
from askwell.facts import Relation
from askwell.mixture import Mixture
from askwell.mixture.encode import EncodedFacts, LeftOutFact, count_reasons, encode_facts
from askwell.specs import TrainingSpec
from askwell.training.checkpoint import State, load_checkpoint, run_id, save_checkpoint
from askwell.training.objective import Objective
from askwell.training.tuned import adam, choose_tuned, moments, penalty, restore_moments


@dataclass(frozen=True)
class Progress:
    """Where a training run stands."""

    epoch: int
    epochs: int
    facts_done: int
    """Facts of this epoch that were trained on."""
    facts: int
    """Facts of an epoch."""
    loss: float | None
    """Mean -log p(y | x, r) of this epoch so far; None between epochs."""
    record: dict[str, Any] | None
    """The line of the history, when an epoch has just ended."""
    history: tuple[dict[str, Any], ...]


@dataclass(frozen=True)
class TrainingResult:
    """What a training run did. The mixture is left in its best state."""

    history: tuple[dict[str, Any], ...]
    left_out: dict[str, tuple[LeftOutFact, ...]]
    """Facts of train and dev that could not be asked."""

    @property
    def best(self) -> dict[str, Any]:
        """The record of the epoch whose state was kept."""
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

    With a `folder`, a checkpoint is kept there after each epoch, from which `resume` goes on: an interrupted run that
    is resumed equals one that was not. Ctrl-C leaves the mixture in its best state so far.
    """
    spec = spec or TrainingSpec()
    threads_before = torch.get_num_threads()
    spec = spec.model_copy(update={"threads": spec.threads or threads_before})
    torch.set_num_threads(spec.threads or threads_before)
    choose_tuned(mixture, spec)
    facts, dev, left_out = _encode(mixture, relation)
    run = run_id(mixture, relation, spec)
    optimizer = adam(mixture, spec)
    state = load_checkpoint(folder, run, mixture.lm.device) if folder is not None and resume else None
    if state is not None:
        mixture.load_state_dict(state.parameters)
        restore_moments(optimizer, mixture, state.moments)
    else:
        untuned = _copy(mixture)
        state = State([_score(mixture, dev, relation, epoch=0, train_loss=None)], untuned, untuned, {})
        if folder is not None:
            save_checkpoint(folder, run, state)
    epochs_done = len(state.history) - 1

    def tell(facts_done: int, loss: float | None, record: dict[str, Any] | None) -> None:
        if progress is not None:
            epoch = epochs_done if record else epochs_done + 1
            progress(Progress(epoch, spec.epochs, facts_done, len(facts), loss, record, tuple(state.history)))

    try:
        tell(0, None, state.history[-1])
        objective = Objective(mixture, facts, spec.method)
        while not is_over(state.history, spec):
            train_loss = _epoch(mixture, objective, optimizer, spec, len(facts), epochs_done, tell)
            epochs_done += 1
            state.history.append(_score(mixture, dev, relation, epochs_done, train_loss))
            state.parameters, state.moments = _copy(mixture), moments(optimizer, mixture)
            if best_of(state.history)["epoch"] == epochs_done:
                state.best = state.parameters
            if folder is not None:
                save_checkpoint(folder, run, state)
            tell(len(facts), train_loss, state.history[-1])
    finally:
        mixture.load_state_dict(state.best)
        _describe(mixture, relation, spec, state.history, left_out, len(facts), len(dev))
        torch.set_num_threads(threads_before)
    return TrainingResult(tuple(state.history), left_out)


def is_over(history: list[dict[str, Any]], spec: TrainingSpec) -> bool:
    """Whether a run with this history has ended: by its number of epochs, or since dev has not got better."""
    epochs_done = len(history) - 1
    return epochs_done >= spec.epochs or epochs_done - best_of(history)["epoch"] >= spec.patience


def best_of(history: "list[dict[str, Any]] | tuple[dict[str, Any], ...]") -> dict[str, Any]:
    """The record with the best dev P@1; of equal ones that with the lower log-loss, then the earlier."""

    def badness(record: dict[str, Any]) -> tuple[float, float]:
        log_loss = record["dev"]["log_loss"]
        return -record["dev"]["P@1"], math.inf if log_loss is None else log_loss

    return min(history, key=badness)


def available_threads() -> int:
    """The CPU cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _epoch(
    mixture: Mixture,
    objective: Objective,
    optimizer: torch.optim.Adam | None,
    spec: TrainingSpec,
    facts: int,
    epoch: int,
    tell: Callable[[int, float | None, None], None],
) -> float:
    """One pass over the training facts; returns their mean loss, as it was when each was trained on."""
    order = torch.from_numpy(np.random.default_rng([mixture.spec.seed, epoch]).permutation(facts))
    total_loss, facts_done = 0.0, 0
    posteriors = torch.zeros_like(mixture.weight_logits)
    for batch in order.to(mixture.lm.device).split(spec.batch_facts):
        if optimizer is not None:
            optimizer.zero_grad(set_to_none=True)
        for chunk in batch.split(objective.facts_at_once):
            loss = objective.loss(chunk)
            if optimizer is not None:
                (loss.to_minimise / len(batch)).backward()
            total_loss += loss.negative_log_likelihood
            posteriors += loss.posteriors
        if optimizer is not None:
            if spec.l2:
                (spec.l2 * penalty(mixture)).backward()
            optimizer.step()
        facts_done += len(batch)
        tell(facts_done, total_loss / facts_done, None)
    if spec.method == "em" and spec.tune_weights and not mixture.spec.data_dependent:
        mean_posterior = (posteriors / facts).clamp(min=torch.finfo(posteriors.dtype).tiny)
        mixture.weight_logits.data.copy_(mean_posterior.log())
    return total_loss / facts


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


@torch.no_grad()
def _score(
    mixture: Mixture, dev: EncodedFacts, relation: Relation, epoch: int, train_loss: float | None
) -> dict[str, Any]:
    """The history's line for an epoch."""
    ranked = rank_facts(mixture, dev, relation)
    log_loss = -float(ranked.log_probabilities.mean())
    record = {
        "epoch": epoch,
        "train_loss": train_loss,
        "dev": scores_of(ranked.filtered.tolist()).as_json()
        | {"log_loss": log_loss if math.isfinite(log_loss) else None, "facts": len(dev)},
        "effective_prompts": mixture.effective_prompts,
    }
    if mixture.spec.data_dependent:
        record["temperature"] = mixture.temperature
    return record


def _copy(mixture: Mixture) -> dict[str, Tensor]:
    return {name: tensor.detach().clone() for name, tensor in mixture.state_dict().items()}


def _describe(
    mixture: Mixture,
    relation: Relation,
    spec: TrainingSpec,
    history: list[dict[str, Any]],
    left_out: dict[str, tuple[LeftOutFact, ...]],
    facts: int,
    dev_facts: int,
) -> None:
    """Notes on the mixture what it was learned from and how well it does on dev."""
    best = best_of(history)
    mixture.learned_from = {
        "relation": {"name": relation.name, "sha256": relation.digest, **relation.counts.as_json()},
        "train_facts": facts,
        "dev_facts": dev_facts,
        "left_out": {split: count_reasons(without) for split, without in left_out.items()},
        "training": spec.model_dump(),
        "epochs": len(history) - 1,
        "best_epoch": best["epoch"],
        "finished": is_over(history, spec),
    }
    vocabulary = f"all {mixture.answer_space.count} answers of {mixture.lm.identity.name}"
    mixture.scores = {"dev": {**best["dev"], "vocabulary": vocabulary}}
