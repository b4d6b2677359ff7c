"""Encoders whose layers normalise behind each part: BERT, RoBERTa, ELECTRA, DistilBERT, ALBERT."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor
from torch.nn import functional

from askwell.lms.walks.attention import PostNormTail, Tails
from askwell.lms.walks.rows import PackedBatch, Rows, Run, runs
from askwell.lms.walks.walk import Attention, Deltas, Walk, as_sentence, perturb, rows_at


@dataclass(frozen=True)
class PostNormLayer:
    """The parts of such a layer, under one name for all makes."""

    attention: Attention
    attention_norm: Callable[[Tensor], Tensor]
    widen: Callable[[Tensor], Tensor]
    activation: Callable[[Tensor], Tensor]
    narrow: Callable[[Tensor], Tensor]
    output_norm: Callable[[Tensor], Tensor]
    tail: PostNormTail

    def __call__(self, asking: Tensor, asked: Tensor, among: Sequence[Run]) -> Tensor:
        """The asking rows as they leave the layer."""
        return self.feed(self.attention_norm(self.attention(asking, asked, among) + asking))

    def feed(self, hidden: Tensor) -> Tensor:
        """The part of the layer in which each row is by itself."""
        return self.tail(self.widen, self.activation, self.narrow, self.output_norm, hidden)


def walk_encoder(
    layers: Sequence[PostNormLayer], hidden: Tensor, rows: Rows, deltas: Deltas, stack: str
) -> tuple[Tensor, int]:
    """All rows as they leave the last of these layers, and how many layers they have passed."""
    among = runs(rows, rows, causal=False)
    for number, layer in enumerate(layers):
        hidden = perturb(layer(hidden, hidden, among), rows, deltas, stack, number)
    return hidden, len(layers)


def masked_walk(
    embed: Callable[[Tensor, Tensor], Tensor],
    layers: Sequence[PostNormLayer],
    before_output: Callable[[Tensor], Tensor],
    output: Any,
) -> Walk:
    """The walk of a masked LM: in the last layer only the rows that are read ask anything."""

    def hidden(batch: PackedBatch, embedded: Any, deltas: Deltas) -> Tensor:
        rows = batch.streams["layers"]
        reached, passed = walk_encoder(layers[:-1], embed(embedded["layers"], rows.positions), rows, deltas, "layers")
        asking = runs(batch.reads, rows, causal=False)
        read = layers[-1](rows_at(reached, batch.read_at), reached, asking)
        return before_output(perturb(read, batch.reads, deltas, "layers", passed))

    return Walk(hidden, output.weight, output.bias)


def walk_bert(model: Any, tails: Tails) -> Walk:
    """BERT."""
    head = model.cls.predictions
    return masked_walk(_embed(model.bert), _bert_layers(model.bert, tails), head.transform, head.decoder)


def walk_roberta(model: Any, tails: Tails) -> Walk:
    """RoBERTa, XLM-R and CamemBERT, whose positions begin behind the padding token's number."""
    head, first = model.lm_head, model.roberta.embeddings.padding_idx + 1

    def before_output(hidden: Tensor) -> Tensor:
        return head.layer_norm(functional.gelu(head.dense(hidden)))

    return masked_walk(_embed(model.roberta, first), _bert_layers(model.roberta, tails), before_output, head.decoder)


def walk_electra(model: Any, tails: Tails) -> Walk:
    """ELECTRA's generators, whose word vectors have a size of their own."""
    base = model.electra
    project = getattr(base, "embeddings_project", None)
    embed = _embed(base, after=project) if project is not None else _embed(base)
    return masked_walk(embed, _bert_layers(base, tails), model.generator_predictions, model.generator_lm_head)


def walk_distilbert(model: Any, tails: Tails) -> Walk:
    """DistilBERT."""
    layers = []
    for layer in model.distilbert.transformer.layer:
        inner, feed = layer.attention, layer.ffn
        attention = Attention(
            inner.q_lin, inner.k_lin, inner.v_lin, inner.out_lin, inner.attention_head_size, inner.scaling
        )
        layers.append(
            PostNormLayer(
                attention,
                layer.sa_layer_norm,
                feed.lin1,
                feed.activation,
                feed.lin2,
                layer.output_layer_norm,
                tails.post_norm,
            )
        )

    def embed(words: Tensor, positions: Tensor) -> Tensor:
        return as_sentence(model.distilbert.embeddings, words, input_ids=None, position_ids=positions.unsqueeze(0))

    def before_output(hidden: Tensor) -> Tensor:
        return model.vocab_layer_norm(model.activation(model.vocab_transform(hidden)))

    return masked_walk(embed, layers, before_output, model.vocab_projector)


def walk_albert(model: Any, tails: Tails) -> Walk:
    """ALBERT, whose layers are few blocks that are passed many times."""
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
                PostNormLayer(
                    attention,
                    inner.LayerNorm,
                    layer.ffn,
                    layer.activation,
                    layer.ffn_output,
                    layer.full_layer_layer_norm,
                    tails.post_norm,
                )
            )
    head = model.predictions

    def before_output(hidden: Tensor) -> Tensor:
        return head.LayerNorm(head.activation(head.dense(hidden)))

    embed = _embed(model.albert, after=encoder.embedding_hidden_mapping_in)
    return masked_walk(embed, layers, before_output, head.decoder)


def _embed(base: Any, first: int = 0, after: Callable[[Tensor], Tensor] | None = None) -> Any:
    def embed(words: Tensor, positions: Tensor) -> Tensor:
        embedded = as_sentence(base.embeddings, words, position_ids=(positions + first).unsqueeze(0))
        return embedded if after is None else after(embedded)

    return embed


def _bert_layers(base: Any, tails: Tails) -> list[PostNormLayer]:
    layers = []
    for layer in base.encoder.layer:
        inner, after = layer.attention.self, layer.attention.output
        attention = Attention(
            inner.query, inner.key, inner.value, after.dense, inner.attention_head_size, inner.scaling
        )
        feed = layer.intermediate
        layers.append(
            PostNormLayer(
                attention,
                after.LayerNorm,
                feed.dense,
                feed.intermediate_act_fn,
                layer.output.dense,
                layer.output.LayerNorm,
                tails.post_norm,
            )
        )
    return layers
