"""What an LM seems to forget when it is fine-tuned on other text: the tables of docs/findings/fine-tuned.md.

    askwell lm pull smollm2
    ASKWELL_DATA=… python studies/fine_tuned.py            # does what is not in the results yet, then writes the page
    python studies/fine_tuned.py --page                    # only writes the page

The testbed's causal LM is compared by `askwell.diff` with the same LM after a hundred steps on the text of the second
testbed, which says nothing of these facts (scripts/testbed/change_lm.py). SmolLM2 is fine-tuned here on the same text,
and left in build/fine_tuned.
"""

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from lines import RESULTS, append_line, read_lines
from matplotlib.figure import Figure
from pages import FINDINGS, fill, run_and_write, table
from quantised import P36, SINGLE, SUMMED, Asked, beyond_guessing, counts, measure, share, single, summed

from askwell import load_lm
from askwell.data.testbed import SECOND

sys.path.append(str(Path(__file__).parents[1] / "scripts" / "testbed"))

from recipe import RECIPES
from train_lm import batches, encode, loss_of, text_of

LINES = RESULTS / "fine_tuned.jsonl"
PAGE, CHART = FINDINGS / "fine-tuned.md", FINDINGS / "fine-tuned.svg"
BEFORE, AFTER = "testbed:causal", "testbed:causal-finetuned"
RELATIONS = (
    *("capital", "country_code", "symbol"),
    *("country_of_airport", "state_of_county", "currency"),
)

SMOLLM2 = "smollm2"
BUILD = Path(__file__).parents[1] / "build" / "fine_tuned"
STEPS, RATE, AT_ONCE = 50, 1e-4, 8
"""How SmolLM2 is fine-tuned: steps of AdamW, and the sentences of each."""


def run() -> None:
    """Do what is not in the results yet."""
    torch.set_num_threads(1)
    done = {(line["lm"], line["relation"]) for line in read_lines(LINES)}
    asked = [
        Asked(BEFORE, f"testbed:{relation}", "testbed:mined", train=200, dev=50, test=150, pairs=800)
        for relation in RELATIONS
    ]
    missing = [one for one in (*asked, P36) if (one.lm, short(one.relation)) not in done]
    for lm, changed in ((BEFORE, lambda: AFTER), (SMOLLM2, fine_tuned)):
        those = [one for one in missing if one.lm == lm]
        if those:
            before, after = (load_lm(which, dtype="float32") for which in (lm, changed()))
            for one in those:
                line = {"lm": lm, "relation": short(one.relation), **measure(one, before, after)}
                print(append_line(LINES, line), flush=True)


def short(relation: str) -> str:
    """Return the name of a relation without where it comes from."""
    return relation.rpartition(":")[2].rpartition("/")[2]


def fine_tuned() -> Path:
    """Return the folder of SmolLM2, fine-tuned on the text of the second testbed; it is made if it is not there."""
    folder = BUILD / SMOLLM2
    if folder.exists():
        return folder
    lm, began, draws = load_lm(SMOLLM2, dtype="float32"), time.process_time(), np.random.default_rng(0)
    model, sentences = lm.model.train().requires_grad_(True), encode(text_of(SECOND), lm.tokenizer)
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=0.0)
    for step, chosen in zip(range(1, STEPS + 1), batches(sentences, AT_ONCE, draws), strict=False):
        loss = loss_of("causal", model, lm.tokenizer, sentences, chosen, RECIPES[BEFORE], draws)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        print(f"{SMOLLM2}, step {step}: loss {loss.item():.3f}, {time.process_time() - began:.0f} s", flush=True)
    lm.tokenizer.save_pretrained(folder)
    model.eval().save_pretrained(folder)
    return folder


def draw(lines: Sequence[dict[str, Any]], path: Path) -> None:
    """Draw what became of the facts that the LMs knew, by relation."""
    figure = Figure(figsize=(7.0, 3.3), layout="constrained")
    axes = figure.subplots()
    left = [0.0] * len(lines)
    for name, colour in {"kept": "#1d5fd6", "hidden": "#d98a3d", "gone": "#c9625c"}.items():
        widths = [100 * counts([line])[name] / counts([line])["known"] for line in lines]
        axes.barh(range(len(lines)), widths, 0.7, left=left, color=colour, label=name)
        left = [one + width for one, width in zip(left, widths, strict=True)]
    axes.set_yticks(range(len(lines)), [named(line) for line in lines], fontsize=9)
    axes.invert_yaxis()
    axes.set_xlabel("facts known before, in per cent", fontsize=9)
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside upper right", ncols=3, frameon=False, fontsize=9)
    figure.savefig(path, metadata={"Date": None})


def named(line: dict[str, Any]) -> str:
    """Return the relation of a run as the chart names it."""
    return line["relation"] if line["lm"] == BEFORE else f"SmolLM2, {line['relation']}"


def write_page() -> None:
    """Write the chart and the tables of the page."""
    order = (*RELATIONS, short(P36.relation))
    both = sorted(read_lines(LINES), key=lambda line: order.index(line["relation"]))
    draw(both, CHART)
    lines, of_smollm2 = ([line for line in both if line["lm"] == lm] for lm in (BEFORE, SMOLLM2))
    rows = [[line["relation"], *summed([line])] for line in lines]
    places = {
        "relations": table(["relation", *SUMMED], [*rows, ["all", *summed(lines)]]),
        "tests": table(["relation", *SINGLE], [[line["relation"], *single(line)] for line in lines]),
        "smollm2": table(["relation", *SUMMED], [[line["relation"], *summed([line])] for line in of_smollm2]),
        "smollm2 tests": table(["relation", *SINGLE], [[line["relation"], *single(line)] for line in of_smollm2]),
        "by hand": share(lines, "by hand", 1),
        "tuned": share(lines, "tuned", 1),
        "cost": f"{sum(line['cpu_seconds'] for line in both) / 60:.0f}",
        **in_words(lines, ""),
        **in_words(of_smollm2, "smollm2 "),
    }
    fill(PAGE, places)


def in_words(lines: Sequence[dict[str, Any]], prefix: str) -> dict[str, str]:
    """Return the figures of an LM that the page's sentences name."""
    found = counts(lines)
    return {
        f"{prefix}known": str(found["known"]),
        f"{prefix}at risk": str(sum(line["hidden"]["at_risk"] for line in lines)),
        f"{prefix}hidden": str(found["hidden"]),
        f"{prefix}beyond": beyond_guessing(lines),
        f"{prefix}gone": str(found["gone"]),
    }


if __name__ == "__main__":
    run_and_write(__doc__ or "", run, write_page)
