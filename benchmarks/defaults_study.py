"""The study behind the default step sizes, batch and budget: one choice is varied at a time, all others stand.

    python benchmarks/defaults_study.py            # go on with what is not done, then write the tables
    python benchmarks/defaults_study.py --lms testbed:bert --factors of_words

Three relations of the testbed and three of T-REx serve here and in no other table of askwell. Every run is one line of
results/defaults.jsonl; docs/defaults.md is made from it.
"""

import argparse
import json
import statistics
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import deep_study
import torch

from askwell import Mixture, MixtureSpec, TrainingSpec, load_lm, train
from askwell.data.facts import Relation
from askwell.data.names import read_prompts, read_relation
from askwell.evaluation.scoring import evaluate
from askwell.files import to_json
from askwell.training import optimiser as rates
from askwell.training.optimiser import word_scale

HERE = Path(__file__).parent
RUNS, TABLES = HERE / "results" / "defaults.jsonl", HERE.parent / "docs" / "defaults.md"
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
ABOUT = {
    "of_words": "The step size of layer-0 vectors, as a share of the standard deviation of the LM's word vectors.",
    "of_hidden": "The step size of a deeper layer's additions, as a share of the deviation of what leaves that layer.",
    "of_weights": "The step size of the logits of the mixture's weights.",
    "pairs_of_step": "(fact, prompt) pairs of one step.",
    "pairs": "The budget: (fact, prompt) pairs of the whole cycle. `single` is the one manual prompt.",
    "beta1": "Adam's β1, in a cycle over 1,600 or 2,000 pairs; two seeds. `sixteen` are up to sixteen prompts.",
    "recipe": "One cycle over 4,000 pairs by gradient against the paper's procedure (EM, up to 16 epochs).",
}
DEFAULTS = {
    "of_words": "0.2", "of_hidden": "0.02", "of_weights": "0.1", "pairs_of_step": "32", "pairs": "2000",
    "recipe": "cycle", "beta1": "0.7",
}  # fmt: skip
"""What askwell ships with."""
FINDINGS = """
One choice is varied at a time, the others fixed at 0.2, 0.05 (layers), 0.1, 32 pairs a step, 4,000 pairs, by gradient.
What askwell ships with is bold. What was found:

- Layer 0: from 0.05 to 0.4 of the words' deviation there is little to choose, for words and for random vectors, in all
  families; the causal LM likes small steps from words and larger ones from random vectors.
- Deeper layers: 0.01 and 0.02 are best; from 0.05 on the seq2seq and the causal LM lose several points, the masked ones
  nothing. The first default was 0.05; this study made it 0.02.
- Deep against layer 0, from words: with 0.01 deep prompts are 1.5 points above layer-0 ones on the causal LM, equal on
  the masked ones and 0.6 below on the seq2seq one, with a lower log-loss on three of the four; with 0.02 they lose 0.5
  points on the causal LM. SmolLM2 with 500 pairs: 60.1 and 2.13 nats (0.01), 60.3 and 2.31 (0.02), 60.9 and 2.94 (0.05)
  against 56.7 and 2.34 at layer 0. From random vectors 0.02 is 0.7 points above 0.01, so it stays; where deep prompts
  lose on a causal LM, a smaller `--layers-rate` is the first thing to try. Decay of the additions (`--l2`), another
  scale at the last layer, and deep prompts behind an opening are at the end of this page.
- Weights and pairs a step: flat for mixtures; one prompt takes smaller steps since ([why](plateau.md)).
- Budget: a mixture has its P@1 with 1,000 to 2,000 pairs, and from then on only the log-loss gets better; a single
  prompt on the causal LM gains a point with each doubling. So the cycle's default is 2,000 × (1 + 1 / prompts)
  pairs. Without a budget a run now ends when dev's log-loss no longer falls, after 1,600 + 2,400 / prompts pairs, or
  2,800, at most ([how](plateau.md)).
- Adam's β1: mixtures of many prompts are better with 0.3 to 0.7 than with 0.9 on all four LMs, and with 1,600 pairs as
  good as with 0.9 and 2,000. So are mixtures of three (27 runs that end by themselves, on three LMs: 72.4 and 2.89 with
  0.7, 70.7 and 2.97 with 0.9; log-loss lower by 0.07 ± 0.02). For one prompt there is nothing in it but on the causal
  LM. On SmolLM2, one prompt of P30 and P364 with 0.5 instead of 0.9 was better four times and worse four times
  (without an opening, two seeds; behind four examples; deep): log-loss 0.04 higher in the mean, from -0.25 to +0.56. So
  the default is 0.7 for several prompts, and 0.9 for one. The runs with three prompts and those on SmolLM2 were made by
  hand and are not in the file; the table below is.
- SmolLM2 (a single prompt, two relations) says the same: 0.1, 0.2 and 0.4 are within 3 points, deeper layers are
  flat in P@1 with the best log-loss at 0.01, and more pairs help up to 2,000 at least (56.7, 58.1, 64.5 with 500, 1,000
  and 2,000).
- With 2,000 pairs or more the cycle is at least as good as the paper's procedure run to its end in P@1, at a fifth of
  its time or less; in log-loss it is better but for the RoBERTa-like LM at 2,000 pairs (2.89 against 2.84).
"""
DEEP = """
SmolLM2, one prompt tuned for 400 pairs in steps of 16 facts, at most 300 train, 100 dev and 200 test facts, one seed:
test P@1 / test log-loss (lowest log-loss on dev). The additions' step size is in deviations of what leaves their layer.
Made by `python benchmarks/deep_study.py` from `results/deep.jsonl`. Behind four examples, deep prompts with the default
step size (0.02) have a higher P@1 than layer-0 ones on all four relations and a lower log-loss on three, at about 1.3
times the CPU time. Half of that step size is no better, nor is a tenth of it at the last layer, nor a decay of what is
added (1.5 and 1.4 points of P@1 lower in the mean, at about the same log-loss). So the defaults stay as they are. One
cell has a standard error of up to 3.5 points. Behind the lead-in nothing has been run.
"""
# A large LM takes seconds for what a small one does in one: fewer settings.
SMOLLM2: dict[str, list[dict[str, Any]]] = {
    "of_words": [{"of_words": value, "prompts": "single", "pairs": 1000} for value in (0.1, 0.2, 0.4)],
    "of_hidden": [
        {"of_hidden": value, "deep": True, "prompts": "single", "pairs": 500} for value in (0.01, 0.02, 0.05)
    ],
    "pairs": [{"pairs": value, "prompts": "single"} for value in (500, 1000, 2000)],
}


