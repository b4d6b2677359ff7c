"""How well estimates of knowledge find what the testbed's LMs were really told: the tables of docs/trust.md.

    askwell sweep examples/testbed.toml
    python benchmarks/knowledge.py testbed-runs

The truth of a relation is the share of its test facts that were told. An estimate is made without looking at it.
"""

import argparse
import datetime
import json
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from askwell.data.facts import Fact
from askwell.data.testbed import told
from askwell.evaluation.knowledge import knowledge
from askwell.evaluation.outcomes import Outcome, read_outcomes
from askwell.evaluation.partitions import HARD, by_control
from askwell.views.study_cells import KeptRun, kept_runs
from askwell.views.trust_figures import control_runs, controls_of
from askwell.runs.record import TEST_OUTCOMES
from askwell.runs.store import Store, open_store

HERE = Path(__file__).parent
PAGE, RESULTS = HERE.parent / "docs/trust.md", HERE / "results/knowledge.json"
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
    """P@1 in per cent."""
    return 100 * statistics.mean(outcome.rank <= 1 for outcome in outcomes)


def is_told(outcome: Outcome) -> bool:
    """Whether the LMs were told the fact."""
    return Fact(outcome.x, outcome.y) in told(outcome.relation.removeprefix("testbed:"))


def cell(run: KeptRun, untuned: KeptRun | None, store: Store, of_runs: Any) -> dict[str, Any]:
    """Truth and estimates of one LM, relation and source, and what was told of the facts that are answered right."""
    outcomes = read_outcomes(run.folder / TEST_OUTCOMES)
    controls = controls_of([run], store, of_runs)
    found = knowledge({run.spec.seed: outcomes}, controls)
    score, best = right(outcomes), found.gain.control_score
    scores = {name: of_control.test for name, of_control in found.controls.items()}
    tests = [of_seed for control in controls.values() for of_seed in control.test.values()]  # ty: ignore
    hard = by_control(outcomes, tests).get(HARD, [])
    corrected = run.metrics["controls"]["prior-corrected"]["test"]["P@1"]
    return {
        "lm": run.spec.lm,
        "relation": run.spec.relation,
        "prompts": run.spec.prompts,
        "facts": len(outcomes),
        "truth": 100 * statistics.mean(map(is_told, outcomes)),
        "best control": found.best,
        "low": found.gain.low,
        "high": found.gain.high,
        "estimates": {
            "untuned": None if untuned is None else right(read_outcomes(untuned.folder / TEST_OUTCOMES)),
            "tuned": score,
            "corrected": corrected,
            "over majority": score - scores["majority"],
            "over prior": score - scores["prior"],
            "over random weights": score - scores["random-weights"],
            "over random embeddings": score - scores["random-embeddings"],
            "gain": found.gain.gain,
            "share of the rest": 100 * (score - best) / (100 - best),
        },
        "signals": run.metrics["trust"].get("signals"),
        "projected": (run.metrics["trust"]["projection"] or {}).get("projected", {}).get("P@1"),
        "right": [is_told(outcome) for outcome in outcomes if outcome.rank <= 1],
        "wrong": [is_told(outcome) for outcome in outcomes if outcome.rank > 1],
        "hard right": [is_told(outcome) for outcome in hard if outcome.rank <= 1],
    }


def cells_of(store: Store) -> list[dict[str, Any]]:
    """A cell for every soft run that has all controls."""
    runs = kept_runs(store)
    of_runs = control_runs(store)
    untuned = {(r.spec.lm, r.spec.relation, r.spec.prompts): r for r in runs if r.spec.training is None}
    return [
        cell(run, untuned.get((run.spec.lm, run.spec.relation, run.spec.prompts)), store, of_runs)
        for run in runs
        if run.spec.setting == SETTING and len(of_runs.get(run.spec.id, {})) == 2
    ]


def mean(cells: Sequence[dict[str, Any]], name: str) -> float:
    """The mean of an estimate over cells."""
    return statistics.mean(c["estimates"][name] for c in cells)


def document(cells: list[dict[str, Any]]) -> str:
    """The page of the documentation."""
    lms = list(dict.fromkeys(c["lm"] for c in cells))
    relations = ", ".join(sorted({c["relation"].removeprefix("testbed:") for c in cells}))
    sources = ", ".join(sorted({c["prompts"] for c in cells}))
    lines = [
        (HERE / "trust_page.md").read_text(encoding="utf-8").strip(),
        "",
        "## Does the gain over controls find what an LM was told?",
        "",
        f"Made by `askwell sweep examples/testbed.toml` and `python benchmarks/knowledge.py` on "
        f"{datetime.datetime.now(tz=datetime.UTC).date()}. {len(cells)} cells: {len(lms)} LMs × relations "
        f"({relations}) × prompts ({sources}), soft, {sum(c['facts'] for c in cells)} questions to test facts whose y "
        "is one token, among all answers of the LM. The truth of a cell is the share of its test facts that the LM was "
        "told. In per cent; the error is the mean over cells of |estimate - truth|, the bias that of estimate - truth.",
        "",
        "| estimate | " + " | ".join(lms) + " | bias | error |",
        "|---|" + "---:|" * (len(lms) + 2),
    ]
    truths = [statistics.mean(c["truth"] for c in cells if c["lm"] == lm) for lm in lms]
    lines.append("| **truth: told** | " + " | ".join(f"**{truth:.1f}**" for truth in truths) + " | | |")
    for name, about in ESTIMATES.items():
        by_lm = [mean([c for c in cells if c["lm"] == lm], name) for lm in lms]
        errors = [c["estimates"][name] - c["truth"] for c in cells]
        bias, error = statistics.mean(errors), statistics.mean(map(abs, errors))
        lines.append(f"| {about} | " + " | ".join(f"{v:.1f}" for v in by_lm) + f" | {bias:+.1f} | {error:.1f} |")
    claimed = sum(c["low"] > 0 for c in cells)
    lines += ["", f"The interval of the gain is above 0 in {claimed} of {len(cells)} cells.", ""]
    lines += ["Of single facts, the share that was told:", "", "| facts | " + " | ".join(lms) + " |"]
    lines.append("|---|" + "---:|" * len(lms))
    for name, about in {
        "right": "answered right",
        "hard right": "answered right, and by no control",
        "wrong": "answered wrong",
    }.items():
        shares = []
        for lm in lms:
            facts = [t for c in cells if c["lm"] == lm for t in c[name]]
            shares.append(f"{100 * statistics.mean(facts):.1f} of {len(facts)}" if facts else "–")
        lines.append(f"| {about} | " + " | ".join(shares) + " |")
    lines += ["", *_what_it_says(cells), "", *_signals(cells, lms)]
    return "\n".join(lines) + "\n"


