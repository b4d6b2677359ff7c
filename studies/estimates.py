"""How well estimates of knowledge match what the testbeds' LMs were told: the tables of docs/findings/estimates.md.

    python studies/asked_matrices.py     # asks the LMs, into build/estimates
    python studies/estimates.py          # what estimates need of it, into results/estimates.jsonl, and the page
    python studies/estimates.py --page   # only the page

A cell is an LM, a relation and a way of asking; the truth of a cell is the share of its x's of which the text tells an
answer. An estimate is a function of what is known of each x without the truth. It is chosen on some relations and
reported on others.
"""

import argparse
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import fmean
from typing import Any

import numpy as np
from asked_matrices import CHOSEN_ON, REPORTED, WAYS, path_of, relations_of
from lines import RESULTS, append_line, read_lines
from matplotlib.figure import Figure
from pages import FINDINGS, fill, table
from scipy.optimize import minimize

from askwell.answers.strategy import PromptAnswers
from askwell.data.facts import Fact
from askwell.data.testbed import lm_names, told_facts
from askwell.evaluation.knowledge import given_answers, luck_of, without_luck
from askwell.evaluation.significance import permutation_test

LINES, PROBES = RESULTS / "estimates.jsonl", RESULTS / "probes.jsonl"
PAGE, CHART = FINDINGS / "estimates.md", FINDINGS / "estimates.svg"
Signals = Mapping[str, np.ndarray]
"""What is known of each x of a cell, in arrays of one number for each, and of the cell as a whole."""
BEST_WAY, CHOSEN = "certainty", "known"
"""The way of asking by which an estimate is chosen, and the estimate that was."""
CUTS = (0.05, 0.1, 0.2, 0.3)
"""Where p-values are cut."""


# ── what is kept of a cell ────────────────────────────────────────────────────────────────────────────────────────


def signals_of(kept: Mapping[str, np.ndarray], name: str) -> dict[str, Any]:
    """Return what estimates may look at, and whether the text tells an answer, for each x of test."""
    first: dict[str, int] = {}
    for row, (x, split) in enumerate(zip(kept["x"], kept["split"], strict=True)):
        if split == "test":
            first.setdefault(str(x), row)
    rows, told = list(first.values()), told_facts(name)
    every = [str(kept["golds"][row]).split("\t") for row in rows]
    column = {str(y): place for place, y in enumerate(kept["candidates"])}
    golds = [[column[y] for y in ys if y in column] for ys in every]
    log_p = kept["log p mixture"][rows].astype(float)
    best = kept["p best"][rows].astype(float)
    of_gold = np.array([log_p[at, of_x].max() for at, of_x in enumerate(golds)])
    low, high = shuffled(log_p, golds)
    numbers = [{int(kept["numbers"][place]) for place in of_x} for of_x in golds]
    by_prompt, weights = kept["best by prompt"][rows], np.exp(kept["log weights"][rows])
    answers = PromptAnswers(tuple(range(weights.shape[1])), by_prompt, by_prompt[:, 0], weights, best)
    given = given_answers(answers)
    every_answer = [set(map(int, of_x)) for of_x in by_prompt]
    found: dict[str, Any] = {
        "told": [any(Fact(x, y) in told for y in ys) for x, ys in zip(first, every, strict=True)],
        "right": of_gold >= np.log(best) - 1e-5,
        "answered": [bool(a & g) for a, g in zip(given, numbers, strict=True)],
        "luck": luck_of(given, numbers),
        "answered by any": [bool(a & g) for a, g in zip(every_answer, numbers, strict=True)],
        "luck of any": luck_of(every_answer, numbers),
        "p best": best,
        "agreement": kept["agreement"][rows],
        "prior": kept["prior of best"][rows],
        "majority": kept["majority of best"][rows],
        "low": low,
        "high": high,
    }
    dev = kept["split"] == "dev"
    controls = [key.removeprefix("rank ") for key in kept if key in CONTROL_RANKS]
    chosen = max(controls, key=lambda control: fmean(kept[f"rank {control}"][dev] <= 1))
    by_x: dict[str, bool] = {}
    for row in np.flatnonzero(kept["split"] == "test"):
        x = str(kept["x"][row])
        by_x[x] = by_x.get(x, False) or bool(kept[f"rank {chosen}"][row] <= 1)
    return found | {"control": [by_x[x] for x in first]}


