"""How long answers of masked LMs are: p(m | r) against p(m | r, x, t); makes docs/findings/lengths.md.

    python studies/lengths.py          # do the runs that are missing, then write the page
    python studies/lengths.py --page   # only write the page

country_of_city and founder are there to choose by; the page reports the others.
"""

import argparse
import time
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from lines import RESULTS, append_line, read_lines
from pages import FINDINGS, draw_gaps, fill, table

from askwell import Mixture, load_lm, train
from askwell.data.facts import Fact, Relation
from askwell.data.split import sample
from askwell.data.testbed import PREFIX, testbed_prompts, testbed_relation, told_facts
from askwell.evaluation.examine import evaluate_split
from askwell.lms.frozen import FrozenLM
from askwell.lms.tokenisation import Place
from askwell.views.charts import Gap

LINES = RESULTS / "lengths.jsonl"
CHOSEN_BY = (
    ("testbed:bert", "testbed:country_of_city"),
    ("testbed:roberta", "testbed:country_of_city"),
    ("testbed2:bert", "testbed2:founder"),
)
REPORTED = (
    ("testbed:bert", "testbed:country_of_airport"),
    ("testbed:roberta", "testbed:country_of_airport"),
    ("testbed2:bert", "testbed2:warden"),
    ("testbed2:bert", "testbed2:teacher"),
    ("testbed2:bert", "testbed2:heir"),
)
SEEDS = (0, 1, 2)
ASKED = 200
"""Test facts that are asked in a cell, at most."""
MOST_PROMPTS = 6
LEARNED = "tuned, p(m | r, x)"
IMPOSSIBLE = -1000.0
"""c of a length that no answer is to have."""
WAYS: dict[str, dict[str, Any] | None] = {
    "hard, p(m | r)": None,
    "hard, p(m | r, x)": {
        "tune_vectors": False,
        "tune_weights": False,
        "tune_temperature": False,
        "tune_lengths": True,
        "epochs": 0,
    },
    "tuned, p(m | r)": {"tune_lengths": False},
    LEARNED: {"tune_lengths": True},
}


def done(lm: FrozenLM, lm_name: str, name: str, way: str, seed: int) -> dict[str, Any]:
    """Do one run and return its line."""
    relation = sample(testbed_relation(name), train=None, dev=100, test=ASKED, seed=0)
    # Of the first testbed the most frequent wordings, those at the head of the list of mined ones; on the second, every
    # fact has its own.
    is_first = name.startswith(PREFIX)
    templates = testbed_prompts("mined", name)[: MOST_PROMPTS if is_first else None]
    began = time.process_time()
    mixture = Mixture(lm, templates, relation=relation, seed=seed, weighting="static" if is_first else "combined")
    training, pairs = WAYS[way], 0
    if training is None:
        mixture.configure_answers(relation)
    else:
        pairs = train(mixture, relation, threads=1, progress=False, **training).pairs
    trained = time.process_time() - began
    told = told_facts(name)
    asked = [one for one in evaluate_split(mixture, relation).outcomes if Fact(one.x, one.y) in told]
    seconds = time.process_time() - began
    line: dict[str, Any] = {"lm": lm_name, "relation": name, "way": way, "seed": seed, "pairs": pairs}
    for part, is_long in (("one", False), ("several", True)):
        some = [one for one in asked if (tokens_of(lm, one.y) > 1) == is_long]
        line[part] = {"facts": len(some), "right": sum(one.rank <= 1 for one in some)}
    line["log_loss"] = -sum(one.log_probability for one in asked) / len(asked)
    line["slope"] = None if mixture.lengths is None else float(mixture.lengths.slope.detach())
    if way == LEARNED:
        facts = [fact for fact in relation.test if fact in told and tokens_of(lm, fact.y) > 1]
        line["several"]["right_given_length"] = right_given_length(mixture, relation, facts)
    return line | {"train_seconds": round(trained, 1), "seconds": round(seconds, 1)}


def tokens_of(lm: FrozenLM, y: str) -> int:
    """Return how many tokens an answer has."""
    return len(lm.wording.encode(y, Place.SPACED))


def right_given_length(mixture: Mixture, relation: Relation, facts: Sequence[Fact]) -> int:
    """Return how many facts would be right if it were known how many tokens each y has: what lengths can give."""
    assert mixture.lengths is not None
    right = 0
    for length in range(1, len(mixture.lengths.initial) + 1):
        own = [fact for fact in facts if tokens_of(mixture.lm, fact.y) == length]
        mixture.lengths.logits.data.fill_(IMPOSSIBLE)[length - 1] = 0
        if own:
            asked = Relation.of(relation.name, relation.train, relation.dev, own)
            right += sum(one.rank <= 1 for one in evaluate_split(mixture, asked).outcomes)
    return right


