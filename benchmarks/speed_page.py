"""Puts what `make bench` and benchmarks/time_to_quality.py have measured onto one page: docs/speed.md."""

import json
from pathlib import Path
from typing import Any

from askwell.views.drawing import Chart, chart_style, light, new_figure, place

HERE = Path(__file__).parent
RESULTS, PAGE, FIGURE = HERE / "results", HERE.parent / "docs/speed.md", HERE.parent / "docs/speed.svg"
PARTS = (
    "equal_work",
    "evaluation",
    "gemm_fraction",
    "padding",
    "time_to_quality",
    "growth",
    "beside",
    "answers",
    "shared",
    "start_of_ask",
    "walks",
    "threads",
)
PREFACE = """
# Speed

All of it runs on one thread of a noisy machine, so contenders take turns in one run, CPU time is measured, and what
counts are ratios. The *plain loop* is written as a research script would be: pairs are put together one by one,
padded as they come, with logits at every position, an E pass and an M pass. The *good plain loop* pads, too, but
freezes the LM's weights, reads the head at y alone and takes its posteriors from the batch's own forward pass. Both
were written before askwell's path was made fast, and were not changed since. *base* is a BERT of 12 × 768, *small*
one of 4 × 256, both with random weights and 30,522 words; their x's and prompts are as long as those of T-REx.

`make bench` measures the parts, `python benchmarks/time_to_quality.py` and `pairs_read.py` the whole runs, and
`python benchmarks/speed_page.py` writes this page.
"""
WHERE_IT_GOES = """
Where the rest of the time goes. On the base shape the matrix products of unpadded, pruned work take most of it; what
is left are norms, activations, copies between attention's layouts and the softmax over the vocabulary. On the small
shape the products are too small to run at the machine's peak. There the good plain loop cannot be beaten by 3.5: it
does no work twice either, and askwell would have to be faster than the products that both need. What it saves is
padding (see below), most of the last layer, and passes over the logits.
"""


def rows_of(summary: dict[str, Any]) -> list[tuple[str, float | None, float, bool]]:
    """What is measured, what was reached, what was aimed at, and whether less is better."""
    work, gemm = summary.get("equal_work", {}), summary.get("gemm_fraction", {})
    quality = summary.get("time_to_quality", {})
    long = summary.get("answers", {})
    tree, train = long.get("tree", {}), long.get("train", {})
    good, shared = work.get("against_good", {}), summary.get("shared", {})
    least_walk = min(summary["walks"].values()) if "walks" in summary else None
    threads = summary.get("threads", {})
    of_steps = min((ratio for case, ratio in threads.items() if case != "whole run"), default=None)
    ceiling = f" (two processes: {min(summary['two_processes'].values()):.3g})" if "two_processes" in summary else ""
    return [
        ("equal work, times the plain loop's speed, base", work.get("base"), 2.5, False),
        ("… small", work.get("small"), 7, False),
        ("equal work, times the good plain loop's speed, base", good.get("base"), 1.6, False),
        ("… small", good.get("small"), 3.5, False),
        ("evaluation, times the plain loop's speed, base", summary.get("evaluation", {}).get("base"), 2, False),
        ("… small", summary.get("evaluation", {}).get("small"), 6, False),
        ("share of the best matrix product, base, 32 pairs", gemm.get("base train at 32"), 0.75, False),
        ("… base, 128 pairs", gemm.get("base train at 128"), 0.83, False),
        ("… small, 128 pairs", gemm.get("small train at 128"), 0.55, False),
        ("time to quality, times the paper's procedure by the plain loop", quality.get("against_paper"), 50, False),
        ("… from one prompt", quality.get("against_paper_one_prompt"), 8, False),
        ("… times one epoch of the plain loop at its best rate", quality.get("against_one_epoch"), 4, False),
        ("pairs read by a run that ends by itself, of the cycle's before", summary.get("pairs_read"), 0.6, True),
        ("memory of evaluation at 28 prompts, of the plain loop's", summary.get("evaluation_memory_ratio"), 0.1, True),
        ("1,000 candidates through a prefix tree, times a loop's speed, causal", tree.get("causal"), 20, False),
        ("… masked", tree.get("masked"), 20, False),
        ("… causal, T-REx's most frequent ys", tree.get("causal_trex"), 20, False),
        ("… masked, T-REx's most frequent ys", tree.get("masked_trex"), 20, False),
        ("… SmolLM2", tree.get("smollm2"), 20, False),
        ("… SmolLM2, T-REx's most frequent ys", tree.get("smollm2_trex"), 20, False),
        ("ten answers of any length on SmolLM2, in times of a one-token ask", long.get("ask_ten"), 4, True),
        ("training on answers of three tokens, in times of as many tokens, causal", train.get("causal"), 1.15, True),
        ("… masked", train.get("masked"), 1.15, True),
        ("… SmolLM2", train.get("smollm2"), 1.15, True),
        ("… causal, where as many places are read", long.get("train_as_many_reads", {}).get("causal"), 1.15, True),
        (
            "shared beginnings on SmolLM2, times the speed without: training, one prompt",
            shared.get("train"),
            1.7,
            False,
        ),
        ("… evaluation, ten prompts", shared.get("evaluate"), 1.7, False),
        ("… training with 100 words before x", shared.get("few_shot"), 5, False),
        ("walks, times the whole model's speed in training, the least of all", least_walk, 1.3, False),
        (
            "`train` on SmolLM2 with two threads, times one thread's speed by the clock",
            threads.get("whole run"),
            1.6,
            False,
        ),
        (f"… its steps of 16 facts alone{ceiling}", of_steps, 1.6, False),
        (
            "`ask` on a saved mixture, in times of loading torch, model and tokenizer",
            summary.get("start_of_ask"),
            1.3,
            True,
        ),
    ]


