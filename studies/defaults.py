"""The study behind the default step sizes, batch and budget: one choice is varied at a time, the others stay the same.

    python studies/defaults.py                     # continue, then write the tables of docs/findings/defaults.md
    python studies/defaults.py --page              # only write the tables
    python studies/defaults.py --lms testbed:bert --factors of_words

Three relations of the testbed and two of T-REx are used here and for no score that is reported elsewhere. Each run is
one line of results/defaults.jsonl.
"""

import argparse
import json
import statistics
import time
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import torch
from lines import RESULTS, append_line, read_lines
from pages import FINDINGS, draw_gaps, fill, table

from askwell import Mixture, MixtureSpec, TrainingSpec, load_lm, train
from askwell.data.facts import Relation
from askwell.data.names import load_prompts, load_relation
from askwell.evaluation.examine import evaluate_split
from askwell.files import to_json
from askwell.training import optimiser as rates
from askwell.training.optimiser import word_scale
from askwell.views.charts import Gap

RUNS = RESULTS / "defaults.jsonl"
TESTBED = ("testbed:bert", "testbed:roberta", "testbed:bart", "testbed:causal")
STUDIED = ("testbed:dialling_code", "testbed:country_of_region", "testbed:neighbour")
TREX = ("trex_original/P30", "trex_original/P364")
TRAIN_FACTS = 300
BASE: dict[str, Any] = {
    "of_words": 0.2,
    "of_hidden": 0.05,
    "of_weights": 0.1,
    "pairs_of_step": 32,
    "pairs": 4000,
    "deep": False,
    "initial": "words",
    "prompts": "paraphrased",
    "recipe": "cycle",
    "seed": 0,
    "beta1": 0.9,
}
FACTORS: dict[str, list[dict[str, Any]]] = {
    "of_words": [
        {"of_words": value, "initial": initial} for value in (0.05, 0.1, 0.2, 0.4) for initial in ("words", "random")
    ],
    "of_hidden": [
        {"of_hidden": value, "deep": True, "initial": initial}
        for value in (0.01, 0.02, 0.05, 0.1, 0.2)
        for initial in ("words", "random")
    ],
    "of_weights": [{"of_weights": value} for value in (0.03, 0.1, 0.3)],
    "pairs_of_step": [{"pairs_of_step": value} for value in (16, 32, 64)],
    "pairs": [
        {"pairs": value, "prompts": prompts}
        for value in (500, 1000, 2000, 4000, 8000)
        for prompts in ("paraphrased", "single")
    ],
    "recipe": [{"recipe": recipe, "seed": seed} for recipe in ("cycle", "paper") for seed in (0, 1)],
    "beta1": [
        {"beta1": value, "prompts": prompts, "pairs": pairs, "seed": seed}
        for value in (0.3, 0.5, 0.7, 0.9)
        for prompts, pairs in (("sixteen", 1600), ("sixteen", 2000), ("single", 1600))
        for seed in (0, 1)
    ],
}
DEFAULTS = {
    "of_words": "0.2", "of_hidden": "0.02", "of_weights": "0.1", "pairs_of_step": "32", "pairs": "2000",
    "recipe": "cycle", "beta1": "0.7",
}  # fmt: skip
"""What askwell ships with."""
# A large LM takes seconds for what a small one does in one: fewer settings.
SMOLLM2: dict[str, list[dict[str, Any]]] = {
    "of_words": [{"of_words": value, "prompts": "single", "pairs": 1000} for value in (0.1, 0.2, 0.4)],
    "of_hidden": [
        {"of_hidden": value, "deep": True, "prompts": "single", "pairs": 500} for value in (0.01, 0.02, 0.05)
    ],
    "pairs": [{"pairs": value, "prompts": "single"} for value in (500, 1000, 2000)],
}


def settings(lm: str, factors: list[str]) -> Iterator[dict[str, Any]]:
    """Yield all runs of an LM, without repetition."""
    seen = set()
    of_lm = SMOLLM2 if lm == "smollm2" else FACTORS
    for factor in factors:
        for choice in of_lm.get(factor, []):
            for relation in TREX if lm == "smollm2" else STUDIED:
                setting = {"lm": lm, "relation": relation, **BASE, **choice}
                key = json.dumps(setting, sort_keys=True)
                if key not in seen:
                    seen.add(key)
                    yield setting


