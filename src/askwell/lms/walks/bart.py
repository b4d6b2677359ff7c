"""BART: an encoder that is passed whole, and a decoder that is read at single rows."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from askwell.lms.walks.attention import Tails
from askwell.lms.walks.bert import PostNormLayer, walk_encoder
from askwell.lms.walks.rows import PackedBatch, Rows, runs
from askwell.lms.walks.walk import Attention, Deltas, Walk, perturb, rows_at


@dataclass(frozen=True)
class _DecoderLayer:
    layer: PostNormLayer
    cross: Attention
    cross_norm: Callable[[Tensor], Tensor]


def walk_bart(model: Any, tails: Tails) -> Walk:
    """BART."""
    encoder, decoder = model.model.encoder, model.model.decoder
    encoder_layers = [_post_norm(layer, tails) for layer in encoder.layers]
    decoder_layers = [
        _DecoderLayer(_post_norm(layer, tails), _attention(layer.encoder_attn), layer.encoder_attn_layer_norm)
        for layer in decoder.layers
    ]

    def hidden(batch: PackedBatch, embedded: Mapping[str, Tensor], deltas: Deltas) -> Tensor:
        seen, told = batch.streams["encoder"], batch.streams["decoder"]
        source, _ = walk_encoder(encoder_layers, _embed(encoder, embedded["encoder"], seen), seen, deltas, "encoder")
        reached = _embed(decoder, embedded["decoder"], told)
        asking, rows = reached, told
        for number, parts in enumerate(decoder_layers):
            if number == len(decoder_layers) - 1:
                asking, rows = rows_at(reached, batch.read_at), batch.reads
            if number in (0, len(decoder_layers) - 1):
                before, across = runs(rows, told, causal=True), runs(rows, seen, causal=False)
            layer = parts.layer
            asking = layer.attention_norm(layer.attention(asking, reached, before) + asking)
            asking = parts.cross_norm(parts.cross(asking, source, across) + asking)
            asking = reached = perturb(layer.feed(asking), rows, deltas, "decoder", number)
        return asking

    return Walk(hidden, model.lm_head.weight, model.final_logits_bias[0])


def _embed(stack: Any, words: Tensor, rows: Rows) -> Tensor:
    positions = stack.embed_positions
    return stack.layernorm_embedding(words + positions.weight[rows.positions + positions.offset])


def _attention(module: Any) -> Attention:
    return Attention(module.q_proj, module.k_proj, module.v_proj, module.out_proj, module.head_dim, module.scaling)


def _post_norm(layer: Any, tails: Tails) -> PostNormLayer:
    return PostNormLayer(
        _attention(layer.self_attn),
        layer.self_attn_layer_norm,
        layer.fc1,
        layer.activation_fn,
        layer.fc2,
        layer.final_layer_norm,
        tails.post_norm,
    )
