"""Architectures that no test family covers: read at the right position, or refused."""

from typing import Any

import pytest
import torch
from builders import tiny
from builders.specs import paper_spec
from transformers import (
    ConvBertConfig,
    ConvBertForMaskedLM,
    OPTConfig,
    OPTForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
    T5Config,
    T5ForConditionalGeneration,
)

from askwell.errors import LMUnavailable
from askwell.lms.batches import words_of
from askwell.lms.frozen import FrozenLM
from askwell.mixture.mixture import Mixture

SHAPE: dict[str, Any] = {
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "max_position_embeddings": 64,
}


def wide(model):
    """Random weights far from uniform answers."""
    torch.manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model.eval()


@pytest.mark.parametrize("name", ["opt", "qwen3"])
def test_causal_lms_of_other_makes_answer_as_the_public_model_does(name):
    tokenizer = tiny.TINY["gpt2"]()[1]
    size: dict[str, Any] = {"vocab_size": len(tokenizer), "pad_token_id": 0, "bos_token_id": 0, "eos_token_id": 0}
    if name == "opt":  # its head reads the decoder inside of the base model
        model = OPTForCausalLM(OPTConfig(**SHAPE, **size, ffn_dim=64, word_embed_proj_dim=32))
    else:
        model = Qwen3ForCausalLM(Qwen3Config(**SHAPE, **size, intermediate_size=64, num_key_value_heads=2, head_dim=8))
    lm = FrozenLM(wide(model), tokenizer)
    mixture = Mixture(lm, ["The capital of [X] is [Y] ."], paper_spec(begin="space"))
    xs = ["France", "Mary and Berlin and Oslo"]
    answers = mixture.word_log_probs(words_of(xs, lm.wording, lm.device), torch.arange(2), 0)
    for x, answer in zip(xs, answers, strict=True):
        ids = tokenizer(f" The capital of {x} is", return_tensors="pt")["input_ids"]
        expected = model(input_ids=ids).logits[0, -1].log_softmax(-1)
        torch.testing.assert_close(answer, expected, atol=5e-5, rtol=0)


def test_an_lm_whose_answers_depend_on_padding_is_refused():
    tokenizer = tiny.TINY["bert"]()[1]
    model = ConvBertForMaskedLM(
        ConvBertConfig(**SHAPE, vocab_size=len(tokenizer), intermediate_size=64, embedding_size=32)
    )
    with pytest.raises(LMUnavailable, match="padding changes its answers"):
        FrozenLM(wide(model), tokenizer)


def test_an_lm_that_cannot_be_read_is_refused():
    tokenizer = tiny.TINY["bart"]()[1]
    model = T5ForConditionalGeneration(
        T5Config(vocab_size=len(tokenizer), d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4)
    )
    with pytest.raises(LMUnavailable, match="T5ForConditionalGeneration cannot be asked"):
        FrozenLM(model.eval(), tokenizer)