def run(setting: dict[str, Any], loaded: Any) -> dict[str, Any]:
    """Do one training run, and return what it scores on test."""
    relation = at_most(load_relation(setting["relation"]))
    if setting["relation"].startswith("testbed:"):
        kinds = ["testbed:single"] + ["testbed:paraphrased"] * (setting["prompts"] in ("paraphrased", "sixteen"))
        kinds += ["testbed:random"] * (setting["prompts"] == "sixteen")
    else:
        kinds = [f"trex/{relation.name.rpartition('/')[2]}"]
    templates = load_prompts(kinds, relation=relation)[:16]
    chosen = {name: setting[name] for name in ("deep", "initial", "seed")}
    spec = MixtureSpec(answers="one-token", weighting="static", **chosen)
    mixture = Mixture(loaded, templates, spec)
    if setting["recipe"] == "paper":
        training = TrainingSpec(recipe="paper", method="em", threads=1)
    else:
        rates.OF_HIDDEN = setting["of_hidden"]
        training = TrainingSpec(
            pairs=setting["pairs"],
            batch_facts=max(1, round(setting["pairs_of_step"] / len(mixture.prompts))),
            vectors_rate=setting["of_words"] * word_scale(loaded),
            weights_rate=setting["of_weights"],
            beta1=setting["beta1"],
            fit_weights=False,
            threads=1,
        )
    began = time.process_time()
    result = train(mixture, relation, training)
    seconds = time.process_time() - began
    figures = to_json(evaluate_split(mixture, relation).figures())
    return {
        **setting,
        "prompt_count": len(mixture.prompts),
        "trained_pairs": result.history[-1].pairs,
        "best_pairs": result.best.pairs,
        "test_P@1": figures["micro"]["P@1"],
        "test_log_loss": figures["log_loss"],
        "untuned_dev_P@1": result.history[0].dev["P@1"],
        "dev_P@1": result.best.dev["P@1"],
        "last_dev_P@1": result.history[-1].dev["P@1"],
        "last_dev_log_loss": result.history[-1].dev["log_loss"],
        "cpu_seconds": round(seconds, 2),
    }


def is_of(record: dict[str, Any], setting: dict[str, Any]) -> bool:
    """Tell whether a run was made with these choices; a choice that its record lacks had the value of `BASE`."""
    return all(record.get(key, BASE.get(key)) == value for key, value in setting.items())


def at_most(relation: Relation) -> Relation:
    """Return the relation with at most as many facts as the study uses."""
    kept = relation.train[:: max(1, -(-len(relation.train) // TRAIN_FACTS))]
    return Relation.of(relation.name, kept, relation.dev[:100], relation.test[:300])


def runs_by_value(records: list[dict[str, Any]], factor: str) -> dict[str, dict[str, list[dict[str, Any]]]]:
    """Return the runs over the studied relations, by LM and then by the value of one choice."""
    rows: dict[str, dict[str, list[dict[str, Any]]]] = defaultdict(lambda: defaultdict(list))
    for lm in dict.fromkeys(record["lm"] for record in records):
        for setting in settings(lm, [factor]):
            for record in records:
                if is_of(record, setting):
                    others = [str(setting[key]) for key in ("initial", "prompts") if setting[key] != BASE[key]]
                    others += [f"{setting['pairs']} pairs"] * (factor == "beta1")
                    rows[", ".join([lm, *others])][f"{setting[factor]}"].append(record)
    return rows


def gaps_of(records: list[dict[str, Any]], factor: str, name: str) -> list[Gap]:
    """Return rows of the chart for one choice: P@1 with the value that askwell ships with, and with the worst one."""
    gaps = []
    for lm, by_value in runs_by_value(records, factor).items():
        means = {value: statistics.mean(one["test_P@1"] for one in own) for value, own in by_value.items()}
        if lm in TESTBED and DEFAULTS[factor] in means:
            gaps.append(Gap(f"{name}, {lm}", means[DEFAULTS[factor]], min(means.values())))
    return gaps


def factor_table(records: list[dict[str, Any]], factor: str) -> str:
    """Return mean test P@1 and log-loss over the studied relations, for each value of one choice."""
    rows = runs_by_value(records, factor)
    found = dict.fromkeys(value for row in rows.values() for value in row)
    values = sorted(found, key=lambda v: float(v) if v[0].isdigit() else 0)
    shown = [f"**{value}**" if value == DEFAULTS[factor] else value for value in values]
    return table(["LM", *shown], [[lm, *(cell(row.get(v, [])) for v in values)] for lm, row in rows.items()])


def cell(records: list[dict[str, Any]]) -> str:
    """Return mean P@1, log-loss and CPU seconds of some runs."""
    if not records:
        return "–"
    score = statistics.mean(record["test_P@1"] for record in records)
    loss = statistics.mean(record["test_log_loss"] for record in records)
    seconds = statistics.mean(record["cpu_seconds"] for record in records)
    return f"{score:.1f} / {loss:.2f} ({seconds:.0f} s)"


def main() -> None:
    """Do the missing runs, then write the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lms", nargs="+", default=[*TESTBED, "smollm2"])
    parser.add_argument("--factors", nargs="+", default=list(FACTORS), choices=list(FACTORS))
    parser.add_argument("--page", action="store_true", help="only write the tables")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    done = read_lines(RUNS)
    for lm in [] if chosen.page else chosen.lms:
        loaded = None
        for setting in settings(lm, chosen.factors):
            if any(is_of(record, setting) for record in done):
                continue
            loaded = loaded or load_lm(lm)
            record = append_line(RUNS, run(setting, loaded))
            done.append(record)
            varied = {key: value for key, value in setting.items() if key in ("lm", "relation") or value != BASE[key]}
            print(
                varied, "P@1", round(record["test_P@1"], 1), "log-loss", round(record["test_log_loss"], 3), flush=True
            )
    fill(FINDINGS / "defaults.md", {factor: factor_table(done, factor) for factor in FACTORS})
    drawn = {"of_words": "layer 0", "of_hidden": "deeper layers", "of_weights": "weights", "pairs_of_step": "step"}
    gaps = [gap for factor, name in drawn.items() for gap in gaps_of(done, factor, name)]
    draw_gaps(FINDINGS / "defaults.md", gaps, first="as shipped", second="worst value", measure="test P@1")


if __name__ == "__main__":
    main()
