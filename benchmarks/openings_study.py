"""Does a lead-in or do examples help? The study behind the default lead-in, on relations that no other table reports.

    askwell lm pull smollm2
    ASKWELL_DATA=… python benchmarks/openings_study.py hard      # what stands in front, by hand
    ASKWELL_DATA=… python benchmarks/openings_study.py tuned     # the same after tuning
    ASKWELL_DATA=… python benchmarks/openings_study.py twenty    # nothing, 4 and 8 examples by hand, twenty relations
    python benchmarks/openings_study.py summary                  # the means into benchmarks/results/summary.json
    ASKWELL_DATA=… python benchmarks/openings_study.py steps     # smaller steps for examples, or examples held fixed
    ASKWELL_DATA=… python benchmarks/openings_study.py cost      # what asking 500 facts costs with eight examples
    python benchmarks/openings_study.py families                 # masked, seq2seq and causal: the testbed's LMs

Every line of benchmarks/results/openings.jsonl is one cell; cells that are there are not done again. The last two write
openings_cost.jsonl, a line for each turn, and openings_families.jsonl.
"""

import argparse
import json
import time
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from defaults_study import STUDIED, TESTBED
from report import merge_summary
from shapes import sample

from askwell import Mixture, load_lm, train
from askwell.data.facts import Relation
from askwell.data.names import read_prompts, read_relation
from askwell.evaluation.scoring import evaluate
from askwell.mixture.encode import encode_facts
from askwell.specs.mixture_spec import A_FACT, NO_LEAD_IN, MixtureSpec
from askwell.specs.training_spec import TrainingSpec
from askwell.training.optimiser import OF_WORDS, word_scale

RESULTS = Path(__file__).parent / "results" / "openings.jsonl"
COSTS = RESULTS.with_name("openings_cost.jsonl")
FAMILIES = RESULTS.with_name("openings_families.jsonl")
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


def cost(lm: Any, turns: int = 3) -> None:
    """The CPU seconds of asking 500 facts with nothing before the sentence and with eight examples, in turns."""
    whole = read_relation("trex_original/P19")
    templates = read_prompts(["trex/P19"], relation=whole)
    asked = {"begin": "line-break", "answers": "one-token"}
    plain = Mixture(lm, templates, MixtureSpec.model_validate({**asked, "lead_in": NO_LEAD_IN}))
    tests = sample(encode_facts(plain, whole.test)[0].facts, 500)
    relation = Relation.of(whole.name, sample(encode_facts(plain, whole.train)[0].facts, 300), (), tests)
    with_8 = Mixture(lm, templates, MixtureSpec.model_validate({**asked, "shots": 8}), relation=relation)
    for turn in range(turns):
        seconds = []
        for mixture in (plain, with_8):
            began = time.process_time()
            facts = len(evaluate(mixture, relation).outcomes)
            seconds.append(round(time.process_time() - began, 2))
        tokens = with_8.prompts[0].tokens.opening
        line = {"relation": "P19", "turn": turn, "facts": facts, "nothing": seconds[0], "8 examples": seconds[1]}
        append(COSTS, {**line, "opening_tokens": tokens})


def family_cell(lm: Any, name: str, change: dict[str, Any], pairs: int) -> dict[str, Any]:
    """A relation of the testbed, asked with its single prompt."""
    whole = read_relation(name)
    relation = Relation.of(whole.name, sample(whole.train, 300), whole.dev[:60], sample(whole.test, 200))
    templates = read_prompts(["testbed:single"], relation=relation)
    spec = MixtureSpec.model_validate({"answers": "one-token", "lead_in": NO_LEAD_IN, **change})
    mixture = Mixture(lm, templates, spec, relation=relation)
    by_hand = evaluate(mixture, relation)
    train(mixture, relation, TrainingSpec(pairs=pairs, threads=1))
    tuned = evaluate(mixture, relation)
    scores = {"by hand": by_hand.micro["P@1"], "tuned": tuned.micro["P@1"], "log_loss": tuned.log_loss}
    return {"facts": len(tuned.outcomes), **scores}


def append(path: Path, line: dict[str, Any]) -> None:
    """One more line of a file of results."""
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")
    print(json.dumps(line), flush=True)


def read(path: Path) -> list[dict[str, Any]]:
    """The lines of a file of results."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


def families() -> None:
    """Does the cells of the testbed's LMs that are not done, on the relations of the study of defaults."""
    changes: list[dict[str, Any]] = [{}, {"lead_in": "Fact :"}, {"lead_in": A_FACT}, {"shots": 4}]
    done = read(FAMILIES)
    for of in TESTBED:
        lm = load_lm(of, device="cpu")
        for name in STUDIED:
            for change in changes:
                asked = {"lm": of, "relation": name, "mixture": change, "pairs": 640}
                if not any(asked.items() <= line.items() for line in done):
                    append(FAMILIES, {**asked, **family_cell(lm, name, change, 640)})


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
    parser.add_argument("which", choices=["hard", "tuned", "steps", "twenty", "summary", "cost", "families"])
    which = parser.parse_args().which
    torch.set_num_threads(1)
    done = read(RESULTS)
    if which == "summary":
        put_summary(done)
        return
    if which == "families":
        families()
        return
    lm = load_lm("smollm2", device="cpu")
    if which == "cost":
        cost(lm)
        return
    for name, change, pairs in cells(which):
        asked = {"relation": name, "mixture": change, "pairs": pairs}
        if any(asked.items() <= line.items() for line in done):
            continue
        append(RESULTS, {**asked, **cell(lm, name, change, pairs)})


if __name__ == "__main__":
    main()
