"""The walks of public architectures, from the modules of their models: which part of a layer is called what."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from torch import Tensor, nn
from torch.nn import functional

from askwell.lms.walks.attention import attend, groups_of
from askwell.lms.walks.layers import FeedForward, Layer, Part, apart, interleaved, stacked, walk_layers
from askwell.lms.walks.output import Head
from askwell.lms.walks.walk import Deltas, PackedBatch, Rows, Walk, perturb, rows_at


def _unchanged(words: Tensor, _positions: Tensor) -> Tensor:
    return words


# ── causal LMs, and ModernBERT: norms before attention and before the feed-forward block ──────────────────────────


def walk_gpt2(model: Any, block: FeedForward) -> Walk:
    """Return the walk of GPT-2."""
    base = model.transformer
    layers = [
        Layer(
            stacked(layer.attn.c_attn.weight.T, layer.attn.c_attn.bias),
            layer.attn.c_proj,
            block.finish_pre_norm(layer.ln_2, layer.mlp),
            layer.attn.head_dim,
            layer.attn.scaling,
            layer.ln_1,
        )
        for layer in base.h
    ]
    return walk_layers(layers, lambda words, positions: words + base.wpe(positions), base.ln_f, model.lm_head)


def walk_opt(model: Any, block: FeedForward) -> Walk | None:
    """Return the walk of OPT; None for the size whose norms follow the blocks and whose word vectors are narrower."""
    base = model.model.decoder
    if not model.config.do_layer_norm_before or base.project_in is not None:
        return None
    layers = [
        Layer(
            apart(layer.self_attn.q_proj, layer.self_attn.k_proj, layer.self_attn.v_proj),
            layer.self_attn.out_proj,
            block.finish_pre_norm(layer.final_layer_norm, nn.Sequential(layer.fc1, layer.activation_fn, layer.fc2)),
            layer.self_attn.head_dim,
            layer.self_attn.scaling,
            layer.self_attn_layer_norm,
        )
        for layer in base.layers
    ]
    positions_of = base.embed_positions

    def embed(words: Tensor, positions: Tensor) -> Tensor:
        return words + functional.embedding(positions + positions_of.offset, positions_of.weight)

    before_output = base.final_layer_norm if base.final_layer_norm is not None else nn.Identity()
    return walk_layers(layers, embed, before_output, model.lm_head)


def walk_gpt_neox(model: Any, block: FeedForward) -> Walk:
    """Return the walk of GPT-NeoX and Pythia."""
    base = model.gpt_neox
    layers = [
        Layer(
            interleaved(layer.attention.query_key_value, layer.attention.head_size),
            layer.attention.dense,
            block.finish_pre_norm(layer.post_attention_layernorm, layer.mlp, parallel=layer.use_parallel_residual),
            layer.attention.head_size,
            layer.attention.scaling,
            layer.input_layernorm,
        )
        for layer in base.layers
    ]
    return walk_layers(layers, _unchanged, base.final_layer_norm, model.lm_head, rotary=base.rotary_emb)


def walk_llama(model: Any, block: FeedForward) -> Walk:
    """Return the walk of Llama, SmolLM2, Mistral, Qwen2, and Qwen3, which normalises each head's queries and keys."""
    base = model.model
    layers = [
        _llama_layer(
            layer.self_attn,
            layer.input_layernorm,
            layer.self_attn.o_proj,
            block.finish_pre_norm(layer.post_attention_layernorm, layer.mlp),
        )
        for layer in base.layers
    ]
    return walk_layers(layers, _unchanged, base.norm, model.lm_head, rotary=base.rotary_emb)


def walk_olmo2(model: Any, block: FeedForward) -> Walk:
    """Return the walk of OLMo 2, whose norms follow attention and the feed-forward block, inside the residual."""
    base = model.model
    layers = [
        _llama_layer(
            layer.self_attn,
            nn.Identity(),
            nn.Sequential(layer.self_attn.o_proj, layer.post_attention_layernorm),
            block.finish_pre_norm(nn.Identity(), nn.Sequential(layer.mlp, layer.post_feedforward_layernorm)),
            norms_heads=False,
        )
        for layer in base.layers
    ]
    return walk_layers(layers, _unchanged, base.norm, model.lm_head, rotary=base.rotary_emb)


