"""Draw the charts of the README from the studies' results, as docs/readme-*.svg."""

import json
from pathlib import Path

from scipy.stats import binomtest

from askwell.runs.probe_card import card_of
from askwell.runs.probe_plan import EXAMPLES, HARD
from askwell.runs.probe_plan import SOFT as SOFT_PROMPT
from askwell.runs.probe_results import read_results
from askwell.views.charts import Gap, IntervalRow, gaps_chart, intervals_chart
from askwell.views.drawing import Chart

ROOT = Path(__file__).parents[1]
RESULTS, DOCS = ROOT / "studies" / "results", ROOT / "docs"
PROBED = RESULTS / "probed" / "smollm2-trex_original" / "results.jsonl"
WITHOUT, SHORT_HAND, SHOWN, SHORT_TUNED = "no knowledge", "by hand", "16 examples", "tuned"
HAND, TUNED = "asked by hand", "one tuned prompt"
SOFT, BEFORE = "one soft prompt", "as it was"
MIXTURE_WAYS = {
    "one": "the best mined prompt",
    "soft": "one tuned prompt",
    "uniform": "all mined prompts",
    "default": "a mixture of them, tuned with its defaults",
    "oracle": "the wording in which each fact was told",
}
PARTS = {
    "forgotten": "unlearned facts",
    "retained": "facts that were to be kept",
    "never told": "facts it was never told",
}


def by_hand_and_tuned() -> Chart:
    """Return what SmolLM2 answers, in parts of its facts, with 95 % intervals for the number of facts in each."""
    runs = read_results(PROBED).values()
    (card,) = card_of(runs, tuple({run.relation: None for run in runs}), ["smollm2"], (HARD, EXAMPLES, SOFT_PROMPT)).lms
    rows = []
    for number, part in enumerate(card.parts["frequency of the answer"]):
        scores = {WITHOUT: part.control, SHORT_HAND: part.hard, SHOWN: part.examples, SHORT_TUNED: part.tuned}
        marks = {}
        for kind, score in scores.items():
            ends = binomtest(round(score * part.facts / 100), part.facts).proportion_ci(method="wilson")
            marks[kind] = (score, 100 * ends.low, 100 * ends.high)
        begins = "" if number else "The answer occurs in training (facts)"
        rows.append(IntervalRow(f"{part.name.removesuffix(' in train')} ({part.facts:,})", marks, begins=begins))
    return intervals_chart(
        rows, (WITHOUT, SHORT_HAND, SHOWN, SHORT_TUNED), measure="Right answers of SmolLM2-135M-Instruct, in per cent"
    )


def gone_or_hidden() -> Chart:
    """Return what is found in the testbed's LMs after unlearning, as means over LMs, methods, relations and sizes."""
    lines = [json.loads(line) for line in (RESULTS / "unlearning.jsonl").read_text().splitlines()]
    changed = [line for line in lines if line["method"] != BEFORE]

    def mean(way: str, part: str) -> float:
        shares = [right / facts for right, facts in (line[way][part] for line in changed)]
        return 100 * sum(shares) / len(shares)

    gaps = [
        Gap(label, mean("by hand", part), mean(SOFT, part), aside=part == "never told") for part, label in PARTS.items()
    ]
    return gaps_chart(gaps, first=HAND, second=TUNED, measure="Facts found after unlearning, in per cent")


def mixtures() -> Chart:
    """Return what is found of the facts that the second testbed's LMs were told, by way of asking; tuned ways are means
    over seeds."""
    lines = [json.loads(line) for line in (RESULTS / "weighing.jsonl").read_text().splitlines()]

    def share(lm: str, way: str) -> float:
        found = "".join(line["told"] for line in lines if (line["lm"], line["way"]) == (lm, way))
        return 100 * found.count("1") / len(found)

    gaps = [
        Gap(label, share("testbed2:bert", way), share("testbed2:causal", way), aside=way == "oracle")
        for way, label in MIXTURE_WAYS.items()
    ]
    return gaps_chart(
        gaps, first="BERT", second="a causal LM", measure="Facts found of those that were told, in per cent"
    )


def main() -> None:
    """Write all charts."""
    charts = {"by-hand-and-tuned": by_hand_and_tuned(), "gone-or-hidden": gone_or_hidden(), "mixtures": mixtures()}
    for name, chart in charts.items():
        (DOCS / f"readme-{name}.svg").write_text(chart.svg() + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
