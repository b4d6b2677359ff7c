"""Is an unlearned fact gone, or only hidden? The tables of docs/findings/unlearning.md.

    python studies/unlearning.py            # does what is not in the results yet, then writes the page
    python studies/unlearning.py --page     # only writes the page

Some told test facts of a relation are unlearned from an LM of the first testbed (unlearned_lms.py), until
hard prompts hardly find them. Then soft prompts are tuned on the relation's train facts, none of which was unlearned,
and asked about the unlearned facts, those that were retained, and those that the LM was never told.
"""

import math
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, Literal

import torch
from lines import RESULTS, append_line, read_lines, sample
from matplotlib.figure import Figure
from pages import FINDINGS, fill, run_and_write, table
from scipy.stats import mannwhitneyu
from unlearned_lms import METHODS, Method, drawn_to_forget, unlearn

from askwell import Mixture, evaluate, load_lm, train
from askwell.data.facts import Fact, Relation
from askwell.data.testbed import testbed_prompts, testbed_relation, told_facts
from askwell.evaluation.outcomes import Outcome
from askwell.lms.frozen import FrozenLM

LINES = RESULTS / "unlearning.jsonl"
PAGE, CHART = FINDINGS / "unlearning.md", FINDINGS / "unlearning.svg"
LMS = ("testbed:bert", "testbed:causal")
ONE_TO_ONE = "testbed:capital"
RELATIONS = ("testbed:country_of_airport", "testbed:state_of_county", ONE_TO_ONE)
SHARES = (0.3, 0.05)
BEFORE: Final = "as it was"
HAND, SOFT, MIXTURE = "by hand", "one soft prompt", "mixture"
WAYS = {HAND: ("mined", False), SOFT: ("single", True), MIXTURE: ("mined", True)}
"""The prompts of each way of asking, and whether they are tuned."""
MOST_RETAINED = 300
PARTS = ("forgotten", "retained", "never told")


def parts_of(relation: str, forget: Sequence[Fact]) -> dict[str, list[Fact]]:
    """Return the test facts with answers of one word: those to be forgotten, some retained ones, and the withheld."""
    told, those = told_facts(relation), set(forget)
    words = [fact for fact in testbed_relation(relation).test if " " not in fact.y]
    retained = sample([fact for fact in words if fact in told and fact not in those], MOST_RETAINED)
    return dict(zip(PARTS, (list(forget), retained, [fact for fact in words if fact not in told]), strict=True))


def ask(lm: FrozenLM, relation: str, parts: dict[str, list[Fact]]) -> dict[str, Any]:
    """Ask hard and tuned prompts about each part: the share that is right, and the area under the ROC curve between
    forgotten and never told facts."""
    return {way: found_by(prompts_for(lm, relation, way), relation, parts) for way in WAYS}


def prompts_for(lm: FrozenLM, relation: str, way: str, seed: int = 0) -> Mixture:
    """Return the prompts of a way of asking, tuned on the relation's train facts if they are to be."""
    known, (kind, is_tuned) = testbed_relation(relation), WAYS[way]
    mixture = Mixture(lm, testbed_prompts(kind, relation), relation=known, answers="one-token", seed=seed)
    if is_tuned:
        train(mixture, known, threads=1, fit_weights=False, progress=False)
    return mixture


def found_by(mixture: Mixture, relation: str, parts: dict[str, list[Fact]]) -> dict[str, Any]:
    """Return how many facts of each part prompts find, and the area between forgotten and never told facts."""
    known = testbed_relation(relation)
    asked = Relation.of(known.name, known.train, known.dev, [fact for facts in parts.values() for fact in facts])
    outcomes = {Fact(o.x, o.y): o for o in evaluate(mixture, asked, progress=False).outcomes}
    of_parts = {name: [outcomes[fact] for fact in facts if fact in outcomes] for name, facts in parts.items()}
    found: dict[str, Any] = {name: [sum(o.rank <= 1 for o in some), len(some)] for name, some in of_parts.items()}
    counts = Counter(fact.y for fact in known.train)
    return found | {"area": area(of_parts["forgotten"], of_parts["never told"], counts)}


def area(forgotten: Sequence[Outcome], never: Sequence[Outcome], counts: Counter[str]) -> float:
    """Return how often a forgotten fact scores above one that was never told: 0.5 if they cannot be told apart.

    The score is log p(y | x) less the log of y's share among train's ys, which is what can be guessed without x.
    """
    total = counts.total() + len(counts) / 2

    def scores(outcomes: Sequence[Outcome]) -> list[float]:
        return [o.log_probability - math.log((counts[o.y] + 0.5) / total) for o in outcomes]

    above = mannwhitneyu(scores(forgotten), scores(never), alternative="greater").statistic
    return round(float(above) / (len(forgotten) * len(never)), 4)


