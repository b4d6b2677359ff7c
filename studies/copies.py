"""Do copies of one prompt part, and does it pay? The tables of docs/findings/copies.md.

    python studies/copies.py             # does what is missing in results/copies.jsonl, then writes the page
    python studies/copies.py --choose    # only the runs that choose method, noise and annealing
    python studies/copies.py --page      # only writes the page

Method, noise and annealing are chosen for four copies on country_of_city, realm and teacher, which are not reported.
"""

import argparse
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import combinations, product
from math import log
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float
from lines import RESULTS, append_line, read_lines, sample
from matplotlib.figure import Figure
from pages import FINDINGS, fill, table
from torch import Tensor

from askwell import Mixture, MixtureSpec, TrainingSpec, load_lm, train
from askwell.answers.one_token import OneTokenAnswers
from askwell.data.facts import Relation
from askwell.data.templates import Template
from askwell.data.testbed import testbed_prompts, testbed_relation, told_facts
from askwell.evaluation.examine import evaluate_split
from askwell.evaluation.significance import permutation_test
from askwell.lms.frozen import FrozenLM

KEPT = RESULTS / "copies.jsonl"
PAIRS = 1600
"""The (fact, prompt) pairs of every run, whatever the number of prompts."""
MOST_FACTS = 80
LMS = ("testbed:bert", "testbed:causal", "testbed2:bert", "testbed2:causal")
REPORTED: dict[str, tuple[str, ...]] = {
    "testbed": ("country_of_airport", "state_of_county"),
    "testbed2": ("birthplace", "trade"),
}
CHOSEN_ON: dict[str, tuple[str, ...]] = {"testbed": ("country_of_city",), "testbed2": ("realm", "teacher")}
COUNTS, SEEDS = (4, 8), (0, 1, 2)
METHODS: tuple[Literal["gradient", "em"], ...] = ("gradient", "em")
Values = Float[np.ndarray, " facts"]
NOISES, POWERS = (0.05, 0.5), (1.0, 0.3, 0.1)


@dataclass(frozen=True, order=True)
class Way:
    """The prompts of a run, and how they are tuned."""

    prompts: str
    """one: one template; copies: as many copies of it; different: as many templates, the same one first."""
    count: int = 1
    method: Literal["gradient", "em"] = "gradient"
    noise: float = 0.0
    anneal: float = 1.0


@cache
def lm_named(name: str) -> FrozenLM:
    """Return an LM of the testbeds."""
    return load_lm(name)


@cache
def asked(name: str) -> Relation:
    """Return a relation with some of its told test facts."""
    known, told = testbed_relation(name), told_facts(name)
    return Relation.of(name, known.train, known.dev, sample([fact for fact in known.test if fact in told], MOST_FACTS))


def templates_of(lm: FrozenLM, name: str, way: Way) -> list[Template]:
    """Return the manual template and, if they are to be different, the mined ones of the most weight beside it."""
    manual = testbed_prompts("single", name)
    if way.prompts != "different":
        return manual
    mined = [one for one in testbed_prompts("mined", name) if one.text != manual[0].text]
    usable = [prompt.template for prompt in Mixture(lm, [*manual, *mined], answers="one-token").prompts]
    return usable[: way.count]


def measure(lm_name: str, name: str, way: Way, seed: int) -> None:
    """Do one run and add its line: which facts are right, their log-losses, and how far the prompts are apart."""
    began = time.process_time()
    lm, relation = lm_named(lm_name), asked(name)
    copies = way.count if way.prompts == "copies" else 1
    spec = MixtureSpec(answers="one-token", weighting="static", copies=copies, noise=way.noise, seed=seed)
    mixture = Mixture(lm, templates_of(lm, name, way), spec, relation=relation)
    training = TrainingSpec(recipe="cycle", pairs=PAIRS, method=way.method, anneal=way.anneal, fit_weights=False)
    train(mixture, relation, training, progress=False)
    seconds = time.process_time() - began
    outcomes = sorted(evaluate_split(mixture, relation).outcomes, key=lambda o: (o.x, o.y))
    line: dict[str, Any] = {"lm": lm_name, "relation": name, **vars(way), "seed": seed}
    line["right"] = "".join(str(int(o.rank <= 1)) for o in outcomes)
    line["loss"] = [round(-100 * o.log_probability) for o in outcomes]  # in hundredths of a nat
    line |= apart(mixture, relation) | {"seconds": round(seconds, 1)}
    append_line(KEPT, line)


@torch.no_grad()
def apart(mixture: Mixture, relation: Relation) -> dict[str, float]:
    """Return how far the prompts are apart: the mean distance of their answers to the asked x's, the effective number
    of prompts, and the share of facts to which some prompt answers rightly on its own."""
    encoded, _ = mixture.encode(relation.test)
    by_prompt = OneTokenAnswers(mixture).by_prompt(encoded.xs, encoded.rows)
    some_right = (by_prompt.argmax(2) == encoded.answers[:, None]).any(1).double().mean()
    return {
        "distance": round(mean_distance(by_prompt), 4),
        "effective": round(mixture.effective_prompts, 2),
        "some": round(100 * float(some_right), 1),
    }


