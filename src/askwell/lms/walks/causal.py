"""GPT-2: causal layers that normalise before each part, with learned positions.

Llama and its like: causal layers that normalise before each part, with rotary positions and shared key heads.
"""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from askwell.lms.walks.attention import Tails, attend
from askwell.lms.walks.rows import PackedBatch, Rows, runs
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


def walk_llama(model: Any, tails: Tails) -> Walk:
    """Llama, SmolLM2 and Qwen2."""
    base = model.model

    def hidden(batch: PackedBatch, embedded: Mapping[str, Tensor], deltas: Deltas) -> Tensor:
        rows = batch.streams["layers"]
        reached = embedded["layers"]
        key_turn = _turn(base, reached, rows)
        query_turn, asking_rows = key_turn, rows
        among = runs(rows, rows, causal=True)
        for number, layer in enumerate(base.layers):
            asking, normed = reached, layer.input_layernorm(reached)
            normed_asking = normed
            if number == len(base.layers) - 1:
                asking, normed_asking = rows_at(reached, batch.read_at), rows_at(normed, batch.read_at)
                asking_rows, among = batch.reads, runs(batch.reads, rows, causal=True)
                query_turn = _turn(base, reached, batch.reads)
            attention = layer.self_attn
            query = _turned(attention.q_proj(normed_asking), query_turn)
            key = _turned(attention.k_proj(normed), key_turn)
            attended = attend(query, key, attention.v_proj(normed), among, attention.head_dim, attention.scaling)
            asking = asking + attention.o_proj(attended)
            asking = tails.pre_norm(layer.post_attention_layernorm, layer.mlp, asking)
            reached = perturb(asking, asking_rows, deltas, "layers", number)
        return base.norm(reached)

    return Walk(hidden, model.lm_head.weight, model.lm_head.bias)


def _turn(base: Any, like: Tensor, rows: Rows) -> tuple[Tensor, Tensor]:
    """Cosines and sines of the rows' positions, [rows, 1, head size]."""
    cos, sin = base.rotary_emb(like, position_ids=rows.positions.unsqueeze(0))
    return cos[0].unsqueeze(1), sin[0].unsqueeze(1)


def _turned(rows: Tensor, turn: tuple[Tensor, Tensor]) -> Tensor:
    cos, sin = turn
    by_head = rows.view(rows.shape[0], -1, cos.shape[-1])
    first, second = by_head.chunk(2, dim=-1)
    return (by_head * cos + torch.cat((-second, first), dim=-1) * sin).view_as(rows)
