"""Checks of the reference itself: against walks through the public submodules by hand, and against the models' own
answers to token ids. The sentences are laid out by hand here, as lists of symbols."""

import functools
import math
from typing import Any

import pytest
import reference
import torch
from agreement import ALL, CAUSAL, MASKED, SEQ2SEQ, WORDPIECE
from builders import tiny
from reference import Piece
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoModelForMaskedLM, AutoModelForSeq2SeqLM, AutoTokenizer

SENTENCES = {  # as the tokenizer writes "The [X] lies in [Y] ."; [X] and [Y] are exchanged for the other order
    "bert": "[CLS] The [X] lies in [Y] . [SEP]",
    "roberta": "<s> ĠThe [X] Ġlies Ġin [Y] Ġ. </s>",
    "albert": "[CLS] ▁the [X] ▁lies ▁in [Y] ▁. [SEP]",
    "modernbert": "[CLS] ĠThe [X] Ġlies Ġin [Y] Ġ. [SEP]",
    "gpt2": "ĠThe [X] Ġlies Ġin [Y] Ġ.",
    "llama": "<|begin_of_text|> ĠThe [X] Ġlies Ġin [Y] Ġ.",
    "llama-metaspace": "<s> ▁The [X] ▁lies ▁in [Y] ▁.",
}
SENTENCES |= dict.fromkeys(("distilbert", "electra"), SENTENCES["bert"])
SENTENCES |= dict.fromkeys(("bart", "bart-scaled"), SENTENCES["roberta"])
REYKJAVIK = {"bert": "Rey ##kja ##vik", "roberta": "ĠRey kja vik", "albert": "▁rey kja vik"}
REYKJAVIK |= dict.fromkeys(("distilbert", "electra"), REYKJAVIK["bert"])
REYKJAVIK |= dict.fromkeys(("bart", "bart-scaled", "modernbert", "gpt2", "llama"), REYKJAVIK["roberta"])
REYKJAVIK["llama-metaspace"] = "▁Rey kja vik"


@functools.cache
def lm(name: str) -> tuple[Any, Any]:
    model, tokenizer = tiny.TINY[name]()
    return model.double().requires_grad_(False), tokenizer


def case(name: str, y_first: bool = False) -> tuple[list[Piece], list[int]]:
    _, tokenizer = lm(name)
    sentence = SENTENCES[name]
    if y_first:
        sentence = sentence.replace("[X]", "[?]").replace("[Y]", "[X]").replace("[?]", "[Y]")
    return reference.written(tokenizer, sentence), tokenizer.convert_tokens_to_ids(REYKJAVIK[name].split())


def tuned(name: str, pieces: list[Piece]) -> tuple[Tensor, dict[str, Tensor]]:
    """Soft vectors away from the words, and Δ of every layer."""
    model, _ = lm(name)
    generator = torch.Generator().manual_seed(5)
    vectors = reference.hard_vectors(model, pieces)
    vectors = vectors + 0.3 * torch.randn(vectors.shape, generator=generator, dtype=torch.float64)
    deltas = {}
    for stack, blocks in reference.stacks(model).items():
        shape = (len(blocks), len(vectors), model.config.hidden_size)
        deltas[stack] = 0.3 * torch.randn(shape, generator=generator, dtype=torch.float64)
    return vectors, deltas


# The walk by hand


