"""The SPEC's quantities, computed the slow and plain way, as expected values for the tests.

One fact, one prompt, one forward call of the public model on one sentence without padding. Nothing here imports
askwell. All results keep their graph, so autograd through this file is the reference for gradients.
"""

import math
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor, nn

Family = Literal["masked", "seq2seq", "causal"]
Deltas = Mapping[str, Tensor | None]
"""For each stack ("layers", or BART's "encoder" and "decoder") Δ^(1..L) of the prompt tokens, [L, N, D]."""


@dataclass(frozen=True)
class Piece:
    """A stretch of a tokenised prompt. The blanks (x and y) hold no ids; what fills x is given apart."""

    kind: Literal["special", "prompt", "x", "y"]
    ids: list[int] = field(default_factory=list)


def written(tokenizer: Any, sentence: str) -> list[Piece]:
    """The pieces of a prompt that is written token by token, e.g. "[CLS] [X] lies in [Y] . [SEP]"."""
    pieces = []
    for token in sentence.split():
        if token in ("[X]", "[Y]"):
            pieces.append(Piece("x" if token == "[X]" else "y"))
            continue
        if token not in tokenizer.get_vocab():
            raise ValueError(f"{token!r} is not in the vocabulary")
        kind = "special" if token in tokenizer.all_special_tokens else "prompt"
        pieces.append(Piece(kind, [tokenizer.convert_tokens_to_ids(token)]))
    return pieces


def begun(pieces: Sequence[Piece], token: int) -> list[Piece]:
    """The pieces of a sentence that begins with one more token, behind the special ones; it is never tuned."""
    after = next((at for at, piece in enumerate(pieces) if piece.kind != "special"), len(pieces))
    return [*pieces[:after], Piece("special", [token]), *pieces[after:]]


def prompt_ids(pieces: Sequence[Piece]) -> list[int]:
    """The hard ids of the prompt tokens, in order."""
    return [token for piece in pieces if piece.kind == "prompt" for token in piece.ids]


def hard_vectors(model: Any, pieces: Sequence[Piece]) -> Tensor:
    """The untuned layer-0 vectors [N, E] of a prompt: its tokens' word embeddings, as the model looks them up."""
    return model.get_input_embeddings()(torch.tensor(prompt_ids(pieces), dtype=torch.long))


def stacks(model: Any) -> dict[str, list[nn.Module]]:
    """The blocks of each stack, the l-th being layer l. ALBERT has one block that stands for every layer."""
    base = model.base_model
    match model.config.model_type:
        case "bert" | "roberta" | "electra":
            return {"layers": list(base.encoder.layer)}
        case "distilbert":
            return {"layers": list(base.transformer.layer)}
        case "albert":
            (shared,) = base.encoder.albert_layer_groups
            (_one_layer_in_the_group,) = shared.albert_layers
            return {"layers": [shared] * model.config.num_hidden_layers}
        case "modernbert" | "llama":
            return {"layers": list(base.layers)}
        case "gpt2":
            return {"layers": list(base.h)}
        case "bart":
            return {"encoder": list(base.encoder.layers), "decoder": list(base.decoder.layers)}
    raise ValueError(f"no reference for {model.config.model_type}")


# One sentence


@dataclass
class Sentence:
    """A prompt whose blanks are filled: one input vector for each token, and where things stand."""

    vectors: list[Tensor] = field(default_factory=list)
    prompt_at: list[int] = field(default_factory=list)
    """Position of the first, second, … prompt token."""
    x_at: list[int] = field(default_factory=list)
    y_at: int | None = None

    @property
    def inputs_embeds(self) -> Tensor:
        return torch.stack(self.vectors)[None]  # [1, length, E]


