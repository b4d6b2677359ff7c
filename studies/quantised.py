"""What a quantised or pruned LM loses, and what of it is only hidden: the tables of docs/findings/quantised.md.

    askwell lm pull smollm2
    ASKWELL_DATA=… python studies/quantised.py            # does what is not in the results yet, then writes the page
    python studies/quantised.py --page                    # only writes the page

Each LM is compared by `askwell.diff` with itself after its weights were rounded to a few bits or the smallest of them
set to 0. Runs are kept in build/quantised, so that a study that was stopped goes on where it was.
"""

import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from lines import RESULTS, append_line, read_lines

from askwell import diff, load_lm
from askwell.data.facts import Relation
from askwell.data.names import load_relation
from askwell.data.split import sample
from askwell.lms.frozen import FrozenLM
from askwell.specs.mixture_spec import MixtureSpec
from askwell.specs.training_spec import TrainingSpec

LINES = RESULTS / "quantised.jsonl"
BUILD = Path(__file__).parents[1] / "build" / "quantised"
SETTINGS: dict[str, dict[str, Any]] = {
    "8 bits": {"after_bits": 8},
    "4 bits": {"after_bits": 4},
    "3 bits": {"after_bits": 3},
    "2 bits": {"after_bits": 2},
    "30 % pruned": {"after_pruned": 0.3},
    "50 % pruned": {"after_pruned": 0.5},
}


@dataclass(frozen=True)
class Asked:
    """One LM and one relation, and how it is asked."""

    lm: str
    relation: str
    prompts: str
    train: int | None = None
    dev: int | None = None
    test: int | None = None
    pairs: int | None = None


P36, P176 = (
    Asked("smollm2", f"trex_original/{name}", f"trex/{name}", train=240, dev=60, test=150, pairs=480)
    for name in ("P36", "P176")
)
TESTBED = tuple(
    Asked(f"testbed:{lm}", f"testbed:{name}", "testbed:mined")
    for lm in ("bert", "causal")
    for name in ("capital", "country_of_airport", "state_of_county")
)
JOBS = (
    *((P36, setting) for setting in ("8 bits", "4 bits", "3 bits", "2 bits")),
    *((one, setting) for one in TESTBED for setting in SETTINGS),
    *((P176, setting) for setting in ("3 bits", "2 bits")),
    *((one, "50 % pruned") for one in (P36, P176)),
    (P36, "30 % pruned"),
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


def measure(asked: Asked, lm: FrozenLM, relation: Relation, setting: str) -> dict[str, Any]:
    """Compare the LM with itself after a change, and return what became of the facts."""
    began = time.process_time()
    found = diff(
        lm,
        None,
        relation,
        asked.prompts,
        folder=BUILD / asked.lm.replace(":", "-"),
        mixture=MixtureSpec(answers="one-token"),
        training=TrainingSpec(pairs=asked.pairs),
        threads=1,
        **SETTINGS[setting],
    ).verdicts
    p_at_1 = {
        way: [of.micro.b, of.micro.a, of.losses, of.wins, of.micro.p]
        for way, of in (("by hand", found.by_hand), ("tuned", found.tuned))
    }
    return {
        "lm": asked.lm,
        "relation": asked.relation,
        "setting": setting,
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
            lm = loaded.setdefault(one.lm, load_lm(one.lm)) if one.lm not in loaded else loaded[one.lm]
            print(append_line(LINES, measure(one, lm, facts_of(one, lm), setting)), flush=True)


if __name__ == "__main__":
    run()
