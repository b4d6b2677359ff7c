"""What an LM of the second testbed answers to hard prompts, by its own forward passes and nothing else of askwell.

    python scripts/testbed/measure_hard_prompts.py testbed2:bert [--folder FOLDER] [--relations realm,trade]

An answer is right if each of its tokens is the LM's first choice after those before it. A masked LM is given as many
blanks as y has tokens, and they are filled from left to right. Other right ys of the same x are left out.

- oracle: asked in the wording in which the fact was told (the first, where there are two)
- best: the mined prompt that is right for most told facts; mean: all of them on average; any: at least one is right
- uniform: all mined prompts together, equally weighted; sure: weighted by exp(-4 × entropy) for each x
- hand: the manual prompt; withheld: facts of 1-1 relations that the text does not tell, all mined prompts together
"""

import argparse
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoModelForMaskedLM, AutoTokenizer
from truths import Truth, truths

from askwell.data.facts import Fact
from askwell.data.testbed import (
    SECOND,
    lm_folder,
    relations,
    testbed_prompts,
    testbed_relation,
    told_facts,
    withheld_facts,
)

CERTAINTY = 4.0
_ROWS = 512


class Reader:
    """An LM and its tokenizer, as transformers loads them."""

    def __init__(self, folder: Path) -> None:
        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        self.is_masked = self.tokenizer.mask_token is not None
        auto = AutoModelForMaskedLM if self.is_masked else AutoModelForCausalLM
        self.model = auto.from_pretrained(folder, dtype=torch.float32).eval()

    def tokens(self, y: str) -> list[int]:
        """The tokens of y where it stands."""
        return self.tokenizer(y, add_special_tokens=False)["input_ids"]

    def can_ask(self, template: str) -> bool:
        """Whether x comes before y, or the LM reads both sides."""
        return self.is_masked or template.index("[X]") < template.index("[Y]")

    @torch.no_grad()
    def next_token(self, questions: Sequence[tuple[str, str, Sequence[int], int]]) -> Float[Tensor, "questions vocab"]:
        """Log-probabilities of a token of y: template, x, y's tokens before it, and how many y has in all."""
        found = []
        for start in range(0, len(questions), _ROWS):
            rows, places = zip(*(self._row(*question) for question in questions[start : start + _ROWS]), strict=True)
            longest = max(map(len, rows))
            ids = torch.tensor([[*row, *[self.tokenizer.pad_token_id] * (longest - len(row))] for row in rows])
            real = torch.tensor([[place < len(row) for place in range(longest)] for row in rows])
            logits = self.model(input_ids=ids, attention_mask=real.long()).logits
            found.append(logits[torch.arange(len(rows)), torch.tensor(places)].log_softmax(-1))
        return torch.cat(found)

    def _row(self, template: str, x: str, before: Sequence[int], length: int) -> tuple[list[int], int]:
        left, right = template.replace("[X]", x).split("[Y]")
        if not self.is_masked:
            row = [*self.tokenizer(left.rstrip())["input_ids"], *before]
            return row, len(row) - 1
        mask = self.tokenizer.mask_token_id
        row = self.tokenizer(f"{left} {' '.join([self.tokenizer.mask_token] * length)} {right}")["input_ids"]
        blank = row.index(mask) + len(before)
        row[row.index(mask) : blank] = before
        return row, blank


class Answered(NamedTuple):
    """What the mined prompts, alone and together, make of one fact."""

    fact: Fact
    truth: Truth
    length: int
    alone: dict[str, bool]
    uniform: bool
    sure: bool


