"""Pairs read: how many (fact, prompt) pairs the default run takes against the one cycle that was the default before it,
and what that costs in test scores.

    python benchmarks/pairs_read.py            # go on with what is not done, then write the table

On the testbed's relations that do not serve the study of defaults, with at most 300 train, 100 dev and 300 test facts
each, from the one manual prompt and from a mixture of it with its paraphrases, on all four LMs. Every run is one line
of results/pairs_read.jsonl; only cells in which both were run count.
"""

import argparse
import json
import statistics
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

from defaults_study import STUDIED, TESTBED, at_most  # noqa: E402
from report import merge_summary, write_part  # noqa: E402

from askwell import Mixture, MixtureSpec, TrainingSpec, load_lm, train  # noqa: E402
from askwell.data.names import read_prompts, read_relation  # noqa: E402
from askwell.data.testbed import relation_names  # noqa: E402
from askwell.evaluation.scoring import evaluate  # noqa: E402

RUNS = HERE / "results" / "pairs_read.jsonl"
PROMPTS = {"single": ["testbed:single"], "mixture": ["testbed:single", "testbed:paraphrased"]}
RECIPES: dict[str, dict[str, Any]] = {"plateau": {}, "cycle": {"beta1": 0.9}}
"""The default run, and the one before it with its β1."""


def cells(lms: Sequence[str]) -> Iterator[dict[str, str]]:
    """All cells, in an order in which what is done after some time is spread over LMs and prompts."""
    reported = [f"testbed:{name}" for name in relation_names() if f"testbed:{name}" not in STUDIED]
    for relation in reported:
        for prompts in PROMPTS:
            for lm in lms:
                yield {"lm": lm, "relation": relation, "prompts": prompts}


def run(cell: dict[str, str], recipe: str, lm: Any) -> dict[str, Any]:
    """One training run: pairs and test scores."""
    relation = at_most(read_relation(cell["relation"]))
    templates = read_prompts(PROMPTS[cell["prompts"]], relation=relation)
    mixture = Mixture(lm, templates, MixtureSpec(answers="one-token"))
    result = train(mixture, relation, TrainingSpec.model_validate({"recipe": recipe, "threads": 1, **RECIPES[recipe]}))
    tested = evaluate(mixture, relation)
    right = 100 * statistics.mean(outcome.rank <= 1 for outcome in tested.outcomes)
    scores = {"test_P@1": right, "test_log_loss": tested.log_loss, "facts": len(tested.outcomes)}
    return {**cell, "recipe": recipe, "pairs": result.pairs, "best_pairs": result.best.pairs, **scores}


def row_of(records: Sequence[dict[str, Any]], **names: str) -> dict[str, Any]:
    """What both recipes took and scored, as means over cells."""

    def mean(recipe: str, key: str) -> float:
        return statistics.mean(record[key] for record in records if record["recipe"] == recipe)

    now, before = ({key: mean(recipe, key) for key in ("pairs", "test_P@1", "test_log_loss")} for recipe in RECIPES)
    return {
        **names,
        "cells": len(records) // 2,
        "pairs": now["pairs"],
        "one cycle's": before["pairs"],
        "ratio": now["pairs"] / before["pairs"],
        "test P@1": now["test_P@1"],
        "minus one cycle's P@1": now["test_P@1"] - before["test_P@1"],
        "test log-loss": now["test_log_loss"],
        "minus one cycle's log-loss": now["test_log_loss"] - before["test_log_loss"],
    }


def write(folder: Path, done: Sequence[dict[str, Any]]) -> None:
    """The table, and the figures of the summary."""
    key = ("lm", "relation", "prompts")
    whole = [record for record in done if sum(all(other[k] == record[k] for k in key) for other in done) == 2]
    groups = {(record["lm"], record["prompts"]) for record in whole}
    rows = [
        row_of([r for r in whole if (r["lm"], r["prompts"]) == group], LM=group[0], prompts=group[1])
        for group in sorted(groups)
    ]
    everything = row_of(whole, LM="all", prompts="")
    notes = [
        "Means over relations of what the default run reads and scores, beside one cycle over the pairs that were the "
        "default before; at most 300 train, 100 dev and 300 test facts, answers of one token.",
        "No relation of the study of defaults is among them.",
        "One seed. In an earlier run of these cells, mixtures of nine prompts could end by themselves as well; on "
        "testbed:causal they read 0.64 of the pairs and lost 1.6 points. Five prompts and more have been one cycle "
        "since, which was decided after that had been seen here.",
    ]
    write_part(folder, "pairs_read", "Pairs read by a run that ends by itself", [*rows, everything], notes)
    merge_summary(
        folder,
        {
            "pairs_read": everything["ratio"],
            "pairs_read_P@1": everything["minus one cycle's P@1"],
            "pairs_read_log_loss": everything["minus one cycle's log-loss"],
        },
    )


def main() -> None:
    """Does what is not done yet, then writes the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lms", nargs="+", default=list(TESTBED))
    parser.add_argument("--most", type=int, default=None, help="do no more than this many runs")
    options = parser.parse_args()
    torch.set_num_threads(1)
    done = [json.loads(line) for line in RUNS.read_text().splitlines()] if RUNS.exists() else []
    loaded: dict[str, Any] = {}
    left = options.most
    for cell in cells(options.lms):
        for recipe in RECIPES:
            if any(all(record[k] == v for k, v in {**cell, "recipe": recipe}.items()) for record in done):
                continue
            if left == 0:
                break
            left = None if left is None else left - 1
            if cell["lm"] not in loaded:
                loaded[cell["lm"]] = load_lm(cell["lm"], device="cpu")
            record = run(cell, recipe, loaded[cell["lm"]])
            done.append(record)
            with RUNS.open("a", encoding="utf-8") as file:
                file.write(json.dumps(record) + "\n")
            print(record, flush=True)
    write(RUNS.parent, done)


if __name__ == "__main__":
    main()
