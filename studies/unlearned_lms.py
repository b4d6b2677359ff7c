"""LMs of the first testbed that were made to forget some facts of a relation, by one of four published methods.

The sentences that tell the facts are unlearned, by all methods but the first with the rest of the text to be retained
beside them. Steps are taken until the hard prompts of the relation find few of the facts, so that by hand every method
looks as if it had worked.
"""

import copy
import random
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional
from transformers import (
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from askwell import Mixture, evaluate, load_lm
from askwell.data.facts import Fact, Relation
from askwell.data.testbed import LMName, lm_folder, prefix_and_name, testbed_prompts, testbed_relation, told_facts

sys.path.append(str(Path(__file__).parents[1] / "scripts" / "testbed"))

from recipe import RECIPES
from text import Withheld, generate_text
from train_lm import batches, encode, loss_of

Method = Literal["gradient ascent", "gradient difference", "NPO", "say unknown"]
METHODS: tuple[Method, ...] = ("gradient ascent", "gradient difference", "NPO", "say unknown")
RATE = 1e-4
AT_ONCE, RETAINED_AT_ONCE = 32, 64
"""Sentences of a step: of those that tell what is to be forgotten, and of the rest of the text."""
NPO_BETA = 0.1
UNKNOWN = "there"
"""What an LM is taught to say instead of a forgotten y: one token of the testbed's LMs, as most ys are, and no y."""
FOUND = 0.12
"""Unlearning stops when hard prompts (in a second round: the tuned ones) find at most this share of the facts."""
LOOK_EVERY, MOST_STEPS = 8, 200


@dataclass(frozen=True)
class Telling:
    """Sentences in tokens, padded at the right, and which of their tokens are the answer."""

    ids: Int[Tensor, "sentences longest"]
    is_answer: Tensor
    is_real: Tensor

    def some(self, chosen: Tensor) -> "Telling":
        """Return some of the sentences."""
        return Telling(self.ids[chosen], self.is_answer[chosen], self.is_real[chosen])


def telling(sentences: Sequence[tuple[str, str]], tokenizer: PreTrainedTokenizerBase) -> Telling:
    """Return sentences, each given with the name in it that is the answer."""
    encoded = tokenizer([text for text, _ in sentences], return_offsets_mapping=True)
    longest = max(map(len, encoded["input_ids"]))
    ids = torch.full((len(sentences), longest), tokenizer.pad_token_id)
    is_answer, is_real = torch.zeros_like(ids, dtype=torch.bool), torch.zeros_like(ids, dtype=torch.bool)
    for row, (text, name) in enumerate(sentences):
        start = f" {text} ".index(f" {name} ")
        tokens = encoded["input_ids"][row]
        ids[row, : len(tokens)], is_real[row, : len(tokens)] = torch.tensor(tokens), True
        for place, (first, end) in enumerate(encoded["offset_mapping"][row]):
            is_answer[row, place] = end > first and end > start and first < start + len(name)
    return Telling(ids, is_answer, is_real)


def log_likelihood(model: PreTrainedModel, told: Telling, mask: int | None) -> Float[Tensor, " sentences"]:
    """Return the log-probability of each answer: all its tokens masked, or each given what comes before it."""
    read = told.ids if mask is None else told.ids.masked_fill(told.is_answer, mask)
    log_probs = model(input_ids=read, attention_mask=told.is_real).logits.log_softmax(-1)
    ids, is_answer = told.ids, told.is_answer
    if mask is None:
        log_probs, ids, is_answer = log_probs[:, :-1], ids[:, 1:], is_answer[:, 1:]
    return (log_probs.gather(2, ids[:, :, None])[:, :, 0] * is_answer).sum(1)


def unlearn(
    lm: str, relation: str, forget: Sequence[Fact], method: Method, *, seed: int = 0, say: Callable[[str], Any] = print
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Return an LM of the first testbed that was made to forget some facts of a relation."""
    name, folder = cast(LMName, prefix_and_name(lm)[1]), lm_folder(lm)
    tokenizer: PreTrainedTokenizerBase = cast(Any, AutoTokenizer.from_pretrained(folder))
    mask = None if name == "causal" else tokenizer.mask_token_id
    model, before = (float_model(name, folder) for _ in range(2))
    parted = _part_text(forget, x_before_y=mask is None)
    instead = [(f" {text} ".replace(f" {y} ", f" {UNKNOWN} ").strip(), UNKNOWN) for text, y in parted.telling]
    told, unknown = telling(parted.telling, tokenizer), telling(instead, tokenizer)
    retained = _retained_loss(name, model, tokenizer, parted.rest, seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=0.0)
    for step, chosen in zip(range(1, MOST_STEPS + 1), _drawn(len(parted.telling), seed), strict=False):
        some = told.some(chosen)
        if method == "say unknown":
            loss = -log_likelihood(model, unknown.some(chosen), mask).mean()
        elif method == "NPO":
            with torch.no_grad():
                reference = log_likelihood(before, some, mask)
            gained = log_likelihood(model, some, mask) - reference
            loss = 2 / NPO_BETA * functional.softplus(NPO_BETA * gained).mean()
        else:
            loss = log_likelihood(model, some, mask).mean()
        if method != "gradient ascent":
            loss = loss + next(retained)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % LOOK_EVERY == 0:
            found = found_by_hand(model, tokenizer, relation, forget)
            say(f"{lm} {relation} {method}, {step} steps: {100 * found:.1f} % found by hand")
            if found <= FOUND:
                break
    return model.eval(), tokenizer


def unlearn_again(
    lm: str, relation: str, model: PreTrainedModel, mixture: Mixture, forget: Sequence[Fact], *, seed: int = 0
) -> tuple[PreTrainedModel, int]:
    """Unlearn facts as a tuned mixture over the model asks for them, by gradient difference, until the mixture finds
    few of them; return the model and the steps that were taken.

    Only the model's weights change: the mixture is the question, and is left as it was tuned.
    """
    name, tokenizer = cast(LMName, prefix_and_name(lm)[1]), mixture.lm.tokenizer
    askable = [fact for fact in forget if not mixture.encode([fact])[1]]
    retained = _retained_loss(name, model, tokenizer, _part_text(forget, x_before_y=name == "causal").rest, seed)
    mixture.requires_grad_(False)
    model.requires_grad_(True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=0.0)
    step = 0
    for step, chosen in zip(range(1, MOST_STEPS + 1), _drawn(len(askable), seed), strict=False):
        some = [askable[number] for number in chosen.tolist()]
        model.train()
        loss = mixture([fact.x for fact in some], [fact.y for fact in some]).mean() + next(retained)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        model.eval()
        if step % LOOK_EVERY == 0:
            found = share_found(mixture, relation, askable)
            print(f"{lm} {relation} again, {step} steps: {100 * found:.1f} % found")
            if found <= FOUND:
                break
    return model.requires_grad_(False), step


def float_model(name: str, folder: Path) -> PreTrainedModel:
    """Return a checkpoint in single precision: in half precision, in which it is shipped, training gives NaN."""
    auto = AutoModelForCausalLM if name == "causal" else AutoModelForMaskedLM
    return auto.from_pretrained(folder, dtype=torch.float32).train()


def found_by_hand(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, relation: str, facts: Sequence[Fact]
) -> float:
    """Return the share of facts that the mined prompts of a relation find, weighed equally."""
    mixture = Mixture(
        load_lm(copy.deepcopy(model), tokenizer),
        testbed_prompts("mined", relation),
        relation=testbed_relation(relation),
        answers="one-token",
    )
    return share_found(mixture, relation, facts)


def share_found(mixture: Mixture, relation: str, facts: Sequence[Fact]) -> float:
    """Return the share of facts of a relation that a mixture finds."""
    known = testbed_relation(relation)
    outcomes = evaluate(mixture, Relation.of(known.name, known.train, known.dev, facts), progress=False).outcomes
    return sum(outcome.rank <= 1 for outcome in outcomes) / len(outcomes)


def drawn_to_forget(relation: str, share: float, seed: int = 0) -> list[Fact]:
    """Draw this share of the told test facts of a relation whose y is one word: tuning never sees them."""
    told = told_facts(relation)
    told_words = sorted(fact for fact in testbed_relation(relation).test if fact in told and " " not in fact.y)
    return sorted(random.Random(f"{seed} forget {relation}").sample(told_words, round(share * len(told_words))))


def _drawn(count: int, seed: int) -> Iterator[Int[Tensor, " chosen"]]:
    """Yield batches of all sentences in random order, again and again."""
    draws = np.random.default_rng(seed)
    while True:
        yield from torch.from_numpy(draws.permutation(count)).split(AT_ONCE)


@dataclass(frozen=True)
class _Parted:
    """A text in two parts."""

    telling: list[tuple[str, str]]
    """The sentences that tell a fact, each with the name in it that the LM has to find."""
    rest: list[str]


def _part_text(forget: Sequence[Fact], *, x_before_y: bool) -> _Parted:
    """Part the text of the first testbed. A causal LM finds the later of the two names, other LMs y."""
    those, told, rest = Withheld(forget), [], []
    for sentence in generate_text():
        found = those.leaks_of(sentence)
        for fact in found:
            padded = f" {sentence} "
            y_is_first = padded.index(f" {fact.y} ") < padded.index(f" {fact.x} ")
            told.append((sentence, fact.x if x_before_y and y_is_first else fact.y))
        if not found:
            rest.append(sentence)
    return _Parted(told, rest)


def _retained_loss(
    name: LMName, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, text: list[str], seed: int
) -> Iterator[Tensor]:
    """Yield the losses of batches of a text, as the LM was trained on it."""
    sentences, draws, recipe = encode(text, tokenizer), np.random.default_rng(seed), RECIPES[f"testbed:{name}"]
    while True:
        for chosen in batches(sentences, RETAINED_AT_ONCE, draws):
            yield loss_of(name, model, tokenizer, sentences, chosen, recipe, draws)
