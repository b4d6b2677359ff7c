"""Write the tables and the chart of docs/findings/speed.md from benchmarks/results.

make bench; python benchmarks/time_to_quality.py; python benchmarks/serve.py rates; python benchmarks/scale.py
python studies/speed_page.py
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pages import FINDINGS, fill, table

from askwell.views.drawing import Chart, chart_style, light, new_figure, place

MEASURED = Path(__file__).parents[1] / "benchmarks" / "results"
PARTS = (
    "equal_work", "evaluation", "gemm_fraction", "padding", "time_to_quality", "growth", "beside", "shared",
    "start_of_ask", "walks", "threads", "serve_rates", "serve_overload", "scale",
)  # fmt: skip
"""The parts of which all rows are one table."""


_MAIN = ("training, × the plain", "training, × the good", "evaluation, ×", "time to quality, ×")


class Figure(NamedTuple):
    """A figure of the first table."""

    what: str
    measured: float | None
    aim: float
    less_is_better: bool = False
    is_drawn: bool = False
    """Whether it is a speed-up, and a bar of the chart."""


def figures(summary: dict[str, Any]) -> list[Figure]:
    """Return the figures of the first table, with what was aimed at before they were measured."""
    work, gemm = summary.get("equal_work", {}), summary.get("gemm_fraction", {})
    evaluation, quality, long = (summary.get(part, {}) for part in ("evaluation", "time_to_quality", "answers"))
    tree, train = long.get("tree", {}), long.get("train", {})
    good, shared, threads = work.get("against_good", {}), summary.get("shared", {}), summary.get("threads", {})
    least_walk = min(summary["walks"].values()) if "walks" in summary else None
    of_steps = min((ratio for case, ratio in threads.items() if case != "whole run"), default=None)
    return [
        Figure("training, × the plain loop, base shape", work.get("base"), 2.5, is_drawn=True),
        Figure("training, × the plain loop, small shape", work.get("small"), 7, is_drawn=True),
        Figure("training, × the good plain loop, base shape", good.get("base"), 1.6, is_drawn=True),
        Figure("training, × the good plain loop, small shape", good.get("small"), 3.5, is_drawn=True),
        Figure("evaluation, × the plain loop, base shape", evaluation.get("base"), 2, is_drawn=True),
        Figure("evaluation, × the plain loop, small shape", evaluation.get("small"), 6, is_drawn=True),
        Figure("time to quality, × the paper's procedure, 16 prompts", quality.get("against_paper"), 50, is_drawn=True),
        Figure(
            "time to quality, × the paper's procedure, one prompt",
            quality.get("against_paper_one_prompt"), 8, is_drawn=True,
        ),
        Figure("share of the best matrix product, base shape, 32 pairs", gemm.get("base train at 32"), 0.75),
        Figure("share of the best matrix product, base shape, 128 pairs", gemm.get("base train at 128"), 0.83),
        Figure("share of the best matrix product, small shape, 128 pairs", gemm.get("small train at 128"), 0.55),
        Figure("memory of evaluation, × the plain loop", summary.get("evaluation_memory_ratio"), 0.1, True),
        Figure("1,000 candidates, × a loop, testbed:causal", tree.get("causal"), 20, is_drawn=True),
        Figure("1,000 candidates, × a loop, testbed:bert", tree.get("masked"), 20, is_drawn=True),
        Figure("1,000 candidates, × a loop, SmolLM2", tree.get("smollm2"), 20, is_drawn=True),
        Figure("1,000 frequent ys of T-REx, × a loop, testbed:causal", tree.get("causal_trex"), 20),
        Figure("1,000 frequent ys of T-REx, × a loop, testbed:bert", tree.get("masked_trex"), 20),
        Figure("1,000 frequent ys of T-REx, × a loop, SmolLM2", tree.get("smollm2_trex"), 20),
        Figure("time of ten answers of any length, × one-token answers, SmolLM2", long.get("ask_ten"), 4, True),
        Figure("time to train on three tokens, × as many tokens, testbed:causal", train.get("causal"), 1.15, True),
        Figure("time to train on three tokens, × as many tokens, testbed:bert", train.get("masked"), 1.15, True),
        Figure("time to train on three tokens, × as many tokens, SmolLM2", train.get("smollm2"), 1.15, True),
        Figure("shared prefixes on SmolLM2: training, one prompt", shared.get("train"), 1.7, is_drawn=True),
        Figure("shared prefixes on SmolLM2: evaluation, ten prompts", shared.get("evaluate"), 1.7, is_drawn=True),
        Figure("shared prefixes on SmolLM2: 100 words before x", shared.get("few_shot"), 5, is_drawn=True),
        Figure("training through a walk, × the whole model, least", least_walk, 1.3, is_drawn=True),
        Figure("`train` on SmolLM2, two threads × one", threads.get("whole run"), 1.6, is_drawn=True),
        Figure("its training steps alone, two threads × one", of_steps, 1.6),
        Figure("time of `ask`, × loading torch, model and tokenizer", summary.get("start_of_ask"), 1.3, True),
    ]  # fmt: skip


def figures_table(found: Sequence[Figure]) -> str:
    """Return the first table; a figure that misses its aim is in italics."""
    rows = []
    for figure in found:
        if figure.measured is None:
            continue
        met = figure.measured <= figure.aim if figure.less_is_better else figure.measured >= figure.aim
        shown = f"{figure.measured:.3g}"
        rows.append(
            [figure.what, shown if met else f"*{shown}*", f"{'≤' if figure.less_is_better else '≥'} {figure.aim:g}"]
        )
    return table(["", "measured", "aim"], rows)


def main_table(found: Sequence[Figure]) -> str:
    """Return the table at the top of the page."""
    rows = [[one.what, f"{one.measured:.3g}"] for one in found if one.what.startswith(_MAIN) and one.measured]
    return table(["", "times as fast"], rows)


def part_table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return a table of rows, without the columns that are empty in all of them."""
    columns = list(dict.fromkeys(name for row in rows for name in row))
    columns = [name for name in columns if any(row.get(name) is not None for row in rows)]
    return table(columns, [[_cell(row.get(name)) for name in columns] for row in rows])


