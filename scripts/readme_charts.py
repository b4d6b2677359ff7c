"""Draw the two charts of the README from the studies' results, as docs/readme-*.svg."""

import json
from pathlib import Path

from scipy.stats import binomtest

from askwell.views.charts import Gap, IntervalRow, gaps_chart, intervals_chart
from askwell.views.drawing import Chart

ROOT = Path(__file__).parents[1]
RESULTS, DOCS = ROOT / "studies" / "results", ROOT / "docs"
RELATIONS = {
    "P176": "manufacturer",
    "P36": "capital",
    "P264": "music label",
    "P413": "position played",
    "place_of_birth": "place of birth",
    "date_of_birth": "date of birth",
}
WITHOUT, HAND, TUNED = "most frequent answer", "asked by hand", "one tuned prompt"
SOFT, BEFORE = "one soft prompt", "as it was"
PARTS = {
    "forgotten": "unlearned facts",
    "retained": "facts that were to be kept",
    "never told": "facts it was never told",
}


def by_hand_and_tuned() -> Chart:
    """Return what SmolLM2 answers, by relation, with 95 % intervals for the number of facts that were asked."""
    found = json.loads((RESULTS / "smollm2.json").read_text())["any-length"]
    rows = []
    for relation, label in RELATIONS.items():
        of = found[relation]
        scores = {
            WITHOUT: (of["controls"]["majority"]["P@1"], of["asked"]),
            HAND: (of["untuned"]["P@1"], of["asked_untuned"]),
            TUNED: (of["tuned"]["P@1"], of["asked"]),
        }
        marks = {}
        for kind, (score, facts) in scores.items():
            ends = binomtest(round(score * facts / 100), facts).proportion_ci(method="wilson")
            marks[kind] = (score, 100 * ends.low, 100 * ends.high)
        rows.append(IntervalRow(label, marks))
    return intervals_chart(rows, (WITHOUT, HAND, TUNED), measure="Right answers of SmolLM2-135M-Instruct, in per cent")


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


def main() -> None:
    """Write both charts."""
    for name, chart in {"by-hand-and-tuned": by_hand_and_tuned(), "gone-or-hidden": gone_or_hidden()}.items():
        (DOCS / f"readme-{name}.svg").write_text(chart.svg() + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
