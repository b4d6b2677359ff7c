"""What should come before the sentence? The study behind the default opening: a lead-in, examples, or nothing.

    askwell lm pull smollm2
    ASKWELL_DATA=… python studies/openings.py hard        # by hand, on six relations that no other page reports
    ASKWELL_DATA=… python studies/openings.py tuned       # the same after tuning, on three of them
    ASKWELL_DATA=… python studies/openings.py twenty      # nothing, 4 and 8 examples by hand, on twenty relations
    ASKWELL_DATA=… python studies/openings.py steps       # smaller steps for examples, or examples held fixed
    ASKWELL_DATA=… python studies/openings.py cost        # what asking 500 facts costs with eight examples
    python studies/openings.py families                   # masked, seq2seq and causal: the testbed's LMs
    ASKWELL_DATA=… python studies/openings.py facts       # by hand and tuned, fact by fact: nothing, 8 and 4 examples
    ASKWELL_DATA=… python studies/openings.py facts --openings "4 x 4 examples" --relations P19 P138
    ASKWELL_DATA=… python studies/openings.py facts --answers any-length --relations P19
    python studies/openings_page.py                       # write docs/findings/openings.md

Each line of results/openings.jsonl is one relation with one opening; `cost` and `families` write openings_cost.jsonl
and openings_families.jsonl. `facts` writes openings_tuned.jsonl: a relation with an opening, by hand, tuned, and the
controls that look at no x, each with the rank and the log-probability of every test fact (of whole answers only whether
the rank is 1), so that any two can be compared fact by fact. What has been done is not done again.
"""

import argparse
import hashlib
import json
import math
import time
from collections.abc import Sequence
from typing import Any

import torch
from defaults import STUDIED, TESTBED
from lines import RESULTS, append_line, read_lines, sample

from askwell import Mixture, load_lm, train
from askwell.answers.listed import ListedAnswers
from askwell.data.facts import Relation, SplitName
from askwell.data.names import load_prompts, load_relation
from askwell.evaluation.examine import AskedFacts, evaluate_split
from askwell.evaluation.knowledge import MAJORITY, PRIOR, priors_of
from askwell.evaluation.outcomes import Outcome
from askwell.specs.mixture_spec import A_FACT, NO_LEAD_IN, MixtureSpec
from askwell.specs.training_spec import TrainingSpec
from askwell.training.optimiser import OF_WORDS, word_scale

CELLS, COSTS, FAMILIES, TUNED = (
    RESULTS / f"{name}.jsonl" for name in ("openings", "openings_cost", "openings_families", "openings_tuned")
)
RELATIONS = ("P30", "P364", "P1001", "P279", "P127", "P413")
"""Those of docs/findings/defaults.md, and four others whose tuned scores are reported nowhere else."""
TEXTS = (NO_LEAD_IN, "Fact :", "From the encyclopedia :", "The following statement is true :", A_FACT)
STEPS = (1.0, 0.5, 0.25, "examples held")
"""The step size of the vectors, as a multiple of the default; or only the words of the sentence are tuned."""
TWENTY = (
    "P103", "P138", "P17", "P176", "P178", "P19", "P20", "P27", "P276", "P36",
    "P37", "P407", "P449", "P495", "P159", "P740", "P937", "P131", "P101", "P106",
)  # fmt: skip
"""The T-REx relations of the tables."""
OPENINGS: dict[str, dict[str, Any]] = {
    "nothing": {"lead_in": NO_LEAD_IN},
    "8 examples": {"shots": 8},
    "4 examples": {"shots": 4},
    "lead-in": {"lead_in": A_FACT},
    "4 x 4 examples": {"shots": 4, "copies": 4},
    "4 x 2 examples": {"shots": 2, "copies": 4},
    "4 examples, held": {"shots": 4},
    "4 examples, half steps": {"shots": 4},
    "4 examples, quarter steps": {"shots": 4},
}
"""What comes before the sentence; of examples that are held, only the words of the sentence are tuned."""
SMALLER_STEPS = {"4 examples, half steps": 0.5, "4 examples, quarter steps": 0.25}
TRAIN_FACTS, DEV_FACTS, TEST_FACTS, XS_OF_PRIOR = 300, 60, 100, 100
PAIRS, FACTS_OF_STEP, FACTS_AT_ONCE = 400, 16, 32


def cells(which: str) -> list[tuple[str, dict[str, Any], int]]:
    """Return relation, change to the mixture, and pairs of training, of which 0 leaves the prompt untuned."""
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
    """Ask one relation with LAMA's prompt after a line break; one-token facts."""
    change = dict(change)
    steps = change.pop("steps", 1.0)
    whole = load_relation(f"trex_original/{name}")
    templates = load_prompts([f"trex/{name}"], relation=whole)
    spec = MixtureSpec.model_validate({"begin": "line-break", "answers": "one-token", **change})
    plain = Mixture(lm, templates, MixtureSpec(begin="line-break", answers="one-token"))
    usable = {split: plain.encode(whole.split(split))[0].facts for split in ("train", "dev", "test")}
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
    found = evaluate_split(mixture, relation)
    scores = {"P@1": found.micro["P@1"], "log_loss": found.log_loss}
    return {"facts": len(found.outcomes), **scores, "training_cpu_seconds": round(seconds, 1)}


