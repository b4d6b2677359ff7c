"""What a quantised or pruned LM loses, and what of it is only hidden: the tables of docs/findings/quantised.md.

    askwell lm pull smollm2
    ASKWELL_DATA=… python studies/quantised.py            # does what is not in the results yet, then writes the page
    python studies/quantised.py --page                    # only writes the page

Each LM is compared by `askwell.diff` with itself after its weights were rounded to a few bits or the smallest of them
set to 0. Runs are kept in build/quantised, so that a study that was stopped goes on where it was.
"""

import math
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from lines import RESULTS, append_line, read_lines
from matplotlib.figure import Figure
from pages import FINDINGS, fill, run_and_write, table

from askwell import diff, load_lm
from askwell.data.facts import Relation
from askwell.data.names import load_relation
from askwell.data.split import sample
from askwell.evaluation.significance import p_text
from askwell.lms.frozen import FrozenLM
from askwell.specs.mixture_spec import MixtureSpec
from askwell.specs.training_spec import TrainingSpec

LINES = RESULTS / "quantised.jsonl"
PAGE, CHART = FINDINGS / "quantised.md", FINDINGS / "quantised.svg"
BUILD = Path(__file__).parents[1] / "build" / "quantised"
SETTINGS: dict[str, dict[str, Any]] = {
    "8 bits": {"after_bits": 8},
    "4 bits": {"after_bits": 4},
    "3 bits": {"after_bits": 3},
    "2 bits": {"after_bits": 2},
    "30 % pruned": {"after_pruned": 0.3},
    "50 % pruned": {"after_pruned": 0.5},
}

HARMFUL = ("3 bits", "2 bits", "50 % pruned")
LMS = ("testbed:bert", "testbed:causal", "smollm2")


@dataclass(frozen=True)
class Asked:
    """One LM and one relation, and how it is asked."""

    lm: str
    relation: str
    prompts: str
    train: int
    dev: int
    test: int
    """How many facts are drawn of each split, at most."""
    pairs: int
    """The budget of tuning."""
    lead_in: str = "auto"
    """What stands before each sentence; named where examples would be chosen, which multiply the cost."""


P36, P176 = (
    Asked("smollm2", f"trex_original/{name}", f"trex/{name}", train=240, dev=60, test=150, pairs=480, lead_in=lead_in)
    for name, lead_in in (("P36", "auto"), ("P176", "Here is a fact about the world :"))
)
TESTBED = tuple(
    Asked(f"testbed:{lm}", f"testbed:{name}", "testbed:mined", train=200, dev=50, test=150, pairs=800)
    for lm in ("bert", "causal")
    for name in ("capital", "country_of_airport", "state_of_county")
)
JOBS = (
    *((P36, setting) for setting in ("8 bits", "4 bits", "3 bits", "2 bits")),
    *((one, setting) for one in TESTBED[:-1] for setting in SETTINGS),
    (P176, "3 bits"),
    *((TESTBED[-1], setting) for setting in SETTINGS),
    *((P36, setting) for setting in ("50 % pruned", "30 % pruned")),
)
"""What is measured, in this order. SmolLM2 comes from weights of 4 bits in groups of 32: more bits change nothing."""


def facts_of(asked: Asked, lm: FrozenLM) -> Relation:
    """Return the facts whose y is one token of the LM, and of those as many as are to be asked."""
    known = load_relation(asked.relation)
    parts = [
        [fact for fact in facts if len(lm.tokenizer.tokenize(f" {fact.y}")) == 1]
        for facts in (known.train, known.dev, known.test)
    ]
    return sample(Relation.of(known.name, *parts), train=asked.train, dev=asked.dev, test=asked.test, seed=0)


