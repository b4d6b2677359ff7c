"""Walks of models with pre-norm layers: GPT-2, OPT, GPT-NeoX, Llama and its many relatives, and ModernBERT.

They share one walk. What differs is how a layer projects its queries, keys and values, whether and how they are rotated
by position, where the norms are, and whether attention and the feed-forward block run in parallel or in sequence.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from askwell.lms.walks.attention import attend, groups_of
from askwell.lms.walks.rows import PackedBatch
from askwell.lms.walks.walk import Deltas, FeedForward, Part, Walk, as_sequence, perturb, rows_at

Projected = tuple[Tensor, Tensor, Tensor]
"""Queries, keys and values."""
Rotary = tuple[Tensor, Tensor]
"""Cosines and sines of the rows' positions, [rows, 1, rotated part of a head]."""


@dataclass(frozen=True)
class _PreNormLayer:
    """The parts of a pre-norm layer, under the same names for all architectures."""

    attention_norm: Part
    project: Callable[[Tensor, Tensor], Projected]
    """From the rows that attend and those that are attended to, both normalised."""
    out: Part
    """The output projection, and the norm after it, if there is one."""
    feed_norm: Part
    feed: Part
    """The feed-forward block, and the norm after it, if there is one."""
    head_size: int
    scale: float
    cap: float | None = None
    rotary: str = ""
    """Which rotary embedding it uses, if there are several."""
    is_parallel: bool = False
    """Whether attention and the feed-forward block both read the layer's input."""


def _pre_norm_walk(
    layers: Sequence[_PreNormLayer],
    embed: Callable[[Tensor, Tensor], Tensor],
    rotary: Callable[[Tensor, Tensor, str], Rotary] | None,
    before_output: Part,
    output: Any,
    block: FeedForward,
    *,
    causal: bool = True,
    cap: float | None = None,
) -> Walk:
    """Return the walk through some layers: in the last one, only the rows that are read attend to others."""
    kinds = {layer.rotary for layer in layers}

    def hidden(batch: PackedBatch, embedded: Mapping[str, Tensor], deltas: Deltas) -> Tensor:
        rows = query_rows = batch.streams["layers"]
        states = embed(embedded["layers"], rows.positions)
        key_turns = {} if rotary is None else {kind: rotary(states, rows.positions, kind) for kind in kinds}
        groups = groups_of(rows, batch.key_lengths, causal=causal)
        for number, layer in enumerate(layers):
            queries, normed = states, layer.attention_norm(states)
            normed_queries, key_turn = normed, key_turns.get(layer.rotary)
            query_turn = key_turn
            if number == len(layers) - 1:
                queries, normed_queries = rows_at(states, batch.read_at), rows_at(normed, batch.read_at)
                query_rows, groups = batch.reads, groups_of(batch.reads, batch.key_lengths, causal=causal)
                query_turn = None if rotary is None else rotary(states, batch.reads.positions, layer.rotary)
            query, key, value = layer.project(normed_queries, normed)
            if query_turn is not None and key_turn is not None:
                query, key = _rotate(query, query_turn, layer.head_size), _rotate(key, key_turn, layer.head_size)
            key, value = batch.memory.join(number, key, value)
            attended = layer.out(attend(query, key, value, groups, layer.head_size, layer.scale, layer.cap))
            if layer.is_parallel:
                queries = block.pre_norm(layer.feed_norm, layer.feed, queries) + attended
            else:
                queries = block.pre_norm(layer.feed_norm, layer.feed, queries + attended)
            states = perturb(queries, query_rows, deltas, "layers", number)
        return before_output(states)

    return Walk(hidden, output.weight, output.bias, cap)


def _rotate(rows: Tensor, rotary: Rotary, head_size: int) -> Tensor:
    """Return queries or keys with their rotary embedding, on the first part of each head if it is for a part."""
    cos, sin = rotary
    by_head, rotated = rows.view(rows.shape[0], -1, head_size), cos.shape[-1]
    turned = _Rotate.apply(by_head[..., :rotated], cos, sin)
    if rotated < head_size:
        turned = torch.cat((turned, by_head[..., rotated:]), dim=-1)
    return turned.to(rows.dtype).view_as(rows)


