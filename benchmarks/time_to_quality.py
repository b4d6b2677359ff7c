"""Time to quality: askwell's default run, and the paper's procedure run to its end by the plain loop.

    python benchmarks/time_to_quality.py [--quick] [--out folder]    # finished runs are kept in build/time_to_quality
    python benchmarks/time_to_quality.py --seeds 0 --who askwell "plain loop, paper's procedure"

On testbed:bert, from 16 prompts that are not in its text (manual, paraphrased, random words) and from the one manual
prompt, for six relations, of which at most 300 train facts are taken (a few hundred is what people have), and three
seeds; answers are one token, as in the paper. All times are CPU seconds of one thread, dev scores included, loading and
test scores left out. Two controls separate engine, schedule and stopping: the plain loop at its best learning rate
stopped after one epoch, and askwell's engine under the paper's procedure. That learning rate is chosen on a relation
of the study of defaults. The one cycle that was the default before is measured as well. In the plain loop, all of the
LM's weights get gradients except its word vectors, as in the part on equal work.
"""

import argparse
import json
import math
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

import plain_loop  # noqa: E402
from contenders import plain_facts, plain_mixture  # noqa: E402
from report import merge_summary, write_part  # noqa: E402

from askwell import Mixture, MixtureSpec, TrainingSpec, load_lm, train  # noqa: E402
from askwell.data.facts import Relation  # noqa: E402
from askwell.data.testbed import testbed_prompts, testbed_relation  # noqa: E402
from askwell.evaluation.comparison import compare  # noqa: E402
from askwell.evaluation.examine import evaluate_split  # noqa: E402
from askwell.evaluation.outcomes import Outcome, read_outcomes, write_outcomes  # noqa: E402

RELATIONS = ("capital", "currency", "language", "country_of_airport", "country_of_city", "state_of_county")
TRAIN_FACTS, DEV_FACTS = 300, 100
RATE_RELATION = "dialling_code"
RATES = (1e-3, 3e-3, 1e-2, 3e-2, 1e-1)
PROMPTS = 16
KEPT = HERE.parent / "build/time_to_quality"
EPOCHS, PATIENCE, PAPER_RATE = 16, 4, 1e-3
Run = Callable[[Mixture, Relation], None]


