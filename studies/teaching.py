"""Can a tuned prompt teach an LM a fact? The tables of docs/findings/cannot-teach.md.

    python studies/teaching.py            # does what is not in the results yet, then writes the page
    python studies/teaching.py --page     # only writes the page

Prompts are tuned for whole relations on train facts, by default training, and asked about the test facts of all 1-1
relations of both testbeds: those that the LM's text tells, and those that it withholds. As a contrast, one soft prompt
is tuned for each of some withheld facts alone, on the very fact that it is then asked.
"""

import argparse
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import torch
from lines import RESULTS, append_line, read_lines, sample
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from pages import FINDINGS, fill, table
from scipy.stats import beta

from askwell import Mixture, MixtureSpec, evaluate, load_lm, train
from askwell.data.facts import Fact, Relation
from askwell.data.testbed import PREFIXES, lm_names, relations, testbed_prompts, testbed_relation, told_facts
from askwell.lms.frozen import FrozenLM

LINES = RESULTS / "teaching.jsonl"
PAGE, CHART = FINDINGS / "cannot-teach.md", FINDINGS / "cannot-teach.svg"
HARD, SOFT, MIXTURE, DEEP, OWN = (
    "one hard prompt",
    "one soft prompt",
    "mixture",
    "deep mixture",
    "a prompt for each fact",
)
WAYS: dict[str, tuple[str, MixtureSpec, bool]] = {
    HARD: ("single", MixtureSpec(), False),
    SOFT: ("single", MixtureSpec(), True),
    MIXTURE: ("mined", MixtureSpec(weighting="static"), True),
    DEEP: ("mined", MixtureSpec(deep=True, weighting="static"), True),
}
"""For each way of asking its prompts, their spec, and whether they are tuned."""
OWN_FACTS = 5
"""Withheld facts of each relation and LM for which a prompt of their own is tuned."""
OWN_PAIRS = 400
"""Steps on the one fact that such a prompt takes."""
COLOURS = {"told": "#2563eb", "withheld": "#dc2626"}


def asked(mixture: Mixture, relation: Relation, name: str) -> dict[str, list[int]]:
    """Return how many told and withheld test facts are answered, and how many there are."""
    told, counts = told_facts(name), {"told": [0, 0], "withheld": [0, 0]}
    for outcome in evaluate(mixture, relation, progress=False).outcomes:
        part = counts["told" if Fact(outcome.x, outcome.y) in told else "withheld"]
        part[0] += outcome.rank <= 1
        part[1] += 1
    return counts


def ask_relation(lm: FrozenLM, name: str, way: str) -> dict[str, Any]:
    """Tune prompts for a relation, if they are to be tuned, and ask them about its test facts."""
    kind, spec, is_tuned = WAYS[way]
    relation = testbed_relation(name)
    mixture = Mixture(lm, testbed_prompts(kind, name), spec, relation=relation)
    if is_tuned:
        train(mixture, relation, threads=1, fit_weights=False, tune_lengths=False, progress=False)
    else:
        mixture.configure_answers(relation)
    return asked(mixture, relation, name)


def ask_with_prompts_of_their_own(lm: FrozenLM, name: str) -> dict[str, Any]:
    """Tune the manual prompt for each of some withheld facts alone, and ask it about that fact."""
    relation, told = testbed_relation(name), told_facts(name)
    drawn = sample([fact for fact in relation.test if fact not in told], OWN_FACTS)
    counts = {"told": [0, 0], "withheld": [0, 0]}
    for fact in drawn:
        alone = Relation.of(relation.name, train=[fact], dev=[fact], test=[fact])
        mixture = Mixture(lm, testbed_prompts("single", name), relation=relation)
        mixture.configure_answers(relation)
        train(mixture, alone, pairs=OWN_PAIRS, threads=1, progress=False)
        counts["withheld"][0] += asked(mixture, alone, name)["withheld"][0]
        counts["withheld"][1] += 1
    return counts


def run(lms: Iterable[str]) -> None:
    """Do what is not in the results yet."""
    done = {(line["lm"], line["relation"], line["way"]) for line in read_lines(LINES)}
    torch.set_num_threads(1)
    for lm_name in lms:
        prefix, lm = f"{lm_name.partition(':')[0]}:", None
        for name in (prefix + relation.name for relation in relations(prefix) if relation.cardinality == "1-1"):
            for way in (*WAYS, OWN):
                if (lm_name, name, way) in done:
                    continue
                lm, began = lm or load_lm(lm_name), time.process_time()
                counts = ask_with_prompts_of_their_own(lm, name) if way == OWN else ask_relation(lm, name, way)
                seconds = round(time.process_time() - began, 1)
                append_line(LINES, {"lm": lm_name, "relation": name, "way": way, **counts, "cpu_seconds": seconds})
                print(lm_name, name, way, counts, seconds, flush=True)


