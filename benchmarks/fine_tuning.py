"""Fine-tuning a whole masked LM on the same pairs, for comparison with soft prompts."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from plain_loop import PlainFact
from torch import nn

from askwell import Mixture


def fine_tuning_step(mixture: Mixture, facts: Sequence[PlainFact]) -> Callable[[], object]:
    """Return a step of Adam on all weights of a BERT, over all facts with all hard prompts; weights are restored."""
    model: Any = mixture.lm.model
    sequences, places, ys = [], [], []
    for fact in facts:
        for prompt in mixture.prompts:
            stream, question = prompt.question.streams["layers"], prompt.question
            left, right = ([token.id for token in side] for side in (stream.left, stream.right))
            sequences.append(torch.tensor(left + fact.x + right))
            places.append(question.read_at + (len(fact.x) if question.read_after_x else 0))
            ys.append(fact.y)
    inputs = nn.utils.rnn.pad_sequence(sequences, batch_first=True)
    lengths = torch.tensor([len(sequence) for sequence in sequences])
    attention = (torch.arange(inputs.shape[1]) < lengths[:, None]).long()
    rows, at_y = torch.arange(len(sequences)), torch.tensor(places)

    def step() -> None:
        before = [parameter.detach().clone() for parameter in model.parameters()]
        model.requires_grad_(True)
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-5)
        hidden = model.base_model(input_ids=inputs, attention_mask=attention).last_hidden_state
        nn.functional.cross_entropy(model.cls(hidden[rows, at_y]), torch.tensor(ys)).backward()
        optimizer.step()
        optimizer.zero_grad()
        model.requires_grad_(False)
        with torch.no_grad():
            for parameter, value in zip(model.parameters(), before, strict=True):
                parameter.copy_(value)

    return step
