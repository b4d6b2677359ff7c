"""The LMs and facts that are measured: random LMs of known shapes, and the testbed's own."""

from dataclasses import dataclass
from typing import Any

import torch
from transformers import BertConfig, BertForMaskedLM

from askwell import Mixture, MixtureSpec, load_lm, read_prompts, read_relation
from askwell.lms import FrozenLM
from askwell.mixture.encode import EncodedFacts, encode_facts

RELATION = "country_of_city"
VOCABULARY = 30522


@dataclass(frozen=True)
class Shape:
    """The shape of a BERT."""

    layers: int
    width: int
    heads: int


SHAPES = {"base": Shape(12, 768, 12), "small": Shape(4, 256, 4)}


def random_lm(shape: Shape, vocabulary: int = VOCABULARY) -> FrozenLM:
    """A BERT of that shape with random weights, that reads with the testbed's tokenizer."""
    tokenizer: Any = load_lm("testbed:bert", device="cpu").tokenizer
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=vocabulary,
        hidden_size=shape.width,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        intermediate_size=4 * shape.width,
        pad_token_id=tokenizer.pad_token_id,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    return FrozenLM(BertForMaskedLM(config).eval(), tokenizer, name="random", device="cpu")


def lm_of(name: str) -> FrozenLM:
    """The LM of that name: base, small, or one of the testbed's."""
    return random_lm(SHAPES[name]) if name in SHAPES else load_lm(name, device="cpu")


def mixture_of(lm: FrozenLM, prompts: int, *, deep: bool, data_dependent: bool = False) -> Mixture:
    """A mixture of mined prompts."""
    templates = read_prompts(f"testbed:mined/{RELATION}")
    spec = MixtureSpec(deep=deep, data_dependent=data_dependent)
    whole = Mixture(lm, templates, spec)
    chosen = [prompt.template for prompt in whole.prompts]
    return Mixture(lm, [chosen[number % len(chosen)] for number in range(prompts)], spec)


def facts_of(mixture: Mixture, count: int) -> EncodedFacts:
    """So many facts, drawn once."""
    facts, _ = encode_facts(mixture, read_relation(f"testbed:{RELATION}").split("train"))
    order = torch.randperm(len(facts), generator=torch.Generator().manual_seed(0))[:count]
    return facts.subset(torch.isin(torch.arange(len(facts)), order))