def by_hand(
    name: str, layout: str, x: list[int], vectors: Tensor, deltas: dict[str, Tensor], encoder_layout: str | None = None
) -> Tensor:
    """Log distribution at each token of the layout, by walking through the model's parts.

    S and E are the specials at the ends, D the decoder's start, M the mask, p0, p1, … prompt tokens, x0, x1, … x's.
    """
    model, tokenizer = lm(name)
    word = model.get_input_embeddings().weight
    if name == "bart-scaled":
        word = word * math.sqrt(24)
    ends = {
        "S": tokenizer.cls_token_id if name in MASKED + SEQ2SEQ else tokenizer.bos_token_id,
        "E": tokenizer.sep_token_id,
        "D": tokenizer.eos_token_id,
        "M": tokenizer.mask_token_id,
    }

    def read(layout: str, stack: str) -> tuple[Tensor, Tensor]:
        symbols = layout.split()
        rows = []
        change = torch.zeros(len(deltas[stack]), 1, len(symbols), deltas[stack].shape[-1], dtype=torch.float64)
        for position, symbol in enumerate(symbols):
            if symbol[0] == "p":
                rows.append(vectors[int(symbol[1])])
                change[:, 0, position] = deltas[stack][:, int(symbol[1])]
            else:
                rows.append(word[x[int(symbol[1])] if symbol[0] == "x" else ends[symbol]])
        return torch.stack(rows)[None], change

    if encoder_layout is not None:
        rows, change = read(encoder_layout, "encoder")
        memory = walk_bart_encoder(model, rows, change)
        rows, change = read(layout, "decoder")
        logits = walk_bart_decoder(model, rows, change, memory)
    else:
        rows, change = read(layout, "layers")
        logits = WALKS[model.config.model_type](model, rows, change)
    return logits[0].log_softmax(-1)


def triangle(length: int) -> Tensor:
    """An attention mask [1, 1, length, length] that hides what comes later."""
    return torch.full((length, length), -math.inf, dtype=torch.float64).triu(1)[None, None]


def walk_bert(model: Any, rows: Tensor, change: Tensor) -> Tensor:
    embeddings = model.bert.embeddings
    places = embeddings.position_embeddings.weight[: rows.shape[1]]
    hidden = embeddings.LayerNorm(rows + places + embeddings.token_type_embeddings.weight[0])
    for layer, delta in zip(model.bert.encoder.layer, change, strict=True):
        hidden = layer(hidden) + delta
    return model.cls(hidden)


def walk_roberta(model: Any, rows: Tensor, change: Tensor) -> Tensor:
    embeddings = model.roberta.embeddings
    places = embeddings.position_embeddings.weight[2 : 2 + rows.shape[1]]
    hidden = embeddings.LayerNorm(rows + places + embeddings.token_type_embeddings.weight[0])
    for layer, delta in zip(model.roberta.encoder.layer, change, strict=True):
        hidden = layer(hidden) + delta
    return model.lm_head(hidden)


def walk_distilbert(model: Any, rows: Tensor, change: Tensor) -> Tensor:
    embeddings = model.distilbert.embeddings
    hidden = embeddings.LayerNorm(rows + embeddings.position_embeddings.weight[: rows.shape[1]])
    for layer, delta in zip(model.distilbert.transformer.layer, change, strict=True):
        hidden = layer(hidden) + delta
    return model.vocab_projector(model.vocab_layer_norm(model.activation(model.vocab_transform(hidden))))


def walk_albert(model: Any, rows: Tensor, change: Tensor) -> Tensor:
    embeddings = model.albert.embeddings
    places = embeddings.position_embeddings.weight[: rows.shape[1]]
    hidden = embeddings.LayerNorm(rows + places + embeddings.token_type_embeddings.weight[0])
    hidden = model.albert.encoder.embedding_hidden_mapping_in(hidden)
    for delta in change:
        hidden = model.albert.encoder.albert_layer_groups[0].albert_layers[0](hidden) + delta
    return model.predictions(hidden)


def walk_electra(model: Any, rows: Tensor, change: Tensor) -> Tensor:
    embeddings = model.electra.embeddings
    places = embeddings.position_embeddings.weight[: rows.shape[1]]
    hidden = embeddings.LayerNorm(rows + places + embeddings.token_type_embeddings.weight[0])
    hidden = model.electra.embeddings_project(hidden)
    for layer, delta in zip(model.electra.encoder.layer, change, strict=True):
        hidden = layer(hidden) + delta
    return model.generator_lm_head(model.generator_predictions(hidden))