def fill(model: Any, pieces: Sequence[Piece], vectors: Tensor, x: Sequence[int], y: int | None) -> Sentence:
    """The sentence with soft vectors at the prompt tokens, the ids x at x's blank and the id y at y's blank."""
    embed = model.get_input_embeddings()
    sentence = Sentence()
    for piece in pieces:
        if piece.kind == "prompt":
            for _ in piece.ids:
                sentence.vectors.append(vectors[len(sentence.prompt_at)])
                sentence.prompt_at.append(len(sentence.vectors) - 1)
            continue
        ids = piece.ids
        if piece.kind == "x":
            ids = x
        elif piece.kind == "y":
            assert y is not None, "nothing to put at y's blank"
            ids = [y]
        for token in ids:
            sentence.vectors.append(embed(torch.tensor(token)))
            if piece.kind == "x":
                sentence.x_at.append(len(sentence.vectors) - 1)
            elif piece.kind == "y":
                sentence.y_at = len(sentence.vectors) - 1
    return sentence


def before(pieces: Sequence[Piece], kind: Literal["x", "y"]) -> list[Piece]:
    """What stands to the left of a blank."""
    kinds = [piece.kind for piece in pieces]
    return list(pieces[: kinds.index(kind)])


@contextmanager
def perturbed(model: Any, sentences: Mapping[str, Sentence], deltas: Deltas | None) -> Generator[None, None, None]:
    """Within the block, the l-th layer of each stack returns its output plus Δ^(l) at the prompt tokens."""
    handles = []
    counts = []
    for stack, blocks in stacks(model).items():
        delta = (deltas or {}).get(stack)
        if delta is None:
            continue
        assert len(delta) == len(blocks), f"{len(delta)} rows of Δ for {len(blocks)} layers of {stack}"
        prompt_at = sentences[stack].prompt_at
        returned: list[nn.Module] = []  # blocks that have returned, so its length is the number of layers passed
        counts.append((returned, blocks))

        def add(
            block: nn.Module, _inputs: Any, output: Any, delta=delta, prompt_at=prompt_at, returned=returned
        ) -> Any:
            assert isinstance(output, Tensor)
            assert output.shape[0] == 1
            layer = delta[len(returned)]  # [N, D]
            returned.append(block)
            rows = [torch.zeros_like(row) for row in output[0]]
            for number, position in enumerate(prompt_at):
                rows[position] = layer[number]
            return output + torch.stack(rows)

        handles += [block.register_forward_hook(add) for block in dict.fromkeys(blocks)]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
    for returned, blocks in counts:
        assert returned == blocks, "the layers were not passed once each, in order"


def log_probabilities(model: Any, sentence: Sentence, deltas: Deltas | None) -> Tensor:
    """Log distribution [length, vocab] at each position of a masked or causal LM."""
    with perturbed(model, {"layers": sentence}, deltas):
        logits = model(inputs_embeds=sentence.inputs_embeds).logits
    return logits[0].log_softmax(-1)


def seq2seq_log_probabilities(model: Any, encoder: Sentence, decoder: Sentence, deltas: Deltas | None) -> Tensor:
    """Log distribution [length, vocab] of the token after each position of the decoder."""
    with perturbed(model, {"encoder": encoder, "decoder": decoder}, deltas):
        logits = model(inputs_embeds=encoder.inputs_embeds, decoder_inputs_embeds=decoder.inputs_embeds).logits
    return logits[0].log_softmax(-1)


def log_p_y(
    model: Any,
    tokenizer: Any,
    family: Family,
    pieces: Sequence[Piece],
    x_ids: Sequence[int],
    vectors: Tensor,
    deltas: Deltas | None = None,
) -> Tensor:
    """log p(· | t, x): the log distribution [vocab] at y's blank, in the model's dtype."""
    mask = tokenizer.mask_token_id
    if family == "masked":
        sentence = fill(model, pieces, vectors, x_ids, mask)
        assert sentence.y_at is not None
        return log_probabilities(model, sentence, deltas)[sentence.y_at]
    if family == "causal":
        left = before(pieces, "y")
        assert "x" in [piece.kind for piece in left], "a causal LM needs x before y"
        return log_probabilities(model, fill(model, left, vectors, x_ids, None), deltas)[-1]
    start = Piece("special", [model.config.decoder_start_token_id])
    encoder = fill(model, pieces, vectors, x_ids, mask)
    decoder = fill(model, [start, *before(pieces, "y")], vectors, x_ids, None)
    return seq2seq_log_probabilities(model, encoder, decoder, deltas)[-1]


