"""The study behind the run that ends by itself: when it ends, whether states or their means are scored, which is kept.

    python benchmarks/plateau_study.py            # go on with what is not done, then write docs/plateau.md
    python benchmarks/plateau_study.py --page     # write the page from what is done

On the relations of the study of defaults, runs with a constant step size are followed to their limit, and every
state, and the mean over the last steps, is scored on dev and on test. Every run is one line of results/plateau.jsonl.
Rules for ending a run and for keeping a state are then compared on these curves, without training again. Whole runs,
by default and by the cycle that was the default before, are lines of results/plateau_runs.jsonl.
"""

import argparse
import json
import math
import statistics
import sys
from collections.abc import Iterator, Sequence
from functools import cache, partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

from defaults_study import STUDIED, TESTBED  # noqa: E402

from askwell import Mixture, MixtureSpec, TrainingSpec, evaluate, load_lm, train  # noqa: E402
from askwell.data.facts import Relation  # noqa: E402
from askwell.data.names import read_prompts, read_relation  # noqa: E402
from askwell.evaluation.scoring import score_facts  # noqa: E402
from askwell.mixture.encode import encode_relation  # noqa: E402
from askwell.training.history import standard_error  # noqa: E402
from askwell.training.objective import Objective  # noqa: E402
from askwell.training.optimiser import (  # noqa: E402
    add_to_means,
    choose_tuned,
    optimizer_of,
    rates_of,
    step,
    tuned_by,
)
from askwell.training.schedule import PLATEAU_FALL, PLATEAU_LEAST, PLATEAU_MEAN, PLATEAU_WARM_UP  # noqa: E402

RUNS, WHOLE_RUNS = (HERE / "results" / f"{name}.jsonl" for name in ("plateau", "plateau_runs"))
PAGE = HERE.parent / "docs" / "plateau.md"
KINDS = {"single": (2816, 128, 32), "sixteen": (2048, 256, 2), "single, 16 facts": (2816, 128, 16)}
"""Pairs that are followed, pairs between two scores, and facts of a step: for one prompt with larger and with smaller
steps, and for up to sixteen prompts."""
OF_MIXTURES = ("testbed:causal", "testbed:bert")
"""The LMs on which up to sixteen prompts and whole runs are studied."""
WHOLE = [(prompts, recipe) for prompts in ("single", "sixteen") for recipe in ("plateau", "cycle")]
ALONG = {"single": (660, 1320, 2700), "single, 16 facts": (660, 1320, 2700), "sixteen": (520, 1040, 1560, 2060)}
"""The pairs at which a kind's curves are shown."""
Scores = list[float]
"""P@1 and log-loss on dev, P@1 and log-loss on test."""
Ending = tuple[str, int, float] | None
"""A rule for ending a run, its number of scores, and the fall that it asks for."""