def walk_modernbert(model: Any, rows: Tensor, change: Tensor) -> Tensor:
    length = rows.shape[1]
    places = torch.arange(length)
    near = (places[:, None] - places[None]).abs() <= 3
    nothing, nearby = torch.zeros(length, length, dtype=torch.float64), torch.zeros(length, length, dtype=torch.float64)
    nearby = nearby.masked_fill(~near, -math.inf)
    hidden = model.model.embeddings.norm(rows)
    for number, (layer, delta) in enumerate(zip(model.model.layers, change, strict=True)):
        kind, mask = ("full_attention", nothing) if number == 0 else ("sliding_attention", nearby)
        turns = model.model.rotary_emb(hidden, places[None], kind)
        hidden = layer(hidden, attention_mask=mask[None, None], position_embeddings=turns) + delta
    return model.decoder(model.head(model.model.final_norm(hidden)))


def walk_gpt2(model: Any, rows: Tensor, change: Tensor) -> Tensor:
    hidden = rows + model.transformer.wpe.weight[: rows.shape[1]]
    for layer, delta in zip(model.transformer.h, change, strict=True):
        hidden = layer(hidden, attention_mask=triangle(rows.shape[1])) + delta
    return model.lm_head(model.transformer.ln_f(hidden))


def walk_llama(model: Any, rows: Tensor, change: Tensor) -> Tensor:
    hidden = rows
    turns = model.model.rotary_emb(hidden, position_ids=torch.arange(rows.shape[1])[None])
    for layer, delta in zip(model.model.layers, change, strict=True):
        hidden = layer(hidden, attention_mask=triangle(rows.shape[1]), position_embeddings=turns) + delta
    return model.lm_head(model.model.norm(hidden))


def walk_bart_encoder(model: Any, rows: Tensor, change: Tensor) -> Tensor:
    encoder = model.model.encoder
    hidden = encoder.layernorm_embedding(rows + encoder.embed_positions.weight[2 : 2 + rows.shape[1]])
    for layer, delta in zip(encoder.layers, change, strict=True):
        hidden = layer(hidden, attention_mask=None) + delta
    return hidden


def walk_bart_decoder(model: Any, rows: Tensor, change: Tensor, memory: Tensor) -> Tensor:
    decoder = model.model.decoder
    hidden = decoder.layernorm_embedding(rows + decoder.embed_positions.weight[2 : 2 + rows.shape[1]])
    for layer, delta in zip(decoder.layers, change, strict=True):
        hidden = layer(hidden, attention_mask=triangle(rows.shape[1]), encoder_hidden_states=memory) + delta
    return model.lm_head(hidden) + model.final_logits_bias


WALKS = {
    "bert": walk_bert,
    "roberta": walk_roberta,
    "distilbert": walk_distilbert,
    "albert": walk_albert,
    "electra": walk_electra,
    "modernbert": walk_modernbert,
    "gpt2": walk_gpt2,
    "llama": walk_llama,
}


def close(name: str, actual: Tensor, expected: Tensor) -> None:
    # Llama (RMSNorm) and ModernBERT (rotations) compute in float32 in places whatever the model's dtype, so on some
    # machine a difference in the last bit could grow.
    tolerance = 1e-5 if name.startswith(("llama", "modernbert")) else 1e-11
    torch.testing.assert_close(actual, expected, rtol=0, atol=tolerance)


@pytest.mark.parametrize(
    ("y_first", "layout", "y_at", "x_layout", "x_at"),
    [
        (False, "S p0 x0 x1 x2 p1 p2 M p3 E", 7, "S p0 M M M p1 p2 M p3 E", [2, 3, 4]),
        (True, "S p0 M p1 p2 x0 x1 x2 p3 E", 2, "S p0 M p1 p2 M M M p3 E", [5, 6, 7]),
    ],
)
@pytest.mark.parametrize("name", MASKED)
def test_masked_lms_walked_by_hand(name, y_first, layout, y_at, x_layout, x_at):
    model, tokenizer = lm(name)
    pieces, x = case(name, y_first)
    vectors, deltas = tuned(name, pieces)
    expected = by_hand(name, layout, x, vectors, deltas)[y_at]
    close(name, reference.log_p_y(model, tokenizer, "masked", pieces, x, vectors, deltas), expected)
    expected = by_hand(name, x_layout, x, vectors, deltas)[x_at, x].sum()
    close(name, reference.log_p_x(model, tokenizer, "masked", pieces, x, vectors, deltas), expected)


