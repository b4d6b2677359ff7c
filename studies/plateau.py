"""The study behind runs that end by themselves: when they end, whether states or means are scored, which is kept.

    python studies/plateau.py            # continue, then write the tables of docs/findings/plateau.md
    python studies/plateau.py --page     # only write the tables

On the relations of the study of defaults, runs with a constant step size are followed to their limit. Each state, and
the mean over the last steps, is scored on dev and on test; each run is one line of results/plateau.jsonl. Rules for
ending a run and for keeping a state are then compared on these curves, without training again. Whole runs, with
today's default and with the cycle that was the default before, are lines of results/plateau_runs.jsonl.
"""

import argparse
import math
import statistics
from collections.abc import Iterator, Sequence
from functools import cache, partial
from itertools import product
from typing import Any

import numpy as np
import torch
from defaults import STUDIED, TESTBED
from lines import RESULTS, append_line, read_lines
from pages import FINDINGS, fill, table

from askwell import Mixture, MixtureSpec, TrainingSpec, evaluate, load_lm, train
from askwell.data.facts import Relation
from askwell.data.names import load_prompts, load_relation
from askwell.evaluation.scoring import score_facts
from askwell.training.history import standard_error
from askwell.training.loop import Objective
from askwell.training.optimiser import (
    add_to_means,
    choose_tuned,
    optimizer_of,
    rates_of,
    step,
    tuned_by,
)
from askwell.training.schedule import PLATEAU_FALL, PLATEAU_LEAST, PLATEAU_MEAN, PLATEAU_WARM_UP

RUNS, WHOLE_RUNS = (RESULTS / f"{name}.jsonl" for name in ("plateau", "plateau_runs"))
KINDS = {"single": (2816, 128, 32), "sixteen": (2048, 256, 2), "single, 16 facts": (2816, 128, 16)}
"""Pairs that are followed, pairs between two scores, and facts in a step: for one prompt with larger and with smaller
steps, and for up to sixteen prompts."""
OF_MIXTURES = ("testbed:causal", "testbed:bert")
"""The LMs on which up to sixteen prompts and whole runs are studied."""
WHOLE = [(prompts, recipe) for prompts in ("single", "sixteen") for recipe in ("plateau", "cycle")]
ALONG = {"single": (660, 1320, 2700), "single, 16 facts": (660, 1320, 2700), "sixteen": (520, 1040, 1560, 2060)}
"""The numbers of pairs at which each kind's curves are shown."""
Scores = list[float]
"""P@1 and log-loss on dev, P@1 and log-loss on test."""
Ending = tuple[str, int, float] | None
"""A rule for ending a run, its number of scores, and the fall that it requires."""


