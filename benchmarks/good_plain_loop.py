"""The good plain loop, as a careful engineer would write it: frozen weights, padding, the head only at y.

Like the plain loop, it must not change, since askwell is measured against it.
"""

from collections.abc import Sequence
from typing import Any

import torch
from plain_loop import PlainFact, PlainMixture, blocks_of
from torch import Tensor, nn

BATCH_FACTS = 8


def freeze(model: Any) -> None:
    """Switch off gradients for the LM's own weights."""
    model.requires_grad_(False)


def log_probs(model: Any, mixture: PlainMixture, facts: Sequence[PlainFact]) -> Tensor:
    """Return log p(y | t, x) of each fact with each prompt, from one padded batch with the head applied only at y."""
    embedding = model.get_input_embeddings()
    sequences, places, deltas = [], [], []
    for fact in facts:
        x = embedding(torch.tensor(fact.x))
        for number, prompt in enumerate(mixture.prompts):
            parts, added, soft = [], [], 0
            for side in (prompt.left, None, prompt.right):
                if side is None:
                    parts.append(x)
                    added.append(torch.zeros(mixture.deltas[number].shape[0], len(fact.x), x.shape[-1]))
                    continue
                for token, is_prompt in side:
                    parts.append(
                        mixture.vectors[number][soft : soft + 1] if is_prompt else embedding(torch.tensor([token]))
                    )
                    zero = torch.zeros_like(mixture.deltas[number][:, :1])
                    added.append(mixture.deltas[number][:, soft : soft + 1] if is_prompt else zero)
                    soft += is_prompt
            sequences.append(torch.cat(parts))
            deltas.append(torch.cat(added, dim=1) if mixture.deep else None)
            places.append(prompt.y_at + (len(fact.x) if prompt.y_after_x else 0))
    inputs = nn.utils.rnn.pad_sequence(sequences, batch_first=True)
    lengths = torch.tensor([len(sequence) for sequence in sequences])
    attention = (torch.arange(inputs.shape[1]) < lengths[:, None]).long()
    handles = []
    if mixture.deep:
        padded = [nn.functional.pad(added, (0, 0, 0, inputs.shape[1] - added.shape[1])) for added in deltas]
        by_layer = torch.stack(padded, dim=1)
        handles = [
            block.register_forward_hook(lambda _module, _inputs, output, layer=layer: output + by_layer[layer])
            for layer, block in enumerate(blocks_of(model))
        ]
    try:
        hidden = model.base_model(inputs_embeds=inputs, attention_mask=attention).last_hidden_state
    finally:
        for handle in handles:
            handle.remove()
    at_y = hidden[torch.arange(len(sequences)), torch.tensor(places)]
    head = model.cls if hasattr(model, "cls") else model.lm_head
    log_distribution = head(at_y).log_softmax(-1)
    ys = torch.tensor([fact.y for fact in facts]).repeat_interleave(len(mixture.prompts))
    return log_distribution[torch.arange(len(ys)), ys].view(len(facts), len(mixture.prompts))


def train_epoch(
    model: Any,
    mixture: PlainMixture,
    facts: Sequence[PlainFact],
    optimizer: torch.optim.Optimizer,
    generator: torch.Generator,
) -> float:
    """Do one epoch of EM with posteriors from the batch's own forward pass; return the mean -log p(y | x, r)."""
    order, total = torch.randperm(len(facts), generator=generator), 0.0
    posterior_sum = torch.zeros(len(mixture.prompts))
    for start in range(0, len(facts), BATCH_FACTS):
        batch = [facts[number] for number in order[start : start + BATCH_FACTS].tolist()]
        of_prompts = log_probs(model, mixture, batch)
        joint = of_prompts.detach() + mixture.weights.log()
        posteriors = joint.softmax(1)
        loss = -(posteriors * of_prompts).sum() / len(batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total -= float(joint.logsumexp(1).sum())
        posterior_sum += posteriors.sum(0)
    mixture.weights = posterior_sum / len(facts)
    return total / len(facts)
