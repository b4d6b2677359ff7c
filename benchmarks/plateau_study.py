"""The study behind the run that ends by itself: when it ends, whether states or their means are scored, which is kept.

    python benchmarks/plateau_study.py            # go on with what is not done, then write docs/plateau.md

On the relations of the study of defaults, runs with a constant step size are followed to their limit, and every
state, and the mean over the last steps, is scored on dev and on test. Every run is one line of results/plateau.jsonl.
Rules for ending a run and for keeping a state are then compared on these curves, without training again.
"""

import json
import math
import statistics
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

from defaults_study import STUDIED, TESTBED  # noqa: E402

from askwell import Mixture, MixtureSpec, TrainingSpec, load_lm  # noqa: E402
from askwell.data.facts import Relation  # noqa: E402
from askwell.data.names import read_prompts, read_relation  # noqa: E402
from askwell.evaluation.evaluate import score_facts  # noqa: E402
from askwell.mixture.encode import encode_relation  # noqa: E402
from askwell.training.objective import Objective  # noqa: E402
from askwell.training.optimiser import (  # noqa: E402
    add_to_means,
    choose_tuned,
    optimizer_of,
    rates_of,
    step,
    tuned_by,
)
from askwell.training.result import standard_error  # noqa: E402
from askwell.training.schedule import PLATEAU_MEAN  # noqa: E402

RUNS, PAGE = HERE / "results" / "plateau.jsonl", HERE.parent / "docs" / "plateau.md"
LIMITS = {"single": (3072, 128), "sixteen": (2048, 256)}
"""Pairs that are followed, and pairs between two scores, for one prompt and for up to sixteen."""
WARM_UP, PAIRS_OF_STEP = 128, 32
Scores = list[float]
"""P@1 and log-loss on dev, P@1 and log-loss on test."""


