"""How the prompts of a mixture should be weighed, on the second testbed: the tables of docs/findings/mixtures.md.

    python studies/weighing.py           # does what is missing in results/weighing.jsonl, then writes the page
    python studies/weighing.py --page    # only writes the page

Realm, goods, teacher and berth are kept for choosing, and are not asked here.
"""

import argparse
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from lines import RESULTS, append_line, read_lines
from matplotlib.figure import Figure
from pages import FINDINGS, fill, table

from askwell import Mixture, MixtureSpec, load_lm, train
from askwell.data.facts import Fact
from askwell.data.split import sample
from askwell.data.templates import parse_template
from askwell.data.testbed import relations, testbed_prompts, testbed_relation, told_facts
from askwell.evaluation.examine import evaluate_split
from askwell.evaluation.outcomes import Outcome
from askwell.evaluation.significance import permutation_test
from askwell.lms.frozen import FrozenLM

sys.path.append(str(Path(__file__).parents[1] / "scripts" / "testbed"))
from truths import truths

KEPT = RESULTS / "weighing.jsonl"
LMS = ("testbed2:bert", "testbed2:causal")
CHOSEN_ON = ("realm", "goods", "teacher", "berth")
WAYS = {
    "one": "one mined prompt, the best on dev",
    "uniform": "all mined prompts, equal weights",
    "untuned": "all mined prompts, combined weights, T = 1",
    "soft": "one soft prompt, from the manual one",
    "default": "tuned mixture, by default",
    "deep": "… and at every layer",
    "static": "tuned mixture, static weights",
    "data-dependent": "tuned mixture, by p(x given t)",
    "certainty": "tuned mixture, by certainty",
    "combined": "tuned mixture, by both (combined)",
    "gate": "learned gate, only the weights tuned",
    "gate of 50": "… with 50 train facts",
    "gate of 100": "… with 100 train facts",
    "weights": "combined, only the weights tuned",
    "oracle": "the wording in which each fact was told",
}
WEIGHTINGS: dict[str, Any] = {
    "untuned": "combined",
    "weights": "combined",
    "soft": "static",
    "uniform": "static",
    "default": "auto",
    "deep": "auto",
    "gate of 50": "gate",
    "gate of 100": "gate",
}
"""Of the ways that are not named after their weighting."""
ONLY_WEIGHTS = ("gate", "gate of 50", "gate of 100", "weights")
TUNED = ("soft", "default", "deep", "static", "data-dependent", "certainty", "combined", *ONLY_WEIGHTS)
SEEDS = (0, 1, 2)


def reported() -> list[str]:
    """Return the relations that are not kept for choosing."""
    return [one.name for one in relations("testbed2:") if one.name not in CHOSEN_ON]


def ask(lm: FrozenLM, name: str, way: str, seed: int) -> list[Outcome]:
    """Return the outcomes of a relation's test facts under one way of asking."""
    relation, templates = testbed_relation(name), testbed_prompts("mined", name)
    if way == "oracle":
        return list(in_own_wording(lm, name))
    if way == "one":
        asked = [Mixture(lm, [one], answers="one-token", relation=relation) for one in usable(lm, templates)]
        on_dev = [sum(o.rank <= 1 for o in evaluate_split(one, relation, "dev").outcomes) for one in asked]
        return list(evaluate_split(asked[on_dev.index(max(on_dev))], relation).outcomes)
    templates = testbed_prompts("single", name) if way == "soft" else templates
    spec = MixtureSpec(answers="one-token", weighting=WEIGHTINGS.get(way, way), deep=way == "deep", seed=seed)
    mixture = Mixture(lm, templates, spec, relation=relation)
    if way in TUNED:
        count = int(way.rpartition(" of ")[2]) if " of " in way else None
        facts = relation if count is None else sample(relation, train=count, dev=None, test=None, seed=seed)
        train(mixture, facts, tune_vectors=way not in ONLY_WEIGHTS, progress=False)
    return list(evaluate_split(mixture, relation).outcomes)


def usable(lm: FrozenLM, templates: list[Any]) -> list[Any]:
    """Return the templates that the LM can be asked with."""
    return [prompt.template for prompt in Mixture(lm, templates, answers="one-token").prompts]


def in_own_wording(lm: FrozenLM, name: str) -> Iterator[Outcome]:
    """Yield the outcome of each told test fact, asked in the first wording in which it was told."""
    relation, own = testbed_relation(name), truths(name)
    first = {fact: next(iter(own[fact].wordings)) for fact in relation.test if own[fact].wordings}
    for wording in sorted({*first.values()}):
        mixture = Mixture(lm, [parse_template(wording)], answers="one-token")
        for outcome in evaluate_split(mixture, relation).outcomes:
            if first.get(Fact(outcome.x, outcome.y)) == wording:
                yield outcome