CONTROL_RANKS = ("rank majority", "rank prior", "rank prior-masked-x")


def shuffled(log_p: np.ndarray, golds: Sequence[Sequence[int]]) -> tuple[np.ndarray, np.ndarray]:
    """Return bounds of each x's p-value: the share of all x's whose right answers it finds more probable than its own,
    and of those that it finds as probable or more."""
    best = np.array([[row[of_other].max() for of_other in golds] for row in log_p])  # [x, whose right answers]
    own = best.diagonal()[:, None]
    return (best > own).mean(1), (best >= own).mean(1)


def compact(value: Any) -> Any:
    """Return a column as digits for yes and no, or as rounded numbers."""
    column = np.asarray(value)
    if column.dtype == bool:
        return "".join(map(str, column.astype(int)))
    return [float(f"{one:.3g}") for one in column.tolist()]


def column_of(value: Any) -> np.ndarray:
    """Return a column as it was before `compact`."""
    return np.array([one == "1" for one in value]) if isinstance(value, str) else np.array(value)


def keep() -> None:
    """Write the signals of all cells that were asked."""
    LINES.unlink(missing_ok=True)
    for way in WAYS:
        for names in relations_of(way):
            for prefix, bare in names.items():
                for lm in lm_names(prefix):
                    for name in (prefix + one for one in bare):
                        path = path_of(prefix + lm, name, way)
                        if path.exists():
                            append_line(LINES, line_of(prefix + lm, name, way, dict(np.load(path))))


def line_of(lm: str, name: str, way: str, kept: dict[str, np.ndarray]) -> dict[str, Any]:
    """Return the line of a cell."""
    found = signals_of(kept, name)
    needed = found if way == BEST_WAY else ("told", "right", "control", "answered", "luck")
    signals = {key: compact(found[key]) for key in needed}
    return {"lm": lm, "relation": name, "way": way, "seconds": round(float(kept["seconds"][1]), 1)} | signals


# ── estimates ─────────────────────────────────────────────────────────────────────────────────────────────────────


def corrected(hit: np.ndarray, luck: np.ndarray) -> float:
    """Return the share of x's that are known, if those that are not are hit with the probability of luck."""
    return without_luck(hit.tolist(), luck.tolist()).known


def share_of_rest(cell: Signals) -> float:
    """Return the gain over the best control as a share of what it leaves wrong."""
    score, control = cell["right"].mean(), cell["control"].mean()
    return (score - control) / (1 - control) if control < 1 else 0.0


def beyond(cut: float) -> Callable[[Signals], float]:
    """Return Storey's estimate: p-values of x's that are not known are uniform, so how many are above a cut tells how
    many there are."""

    def estimate(cell: Signals) -> float:
        low, high = cell["low"], cell["high"]
        above = np.clip((high - np.maximum(low, cut)) / (high - low), 0, 1)
        return 1 - float(above.mean()) / (1 - cut)

    return estimate


ESTIMATES: dict[str, tuple[str, Callable[[Signals], float]]] = {
    "score": ("P@1", lambda cell: float(cell["right"].mean())),
    "share": ("the gain over the best control, as a share of what it leaves wrong", share_of_rest),
    "majority": (
        "P@1, with the frequency of each wrong answer in train as its luck",
        lambda cell: corrected(cell["right"], cell["majority"]),
    ),
    "prior": (
        "P@1, with the prior probability of each wrong answer as its luck",
        lambda cell: corrected(cell["right"], cell["prior"]),
    ),
    "own": (
        "P@1, with the LM's own probability of each wrong answer as its luck",
        lambda cell: corrected(cell["right"], cell["p best"]),
    ),
    **{f"shuffled {cut}": (f"p-values among shuffled ys, cut at {cut:g} (Storey)", beyond(cut)) for cut in CUTS},
    "any": (
        "x's that some prompt answers, luck taken out",
        lambda cell: corrected(cell["answered by any"], cell["luck of any"]),
    ),
    "known": (
        "x's that some prompt with 95 % of the weight answers, luck taken out",
        lambda cell: corrected(cell["answered"], cell["luck"]),
    ),
}