def relation_of(name: str) -> Relation:
    """Return the relation with the facts that are used, evenly spaced in the sorted list."""
    whole = testbed_relation(name)
    train_facts, dev_facts = (
        facts[:: max(1, -(-len(facts) // most))] for facts, most in ((whole.train, TRAIN_FACTS), (whole.dev, DEV_FACTS))
    )
    return Relation.of(whole.name, train_facts, dev_facts, whole.test)


def new_mixture(lm: Any, name: str, seed: int, prompts: int) -> Mixture:
    """Return the mixture that all contenders start from."""
    kinds = ("single", "paraphrased", "random")
    templates = [template for kind in kinds for template in testbed_prompts(kind, name)][:prompts]
    return Mixture(lm, templates, MixtureSpec(seed=seed, answers="one-token", weighting="static"))


def plain_run(mixture: Mixture, relation: Relation, *, rate: float, epochs: int, patience: int) -> None:
    """Do EM by the plain loop until dev has not improved for this many epochs; leave the best state in the mixture."""
    model = mixture.lm.model.requires_grad_(True)
    model.get_input_embeddings().requires_grad_(False)
    facts, dev = (mixture.encode(relation.split(split))[0] for split in ("train", "dev"))
    plain, train_facts, dev_facts = plain_mixture(mixture), plain_facts(facts), plain_facts(dev)
    optimizer = torch.optim.Adam(plain_loop.tuned_parameters(plain), lr=rate)
    generator = torch.Generator().manual_seed(mixture.spec.seed)
    best, best_epoch, kept = (-1.0, -math.inf), 0, None
    for epoch in range(epochs + 1):
        if epoch:
            plain_loop.train_epoch(model, plain, train_facts, optimizer, generator)
        with torch.no_grad():
            table = plain_loop.evaluate(model, plain, dev_facts)
        golds = torch.tensor([fact.y for fact in dev_facts])
        right = (table.argmax(1) == golds).double().mean()
        score = float(right), float(table.gather(1, golds[:, None]).mean())
        if score > best:
            best, best_epoch = score, epoch
            kept = [vectors.detach().clone() for vectors in plain.vectors], plain.weights.detach().clone()
        if epoch - best_epoch >= patience:
            break
    model.requires_grad_(False)
    for parameter in model.parameters():
        parameter.grad = None
    if kept is None:
        raise RuntimeError("the plain loop has not scored any state")
    with torch.no_grad():
        mixture.vectors.copy_(torch.cat(kept[0]))
        mixture.weight_logits.copy_(kept[1].clamp(min=1e-30).log())


def contenders(one_epoch_rate: float) -> dict[str, Run]:
    """Return all contenders, by name."""
    paper = TrainingSpec(recipe="paper", method="em", threads=1)
    default = TrainingSpec(threads=1)
    cycle = TrainingSpec(recipe="cycle", beta1=0.9, threads=1)

    def ours(spec: TrainingSpec) -> Run:
        return lambda mixture, relation: (train(mixture, relation, spec), None)[1]

    return {
        "askwell": ours(default),
        "askwell, one cycle": ours(cycle),
        "plain loop, paper's procedure": lambda mixture, relation: plain_run(
            mixture, relation, rate=PAPER_RATE, epochs=EPOCHS, patience=PATIENCE
        ),
        "plain loop, one epoch": lambda mixture, relation: plain_run(
            mixture, relation, rate=one_epoch_rate, epochs=1, patience=1
        ),
        "askwell's engine, paper's procedure": ours(paper),
    }


def best_rate(lm: Any) -> float:
    """Return the learning rate with which one epoch of the plain loop has the lowest dev log-loss; saved once known."""
    kept = KEPT / "rate.json"
    if not kept.exists():
        relation, losses = relation_of(RATE_RELATION), {}
        for rate in RATES:
            mixture = new_mixture(lm, RATE_RELATION, 0, PROMPTS)
            plain_run(mixture, relation, rate=rate, epochs=1, patience=1)
            losses[rate] = evaluate_split(mixture, relation, split="dev").log_loss
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.write_text(json.dumps(min(losses, key=lambda rate: losses[rate])), encoding="utf-8")
    return json.loads(kept.read_text(encoding="utf-8"))


def timed(lm: Any, name: str, seed: int, prompts: int, who: str, run: Run) -> tuple[float, list[Outcome]]:
    """Return the CPU seconds and test outcomes of a run; saved once known."""
    folder = KEPT / f"{prompts} {who} {name} {seed}".replace(" ", "-").replace(",", "").replace("'", "")
    if not (folder / "seconds.json").exists():
        relation, mixture = relation_of(name), new_mixture(lm, name, seed, prompts)
        began = time.process_time()
        run(mixture, relation)
        seconds = time.process_time() - began
        folder.mkdir(parents=True, exist_ok=True)
        write_outcomes(evaluate_split(mixture, relation).outcomes, folder / "facts.parquet")
        (folder / "seconds.json").write_text(json.dumps(seconds), encoding="utf-8")
    seconds = json.loads((folder / "seconds.json").read_text(encoding="utf-8"))
    return seconds, list(read_outcomes(folder / "facts.parquet"))


def main(arguments: list[str] | None = None) -> None:
    """Run all contenders in turns; finished runs are saved, so that it can continue."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one relation, one seed")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--relations", nargs="+", default=list(RELATIONS), choices=RELATIONS)
    parser.add_argument("--who", nargs="+", default=list(contenders(0.0)), choices=list(contenders(0.0)))
    parser.add_argument("--out", type=Path, default=HERE / "results")
    options = parser.parse_args(arguments)
    if "askwell" not in options.who:
        parser.error("--who: the others are compared with askwell, so it must be among them")
    torch.set_num_threads(1)
    lm = load_lm("testbed:bert", device="cpu")
    names, seeds = (RELATIONS[-1:], (0,)) if options.quick else (tuple(options.relations), tuple(options.seeds))
    rate = best_rate(lm) if "plain loop, one epoch" in options.who else None
    chosen = {who: run for who, run in contenders(rate or PAPER_RATE).items() if who in options.who}
    cases = {prompts: Case(prompts) for prompts in (1, PROMPTS)}
    for seed in seeds:
        for name in names:
            for prompts, case in cases.items():
                for who, run in chosen.items():
                    took, tested = timed(lm, name, seed, prompts, who, run)
                    case.seconds.setdefault(who, {})[f"{name} {seed}"] = took
                    case.outcomes.setdefault(who, {}).setdefault(seed, []).extend(tested)
                    right = 100 * statistics.mean(outcome.rank <= 1 for outcome in tested)
                    print(name, seed, prompts, who, f"{took:.1f} s P@1 {right:.1f}", flush=True)
    write(options.out, cases, rate, names, seeds, summary=names == RELATIONS)


@dataclass
class Case:
    """What was measured from this many prompts."""

    prompts: int
    seconds: dict[str, dict[str, float]] = field(default_factory=dict)
    """CPU seconds of each contender's runs."""
    outcomes: dict[str, dict[int, list[Outcome]]] = field(default_factory=dict)
    """Each contender's outcomes of the test facts, by seed."""

    def rows(self) -> list[dict[str, Any]]:
        """Return a row for each contender, with its differences from askwell."""
        ours, rows = self.outcomes["askwell"], []
        for who, theirs in self.outcomes.items():
            every = [outcome for those in theirs.values() for outcome in those]
            seconds, own = self.seconds[who], self.seconds["askwell"]
            ratios = [seconds[key] / own[key] for key in own]
            row: dict[str, Any] = {
                "prompts": self.prompts,
                "who": who,
                "CPU seconds, all runs": sum(seconds.values()),
                "times askwell's, in all": sum(seconds.values()) / sum(own.values()),
                "times askwell's, median of runs": statistics.median(ratios),
                "least": min(ratios),
                "most": max(ratios),
                "test P@1": 100 * statistics.mean(outcome.rank <= 1 for outcome in every),
                "test log-loss": -statistics.mean(outcome.log_probability for outcome in every),
            }
            if who != "askwell":
                for metric in ("P@1", "log-loss"):
                    compared = compare(ours, theirs, metric=metric).micro
                    row[f"askwell's {metric} minus theirs"] = compared.difference
                    row[f"p ({metric})"] = compared.p
            rows.append(row)
        return rows


def write(
    folder: Path,
    cases: dict[int, Case],
    rate: float | None,
    names: tuple[str, ...],
    seeds: tuple[int, ...],
    *,
    summary: bool,
) -> None:
    """Write the table of all contenders, and the figures of the summary."""
    rows = {prompts: case.rows() for prompts, case in cases.items()}
    conditions: dict[str, Any] = {"lm": "testbed:bert", "relations": names, "seeds": seeds}
    if rate is not None:
        conditions["one_epoch_rate"] = rate
    write_part(folder, "time_to_quality", [row for those in rows.values() for row in those], **conditions)
    runs = {f"{prompts} prompts": case.seconds for prompts, case in cases.items()}
    (folder / "time_to_quality_runs.json").write_text(json.dumps(runs, indent=2) + "\n", encoding="utf-8")
    if summary:
        of = {prompts: {row.pop("who"): row for row in those} for prompts, those in rows.items()}
        against = {
            name: of[prompts][who]["times askwell's, in all"]
            for name, prompts, who in (
                ("against_paper", PROMPTS, "plain loop, paper's procedure"),
                ("against_paper_one_prompt", 1, "plain loop, paper's procedure"),
                ("against_one_epoch", PROMPTS, "plain loop, one epoch"),
            )
            if who in of[prompts]
        }
        merge_summary(folder, {"time_to_quality": {**against, **of[PROMPTS], "one_prompt": of[1]}})


if __name__ == "__main__":
    main()
