"""The study behind runs that end by themselves: when they end, whether states or means are scored, which is kept.

    python studies/plateau.py            # continue, then write the tables of docs/findings/plateau.md
    python studies/plateau.py --page     # only write the tables

On relations that defaults are chosen on, runs with a constant step size are followed to their limit. Each state (on the
testbed), and the mean over the last steps, is scored on dev and on test; each run is one line of
results/plateau.jsonl. Rules for ending a run and for keeping a state are then compared on these curves, without
training again. Whole runs, with today's default and with the cycle that was the default before, are lines of
results/plateau_runs.jsonl. SmolLM2 needs T-REx's facts (ASKWELL_DATA).
"""

import argparse
import math
import statistics
from collections.abc import Iterator, Sequence
from functools import cache, partial
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import torch
from defaults import STUDIED, TESTBED
from lines import RESULTS, append_line, read_lines
from pages import FINDINGS, fill, table

from askwell import Mixture, TrainingSpec, evaluate, load_lm, train
from askwell.data.facts import Relation
from askwell.data.names import load_prompts, load_relation
from askwell.data.split import sample
from askwell.evaluation.scoring import score_each
from askwell.training.history import gain_over, standard_error
from askwell.training.loop import Objective, spread
from askwell.training.optimiser import (
    add_to_means,
    choose_tuned,
    optimizer_of,
    rates_of,
    step,
    tuned_by,
)
from askwell.training.schedule import PLATEAU_FALL, PLATEAU_LEAST, PLATEAU_MEAN, PLATEAU_WARM_UP, scored_dev_facts

RUNS, WHOLE_RUNS = (RESULTS / f"{name}.jsonl" for name in ("plateau", "plateau_runs"))
KINDS = {"single": (2816, 128, 32), "sixteen": (2048, 256, 2), "single, 16 facts": (2816, 128, 16)}
"""Pairs that are followed, pairs between two scores, and facts in a step: for one prompt with larger and with smaller
steps, and for up to sixteen prompts."""
SMOLLM2, OF_SMOLLM2 = "smollm2", tuple(f"trex_original/{name}" for name in ("P279", "P127", "P1001", "P364", "P30"))
"""The real LM, and its relations; on it, one prompt is followed, with seeds that draw facts, too."""
SEEDS = {SMOLLM2: (0, 1)}
OF_MIXTURES = ("testbed:causal", "testbed:bert")
"""The LMs on which up to sixteen prompts and whole runs are studied."""
WHOLE = [(prompts, recipe) for prompts in ("single", "sixteen") for recipe in ("plateau", "cycle")]
ALONG = {"single": (660, 1320, 2700), "single, 16 facts": (660, 1320, 2700), "sixteen": (520, 1040, 1560, 2060)}
"""The numbers of pairs at which each kind's curves are shown."""
Scores = list[float]
"""P@1 and log-loss on dev, P@1 and log-loss on test."""
Rule = tuple[str, "Ending | None", float]
"""What is scored, how the run ends, and how many standard errors below the best P@1 a state may be to be kept."""


class Ending(NamedTuple):
    """A rule for ending a run."""

    fall: float
    """The nats by which dev's log-loss must have fallen for the run to go on: since half of its pairs, or, with a
    number of scores, from one score to the next."""
    least: int = PLATEAU_LEAST
    """Steps before which no run ends."""
    errors: float = 0
    """How many of its standard errors are added to the fall."""
    scores: int | None = None
    """The number of scores without such a fall that end a run."""

    @property
    def text(self) -> str:
        """The rule in a table."""
        if self.scores:
            return f"{self.scores} × {self.fall:g}"
        return f"half, {self.fall:g}{f' - {self.errors:g} SE' if self.errors else ''}, from step {self.least}"