def curves(lm: Any, name: str, relation_name: str, kind: str) -> dict[str, Any]:
    """One run at a constant step size, and what its states and their means score along the way."""
    whole = read_relation(relation_name)
    taken = whole.train[:: max(1, -(-len(whole.train) // 300))]
    relation = Relation.of(whole.name, taken, whole.dev[:100], whole.test[:100])
    sources = ["testbed:single"] + ["testbed:paraphrased", "testbed:random"] * (kind == "sixteen")
    mixture = Mixture(lm, read_prompts(sources, relation=relation)[:16], MixtureSpec(answers="one-token"))
    spec = TrainingSpec(threads=1)
    facts = encode_relation(mixture, relation)
    mixture.answer_kind = facts.kind
    choose_tuned(mixture, spec)
    train, dev, test = facts.need("train"), facts.need("dev"), facts.need("test")
    optimizer = optimizer_of(mixture, spec, rates_of(mixture, train, spec))
    if optimizer is None:
        raise RuntimeError("nothing is tuned by gradient")
    objective, tuned = Objective(mixture, train, "gradient", None), tuned_by(optimizer, mixture)
    prompts, (limit, between) = len(mixture.prompts), LIMITS[kind]
    batch = min(max(1, round(PAIRS_OF_STEP / prompts)), len(train))
    steps, every, warm_up = (max(1, round(pairs / (batch * prompts))) for pairs in (limit, between, WARM_UP))

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
        step(optimizer, min(1.0, (number + 1) / warm_up))
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


def ended(points: Sequence[dict[str, Any]], scored: str, patience: int, fall: float) -> tuple[int, list[Scores]]:
    """The pairs at which a run ends whose log-loss fell by less than that over this many scores, and all scores."""
    history: list[Scores] = []
    before, since, read = math.inf, 0, 0
    for point in points:
        history.append(point.get(scored, point["raw"]))
        read, loss = point["pairs"], history[-1][1]
        since, before = (0 if loss < before - fall else since + 1), loss
        if since >= patience:
            break
    return read, history


def kept(history: Sequence[Scores], dev_facts: int, errors: float) -> Scores:
    """The scores of the state with the lowest log-loss of those within this many standard errors of the best P@1."""
    highest = max(scores[0] for scores in history)
    enough = highest - errors * standard_error(highest, dev_facts)
    return min((scores for scores in history if scores[0] >= enough), key=lambda scores: scores[1])


def rows(records: Sequence[dict[str, Any]], rules: Sequence[tuple[str, int, float, float]]) -> Iterator[str]:
    """A row for each rule: pairs, test P@1 and test log-loss as means over runs."""
    for scored, patience, fall, errors in rules:
        found = []
        for record in records:
            read, history = ended(record["points"], scored, patience, fall)
            found.append((read, *kept(history, record["dev"], errors)[2:]))
        pairs, right, loss = (statistics.mean(column) for column in zip(*found, strict=True))
        waits = "–" if patience > 99 else f"{patience} × {fall:g}"
        near = f"{errors:g}" if errors < 99 else "all"
        yield f"| {scored} | {waits} | {near} | {pairs:.0f} | {right:.2f} | {loss:.3f} |"


RULES = {
    "single": [
        *((scored, 999, 0.0, 0.5) for scored in ("raw", "mean")),
        *((scored, patience, 0.02, 0.5) for scored in ("raw", "mean") for patience in (1, 2, 3)),
        *(("mean", 3, fall, 0.5) for fall in (0.005, 0.01, 0.03)),
        *(("mean", patience, 0.02, errors) for patience in (3, 999) for errors in (0.0, 1.0, math.inf)),
    ],
    "sixteen": [
        ("raw", 999, 0.0, 0.5),
        ("mean", 999, 0.0, 0.5),
        *(("mean", 2, fall, 0.5) for fall in (0.02, 0.04, 0.06, 0.08)),
        *(("mean", 2, 0.04, errors) for errors in (0.0, 1.0, math.inf)),
    ],
}
FINDINGS = """
- What ends a run is compared with the score before, not with the lowest of all: on the causal LM the first 128 pairs
  often find a good prior over answers, which is lost again before x is made use of.
- The mean over the last steps is about as good as the last state, but its curve is smooth, so that runs that are still
  getting better are not ended by an accident. A decay of the step size is not needed: at equal pairs, the mean over a
  constant step size is not behind the end of a cycle (compared once, beside these tables: testbed:causal, one prompt,
  1,500 pairs, 63.3 against 62.0).
- For one prompt, 3 scores of 128 pairs, each with a fall of less than 0.02 nats, end a run after some 1,000 pairs, 0.3
  points below the whole run, most of that on the causal LM; for mixtures the log-loss falls longer, and less is
  saved.
- The state that is kept: among all states within a whole standard error of the highest P@1 on dev, the one with the
  lowest log-loss loses 0.2 to 1.5 points of P@1 on test, so a whole error is too much; half of it costs 0.1 and still
  takes 0.02 nats off the log-loss. States of one run agree on most facts, so their difference is surer than either.
"""


def page(records: Sequence[dict[str, Any]]) -> str:
    """The tables, with what was found."""
    lines = ["# The study of runs that end by themselves", ""]
    lines += ["Made by `python benchmarks/plateau_study.py` from `results/plateau.jsonl`, on the relations of the"]
    lines += [
        "[study of defaults](defaults.md), with at most 300 train, 100 dev and 100 test facts. What was found:",
        "",
    ]
    lines += [FINDINGS.strip(), ""]
    for kind, rules in RULES.items():
        of_kind = [record for record in records if record["kind"] == kind]
        lms = ", ".join(dict.fromkeys(record["lm"] for record in of_kind))
        lines += [f"## {'One prompt' if kind == 'single' else 'Up to sixteen prompts'}", ""]
        lines += [f"{len(of_kind)} runs on {lms}. *Scored*: the state itself, or the mean over the last steps. *Ends*:"]
        lines += ["after this many scores with a fall of less than this many nats; –: never. *Near*: how many standard"]
        lines += ["errors below the highest P@1 on dev a state may be that is kept for its log-loss.", ""]
        lines += ["| scored | ends | near | pairs | test P@1 | test log-loss |", "|---|---|---:|---:|---:|---:|"]
        lines += [*rows(of_kind, rules), ""]
    return "\n".join(lines)


def main() -> None:
    """Does what is not done yet, then writes the page."""
    torch.set_num_threads(1)
    done = [json.loads(line) for line in RUNS.read_text().splitlines()] if RUNS.exists() else []
    for name in TESTBED:
        loaded = None
        for relation in STUDIED:
            for kind in LIMITS:
                if any((r["lm"], r["relation"], r["kind"]) == (name, relation, kind) for r in done):
                    continue
                loaded = loaded or load_lm(name, device="cpu")
                done.append(curves(loaded, name, relation, kind))
                with RUNS.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(done[-1]) + "\n")
    PAGE.write_text(page(done), encoding="utf-8")


if __name__ == "__main__":
    main()