def cost(lm: Any, turns: int = 3) -> None:
    """Measure, in turns, the CPU seconds of asking 500 facts with no opening and with eight examples."""
    whole = load_relation("trex_original/P19")
    templates = load_prompts(["trex/P19"], relation=whole)
    asked = {"begin": "line-break", "answers": "one-token"}
    plain = Mixture(lm, templates, MixtureSpec.model_validate({**asked, "lead_in": NO_LEAD_IN}))
    tests = sample(plain.encode(whole.test)[0].facts, 500)
    relation = Relation.of(whole.name, sample(plain.encode(whole.train)[0].facts, 300), (), tests)
    with_8 = Mixture(lm, templates, MixtureSpec.model_validate({**asked, "shots": 8}), relation=relation)
    for turn in range(turns):
        seconds = []
        for mixture in (plain, with_8):
            began = time.process_time()
            facts = len(evaluate_split(mixture, relation).outcomes)
            seconds.append(round(time.process_time() - began, 2))
        tokens = with_8.prompts[0].tokens.opening
        line = {"relation": "P19", "turn": turn, "facts": facts, "nothing": seconds[0], "8 examples": seconds[1]}
        append_line(COSTS, {**line, "opening_tokens": tokens})


def family_cell(lm: Any, name: str, change: dict[str, Any], pairs: int) -> dict[str, Any]:
    """Ask a relation of the testbed with its single prompt."""
    whole = load_relation(name)
    relation = Relation.of(whole.name, sample(whole.train, 300), whole.dev[:60], sample(whole.test, 200))
    templates = load_prompts(["testbed:single"], relation=relation)
    spec = MixtureSpec.model_validate({"answers": "one-token", "lead_in": NO_LEAD_IN, **change})
    mixture = Mixture(lm, templates, spec, relation=relation)
    by_hand = evaluate_split(mixture, relation)
    train(mixture, relation, TrainingSpec(pairs=pairs, threads=1))
    tuned = evaluate_split(mixture, relation)
    scores = {"by hand": by_hand.micro["P@1"], "tuned": tuned.micro["P@1"], "log_loss": tuned.log_loss}
    return {"facts": len(tuned.outcomes), **scores}


def families() -> None:
    """Do the missing cells of the testbed's LMs, on the relations of the study of defaults."""
    changes: list[dict[str, Any]] = [{}, {"lead_in": "Fact :"}, {"lead_in": A_FACT}, {"shots": 4}]
    done = read_lines(FAMILIES)
    for of in TESTBED:
        lm = load_lm(of, device="cpu")
        for name in STUDIED:
            for change in changes:
                asked = {"lm": of, "relation": name, "mixture": change, "pairs": 640}
                if not any(asked.items() <= line.items() for line in done):
                    append_line(FAMILIES, {**asked, **family_cell(lm, name, change, 640)})


def facts_of(lm: Any, name: str, answers: str) -> tuple[Relation, list[Any]]:
    """Return the relation with the facts that are used, and LAMA's template."""
    whole = load_relation(f"trex_original/{name}")
    templates = load_prompts([f"trex/{name}"], relation=whole)
    spec = MixtureSpec.model_validate({"begin": "line-break", "answers": answers, "lead_in": NO_LEAD_IN})
    plain = Mixture(lm, templates, spec)
    usable = {split: plain.encode(whole.split(split))[0].facts for split in ("train", "dev", "test")}
    sizes = {"train": TRAIN_FACTS, "dev": DEV_FACTS, "test": TEST_FACTS}
    return Relation.of(whole.name, *(sample(usable[split], sizes[split]) for split in sizes)), templates


def ranks(outcomes: Sequence[Outcome]) -> dict[str, list[float | None]]:
    """Return rank and log-probability of each fact's y, in the order of the facts; None for what is infinite."""
    by_fact = sorted(outcomes, key=lambda outcome: (outcome.x, outcome.y))
    return {
        "rank": [outcome.rank if math.isfinite(outcome.rank) else None for outcome in by_fact],
        "log_p": [round(o.log_probability, 4) if math.isfinite(o.log_probability) else None for o in by_fact],
    }


def digest(x: str, y: str) -> str:
    """Return what names a fact in the results, which hold no facts themselves."""
    return hashlib.sha256(f"{x}\t{y}".encode()).hexdigest()[:12]


