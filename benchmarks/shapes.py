"""The LMs and facts that are measured: random LMs of known shapes, and those of the testbed.

The random LMs read x's and prompts as long as those of T-REx, since the cost of padding depends on their lengths. These
were counted once with a real tokenizer (SmolLM2's byte-level BPE), over 50 train x's of each of the 41 relations and
over all mined prompts.
"""

from dataclasses import dataclass, replace
from typing import Any

import torch
from transformers import BertConfig, BertForMaskedLM

from askwell import Mixture, MixtureSpec, load_lm, load_prompts, load_relation
from askwell.answers.encode import EncodedFacts
from askwell.lms.batches import Words
from askwell.lms.frozen import FrozenLM

RELATION = "country_of_city"
RANDOM = "random"
VOCABULARY = 30522
X_LENGTHS = (143, 312, 412, 410, 283, 170, 105, 90, 41, 31, 20, 12, 6, 2, 4, 2, 2, 0, 0, 0, 1)
"""How many x's have 1, 2, 3 … tokens."""
PROMPT_LENGTHS = (0, 0, 289, 437, 210, 110, 72, 21, 10, 8, 3, 1, 0, 2, 2)
"""How many prompts have 1, 2, 3 … tokens besides their blanks."""
PROMPT_WORDS = "is one of the many cities and towns that people in all parts"


@dataclass(frozen=True)
class Shape:
    """The shape of a BERT."""

    layers: int
    width: int
    heads: int


SHAPES = {"base": Shape(12, 768, 12), "small": Shape(4, 256, 4)}


def random_lm(shape: Shape, vocabulary: int = VOCABULARY) -> FrozenLM:
    """Build a BERT of that shape with random weights and the testbed's tokenizer."""
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
    return FrozenLM(BertForMaskedLM(config).eval(), tokenizer, name=RANDOM, device="cpu")


def lm_of(name: str) -> FrozenLM:
    """Return the LM of that name: base, small, or one of the testbed's."""
    return random_lm(SHAPES[name]) if name in SHAPES else load_lm(name, device="cpu")


def mixture_of(lm: FrozenLM, prompts: int, *, deep: bool, data_dependent: bool = False) -> Mixture:
    """Return a mixture of this many prompts."""
    weighting = "data-dependent" if data_dependent else "static"
    # One-token answers and a space before the first word, like the loops that it is compared with.
    spec = MixtureSpec(deep=deep, weighting=weighting, answers="one-token", begin="space")
    if lm.identity.name == RANDOM:
        lengths = evenly(PROMPT_LENGTHS, prompts)
        words = PROMPT_WORDS.split()
        # Copies of a prompt count as prompts of their own here, so that all lengths occur in the right proportion.
        return Mixture(lm, [f"[X] {' '.join(words[: length - 1])} [Y] ." for length in lengths], spec)
    whole = Mixture(lm, load_prompts(f"testbed:mined/{RELATION}"), spec)
    chosen = [prompt.template for prompt in whole.prompts]
    return Mixture(lm, [chosen[number % len(chosen)] for number in range(prompts)], spec)


def facts_of(mixture: Mixture, count: int) -> EncodedFacts:
    """Draw this many facts, the same ones every time."""
    encoded, _ = mixture.encode(load_relation(f"testbed:{RELATION}").split("train"))
    generator = torch.Generator().manual_seed(0)
    order = torch.randperm(len(encoded), generator=generator)[:count]
    facts = encoded.subset(torch.isin(torch.arange(len(encoded)), order))
    if mixture.lm.identity.name != RANDOM:
        return facts
    lengths = torch.tensor(evenly(X_LENGTHS, count))[torch.randperm(count, generator=generator)]
    places = facts.xs.ids.shape[0]
    ids = torch.randint(200, 5000, (places, count, int(lengths.max())), generator=generator)
    return replace(facts, xs=Words(ids, lengths.expand(places, -1)))


def evenly(counts: tuple[int, ...], number: int) -> list[int]:
    """Return this many lengths, evenly spaced in the sorted list of all."""
    every = [length for length, count in enumerate(counts, start=1) for _ in range(count)]
    return [every[(2 * n + 1) * len(every) // (2 * number)] for n in range(number)]