def mean_distance(log_probs: Float[Tensor, "facts prompts answers"]) -> float:
    """Return the Jensen–Shannon distance between two prompts' answers, the mean over pairs of prompts and facts: 0 if
    they are the same, 1 if they have no answer in common."""
    probs = log_probs.double().exp()
    pairs = list(combinations(range(probs.shape[1]), 2))
    if not pairs:
        return 0.0
    entropies = torch.special.entr(probs).sum(2)
    found = []
    for one, other in pairs:
        between = torch.special.entr((probs[:, one] + probs[:, other]) / 2).sum(1)
        divergence = between - (entropies[:, one] + entropies[:, other]) / 2
        found.append((divergence / log(2)).clamp(0, 1).sqrt())
    return float(torch.stack(found).mean())


def relations_of(lm: str, by_testbed: dict[str, tuple[str, ...]]) -> list[str]:
    """Return the full names of the relations that an LM is asked about."""
    prefix = lm.partition(":")[0]
    return [f"{prefix}:{name}" for name in by_testbed[prefix]]


def run(ways: list[Way], by_testbed: dict[str, tuple[str, ...]], seeds: tuple[int, ...]) -> None:
    """Do what is not in the results yet."""
    done = {key_of(line) for line in read_lines(KEPT)}
    for seed, way, lm in product(seeds, ways, LMS):
        for name in relations_of(lm, by_testbed):
            if (lm, name, way, seed) not in done:
                measure(lm, name, way, seed)


def key_of(line: dict[str, Any]) -> tuple[str, str, Way, int]:
    """Return what a line is the result of."""
    return line["lm"], line["relation"], Way(*(line[name] for name in Way.__annotations__)), line["seed"]


# ── the choice ────────────────────────────────────────────────────────────────────────────────────────────────────────


def tried() -> list[Way]:
    """Return what is compared to choose method, noise and annealing."""
    return [Way("copies", 4, *each) for each in product(METHODS, NOISES, POWERS)]


def mean_loss(lines: list[dict[str, Any]]) -> float:
    """Return the mean log-loss over runs."""
    return sum(sum(line["loss"]) / len(line["loss"]) for line in lines) / len(lines) / 100


def share(lines: list[dict[str, Any]]) -> float:
    """Return the share of facts that are right, in per cent, as the mean over runs."""
    return sum(100 * line["right"].count("1") / len(line["right"]) for line in lines) / len(lines)


def of_way(way: Way, by_testbed: dict[str, tuple[str, ...]]) -> list[dict[str, Any]]:
    """Return the lines of a way of tuning on some relations."""
    names = {name for lm in LMS for name in relations_of(lm, by_testbed)}
    return [line for line in read_lines(KEPT) if key_of(line)[2] == way and line["relation"] in names]


def chosen(*, annealed: bool) -> Way:
    """Return the way of tuning copies, annealed or not, with the lowest mean log-loss on what is kept for choosing."""
    return min(
        (way for way in tried() if (way.anneal < 1) == annealed), key=lambda way: mean_loss(of_way(way, CHOSEN_ON))
    )


def reported_ways() -> dict[str, Way]:
    """Return the ways of asking that are reported, by name."""
    found = {"one prompt": Way("one")}
    for count in COUNTS:
        found[f"{count} copies"] = replace(chosen(annealed=False), count=count)
        annealed = replace(chosen(annealed=True), count=count)
        found[f"{count} copies, noise as annealed"] = replace(annealed, anneal=1.0)
        found[f"{count} copies, annealed"] = annealed
        found[f"{count} different"] = Way("different", count)
    return found


# ── the page ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def by_fact(lines: Sequence[dict[str, Any]]) -> tuple[Values, Values]:
    """Return whether each fact was right, in per cent, and its log-loss, as means over seeds."""
    cells: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for line in sorted(lines, key=lambda line: (line["lm"], line["relation"])):
        cells.setdefault((line["lm"], line["relation"]), []).append(line)
    rights = [np.mean([[100 * int(one) for one in line["right"]] for line in some], axis=0) for some in cells.values()]
    losses = [np.mean([line["loss"] for line in some], axis=0) / 100 for some in cells.values()]
    return np.concatenate(rights), np.concatenate(losses)


def p_text(differences: Values) -> str:
    """Return the p-value of paired differences as text."""
    p = permutation_test(differences).p
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


def mean_of(lines: Sequence[dict[str, Any]], name: str) -> float:
    """Return the mean of a figure over runs."""
    return sum(line[name] for line in lines) / len(lines)


