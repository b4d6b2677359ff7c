"""Fine-tuning a whole LM on the same facts with one manual prompt: an upper reference, not a probe of a frozen LM."""

import copy
from collections.abc import Callable, Sequence
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor
from transformers import PreTrainedModel

from askwell.answers.encode import EncodedFacts
from askwell.answers.likelihood import gold_log_probs
from askwell.baselines.hard_prompt import set_tokens
from askwell.baselines.result import BaselineProgress, BaselineRun, BaselineStep, about_learning
from askwell.data.facts import Relation
from askwell.data.templates import Template
from askwell.errors import BadOption
from askwell.evaluation.scoring import score_facts
from askwell.files import list_own_files, remove_own_files, write_aside
from askwell.lms.batches import PLACES, QuestionTable
from askwell.lms.checkpoints import quiet
from askwell.lms.frozen import FrozenLM
from askwell.lms.load import load_lm
from askwell.lms.machine import memory_of
from askwell.mixture.learned_from import TUNED_LM
from askwell.mixture.mixture import Mixture
from askwell.prompts.context import settle
from askwell.prompts.prompt import token_rows
from askwell.specs.mixture_spec import MixtureSpec
from askwell.specs.training_spec import FineTuningSpec
from askwell.training.history import badness
from askwell.training.schedule import warm_up_and_decay

BYTES_OF_PARAMETER = 16
"""Weight, gradient and AdamW's two moments, four bytes each."""


def fine_tune(
    lm: FrozenLM,
    relation: Relation,
    template: Template,
    spec: FineTuningSpec | None = None,
    *,
    seed: int = 0,
    asked: MixtureSpec | None = None,
    folder: Path | None = None,
    progress: Callable[[BaselineProgress], None] | None = None,
) -> BaselineRun:
    """Tune all weights of a copy of the LM on train facts; return the prompt on the copy that was best on dev.

    The given LM is not changed. With a `folder`, the tuned LM is saved in it.
    """
    spec = spec or FineTuningSpec()
    need_memory(lm)
    if folder is not None:
        _need_place(folder / TUNED_LM)
    settled = settle(asked or MixtureSpec().with_named_opening, lm, relation, [template])
    settled = settled.model_copy(update={"seed": seed})
    copied = FrozenLM(_private_copy(lm), lm.tokenizer, name=f"{lm.identity.name}, fine-tuned", device=lm.device)
    copied.walk = None  # a walk assumes weights that never change
    mixture = Mixture(copied, [template], settled, relation=relation)
    facts = mixture.encode_relation(relation)
    train, dev = facts.need("train"), facts.need("dev")
    loss, steps_of_epoch = _Loss(mixture, train), ceil(len(train) / spec.batch_facts)
    optimizer, schedule = _optimizer(copied.model, spec, steps_of_epoch * spec.epochs)
    history: list[BaselineStep] = []
    best: dict[str, Tensor] = {}
    with torch.random.fork_rng(devices=[copied.device] if copied.device.type == "cuda" else []):
        for epoch in range(spec.epochs + 1):
            train_loss = None
            if epoch:
                torch.manual_seed(int(np.random.default_rng([seed, epoch]).integers(2**62)))  # seeds dropout
                order = torch.from_numpy(np.random.default_rng([seed, epoch, 0]).permutation(len(train)))
                batches = order.to(copied.device).split(spec.batch_facts)
                train_loss = _epoch(loss, optimizer, schedule, batches, dropout=spec.dropout) / len(train)
                set_tokens(mixture, mixture.prompts[0].token_ids)  # the words' vectors were tuned
            now = BaselineStep(epoch, train_loss, score_facts(mixture.answering(kind=dev.kind), dev, relation))
            history.append(now)
            chosen = min(history, key=lambda step: badness(step.dev))
            if chosen is now:
                best = {name: tensor.detach().cpu().clone() for name, tensor in copied.model.state_dict().items()}
            if progress is not None:
                progress(BaselineProgress(epoch, spec.epochs, "epochs", train_loss, now, tuple(history)))
    copied.model.load_state_dict(best)
    result = Mixture(_kept(copied, folder), [template], settled)
    learned: Any = {"fine_tuning": spec, "fine_tuned_from": lm.identity, "best_epoch": chosen.number}
    return BaselineRun(result, about_learning(result, facts, chosen.dev, **learned), tuple(history))