def answer(reader: Reader, templates: list[str], facts: Sequence[Fact], relation: str) -> list[Answered]:
    """Puts every fact to every template."""
    told, golds = truths(SECOND + relation), testbed_relation(SECOND + relation).golds
    templates = [template for template in templates if reader.can_ask(template)]
    by_length = defaultdict(list)
    for fact in facts:
        by_length[len(reader.tokens(fact.y))].append(fact)
    answered = []
    for length, those in by_length.items():
        ys = [reader.tokens(fact.y) for fact in those]
        alone = torch.ones(len(those), len(templates), dtype=torch.bool)
        right = {"uniform": alone[:, 0].clone(), "sure": alone[:, 0].clone()}
        weights: dict[str, Tensor] = {}
        for place in range(length):
            questions = [
                (template, fact.x, y[:place], length)
                for fact, y in zip(those, ys, strict=True)
                for template in templates
            ]
            log_probs = reader.next_token(questions).view(len(those), len(templates), -1)
            if place == 0:
                entropy = -(log_probs.exp() * log_probs).sum(-1)
                weights = {"uniform": torch.zeros_like(entropy), "sure": -CERTAINTY * entropy}
            if length == 1:
                for row, fact in enumerate(those):
                    others = [reader.tokens(y) for y in golds[fact.x] if y != fact.y]
                    log_probs[row, :, [other[0] for other in others if len(other) == 1]] = -torch.inf
            gold = torch.tensor([y[place] for y in ys])
            alone &= log_probs.argmax(-1) == gold[:, None]
            for name, weight in weights.items():
                mixed = (log_probs + weight.log_softmax(1)[:, :, None]).logsumexp(1)
                right[name] &= mixed.argmax(-1) == gold
            gold_log_probs = log_probs.gather(2, gold[:, None, None].expand(-1, len(templates), 1))[:, :, 0]
            weights = {name: weight + gold_log_probs for name, weight in weights.items()}
        for row, fact in enumerate(those):
            by_template = dict(zip(templates, alone[row].tolist(), strict=True))
            together = {name: bool(those_right[row]) for name, those_right in right.items()}
            answered.append(Answered(fact, told[fact], length, by_template, **together))
    return answered


def figures(answered: Sequence[Answered]) -> dict[str, float]:
    """The figures of told facts of one relation, in percent."""
    alone = [_percent(one.alone[template] for one in answered) for template in answered[0].alone]
    together = figures_of_group(answered)
    return {"facts": together.pop("facts"), "best": max(alone), "mean": sum(alone) / len(alone), **together}


def figures_of_group(answered: Sequence[Answered]) -> dict[str, float]:
    """The figures of told facts of any relations, in percent."""
    return {
        "facts": len(answered),
        "oracle": _percent(one.alone[next(iter(one.truth.wordings))] for one in answered),
        "any": _percent(any(one.alone.values()) for one in answered),
        "uniform": _percent(one.uniform for one in answered),
        "sure": _percent(one.sure for one in answered),
    }


def _percent(right: Iterable[bool]) -> float:
    listed = list(right)
    return 100 * sum(listed) / len(listed)


GROUPS: dict[str, Callable[[Answered], bool]] = {
    "one token": lambda one: one.length == 1,
    "several": lambda one: one.length > 1,
    "told once": lambda one: one.truth.times == 1,
    "told twice": lambda one: one.truth.times == 2,
    "told often": lambda one: one.truth.times > 2,
    "rumoured": lambda one: one.truth.rumour is not None,
}
"""By what the text says of a fact."""


def main() -> None:
    """Prints a table of the figures of an LM, by relation and by what was told."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("lm")
    parser.add_argument("--folder", type=Path, help="a checkpoint; default: the LM in the package")
    parser.add_argument("--relations", help="default: all")
    options = parser.parse_args()
    torch.set_num_threads(1)
    reader = Reader(options.folder or lm_folder(options.lm))
    kinds = {one.name: one.cardinality for one in relations(SECOND)}
    everything: list[Answered] = []
    rows: list[dict[str, float]] = []
    for name in options.relations.split(",") if options.relations else kinds:
        told, withheld = sorted(told_facts(SECOND + name)), sorted(withheld_facts(SECOND + name))
        mined, single = ([each.text for each in testbed_prompts(kind, SECOND + name)] for kind in ("mined", "single"))
        answered = answer(reader, mined, told, name)
        row = figures(answered)
        row["hand"] = _percent(one.uniform for one in answer(reader, single, told, name))
        if kinds[name] == "1-1":
            row["withheld"] = _percent(one.uniform for one in answer(reader, mined, withheld, name))
        rows.append(row)
        everything += answered
        _print(name, row)
    columns = dict.fromkeys(column for row in rows for column in row)
    values = {column: [row[column] for row in rows if column in row] for column in columns}
    _print("mean", {column: sum(those) / len(those) for column, those in values.items()})
    for label, belongs in GROUPS.items():
        if group := [one for one in everything if belongs(one)]:
            _print(label, figures_of_group(group))


def _print(label: str, row: dict[str, float]) -> None:
    print(label.ljust(12), "  ".join(f"{key} {value:5.1f}" for key, value in row.items()), flush=True)


if __name__ == "__main__":
    main()