def measure(asked: Asked, before: FrozenLM, after: FrozenLM | None, **change: Any) -> dict[str, Any]:
    """Compare two LMs, and return what became of the facts."""
    began = time.process_time()
    found = diff(
        before,
        after,
        facts_of(asked, before),
        asked.prompts,
        folder=BUILD / asked.lm.replace(":", "-"),
        mixture=MixtureSpec(answers="one-token", lead_in=asked.lead_in),
        training=TrainingSpec(pairs=asked.pairs, fit_weights=False),
        threads=1,
        **change,
    ).verdicts
    p_at_1 = {
        way: [of.micro.b, of.micro.a, of.losses, of.wins, of.micro.p]
        for way, of in (("by hand", found.by_hand), ("tuned", found.tuned))
    }
    return {
        "facts": found.facts,
        **p_at_1,
        "table": found.table,
        "hidden": asdict(found.hidden),
        "never_told": found.never_told,
        "frequency": found.parts["frequency of y"],
        "cpu_seconds": round(time.process_time() - began, 1),
    }


def run() -> None:
    """Do what is not in the results yet."""
    torch.set_num_threads(1)
    done = {(line["lm"], line["relation"], line["setting"]) for line in read_lines(LINES)}
    loaded: dict[str, FrozenLM] = {}
    for one, setting in JOBS:
        if (one.lm, one.relation, setting) not in done:
            if one.lm not in loaded:
                loaded[one.lm] = load_lm(one.lm)
            found = measure(one, loaded[one.lm], None, **SETTINGS[setting])
            line = {"lm": one.lm, "relation": one.relation, "setting": setting, **found}
            print(append_line(LINES, line), flush=True)


def beyond_guessing(lines: Sequence[dict[str, Any]]) -> str:
    """Return the hidden facts beyond guessing of several runs, with an interval as if they were independent."""
    found = [(line["hidden"]["beyond"], line["hidden"]["low"], line["hidden"]["high"]) for line in lines]
    most, beyond = sum(line["hidden"]["hidden"] for line in lines), sum(one for one, _, _ in found)
    below, above = (math.sqrt(sum((one[0] - one[side]) ** 2 for one in found)) for side in (1, 2))
    return f"{beyond:.0f} ({max(beyond - below, 0):.0f} to {min(beyond + above, most):.0f})"


def counts(lines: Sequence[dict[str, Any]]) -> dict[str, int]:
    """Return how many of the facts that were known before have each verdict, and how many are found by hand after."""
    cells = Counter[tuple[str, str]]()
    for line in lines:
        for row, of in line["table"].items():
            cells.update({(row, column): count for column, count in of.items()})
    by_hand = cells["by hand", "by hand"] + cells["tuned only", "by hand"]
    gone = cells["by hand", "not"] + cells["tuned only", "not"]
    hidden, kept = cells["by hand", "tuned only"], by_hand + cells["tuned only", "tuned only"]
    return {"known": kept + hidden + gone, "kept": kept, "by hand": by_hand, "hidden": hidden, "gone": gone}


def share(lines: Sequence[dict[str, Any]], way: str, side: int) -> str:
    """Return P@1 over all facts of several runs: before (0) or after (1)."""
    return f"{sum(line[way][side] * line['facts'] for line in lines) / sum(line['facts'] for line in lines):.1f}"


def summed(lines: Sequence[dict[str, Any]]) -> list[str]:
    """Return the cells of a table for some runs."""
    found = counts(lines)
    scores = [f"{share(lines, way, 0)} → {share(lines, way, 1)}" for way in ("by hand", "tuned")]
    return [
        *scores,
        *(str(found[name]) for name in ("known", "kept", "hidden")),
        beyond_guessing(lines),
        str(found["gone"]),
    ]


SUMMED = ("by hand", "tuned", "known before", "kept", "hidden", "beyond guessing", "gone")


def single(line: dict[str, Any]) -> list[str]:
    """Return the cells of a table for one run, with its paired tests."""
    tests = [f"{line[way][2]} / {line[way][3]} (p = {p_text(line[way][4])})" for way in ("by hand", "tuned")]
    hidden = line["hidden"]
    interval = f"{hidden['beyond']:.1f} ({hidden['low']:.1f} to {hidden['high']:.1f})"
    return [str(line["facts"]), *tests, str(line["hidden"]["hidden"]), interval, str(counts([line])["gone"])]


SINGLE = ("facts", "by hand, lost / won", "tuned, lost / won", "hidden", "beyond guessing", "gone")