def measure(lm: FrozenLM, lm_name: str, name: str, way: str, seed: int) -> None:
    """Do one run and add its line: whether each told fact is right, in the order of facts, and how many others are."""
    began = time.process_time()
    outcomes = sorted(ask(lm, f"testbed2:{name}", way, seed), key=lambda o: (o.x, o.y))
    told = told_facts(f"testbed2:{name}")
    line: dict[str, Any] = {"lm": lm_name, "relation": name, "way": way, "seed": seed}
    line["told"] = "".join(str(int(o.rank <= 1)) for o in outcomes if Fact(o.x, o.y) in told)
    others = [o.rank <= 1 for o in outcomes if Fact(o.x, o.y) not in told]
    line |= {"withheld": [sum(others), len(others)], "seconds": round(time.process_time() - began, 1)}
    append_line(KEPT, line)


def draw(shares: dict[str, dict[str, float]]) -> None:
    """Draw the share of told facts that each way of asking finds, for each LM."""
    figure = Figure(figsize=(7.5, 3.4), layout="constrained")
    axes = figure.subplots()
    for number, (lm, colour) in enumerate(zip(LMS, ("#2563eb", "#7c3aed"), strict=True)):
        places = [place + 0.4 * number - 0.2 for place in range(len(WAYS))]
        bars = axes.barh(places, [shares[lm][way] for way in WAYS], 0.36, color=colour, label=lm)
        axes.bar_label(bars, fmt="%.0f", padding=3, fontsize=8)
    axes.set_yticks(range(len(WAYS)), list(WAYS.values()), fontsize=9)
    axes.invert_yaxis()
    axes.set(xlim=(0, 108), xlabel="told facts found, in per cent")
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside upper right", ncols=2, frameon=False, fontsize=9)
    figure.savefig(FINDINGS / "mixtures.svg", metadata={"Date": None})


def write_page() -> None:
    """Write the chart and the tables of the page."""
    shares = {}
    lines = {(one["lm"], one["relation"], one["way"], one["seed"]): one for one in read_lines(KEPT)}
    names = reported()
    # A seed counts if it is there for all cells.
    seeds = [
        seed for seed in SEEDS if all((lm, name, way, seed) in lines for lm in LMS for name in names for way in TUNED)
    ]
    one_to_one = {one.name for one in relations("testbed2:") if one.cardinality == "1-1"}
    places = {}
    for lm in LMS:
        of_way = {
            way: {name: [lines[lm, name, way, seed] for seed in (seeds if way in TUNED else [0])] for name in names}
            for way in WAYS
        }
        rights = {
            way: [
                fmean(map(int, of_fact))
                for of_name in of_way[way].values()
                for of_fact in zip(*(one["told"] for one in of_name), strict=True)
            ]
            for way in WAYS
        }
        low, high = (sum(rights[way]) for way in ("uniform", "oracle"))
        shares[lm] = {way: 100 * sum(right) / len(right) for way, right in rights.items()}
        rows = []
        for way, label in WAYS.items():
            right, of = rights[way], len(rights[way])
            exact = [one["withheld"] for name in names if name in one_to_one for one in of_way[way][name]]
            seconds = fmean(one["seconds"] for of_name in of_way[way].values() for one in of_name)
            differences = torch.tensor(right, dtype=torch.float64).numpy() - torch.tensor(rights["uniform"]).numpy()
            p = permutation_test(differences).p
            rows.append(
                [
                    label,
                    f"{100 * sum(right) / of:.1f}",
                    "" if way == "oracle" else f"{sum(one for one, _ in exact)} of {sum(n for _, n in exact)}",
                    f"{100 * (sum(right) - low) / (high - low):+.0f} %",
                    "" if way == "uniform" else "< 0.001" if p < 0.001 else f"{p:.3f}",
                    f"{seconds:.1f}",
                ]
            )
        header = ["asked with", "told", "1-1 withheld, right", "of the gap", "p", "CPU s"]
        facts = f"{len(rights['uniform'])} told test facts of {', '.join(names)}; seeds of tuned ways: {len(seeds)}."
        places[lm] = table(header, rows) + "\n\n" + facts
    for way in ("soft", "static", "default"):
        places[way] = " and ".join(f"{shares[lm][way]:.0f}" for lm in LMS)
    gaps = [
        (shares[lm]["default"] - shares[lm]["uniform"]) / (shares[lm]["oracle"] - shares[lm]["uniform"]) for lm in LMS
    ]
    places["gap"] = " and ".join(f"{100 * gap:.0f}" for gap in gaps)
    draw(shares)
    fill(FINDINGS / "mixtures.md", places)


def main() -> None:
    """Do the missing runs, then write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--page", action="store_true", help="only write the page")
    if not parser.parse_args().page:
        torch.set_num_threads(1)
        done = {(one["lm"], one["relation"], one["way"], one["seed"]) for one in read_lines(KEPT)}
        lms = {name: load_lm(name) for name in LMS}
        wanted = [
            (lm, name, way, seed)
            for seed in SEEDS
            for name in reported()
            for lm in LMS
            for way in (WAYS if seed == 0 else TUNED)
        ]
        for cell in wanted:
            if cell not in done:
                measure(lms[cell[0]], *cell)
    write_page()


if __name__ == "__main__":
    main()