class _Rotate(torch.autograd.Function):
    """Each number of the first half of a head is turned together with that of the second half."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        ctx.save_for_backward(cos, sin)
        turned, half = x * cos, x.shape[-1] // 2
        turned[..., :half].addcmul_(x[..., half:], sin[..., :half].to(turned.dtype), value=-1)
        turned[..., half:].addcmul_(x[..., :half], sin[..., half:].to(turned.dtype))
        return turned

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        (cos, sin), gradient = ctx.saved_tensors, gradients[0]
        turned, half = gradient * cos, gradient.shape[-1] // 2
        turned[..., :half].addcmul_(gradient[..., half:], sin[..., half:].to(turned.dtype))
        turned[..., half:].addcmul_(gradient[..., :half], sin[..., :half].to(turned.dtype), value=-1)
        return turned, None, None


def _one_rotary(base: Any) -> Callable[[Tensor, Tensor, str], Rotary]:
    def rotary(like: Tensor, positions: Tensor, _kind: str) -> Rotary:
        cos, sin = base.rotary_emb(like, position_ids=positions.unsqueeze(0))
        return cos[0].unsqueeze(1), sin[0].unsqueeze(1)

    return rotary


def _rotary_by_kind(base: Any) -> Callable[[Tensor, Tensor, str], Rotary]:
    """Return the rotary embeddings of a model whose layers with a window have another base than those without."""

    def rotary(like: Tensor, positions: Tensor, kind: str) -> Rotary:
        cos, sin = base.rotary_emb(like, positions.unsqueeze(0), kind)
        return cos[0].unsqueeze(1), sin[0].unsqueeze(1)

    return rotary


def _unchanged(words: Tensor, _positions: Tensor) -> Tensor:
    return words


# ── queries, keys and values ──────────────────────────────────────────────────────────────────────────────────────


def _apart(
    query: Part, key: Part, value: Part, query_norm: Part | None = None, key_norm: Part | None = None
) -> Callable[[Tensor, Tensor], Projected]:
    """Return what separate projections give."""

    def project(from_rows: Tensor, to_rows: Tensor) -> Projected:
        queries, keys = query(from_rows), key(to_rows)
        queries = queries if query_norm is None else query_norm(queries)
        keys = keys if key_norm is None else key_norm(keys)
        return queries, keys, value(to_rows)

    return project


def _of_heads(norm: Part, head_size: int) -> Part:
    """Return a norm for each head separately."""
    return lambda rows: norm(rows.view(rows.shape[0], -1, head_size)).view_as(rows)


def _interleaved(module: Any, head_size: int) -> Callable[[Tensor, Tensor], Projected]:
    """Return what one projection gives, with query, key and value head by head, as GPT-NeoX's does."""

    def split(rows: Tensor) -> Projected:
        query, key, value = module(rows).view(rows.shape[0], -1, 3, head_size).unbind(2)
        width = query.shape[1] * head_size
        return query.reshape(-1, width), key.reshape(-1, width), value.reshape(-1, width)

    def project(from_rows: Tensor, to_rows: Tensor) -> Projected:
        queries, keys, values = split(to_rows)
        return (queries if from_rows is to_rows else split(from_rows)[0]), keys, values

    return project


# ── architectures ─────────────────────────────────────────────────────────────────────────────────────────────────


def walk_gpt2(model: Any, block: FeedForward) -> Walk:
    """Return the walk of GPT-2."""
    base = model.transformer

    def part(projection: Any, number: int, width: int) -> Part:
        columns = slice(number * width, (number + 1) * width)
        return lambda rows: functional.linear(rows, projection.weight[:, columns].T, projection.bias[columns])

    layers = [
        _PreNormLayer(
            layer.ln_1,
            _apart(*(part(layer.attn.c_attn, number, layer.attn.embed_dim) for number in range(3))),
            layer.attn.c_proj,
            layer.ln_2,
            layer.mlp,
            layer.attn.head_dim,
            layer.attn.scaling,
        )
        for layer in base.h
    ]
    return _pre_norm_walk(
        layers, lambda words, positions: words + base.wpe(positions), None, base.ln_f, model.lm_head, block
    )


def walk_opt(model: Any, block: FeedForward) -> Walk | None:
    """Return the walk of OPT; None for the size whose norms follow the blocks and whose word vectors are narrower."""
    base = model.model.decoder
    if not model.config.do_layer_norm_before or base.project_in is not None:
        return None
    layers = [
        _PreNormLayer(
            layer.self_attn_layer_norm,
            _apart(layer.self_attn.q_proj, layer.self_attn.k_proj, layer.self_attn.v_proj),
            layer.self_attn.out_proj,
            layer.final_layer_norm,
            nn.Sequential(layer.fc1, layer.activation_fn, layer.fc2),
            layer.self_attn.head_dim,
            layer.self_attn.scaling,
        )
        for layer in base.layers
    ]
    positions_of = base.embed_positions

    def embed(words: Tensor, positions: Tensor) -> Tensor:
        return words + functional.embedding(positions + positions_of.offset, positions_of.weight)

    before_output = base.final_layer_norm if base.final_layer_norm is not None else nn.Identity()
    return _pre_norm_walk(layers, embed, None, before_output, model.lm_head, block)