def new_mixture(lm: Any, relation_name: str, kind: str) -> tuple[Relation, Mixture]:
    """The relation with as many facts as are taken, and one or up to sixteen prompts for it."""
    whole = read_relation(relation_name)
    taken = whole.train[:: max(1, -(-len(whole.train) // 300))]
    relation = Relation.of(whole.name, taken, whole.dev[:100], whole.test[:100])
    sources = ["testbed:single"] + ["testbed:paraphrased", "testbed:random"] * (kind == "sixteen")
    return relation, Mixture(lm, read_prompts(sources, relation=relation)[:16], MixtureSpec(answers="one-token"))


def curves(lm: Any, name: str, relation_name: str, kind: str) -> dict[str, Any]:
    """One run at a constant step size, and what its states and their means score along the way."""
    relation, mixture = new_mixture(lm, relation_name, kind)
    limit, between, batch = KINDS[kind]
    spec = TrainingSpec(threads=1, beta1=0.9)
    facts = encode_relation(mixture, relation)
    mixture.answer_kind = facts.kind
    choose_tuned(mixture, spec)
    train, dev, test = facts.need("train"), facts.need("dev"), facts.need("test")
    optimizer = optimizer_of(mixture, spec, rates_of(mixture, train, spec))
    if optimizer is None:
        raise RuntimeError("nothing is tuned by gradient")
    objective, tuned = Objective(mixture, train, "gradient", None), tuned_by(optimizer, mixture)
    prompts, batch = len(mixture.prompts), min(batch, len(train))
    steps, every = (max(1, round(pairs / (batch * prompts))) for pairs in (limit, between))

    def scores() -> Scores:
        of = [score_facts(mixture, split, relation) for split in (dev, test)]
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
    """A run without a budget, as `askwell train` makes it, and what its state scores on test."""
    relation, mixture = new_mixture(lm, relation_name, kind)
    beta1 = 0.9 if recipe == "cycle" else None  # the cycle as it was when it was the default
    result = train(mixture, relation, TrainingSpec(recipe=recipe, beta1=beta1, threads=1), progress=False)
    tested = evaluate(mixture, relation, progress=False)
    sizes = {"prompts": len(mixture.prompts), "pairs": result.pairs, "scores": len(result.history)}
    scores = {"P@1": tested.micro["P@1"], "log_loss": tested.log_loss}
    last = result.best is result.history[-1]
    return {"lm": name, "relation": relation_name, "kind": kind, "recipe": recipe, **sizes, **scores, "last": last}


def ended(points: Sequence[dict[str, Any]], scored: str, ending: Ending, least: int) -> tuple[int, list[Scores]]:
    """The pairs at which a run ends by a rule, and all its scores until then."""
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
    """The scores of the state with the lowest log-loss of those within this many standard errors, or one fact, of the
    best P@1."""
    highest = max(scores[0] for scores in history)
    enough = highest - max(errors * standard_error(highest, dev_facts), 100 / dev_facts if errors else 0) - 1e-9
    return min((scores for scores in history if scores[0] >= enough), key=lambda scores: scores[1])


def rows(records: Sequence[dict[str, Any]], rules: Sequence[tuple[str, Ending, float]]) -> Iterator[str]:
    """A row for each rule and LM: pairs, test P@1 and test log-loss as means over runs."""
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
        yield f"| {scored} | {ends} | {near} | " + " | ".join(cells) + " |"


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
FINDINGS = """
- One prompt: what counts is the number of steps, not that of facts in them. Steps of 16 facts are about as good after
  half the pairs as those of 32 (*along the way*; on testbed:causal log-loss is behind at first).
- A run is compared with itself after half of its pairs, not with the score before, nor with the lowest of all. The
  causal LM learns slowly and steadily: from score to score its log-loss falls so little that three flat scores ended
  runs too soon, and in steps of 32 facts its first 128 pairs find a good prior over answers on two of three relations,
  which is lost again before x is made use of. The masked LMs and the seq2seq one have most of what they get after a few
  hundred pairs, and end there by the same rule.
- The mean over the last steps is about as good as the last state, but its curve is smooth, so that runs that are still
  getting better are not ended by an accident. A decay of the step size is not needed.
- The state that is kept: within half a standard error, or one dev fact, of the highest P@1 on dev the log-loss decides,
  which costs 0.2 points of P@1 and takes 0.01 nats off the log-loss; the lowest log-loss of all costs a point.
- Mixtures: with sixteen prompts, P@1 has reached its level after 1,000 to 1,500 pairs; log-loss falls slowly from then
  on. All curves have Adam's β1 of 0.9; several prompts have 0.7 since, and fewer pairs at most ([why](defaults.md)).
- Five prompts and more are one cycle, with a dev score at its end and seldom before: scores in between cost time, and
  the last state is the one that is kept in 10 of 12 such runs (*whole runs*). All scores but the first together cost at
  most an eighth of the training, if they are more than one, and one score a twelfth, or 32 facts. That five
  prompts and more are one cycle was decided after some ten prompts on testbed:causal, ended by the same rule as one
  prompt, had lost 1.6 points of P@1 on the relations of the [speed page](speed.md).
"""
TITLES = {
    "single": "One prompt, steps of 32 facts",
    "single, 16 facts": "One prompt, steps of 16 facts",
    "sixteen": "Up to sixteen prompts, steps of two facts",
}


def along(records: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Rows of the curves: what the mean over the last steps scores on test after so many pairs, as a mean over runs."""
    for kind, limits in ALONG.items():
        for limit in limits:
            cells = []
            for name in TESTBED:
                of_lm = [record for record in records if (record["kind"], record["lm"]) == (kind, name)]
                at = [[point for point in record["points"] if point["pairs"] <= limit][-1] for record in of_lm]
                means = [statistics.mean(point["mean"][number] for point in at) for number in (2, 3)] if at else []
                cells.append(f"{means[0]:.1f} / {means[1]:.2f}" if means else "")
            yield f"| {TITLES[kind]} | {limit:,} | " + " | ".join(cells) + " |"


def of_whole_runs(records: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Rows of whole runs, as means over relations."""
    for name, (kind, recipe) in product(OF_MIXTURES, WHOLE):
        of = [run for run in records if (run["lm"], run["kind"], run["recipe"]) == (name, kind, recipe)]
        if not of:
            continue
        prompts = ", ".join(str(count) for count in sorted({run["prompts"] for run in of}))
        right, loss, pairs, scores = (
            statistics.mean(run[key] for run in of) for key in ("P@1", "log_loss", "pairs", "scores")
        )
        last = f"{sum(run['last'] for run in of)} of {len(of)}"
        yield f"| {name} | {prompts} | {recipe} | {right:.1f} | {loss:.2f} | {pairs:.0f} | {scores:.1f} | {last} |"


def page(records: Sequence[dict[str, Any]], whole_runs: Sequence[dict[str, Any]]) -> str:
    """The tables, with what was found."""
    lines = ["# The study of runs that end by themselves", ""]
    lines += [
        "Made by `python benchmarks/plateau_study.py` from `results/plateau.jsonl` and `plateau_runs.jsonl`, on the",
        "relations of the [study of defaults](defaults.md), with at most 300 train, 100 dev and 100 test facts and one",
        "seed. What was found:",
        "",
    ]
    lines += [FINDINGS.strip(), ""]
    lines += [
        "*Scored*: the state itself, or the mean over the last steps. *Ends*: when the log-loss is lower by less than",
        "this many nats than after half of the pairs, or after this many scores with a smaller fall; –: never. *Near*:",
        "how many standard errors below the highest P@1 on dev a state may be that is kept for its log-loss (or one",
        "fact, unless it is 0). Cells: test P@1 / test log-loss (pairs read), as means over three relations.",
        "",
    ]
    for kind, rules in RULES.items():
        of_kind = [record for record in records if record["kind"] == kind]
        lms = list(dict.fromkeys(record["lm"] for record in of_kind))
        lines += [f"## {TITLES[kind]}", ""]
        lines += ["| scored | ends | near | " + " | ".join([*lms, "all"]) + " |"]
        lines += ["|---|---|---:|" + "---:|" * (len(lms) + 1), *rows(of_kind, rules), ""]
    lines += ["## Along the way", ""]
    lines += ["Test P@1 / test log-loss of the mean over the last steps, at the last score within so many pairs.", ""]
    lines += ["| | pairs | " + " | ".join(TESTBED) + " |", "|---|---:|" + "---:|" * len(TESTBED), *along(records), ""]
    lines += ["## Whole runs", ""]
    lines += [
        "As `askwell train` makes them without a budget (plateau), and by the cycle that was the default before.",
        "*Last*: how often the last state that was scored on dev is the one that is kept.",
        "",
        "| LM | prompts | recipe | test P@1 | test log-loss | pairs read | dev scores | last |",
        "|---|---:|---|---:|---:|---:|---:|---:|",
        *of_whole_runs(whole_runs),
        "",
    ]
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> None:
    """Does what is not done yet, then writes the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--page", action="store_true", help="only write the page")
    only_page = parser.parse_args(arguments).page
    torch.set_num_threads(1)
    done, whole_runs = (
        [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
        for path in (RUNS, WHOLE_RUNS)
    )
    for name in () if only_page else TESTBED:
        lm = cache(partial(load_lm, name, device="cpu"))
        for relation in STUDIED:
            for kind in KINDS:
                known = any((r["lm"], r["relation"], r["kind"]) == (name, relation, kind) for r in done)
                if not known and (kind != "sixteen" or name in OF_MIXTURES):
                    done.append(_added(RUNS, curves(lm(), name, relation, kind)))
            for kind, recipe in WHOLE if name in OF_MIXTURES else ():
                run = name, relation, kind, recipe
                if not any((r["lm"], r["relation"], r["kind"], r["recipe"]) == run for r in whole_runs):
                    whole_runs.append(_added(WHOLE_RUNS, whole_run(lm(), *run)))
    PAGE.write_text(page(done, whole_runs), encoding="utf-8")


def _added(path: Path, record: dict[str, Any]) -> dict[str, Any]:
    """The record, after it was added to the file."""
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(record) + "\n")
    return record


if __name__ == "__main__":
    main()