def log_p_x(
    model: Any,
    tokenizer: Any,
    family: Family,
    pieces: Sequence[Piece],
    x_ids: Sequence[int],
    vectors: Tensor,
    deltas: Deltas | None = None,
) -> Tensor:
    """log p(x | t), a scalar in the model's dtype."""
    mask = tokenizer.mask_token_id
    masks = [mask] * len(x_ids)
    if family == "masked":
        sentence = fill(model, pieces, vectors, masks, mask)
        log_p = log_probabilities(model, sentence, deltas)
        return _total(log_p[position, token] for position, token in zip(sentence.x_at, x_ids, strict=True))

    up_to_x = [*before(pieces, "x"), Piece("x")]
    if family == "causal":
        assert "y" not in [piece.kind for piece in up_to_x], "a causal LM needs x before y"
        first = up_to_x[0]
        begins = [token for token in (tokenizer.bos_token_id, tokenizer.eos_token_id) if token is not None]
        if first.kind != "special" or first.ids[0] not in begins:
            up_to_x.insert(0, Piece("special", [begins[0]]))
        sentence = fill(model, up_to_x, vectors, x_ids, None)
        log_p = log_probabilities(model, sentence, deltas)
    else:
        start = Piece("special", [model.config.decoder_start_token_id])
        encoder = fill(model, pieces, vectors, masks, mask)
        sentence = fill(model, [start, *up_to_x], vectors, x_ids, mask)
        log_p = seq2seq_log_probabilities(model, encoder, sentence, deltas)
    # Each token of x is read one position to its left.
    return _total(log_p[position - 1, token] for position, token in zip(sentence.x_at, x_ids, strict=True))


def _total(terms: Iterator[Tensor]) -> Tensor:
    first, *rest = terms
    for term in rest:
        first = first + term
    return first


# Answers of any length


def log_p_answer(
    model: Any,
    tokenizer: Any,
    family: Family,
    pieces: Sequence[Piece],
    x_ids: Sequence[int],
    y_ids: Sequence[int],
    end: int | None,
    vectors: Tensor,
    deltas: Deltas | None = None,
    log_p_length: float = 0.0,
) -> Tensor:
    """log p(y | t, x) of an answer of several tokens, a scalar in the model's dtype.

    A masked LM fills as many masks from left to right, after log p(m | r); the others go on token by token, and then
    with the token that ends the answer.
    """
    if family == "masked":
        mask = tokenizer.mask_token_id
        terms = []
        for step, token in enumerate(y_ids):
            filled = [*y_ids[:step], *[mask] * (len(y_ids) - step)]
            sentence, y_at = fill_answer(model, pieces, vectors, x_ids, filled)
            terms.append(log_probabilities(model, sentence, deltas)[y_at[step], token])
        return _total(iter(terms)) + log_p_length
    assert end is not None, "an answer that is written out has an end"
    left = before(pieces, "y")
    if family == "causal":
        sentence, y_at = fill_answer(model, [*left, Piece("y")], vectors, x_ids, y_ids)
        log_p = log_probabilities(model, sentence, deltas)
    else:
        start = Piece("special", [model.config.decoder_start_token_id])
        encoder = fill(model, pieces, vectors, x_ids, tokenizer.mask_token_id)
        sentence, y_at = fill_answer(model, [start, *left, Piece("y")], vectors, x_ids, y_ids)
        log_p = seq2seq_log_probabilities(model, encoder, sentence, deltas)
    written = [*y_ids, end]
    return _total(log_p[y_at[0] - 1 + step, token] for step, token in enumerate(written))


