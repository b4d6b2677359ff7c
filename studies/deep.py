"""Deep prompts and layer-0 ones on SmolLM2: the study behind the step size of the deeper layers' perturbations.

    askwell lm pull smollm2
    ASKWELL_DATA=… python studies/deep.py            # continue, then write the table
    python studies/deep.py --page                      # only write the table, at the end of docs/findings/defaults.md

On T-REx relations whose tuned scores are reported nowhere else, one prompt (LAMA's, after a line break) is tuned after
four examples and after a lead-in, in one cycle over 400 pairs in steps of 16 facts, on one-token facts: at most 300
train, 100 dev and 200 test facts. One choice about the perturbations is varied at a time. Each line of
results/deep.jsonl is one run.
"""

import argparse
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import product
from statistics import fmean
from typing import Any

import torch
from lines import RESULTS, append_line, read_lines, sample
from pages import FINDINGS, fill
from pages import table as markdown

from askwell import Mixture, load_lm, train
from askwell.data.facts import Relation
from askwell.data.names import load_prompts, load_relation
from askwell.evaluation.examine import evaluate_split
from askwell.specs.mixture_spec import A_FACT, MixtureSpec
from askwell.specs.training_spec import TrainingSpec
from askwell.training import loop, optimiser
from askwell.training.optimiser import Rates

RUNS = RESULTS / "deep.jsonl"
RELATIONS = ("P364", "P1001", "P127", "P279")
OPENINGS: dict[str, dict[str, Any]] = {"4 examples": {"shots": 4}, "lead-in": {"lead_in": A_FACT}}
PAIRS, FACTS_OF_STEP = 400, 16
LAYER_0 = "layer 0"
CHOICES: dict[str, dict[str, Any]] = {
    LAYER_0: {},
    "0.02": {"of_hidden": 0.02},
    "0.01": {"of_hidden": 0.01},
    "0.005": {"of_hidden": 0.005},
    "0.02, but 0.002 at the last layer": {"of_hidden": 0.02, "last": 0.1},
    "0.02, decay 1e-4": {"of_hidden": 0.02, "l2": 1e-4},
}
"""What is varied: the step size of the perturbations, in standard deviations of their layer's output; a factor for that
of the last layer; and their decay."""


def run(lm: Any, name: str, opening: str, choice: str) -> dict[str, Any]:
    """Do one training run, and return its dev scores and the test scores of the state that is kept."""
    chosen = CHOICES[choice]
    whole = load_relation(f"trex_original/{name}")
    templates = load_prompts([f"trex/{name}"], relation=whole)
    plain = Mixture(lm, templates, MixtureSpec(begin="line-break", answers="one-token"))
    usable = {split: plain.encode(whole.split(split))[0].facts for split in ("train", "dev", "test")}
    of_split = [sample(usable[split], most) for split, most in (("train", 300), ("dev", 100), ("test", 200))]
    relation = Relation.of(whole.name, *of_split)
    asked = {"begin": "line-break", "answers": "one-token", "deep": choice != LAYER_0, **OPENINGS[opening]}
    mixture = Mixture(lm, templates, MixtureSpec.model_validate(asked), relation=relation)
    optimiser.OF_HIDDEN = chosen.get("of_hidden", optimiser.OF_HIDDEN)
    began = time.process_time()
    with _last_layer_scaled(chosen.get("last", 1.0)):
        spec = TrainingSpec(
            pairs=PAIRS, batch_facts=FACTS_OF_STEP, l2=chosen.get("l2", 0.0), fit_weights=False, threads=1
        )
        result = train(mixture, relation, spec)
    seconds = time.process_time() - began
    tested = evaluate_split(mixture, relation)
    added = sum(float(delta.detach().square().sum()) for delta in mixture.deltas.parameters())
    return {
        "relation": name,
        "opening": opening,
        "choice": choice,
        "dev": [[line.pairs, line.dev["P@1"], line.dev["log_loss"]] for line in result.history],
        "best_pairs": result.best.pairs,
        "test_P@1": tested.micro["P@1"],
        "test_log_loss": tested.log_loss,
        "facts": len(tested.outcomes),
        "added": added,
        "cpu_seconds": round(seconds, 1),
    }


@contextmanager
def _last_layer_scaled(factor: float) -> Generator[None]:
    """Scale the step size of the last layer's perturbations while the block lasts."""
    usual = loop.rates_of

    def scaled(*given: Any) -> Rates:
        rates = usual(*given)
        layers = {stack: [*rate[:-1], rate[-1] * factor] for stack, rate in rates.layers.items() if rate}
        return replace(rates, layers=layers)

    loop.rates_of = scaled  # ty: ignore[invalid-assignment]
    try:
        yield
    finally:
        loop.rates_of = usual


def table(records: Sequence[dict[str, Any]]) -> str:
    """Return a table for each opening: test scores by relation, and the means where all relations are done."""
    parts: list[str] = []
    for opening in OPENINGS:
        done = {(record["choice"], record["relation"]): record for record in records if record["opening"] == opening}
        names = [name for name in RELATIONS if (LAYER_0, name) in done]
        if not names:
            continue
        rows = []
        for choice in CHOICES:
            of_choice = [done.get((choice, name)) for name in names]
            if any(of_choice):
                whole = [record for record in of_choice if record is not None]
                mean = _cell(whole) if len(whole) == len(names) else "–"
                rows.append([choice, *("–" if record is None else _cell([record]) for record in of_choice), mean])
        head = f"After {'four examples' if opening == '4 examples' else 'the lead-in'}:"
        parts += [head, markdown(["perturbations", *names, "mean"], rows)]
    return "\n\n".join(parts)


def _cell(records: Sequence[dict[str, Any]]) -> str:
    dev = [min(line[2] for line in record["dev"]) for record in records]
    right, loss = (fmean(record[key] for record in records) for key in ("test_P@1", "test_log_loss"))
    return f"{right:.1f} / {loss:.2f} ({fmean(dev):.2f})"


def main() -> None:
    """Do the missing runs, relation by relation, then write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--relations", nargs="+", default=list(RELATIONS), choices=RELATIONS)
    parser.add_argument("--openings", nargs="+", default=list(OPENINGS), choices=list(OPENINGS))
    parser.add_argument("--choices", nargs="+", default=list(CHOICES), choices=list(CHOICES))
    parser.add_argument("--page", action="store_true", help="only write the table")
    options = parser.parse_args()
    torch.set_num_threads(1)
    done = read_lines(RUNS)
    wanted = product(options.relations, options.openings, options.choices)
    made = {(record["relation"], record["opening"], record["choice"]) for record in done}
    missing = [] if options.page else [one for one in wanted if one not in made]
    lm = load_lm("smollm2", device="cpu") if missing else None
    for name, opening, choice in missing:
        done.append(append_line(RUNS, run(lm, name, opening, choice)))
        print(done[-1], flush=True)
    fill(FINDINGS / "defaults.md", {"deep": table(done)})


if __name__ == "__main__":
    main()
