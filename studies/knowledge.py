"""How well estimates of knowledge match what the testbed's LMs were really told: the tables of docs/findings/trust.md.

    askwell sweep examples/testbed.toml
    python studies/knowledge.py testbed-runs

The truth about a relation is the share of its test facts that were told. Estimates are made without looking at it.
"""

import argparse
import datetime
import json
import statistics
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from lines import RESULTS
from pages import FINDINGS, fill, table

from askwell.data.facts import Fact
from askwell.data.testbed import told_facts
from askwell.evaluation.knowledge import PRIOR_CORRECTED, knowledge
from askwell.evaluation.outcomes import Outcome, read_outcomes
from askwell.evaluation.scoring import HARD, by_control
from askwell.runs.folder import load_runs
from askwell.runs.record import TEST_OUTCOMES
from askwell.runs.run_group import ControlRuns, KeptRun, control_runs, controls_of, kept_runs

SETTING = "soft"
ESTIMATES = {
    "untuned": "P@1 of the prompts as they are",
    "tuned": "P@1 of the tuned prompts",
    "corrected": "P@1 of the tuned prompts, corrected by their prior",
    "over majority": "tuned minus the most frequent answers of train",
    "over prior": "tuned minus the prompts' average answer",
    "over random weights": "tuned minus the same tuning on an LM with random weights",
    "over random embeddings": "tuned minus the same tuning on the LM with random word vectors",
    "gain": "tuned minus the best control, chosen on dev",
    "share of the rest": "that gain, as a share of what the best control leaves wrong",
}


def right(outcomes: Sequence[Outcome]) -> float:
    """Return P@1 in per cent."""
    return 100 * statistics.mean(outcome.rank <= 1 for outcome in outcomes)


def is_told(outcome: Outcome) -> bool:
    """Tell whether the LMs were told the fact."""
    return Fact(outcome.x, outcome.y) in told_facts(outcome.relation.removeprefix("testbed:"))


def cell(run: KeptRun, untuned: KeptRun | None, of_runs: ControlRuns) -> dict[str, Any]:
    """Return truth and estimates of one LM, relation and source, and which facts answered right or wrong were told."""
    outcomes = read_outcomes(run.folder / TEST_OUTCOMES)
    controls, record = controls_of([run], of_runs), run.record
    found = knowledge({run.spec.seed: outcomes}, controls)
    if found is None:
        raise ValueError(f"{run.folder} has no controls")
    score, best = right(outcomes), found.control_score
    scores = {name: of_control["test"] for name, of_control in found.controls.items()}
    tests = [of_seed for control in controls.values() for of_seed in control["test"].values()]
    hard = by_control(outcomes, tests).get(HARD, [])
    corrected, trust = record.controls[PRIOR_CORRECTED].test, record.trust
    if corrected is None or trust is None:
        raise ValueError(f"{run.folder} has no corrected score or no trust figures")
    return {
        "lm": run.spec.lm,
        "relation": run.spec.relation,
        "prompts": run.spec.prompts,
        "facts": len(outcomes),
        "truth": 100 * statistics.mean(map(is_told, outcomes)),
        "best control": found.control,
        "low": found.low,
        "high": found.high,
        "estimates": {
            "untuned": None if untuned is None else right(read_outcomes(untuned.folder / TEST_OUTCOMES)),
            "tuned": score,
            "corrected": corrected["P@1"],
            "over majority": score - scores["majority"],
            "over prior": score - scores["prior"],
            "over random weights": score - scores["random-weights"],
            "over random embeddings": score - scores["random-embeddings"],
            "gain": found.gain,
            "share of the rest": 100 * (score - best) / (100 - best),
        },
        "signals": asdict(trust.signals),
        "projected": None if trust.projection is None else trust.projection.projected["P@1"],
        "right": [is_told(outcome) for outcome in outcomes if outcome.rank <= 1],
        "wrong": [is_told(outcome) for outcome in outcomes if outcome.rank > 1],
        "hard right": [is_told(outcome) for outcome in hard if outcome.rank <= 1],
    }


def cells_of(store: Path) -> list[dict[str, Any]]:
    """Return a cell for every soft run that has all controls."""
    every = load_runs(store)
    runs, of_runs = kept_runs(every), control_runs(every)
    untuned = {(r.spec.lm, r.spec.relation, r.spec.prompts): r for r in runs if r.spec.training is None}
    return [
        cell(run, untuned.get((run.spec.lm, run.spec.relation, run.spec.prompts)), of_runs)
        for run in runs
        if run.spec.setting == SETTING and len(of_runs.get(run.spec.id, {})) == 2
    ]