def walk_gemma(model: Any, block: FeedForward) -> Walk | None:
    """Return the walk of Gemma 2 and 3 (text), with norms before and after, and caps on Gemma 2's scores and logits."""
    base, config = model.model, model.config
    if getattr(config, "use_bidirectional_attention", False):
        return None
    turns_by_kind = hasattr(base.rotary_emb, "layer_types")
    layers = [
        _llama_layer(
            layer.self_attn,
            layer.input_layernorm,
            nn.Sequential(layer.self_attn.o_proj, layer.post_attention_layernorm),
            block.finish_pre_norm(
                layer.pre_feedforward_layernorm, nn.Sequential(layer.mlp, layer.post_feedforward_layernorm)
            ),
            cap=None if turns_by_kind else layer.self_attn.attn_logit_softcapping,  # Gemma 3 has the option, unused
            rotary=layer.self_attn.layer_type if turns_by_kind else "",
        )
        for layer in base.layers
    ]
    cap = config.final_logit_softcapping
    return walk_layers(layers, _unchanged, base.norm, model.lm_head, rotary=base.rotary_emb, cap=cap)


def _llama_layer(
    inner: Any,
    norm: Part,
    out: Part,
    finish: Callable[[Tensor, Tensor], Tensor],
    *,
    norms_heads: bool = True,
    **options: Any,
) -> Layer:
    """Return a layer with Llama's projections. If it normalises queries and keys, then head by head or as a whole."""

    def by_head(rows_norm: Part) -> Part:
        return lambda rows: rows_norm(rows.view(rows.shape[0], -1, inner.head_dim)).view_as(rows)

    norms = [inner.q_norm, inner.k_norm] if hasattr(inner, "q_norm") else []
    norms = [by_head(own) for own in norms] if norms_heads else norms
    project = apart(inner.q_proj, inner.k_proj, inner.v_proj, *norms)
    return Layer(project, out, finish, inner.head_dim, inner.scaling, norm, **options)


def walk_modernbert(model: Any, block: FeedForward) -> Walk:
    """Return the walk of ModernBERT."""
    base = model.model
    layers = [
        Layer(
            stacked(layer.attn.Wqkv.weight, layer.attn.Wqkv.bias),
            layer.attn.Wo,
            block.finish_pre_norm(layer.mlp_norm, layer.mlp),
            layer.attn.head_dim,
            layer.attn.head_dim**-0.5,
            layer.attn_norm,
            rotary=layer.attention_type,
        )
        for layer in base.layers
    ]
    before_output = nn.Sequential(base.final_norm, model.head)
    embed = _embed(base)
    return walk_layers(layers, embed, before_output, model.decoder, rotary=base.rotary_emb, causal=False)


# ── masked LMs and BART: norms after the residuals ────────────────────────────────────────────────────────────────


def walk_bert(model: Any, block: FeedForward) -> Walk:
    """Return the walk of BERT."""
    head = model.cls.predictions
    embed = _embed(model.bert, first=0)
    return walk_layers(_bert_layers(model.bert, block), embed, head.transform, head.decoder, causal=False)


def walk_roberta(model: Any, block: FeedForward) -> Walk:
    """Return the walk of RoBERTa, XLM-R and CamemBERT, whose positions begin after the padding token's id."""
    base, head = model.roberta, model.lm_head

    def before_output(hidden: Tensor) -> Tensor:
        return head.layer_norm(functional.gelu(head.dense(hidden)))

    embed = _embed(base, first=base.embeddings.padding_idx + 1)
    return walk_layers(_bert_layers(base, block), embed, before_output, head.decoder, causal=False)


def walk_electra(model: Any, block: FeedForward) -> Walk:
    """Return the walk of ELECTRA's generators, whose word vectors have another size than the hidden states."""
    base = model.electra
    embed = _embed(base, first=0, after=getattr(base, "embeddings_project", None))
    layers, head = _bert_layers(base, block), model.generator_lm_head
    return walk_layers(layers, embed, model.generator_predictions, head, causal=False)


def _bert_layers(base: Any, block: FeedForward) -> list[Layer]:
    layers = []
    for layer in base.encoder.layer:
        inner, after, feed = layer.attention.self, layer.attention.output, layer.intermediate
        finish = block.finish_post_norm(
            after.LayerNorm, feed.dense, feed.intermediate_act_fn, layer.output.dense, layer.output.LayerNorm
        )
        project = apart(inner.query, inner.key, inner.value)
        layers.append(Layer(project, after.dense, finish, inner.attention_head_size, inner.scaling))
    return layers


def walk_distilbert(model: Any, block: FeedForward) -> Walk:
    """Return the walk of DistilBERT."""
    layers = []
    for layer in model.distilbert.transformer.layer:
        inner, feed = layer.attention, layer.ffn
        finish = block.finish_post_norm(
            layer.sa_layer_norm, feed.lin1, feed.activation, feed.lin2, layer.output_layer_norm
        )
        project = apart(inner.q_lin, inner.k_lin, inner.v_lin)
        layers.append(Layer(project, inner.out_lin, finish, inner.attention_head_size, inner.scaling))

    def before_output(hidden: Tensor) -> Tensor:
        return model.vocab_layer_norm(model.activation(model.vocab_transform(hidden)))

    embed = _embed(model.distilbert, first=0, input_ids=None)
    return walk_layers(layers, embed, before_output, model.vocab_projector, causal=False)


