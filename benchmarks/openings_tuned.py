"""By hand and tuned, with and without examples, on the same facts of twenty relations of T-REx; one line for a cell.

    askwell lm pull smollm2
    ASKWELL_DATA=… python benchmarks/openings_tuned.py                                     # nothing, 8 and 4 examples
    ASKWELL_DATA=… python benchmarks/openings_tuned.py --openings "4 x 4 examples" --relations P19 P138
    ASKWELL_DATA=… python benchmarks/openings_tuned.py --answers any-length --relations P19

Every line of benchmarks/results/openings_tuned.jsonl is a relation with an opening: the prompt as it is, the same
prompt tuned, and the controls that look at no x, each with the rank and the log-probability of every test fact (of
whole answers only whether the rank is 1), so that any two can be compared fact by fact. Cells that are there are not
done again. docs/openings.md is written from it by benchmarks/openings_page.py.
"""

import argparse
import hashlib
import json
import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from openings_study import TWENTY
from shapes import sample

from askwell import Mixture, load_lm, train
from askwell.data.facts import Relation, SplitName
from askwell.data.names import read_prompts, read_relation
from askwell.evaluation.controls import MAJORITY, PRIOR, majority, prompt_prior
from askwell.evaluation.open_answers import OpenFacts
from askwell.evaluation.outcomes import Outcome
from askwell.evaluation.ranking import ListedFacts, asked_facts
from askwell.evaluation.scoring import evaluate
from askwell.mixture.encode import encode_facts
from askwell.specs.mixture_spec import A_FACT, NO_LEAD_IN, MixtureSpec
from askwell.specs.training_spec import TrainingSpec
from askwell.training.optimiser import OF_WORDS, word_scale

RESULTS = Path(__file__).parent / "results" / "openings_tuned.jsonl"
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
"""What comes before the sentence; examples that are held are not tuned, the words of the sentence are."""
STEPS = {"4 examples, half steps": 0.5, "4 examples, quarter steps": 0.25}
TRAIN_FACTS, DEV_FACTS, TEST_FACTS, XS_OF_PRIOR = 300, 60, 100, 100
PAIRS, FACTS_OF_STEP, FACTS_AT_ONCE = 400, 16, 32


def facts_of(lm: Any, name: str, answers: str) -> tuple[Relation, list[Any]]:
    """The relation with the facts that are used of it, and LAMA's template."""
    whole = read_relation(f"trex_original/{name}")
    templates = read_prompts([f"trex/{name}"], relation=whole)
    spec = MixtureSpec.model_validate({"begin": "line-break", "answers": answers, "lead_in": NO_LEAD_IN})
    plain = Mixture(lm, templates, spec)
    usable = {split: encode_facts(plain, whole.split(split))[0].facts for split in ("train", "dev", "test")}
    sizes = {"train": TRAIN_FACTS, "dev": DEV_FACTS, "test": TEST_FACTS}
    return Relation.of(whole.name, *(sample(usable[split], sizes[split]) for split in sizes)), templates


def ranks(outcomes: Sequence[Outcome]) -> dict[str, list[float | None]]:
    """The rank and the log-probability of each fact's y, in the order of the facts; None for what is infinite."""
    by_fact = sorted(outcomes, key=lambda outcome: (outcome.x, outcome.y))
    return {
        "rank": [outcome.rank if math.isfinite(outcome.rank) else None for outcome in by_fact],
        "log_p": [round(o.log_probability, 4) if math.isfinite(o.log_probability) else None for o in by_fact],
    }


def digest(x: str, y: str) -> str:
    """What names a fact in the results, which hold no facts themselves."""
    return hashlib.sha256(f"{x}\t{y}".encode()).hexdigest()[:12]


def scored_facts(mixture: Mixture, relation: Relation, split: SplitName = "test") -> dict[str, Any]:
    """The facts that can be asked, and what the mixture makes of each. Of whole answers it is only found out whether y
    is the best one, which takes a fraction of the time that its rank takes; the rank of all others is None."""
    facts = asked_facts(mixture, relation, split)
    if not isinstance(facts, OpenFacts):
        outcomes = evaluate(mixture, relation, split=split).outcomes
        return {"xs": sorted((outcome.x, outcome.y) for outcome in outcomes), **ranks(outcomes)}
    found: list[tuple[str, str, int | None, float | None]] = []
    for some in torch.arange(len(facts.facts)).split(FACTS_AT_ONCE):
        for number, is_best, log_p in zip(some.tolist(), *facts.is_best(some), strict=True):
            fact = facts.facts.facts[number]
            found.append((fact.x, fact.y, 1 if is_best else None, round(log_p, 4) if math.isfinite(log_p) else None))
    found.sort(key=lambda row: row[:2])
    return {"xs": [row[:2] for row in found], "rank": [row[2] for row in found], "log_p": [row[3] for row in found]}


def cell(lm: Any, name: str, opening: str, answers: str) -> dict[str, Any]:
    """One relation and opening: by hand, tuned, and the controls of the tuned prompt."""
    relation, templates = facts_of(lm, name, answers)
    spec = MixtureSpec.model_validate({"begin": "line-break", "answers": answers, **OPENINGS[opening]})
    mixture = Mixture(lm, templates, spec, relation=relation)
    began = time.process_time()
    by_hand = scored_facts(mixture, relation)
    asking = time.process_time() - began
    if opening == "4 examples, held":
        in_opening = torch.arange(len(mixture.vectors)) < mixture.prompts[0].tokens.opening
        mixture.vectors.register_hook(lambda gradient: gradient.masked_fill(in_opening[:, None], 0.0))
    rate = STEPS[opening] * OF_WORDS * word_scale(lm) if opening in STEPS else None
    batch = max(1, FACTS_OF_STEP // len(mixture.prompts))
    began = time.process_time()
    train(mixture, relation, TrainingSpec(pairs=PAIRS, batch_facts=batch, vectors_rate=rate))
    tuning = time.process_time() - began
    tuned = scored_facts(mixture, relation)
    facts = asked_facts(mixture, relation, "test")
    if isinstance(facts, ListedFacts):
        priors: dict[str, Any] = {
            MAJORITY: majority(facts.answers, relation),
            PRIOR: prompt_prior(facts.answers, relation, most=XS_OF_PRIOR),
        }
    else:
        priors, _ = facts.priors(0)
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


def read() -> list[dict[str, Any]]:
    """The cells that are done."""
    return [json.loads(line) for line in RESULTS.read_text(encoding="utf-8").splitlines()] if RESULTS.exists() else []


def main() -> None:
    """Does the cells that are not done, one relation after the other."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--relations", nargs="*", default=TWENTY)
    parser.add_argument("--openings", nargs="*", choices=list(OPENINGS), default=list(OPENINGS)[:3])
    parser.add_argument("--answers", choices=["one-token", "any-length"], default="one-token")
    options = parser.parse_args()
    torch.set_num_threads(1)
    done, lm = read(), load_lm("smollm2", device="cpu")
    for name in options.relations:
        for opening in options.openings:
            asked = {"relation": name, "opening": opening, "answers": options.answers}
            if any(asked.items() <= line.items() for line in done):
                continue
            line = {**asked, "pairs": PAIRS, **cell(lm, name, opening, options.answers)}
            with RESULTS.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line, ensure_ascii=False) + "\n")
            scores = {k: sum(r == 1 for r in line[k]["rank"]) / line["facts"] for k in ("by hand", "tuned")}
            print(name, opening, options.answers, scores, line["tuning_cpu_seconds"], flush=True)


if __name__ == "__main__":
    main()