@pytest.mark.parametrize(
    ("y_first", "encoder", "decoder", "x_encoder", "x_decoder", "x_read_at"),
    [
        (
            False,
            "S p0 x0 x1 x2 p1 p2 M p3 E",
            "D S p0 x0 x1 x2 p1 p2",
            "S p0 M M M p1 p2 M p3 E",
            "D S p0 x0 x1 x2",
            [2, 3, 4],
        ),
        (
            True,
            "S p0 M p1 p2 x0 x1 x2 p3 E",
            "D S p0",
            "S p0 M p1 p2 M M M p3 E",
            "D S p0 M p1 p2 x0 x1 x2",
            [5, 6, 7],
        ),
    ],
)
@pytest.mark.parametrize("name", SEQ2SEQ)
def test_bart_walked_by_hand(name, y_first, encoder, decoder, x_encoder, x_decoder, x_read_at):
    model, tokenizer = lm(name)
    pieces, x = case(name, y_first)
    vectors, deltas = tuned(name, pieces)
    expected = by_hand(name, decoder, x, vectors, deltas, encoder)[-1]
    close(name, reference.log_p_y(model, tokenizer, "seq2seq", pieces, x, vectors, deltas), expected)
    expected = by_hand(name, x_decoder, x, vectors, deltas, x_encoder)[x_read_at, x].sum()
    close(name, reference.log_p_x(model, tokenizer, "seq2seq", pieces, x, vectors, deltas), expected)


@pytest.mark.parametrize(
    ("name", "layout", "x_layout", "x_read_at"),
    [
        ("gpt2", "p0 x0 x1 x2 p1 p2", "S p0 x0 x1 x2", [1, 2, 3]),
        ("llama", "S p0 x0 x1 x2 p1 p2", "S p0 x0 x1 x2", [1, 2, 3]),
        ("llama-metaspace", "S p0 x0 x1 x2 p1 p2", "S p0 x0 x1 x2", [1, 2, 3]),
    ],
)
def test_causal_lms_walked_by_hand(name, layout, x_layout, x_read_at):
    model, tokenizer = lm(name)
    pieces, x = case(name)
    vectors, deltas = tuned(name, pieces)
    expected = by_hand(name, layout, x, vectors, deltas)[-1]
    close(name, reference.log_p_y(model, tokenizer, "causal", pieces, x, vectors, deltas), expected)
    expected = by_hand(name, x_layout, x, vectors, deltas)[x_read_at, x].sum()
    close(name, reference.log_p_x(model, tokenizer, "causal", pieces, x, vectors, deltas), expected)


# Nothing tuned


@pytest.mark.parametrize("name", ALL)
def test_hard_prompt_gives_the_models_own_answer_to_token_ids(name):
    model, tokenizer = lm(name)
    pieces, x = case(name)
    vectors = reference.hard_vectors(model, pieces)
    deltas = {stack: torch.zeros_like(delta) for stack, delta in tuned(name, pieces)[1].items()}
    left = " The Reykjavik lies in"
    if tiny.FAMILY[name] == "causal":
        logits = model(input_ids=torch.tensor([tokenizer(left)["input_ids"]])).logits[0, -1]
    else:
        ids = tokenizer(f"{left} {tokenizer.mask_token} .")["input_ids"]
        if tiny.FAMILY[name] == "masked":
            logits = model(input_ids=torch.tensor([ids])).logits[0, ids.index(tokenizer.mask_token_id)]
        else:
            held = [tokenizer.eos_token_id, *tokenizer(left)["input_ids"][:-1]]
            logits = model(input_ids=torch.tensor([ids]), decoder_input_ids=torch.tensor([held])).logits[0, -1]
    for given in (None, deltas):
        actual = reference.log_p_y(model, tokenizer, tiny.FAMILY[name], pieces, x, vectors, given)
        assert actual.dtype == torch.float64
        assert torch.equal(actual, logits.log_softmax(-1))