def mean(cells: Sequence[dict[str, Any]], name: str) -> float:
    """Return the mean of an estimate over cells."""
    return statistics.mean(c["estimates"][name] for c in cells)


def tables(cells: list[dict[str, Any]]) -> dict[str, str]:
    """Return the tables of the page, and the figures within its sentences, by the name of their place."""
    lms = list(dict.fromkeys(c["lm"] for c in cells))
    truths = [statistics.mean(c["truth"] for c in cells if c["lm"] == lm) for lm in lms]
    rows = [["**truth: told**", *(f"**{truth:.1f}**" for truth in truths), "", ""]]
    for name, about in ESTIMATES.items():
        by_lm = [mean([c for c in cells if c["lm"] == lm], name) for lm in lms]
        errors = [c["estimates"][name] - c["truth"] for c in cells]
        bias, error = statistics.mean(errors), statistics.mean(map(abs, errors))
        rows.append([about, *(f"{value:.1f}" for value in by_lm), f"{bias:+.1f}", f"{error:.1f}"])
    moved = [c for c in cells if c["projected"] is not None]
    return {
        "date": str(datetime.datetime.now(tz=datetime.UTC).date()),
        "cells": f"{len(cells)}",
        "relations": ", ".join(sorted({c["relation"].removeprefix("testbed:") for c in cells})),
        "prompts": ", ".join(sorted({c["prompts"] for c in cells})),
        "questions": f"{sum(c['facts'] for c in cells):,}",
        "estimates": table(["estimate", *lms, "bias", "error"], rows),
        "above 0": f"{sum(c['low'] > 0 for c in cells)} of {len(cells)}",
        "single facts": facts_table(cells, lms),
        "nearest words": f"{statistics.mean(c['projected'] for c in moved):.1f}",
        "tuned there": f"{mean(moved, 'tuned'):.1f}",
        "cells moved": f"{len(moved)}",
        **signals(cells, lms),
    }


def facts_table(cells: list[dict[str, Any]], lms: Sequence[str]) -> str:
    """Return the shares of facts that were told, among those answered right and wrong."""
    rows = []
    for name, about in {
        "right": "answered right",
        "hard right": "answered right, and by no control",
        "wrong": "answered wrong",
    }.items():
        shares = []
        for some in [*([lm] for lm in lms), lms]:
            facts = [was_told for c in cells if c["lm"] in some for was_told in c[name]]
            shares.append(f"{100 * statistics.mean(facts):.1f} of {len(facts)}" if facts else "–")
        rows.append([about, *shares])
    return table(["facts", *lms, "all"], rows)


def signals(cells: list[dict[str, Any]], lms: Sequence[str]) -> dict[str, str]:
    """Return the areas under the risk–coverage curve by signal, and how often the probability is the best signal."""
    several = [c for c in cells if c["signals"] is not None and len(c["signals"]["areas"]) > 1]
    names = {
        "probability": "probability",
        "agreement": "agreement of the prompts",
        "divergence": "divergence of the prompts",
    }
    areas = {about: [(c["lm"], c["signals"]["areas"][name]) for c in several] for name, about in names.items()}
    areas["none"] = [(c["lm"], c["signals"]["no_signal"]) for c in several]
    areas["the best possible"] = [(c["lm"], c["signals"]["best_possible"]) for c in several]
    rows = []
    for about, of_cells in areas.items():
        by_lm = [statistics.mean(area for lm, area in of_cells if lm == wanted) for wanted in lms]
        every = statistics.mean(area for _, area in of_cells)
        rows.append([about, *(f"{100 * area:.1f}" for area in (*by_lm, every))])
    wins = sum(c["signals"]["areas"]["probability"] <= min(c["signals"]["areas"].values()) for c in several)
    return {"signals": table(["signal", *lms, "all"], rows), "best signal": f"{wins} of {len(several)}"}


def main() -> None:
    """Read the store, and write the results and the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("store", type=Path)
    cells = cells_of(parser.parse_args().store)
    (RESULTS / "knowledge.json").write_text(
        json.dumps([{k: v for k, v in c.items() if "right" not in k and k != "wrong"} for c in cells], indent=1) + "\n",
        encoding="utf-8",
    )
    fill(FINDINGS / "trust.md", tables(cells))


if __name__ == "__main__":
    main()
