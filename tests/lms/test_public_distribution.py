"""Untuned prompts give the public model's own distribution, computed here from token ids, never from vectors."""

from typing import Any

import agreement
import pytest
import torch
from agreement import ALL, plain, usable, words
from builders import tiny
from builders.specs import paper_spec
from torch import Tensor
from torch.nn import functional

from askwell.answers.one_token import OneTokenAnswers
from askwell.lms.batches import QuestionTable
from askwell.lms.frozen import FrozenLM
from askwell.mixture.mixture import Mixture

XS = ["Reykjavik", "Paris", "Mary Cassatt"]


def head(model: Any, hidden: Tensor) -> Tensor:
    """The public model's vocabulary head."""
    match model.config.model_type:
        case "bert":
            return model.cls(hidden)
        case "roberta":
            return model.lm_head(hidden)
        case "distilbert":
            hidden = functional.gelu(model.vocab_transform(hidden))
            return model.vocab_projector(model.vocab_layer_norm(hidden))
        case "albert":
            return model.predictions(hidden)
        case "electra":
            return model.generator_lm_head(model.generator_predictions(hidden))
        case "modernbert":
            return model.decoder(model.head(hidden))
        case "bart":
            return model.lm_head(hidden) + model.final_logits_bias
        case "gpt2" | "llama":
            return model.lm_head(hidden)
    raise ValueError(model.config.model_type)


def sentences(name: str, template: str, x: str) -> dict[str, tuple[list[int], int]]:
    """The ids that each stack reads, and where y is read off the last of them; laid out by hand."""
    lm = plain(name)
    tokens: list[int | str] = []
    for piece in agreement.pieces(name, template):
        tokens += {"x": ["x"], "y": ["y"]}.get(piece.kind, piece.ids)
    at = tokens.index("x")
    tokens[at : at + 1] = agreement.x_ids(name, template, x)
    y_at = tokens.index("y")
    before_y = [token for token in tokens[:y_at] if isinstance(token, int)]
    if tiny.FAMILY[name] == "causal":
        return {"layers": (before_y, y_at - 1)}
    whole = [lm.tokenizer.mask_token_id if token == "y" else token for token in tokens]
    whole = [token for token in whole if isinstance(token, int)]
    if tiny.FAMILY[name] == "masked":
        return {"layers": (whole, y_at)}
    decoder = [lm.model.config.decoder_start_token_id, *before_y]
    return {"encoder": (whole, y_at), "decoder": (decoder, len(decoder) - 1)}


def padded(rows: list[list[int]], pad: int) -> tuple[Tensor, Tensor]:
    longest = max(map(len, rows))
    ids = torch.tensor([row + [pad] * (longest - len(row)) for row in rows])
    return ids, torch.tensor([[1] * len(row) + [0] * (longest - len(row)) for row in rows])


@pytest.mark.parametrize("deep", [False, True])
@pytest.mark.parametrize("name", ALL)
def test_bit_for_bit_at_equal_shapes(name: str, deep: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The public model as a whole, with hooks; a walk computes the same at other shapes, so up to rounding alone."""
    lm, templates = plain(name), usable(name)
    monkeypatch.setattr(lm, "walk", None)
    model: Any = lm.model
    mixture = Mixture(lm, templates, paper_spec(deep=deep))
    pairs = [(fact, prompt) for fact in range(len(XS)) for prompt in range(len(templates))]
    facts, prompts = torch.tensor(pairs).T

    table = QuestionTable(
        [prompt.question for prompt in mixture.prompts],
        [prompt.tokens.x_place for prompt in mixture.prompts],
        mixture.pairs.rows,
        lm.tokenizer.mask_token_id,
        lm.device,
    )
    xs, _ = words(lm, XS)
    with torch.no_grad():
        ours = lm.logits(table.batch(xs, facts, prompts), mixture.vectors, mixture.layer_deltas or None)

    rows = [sentences(name, templates[prompt], XS[fact]) for fact, prompt in pairs]
    pad = lm.tokenizer.pad_token_id or 0
    inputs = {stack: padded([row[stack][0] for row in rows], pad) for stack in rows[0]}
    assert any(not mask.all() for _, mask in inputs.values()), "there is no padding to test"
    if "decoder" in inputs:
        arguments = dict(zip(("input_ids", "attention_mask"), inputs["encoder"], strict=True))
        arguments |= dict(zip(("decoder_input_ids", "decoder_attention_mask"), inputs["decoder"], strict=True))
        last = "decoder"
    else:
        arguments = dict(zip(("input_ids", "attention_mask"), inputs["layers"], strict=True))
        last = "layers"
    with torch.no_grad():
        hidden = model.base_model(**arguments).last_hidden_state
        read = hidden[torch.arange(len(rows)), torch.tensor([row[last][1] for row in rows])]
        theirs = head(model, read[None])[0]
    assert ours.shape == (len(rows), len(lm.tokenizer))
    assert torch.equal(ours, theirs)


@pytest.mark.parametrize("name", ALL)
def test_against_the_plain_forward_of_one_sentence(name: str) -> None:
    lm, templates = plain(name), usable(name)
    model: Any = lm.model
    mixture = Mixture(lm, templates, paper_spec())
    xs, facts = words(lm, XS)
    for prompt, template in enumerate(templates):
        ours = mixture.word_log_probs(xs, facts, prompt)
        for fact, x in enumerate(XS):
            row = {stack: (torch.tensor([ids]), at) for stack, (ids, at) in sentences(name, template, x).items()}
            with torch.no_grad():
                if "decoder" in row:
                    logits = model(input_ids=row["encoder"][0], decoder_input_ids=row["decoder"][0]).logits
                    at = row["decoder"][1]
                else:
                    logits = model(input_ids=row["layers"][0]).logits
                    at = row["layers"][1]
            torch.testing.assert_close(ours[fact], logits[0, at].log_softmax(0), rtol=0, atol=5e-5)


@pytest.mark.parametrize("name", ["bert", "roberta", "bart", "llama"])
def test_half_precision_gives_probabilities_in_float32(name: str) -> None:
    model, tokenizer = tiny.TINY[name]()
    lm = FrozenLM(model, tokenizer, dtype=torch.bfloat16)
    mixture = Mixture(lm, ["The capital of [X] is [Y] ."], paper_spec())
    xs, facts = words(lm, XS)
    log_probs = OneTokenAnswers(mixture).log_probs(xs, facts)
    assert lm.dtype == torch.bfloat16
    assert mixture.vectors.dtype == log_probs.dtype == torch.float32
    torch.testing.assert_close(log_probs.exp().sum(1), torch.ones(3), rtol=0, atol=1e-5)
    exact = Mixture(plain(name), ["The capital of [X] is [Y] ."], paper_spec())
    whole = OneTokenAnswers(exact).log_probs(*words(plain(name), XS))
    assert not torch.equal(log_probs, whole)
    assert float((log_probs.exp() - whole.exp()).abs().max()) < 0.3
