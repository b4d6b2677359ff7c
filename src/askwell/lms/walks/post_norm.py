"""Walks of models with post-norm layers: BERT, RoBERTa, ELECTRA, DistilBERT, ALBERT and BART."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from torch import Tensor
from torch.nn import functional

from askwell.lms.walks.attention import Group, groups_of
from askwell.lms.walks.past import KeysAndValues
from askwell.lms.walks.rows import PackedBatch, Rows
from askwell.lms.walks.walk import Attention, Deltas, FeedForward, Walk, as_sequence, perturb, rows_at


@dataclass(frozen=True)
class _PostNormLayer:
    """The parts of a post-norm layer, under the same names for all architectures."""

    attention: Attention
    attention_norm: Callable[[Tensor], Tensor]
    up: Callable[[Tensor], Tensor]
    activation: Callable[[Tensor], Tensor]
    down: Callable[[Tensor], Tensor]
    output_norm: Callable[[Tensor], Tensor]
    block: FeedForward

    def attend(
        self,
        from_rows: Tensor,
        to_rows: Tensor,
        groups: Sequence[Group],
        seen: Callable[[Tensor, Tensor], KeysAndValues] | None = None,
    ) -> Tensor:
        """Return the rows that attend as they leave the layer's self-attention."""
        return self.attention_norm(self.attention(from_rows, to_rows, groups, seen) + from_rows)

    def feed_forward(self, hidden: Tensor) -> Tensor:
        """Return the rows as they leave the layer's feed-forward block."""
        return self.block.post_norm(self.up, self.activation, self.down, self.output_norm, hidden)


def _through_encoder(
    layers: Sequence[_PostNormLayer], hidden: Tensor, rows: Rows, deltas: Deltas, stack: str
) -> Tensor:
    """Return all rows as they leave the last of these layers."""
    groups = groups_of(rows, rows.lengths, causal=False)
    for number, layer in enumerate(layers):
        hidden = perturb(layer.feed_forward(layer.attend(hidden, hidden, groups)), rows, deltas, stack, number)
    return hidden


def _masked_walk(
    embed: Callable[[Tensor, Tensor], Tensor],
    layers: Sequence[_PostNormLayer],
    before_output: Callable[[Tensor], Tensor],
    output: Any,
) -> Walk:
    """Return the walk of a masked LM: in the last layer only the rows that are read attend to others."""

    def hidden(batch: PackedBatch, embedded: Any, deltas: Deltas) -> Tensor:
        rows, last = batch.streams["layers"], layers[-1]
        states = _through_encoder(layers[:-1], embed(embedded["layers"], rows.positions), rows, deltas, "layers")
        groups = groups_of(batch.reads, rows.lengths, causal=False)
        read = last.feed_forward(last.attend(rows_at(states, batch.read_at), states, groups))
        return before_output(perturb(read, batch.reads, deltas, "layers", len(layers) - 1))

    return Walk(hidden, output.weight, output.bias)


def walk_bert(model: Any, block: FeedForward) -> Walk:
    """Return the walk of BERT."""
    head = model.cls.predictions
    return _masked_walk(_embed(model.bert), _bert_layers(model.bert, block), head.transform, head.decoder)


def walk_roberta(model: Any, block: FeedForward) -> Walk:
    """Return the walk of RoBERTa, XLM-R and CamemBERT, whose positions begin after the padding token's id."""
    head, first = model.lm_head, model.roberta.embeddings.padding_idx + 1

    def before_output(hidden: Tensor) -> Tensor:
        return head.layer_norm(functional.gelu(head.dense(hidden)))

    return _masked_walk(_embed(model.roberta, first), _bert_layers(model.roberta, block), before_output, head.decoder)


def walk_electra(model: Any, block: FeedForward) -> Walk:
    """Return the walk of ELECTRA's generators, whose word vectors have another size than the hidden states."""
    base = model.electra
    project = getattr(base, "embeddings_project", None)
    embed = _embed(base, after=project) if project is not None else _embed(base)
    return _masked_walk(embed, _bert_layers(base, block), model.generator_predictions, model.generator_lm_head)


def walk_distilbert(model: Any, block: FeedForward) -> Walk:
    """Return the walk of DistilBERT."""
    layers = []
    for layer in model.distilbert.transformer.layer:
        inner, feed = layer.attention, layer.ffn
        attention = Attention(
            inner.q_lin, inner.k_lin, inner.v_lin, inner.out_lin, inner.attention_head_size, inner.scaling
        )
        layers.append(
            _PostNormLayer(
                attention,
                layer.sa_layer_norm,
                feed.lin1,
                feed.activation,
                feed.lin2,
                layer.output_layer_norm,
                block,
            )
        )

    def embed(words: Tensor, positions: Tensor) -> Tensor:
        return as_sequence(model.distilbert.embeddings, words, input_ids=None, position_ids=positions.unsqueeze(0))

    def before_output(hidden: Tensor) -> Tensor:
        return model.vocab_layer_norm(model.activation(model.vocab_transform(hidden)))

    return _masked_walk(embed, layers, before_output, model.vocab_projector)


