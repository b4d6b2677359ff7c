"""GPT-2: causal layers that normalise before each part, with learned positions."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from askwell.lms.walks.rows import PackedBatch, runs
from askwell.lms.walks.tails import Tails
from askwell.lms.walks.walk import Attention, Deltas, Walk, perturb, rows_at


def walk_gpt2(model: Any, tails: Tails) -> Walk:
    """GPT-2."""
    base = model.transformer
    attentions = [_attention(layer.attn) for layer in base.h]

    def hidden(batch: PackedBatch, embedded: Mapping[str, Tensor], deltas: Deltas) -> Tensor:
        rows = asking_rows = batch.streams["layers"]
        reached = embedded["layers"] + base.wpe(rows.positions)
        among = runs(rows, rows, causal=True)
        for number, layer in enumerate(base.h):
            asking, normed = reached, layer.ln_1(reached)
            normed_asking = normed
            if number == len(base.h) - 1:
                asking, normed_asking = rows_at(reached, batch.read_at), rows_at(normed, batch.read_at)
                asking_rows, among = batch.reads, runs(batch.reads, rows, causal=True)
            asking = asking + attentions[number](normed_asking, normed, among)
            asking = tails.pre_norm(layer.ln_2, layer.mlp, asking)
            reached = perturb(asking, asking_rows, deltas, "layers", number)
        return base.ln_f(reached)

    return Walk(hidden, model.lm_head.weight, model.lm_head.bias)


def _attention(module: Any) -> Attention:
    together, width = module.c_attn, module.embed_dim

    def part(number: int) -> Callable[[Tensor], Tensor]:
        columns = slice(number * width, (number + 1) * width)
        return lambda rows: torch.addmm(together.bias[columns], rows, together.weight[:, columns])

    return Attention(part(0), part(1), part(2), module.c_proj, module.head_dim, module.scaling)
