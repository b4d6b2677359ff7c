"""What an LM seems to forget when it is fine-tuned on other text: the tables of docs/findings/fine-tuned.md.

    python studies/fine_tuned.py            # does what is not in the results yet, then writes the page
    python studies/fine_tuned.py --page     # only writes the page

The testbed's causal LM is compared by `askwell.diff` with the same LM after a hundred steps on the text of the second
testbed, which says nothing of these facts (scripts/testbed/change_lm.py).
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from lines import RESULTS, append_line, read_lines
from matplotlib.figure import Figure
from pages import FINDINGS, fill, table
from quantised import SINGLE, SUMMED, Asked, beyond_guessing, counts, measure, share, single, summed

from askwell import load_lm

LINES = RESULTS / "fine_tuned.jsonl"
PAGE, CHART = FINDINGS / "fine-tuned.md", FINDINGS / "fine-tuned.svg"
BEFORE, AFTER = "testbed:causal", "testbed:causal-finetuned"
RELATIONS = (
    *("capital", "country_code", "symbol"),
    *("country_of_airport", "state_of_county", "currency"),
)


def run() -> None:
    """Do what is not in the results yet."""
    torch.set_num_threads(1)
    done = {line["relation"] for line in read_lines(LINES)}
    before, after = load_lm(BEFORE), load_lm(AFTER)
    for relation in RELATIONS:
        if relation not in done:
            asked = Asked(BEFORE, f"testbed:{relation}", "testbed:mined", train=200, dev=50, test=150, pairs=800)
            line = {"relation": relation, **measure(asked, before, after)}
            print(append_line(LINES, line), flush=True)


def draw(lines: Sequence[dict[str, Any]], path: Path) -> None:
    """Draw what became of the facts that the LM knew, by relation."""
    figure = Figure(figsize=(7.0, 2.8), layout="constrained")
    axes = figure.subplots()
    left = [0.0] * len(lines)
    for name, colour in {"kept": "#1d5fd6", "hidden": "#d98a3d", "gone": "#c9625c"}.items():
        widths = [100 * counts([line])[name] / counts([line])["known"] for line in lines]
        axes.barh(range(len(lines)), widths, 0.7, left=left, color=colour, label=name)
        left = [one + width for one, width in zip(left, widths, strict=True)]
    axes.set_yticks(range(len(lines)), [line["relation"] for line in lines], fontsize=9)
    axes.invert_yaxis()
    axes.set_xlabel("facts known before, in per cent", fontsize=9)
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside upper right", ncols=3, frameon=False, fontsize=9)
    figure.savefig(path, metadata={"Date": None})


def write_page() -> None:
    """Write the chart and the tables of the page."""
    lines = sorted(read_lines(LINES), key=lambda line: RELATIONS.index(line["relation"]))
    draw(lines, CHART)
    found = counts(lines)
    rows = [[line["relation"], *summed([line])] for line in lines]
    places = {
        "relations": table(["relation", *SUMMED], [*rows, ["all", *summed(lines)]]),
        "tests": table(["relation", *SINGLE], [[line["relation"], *single(line)] for line in lines]),
        "known": str(found["known"]),
        "at risk": str(sum(line["hidden"]["at_risk"] for line in lines)),
        "hidden": str(found["hidden"]),
        "beyond": beyond_guessing(lines),
        "gone": str(found["gone"]),
        "by hand": share(lines, "by hand", 1),
        "tuned": share(lines, "tuned", 1),
        "cost": f"{sum(line['cpu_seconds'] for line in lines) / 60:.0f}",
    }
    fill(PAGE, places)


def main() -> None:
    """Do the missing runs, then write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--page", action="store_true", help="only write the page")
    if not parser.parse_args().page:
        run()
    write_page()


if __name__ == "__main__":
    main()