def _what_it_says(cells: list[dict[str, Any]]) -> list[str]:
    def error(name: str) -> tuple[float, float]:
        errors = [c["estimates"][name] - c["truth"] for c in cells]
        return statistics.mean(errors), statistics.mean(map(abs, errors))

    told_right = [t for c in cells for t in c["right"]]
    hard_right = [t for c in cells for t in c["hard right"]]
    moved = [c for c in cells if c["projected"] is not None]
    return [
        "What it says:",
        "",
        f"- Prompts as they are miss much of what the LM knows (error {error('untuned')[1]:.1f} points); tuned ones "
        f"come near the truth ({error('tuned')[0]:+.1f} on average, error {error('tuned')[1]:.1f}): what they miss of "
        "told facts and what they guess of withheld ones nearly cancel.",
        f"- The gain over the best control is a careful estimate: {error('gain')[0]:+.1f} points. It takes away the "
        "facts that a control gets right by luck, and the LM was told most of these, too.",
        "- Put as a share of what the best control leaves wrong, the gain is as near to the truth as the score itself, "
        f"with the luck taken out: {error('share of the rest')[0]:+.1f} points, error "
        f"{error('share of the rest')[1]:.1f}.",
        f"- Taking away the prior corrects too much ({error('corrected')[0]:+.1f}): frequent answers are often right.",
        f"- Of the facts that are answered right {100 * statistics.mean(told_right):.1f} % were told, of those that no "
        f"control answers {100 * statistics.mean(hard_right):.1f} %: a right answer to a hard fact is knowledge.",
        f"- The nearest words of the tuned prompts score {statistics.mean(c['projected'] for c in moved):.1f} on "
        f"average, the tuned prompts of the same {len(moved)} cells {mean(moved, 'tuned'):.1f}: the words do not say "
        "what the vectors do.",
    ]


def _signals(cells: list[dict[str, Any]], lms: Sequence[str]) -> list[str]:
    lines = [
        "## Which signal tells a wrong answer?",
        "",
        "The area under the risk-coverage curve (lower is better; in per cent) when questions are answered in the "
        "order of a signal, for the cells with several prompts: the probability of the best answer, how much of the "
        "prompts' weight agrees with it, and how little the prompts' distributions differ.",
        "",
        "![Risk against coverage for each LM of the testbed](reports/figures-testbed/risk_coverage-testbed.svg)",
        "",
        "The curves are those of a single soft prompt ([report](reports/testbed.md)); the table is of cells with "
        "several prompts, so its areas differ.",
        "",
        "| signal | " + " | ".join(lms) + " | all |",
        "|---|" + "---:|" * (len(lms) + 1),
    ]
    several = [c for c in cells if c["signals"] is not None and len(c["signals"]["areas"]) > 1]
    names = {
        "probability": "probability",
        "agreement": "agreement of the prompts",
        "divergence": "divergence of the prompts",
    }
    areas = {about: [(c["lm"], c["signals"]["areas"][name]) for c in several] for name, about in names.items()}
    areas["none"] = [(c["lm"], c["signals"]["no_signal"]) for c in several]
    areas["the best there can be"] = [(c["lm"], c["signals"]["best_possible"]) for c in several]
    for about, of_cells in areas.items():
        by_lm = [statistics.mean(area for lm, area in of_cells if lm == wanted) for wanted in lms]
        every = statistics.mean(area for _, area in of_cells)
        lines.append(f"| {about} | " + " | ".join(f"{100 * area:.1f}" for area in (*by_lm, every)) + " |")
    wins = sum(c["signals"]["areas"]["probability"] <= min(c["signals"]["areas"].values()) for c in several)
    return [*lines, "", f"The probability is the best of the three in {wins} of {len(several)} cells."]


def main() -> None:
    """Reads the store, writes the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("store", type=Path)
    cells = cells_of(open_store(parser.parse_args().store))
    RESULTS.write_text(
        json.dumps([{k: v for k, v in c.items() if "right" not in k and k != "wrong"} for c in cells], indent=1) + "\n",
        encoding="utf-8",
    )
    PAGE.write_text(document(cells), encoding="utf-8")


if __name__ == "__main__":
    main()