def need_memory(lm: FrozenLM) -> None:
    """Raise an error if the LM, its gradients and AdamW's moments would not fit in memory."""
    parameters = sum(parameter.numel() for parameter in lm.model.parameters())
    needed, memory = parameters * BYTES_OF_PARAMETER, memory_of(lm.device)
    if memory is not None and needed > memory.free:
        raise BadOption(
            f"fine-tuning {lm.identity.name} needs about {needed / 1e9:.1f} GB ({BYTES_OF_PARAMETER} bytes for each of "
            f"{parameters:,} parameters), but {memory.free / 1e9:.1f} GB are free on {lm.device}; use a smaller LM"
        )


def _need_place(place: Path) -> None:
    """Remove what an earlier run saved there; raise an error if other files are there."""
    remove_own_files(place)
    if place.exists():
        raise BadOption(f"{place} is where the tuned LM is to be saved: move it elsewhere, or name another folder")


class _Loss:
    """The loss of train facts, with gradients into all weights of the LM."""

    def __init__(self, mixture: Mixture, encoded: EncodedFacts) -> None:
        self.lm, self._facts, self._mixture = mixture.lm, encoded, mixture
        prompt = mixture.prompts[0]
        mask = self.lm.tokenizer.mask_token_id
        self._table = QuestionTable(
            [prompt.question], [prompt.tokens.x_place], token_rows([prompt]), mask, self.lm.device
        )
        self._ids = torch.tensor(prompt.token_ids, dtype=torch.long, device=self.lm.device)
        self._golds = encoded.gold_tokens[PLACES.index(prompt.tokens.y_place)]

    def __call__(self, rows: Int[Tensor, " facts"]) -> Float[Tensor, ""]:
        """Compute the sum of -log p(y | x) over the facts with these numbers."""
        words = self.lm.word_vectors(self._ids)
        if self._facts.kind.is_long:
            return -gold_log_probs(self._mixture, self._facts, rows, words).sum()
        batch = self._table.batch(self._facts.xs, rows, torch.zeros_like(rows))
        log_probs, _ = self.lm.log_probs_of(batch, words, None, self._golds[rows], use_walk=False)
        return -log_probs.sum()


def _epoch(
    loss: _Loss,
    optimizer: torch.optim.Optimizer,
    schedule: Any,
    batches: Sequence[Tensor],
    *,
    dropout: bool,
) -> float:
    """Take a step for each batch of train facts; return the sum of their losses."""
    model, total = loss.lm.model, 0.0
    model.requires_grad_(True).train(dropout)
    try:
        for batch in batches:
            optimizer.zero_grad()
            of_batch = loss(batch)
            (of_batch / len(batch)).backward()
            optimizer.step()
            schedule.step()
            total += float(of_batch.detach())
    finally:
        optimizer.zero_grad()
        model.requires_grad_(False).eval()
    return total


def _optimizer(model: PreTrainedModel, spec: FineTuningSpec, steps: int) -> tuple[torch.optim.Optimizer, Any]:
    matrices = [parameter for parameter in model.parameters() if parameter.ndim > 1]
    others = [parameter for parameter in model.parameters() if parameter.ndim <= 1]
    groups = [{"params": matrices, "weight_decay": spec.weight_decay}, {"params": others, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=spec.learning_rate)
    growing = max(1, round(spec.warm_up * steps))
    return optimizer, torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: warm_up_and_decay(step, steps, peak=growing)
    )


def _private_copy(lm: FrozenLM) -> PreTrainedModel:
    """Copy the model, sharing no memory with it, in the precision in which weights are tuned."""
    if getattr(lm.model.config, "quantization_config", None) is None:
        return copy.deepcopy(lm.model).to(lm.parameter_dtype)
    config = copy.deepcopy(lm.model.config)  # that of a GGUF file: transformers cannot save a model with it
    del config.quantization_config
    model = type(lm.model)(config)
    model.load_state_dict(lm.model.state_dict())
    return model.to(lm.parameter_dtype)


def _kept(copied: FrozenLM, folder: Path | None) -> FrozenLM:
    """Return a frozen LM with the tuned weights; with a folder, save it there and read it back, as others will."""
    if folder is None:
        name = copied.identity.name
        return FrozenLM(copied.model, copied.tokenizer, name=name, device=copied.device)
    place = folder / TUNED_LM
    with write_aside(place) as aside, quiet():
        copied.model.save_pretrained(aside)
        copied.tokenizer.save_pretrained(aside)
        list_own_files(aside)
    dtype: Any = str(copied.dtype).removeprefix("torch.")
    return load_lm(place, device=str(copied.device), dtype=dtype)
