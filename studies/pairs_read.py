"""How many (fact, prompt) pairs the default run reads, compared with the one cycle that was the default before it, and
what that costs in test scores.

    python studies/pairs_read.py            # continue, then write the table in docs/findings/plateau.md
    python studies/pairs_read.py --page     # only write the table

On the testbed's relations that the study of defaults does not use, with at most 300 train, 100 dev and 300 test facts
each, from the one manual prompt and from a mixture of it with its paraphrases, on all four LMs. Each run is one line of
results/pairs_read.jsonl; only cells in which both runs are done count.
"""

import argparse
import statistics
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from defaults import STUDIED, TESTBED, at_most
from lines import RESULTS, append_line, read_lines
from pages import FINDINGS, draw_gaps, fill, table

from askwell import Mixture, MixtureSpec, TrainingSpec, load_lm, train
from askwell.data.names import load_prompts, load_relation
from askwell.data.testbed import relation_names
from askwell.evaluation.examine import evaluate_split
from askwell.views.charts import Gap

RUNS = RESULTS / "pairs_read.jsonl"
PROMPTS = {"single": ["testbed:single"], "mixture": ["testbed:single", "testbed:paraphrased"]}
RECIPES: dict[str, dict[str, Any]] = {"plateau": {}, "cycle": {"beta1": 0.9}}
"""The default run, and the one before it with its β1."""


def cells(lms: Sequence[str]) -> Iterator[dict[str, str]]:
    """Yield all cells, in an order that spreads the first ones over LMs and prompts."""
    reported = [f"testbed:{name}" for name in relation_names() if f"testbed:{name}" not in STUDIED]
    for relation in reported:
        for prompts in PROMPTS:
            for lm in lms:
                yield {"lm": lm, "relation": relation, "prompts": prompts}


def run(cell: dict[str, str], recipe: str, lm: Any) -> dict[str, Any]:
    """Do one training run, and return its pairs and test scores."""
    relation = at_most(load_relation(cell["relation"]))
    templates = load_prompts(PROMPTS[cell["prompts"]], relation=relation)
    mixture = Mixture(lm, templates, MixtureSpec(answers="one-token", weighting="static"))
    result = train(
        mixture,
        relation,
        TrainingSpec.model_validate({"recipe": recipe, "threads": 1, "fit_weights": False, **RECIPES[recipe]}),
    )
    tested = evaluate_split(mixture, relation)
    right = 100 * statistics.mean(outcome.rank <= 1 for outcome in tested.outcomes)
    scores = {"test_P@1": right, "test_log_loss": tested.log_loss, "facts": len(tested.outcomes)}
    return {**cell, "recipe": recipe, "pairs": result.pairs, "best_pairs": result.best.pairs, **scores}


def row_of(records: Sequence[dict[str, Any]], *names: str) -> list[str]:
    """Return what both recipes read and scored, as means over cells."""

    def mean(recipe: str, key: str) -> float:
        return statistics.mean(record[key] for record in records if record["recipe"] == recipe)

    now, before = ({key: mean(recipe, key) for key in ("pairs", "test_P@1", "test_log_loss")} for recipe in RECIPES)
    pairs = [f"{now['pairs']:.0f}", f"{before['pairs']:.0f}", f"{now['pairs'] / before['pairs']:.2f}"]
    right = [f"{now['test_P@1']:.1f}", f"{now['test_P@1'] - before['test_P@1']:+.1f}"]
    loss = [f"{now['test_log_loss']:.2f}", f"{now['test_log_loss'] - before['test_log_loss']:+.3f}"]
    return [*names, str(len(records) // 2), *pairs, *right, *loss]


def groups_of(done: Sequence[dict[str, Any]]) -> dict[tuple[str, str], list[dict[str, Any]]]:
    """Return the cells in which both runs are done, by LM and kind of prompts."""
    key = ("lm", "relation", "prompts")
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for record in sorted(done, key=lambda record: (record["lm"], record["prompts"])):
        if sum(all(other[k] == record[k] for k in key) for other in done) == 2:
            groups.setdefault((record["lm"], record["prompts"]), []).append(record)
    return groups


def gap_of(records: Sequence[dict[str, Any]], lm: str, prompts: str) -> Gap:
    """Return a row of the chart: what both recipes score, as means over cells."""
    now, before = (
        statistics.mean(record["test_P@1"] for record in records if record["recipe"] == recipe) for recipe in RECIPES
    )
    return Gap(f"{lm}, {prompts}", now, before)


def places_of(done: Sequence[dict[str, Any]]) -> dict[str, str]:
    """Return the table, a row for each LM and kind of prompts and one for all of them, and the figures of the first
    sentence."""
    groups = groups_of(done)
    rows = [row_of(records, *group) for group, records in groups.items()]
    rows.append(row_of([record for records in groups.values() for record in records], "all", ""))
    header = ["LM", "prompts", "relations", "pairs", "of one cycle", "ratio", "test P@1", "minus one cycle's"]
    header += ["test log-loss", "minus one cycle's"]
    _, _, count, _, _, share, _, gain, _, loss = rows[-1]
    return {"pairs read": table(header, rows, names=2), "cells": count, "share": share, "gain": gain, "loss": loss}


def main() -> None:
    """Do the missing runs, then write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lms", nargs="+", default=list(TESTBED))
    parser.add_argument("--most", type=int, default=None, help="do no more than this many runs")
    parser.add_argument("--page", action="store_true", help="only write the table")
    options = parser.parse_args()
    torch.set_num_threads(1)
    done = read_lines(RUNS)
    wanted = [{**cell, "recipe": recipe} for cell in cells(options.lms) for recipe in RECIPES]
    missing = [one for one in wanted if not any(one.items() <= record.items() for record in done)]
    loaded: dict[str, Any] = {}
    for one in [] if options.page else missing[: options.most]:
        recipe = one.pop("recipe")
        if one["lm"] not in loaded:
            loaded[one["lm"]] = load_lm(one["lm"], device="cpu")
        done.append(append_line(RUNS, run(one, recipe, loaded[one["lm"]])))
        print(done[-1], flush=True)
    fill(FINDINGS / "plateau.md", places_of(done))
    gaps = [gap_of(records, *group) for group, records in groups_of(done).items()]
    draw_gaps(FINDINGS / "plateau.md", gaps, first="ends by itself", second="one cycle", measure="test P@1")


if __name__ == "__main__":
    main()
