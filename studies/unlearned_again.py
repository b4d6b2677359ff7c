"""Does a second round of unlearning, against tuned prompts, hold? One table of docs/findings/unlearning.md.

    python studies/unlearned_again.py            # does what is not in the results yet, then writes the table
    python studies/unlearned_again.py --page     # only writes the table

30 % of the told test facts of a relation are unlearned by gradient difference, as in unlearning.py, and a soft prompt
is tuned on train facts. The same facts are then unlearned once more as that prompt asks for them, and another soft
prompt is tuned, with another seed.
"""

import argparse
import copy
import time
from typing import Any

import torch
from lines import RESULTS, append_line, read_lines
from pages import fill, table
from unlearned_lms import drawn_to_forget, unlearn, unlearn_again
from unlearning import HAND, LMS, PAGE, PARTS, RELATIONS, SOFT, found_by, mean_area, mean_share, parts_of, prompts_for

from askwell import load_lm

LINES = RESULTS / "unlearned_again.jsonl"
SHARE = 0.3
AGAINST, NEW = "the prompt of the second round", "a new soft prompt"
ROUNDS = ("one round", "two rounds")


def run() -> None:
    """Do what is not in the results yet."""
    torch.set_num_threads(1)
    done = {(line["lm"], line["relation"]) for line in read_lines(LINES)}
    for relation in RELATIONS:
        for lm in LMS:
            if (lm, relation) not in done:
                print(append_line(LINES, measure(lm, relation)), flush=True)


def measure(lm: str, relation: str) -> dict[str, Any]:
    """Unlearn the facts in two rounds, and ask after each."""
    began, parts = time.process_time(), parts_of(relation, drawn_to_forget(relation, SHARE))
    torch.manual_seed(0)
    model, tokenizer = unlearn(lm, relation, parts["forgotten"], "gradient difference")
    once = load_lm(copy.deepcopy(model), tokenizer)
    against = prompts_for(load_lm(model, tokenizer), relation, SOFT)
    first = {
        HAND: found_by(prompts_for(once, relation, HAND), relation, parts),
        AGAINST: found_by(against, relation, parts),
        NEW: found_by(prompts_for(once, relation, SOFT, seed=1), relation, parts),
    }
    model, steps = unlearn_again(lm, relation, model, against, parts["forgotten"])
    twice = load_lm(copy.deepcopy(model), tokenizer)
    second = {
        HAND: found_by(prompts_for(twice, relation, HAND), relation, parts),
        AGAINST: found_by(against, relation, parts),
        NEW: found_by(prompts_for(twice, relation, SOFT, seed=1), relation, parts),
    }
    seconds = round(time.process_time() - began, 1)
    rounds = dict(zip(ROUNDS, (first, second), strict=True))
    return {"lm": lm, "relation": relation, **rounds, "steps": steps, "cpu_seconds": seconds}


def write_table() -> None:
    """Write the table of the page."""
    lines, rows = read_lines(LINES), []
    for lm in LMS:
        for way in (HAND, AGAINST, NEW):
            cells = []
            for which in ROUNDS:
                some = [{**line[which], "relation": line["relation"]} for line in lines if line["lm"] == lm]
                shares = " / ".join(f"{mean_share(some, way, part):.1f}" for part in PARTS)
                cells += [shares, f"{mean_area(some, way):.2f}"]
            rows.append([lm, way, *cells])
    header = ["LM", "asked", *(cell for which in ROUNDS for cell in (f"after {which}", "area"))]
    cost = f"{sum(line['cpu_seconds'] for line in lines) / 60:.0f}"
    fill(PAGE, {"rounds": table(header, rows, names=2), "cost of rounds": cost})


def main() -> None:
    """Do the missing runs, then write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--page", action="store_true", help="only write the table")
    if not parser.parse_args().page:
        run()
    write_table()


if __name__ == "__main__":
    main()