def settings(lm: str, factors: list[str]) -> Iterator[dict[str, Any]]:
    """All runs of an LM, without repetition."""
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
    """One training run, and what it scores on test."""
    relation = at_most(read_relation(setting["relation"]))
    if setting["relation"].startswith("testbed:"):
        kinds = ["testbed:single"] + ["testbed:paraphrased"] * (setting["prompts"] in ("paraphrased", "sixteen"))
        kinds += ["testbed:random"] * (setting["prompts"] == "sixteen")
    else:
        kinds = [f"trex/{relation.name.rpartition('/')[2]}"]
    templates = read_prompts(kinds, relation=relation)[:16]
    spec = MixtureSpec(deep=setting["deep"], initial=setting["initial"], seed=setting["seed"], answers="one-token")
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
            threads=1,
        )
    began = time.process_time()
    result = train(mixture, relation, training)
    seconds = time.process_time() - began
    figures = to_json(evaluate(mixture, relation).figures())
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
    """Whether a run was made with these choices; one that was not varied yet had the value of today's base."""
    return all(record.get(key, BASE.get(key)) == value for key, value in setting.items())


def at_most(relation: Relation) -> Relation:
    """The relation with no more than the number of train facts that the study takes."""
    kept = relation.train[:: max(1, -(-len(relation.train) // TRAIN_FACTS))]
    return Relation.of(relation.name, kept, relation.dev[:100], relation.test[:300])


def tables(records: list[dict[str, Any]]) -> str:
    """Mean test P@1 and log-loss over the studied relations, one table a choice."""
    lines = [
        "# The study of defaults",
        "",
        "Made by `python benchmarks/defaults_study.py` from `results/defaults.jsonl`.",
    ]
    lines += ["Test P@1 (in per cent) / test log-loss (in nats), means over the studied relations (micro in each), and"]
    lines += ["CPU seconds of training in one thread. Relations: of the testbed " + _names(STUDIED) + "; of T-REx"]
    lines += [_names(TREX) + f". No other table is made from them. At most {TRAIN_FACTS} train facts each.", ""]
    lines += [FINDINGS.strip(), ""]
    for factor, about in ABOUT.items():
        rows: dict[str, dict[str, list[dict[str, Any]]]] = defaultdict(lambda: defaultdict(list))
        for lm in dict.fromkeys(record["lm"] for record in records):
            for setting in settings(lm, [factor]):
                for record in records:
                    if is_of(record, setting):
                        others = [str(setting[key]) for key in ("initial", "prompts") if setting[key] != BASE[key]]
                        others += [f"{setting['pairs']} pairs"] * (factor == "beta1")
                        rows[", ".join([lm, *others])][f"{setting[factor]}"].append(record)
        found = dict.fromkeys(value for row in rows.values() for value in row)
        values = sorted(found, key=lambda v: float(v) if v[0].isdigit() else 0)
        shown = [f"**{value}**" if value == DEFAULTS[factor] else value for value in values]
        lines += [f"## {factor}", "", about, "", "| LM | " + " | ".join(shown) + " |"]
        lines.append("|---|" + "---:|" * len(values))
        lines += [f"| {lm} | " + " | ".join(cell(row.get(v, [])) for v in values) + " |" for lm, row in rows.items()]
        lines.append("")
    return "\n".join(
        [*lines, "## Deep prompts behind an opening", "", DEEP.strip(), "", *deep_study.table(deep_study.read_runs())]
    )


def _names(relations: tuple[str, ...]) -> str:
    return ", ".join(name.replace("testbed:", "").rpartition("/")[2] for name in relations)


def cell(records: list[dict[str, Any]]) -> str:
    """P@1 and log-loss of some runs."""
    if not records:
        return "–"
    score = statistics.mean(record["test_P@1"] for record in records)
    loss = statistics.mean(record["test_log_loss"] for record in records)
    seconds = statistics.mean(record["cpu_seconds"] for record in records)
    return f"{score:.1f} / {loss:.2f} ({seconds:.0f} s)"


def main() -> None:
    """Does what is not done yet, then writes the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lms", nargs="+", default=[*TESTBED, "smollm2"])
    parser.add_argument("--factors", nargs="+", default=list(FACTORS), choices=list(FACTORS))
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    RUNS.parent.mkdir(exist_ok=True)
    done = [json.loads(line) for line in RUNS.read_text().splitlines()] if RUNS.exists() else []
    for lm in chosen.lms:
        loaded = None
        for setting in settings(lm, chosen.factors):
            if any(is_of(record, setting) for record in done):
                continue
            loaded = loaded or load_lm(lm)
            record = run(setting, loaded)
            done.append(record)
            with RUNS.open("a", encoding="utf-8") as file:
                file.write(json.dumps(record) + "\n")
            varied = {key: value for key, value in setting.items() if key in ("lm", "relation") or value != BASE[key]}
            print(
                varied, "P@1", round(record["test_P@1"], 1), "log-loss", round(record["test_log_loss"], 3), flush=True
            )
    TABLES.write_text(tables(done), encoding="utf-8")


if __name__ == "__main__":
    main()
