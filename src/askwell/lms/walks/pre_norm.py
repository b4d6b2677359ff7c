"""Walks of models with pre-norm layers: GPT-2, and Llama and its like, with rotary embeddings and grouped key heads."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor

from askwell.lms.walks.attention import attend
from askwell.lms.walks.rows import PackedBatch, Rows, segments_of
from askwell.lms.walks.walk import Attention, Deltas, FeedForward, Walk, perturb, rows_at


def walk_gpt2(model: Any, block: FeedForward) -> Walk:
    """GPT-2."""
    base = model.transformer
    attentions = [_gpt2_attention(layer.attn) for layer in base.h]

    def hidden(batch: PackedBatch, embedded: Mapping[str, Tensor], deltas: Deltas) -> Tensor:
        rows = query_rows = batch.streams["layers"]
        states = embedded["layers"] + base.wpe(rows.positions)
        segments = segments_of(rows, batch.key_lengths, causal=True)
        for number, layer in enumerate(base.h):
            queries, normed = states, layer.ln_1(states)
            normed_queries = normed
            if number == len(base.h) - 1:
                queries, normed_queries = rows_at(states, batch.read_at), rows_at(normed, batch.read_at)
                query_rows, segments = batch.reads, segments_of(batch.reads, batch.key_lengths, causal=True)
            seen = partial(batch.memory.join, number)
            queries = queries + attentions[number](normed_queries, normed, segments, seen)
            queries = block.pre_norm(layer.ln_2, layer.mlp, queries)
            states = perturb(queries, query_rows, deltas, "layers", number)
        return base.ln_f(states)

    return Walk(hidden, model.lm_head.weight, model.lm_head.bias)


def _gpt2_attention(module: Any) -> Attention:
    projection, width = module.c_attn, module.embed_dim

    def part(number: int) -> Callable[[Tensor], Tensor]:
        columns = slice(number * width, (number + 1) * width)
        return lambda rows: torch.addmm(projection.bias[columns], rows, projection.weight[:, columns])

    return Attention(part(0), part(1), part(2), module.c_proj, module.head_dim, module.scaling)


def walk_llama(model: Any, block: FeedForward) -> Walk:
    """Llama, SmolLM2 and Qwen2."""
    base = model.model

    def hidden(batch: PackedBatch, embedded: Mapping[str, Tensor], deltas: Deltas) -> Tensor:
        rows = batch.streams["layers"]
        states = embedded["layers"]
        key_rotary = _rotary_embedding(base, states, rows)
        query_rotary, query_rows = key_rotary, rows
        segments = segments_of(rows, batch.key_lengths, causal=True)
        for number, layer in enumerate(base.layers):
            queries, normed = states, layer.input_layernorm(states)
            normed_queries = normed
            if number == len(base.layers) - 1:
                queries, normed_queries = rows_at(states, batch.read_at), rows_at(normed, batch.read_at)
                query_rows, segments = batch.reads, segments_of(batch.reads, batch.key_lengths, causal=True)
                query_rotary = _rotary_embedding(base, states, batch.reads)
            attention = layer.self_attn
            query = _rotate(attention.q_proj(normed_queries), query_rotary)
            key = _rotate(attention.k_proj(normed), key_rotary)
            key, value = batch.memory.join(number, key, attention.v_proj(normed))
            attended = attend(query, key, value, segments, attention.head_dim, attention.scaling)
            queries = queries + attention.o_proj(attended)
            queries = block.pre_norm(layer.post_attention_layernorm, layer.mlp, queries)
            states = perturb(queries, query_rows, deltas, "layers", number)
        return base.norm(states)

    return Walk(hidden, model.lm_head.weight, model.lm_head.bias)


def _rotary_embedding(base: Any, like: Tensor, rows: Rows) -> tuple[Tensor, Tensor]:
    """Cosines and sines of the rows' positions, [rows, 1, head size]."""
    cos, sin = base.rotary_emb(like, position_ids=rows.positions.unsqueeze(0))
    return cos[0].unsqueeze(1), sin[0].unsqueeze(1)


def _rotate(rows: Tensor, rotary: tuple[Tensor, Tensor]) -> Tensor:
    """Queries or keys with their rotary embedding applied."""
    cos, sin = rotary
    by_head = rows.view(rows.shape[0], -1, cos.shape[-1])
    first, second = by_head.chunk(2, dim=-1)
    return (by_head * cos + torch.cat((-second, first), dim=-1) * sin).view_as(rows)