def walk_albert(model: Any, block: FeedForward) -> Walk:
    """Return the walk of ALBERT, whose layers share a few sets of weights."""
    encoder, config = model.albert.encoder, model.config
    layers = []
    for number in range(config.num_hidden_layers):
        group = encoder.albert_layer_groups[int(number / (config.num_hidden_layers / config.num_hidden_groups))]
        for layer in group.albert_layers:
            inner = layer.attention
            attention = Attention(
                inner.query, inner.key, inner.value, inner.dense, inner.attention_head_size, inner.scaling
            )
            layers.append(
                _PostNormLayer(
                    attention,
                    inner.LayerNorm,
                    layer.ffn,
                    layer.activation,
                    layer.ffn_output,
                    layer.full_layer_layer_norm,
                    block,
                )
            )
    head = model.predictions

    def before_output(hidden: Tensor) -> Tensor:
        return head.LayerNorm(head.activation(head.dense(hidden)))

    embed = _embed(model.albert, after=encoder.embedding_hidden_mapping_in)
    return _masked_walk(embed, layers, before_output, head.decoder)


def _embed(base: Any, first: int = 0, after: Callable[[Tensor], Tensor] | None = None) -> Any:
    def embed(words: Tensor, positions: Tensor) -> Tensor:
        embedded = as_sequence(base.embeddings, words, position_ids=(positions + first).unsqueeze(0))
        return embedded if after is None else after(embedded)

    return embed


def _bert_layers(base: Any, block: FeedForward) -> list[_PostNormLayer]:
    layers = []
    for layer in base.encoder.layer:
        inner, after = layer.attention.self, layer.attention.output
        attention = Attention(
            inner.query, inner.key, inner.value, after.dense, inner.attention_head_size, inner.scaling
        )
        feed = layer.intermediate
        layers.append(
            _PostNormLayer(
                attention,
                after.LayerNorm,
                feed.dense,
                feed.intermediate_act_fn,
                layer.output.dense,
                layer.output.LayerNorm,
                block,
            )
        )
    return layers


@dataclass(frozen=True)
class _DecoderLayer:
    layer: _PostNormLayer
    cross: Attention
    cross_norm: Callable[[Tensor], Tensor]


def walk_bart(model: Any, block: FeedForward) -> Walk:
    """Return the walk of BART: an encoder of which all rows are computed, and a decoder that is read at single rows."""
    encoder, decoder = model.model.encoder, model.model.decoder
    encoder_layers = [_bart_layer(layer, block) for layer in encoder.layers]
    decoder_layers = [
        _DecoderLayer(_bart_layer(layer, block), _bart_attention(layer.encoder_attn), layer.encoder_attn_layer_norm)
        for layer in decoder.layers
    ]

    def hidden(batch: PackedBatch, embedded: Mapping[str, Tensor], deltas: Deltas) -> Tensor:
        target_rows, memory, source = batch.streams["decoder"], batch.memory, None
        if batch.memory.past is None:
            source = _bart_embed(encoder, embedded["encoder"], batch.streams["encoder"])
            source = _through_encoder(encoder_layers, source, batch.streams["encoder"], deltas, "encoder")
        states = _bart_embed(decoder, embedded["decoder"], target_rows)
        queries, query_rows = states, target_rows
        for number, parts in enumerate(decoder_layers):
            if number == len(decoder_layers) - 1:
                queries, query_rows = rows_at(states, batch.read_at), batch.reads
            if number in (0, len(decoder_layers) - 1):
                self_groups = groups_of(query_rows, batch.key_lengths, causal=True)
                cross_groups = groups_of(query_rows, batch.source_lengths, causal=False)
            queries = parts.layer.attend(queries, states, self_groups, partial(memory.join, number))
            if source is None:
                crossed = parts.cross.to_kept(queries, memory.of_source(number), cross_groups)
            else:
                crossed = parts.cross(queries, source, cross_groups, memory.keep_source)
            queries = parts.cross_norm(crossed + queries)
            queries = states = perturb(parts.layer.feed_forward(queries), query_rows, deltas, "decoder", number)
        return queries

    return Walk(hidden, model.lm_head.weight, model.final_logits_bias[0])


def _bart_embed(stack: Any, words: Tensor, rows: Rows) -> Tensor:
    positions = stack.embed_positions
    return stack.layernorm_embedding(words + positions.weight[rows.positions + positions.offset])


def _bart_attention(module: Any) -> Attention:
    return Attention(module.q_proj, module.k_proj, module.v_proj, module.out_proj, module.head_dim, module.scaling)


def _bart_layer(layer: Any, block: FeedForward) -> _PostNormLayer:
    return _PostNormLayer(
        _bart_attention(layer.self_attn),
        layer.self_attn_layer_norm,
        layer.fc1,
        layer.activation_fn,
        layer.fc2,
        layer.final_layer_norm,
        block,
    )