@pytest.mark.parametrize("name", CAUSAL)
def test_nothing_after_y_matters_to_a_causal_lm(name):
    model, tokenizer = lm(name)
    pieces, x = case(name)
    vectors, deltas = tuned(name, pieces)
    cut = pieces[:-2]
    ask = functools.partial(reference.log_p_y, model, tokenizer, "causal")
    shorter = {stack: delta[:, :-1] for stack, delta in deltas.items()}
    assert [piece.kind for piece in cut][-1] == "prompt"
    assert torch.equal(ask(pieces, x, vectors, deltas), ask([*cut, Piece("y")], x, vectors[:-1], shorter))


@pytest.mark.parametrize("name", ALL)
def test_prompt_without_prompt_tokens(name):
    model, tokenizer = lm(name)
    pieces, x = case(name)
    bare = [piece for piece in pieces if piece.kind != "prompt"]
    vectors = reference.hard_vectors(model, bare)
    assert vectors.shape == (0, model.get_input_embeddings().weight.shape[1])
    for function in (reference.log_p_y, reference.log_p_x):
        assert function(model, tokenizer, tiny.FAMILY[name], bare, x, vectors).isfinite().all()


@pytest.mark.parametrize("name", ALL)
def test_hooks_are_gone_afterwards(name):
    model, tokenizer = lm(name)
    pieces, x = case(name)
    vectors, deltas = tuned(name, pieces)
    reference.log_p_y(model, tokenizer, tiny.FAMILY[name], pieces, x, vectors, deltas)
    assert not any(module._forward_hooks for blocks in reference.stacks(model).values() for module in blocks)


# Gradients


