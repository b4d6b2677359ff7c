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
from askwell.training.schedule import PLATEAU_FALL, PLATEAU_LEAST, PLATEAU_MEAN, PLATEAU_WARM_UP  # noqa: E402

RUNS, PAGE = HERE / "results" / "plateau.jsonl", HERE.parent / "docs" / "plateau.md"
KINDS = {"single": (2816, 128, 32), "sixteen": (2048, 256, 2), "single, 16 facts": (2816, 128, 16)}
"""Pairs that are followed, pairs between two scores, and facts of a step: for one prompt with larger and with smaller
steps, and for up to sixteen prompts."""
Scores = list[float]
"""P@1 and log-loss on dev, P@1 and log-loss on test."""
Ending = tuple[str, int, float] | None
"""A rule for ending a run, its number of scores, and the fall that it asks for."""


def curves(lm: Any, name: str, relation_name: str, kind: str) -> dict[str, Any]:
    """One run at a constant step size, and what its states and their means score along the way."""
    whole = read_relation(relation_name)
    taken = whole.train[:: max(1, -(-len(whole.train) // 300))]
    relation = Relation.of(whole.name, taken, whole.dev[:100], whole.test[:100])
    sources = ["testbed:single"] + ["testbed:paraphrased", "testbed:random"] * (kind == "sixteen")
    limit, between, batch = KINDS[kind]
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
- One prompt: what counts is the number of steps, not that of facts in them. Steps of 16 facts are as good as those of
  32, so half the pairs do; steps of 8 go on in the same way, but cost more than half of those of 16. (Of one prompt on
  testbed:causal, two seeds, at a constant step size, beside these tables: 56.9 per cent, 2.65 nats after 1,320 pairs in
  steps of 32; 57.1 and 2.66 after 725 in steps of 16; 57.0 and 2.64 after 480 in steps of 8.)
- A run is compared with itself after half of its pairs, not with the score before, nor with the lowest of all. The
  causal LM learns slowly and steadily: from score to score its log-loss falls so little that three flat scores ended
  runs too soon, and its first 128 pairs often find a good prior over answers, which is lost again before x is made use
  of. The masked LMs and the seq2seq one have what they get after a few hundred pairs, and end there by the same rule.
- The mean over the last steps is about as good as the last state, but its curve is smooth, so that runs that are still
  getting better are not ended by an accident. A decay of the step size is not needed.
- The state that is kept: within half a standard error, or one dev fact, of the highest P@1 on dev the log-loss decides,
  which costs 0.2 points of P@1 and takes 0.01 nats off the log-loss; the lowest log-loss of all costs a point.
- Mixtures: with sixteen prompts, P@1 has reached its level after 1,000 to 1,500 pairs; log-loss falls slowly from then
  on (testbed:bert and testbed:causal, two seeds, one cycle: 2.74 and 2.30 after 2,128 pairs, 2.82 and 2.38 after 1,500,
  at a P@1 of 63.7 and 62.1 against 62.9 and 62.5). Steps on prompts drawn at random, with more facts each, were no
  better on the masked LM and 3 points worse on the causal one (59.2, 2.56).
- Where a run is one cycle, dev is scored at its end and seldom before: the last state was kept in 24 of 28 runs of
  sixteen prompts, and scores in between cost time. All scores but the first together cost at most an eighth of the
  training, if they are more than one, and one score a twelfth, or 32 facts. Sixteen prompts on testbed:bert (three
  relations, two seeds): 75.2 per cent and 2.74 nats in 1.89 CPU seconds, against 74.8, 2.78 and 2.30 with three scores
  of 48 facts; some ten prompts on testbed:causal (three relations, three seeds): 69.8 and 2.47 against 70.1 and 2.45,
  measured while nine prompts could still end by themselves.
- testbed:causal against the cycle that was the default before (three relations, three seeds, at most 300 test facts):
  one prompt 66.9 per cent and 2.64 nats after 1,964 pairs against 66.7 and 2.65 after 4,014; some ten prompts 69.8 and
  2.47 against 69.7 and 2.48. On these relations the rule loses nothing; an earlier limit of 1,400 × (1 + 1 / prompts)
  pairs did. Following the one prompt to 4,000 pairs gives 67.5 and 2.64, whatever ends it gives 66.9 to 67.5, and the
  last raw state 66.3 against 67.8 for the mean.
- Five prompts and more are one cycle. Ended by the same rule as one prompt, some ten prompts on testbed:causal stop
  while their log-loss is still falling: on the relations of the table on the [speed page](speed.md) they then read 0.64
  of the pairs and lost 1.6 points of P@1, which was seen there and not on the relations of this study.
- What did not help sixteen prompts on testbed:bert to the same log-loss in fewer pairs (three relations, one seed, test
  log-loss minus that of 2,050 pairs): 1,400 pairs +0.10; 1,400 with twice the step size +0.09; 1,400 with β₂ = 0.99
  +0.10; 1,024 in steps of one fact +0.12; 1,024 +0.17.
"""
TITLES = {
    "single": "One prompt, steps of 32 facts",
    "single, 16 facts": "One prompt, steps of 16 facts",
    "sixteen": "Up to sixteen prompts, steps of two facts",
}


def page(records: Sequence[dict[str, Any]]) -> str:
    """The tables, with what was found."""
    lines = ["# The study of runs that end by themselves", ""]
    lines += ["Made by `python benchmarks/plateau_study.py` from `results/plateau.jsonl`, on the relations of the"]
    lines += [
        "[study of defaults](defaults.md), with at most 300 train, 100 dev and 100 test facts. What was found:",
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
    return "\n".join(lines)


def main() -> None:
    """Does what is not done yet, then writes the page."""
    torch.set_num_threads(1)
    done = [json.loads(line) for line in RUNS.read_text().splitlines()] if RUNS.exists() else []
    for name in TESTBED:
        loaded = None
        for relation in STUDIED:
            for kind in KINDS:
                if any((r["lm"], r["relation"], r["kind"]) == (name, relation, kind) for r in done):
                    continue
                loaded = loaded or load_lm(name, device="cpu")
                done.append(curves(loaded, name, relation, kind))
                with RUNS.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(done[-1]) + "\n")
    PAGE.write_text(page(done), encoding="utf-8")


if __name__ == "__main__":
    main()