def walk_albert(model: Any, block: FeedForward) -> Walk:
    """Return the walk of ALBERT, whose layers share a few sets of weights."""
    encoder, config, head = model.albert.encoder, model.config, model.predictions
    layers = []
    for number in range(config.num_hidden_layers):
        group = encoder.albert_layer_groups[int(number / (config.num_hidden_layers / config.num_hidden_groups))]
        for layer in group.albert_layers:
            inner = layer.attention
            finish = block.finish_post_norm(
                inner.LayerNorm, layer.ffn, layer.activation, layer.ffn_output, layer.full_layer_layer_norm
            )
            project = apart(inner.query, inner.key, inner.value)
            layers.append(Layer(project, inner.dense, finish, inner.attention_head_size, inner.scaling))

    def before_output(hidden: Tensor) -> Tensor:
        return head.LayerNorm(head.activation(head.dense(hidden)))

    embed = _embed(model.albert, first=0, after=encoder.embedding_hidden_mapping_in)
    return walk_layers(layers, embed, before_output, head.decoder, causal=False)


def _embed(base: Any, first: int | None = None, after: Part | None = None, **arguments: Any) -> Any:
    """Return the public module of embeddings, for rows taken as one sequence whose positions begin with the first; it
    has none if that is None."""

    def embed(words: Tensor, positions: Tensor) -> Tensor:
        at = {} if first is None else {"position_ids": (positions + first).unsqueeze(0)}
        embedded = base.embeddings(inputs_embeds=words.unsqueeze(0), **at, **arguments)[0]
        return embedded if after is None else after(embedded)

    return embed


def walk_bart(model: Any, block: FeedForward) -> Walk:
    """Return the walk of BART: an encoder of which all rows are computed, and a decoder that is read at single rows."""
    encoder, decoder = model.model.encoder, model.model.decoder
    encoder_layers = [_bart_layer(layer, layer.self_attn_layer_norm, block) for layer in encoder.layers]
    decoder_layers = [_bart_layer(layer, layer.encoder_attn_layer_norm, block) for layer in decoder.layers]

    def encoded(batch: PackedBatch, embedded: Tensor, deltas: Deltas) -> Tensor:
        rows = batch.streams["encoder"]
        states, groups = _bart_embed(encoder, embedded, rows), groups_of(rows, rows.lengths, causal=False)
        for number, layer in enumerate(encoder_layers):
            left = layer.finish(states, layer.attend(states, states, groups))
            states = perturb(left, rows, deltas, "encoder", number)
        return states

    def hidden(batch: PackedBatch, embedded: Mapping[str, Tensor], deltas: Deltas) -> Tensor:
        query_rows, memory = batch.streams["decoder"], batch.memory
        source = encoded(batch, embedded["encoder"], deltas) if memory.past is None else None
        queries = states = _bart_embed(decoder, embedded["decoder"], query_rows)
        for number, (layer, public) in enumerate(zip(decoder_layers, decoder.layers, strict=True)):
            if number == len(decoder_layers) - 1:
                queries, query_rows = rows_at(states, batch.read_at), batch.reads
            if number in (0, len(decoder_layers) - 1):
                self_groups = groups_of(query_rows, batch.key_lengths, causal=True)
                cross_groups = groups_of(query_rows, batch.source_lengths, causal=False)
            attended = layer.attend(queries, states, self_groups, seen=partial(memory.join, number))
            queries = public.self_attn_layer_norm(attended + queries)
            cross = public.encoder_attn
            query = cross.q_proj(queries)
            if source is None:
                key, value = memory.of_source(number)
            else:
                key, value = memory.keep_source(cross.k_proj(source), cross.v_proj(source))
            crossed = cross.out_proj(attend(query, key, value, cross_groups, cross.head_dim, cross.scaling))
            queries = states = perturb(layer.finish(queries, crossed), query_rows, deltas, "decoder", number)
        return queries

    return Walk(hidden, Head(model.lm_head.weight, model.final_logits_bias[0]))


def _bart_embed(stack: Any, words: Tensor, rows: Rows) -> Tensor:
    positions = stack.embed_positions
    return stack.layernorm_embedding(words + positions.weight[rows.positions + positions.offset])


def _bart_layer(layer: Any, last_attention_norm: Part, block: FeedForward) -> Layer:
    inner = layer.self_attn
    finish = block.finish_post_norm(
        last_attention_norm, layer.fc1, layer.activation_fn, layer.fc2, layer.final_layer_norm
    )
    project = apart(inner.q_proj, inner.k_proj, inner.v_proj)
    return Layer(project, inner.out_proj, finish, inner.head_dim, inner.scaling)