def walk_gpt_neox(model: Any, block: FeedForward) -> Walk:
    """Return the walk of GPT-NeoX and Pythia."""
    base = model.gpt_neox
    layers = [
        _PreNormLayer(
            layer.input_layernorm,
            _interleaved(layer.attention.query_key_value, layer.attention.head_size),
            layer.attention.dense,
            layer.post_attention_layernorm,
            layer.mlp,
            layer.attention.head_size,
            layer.attention.scaling,
            is_parallel=layer.use_parallel_residual,
        )
        for layer in base.layers
    ]
    return _pre_norm_walk(layers, _unchanged, _one_rotary(base), base.final_layer_norm, model.lm_head, block)


def walk_llama(model: Any, block: FeedForward) -> Walk:
    """Return the walk of Llama, SmolLM2, Mistral, Qwen2, and Qwen3, which normalises each head's queries and keys."""
    base = model.model
    layers = [
        _llama_layer(layer, layer.input_layernorm, layer.self_attn.o_proj, layer.post_attention_layernorm, layer.mlp)
        for layer in base.layers
    ]
    return _pre_norm_walk(layers, _unchanged, _one_rotary(base), base.norm, model.lm_head, block)


def walk_olmo2(model: Any, block: FeedForward) -> Walk:
    """Return the walk of OLMo 2, whose norms follow attention and the feed-forward block, inside the residual."""
    base = model.model
    layers = [
        _llama_layer(
            layer,
            nn.Identity(),
            nn.Sequential(layer.self_attn.o_proj, layer.post_attention_layernorm),
            nn.Identity(),
            nn.Sequential(layer.mlp, layer.post_feedforward_layernorm),
            whole_norms=True,
        )
        for layer in base.layers
    ]
    return _pre_norm_walk(layers, _unchanged, _one_rotary(base), base.norm, model.lm_head, block)


def walk_gemma(model: Any, block: FeedForward) -> Walk | None:
    """Return the walk of Gemma 2 and 3 (text), with norms before and after, and caps on Gemma 2's scores and logits."""
    base, config = model.model, model.config
    if getattr(config, "use_bidirectional_attention", False):
        return None
    turns_by_kind = hasattr(base.rotary_emb, "layer_types")
    layers = [
        _llama_layer(
            layer,
            layer.input_layernorm,
            nn.Sequential(layer.self_attn.o_proj, layer.post_attention_layernorm),
            layer.pre_feedforward_layernorm,
            nn.Sequential(layer.mlp, layer.post_feedforward_layernorm),
            cap=None if turns_by_kind else layer.self_attn.attn_logit_softcapping,  # Gemma 3 has the option, unused
            rotary=layer.self_attn.layer_type if turns_by_kind else "",
        )
        for layer in base.layers
    ]
    rotary = _rotary_by_kind(base) if turns_by_kind else _one_rotary(base)
    cap = config.final_logit_softcapping
    return _pre_norm_walk(layers, _unchanged, rotary, base.norm, model.lm_head, block, cap=cap)


def _llama_layer(
    layer: Any,
    attention_norm: Part,
    out: Part,
    feed_norm: Part,
    feed: Part,
    *,
    cap: float | None = None,
    rotary: str = "",
    whole_norms: bool = False,
) -> _PreNormLayer:
    """Return a layer with Llama's projections. If it normalises queries and keys, then head by head or as a whole."""
    inner, norms = layer.self_attn, []
    if hasattr(inner, "q_norm"):
        norms = [inner.q_norm, inner.k_norm]
        norms = norms if whole_norms else [_of_heads(norm, inner.head_dim) for norm in norms]
    project = _apart(inner.q_proj, inner.k_proj, inner.v_proj, *norms)
    return _PreNormLayer(
        attention_norm, project, out, feed_norm, feed, inner.head_dim, inner.scaling, cap=cap, rotary=rotary
    )


def walk_modernbert(model: Any, block: FeedForward) -> Walk:
    """Return the walk of ModernBERT."""
    base = model.model

    def part(projection: Any, number: int) -> Part:
        width = projection.in_features
        rows_of = slice(number * width, (number + 1) * width)
        bias = None if projection.bias is None else projection.bias[rows_of]
        return lambda rows: functional.linear(rows, projection.weight[rows_of], bias)

    layers = [
        _PreNormLayer(
            layer.attn_norm,
            _apart(*(part(layer.attn.Wqkv, number) for number in range(3))),
            layer.attn.Wo,
            layer.mlp_norm,
            layer.mlp,
            layer.attn.head_dim,
            layer.attn.head_dim**-0.5,
            rotary=layer.attention_type,
        )
        for layer in base.layers
    ]
    return _pre_norm_walk(
        layers,
        lambda words, _positions: as_sequence(base.embeddings, words),
        _rotary_by_kind(base),
        nn.Sequential(base.final_norm, model.head),
        model.decoder,
        block,
        causal=False,
    )