def new_mixture(lm: Any, relation_name: str, kind: str, seed: int = 0) -> tuple[Relation, Mixture]:
    """Return the relation with the facts that are used, and a mixture of one or up to sixteen prompts for it."""
    whole = load_relation(relation_name)
    if relation_name in OF_SMOLLM2:
        relation = sample(whole, train=300, dev=100, test=150, seed=seed)
        sources = [relation_name.replace("trex_original", "trex")]
    else:
        taken = whole.train[:: max(1, -(-len(whole.train) // 300))]
        relation = Relation.of(whole.name, taken, whole.dev[:100], whole.test[:100])
        sources = ["testbed:single"] + ["testbed:paraphrased", "testbed:random"] * (kind == "sixteen")
    prompts = load_prompts(sources, relation=relation)[:16]
    weighting = "static"
    return relation, Mixture(lm, prompts, answers="one-token", weighting=weighting, seed=seed, relation=relation)


def curves(lm: Any, name: str, relation_name: str, kind: str, seed: int) -> dict[str, Any]:
    """Follow one run at a constant step size, and score its states and their means along the way."""
    relation, mixture = new_mixture(lm, relation_name, kind, seed)
    limit, between, batch = KINDS[kind]
    spec = TrainingSpec(threads=1, fit_weights=False)
    facts = mixture.encode_relation(relation)
    mixture.answer_kind = facts.kind
    choose_tuned(mixture, spec)
    train, dev, test = facts.need("train"), facts.need("dev"), facts.need("test")
    prompts = len(mixture.prompts)
    dev = spread(dev, scored_dev_facts(spec, fact_count=len(train), dev_facts=len(dev), prompts=prompts))
    optimizer = optimizer_of(mixture, spec, rates_of(mixture, train, spec))
    if optimizer is None:
        raise RuntimeError("nothing is tuned by gradient")
    objective, tuned = Objective(mixture.answering(kind=train.kind), train, "gradient"), tuned_by(optimizer, mixture)
    batch = min(batch, len(train))
    steps, every = (max(1, round(pairs / (batch * prompts))) for pairs in (limit, between))

    def scores() -> tuple[Scores, list[float]]:
        (on_dev, losses), (on_test, _) = (score_each(mixture.answering(), split, relation) for split in (dev, test))
        of = [on[key] for on in (on_dev, on_test) for key in ("P@1", "log_loss")]
        return [round(score, 4) for score in of], [round(loss, 3) for loss in losses]

    def point(pairs: int) -> dict[str, Any]:
        found, losses = scores()
        return {"pairs": pairs, "mean": found, "losses": losses}

    means: dict[str, torch.Tensor] = {}
    points = [point(0)]
    order, epoch, read = [], 0, 0
    for number in range(steps):
        if len(order) == 0:
            order, epoch = np.random.default_rng([seed, epoch]).permutation(len(train)), epoch + 1
        chosen, order = torch.from_numpy(order[:batch]), order[batch:]
        (objective.loss(chosen).to_minimise / len(chosen)).backward()
        step(optimizer, min(1.0, (number + 1) / PLATEAU_WARM_UP))
        add_to_means(means, tuned, (PLATEAU_MEAN + 1) / (PLATEAU_MEAN + number + 1))
        read += len(chosen) * prompts
        if (number + 1) % every == 0 or number + 1 == steps:
            now = {key: value.detach().clone() for key, value in mixture.state_dict().items()}
            raw = {} if name == SMOLLM2 else {"raw": scores()[0]}
            mixture.load_state_dict({**now, **means})
            points.append(point(read) | raw)
            mixture.load_state_dict(now)
            print(f"{name} {relation_name} {kind} {seed}: {read} pairs, {points[-1]['mean']}", flush=True)
    sizes = {"prompts": prompts, "train": len(train), "dev": len(dev)}
    return {"lm": name, "relation": relation_name, "kind": kind, "seed": seed, **sizes, "points": points}


def whole_run(lm: Any, name: str, relation_name: str, kind: str, recipe: Any) -> dict[str, Any]:
    """Do a run without a budget, as `askwell train` does it, and score on test the state that it keeps."""
    relation, mixture = new_mixture(lm, relation_name, kind)
    beta1 = 0.9 if recipe == "cycle" else None  # as it was when the cycle was the default
    result = train(
        mixture, relation, TrainingSpec(recipe=recipe, beta1=beta1, fit_weights=False, threads=1), progress=False
    )
    tested = evaluate(mixture, relation, progress=False)
    sizes = {"prompts": len(mixture.prompts), "pairs": result.pairs, "scores": len(result.history)}
    scores = {"P@1": tested.micro["P@1"], "log_loss": tested.log_loss}
    last = result.best is result.history[-1]
    return {"lm": name, "relation": relation_name, "kind": kind, "recipe": recipe, **sizes, **scores, "last": last}


def ended(
    points: Sequence[dict[str, Any]], scored: str, ending: Ending | None, of_step: int
) -> tuple[int, list[Scores]]:
    """Return the pairs at which a rule ends a run with this many pairs in a step, and all scores until then."""
    history: list[Scores] = []
    since = 0
    for number, point in enumerate(points):
        history.append(point.get(scored, point["mean"]))
        if number == 0 or ending is None:
            continue
        since = 0 if history[-1][1] < history[-2][1] - ending.fall else since + 1
        if ending.scores:
            is_over = since >= ending.scores
        else:
            enough = point["pairs"] >= ending.least * of_step
            is_over = enough and most_fall(points[: number + 1], ending.errors) < ending.fall
        if is_over:
            break
    return point["pairs"], history


def most_fall(points: Sequence[dict[str, Any]], errors: float) -> float:
    """Return how far dev's log-loss has fallen since half of the pairs, and this many standard errors more."""
    half = [point for point in points if 2 * point["pairs"] <= points[-1]["pairs"]][-1]
    gain = gain_over(half["losses"], points[-1]["losses"])
    return gain[0] + errors * gain[1] if gain else math.inf


def kept(history: Sequence[Scores], dev_facts: int, errors: float) -> Scores:
    """Return the scores of the state that is kept: the lowest log-loss among those whose P@1 is within this many
    standard errors, or one fact, of the best."""
    highest = max(scores[0] for scores in history)
    enough = highest - max(errors * standard_error(highest, dev_facts), 100 / dev_facts if errors else 0) - 1e-9
    return min((scores for scores in history if scores[0] >= enough), key=lambda scores: scores[1])


def rows(records: Sequence[dict[str, Any]], rules: Sequence[Rule]) -> Iterator[list[str]]:
    """Yield a row for each rule: test P@1, test log-loss and pairs on each LM, as means over runs."""
    lms = list(dict.fromkeys(record["lm"] for record in records))
    for scored, ending, errors in rules:
        cells = []
        for name in (*lms, None):
            of_lm = [record for record in records if name in (record["lm"], None)]
            if any(scored not in record["points"][-1] for record in of_lm):
                cells.append("")
                continue
            found = []
            for record in of_lm:
                of_step = min(KINDS[record["kind"]][2], record["train"]) * record["prompts"]
                read, history = ended(record["points"], scored, ending, of_step)
                found.append((read, *kept(history, record["dev"], errors)[2:]))
            pairs, right, loss = (statistics.mean(column) for column in zip(*found, strict=True))
            cells.append(f"{right:.1f} / {loss:.2f} ({pairs:.0f})")
        yield [scored, ending.text if ending else "–", f"{errors:g}" if errors < math.inf else "all", *cells]


TODAY = Ending(PLATEAU_FALL)
NEVER: list[Rule] = [("raw", None, 0.5), ("mean", None, 0.5)]
RULES: dict[str, list[Rule]] = {
    "single": [*NEVER, ("mean", Ending(0.02, scores=3), 0.5), ("mean", TODAY, 0.5)],
    "single, 16 facts": [
        *NEVER,
        *(("mean", Ending(0.02, scores=patience), 0.5) for patience in (2, 3, 4)),
        *(("mean", Ending(fall), 0.5) for fall in (0.0, 0.02, PLATEAU_FALL, 0.06, 0.1)),
        *(("mean", Ending(PLATEAU_FALL, least), 0.5) for least in (12, 24, 32, 64, 80)),
        ("mean", Ending(0.06, 12), 0.5),
        ("mean", Ending(PLATEAU_FALL, errors=1), 0.5),
        ("mean", Ending(0.06, 12, errors=1), 0.5),
        *(("mean", TODAY, errors) for errors in (0.0, 1.0, math.inf)),
    ],
    "sixteen": [*NEVER, *(("mean", Ending(fall), 0.5) for fall in (0.02, PLATEAU_FALL, 0.1))],
}
TITLES = {
    "single": "One prompt, steps of 32 facts",
    "single, 16 facts": "One prompt, steps of 16 facts",
    "sixteen": "Up to sixteen prompts, steps of two facts",
}


def along(records: Sequence[dict[str, Any]]) -> Iterator[list[str]]:
    """Yield what the mean over the last steps scores on test after so many pairs, as a mean over runs."""
    for kind, limits in ALONG.items():
        for limit in limits:
            cells = []
            for name in (*TESTBED, SMOLLM2):
                of_lm = [record for record in records if (record["kind"], record["lm"]) == (kind, name)]
                at = [[point for point in record["points"] if point["pairs"] <= limit][-1] for record in of_lm]
                means = [statistics.mean(point["mean"][number] for point in at) for number in (2, 3)] if at else []
                cells.append(f"{means[0]:.1f} / {means[1]:.2f}" if means else "")
            yield [TITLES[kind], f"{limit:,}", *cells]


def of_whole_runs(records: Sequence[dict[str, Any]]) -> Iterator[list[str]]:
    """Yield rows of whole runs, as means over relations."""
    for name, (kind, recipe) in product(OF_MIXTURES, WHOLE):
        of = [run for run in records if (run["lm"], run["kind"], run["recipe"]) == (name, kind, recipe)]
        if not of:
            continue
        prompts = ", ".join(str(count) for count in sorted({run["prompts"] for run in of}))
        right, loss, pairs, scores = (
            statistics.mean(run[key] for run in of) for key in ("P@1", "log_loss", "pairs", "scores")
        )
        last = f"{sum(run['last'] for run in of)} of {len(of)}"
        yield [name, prompts, recipe, f"{right:.1f}", f"{loss:.2f}", f"{pairs:.0f}", f"{scores:.1f}", last]


def tables(records: Sequence[dict[str, Any]], whole_runs: Sequence[dict[str, Any]]) -> dict[str, str]:
    """Return the tables of the page, by the name of their place."""
    made = {}
    for kind, rules in RULES.items():
        of_kind = [record for record in records if record["kind"] == kind]
        lms = list(dict.fromkeys(record["lm"] for record in of_kind))
        made[kind] = table(["scored", "ends", "near", *lms, "all"], list(rows(of_kind, rules)), names=2)
    made["along the way"] = table(["", "pairs", *TESTBED, SMOLLM2], list(along(records)))
    header = ["LM", "prompts", "recipe", "test P@1", "test log-loss", "pairs read", "dev scores", "last"]
    made["whole runs"] = table(header, list(of_whole_runs(whole_runs)), names=3)
    return made


def main(arguments: list[str] | None = None) -> None:
    """Do the missing runs, then write the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--page", action="store_true", help="only write the tables")
    parser.add_argument("--lms", nargs="*", default=[SMOLLM2, *TESTBED], help="the LMs whose missing runs are done")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    for name in () if options.page else options.lms:
        lm = cache(partial(load_lm, name, device="cpu"))
        for run in cells(name):
            done = ((line["relation"], line["kind"], line["seed"]) for line in read_lines(RUNS) if line["lm"] == name)
            if run not in done:
                append_line(RUNS, curves(lm(), name, *run))
        for relation, (kind, recipe) in product(STUDIED, WHOLE) if name in OF_MIXTURES else ():
            run = name, relation, kind, recipe
            if not any((r["lm"], r["relation"], r["kind"], r["recipe"]) == run for r in read_lines(WHOLE_RUNS)):
                append_line(WHOLE_RUNS, whole_run(lm(), *run))
    fill(FINDINGS / "plateau.md", tables(read_lines(RUNS), read_lines(WHOLE_RUNS)))


def cells(name: str) -> Iterator[tuple[str, str, int]]:
    """Yield the relations, kinds of mixtures, and seeds that are followed on an LM."""
    for seed in SEEDS.get(name, (0,)):
        for relation in OF_SMOLLM2 if name == SMOLLM2 else STUDIED:
            for kind in ["single, 16 facts"] if name == SMOLLM2 else KINDS:
                if kind != "sixteen" or name in OF_MIXTURES:
                    yield relation, kind, seed


if __name__ == "__main__":
    main()