# ── maps from signals to "told", fitted on other relations ────────────────────────────────────────────────────────


def features(cell: Signals) -> np.ndarray:
    """Return what a map is fitted on: whether the answer is right, its probability, its prior, the agreement of the
    prompts and the p-value among shuffled ys; and each of them for right answers alone."""
    right = cell["right"].astype(float)
    p, prior = (np.log(np.maximum(cell[name], 1e-6)) for name in ("p best", "prior"))
    rank = -np.log(np.maximum((cell["low"] + cell["high"]) / 2, 1e-3))
    columns = [right, p, prior, cell["agreement"], rank]
    return np.stack([*columns, *(right * one for one in columns[1:])], 1)


def fitted(cells: Sequence[Signals]) -> Callable[[Signals], np.ndarray]:
    """Fit a logistic regression in which every cell, and in it told and not told, weigh the same. It gives the log of
    how much more probable the signals of an x are if it was told."""
    columns, told = np.concatenate([features(one) for one in cells]), np.concatenate([one["told"] for one in cells])
    shares = [np.where(one["told"], one["told"].sum(), max(1, (~one["told"]).sum())) for one in cells]
    weights = 1 / np.concatenate(shares)
    mean, deviation = columns.mean(0), columns.std(0) + 1e-9

    def scores(some: np.ndarray, slopes: np.ndarray) -> np.ndarray:
        return slopes[0] + ((some - mean) / deviation) @ slopes[1:]

    def loss(slopes: np.ndarray) -> float:
        of_facts = np.logaddexp(0, np.where(told, -1, 1) * scores(columns, slopes))
        return float((weights * of_facts).sum() / weights.sum() + 1e-3 * (slopes[1:] ** 2).sum())

    slopes = minimize(loss, np.zeros(columns.shape[1] + 1)).x
    return lambda cell: scores(features(cell), slopes)


def share_told(log_ratios: np.ndarray) -> float:
    """Return the share of told x's under which the signals of a cell are most probable (EM over that share alone)."""
    share, ratios = 0.5, np.exp(np.clip(log_ratios, -30, 30))
    for _ in range(300):
        share = float(np.clip((share * ratios / (share * ratios + 1 - share)).mean(), 1e-6, 1 - 1e-6))
    return share


MAPS = {
    "map": "logistic map, with the share of told x's of the relations that it was fitted on",
    "free map": "the same map, with the share that makes the cell's signals most probable",
}


def mapped(cells: Sequence[Signals]) -> dict[str, Callable[[Signals], float]]:
    """Return the estimates of a map that is fitted on some cells."""
    ratios = fitted(cells)
    rate = fmean(float(one["told"].mean()) for one in cells)
    log_odds = math.log(rate / (1 - rate))
    return {
        "map": lambda cell: float((1 / (1 + np.exp(-np.clip(ratios(cell) + log_odds, -30, 30)))).mean()),
        "free map": lambda cell: share_told(ratios(cell)),
    }


# ── errors ────────────────────────────────────────────────────────────────────────────────────────────────────────


def cells_of(lines: Sequence[dict[str, Any]], way: str, names: Mapping[str, Sequence[str]]) -> list[dict[str, Any]]:
    """Return the cells of a way of asking and some relations, with their signals as arrays."""
    return [
        {key: value if key in ("lm", "relation", "way", "seconds") else column_of(value) for key, value in line.items()}
        for line in lines
        if line["way"] == way and any(line["relation"] in {p + one for one in names[p]} for p in names)
    ]


def part_of(cell: dict[str, Any], rows: np.ndarray) -> dict[str, Any]:
    """Return some x's of a cell."""
    return {key: value[rows] if isinstance(value, np.ndarray) else value for key, value in cell.items()}


def error_of(estimate: Callable[[Signals], float], cell: dict[str, Any]) -> float:
    """Return estimate - truth, in points."""
    return 100 * (min(max(estimate(cell), 0.0), 1.0) - float(cell["told"].mean()))