def draw(lines: Sequence[dict[str, Any]], path: Path) -> None:
    """Draw what became of the facts that each LM knew, by change."""
    figure = Figure(figsize=(9.6, 3.2), layout="constrained")
    panels = figure.subplots(1, len(LMS), sharey=True)
    colours = {"kept": "#1d5fd6", "hidden": "#d98a3d", "gone": "#c9625c"}
    for axes, lm in zip(panels, LMS, strict=True):
        settings = [
            setting for setting in SETTINGS if any((one["lm"], one["setting"]) == (lm, setting) for one in lines)
        ]
        for at, setting in enumerate(settings):
            found = counts([one for one in lines if (one["lm"], one["setting"]) == (lm, setting)])
            bottom = 0.0
            for name, colour in colours.items():
                height = 100 * found[name] / found["known"]
                label = name if at == 0 and axes is panels[0] else None
                axes.bar(at, height, 0.75, bottom=bottom, color=colour, label=label)
                bottom += height
        axes.set_title(lm, fontsize=10)
        axes.set_xticks(
            range(len(settings)), [setting.replace(" pruned", "\npruned") for setting in settings], fontsize=7.5
        )
        axes.spines[["top", "right"]].set_visible(False)
    panels[0].set_ylabel("facts known before, in per cent")
    figure.legend(loc="outside upper right", ncols=3, frameon=False, fontsize=9)
    figure.savefig(path, metadata={"Date": None})


def frequency_rows(lines: Sequence[dict[str, Any]]) -> list[list[str]]:
    """Return what became of the facts that were known before, by how often train has their y."""
    rows = []
    for of_lm, lms in (("the testbed's", LMS[:2]), (LMS[2], LMS[2:])):
        some = [line for line in lines if line["lm"] in lms]
        for label in dict.fromkeys(label for line in some for label in line["frequency"]):
            found: Counter[str] = Counter()
            for line in some:
                found.update(line["frequency"].get(label, {}))
            known = sum(found[name] for name in ("kept", "hidden", "gone"))
            cells = (
                [f"{found[name]} ({100 * found[name] / known:.0f} %)" for name in ("kept", "hidden", "gone")]
                if known
                else []
            )
            if known:
                rows.append([of_lm, label, str(known), *cells])
    return rows


def write_page() -> None:
    """Write the chart and the tables of the page."""
    order = {(one.lm, one.relation): number for number, one in enumerate((*TESTBED, P36, P176))}
    lines = sorted(
        read_lines(LINES), key=lambda line: (order[line["lm"], line["relation"]], list(SETTINGS).index(line["setting"]))
    )
    draw(lines, CHART)
    by_setting = [
        [lm, setting, *summed(some)]
        for lm in LMS
        for setting in SETTINGS
        if (some := [line for line in lines if (line["lm"], line["setting"]) == (lm, setting)])
    ]
    harmed = [line for line in lines if line["setting"] in HARMFUL]
    three = [line for line in lines if (line["lm"], line["setting"]) == (LMS[2], "3 bits")]
    lost = sum(line["hidden"]["at_risk"] for line in three)
    places = {
        "settings": table(["LM", "change", *SUMMED], by_setting, names=2),
        "relations": table(
            ["LM", "relation", "change", *SINGLE],
            [
                [line["lm"], line["relation"].rpartition(":")[2].rpartition("/")[2], line["setting"], *single(line)]
                for line in lines
            ],
            names=3,
        ),
        "frequency": table(
            ["LMs", "train facts with that y", "known before", "kept", "hidden", "gone"],
            frequency_rows(harmed),
            names=2,
        ),
        "lost at 3 bits": str(lost),
        "hidden at 3 bits": str(sum(line["hidden"]["hidden"] for line in three)),
        "beyond at 3 bits": beyond_guessing(three),
        "cost": f"{sum(line['cpu_seconds'] for line in lines) / 60:.0f}",
    }
    fill(PAGE, places)


if __name__ == "__main__":
    run_and_write(__doc__ or "", run, write_page)
