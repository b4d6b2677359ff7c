"""Does a lead-in or do examples help? The study behind the default lead-in, on relations that no other table reports.

    askwell lm pull smollm2
    ASKWELL_DATA=… python benchmarks/openings_study.py hard      # what stands in front, by hand
    ASKWELL_DATA=… python benchmarks/openings_study.py tuned     # the same after tuning
    ASKWELL_DATA=… python benchmarks/openings_study.py twenty    # nothing, 4 and 8 examples by hand, twenty relations
    python benchmarks/openings_study.py summary                  # the means into benchmarks/results/summary.json
    ASKWELL_DATA=… python benchmarks/openings_study.py steps     # smaller steps for examples, or examples held fixed

Every line of benchmarks/results/openings.jsonl is one cell; cells that are there are not done again.
"""

import argparse
import json
import random
import time
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from report import merge_summary

from askwell import Mixture, load_lm, train
from askwell.data.facts import Relation
from askwell.data.names import read_prompts, read_relation
from askwell.evaluation.evaluate import evaluate
from askwell.mixture.encode import encode_facts
from askwell.specs.mixture import A_FACT, NO_LEAD_IN, MixtureSpec
from askwell.specs.training import TrainingSpec
from askwell.training.optimiser import OF_WORDS, word_scale

RESULTS = Path(__file__).parent / "results" / "openings.jsonl"
RELATIONS = ("P30", "P364", "P1001", "P279", "P127", "P413")
"""Those of docs/defaults.md, and four others of which no tuned score is reported anywhere."""
TEXTS = (NO_LEAD_IN, "Fact :", "From the encyclopedia :", "The following statement is true :", A_FACT)


STEPS = (1.0, 0.5, 0.25, "examples held")
"""The step size of the vectors, as a multiple of the default; or that of the words of the sentence alone."""


TWENTY = (
    "P103", "P138", "P17", "P176", "P178", "P19", "P20", "P27", "P276", "P36",
    "P37", "P407", "P449", "P495", "P159", "P740", "P937", "P131", "P101", "P106",
)  # fmt: skip
"""T-REx relations of which the table by hand is made."""


def cells(which: str) -> list[tuple[str, dict[str, Any], int]]:
    """Relation, what is changed of the mixture, and pairs of training; 0: the prompt as it is."""
    if which == "hard":
        texts = [(name, {"lead_in": text}, 0) for name in RELATIONS for text in TEXTS]
        return texts + [(name, {"shots": shots}, 0) for name in RELATIONS for shots in (1, 4, 8)]
    if which == "twenty":
        by_hand: list[dict[str, Any]] = [{"lead_in": NO_LEAD_IN}, {"shots": 8}, {"shots": 4}]
        return [(name, change, 0) for change in by_hand for name in TWENTY]
    if which == "steps":
        return [(name, {"shots": 4, "steps": steps}, 400) for name in ("P1001", "P30", "P364") for steps in STEPS]
    changes: list[dict[str, Any]] = [{"lead_in": NO_LEAD_IN}, {"lead_in": A_FACT}, {"shots": 4}]
    return [(name, change, 400) for name in ("P30", "P364", "P413") for change in changes]


def sample(facts: tuple[Any, ...], count: int) -> list[Any]:
    """This many of the facts, always the same."""
    return sorted(random.Random(0).sample(facts, min(count, len(facts))))


def cell(lm: Any, name: str, change: dict[str, Any], pairs: int) -> dict[str, Any]:
    """One relation, asked with LAMA's prompt after a line break; one-token facts."""
    change = dict(change)
    steps = change.pop("steps", 1.0)
    whole = read_relation(f"trex_original/{name}")
    templates = read_prompts([f"trex/{name}"], relation=whole)
    spec = MixtureSpec.model_validate({"begin": "line-break", "answers": "one-token", **change})
    plain = Mixture(lm, templates, MixtureSpec(begin="line-break", answers="one-token"))
    usable = {split: encode_facts(plain, whole.split(split))[0].facts for split in ("train", "dev", "test")}
    tests = sample(usable["test"], 100 if pairs else 32)
    relation = Relation.of(whole.name, sample(usable["train"], 300), sample(usable["dev"], 60), tests)
    mixture = Mixture(lm, templates, spec, relation=relation)
    began = time.process_time()
    if steps == "examples held":
        in_opening = torch.arange(len(mixture.vectors)) < mixture.prompts[0].tokens.opening
        mixture.vectors.register_hook(lambda gradient: gradient.masked_fill(in_opening[:, None], 0.0))
    if pairs:
        rate = None if isinstance(steps, str) or steps == 1.0 else steps * OF_WORDS * word_scale(lm)
        train(mixture, relation, TrainingSpec(pairs=pairs, batch_facts=16, vectors_rate=rate))
    seconds = time.process_time() - began
    found = evaluate(mixture, relation)
    scores = {"P@1": found.micro["P@1"], "log_loss": found.log_loss}
    return {"facts": len(found.outcomes), **scores, "training_cpu_seconds": round(seconds, 1)}


def put_summary(lines: list[dict[str, Any]]) -> None:
    """Macro P@1 and log-loss by hand over those of the twenty relations that are done with all openings."""
    by_cell = {(line["relation"], json.dumps(line["mixture"])): line for line in lines if not line["pairs"]}
    changes = list(dict.fromkeys(json.dumps(change) for _, change, _ in cells("twenty")))
    done = [name for name in TWENTY if all((name, change) in by_cell for change in changes)]
    figures = {
        change: {
            score: round(fmean(by_cell[name, change][score] for name in done), 2) for score in ("P@1", "log_loss")
        }
        for change in changes
    }  # fmt: skip
    merge_summary(RESULTS.parent, {"openings": {"relations": done, "by_hand": figures}})


def main() -> None:
    """Does the cells that are not done."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("which", choices=["hard", "tuned", "steps", "twenty", "summary"])
    which = parser.parse_args().which
    torch.set_num_threads(1)
    lines = RESULTS.read_text(encoding="utf-8").splitlines() if RESULTS.exists() else []
    done = [json.loads(line) for line in lines]
    if which == "summary":
        put_summary(done)
        return
    lm = load_lm("smollm2", device="cpu")
    for name, change, pairs in cells(which):
        asked = {"relation": name, "mixture": change, "pairs": pairs}
        if any(asked.items() <= line.items() for line in done):
            continue
        line = {**asked, **cell(lm, name, change, pairs)}
        with RESULTS.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
