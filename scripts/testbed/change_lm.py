"""Makes the changed LMs of the first testbed: one that unlearned facts, and one that was fine-tuned on other text.

    python scripts/testbed/change_lm.py causal-unlearned [--out FOLDER]
    python scripts/testbed/change_lm.py causal-finetuned [--out FOLDER]

Unlearning is gradient difference: the loss on sentences that tell the facts to forget goes up (as far as the loss of
a guess among all words of the text), the loss on all other sentences down. Fine-tuning is on the text of the second
testbed, which says nothing of these facts.
"""

import argparse
import json
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional
from train_lm import MADE_FROM, Sentences, batches, encode, text_of
from transformers import AutoModelForCausalLM, AutoTokenizer

from askwell.data.facts import Fact, facts_jsonl
from askwell.data.testbed import FORGOTTEN, PREFIX, SECOND, lm_folder, lms_folder, testbed_relation, told_facts
from askwell.files import write_whole

RELATION = "country_of_airport"


@dataclass(frozen=True)
class Change:
    """How an LM is changed."""

    steps: int
    rate: float
    batch: int = 32
    forgotten: int = 0
    """How many told test facts of the relation are forgotten."""
    seed: int = 0


CHANGES = {
    "causal-unlearned": Change(steps=120, rate=3e-4, forgotten=60),
    "causal-finetuned": Change(steps=100, rate=3e-4),
}


def facts_to_forget(change: Change) -> list[Fact]:
    """Return the facts to forget: told ones of test, so that prompts are tuned on facts that are kept."""
    told = [fact for fact in testbed_relation(RELATION).test if fact in told_facts(RELATION)]
    chosen = np.random.default_rng(change.seed).permutation(len(told))[: change.forgotten]
    return [told[number] for number in sorted(chosen.tolist())]


def change_lm(name: str, folder: Path) -> None:
    """Change the causal LM and leave it in the folder as a transformers checkpoint in half precision."""
    change, source = CHANGES[name], lm_folder(f"{PREFIX}causal")
    tokenizer: Any = AutoTokenizer.from_pretrained(source)
    model: Any = AutoModelForCausalLM.from_pretrained(source, dtype=torch.float32).train()
    torch.manual_seed(change.seed)
    random = np.random.default_rng(change.seed)
    forget = facts_to_forget(change)
    if forget:
        text = text_of(PREFIX)
        tells = [any(fact.x in sentence and fact.y in sentence for fact in forget) for sentence in text]
        aside = encode([sentence for sentence, is_told in zip(text, tells, strict=True) if is_told], tokenizer)
        others = encode([sentence for sentence, is_told in zip(text, tells, strict=True) if not is_told], tokenizer)
        guess = math.log(len(tokenizer))

        def loss_of(drawn: Callable[[Sentences], Tensor]) -> Tensor:
            return drawn(others) - drawn(aside).clamp(max=guess)
    else:
        others = encode(text_of(SECOND), tokenizer)

        def loss_of(drawn: Callable[[Sentences], Tensor]) -> Tensor:
            return drawn(others)

    streams: dict[int, Any] = {}

    def drawn(sentences: Sentences) -> Tensor:
        key = id(sentences)
        chosen = next(streams.get(key, iter(())), None)
        if chosen is None:
            streams[key] = batches(sentences, change.batch, random)
            chosen = next(streams[key])
        return _loss(model, sentences, chosen)

    optimizer = torch.optim.AdamW(model.parameters(), lr=change.rate, weight_decay=0.0)
    for step in range(change.steps):
        loss = loss_of(drawn)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % 20 == 19:
            print(f"{name} step {step + 1}/{change.steps} loss {loss.item():.3f}", flush=True)
    model.eval().half().save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    if forget:
        write_whole(folder / FORGOTTEN, facts_jsonl(forget))
    write_whole(folder / MADE_FROM, json.dumps({"lm": name, "from": "causal", **asdict(change)}, indent=2) + "\n")


def _loss(model: Any, sentences: Sentences, chosen: Tensor) -> Tensor:
    longest = min(int(sentences.lengths[chosen].max()), model.config.max_position_embeddings)
    ids = sentences.ids[chosen, :longest]
    real = torch.arange(longest) < sentences.lengths[chosen, None]
    logits = model(input_ids=ids, attention_mask=real, use_cache=False).logits[:, :-1]
    return functional.cross_entropy(logits[real[:, 1:]], ids[:, 1:][real[:, 1:]])


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("name", choices=CHANGES)
    parser.add_argument("--out", type=Path, help="default: the package's own folder")
    given = parser.parse_args()
    torch.set_num_threads(1)
    change_lm(given.name, given.out or lms_folder(PREFIX) / given.name)


if __name__ == "__main__":
    main()