def fill_answer(
    model: Any, pieces: Sequence[Piece], vectors: Tensor, x: Sequence[int], y: Sequence[int]
) -> tuple[Sentence, list[int]]:
    """The sentence with the ids y at y's blank, and where they stand."""
    at = [piece.kind for piece in pieces].index("y")
    expanded = [*pieces[:at], Piece("special", list(y)), *pieces[at + 1 :]]
    sentence = fill(model, expanded, vectors, x, None)
    lengths = [len(x) if piece.kind == "x" else len(piece.ids) for piece in expanded[:at]]
    return sentence, list(range(sum(lengths), sum(lengths) + len(y)))


# Several prompts, in float64


def read_answers(log_p: Tensor, forms: Sequence[int | None]) -> Tensor:
    """One prompt's log-probabilities of the answers, each in the form it has there; None is probability 0."""
    nothing = log_p.new_tensor(-math.inf)
    return torch.stack([nothing if form is None else log_p[form] for form in forms])


def log_softmax(logits: Tensor) -> Tensor:
    """Log of the static mixture weights p(t | r)."""
    powers = [logit.exp() for logit in logits.double()]
    total = sum(powers, torch.zeros((), dtype=torch.float64))
    return torch.stack([(power / total).log() for power in powers])


def log_mixture(log_weights_per_prompt: Sequence[Tensor] | Tensor, log_p_y_per_prompt: Sequence[Tensor]) -> Tensor:
    """log Σ_t weight_t · p_t, as a sum of probabilities."""
    total = torch.zeros_like(log_p_y_per_prompt[0], dtype=torch.float64)
    for log_weight, log_p in zip(log_weights_per_prompt, log_p_y_per_prompt, strict=True):
        total = total + log_weight.double().exp() * log_p.double().exp()
    return total.log()


def data_dependent_log_weights(logits: Tensor, log_p_x: Sequence[Tensor], log_T: Tensor) -> Tensor:  # noqa: N803
    """log p(t | r, x) [T] for one x: p(t | r) · p(x | t)^(1/T), normalised over t."""
    temperature = log_T.double().exp()
    scores = [
        log_p_t + log_p.double() / temperature for log_p_t, log_p in zip(log_softmax(logits), log_p_x, strict=True)
    ]
    highest = max(score.item() for score in scores)  # a constant that drops out, against underflow
    total = sum(((score - highest).exp() for score in scores), torch.zeros((), dtype=torch.float64))
    return torch.stack([score - highest - total.log() for score in scores])


def log_product(weights: Sequence[float] | Tensor, log_p: Sequence[Tensor]) -> Tensor:
    """log of Π_t p_t^{w_t}, normalised over the vocabulary (product of experts). The weights sum to 1."""
    product = torch.ones_like(log_p[0], dtype=torch.float64)
    for weight, log_p_t in zip(weights, log_p, strict=True):
        product = product * log_p_t.double().exp() ** weight
    return (product / product.sum()).log()


# Scores


def rank(log_probs: Tensor | Sequence[float], gold: int, excluded: Sequence[int] = ()) -> float:
    """1 + how many others are more probable + half of how many are exactly as probable, the excluded left out."""
    values = [float(value) for value in log_probs]
    if any(math.isnan(value) or value == math.inf for value in values):
        raise ValueError("a probability is not finite")
    more = ties = 0
    for answer, value in enumerate(values):
        if answer == gold or answer in excluded:
            continue
        if value > values[gold]:
            more += 1
        elif value == values[gold]:
            ties += 1
    return 1 + more + ties / 2


def brute_metrics(ranks: Sequence[float]) -> dict[str, float]:
    """P@1, P@10 and MRR in per cent."""
    number = len(ranks)
    return {
        "P@1": 100 * sum(1 for r in ranks if r <= 1) / number,
        "P@10": 100 * sum(1 for r in ranks if r <= 10) / number,
        "MRR": 100 * sum(1 / r for r in ranks) / number,
    }