def new_mixture(lm: Any, relation_name: str, kind: str) -> tuple[Relation, Mixture]:
    """Return the relation with the facts that are used, and a mixture of one or up to sixteen prompts for it."""
    whole = load_relation(relation_name)
    taken = whole.train[:: max(1, -(-len(whole.train) // 300))]
    relation = Relation.of(whole.name, taken, whole.dev[:100], whole.test[:100])
    sources = ["testbed:single"] + ["testbed:paraphrased", "testbed:random"] * (kind == "sixteen")
    spec = MixtureSpec(answers="one-token", weighting="static")
    return relation, Mixture(lm, load_prompts(sources, relation=relation)[:16], spec)


def curves(lm: Any, name: str, relation_name: str, kind: str) -> dict[str, Any]:
    """Follow one run at a constant step size, and score its states and their means along the way."""
    relation, mixture = new_mixture(lm, relation_name, kind)
    limit, between, batch = KINDS[kind]
    spec = TrainingSpec(threads=1, beta1=0.9, fit_weights=False)
    facts = mixture.encode_relation(relation)
    mixture.answer_kind = facts.kind
    choose_tuned(mixture, spec)
    train, dev, test = facts.need("train"), facts.need("dev"), facts.need("test")
    optimizer = optimizer_of(mixture, spec, rates_of(mixture, train, spec))
    if optimizer is None:
        raise RuntimeError("nothing is tuned by gradient")
    objective, tuned = Objective(mixture.answering(kind=train.kind), train, "gradient"), tuned_by(optimizer, mixture)
    prompts, batch = len(mixture.prompts), min(batch, len(train))
    steps, every = (max(1, round(pairs / (batch * prompts))) for pairs in (limit, between))

    def scores() -> Scores:
        of = [score_facts(mixture.answering(kind=split.kind), split, relation) for split in (dev, test)]
        return [split[key] for split in of for key in ("P@1", "log_loss")]

    means: dict[str, torch.Tensor] = {}
    points: list[dict[str, Any]] = [{"pairs": 0, "raw": scores()}]
    order, epoch, read = [], 0, 0
    for number in range(steps):
        if len(order) == 0:
            order, epoch = np.random.default_rng([0, epoch]).permutation(len(train)), epoch + 1
        chosen, order = torch.from_numpy(order[:batch]), order[batch:]
        (objective.loss(chosen).to_minimise / len(chosen)).backward()
        step(optimizer, min(1.0, (number + 1) / PLATEAU_WARM_UP))
        add_to_means(means, tuned, (PLATEAU_MEAN + 1) / (PLATEAU_MEAN + number + 1))
        read += len(chosen) * prompts
        if (number + 1) % every == 0 or number + 1 == steps:
            now = {key: value.detach().clone() for key, value in mixture.state_dict().items()}
            point: dict[str, Any] = {"pairs": read, "raw": scores()}
            mixture.load_state_dict({**now, **means})
            points.append({**point, "mean": scores()})
            mixture.load_state_dict(now)
    sizes = {"prompts": prompts, "train": len(train), "dev": len(dev)}
    return {"lm": name, "relation": relation_name, "kind": kind, **sizes, "points": points}


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


def ended(points: Sequence[dict[str, Any]], scored: str, ending: Ending, least: int) -> tuple[int, list[Scores]]:
    """Return the pairs at which a rule ends a run, and all scores until then."""
    history: list[Scores] = []
    read: list[int] = []
    since = 0
    for point in points:
        history.append(point.get(scored, point["raw"]))
        read.append(point["pairs"])
        if len(history) == 1 or ending is None:
            continue
        rule, number, fall = ending
        since = 0 if history[-1][1] < history[-2][1] - fall else since + 1
        half = max(place for place, pairs in enumerate(read) if 2 * pairs <= read[-1])
        if rule == "scores" and since >= number:
            break
        if rule == "half" and read[-1] >= least and history[half][1] - history[-1][1] < fall:
            break
    return read[-1], history


def kept(history: Sequence[Scores], dev_facts: int, errors: float) -> Scores:
    """Return the scores of the state that is kept: the lowest log-loss among those whose P@1 is within this many
    standard errors, or one fact, of the best."""
    highest = max(scores[0] for scores in history)
    enough = highest - max(errors * standard_error(highest, dev_facts), 100 / dev_facts if errors else 0) - 1e-9
    return min((scores for scores in history if scores[0] >= enough), key=lambda scores: scores[1])


def rows(records: Sequence[dict[str, Any]], rules: Sequence[tuple[str, Ending, float]]) -> Iterator[list[str]]:
    """Yield a row for each rule: test P@1, test log-loss and pairs on each LM, as means over runs."""
    lms = list(dict.fromkeys(record["lm"] for record in records))
    for scored, ending, errors in rules:
        cells = []
        for name in (*lms, None):
            found = []
            for record in records:
                if name in (record["lm"], None):
                    least = PLATEAU_LEAST * KINDS[record["kind"]][2] * record["prompts"]
                    read, history = ended(record["points"], scored, ending, least)
                    found.append((read, *kept(history, record["dev"], errors)[2:]))
            pairs, right, loss = (statistics.mean(column) for column in zip(*found, strict=True))
            cells.append(f"{right:.1f} / {loss:.2f} ({pairs:.0f})")
        ends = (
            "–" if ending is None else f"half, {ending[2]:g}" if ending[0] == "half" else f"{ending[1]} × {ending[2]:g}"
        )
        near = f"{errors:g}" if errors < 99 else "all"
        yield [scored, ends, near, *cells]


RULES: dict[str, list[tuple[str, Ending, float]]] = {
    "single": [("raw", None, 0.5), ("mean", None, 0.5), ("mean", ("scores", 3, 0.02), 0.5)],
    "single, 16 facts": [
        ("raw", None, 0.5),
        ("mean", None, 0.5),
        *(("mean", ("scores", patience, 0.02), 0.5) for patience in (2, 3, 4)),
        *(("mean", ("half", 0, fall), 0.5) for fall in (0.0, 0.02, 0.04, PLATEAU_FALL, 0.1)),
        *(("mean", ("half", 0, PLATEAU_FALL), errors) for errors in (0.0, 1.0, math.inf)),
    ],
    "sixteen": [
        ("raw", None, 0.5),
        ("mean", None, 0.5),
        *(("mean", ("half", 0, fall), 0.5) for fall in (0.02, PLATEAU_FALL, 0.1)),
    ],
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
            for name in TESTBED:
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
    made["along the way"] = table(["", "pairs", *TESTBED], list(along(records)))
    header = ["LM", "prompts", "recipe", "test P@1", "test log-loss", "pairs read", "dev scores", "last"]
    made["whole runs"] = table(header, list(of_whole_runs(whole_runs)), names=3)
    return made


def main(arguments: list[str] | None = None) -> None:
    """Do the missing runs, then write the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--page", action="store_true", help="only write the tables")
    only_page = parser.parse_args(arguments).page
    torch.set_num_threads(1)
    done, whole_runs = read_lines(RUNS), read_lines(WHOLE_RUNS)
    for name in () if only_page else TESTBED:
        lm = cache(partial(load_lm, name, device="cpu"))
        for relation in STUDIED:
            for kind in KINDS:
                known = any((r["lm"], r["relation"], r["kind"]) == (name, relation, kind) for r in done)
                if not known and (kind != "sixteen" or name in OF_MIXTURES):
                    done.append(append_line(RUNS, curves(lm(), name, relation, kind)))
            for kind, recipe in WHOLE if name in OF_MIXTURES else ():
                run = name, relation, kind, recipe
                if not any((r["lm"], r["relation"], r["kind"], r["recipe"]) == run for r in whole_runs):
                    whole_runs.append(append_line(WHOLE_RUNS, whole_run(lm(), *run)))
    fill(FINDINGS / "plateau.md", tables(done, whole_runs))


if __name__ == "__main__":
    main()