def _cell(value: Any) -> str:
    if isinstance(value, dict):
        return f"{value['median_s']:.3f} ({value['least_s']:.3f}–{value['most_s']:.3f})"
    if isinstance(value, float):
        return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    return "" if value is None else str(value)


def machine_line(part: dict[str, Any]) -> str:
    """Say on which machine, with what and when a part was measured."""
    where = part["machine"]
    said = [where["cpu"], f"{where['cores']} cores", f"{where['threads']} thread"]
    said += [f"{name} {where[name]}" for name in ("torch", "transformers") if name in where]
    said += [f"load {part['conditions']['load']}"] if "load" in part["conditions"] else []
    return f"{', '.join(said)}; {where['date']}."


@chart_style()
def chart(found: Sequence[Figure]) -> Chart:
    """Draw the speed-ups as bars, on a logarithmic scale."""
    bars = [(figure.what.replace("`", ""), figure.measured) for figure in found if figure.is_drawn and figure.measured]
    row, left = 22, 250
    drawn = new_figure(left + 400, row * len(bars) + 60)
    axes = place(drawn, left=left, right=50, top=10, bottom=40)
    axes.set_xscale("log", base=2)
    for number, (_, times) in enumerate(bars):
        axes.barh(number, times - 1, left=1, height=0.6, color=light("good"))
        axes.text(times * 1.04, number, f"{times:.3g} ×", va="center", fontsize=10, color=light("ink"))
    axes.axvline(1, color=light("ink"), linewidth=1)
    axes.set_yticks(range(len(bars)), [label for label, _ in bars], fontsize=9)
    axes.set_xticks([1, 2, 4, 8, 16, 32, 64], ["1 ×", "2 ×", "4 ×", "8 ×", "16 ×", "32 ×", "64 ×"])
    axes.set_ylim(len(bars) - 0.4, -0.6)
    axes.spines["left"].set_visible(False)
    least, most = min(times for _, times in bars), max(times for _, times in bars)
    return Chart(drawn, "How much faster askwell is", f"{len(bars)} speed-ups, from {least:.3g} × to {most:.3g} ×.")


def main() -> None:
    """Write the chart and the tables."""
    summary = json.loads((MEASURED / "summary.json").read_text(encoding="utf-8"))
    parts = {name: json.loads((MEASURED / f"{name}.json").read_text(encoding="utf-8")) for name in (*PARTS, "answers")}
    found = figures(summary)
    places = {"main": main_table(found), "figures": figures_table(found)}
    for name in PARTS:
        places[name] = f"{machine_line(parts[name])}\n\n{part_table(parts[name]['rows'])}"
    answers = parts["answers"]
    for what in ("tree", "train", "ask"):
        rows = [row for row in answers["rows"] if row["what"].partition(",")[0] == what]
        places[f"answers: {what}"] = f"{machine_line(answers)}\n\n{part_table(rows)}"
    places["plain with its table"] = str(summary["equal_work"]["plain_with_its_table"]["small"])
    places["two processes"] = f"{min(summary['two_processes'].values()):.3g}"
    fill(FINDINGS / "speed.md", places)
    (FINDINGS / "speed.svg").write_text(chart(figures(summary)).svg(), encoding="utf-8")


if __name__ == "__main__":
    main()