@pytest.mark.parametrize("name", ["bert", "albert", "bart-scaled", "gpt2"])
def test_gradients_by_finite_differences(name):
    model, tokenizer = lm(name)
    family = tiny.FAMILY[name]
    pieces, x = case(name)
    vectors, deltas = tuned(name, pieces)
    names = list(deltas)
    logits, log_t = torch.tensor([0.3, -0.2], dtype=torch.float64), torch.tensor(0.4, dtype=torch.float64)
    gold = tokenizer.convert_tokens_to_ids(SENTENCES[name].split()[-2])

    def loss(vectors: Tensor, logits: Tensor, log_t: Tensor, *stacked: Tensor) -> Tensor:
        """A mixture of the prompt and its untuned self, weighted by x."""
        soft = (vectors, dict(zip(names, stacked, strict=True)))
        hard = (reference.hard_vectors(model, pieces), None)
        ask_x = [reference.log_p_x(model, tokenizer, family, pieces, x, *prompt) for prompt in (soft, hard)]
        ask_y = [reference.log_p_y(model, tokenizer, family, pieces, x, *prompt) for prompt in (soft, hard)]
        return -reference.log_mixture(reference.data_dependent_log_weights(logits, ask_x, log_t), ask_y)[gold]

    inputs = [tensor.clone().requires_grad_() for tensor in (vectors, logits, log_t, *deltas.values())]
    gradients = torch.autograd.grad(loss(*inputs), inputs)
    generator = torch.Generator().manual_seed(2)
    for number, (tensor, gradient) in enumerate(zip(inputs, gradients, strict=True)):
        assert gradient.abs().max() > 1e-4
        direction = torch.randn(tensor.shape, generator=generator, dtype=torch.float64)
        step = 1e-5
        ahead, behind = (
            [other + sign * step * direction if at == number else other for at, other in enumerate(inputs)]
            for sign in (1, -1)
        )
        with torch.no_grad():
            slope = (loss(*ahead) - loss(*behind)) / (2 * step)
        torch.testing.assert_close((gradient * direction).sum(), slope, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("name", ALL)
def test_where_the_last_layers_delta_reaches_y(name):
    model, tokenizer = lm(name)
    family = tiny.FAMILY[name]
    pieces, x = case(name)
    vectors, deltas = tuned(name, pieces)
    for delta in deltas.values():
        delta.requires_grad_()
    reference.log_p_y(model, tokenizer, family, pieces, x, vectors, deltas)[7].backward()
    reached = {}
    for stack, delta in deltas.items():
        assert delta.grad is not None
        reached[stack] = [bool(token.any()) for token in delta.grad[-1]]
    if family == "masked":
        assert reached == {"layers": [False, False, False, False]}
    elif family == "causal":
        assert reached == {"layers": [False, False, True, False]}
    else:
        assert reached == {"encoder": [True] * 4, "decoder": [False, False, True, False]}


# Several prompts, and scores


def test_mixtures_of_two_prompts_over_two_answers():
    log_p = [torch.tensor([0.5, 0.5]).log(), torch.tensor([0.1, 0.9]).log()]
    weights = torch.tensor([0.25, 0.75]).log()
    torch.testing.assert_close(
        reference.log_mixture(weights, log_p).exp(), torch.tensor([0.2, 0.8], dtype=torch.float64), rtol=1e-6, atol=0
    )
    # 0.25 · 0.09^(1/2) = 0.075 and 0.75 · 0.01^(1/2) = 0.075
    dependent = reference.data_dependent_log_weights(
        torch.tensor([0.0, math.log(3)]),
        [torch.tensor(0.09).log(), torch.tensor(0.01).log()],
        torch.tensor(math.log(2)),
    )
    torch.testing.assert_close(dependent.exp(), torch.tensor([0.5, 0.5], dtype=torch.float64), rtol=1e-6, atol=0)
    # 0.5^(1/2) · 0.1^(1/2) : 0.5^(1/2) · 0.9^(1/2) = 1 : 3
    product = reference.log_product([0.5, 0.5], log_p)
    torch.testing.assert_close(product.exp(), torch.tensor([0.25, 0.75], dtype=torch.float64), rtol=1e-6, atol=0)


def test_a_prompt_without_a_form_of_the_answer_gives_it_nothing():
    log_p = [torch.tensor([0.5, 0.3, 0.2]).log(), torch.tensor([0.1, 0.6, 0.3]).log()]
    read = [reference.read_answers(log_p[0], [2, None]), reference.read_answers(log_p[1], [0, 1])]
    mixed = reference.log_mixture(reference.log_softmax(torch.zeros(2)), read).exp()
    torch.testing.assert_close(mixed, torch.tensor([0.15, 0.3], dtype=torch.float64), rtol=1e-6, atol=0)


def test_a_high_temperature_leaves_the_static_weights_and_a_low_one_stays_finite():
    log_p_x = [torch.tensor(-300.0), torch.tensor(-310.0), torch.tensor(-900.0)]
    logits = torch.tensor([0.1, -1.0, 2.0])
    hot = reference.data_dependent_log_weights(logits, log_p_x, torch.tensor(40.0))
    torch.testing.assert_close(hot, logits.double().log_softmax(0))
    cold = reference.data_dependent_log_weights(logits, log_p_x, torch.tensor(-3.0))
    assert cold.isfinite().all()
    assert cold.argmax() == 0


def test_ranks_count_ties_half_leave_out_other_golds_and_refuse_what_is_not_finite():
    scores = torch.tensor([-1.0, -2.0, -2.0, -3.0, -2.0, -math.inf])
    assert [reference.rank(scores, gold) for gold in range(6)] == [1, 3, 3, 5, 3, 6]
    assert reference.rank(scores, 1, excluded=[0, 4]) == 1.5
    assert reference.rank(scores, 3, excluded=[1]) == 4
    for bad in (math.nan, math.inf):
        with pytest.raises(ValueError, match="not finite"):
            reference.rank([-1.0, bad], 0)
    assert reference.brute_metrics([1, 1.5, 10, 20]) == pytest.approx(
        {"P@1": 25, "P@10": 75, "MRR": 25 * (1 + 2 / 3 + 0.1 + 0.05)}
    )


# The tiny LMs


@pytest.mark.parametrize("name", ALL)
def test_words_are_the_tokens_that_tiny_says(name):
    _, tokenizer = lm(name)
    beside = len(tokenizer("of")["input_ids"]) - len(tokenizer.tokenize("of"))

    def after(left: str, text: str) -> list[str]:
        before = tokenizer.tokenize(left)
        found = tokenizer.tokenize(left + text)
        assert found[: len(before)] == before
        return found[len(before) :]

    assert beside == {"gpt2": 0, "llama": 1, "llama-metaspace": 1}.get(name, 2)
    for word in tiny.BOTH + tiny.SPACED + tiny.GLUED:
        spaced, glued = after(" of", f" {word}"), after(" of (", word)
        assert (len(spaced) == 1) == (name in WORDPIECE or word not in tiny.GLUED), (word, spaced)
        assert (len(glued) == 1) == (name in WORDPIECE or word not in tiny.SPACED or word == "a"), (word, glued)
        assert tokenizer.unk_token is None or tokenizer.unk_token not in spaced + glued
    for word, pieces in tiny.SPLIT.items():
        spaced = after(" of", f" {word}")
        assert [token.strip("#Ġ▁").lower() for token in spaced] == [piece.lower() for piece in pieces]
    for mark in tiny.PUNCTUATION:
        assert len(after(" of", f" {mark}")) == len(after(" of", mark)) == 1


@pytest.mark.parametrize("name", ALL)
def test_written_prompts_are_what_the_tokenizer_makes_of_the_sentence(name):
    model, tokenizer = lm(name)
    pieces, x = case(name)
    gold = tokenizer.tokenize(" of Norway")[1]
    ids = [*(x if piece.kind == "x" else piece.ids or tokenizer.convert_tokens_to_ids([gold]) for piece in pieces)]
    assert [token for part in ids for token in part] == tokenizer(" The Reykjavik lies in Norway .")["input_ids"]
    assert len(tokenizer) == model.get_input_embeddings().weight.shape[0]


@pytest.mark.parametrize("name", ALL)
def test_distributions_are_far_from_uniform_and_gradients_are_not_tiny(name):
    model, tokenizer = lm(name)
    pieces, x = case(name)
    vectors, deltas = tuned(name, pieces)
    vectors.requires_grad_()
    log_p = reference.log_p_y(model, tokenizer, tiny.FAMILY[name], pieces, x, vectors, deltas)
    assert log_p.max() - log_p.min() > 3
    log_p.max().backward()
    assert vectors.grad is not None
    assert vectors.grad.norm() > 1e-2


@pytest.mark.parametrize("name", ALL)
def test_saved_and_loaded(name, tmp_path):
    model, tokenizer = tiny.TINY[name]()
    tiny.save(model, tokenizer, tmp_path)
    loader: dict[str, Any] = {
        "masked": AutoModelForMaskedLM,
        "causal": AutoModelForCausalLM,
        "seq2seq": AutoModelForSeq2SeqLM,
    }
    reader: Any = AutoTokenizer.from_pretrained(tmp_path)
    loaded = loader[tiny.FAMILY[name]].from_pretrained(tmp_path)
    text = " The Reykjavik lies in Norway (Paris), Cuba."
    ids = tokenizer(text)["input_ids"]
    assert reader(text)["input_ids"] == ids
    assert torch.equal(loaded(input_ids=torch.tensor([ids])).logits, model(input_ids=torch.tensor([ids])).logits)
    again, _ = tiny.TINY[name]()
    assert all(torch.equal(a, b) for a, b in zip(model.state_dict().values(), again.state_dict().values(), strict=True))