def scored_facts(mixture: Mixture, relation: Relation, split: SplitName = "test") -> dict[str, Any]:
    """Return the facts that can be asked, with the rank and log-probability of each.

    For whole answers, only whether y is the best one is kept; the rank of all others is None.
    """
    facts = AskedFacts(mixture, relation, split)
    if facts.answers.is_listed:
        outcomes = evaluate_split(mixture, relation, split=split).outcomes
        return {"xs": sorted((outcome.x, outcome.y) for outcome in outcomes), **ranks(outcomes)}
    found: list[tuple[str, str, int | None, float | None]] = []
    for number, fact in enumerate(facts.encoded.facts):
        one = facts.encoded.subset(facts.encoded.rows == number)
        ((ranking,), _) = facts.answers.rank(one, one.rows, relation.golds, 0)
        log_p = ranking.log_probability
        found.append((fact.x, fact.y, 1 if ranking.rank == 1 else None, round(log_p, 4) if log_p > -math.inf else None))
    found.sort(key=lambda row: row[:2])
    return {"xs": [row[:2] for row in found], "rank": [row[2] for row in found], "log_p": [row[3] for row in found]}


def tuned_cell(lm: Any, name: str, opening: str, answers: str) -> dict[str, Any]:
    """Score one relation with one opening: by hand, tuned, and the controls of the tuned prompt."""
    relation, templates = facts_of(lm, name, answers)
    asked = {"begin": "line-break", "answers": answers, "weighting": "static"}
    spec = MixtureSpec.model_validate({**asked, **OPENINGS[opening]})
    mixture = Mixture(lm, templates, spec, relation=relation)
    began = time.process_time()
    by_hand = scored_facts(mixture, relation)
    asking = time.process_time() - began
    if opening == "4 examples, held":
        in_opening = torch.arange(len(mixture.vectors)) < mixture.prompts[0].tokens.opening
        mixture.vectors.register_hook(lambda gradient: gradient.masked_fill(in_opening[:, None], 0.0))
    rate = SMALLER_STEPS[opening] * OF_WORDS * word_scale(lm) if opening in SMALLER_STEPS else None
    batch = max(1, FACTS_OF_STEP // len(mixture.prompts))
    began = time.process_time()
    train(mixture, relation, TrainingSpec(pairs=PAIRS, batch_facts=batch, vectors_rate=rate))
    tuning = time.process_time() - began
    tuned = scored_facts(mixture, relation)
    facts = AskedFacts(mixture, relation, "test")
    answering = facts.answers
    if isinstance(answering, ListedAnswers):
        priors = {MAJORITY: answering.majority(relation), PRIOR: answering.mean_prior(relation, most=XS_OF_PRIOR)}
    else:
        priors, _ = priors_of(answering, relation)
    controls = {control: ranks(facts.prior_outcomes(prior)) for control, prior in priors.items()}
    return {
        "facts": len(tuned["xs"]),
        "fact_digests": [digest(x, y) for x, y in tuned.pop("xs")],
        "opening_tokens": mixture.prompts[0].tokens.opening,
        "asking_cpu_seconds": round(asking, 1),
        "tuning_cpu_seconds": round(tuning, 1),
        "by hand": {key: by_hand[key] for key in ("rank", "log_p")},
        "tuned": tuned,
        **controls,
    }


def by_fact(lm: Any, relations: Sequence[str], openings: Sequence[str], answers: str) -> None:
    """Do the missing cells of by hand and tuned, relation by relation."""
    done = read_lines(TUNED)
    for name in relations:
        for opening in openings:
            asked = {"relation": name, "opening": opening, "answers": answers}
            if any(asked.items() <= line.items() for line in done):
                continue
            line = append_line(TUNED, {**asked, "pairs": PAIRS, **tuned_cell(lm, name, opening, answers)})
            scores = {k: sum(r == 1 for r in line[k]["rank"]) / line["facts"] for k in ("by hand", "tuned")}
            print(name, opening, answers, scores, line["tuning_cpu_seconds"], flush=True)


def main() -> None:
    """Do the missing cells."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("which", choices=["hard", "tuned", "steps", "twenty", "cost", "families", "facts"])
    parser.add_argument("--relations", nargs="*", default=TWENTY, help="of `facts`")
    parser.add_argument("--openings", nargs="*", choices=list(OPENINGS), default=list(OPENINGS)[:3], help="of `facts`")
    parser.add_argument("--answers", choices=["one-token", "any-length"], default="one-token", help="of `facts`")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.which == "families":
        families()
        return
    lm = load_lm("smollm2", device="cpu")
    if options.which == "cost":
        cost(lm)
        return
    if options.which == "facts":
        by_fact(lm, options.relations, options.openings, options.answers)
        return
    done = read_lines(CELLS)
    for name, change, pairs in cells(options.which):
        asked = {"relation": name, "mixture": change, "pairs": pairs}
        if not any(asked.items() <= line.items() for line in done):
            print(json.dumps(append_line(CELLS, {**asked, **cell(lm, name, change, pairs)})), flush=True)


if __name__ == "__main__":
    main()