def bound(right: int, asked_about: int) -> float:
    """Return the exact upper bound of a share, with a confidence of 95 %, in per cent."""
    return 100 * float(beta.ppf(0.95, right + 1, asked_about - right)) if right < asked_about else 100.0


def total(lines: Sequence[dict[str, Any]], part: str) -> tuple[int, int]:
    """Return how many facts of a part are answered, and how many there are, over all lines."""
    return sum(line[part][0] for line in lines), sum(line[part][1] for line in lines)


def share(right: int, asked_about: int) -> str:
    """Return a share in per cent and the counts behind it."""
    return f"{100 * right / asked_about:.1f} ({right} of {asked_about})" if asked_about else "–"


def draw(lines: Sequence[dict[str, Any]], path: Path) -> None:
    """Draw the shares of told and of withheld facts that each way of asking answers."""
    figure = Figure(figsize=(7, 3), layout="constrained")
    axes, ways = figure.subplots(), (*WAYS, OWN)
    for offset, part in ((-0.2, "told"), (0.2, "withheld")):
        for place, way in enumerate(ways):
            right, count = total([line for line in lines if line["way"] == way], part)
            if count:
                bar = axes.barh(place + offset, 100 * right / count, 0.36, color=COLOURS[part])
                axes.bar_label(bar, [f"{100 * right / count:.1f}"], padding=3, fontsize=9)
    axes.set_yticks(range(len(ways)), ways)
    axes.invert_yaxis()
    axes.set(xlim=(0, 112), xticks=range(0, 101, 20), xlabel="facts answered, in per cent")
    axes.spines[["top", "right"]].set_visible(False)
    handles = [Patch(color=colour, label=f"{part} facts") for part, colour in COLOURS.items()]
    figure.legend(handles=handles, loc="outside upper right", ncols=2, frameon=False)
    figure.savefig(path, metadata={"Date": None})


def write_page() -> None:
    """Write the chart and the tables of the page."""
    lines = read_lines(LINES)
    draw(lines, CHART)
    rows, by_lm = [], []
    for way in (*WAYS, OWN):
        of_way = [line for line in lines if line["way"] == way]
        told, withheld = total(of_way, "told"), total(of_way, "withheld")
        rows.append([way, share(*told), share(*withheld), f"{bound(*withheld):.1f}"])
    for lm in dict.fromkeys(line["lm"] for line in lines):
        cells = []
        for way in (SOFT, MIXTURE, DEEP, OWN):
            of_both = [line for line in lines if line["lm"] == lm and line["way"] == way]
            told, withheld = total(of_both, "told"), total(of_both, "withheld")
            of_told = f"{100 * told[0] / told[1]:.1f} / " if told[1] else ""
            cells.append(f"{of_told}{100 * withheld[0] / withheld[1]:.1f}")
        by_lm.append([lm, *cells])
    tuned = [line for line in lines if line["way"] in (SOFT, MIXTURE, DEEP)]
    right, count = total(tuned, "withheld")
    facts = sum({line["relation"]: line["withheld"][1] for line in tuned}.values())
    minutes = sum(line["cpu_seconds"] for line in lines) / 60
    places = {
        "ways": table(["prompts", "told facts", "withheld facts", "at most"], rows),
        "lms": table(["LM", SOFT, MIXTURE, DEEP, OWN], by_lm),
        "facts": str(facts),
        "answered": f"{right} of {count:,}",
        "bound": f"{bound(min(right, facts), facts):.1f}",
        "cost": f"{minutes:.0f}",
    }
    fill(PAGE, places)


def main() -> None:
    """Do the missing runs, then write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    every = [prefix + name for prefix in PREFIXES for name in lm_names(prefix)]
    parser.add_argument("--lms", nargs="+", default=every)
    parser.add_argument("--page", action="store_true", help="only write the page")
    chosen = parser.parse_args()
    if not chosen.page:
        run(chosen.lms)
    write_page()


if __name__ == "__main__":
    main()