def page(folder: Path) -> str:
    """The whole page."""
    summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    lines = [
        PREFACE.strip(),
        "",
        "## What was aimed at, and what was reached",
        "",
        "| | aim | reached | |",
        "|---|---:|---:|---|",
    ]
    for what, reached, aim, less in rows_of(summary):
        sign = "≤" if less else "≥"
        verdict = (
            "not measured"
            if reached is None
            else "reached"
            if (reached <= aim if less else reached >= aim)
            else "missed"
        )
        lines.append(f"| {what} | {sign} {aim:g} | {'–' if reached is None else f'{reached:.3g}'} | {verdict} |")
    lines += [
        "",
        f"![How far each aim was passed or missed]({FIGURE.name})",
        "",
        "The same as a picture: a bar to the right passes its aim, one to the left misses it.",
        "",
        WHERE_IT_GOES.strip(),
        "",
    ]
    for part in PARTS:
        path = folder / f"{part}.md"
        if path.exists():
            title, *rest = path.read_text(encoding="utf-8").strip().splitlines()
            lines += [f"#{title}", *rest, ""]
    return "\n".join(lines).rstrip() + "\n"


@chart_style()
def figure(summary: dict[str, Any]) -> Chart:
    """What was reached, in times of its aim: a bar for each row of the table that was measured."""
    bars = [
        (what.replace("`", ""), aim / reached if less else reached / aim)
        for what, reached, aim, less in rows_of(summary)
        if reached is not None
    ]
    row, left = 22, 470
    drawn = new_figure(left + 330, row * len(bars) + 60)
    axes = place(drawn, left=left, right=50, top=10, bottom=40)
    axes.set_xscale("log", base=2)
    for number, (_, times) in enumerate(bars):
        colour = light("good" if times >= 1 else "bad")
        axes.barh(number, times - 1, left=1, height=0.6, color=colour)
        axes.text(max(times, 1) * 1.04, number, f"{times:.2f}", va="center", fontsize=10, color=light("ink"))
    axes.axvline(1, color=light("ink"), linewidth=1)
    axes.set_yticks(range(len(bars)), [label for label, _ in bars], fontsize=9)
    axes.set_xticks([0.25, 0.5, 1, 2, 4], ["¼", "½", "the aim", "2 ×", "4 ×"])
    axes.set_ylim(len(bars) - 0.4, -0.6)
    axes.spines["left"].set_visible(False)
    missed = sum(times < 1 for _, times in bars)
    description = f"{len(bars) - missed} of {len(bars)} aims were reached; {missed} were missed."
    return Chart(drawn, "How far each aim was passed or missed", description)


if __name__ == "__main__":
    measured = json.loads((RESULTS / "summary.json").read_text(encoding="utf-8"))
    FIGURE.write_text(figure(measured).svg("speed"), encoding="utf-8")
    PAGE.write_text(page(RESULTS), encoding="utf-8")
