"""What a mixture that one LM learned is worth on another: the tables of docs/findings/transfer.md.

    python studies/transfer.py           # does what is missing in results/transfer.jsonl, then writes the page
    python studies/transfer.py --page    # only writes the page

A mixture is tuned on one LM by default training, carried over, and asked and tuned there with a few budgets; so are the
same prompts as words. Nothing is chosen here. Country_of_city, realm, goods, teacher and berth are kept for choosing
elsewhere, and are not asked.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from lines import RESULTS, append_line, read_lines, sample
from matplotlib.figure import Figure
from pages import FINDINGS, fill, run_and_write, table

from askwell import Mixture, TrainingSpec, load_lm, train
from askwell.data.facts import Relation
from askwell.data.testbed import SECOND, testbed_prompts, testbed_relation, told_facts
from askwell.evaluation.examine import evaluate_split
from askwell.evaluation.significance import SIGNIFICANT, bootstrap_interval, interval_text, permutation_test
from askwell.lms.changed import changed_lm
from askwell.lms.frozen import FrozenLM

KEPT = RESULTS / "transfer.jsonl"
WORDS = "words"
"""The start of the prompts that nothing was carried over to."""
ROUNDED = "testbed:causal, 4 bits"
FIRST = ("testbed:capital", "testbed:country_of_airport", "testbed:state_of_county")
LIKE = {
    "testbed2:birthplace": "testbed:country_of_airport",
    "testbed2:mark": "testbed:country_code",
    "testbed2:trade": "testbed:country_of_region",
}
"""The testbeds have no relation in common: for each of the second, one of the first whose answers are of its kind."""
BUDGETS, BUDGETS_OF_COPIES = (0, 64, 256), (0, 64, 256, 1024)
"""The (fact, prompt) pairs of tuning: more on changed copies, where what is carried over is worth more than others."""
SEEDS = (0, 1, 2)
MOST_FACTS = 80
GROUPS = {
    "a changed copy": [
        ("testbed:causal", "testbed:causal-finetuned"),
        ("testbed:causal", "testbed:causal-unlearned"),
        ("testbed:causal", ROUNDED),
    ],
    "another LM, the same words": [
        ("testbed:roberta", "testbed:bart"),
        ("testbed:bart", "testbed:roberta"),
        ("testbed:roberta", "testbed:causal"),
    ],
    "another LM and tokenizer": [
        ("testbed:bert", "testbed:roberta"),
        ("testbed:bert", "testbed:causal"),
        ("testbed:causal", "testbed:bert"),
        ("testbed2:bert", "testbed2:causal"),
        ("testbed2:causal", "testbed2:bert"),
    ],
    "another text and relation": [("testbed:bert", "testbed2:bert"), ("testbed:causal", "testbed2:causal")],
}
WEIGHED = (("testbed2:bert", "testbed2:causal"), ("testbed2:causal", "testbed2:bert"))
"""The LMs between which the weights of mined prompts are carried over, their words left as they are."""


@dataclass(frozen=True, order=True)
class Start:
    """Where a run on an LM starts."""

    seed: int
    kind: str
    """What is tuned: "prompt", one soft prompt, or "weights", how certainty weighs mined prompts."""
    to: str
    by: str
    """The LM that the start was learned on, or words."""
    relation: str


def starts() -> list[Start]:
    """Return all starts, so that what was done when the study is stopped has every LM."""
    found = set()
    for kind, pairs in (("prompt", [pair for group in GROUPS.values() for pair in group]), ("weights", WEIGHED)):
        for by, to in pairs:
            for relation in LIKE if to.startswith(SECOND) else FIRST:
                found |= {Start(seed, kind, to, one, relation) for seed in SEEDS for one in (by, WORDS)}
    return sorted(found)


def budgets(to: str) -> tuple[int, ...]:
    """Return the budgets of tuning on an LM."""
    return BUDGETS_OF_COPIES if to in [copy for _, copy in GROUPS["a changed copy"]] else BUDGETS


@cache
def lm_named(name: str) -> FrozenLM:
    """Return an LM of the testbeds, or the causal one rounded to 4 bits."""
    return changed_lm(load_lm("testbed:causal"), bits=4) if name == ROUNDED else load_lm(name)


@cache
def asked(name: str) -> Relation:
    """Return a relation with some of its told test facts, the same for all LMs."""
    known, told = testbed_relation(name), told_facts(name)
    return Relation.of(name, known.train, known.dev, sample([fact for fact in known.test if fact in told], MOST_FACTS))


def untuned(lm: FrozenLM, start: Start, relation: Relation) -> Mixture:
    """Return the prompts of a start as words."""
    kind, weighting = ("single", "static") if start.kind == "prompt" else ("mined", "certainty")
    templates = testbed_prompts(kind, start.relation)
    return Mixture(lm, templates, relation=relation, answers="one-token", weighting=weighting, seed=start.seed)


@cache
def learned(start: Start) -> tuple[Mixture, float]:
    """Return the mixture that the other LM learned by default training, and the CPU seconds that it took.

    On the other testbed, it learns the prompt of the relation on facts of another one.
    """
    name = start.relation if start.relation.startswith(start.by.partition(":")[0] + ":") else LIKE[start.relation]
    began, relation = time.process_time(), testbed_relation(name)
    mixture = untuned(lm_named(start.by), start, relation)
    train(mixture, relation, tune_vectors=start.kind == "prompt", fit_weights=False, progress=False)
    return mixture, time.process_time() - began


def measure(start: Start, budget: int) -> None:
    """Start there, tune for so many pairs, ask, and add the line: which facts are right, and their log-losses."""
    lm, relation, its_seconds = lm_named(start.to), asked(start.relation), 0.0
    if start.by != WORDS:
        source, its_seconds = learned(Start(start.seed, start.kind, start.by, start.by, start.relation))
    began = time.process_time()
    mixture = untuned(lm, start, relation) if start.by == WORDS else source.transfer(lm, relation)
    spec = TrainingSpec(recipe="cycle", pairs=budget or None, tune_vectors=start.kind == "prompt", fit_weights=False)
    pairs = train(mixture, relation, spec, progress=False).pairs if budget else 0
    outcomes = sorted(evaluate_split(mixture, relation).outcomes, key=lambda o: (o.x, o.y))
    line: dict[str, Any] = {**vars(start), "budget": budget, "pairs": pairs}
    line["right"] = "".join(str(int(o.rank <= 1)) for o in outcomes)
    line["loss"] = [round(-100 * o.log_probability) for o in outcomes]  # in hundredths of a nat
    line["seconds"] = [round(its_seconds, 1), round(time.process_time() - began, 1)]
    append_line(KEPT, line)


def run() -> None:
    """Do what is not in the results yet."""
    torch.set_num_threads(1)
    done = {(Start(*(one[name] for name in Start.__annotations__)), one["budget"]) for one in read_lines(KEPT)}
    for start in starts():
        for budget in budgets(start.to):
            if (start, budget) not in done:
                measure(start, budget)


# ── the page ──────────────────────────────────────────────────────────────────────────────────────────────────────────

Pair = tuple[str, str]
Values = Float[np.ndarray, " facts"]


class Results:
    """The lines of the study, by what they are the results of."""

    def __init__(self) -> None:
        self._lines = {(_start_of(line), line["budget"]): line for line in read_lines(KEPT)}

    def of(self, kind: str, pairs: Sequence[Pair], budget: int, *, carried: bool) -> tuple[Values, Values]:
        """Return whether each fact was right, in per cent, and its log-loss, as means over seeds; one fact is as many
        as the pairs of LMs that were asked about it."""
        rights, losses = [], []
        for by, to in pairs:
            for relation in LIKE if to.startswith(SECOND) else FIRST:
                starts = [Start(seed, kind, to, by if carried else WORDS, relation) for seed in SEEDS]
                lines = [self._lines[start, budget] for start in starts if (start, budget) in self._lines]
                rights.append(np.mean([[100 * int(one) for one in line["right"]] for line in lines], axis=0))
                losses.append(np.mean([line["loss"] for line in lines], axis=0) / 100)
        return np.concatenate(rights), np.concatenate(losses)

    def seconds(self) -> tuple[float, float]:
        """Return the CPU minutes of learning on the first LMs, each once, and of all the rest."""
        learned_once = {
            (start.seed, start.kind, start.by, start.relation): line["seconds"][0]
            for (start, _), line in self._lines.items()
        }
        rest = sum(line["seconds"][1] for line in self._lines.values())
        return sum(learned_once.values()) / 60, rest / 60


def _start_of(line: dict[str, Any]) -> Start:
    return Start(*(line[name] for name in Start.__annotations__))


def p_text(differences: Values) -> str:
    """Return the p-value of paired differences as text."""
    p = permutation_test(differences).p
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


def cell(found: tuple[Values, Values], other: tuple[Values, Values] | None = None) -> str:
    """Return P@1 and log-loss as a cell; bold if the log-loss is lower than the other's (p < 0.02), with a dagger if it
    is higher."""
    right, loss = (float(values.mean()) for values in found)
    text = f"{right:.0f} / {loss:.2f}"
    if other is None or permutation_test(found[1] - other[1]).p >= SIGNIFICANT:
        return text
    return f"**{text}**" if loss < other[1].mean() else f"{text} †"


def by_pair(results: Results, kind: str, pairs: Sequence[Pair], of: Sequence[int]) -> list[list[str]]:
    """Return a row for each pair of LMs: words and carried over, with each budget."""
    rows = []
    for pair in pairs:
        row = [f"{pair[0]} → {pair[1]}"]
        for budget in of:
            words, carried = (results.of(kind, [pair], budget, carried=each) for each in (False, True))
            row += [cell(words), cell(carried, words)]
        rows.append(row)
    return rows


def by_group(results: Results) -> list[list[str]]:
    """Return a row for each group and budget: both starts, their difference with its interval, and p-values."""
    rows = []
    for group, pairs in GROUPS.items():
        for budget in budgets(pairs[0][1]):
            words, carried = (results.of("prompt", pairs, budget, carried=each) for each in (False, True))
            gain, saved = carried[0] - words[0], words[1] - carried[1]
            low, high = bootstrap_interval([np.stack([gain, np.ones_like(gain)], axis=1)]) or (None, None)
            between = interval_text(low, high, "{:+.1f}".format)
            told = [f"{words[0].mean():.1f}", f"{carried[0].mean():.1f}", f"{gain.mean():+.1f}", between, p_text(gain)]
            losses = [f"{words[1].mean():.2f}", f"{carried[1].mean():.2f}", p_text(saved)]
            rows.append([group, str(budget), *told, *losses, str(len(gain))])
    return rows


def worth(results: Results) -> list[list[str]]:
    """Return, for each group, after how many pairs from words the log-loss is that of what was carried over."""
    rows = []
    for group, pairs in GROUPS.items():
        known = budgets(pairs[0][1])
        words = [float(results.of("prompt", pairs, budget, carried=False)[1].mean()) for budget in known]
        carried = [float(results.of("prompt", pairs, budget, carried=True)[1].mean()) for budget in known]
        rows.append([group, *(pairs_to_reach(loss, words, known) for loss in carried[:2])])
    return rows


def pairs_to_reach(loss: float, losses: Sequence[float], known: Sequence[int]) -> str:
    """Return the pairs after which a curve falls to a log-loss, on straight lines between what was measured."""
    if losses[0] <= loss:
        return "0"
    for (start, before), (end, after) in pairwise(zip(known, losses, strict=True)):
        if after <= loss:
            return f"{start + (end - start) * (before - loss) / (before - after):.0f}"
    return f"> {known[-1]:,}"


def draw(results: Results) -> None:
    """Draw the share of facts that are found after each budget, from words and from what was carried over."""
    figure = Figure(figsize=(9, 2.9), layout="constrained")
    panels = figure.subplots(1, len(GROUPS), sharey=True)
    for axes, (group, pairs) in zip(panels, GROUPS.items(), strict=True):
        known = budgets(pairs[0][1])
        for is_carried, colour, name in ((False, "#9ca3af", "from words"), (True, "#2563eb", "carried over")):
            found = [results.of("prompt", pairs, budget, carried=is_carried)[0].mean() for budget in known]
            axes.plot(range(len(known)), found, "o-", color=colour, label=name if axes is panels[0] else None)
        axes.set_xticks(range(len(known)), [str(budget) for budget in known])
        axes.set_title(f"to {group}", fontsize=9)
        axes.set_xlabel("pairs", fontsize=9)
        axes.set_ylim(0, 100)
        axes.spines[["top", "right"]].set_visible(False)
    panels[0].set_ylabel("told facts found, in per cent", fontsize=9)
    figure.legend(loc="outside upper right", ncols=2, frameon=False, fontsize=9)
    figure.savefig(FINDINGS / "transfer.svg", metadata={"Date": None})


def write_page() -> None:
    """Write the chart and the tables of the page."""
    results = Results()
    draw(results)
    header = [f"{start}, {budget}" for budget in BUDGETS_OF_COPIES for start in ("words", "carried")]
    both = ["group", "pairs", "words", "carried", "difference", "95 % interval", "p"]
    both += ["log-loss, words", "carried", "p", "facts"]
    places = {"groups": table(both, by_group(results))}
    places["worth"] = table(["to", "as carried over", "tuned from there with 64 pairs"], worth(results))
    for group, pairs in GROUPS.items():
        known = budgets(pairs[0][1])
        places[group] = table(["", *header[: 2 * len(known)]], by_pair(results, "prompt", pairs, known))
    places["weights"] = table(["", *header[: 2 * len(BUDGETS)]], by_pair(results, "weights", WEIGHED, BUDGETS))
    first, rest = results.seconds()
    places["cost"] = f"{first + rest:.0f}"
    fill(FINDINGS / "transfer.md", places)


if __name__ == "__main__":
    run_and_write(__doc__ or "", run, write_page)