def rows_of(lm: str) -> list[list[str]]:
    """Return a row for each way of asking an LM, with p-values against one prompt, and of annealed copies against plain
    ones."""
    lines = {name: [one for one in of_way(way, REPORTED) if one["lm"] == lm] for name, way in reported_ways().items()}
    facts = {name: by_fact(some) for name, some in lines.items()}
    rows = []
    for name, some in lines.items():
        of_seeds = [share([one for one in some if one["seed"] == seed]) for seed in SEEDS]
        right, loss = facts[name]
        scores = [f"{right.mean():.1f}", f"{min(of_seeds):.1f}–{max(of_seeds):.1f}", f"{loss.mean():.2f}"]
        others = ["", "", "", ""]
        if name != "one prompt":
            against = name.removesuffix(", annealed") if name.endswith(", annealed") else "one prompt"
            others = [p_text(right - facts[against][0]), p_text(loss - facts[against][1])]
            others += [f"{mean_of(some, 'distance'):.2f}", f"{mean_of(some, 'effective'):.1f}"]
        rows.append([name, *scores, *others, f"{mean_of(some, 'some'):.0f}", f"{mean_of(some, 'seconds'):.1f}"])
    return rows


def rows_at_equal_noise() -> list[list[str]]:
    """Return a row for each LM and number of copies: plain and annealed ones from the same noise."""
    ways, rows = reported_ways(), []
    for lm, count in product(LMS, COUNTS):
        both = [
            [one for one in of_way(ways[f"{count} copies, {name}"], REPORTED) if one["lm"] == lm]
            for name in ("noise as annealed", "annealed")
        ]
        plain, annealed = (by_fact(some) for some in both)
        told = [f"{plain[0].mean():.1f}", f"{annealed[0].mean():.1f}", p_text(annealed[0] - plain[0])]
        losses = [f"{plain[1].mean():.2f}", f"{annealed[1].mean():.2f}", p_text(annealed[1] - plain[1])]
        apart = [f"{mean_of(some, 'distance'):.2f}" for some in both]
        rows.append([lm, str(count), *told, *losses, *apart, str(len(plain[0]))])
    return rows


def choice_rows() -> list[list[str]]:
    """Return a row for each way that was tried, on the relations that are kept for choosing."""
    best = {chosen(annealed=False), chosen(annealed=True)}
    rows = []
    for way in tried():
        lines = of_way(way, CHOSEN_ON)
        mark = "**" if way in best else ""
        cells = [f"{mark}{way.method}{mark}", way.noise, way.anneal, f"{share(lines):.1f}", f"{mean_loss(lines):.3f}"]
        rows.append([*map(str, cells), f"{mean_of(lines, 'distance'):.2f}", f"{mean_of(lines, 'effective'):.1f}"])
    return rows


def draw() -> None:
    """Draw the share of told facts that each way of asking finds, for each LM."""
    ways = reported_ways()
    figure = Figure(figsize=(9, 3.3), layout="constrained")
    panels = figure.subplots(1, len(LMS), sharey=True)
    colours = ["#9ca3af", *["#2563eb", "#93c5fd", "#7c3aed", "#059669"] * len(COUNTS)]
    for axes, lm in zip(panels, LMS, strict=True):
        shares = [share([one for one in of_way(way, REPORTED) if one["lm"] == lm]) for way in ways.values()]
        bars = axes.barh(range(len(ways)), shares, color=colours)
        axes.bar_label(bars, fmt="%.0f", padding=2, fontsize=8)
        axes.set_title(lm, fontsize=9)
        axes.set_yticks(range(len(ways)), list(ways), fontsize=8)
        axes.set(xlim=(0, 115))
        axes.spines[["top", "right"]].set_visible(False)
    panels[0].invert_yaxis()
    figure.supxlabel("told facts found, in per cent", fontsize=9)
    figure.savefig(FINDINGS / "copies.svg", metadata={"Date": None})


def write_page() -> None:
    """Write the chart and the tables of the page."""
    draw()
    header = ["asked with", "told", "seeds", "log-loss", "p of told", "p of log-loss"]
    header += ["distance", "effective prompts", "some prompt", "CPU s"]
    places = {lm: table(header, rows_of(lm)) for lm in LMS}
    of_noise = ["LM", "copies", "told, plain", "annealed", "p", "log-loss, plain", "annealed", "p"]
    of_noise += ["distance, plain", "annealed", "facts"]
    places["noise"] = table(of_noise, rows_at_equal_noise())
    tried_header = ["method", "noise", "first power", "told", "log-loss", "distance", "effective prompts"]
    places["choice"] = table(tried_header, choice_rows())
    for name, is_annealed in (("plain", False), ("annealed", True)):
        way = chosen(annealed=is_annealed)
        power = f", first power {way.anneal:g}" if is_annealed else ""
        places[name] = f"{way.method}, noise {way.noise:g}{power}"
    places["cost"] = f"{sum(line['seconds'] for line in read_lines(KEPT)) / 60:.0f}"
    fill(FINDINGS / "copies.md", places)


def main() -> None:
    """Do the missing runs, then write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--page", action="store_true", help="only write the page")
    parser.add_argument("--choose", action="store_true", help="only do the runs that choose")
    given = parser.parse_args()
    if not given.page:
        torch.set_num_threads(1)
        run(tried(), CHOSEN_ON, (0,))
        if not given.choose:
            run([*reported_ways().values()], REPORTED, SEEDS)
    if not given.choose:
        write_page()


if __name__ == "__main__":
    main()