def errors_of(name: str, cells: Sequence[dict[str, Any]], fitted_on: Sequence[dict[str, Any]]) -> np.ndarray:
    """Return the error of an estimate in each cell. Maps are never fitted on the cell's own relation."""
    if name in ESTIMATES:
        return np.array([error_of(ESTIMATES[name][1], cell) for cell in cells])
    found = []
    for cell in cells:
        others = [one for one in fitted_on if one["relation"] != cell["relation"]]
        found.append(error_of(_map_of(name, others), cell))
    return np.array(found)


_MAPS: dict[tuple[int, ...], dict[str, Callable[[Signals], float]]] = {}


def _map_of(name: str, cells: Sequence[dict[str, Any]]) -> Callable[[Signals], float]:
    key = tuple(map(id, cells))
    if key not in _MAPS:
        _MAPS[key] = mapped(cells)
    return _MAPS[key][name]


def untold(cells: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the cells with only those x's that were not told, if there are at least five."""
    return [part_of(cell, ~cell["told"]) for cell in cells if (~cell["told"]).sum() >= 5]


def of_testbed(cells: Sequence[dict[str, Any]], prefix: str) -> list[dict[str, Any]]:
    """Return the cells of a testbed."""
    return [cell for cell in cells if cell["lm"].startswith(prefix)]


def shown(errors: np.ndarray) -> str:
    """Return the mean absolute error and the bias."""
    return f"{np.abs(errors).mean():.1f} ({errors.mean():+.1f})"


# ── the page ──────────────────────────────────────────────────────────────────────────────────────────────────────

WAY_NAMES = {
    "certainty": "mined prompts, weighed by certainty (only the weights tuned)",
    "mixture": "mined prompts, tuned, static weights",
    "one": "one soft prompt",
}
REPORTED_ESTIMATES = ("score", "share", "map", "known")


def label(name: str) -> str:
    """Return what an estimate is, in words."""
    return ESTIMATES[name][0] if name in ESTIMATES else MAPS[name]


def choosing(lines: Sequence[dict[str, Any]]) -> str:
    """Return the errors of all estimates on the relations that they are chosen on."""
    cells, rows = cells_of(lines, BEST_WAY, CHOSEN_ON), []
    for name in (*ESTIMATES, *MAPS):
        parts = [of_testbed(cells, prefix) for prefix in CHOSEN_ON]
        errors = [errors_of(name, part, cells) for part in parts]
        errors += [errors_of(name, untold(part), cells) for part in parts]
        rows.append([label(name), *(shown(one) for one in errors)])
    return table(["estimate", "testbed", "testbed2", "testbed, nothing told", "testbed2, nothing told"], rows)


def reported(lines: Sequence[dict[str, Any]]) -> str:
    """Return the errors of the chosen estimate beside those of today's, by LM, on relations that chose nothing."""
    cells, fitted_on = cells_of(lines, BEST_WAY, REPORTED), cells_of(lines, BEST_WAY, CHOSEN_ON)
    lms = list(dict.fromkeys(cell["lm"] for cell in cells))
    rows = []
    for name in REPORTED_ESTIMATES:
        each = [errors_of(name, [cell for cell in cells if cell["lm"] == lm], fitted_on) for lm in lms]
        parts = [of_testbed(cells, prefix) for prefix in REPORTED]
        both = [errors_of(name, part, fitted_on) for part in parts]
        alone = [errors_of(name, untold(part), fitted_on) for part in parts]
        rows.append([label(name), *(f"{np.abs(one).mean():.1f}" for one in each), *map(shown, (*both, *alone))])
    of_both = ["testbed", "testbed2", "testbed, nothing told", "testbed2, nothing told"]
    return table(["estimate", *lms, *of_both], rows)


def by_relation(lines: Sequence[dict[str, Any]]) -> str:
    """Return truth and estimates of each reported relation, as means over LMs."""
    cells, rows = cells_of(lines, BEST_WAY, REPORTED), []
    for name in dict.fromkeys(cell["relation"] for cell in cells):
        of = [cell for cell in cells if cell["relation"] == name]
        means = [100 * fmean(float(cell["told"].mean()) for cell in of)]
        means += [100 * fmean(ESTIMATES[one][1](cell) for cell in of) for one in ("score", "share", CHOSEN)]
        found = [100 * fmean(float(cell[key][cell["told"]].mean()) for cell in of) for key in ("right", "answered")]
        luck = 100 * fmean(float(cell["right"][~cell["told"]].mean()) for cell in of)
        error = np.abs(errors_of(CHOSEN, of, [])).mean()
        rows.append([name, len(of[0]["told"]), *(f"{one:.1f}" for one in (*means, error, *found, luck))])
    header = ["relation", "x's", "told", "P@1", "share of the rest", "estimate", "error"]
    return table([*header, "told, found by the mixture", "told, found by a prompt", "not told, right"], rows)


def by_way(lines: Sequence[dict[str, Any]]) -> str:
    """Return the errors of the chosen estimate and today's for each way of asking, on the reported relations."""
    rows = []
    for way, about in WAY_NAMES.items():
        cells = cells_of(lines, way, REPORTED)
        for prefix in REPORTED:
            part = of_testbed(cells, prefix)
            if part:
                found = 100 * fmean(float(cell["right"][cell["told"]].mean()) for cell in part)
                errors = [shown(errors_of(name, part, [])) for name in ("share", CHOSEN)]
                seconds = fmean(cell["seconds"] for cell in part)
                rows.append([about, prefix.rstrip(":"), len(part), f"{found:.1f}", *errors, f"{seconds:.1f}"])
    header = ["asked with", "testbed", "cells", "told, found", "share of the rest", "estimate", "CPU s a cell"]
    return table(header, rows, names=2)


def against_today(lines: Sequence[dict[str, Any]]) -> dict[str, str]:
    """Return how much smaller errors are than today's, the p-value over cells, and how often the interval holds."""
    cells, places = cells_of(lines, BEST_WAY, REPORTED), {}
    for prefix in REPORTED:
        part, name = of_testbed(cells, prefix), prefix.rstrip(":")
        new, old = (np.abs(errors_of(one, part, [])) for one in (CHOSEN, "share"))
        p = permutation_test(old - new).p
        places[f"p of {name}"] = "p < 0.001" if p < 0.001 else f"p = {p:.3f}"
        places[f"error of {name}"], places[f"old error of {name}"] = f"{new.mean():.1f}", f"{old.mean():.1f}"
        inside = sum(is_inside(cell) for cell in part)
        places[f"inside of {name}"] = f"{inside} of {len(part)}"
    new, old = (np.abs(errors_of(one, cells, [])) for one in (CHOSEN, "share"))
    return places | {
        "error of all": f"{new.mean():.1f}",
        "old error of all": f"{old.mean():.1f}",
        "all cells": f"{len(cells)}",
    }


def is_inside(cell: dict[str, Any]) -> bool:
    """Tell whether the truth of a cell lies within two standard errors of the estimate."""
    found = without_luck(cell["answered"].tolist(), cell["luck"].tolist())
    return bool(found.low <= cell["told"].mean() <= found.high)


def pairs_table(lines: Sequence[dict[str, Any]]) -> str:
    """Return K and K* of told test facts by way of asking and testbed, K of facts that were not told, and by LM."""
    rows = []
    lms = list(dict.fromkeys(line["lm"] for line in lines))
    for way in lines[0]["K"]:
        by_lm = []
        for lm in lms:
            told = np.concatenate([np.array(one["K"][way])[column_of(one["told"])] for one in lines if one["lm"] == lm])
            by_lm.append(f"{100 * told.mean():.1f} / {100 * (told == 1).mean():.0f}")
        others = np.concatenate([np.array(one["K"][way])[~column_of(one["told"])] for one in lines])
        rows.append([way, *by_lm, f"{100 * others.mean():.1f}"])
    return table(["asked with", *lms, "not told, all LMs"], rows)


def above_probe(lines: Sequence[dict[str, Any]], way: str) -> np.ndarray:
    """Return by how much K of each told fact is higher than under the probe beside the LM's own scores, as a mean over
    LMs: what several LMs make of one fact is one observation."""
    found = []
    for name in dict.fromkeys(line["relation"] for line in lines):
        of = [line["K"] for line in lines if line["relation"] == name]
        told = column_of(next(line["told"] for line in lines if line["relation"] == name))
        gains = [np.array(one[way]) - one["linear probe, beside the LM's own scores"] for one in of]
        found.append(np.mean(gains, axis=0)[told])
    return np.concatenate(found)


def probe_tests(lines: Sequence[dict[str, Any]]) -> str:
    """Return by how much K of told facts is higher under prompts than under the probe, with the paired test."""
    rows = []
    for prefix in REPORTED:
        part = [line for line in lines if line["lm"].startswith(prefix)]
        for way in (one for one in part[0]["K"] if "probe" not in one):
            gains = above_probe(part, way)
            p = permutation_test(gains).p
            shown_p = "< 0.001" if p < 0.001 else f"{p:.3f}"
            rows.append([prefix.rstrip(":"), way, len(gains), f"{100 * gains.mean():+.2f}", shown_p])
    return table(["testbed", "asked with", "told facts", "K above the probe's", "p"], rows, names=2)


def draw(lines: Sequence[dict[str, Any]]) -> None:
    """Draw today's estimate and the chosen one of every reported cell against the truth."""
    cells = cells_of(lines, BEST_WAY, REPORTED)
    figure = Figure(figsize=(7.5, 3.8), layout="constrained")
    names = {
        "share": "gain over the best control,\nas a share of the rest",
        CHOSEN: "answered by some prompt,\nluck taken out",
    }
    for axes, (name, title) in zip(figure.subplots(1, 2, sharey=True), names.items(), strict=True):
        axes.plot([0, 100], [0, 100], color="#9ca3af", linewidth=1)
        for prefix, colour, marker in (("testbed:", "#2563eb", "o"), ("testbed2:", "#dc2626", "s")):
            part = of_testbed(cells, prefix)
            truth = [100 * float(cell["told"].mean()) for cell in part]
            estimates = [a + b for a, b in zip(truth, errors_of(name, part, []).tolist(), strict=True)]
            axes.scatter(truth, estimates, s=22, color=colour, marker=marker, alpha=0.75, label=prefix.rstrip(":"))
        axes.set(xlim=(55, 102), ylim=(35, 102), xlabel="told, in per cent", title=title)
        axes.title.set_fontsize(10)
        axes.spines[["top", "right"]].set_visible(False)
        if name == "share":
            axes.set_ylabel("estimate, in per cent")
            axes.legend(loc="lower right", frameon=False, fontsize=9)
    figure.savefig(CHART, metadata={"Date": None})


def listed(names: Iterable[str]) -> str:
    """Return names as code, separated by commas."""
    return ", ".join(f"`{name}`" for name in names)


def write_page() -> None:
    """Write the chart and the tables of the page."""
    lines, probed = read_lines(LINES), read_lines(PROBES)
    cells = cells_of(lines, BEST_WAY, REPORTED)
    seconds = sum(line["seconds"] for line in (*lines, *probed))
    draw(lines)
    places = {"choosing": choosing(lines), "reported": reported(lines), "relations": by_relation(lines)}
    places |= {"ways": by_way(lines), "pairs": pairs_table(probed), "probe": probe_tests(probed)}
    places |= {"cells": str(len(cells)), "questions": f"{sum(len(cell['told']) for cell in cells):,}"}
    places |= {
        "cost": f"{seconds / 60:.0f}",
        "probed relations": listed(dict.fromkeys(one["relation"] for one in probed)),
    }
    for place, names in (("choosing relations", CHOSEN_ON), ("reported relations", REPORTED)):
        places[place] = listed(prefix + name for prefix in names for name in names[prefix])
    fill(PAGE, places | against_today(lines))


def main() -> None:
    """Keep what was asked, unless only the page is wanted, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--page", action="store_true", help="only write the page")
    if not parser.parse_args().page:
        keep()
    write_page()


if __name__ == "__main__":
    main()