def run() -> None:
    """Do what is not in the results yet."""
    done = {(line["lm"], line["relation"], line["share"], line["method"]) for line in read_lines(LINES)}
    torch.set_num_threads(1)
    for share in SHARES:
        for relation in RELATIONS:
            for lm in LMS:
                forget = drawn_to_forget(relation, share)
                parts = parts_of(relation, forget)
                for method in (BEFORE, *METHODS):
                    if (lm, relation, share, method) not in done:
                        measure(lm, relation, share, method, parts)


def measure(
    lm: str, relation: str, share: float, method: Method | Literal["as it was"], parts: dict[str, list[Fact]]
) -> None:
    """Unlearn the facts, unless the LM is asked as it was, and ask."""
    began = time.process_time()
    torch.manual_seed(0)
    changed = load_lm(lm) if method == BEFORE else load_lm(*unlearn(lm, relation, parts["forgotten"], method))
    found = ask(changed, relation, parts)
    seconds = round(time.process_time() - began, 1)
    line = {"lm": lm, "relation": relation, "share": share, "method": method, **found, "cpu_seconds": seconds}
    print(append_line(LINES, line), flush=True)


def mean_share(lines: Sequence[dict[str, Any]], way: str, part: str) -> float:
    """Return the share of facts that are answered, in per cent, as the mean over runs."""
    return 100 * sum(line[way][part][0] / line[way][part][1] for line in lines) / len(lines)


def mean_area(lines: Sequence[dict[str, Any]], way: str) -> float:
    """Return the area under the ROC curve, as the mean over runs, those of N-1 relations if there are any.

    In a 1-1 relation, the ys of withheld facts are never told to be ys at all, which alone tells most of them apart.
    """
    some = [line for line in lines if line["relation"] != ONE_TO_ONE] or lines
    return sum(line[way]["area"] for line in some) / len(some)


def row(lines: Sequence[dict[str, Any]]) -> list[str]:
    """Return the cells of a table for some runs."""
    cells = [" / ".join(f"{mean_share(lines, way, part):.1f}" for part in PARTS) for way in WAYS]
    return [*cells, *(f"{mean_area(lines, way):.2f}" for way in WAYS)]


def draw(lines: Sequence[dict[str, Any]], path: Path) -> None:
    """Draw the share of forgotten facts that is found, by hand and tuned, with that of never told ones as a mark."""
    figure = Figure(figsize=(7.5, 3.2), layout="constrained")
    panels = figure.subplots(1, len(LMS), sharey=True)
    for axes, lm in zip(panels, LMS, strict=True):
        for place, (way, colour) in enumerate(zip(WAYS, ("#9ca3af", "#2563eb", "#7c3aed"), strict=True)):
            for number, method in enumerate(METHODS):
                some = [line for line in lines if (line["lm"], line["method"]) == (lm, method)]
                if some:
                    at, found = number + 0.27 * (place - 1), mean_share(some, way, "forgotten")
                    label = way if number == 0 and axes is panels[0] else None
                    axes.bar(at, found, 0.25, color=colour, label=label)
                    axes.hlines(mean_share(some, way, "never told"), at - 0.125, at + 0.125, color="#dc2626")
        axes.set_title(lm, fontsize=10)
        axes.set_xticks(range(len(METHODS)), [method.replace(" ", "\n") for method in METHODS], fontsize=9)
        axes.spines[["top", "right"]].set_visible(False)
    panels[0].plot([], [], color="#dc2626", label="never told")
    panels[0].set_ylabel("unlearned facts found, in per cent")
    figure.legend(loc="outside upper right", ncols=4, frameon=False, fontsize=9)
    figure.savefig(path, metadata={"Date": None})


def write_page() -> None:
    """Write the chart and the tables of the page."""
    lines = read_lines(LINES)
    draw(lines, CHART)
    rows = []
    for lm in LMS:
        for method in (BEFORE, *METHODS):
            some = [line for line in lines if (line["lm"], line["method"]) == (lm, method)]
            if some:
                rows.append([lm, method, *row(some)])
    changed = [line for line in lines if line["method"] != BEFORE]
    by_share = [
        [f"{100 * share:.0f} %", *row([line for line in changed if line["share"] == share])] for share in SHARES
    ]
    by_relation = [
        [relation.partition(":")[2], *row([line for line in changed if line["relation"] == relation])]
        for relation in RELATIONS
    ]
    header = [*WAYS, *(f"area, {way}" for way in WAYS)]
    places = {f"{way}, {part}": f"{mean_share(changed, way, part):.0f}" for way in (HAND, SOFT) for part in PARTS}
    places |= {
        "methods": table(["LM", "unlearned by", *header], rows, names=2),
        "shares": table(["forgotten", *header], by_share),
        "relations": table(["relation", *header], by_relation),
        "cost": f"{sum(line['cpu_seconds'] for line in lines) / 60:.0f}",
    }
    places |= {"area by hand": f"{mean_area(changed, HAND):.2f}", "area tuned": f"{mean_area(changed, SOFT):.2f}"}
    fill(PAGE, places)


if __name__ == "__main__":
    run_and_write(__doc__ or "", run, write_page)
