"""The plain loop: the work as a research script would do it, for comparison.

Written as such scripts are: vectors are put together token by token for each (fact, prompt) pair, pairs come in random
padded batches of 32, the LM's weights are not frozen (the optimiser just does not know them), logits are computed at
every position, and each epoch has a pass for the posteriors (E) and one for the prompts (M). Its results are right, and
it must not change: nothing here may be made slower or faster.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

BATCH_PAIRS = 32


@dataclass(frozen=True)
class PlainPrompt:
    """A prompt as lists of tokens around x: special tokens, prompt tokens and the mask, in their order."""

    left: list[tuple[int, bool]]
    """(token, whether it is a prompt token)."""
    right: list[tuple[int, bool]]
    y_at: int
    """The place of y's blank, or of the last token before it in a causal LM, counted without x's tokens."""
    y_after_x: bool


@dataclass(frozen=True)
class PlainFact:
    """A fact in tokens."""

    x: list[int]
    y: int


class PlainMixture(nn.Module):
    """Soft prompts, one parameter a prompt, and their weights."""

    def __init__(self, model: Any, prompts: Sequence[PlainPrompt], *, deep: bool) -> None:
        super().__init__()
        self.prompts, self.deep = list(prompts), deep
        embedding = model.get_input_embeddings()
        hard = [[token for token, is_prompt in (*p.left, *p.right) if is_prompt] for p in self.prompts]
        with torch.no_grad():
            starts = [embedding(torch.tensor(tokens, dtype=torch.long)) for tokens in hard]
        self.vectors = nn.ParameterList([nn.Parameter(start.clone()) for start in starts])
        layers, width = model.config.num_hidden_layers, model.config.hidden_size
        self.deltas = nn.ParameterList([nn.Parameter(torch.zeros(layers, len(tokens), width)) for tokens in hard])
        self.weights = torch.full((len(self.prompts),), 1 / len(self.prompts))


def blocks_of(model: Any) -> list[nn.Module]:
    """Return the layers of a BERT-, RoBERTa- or Llama-like model."""
    base = model.base_model
    return list(base.encoder.layer if hasattr(base, "encoder") else base.layers)


def log_probs(model: Any, mixture: PlainMixture, pairs: Sequence[tuple[PlainFact, int]]) -> Tensor:
    """Return log p(y | t, x) of a batch of pairs, from logits at every position."""
    embedding = model.get_input_embeddings()
    sequences, places, additions = [], [], []
    for fact, number in pairs:
        prompt, rows, added, soft = mixture.prompts[number], [], [], 0
        for token, is_prompt in [*prompt.left, *((token, False) for token in fact.x), *prompt.right]:
            if is_prompt:
                rows.append(mixture.vectors[number][soft])
                added.append(mixture.deltas[number][:, soft])
                soft += 1
            else:
                rows.append(embedding(torch.tensor(token)))
                added.append(torch.zeros_like(mixture.deltas[number][:, 0]) if mixture.deep else None)
        sequences.append(torch.stack(rows))
        additions.append(torch.stack(added, dim=1) if mixture.deep else None)
        places.append(prompt.y_at + (len(fact.x) if prompt.y_after_x else 0))
    inputs = nn.utils.rnn.pad_sequence(sequences, batch_first=True)
    lengths = torch.tensor([len(sequence) for sequence in sequences])
    attention = (torch.arange(inputs.shape[1]) < lengths[:, None]).long()
    handles = _add_deltas(model, additions, inputs.shape[1]) if mixture.deep else []
    try:
        logits = model(inputs_embeds=inputs, attention_mask=attention).logits
    finally:
        for handle in handles:
            handle.remove()
    everywhere = logits.log_softmax(-1)
    ys = torch.tensor([fact.y for fact, _ in pairs])
    return everywhere[torch.arange(len(pairs)), torch.tensor(places), ys]


def _add_deltas(model: Any, additions: Sequence[Any], length: int) -> list[Any]:
    padded = [nn.functional.pad(added, (0, 0, 0, length - added.shape[1])) for added in additions]
    by_layer = torch.stack(padded, dim=1)  # layers × pairs × positions × width
    return [
        block.register_forward_hook(lambda _module, _inputs, output, layer=layer: output + by_layer[layer])
        for layer, block in enumerate(blocks_of(model))
    ]


def train_epoch(
    model: Any,
    mixture: PlainMixture,
    facts: Sequence[PlainFact],
    optimizer: torch.optim.Optimizer,
    generator: torch.Generator,
) -> float:
    """Do one epoch of EM, and return the mean -log p(y | x, r) of its E pass."""
    prompts = range(len(mixture.prompts))
    pairs = [(fact, prompt) for fact in facts for prompt in prompts]
    with torch.no_grad():
        parts = [log_probs(model, mixture, pairs[i : i + BATCH_PAIRS]) for i in range(0, len(pairs), BATCH_PAIRS)]
    joint = torch.cat(parts).view(len(facts), len(prompts)) + mixture.weights.log()
    posteriors = joint.softmax(1)
    order = torch.randperm(len(pairs), generator=generator)
    for start in range(0, len(pairs), BATCH_PAIRS):
        chosen = order[start : start + BATCH_PAIRS].tolist()
        batch = [pairs[number] for number in chosen]
        loss = -(posteriors.flatten()[chosen] * log_probs(model, mixture, batch)).sum() / len(batch)
        model.zero_grad()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    mixture.weights = posteriors.mean(0)
    return float(-joint.logsumexp(1).mean())


def tuned_parameters(mixture: PlainMixture) -> list[nn.Parameter]:
    """Return the parameters for the optimiser."""
    return [*mixture.vectors, *(mixture.deltas if mixture.deep else [])]


@torch.no_grad()
def evaluate(model: Any, mixture: PlainMixture, facts: Sequence[PlainFact]) -> Tensor:
    """Return log p(· | x, r) of every fact over the vocabulary, holding facts × prompts × vocabulary numbers."""
    held = []
    embedding = model.get_input_embeddings()
    for fact in facts:
        of_prompts = []
        for number, prompt in enumerate(mixture.prompts):
            rows, soft = [], 0
            for token, is_prompt in [*prompt.left, *((token, False) for token in fact.x), *prompt.right]:
                if is_prompt:
                    rows.append(mixture.vectors[number][soft])
                    soft += 1
                else:
                    rows.append(embedding(torch.tensor(token)))
            place = prompt.y_at + (len(fact.x) if prompt.y_after_x else 0)
            of_prompts.append((torch.stack(rows), place))
        held.append(of_prompts)
    flat = [item for of_prompts in held for item in of_prompts]
    tables = []
    for start in range(0, len(flat), BATCH_PAIRS):
        batch = flat[start : start + BATCH_PAIRS]
        inputs = nn.utils.rnn.pad_sequence([rows for rows, _ in batch], batch_first=True)
        lengths = torch.tensor([len(rows) for rows, _ in batch])
        attention = (torch.arange(inputs.shape[1]) < lengths[:, None]).long()
        everywhere = model(inputs_embeds=inputs, attention_mask=attention).logits.log_softmax(-1)
        tables.append(everywhere[torch.arange(len(batch)), torch.tensor([place for _, place in batch])])
    table = torch.cat(tables).view(len(facts), len(mixture.prompts), -1)
    return (table + mixture.weights.log()[:, None]).logsumexp(1)