def share(lines: Iterable[dict[str, Any]], part: str) -> float | None:
    """Return the right told facts of some runs, in per cent."""
    some = [line[part] for line in lines]
    facts = sum(one["facts"] for one in some)
    return 100 * sum(one["right"] for one in some) / facts if facts else None


def mean(lines: list[dict[str, Any]], key: str) -> float:
    """Return the mean of a number over some runs."""
    return sum(line[key] for line in lines) / len(lines)


def is_of(line: dict[str, Any], lm: str, name: str, way: str) -> bool:
    """Tell whether a line is of this cell."""
    return (line["lm"], line["relation"], line["way"]) == (lm, name, way)


def rows_of(lines: list[dict[str, Any]], cells: Iterable[tuple[str, str]]) -> list[list[str]]:
    """Return a row for each cell: one token / several tokens, for each way, and several tokens if their number were
    known."""
    rows = []
    for lm, name in cells:
        row = [lm, name.partition(":")[2]]
        first = next((one for one in lines if (one["lm"], one["relation"]) == (lm, name)), None)
        row.append("–" if first is None else f"{first['one']['facts']} / {first['several']['facts']}")
        for way in WAYS:
            some = [one for one in lines if is_of(one, lm, name, way)]
            both = [share(some, part) for part in ("one", "several")]
            row.append(" / ".join("–" if each is None else f"{each:.0f}" for each in both))
        learned = [one["several"] for one in lines if is_of(one, lm, name, LEARNED)]
        known = sum(one["right_given_length"] for one in learned) / max(1, sum(one["facts"] for one in learned))
        rows.append([*row, f"{100 * known:.0f}" if learned else "–"])
    return rows


def gains_of(lines: list[dict[str, Any]], cells: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return the shares of tuned prompts on each testbed, with p(m | r) and with p(m | r, x), in words."""
    found = {}
    for testbed, prefix in (("first", "testbed:"), ("second", "testbed2:")):
        for part in ("one", "several"):
            some = [
                [one for cell in cells if cell[0].startswith(prefix) for one in lines if is_of(one, *cell, way)]
                for way in list(WAYS)[2:]
            ]
            found[f"{testbed} {part}"] = " to ".join(f"{share(of, part) or 0:.0f}" for of in some)
    return found


def write_page() -> None:
    """Write the chart and the tables of the page."""
    lines = read_lines(LINES)
    header = ["LM", "relation", "facts", *(way.replace("|", r"\|") for way in WAYS), "m known"]
    cells = [cell for cell in REPORTED if any((one["lm"], one["relation"]) == cell for one in lines)]
    details = []
    for lm, name in (*CHOSEN_BY, *cells):
        fixed, learned = ([one for one in lines if is_of(one, lm, name, way)] for way in list(WAYS)[2:])
        if fixed and learned:
            losses = [f"{mean(of, 'log_loss'):.2f}" for of in (fixed, learned)]
            seconds = [f"{mean(of, 'train_seconds'):.0f}" for of in (fixed, learned)]
            slope = f"{mean(learned, 'slope'):.2f}"
            details.append([lm, name.partition(":")[2], len(learned), slope, " → ".join(losses), " → ".join(seconds)])
    fill(
        FINDINGS / "lengths.md",
        {
            **gains_of(lines, cells),
            "reported": table(header, rows_of(lines, cells), names=2),
            "chosen by": table(header, rows_of(lines, CHOSEN_BY), names=2),
            "slopes": table(["LM", "relation", "runs", "β", "log-loss", "seconds of training"], details, names=2),
        },
    )
    gaps = []
    for lm, name in (*cells, *CHOSEN_BY):
        both = [share([one for one in lines if is_of(one, lm, name, way)], "several") for way in list(WAYS)[2:]]
        gaps.append(Gap(f"{lm}, {name.partition(':')[2]}", both[1], both[0]))
    measure = "told facts with several tokens right, %"
    draw_gaps(FINDINGS / "lengths.md", gaps, first="p(m | r, x)", second="p(m | r)", measure=measure)


def main() -> None:
    """Do the missing runs, then write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--page", action="store_true", help="only write the page")
    parser.add_argument("--no-page", action="store_true", help="only do the runs")
    parser.add_argument("--seeds", type=int, nargs="+", default=list(SEEDS))
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    lms: dict[str, FrozenLM] = {}
    for seed in () if chosen.page else chosen.seeds:
        for lm, name in (*REPORTED, *CHOSEN_BY):
            for way, training in WAYS.items():
                known = {(one["lm"], one["relation"], one["way"], one["seed"]) for one in read_lines(LINES)}
                if (lm, name, way, seed) in known or (seed and training is None):
                    continue
                lms.setdefault(lm, load_lm(lm))
                print(append_line(LINES, done(lms[lm], lm, name, way, seed)), flush=True)
    if not chosen.no_page:
        write_page()


if __name__ == "__main__":
    main()
