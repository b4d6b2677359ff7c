"""askwell compared with PEFT's prompt tuning: the same LM, train facts, test facts and number of pairs.

    pip install 'askwell[peft]'; askwell lm pull smollm2
    ASKWELL_DATA=… python studies/beside_peft.py --pairs 400 P176 P138 P19
    ASKWELL_DATA=… python studies/beside_peft.py --answers any-length --rates 0.03 --pairs 400 P176 P138
    ASKWELL_DATA=… python studies/beside_peft.py --steps 3 --pairs 96 P176 P19   # pairs per second, in turns
    python studies/beside_peft.py --page                                         # write docs/findings/peft.md

Each line of results/peft.jsonl is one run; what has been done is not done again.

PEFT tunes eight free vectors before the sentence, initialised from a text, with AdamW under one cycle, as its users do:
padded batches through the public model, loss on y's tokens. It is run with three rates, and the one with the lowest dev
log-loss counts. Its vectors are then put before the same sentence in a mixture, so that both are asked the same test
facts and scored by the same code. Its seconds are those of its steps alone; askwell's include the scores on dev.
"""

import argparse
import json
import math
import os
import random
import time
from collections.abc import Sequence
from statistics import fmean, median
from typing import Any

import torch
from lines import RESULTS, append_line, read_lines, sample
from openings import scored_facts
from pages import FINDINGS, draw_gaps, fill
from pages import table as markdown
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from askwell import Mixture, load_lm, train
from askwell.data.facts import Fact, Relation
from askwell.data.names import load_prompts, load_relation
from askwell.data.templates import Template
from askwell.lms.frozen import FrozenLM
from askwell.lms.tokenisation import Place
from askwell.specs.mixture_spec import A_FACT, MixtureSpec
from askwell.specs.training_spec import TrainingSpec
from askwell.training.history import TrainingProgress
from askwell.views.charts import Gap

RUNS, STEPS = (RESULTS / f"{name}.jsonl" for name in ("peft", "peft_steps"))
WORDS, VIRTUAL_TOKENS, BATCH = "Here is a fact about the world:", 8, 32
RATES = (3e-3, 1e-2, 3e-2)
PEFT, DEFAULT = "PEFT, 8 virtual tokens", "askwell, 4 examples (its default)"
IN_FRONT: dict[str, Any] = {"prefix": VIRTUAL_TOKENS, "prefix_words": WORDS, "begin": "nothing"}
OURS: dict[str, dict[str, Any]] = {
    "askwell, lead-in": {"lead_in": A_FACT, "begin": "line-break"},
    "askwell, the same 8 vectors": IN_FRONT,
    "askwell, no opening": {"begin": "line-break"},
    DEFAULT: {"shots": 4, "begin": "line-break"},
}
TRAIN_FACTS, DEV_FACTS, TEST_FACTS = 300, 60, 150


def sentence(
    lm: FrozenLM, template: Template, fact: Fact, *, whole: bool, front: str = ""
) -> tuple[list[int], list[int]]:
    """Return the tokens up to y, which can begin with lines of text, and those of y, with what follows it in the
    template if whole answers are learned."""
    before, after = template.text.replace("[X]", fact.x).split("[Y]")
    y = lm.wording.encode(fact.y, Place.SPACED)
    follows = lm.wording.encode(after, Place.GLUED) if after else [lm.special.text_end]
    text = f"{front or ' '}{before.rstrip()}"
    return lm.wording.encode(text, Place.GLUED), [*y, *(follows[:1] if whole else [])]


def peft_model(lm: FrozenLM) -> Any:
    """Return the public model with PEFT's free vectors before every text, initialised from words."""
    from peft import PromptTuningConfig, TaskType, get_peft_model

    config = PromptTuningConfig(task_type=TaskType.CAUSAL_LM, num_virtual_tokens=VIRTUAL_TOKENS)
    model: Any = get_peft_model(lm.model, config)
    with torch.no_grad():
        model.prompt_encoder["default"].embedding.weight.copy_(lm.word_vectors(torch.tensor(prompt_ids(lm))))
    return model


def prompt_ids(lm: FrozenLM) -> list[int]:
    """Return the tokens that PEFT's vectors start from, repeated until there are enough, as PEFT itself does it."""
    return (lm.wording.encode(WORDS, Place.GLUED) * VIRTUAL_TOKENS)[:VIRTUAL_TOKENS]


def tune_peft(
    lm: FrozenLM, template: Template, facts: Sequence[Fact], pairs: int, rate: float, *, whole: bool
) -> tuple[Tensor, float]:
    """Tune free vectors in one cycle over this many pairs; return them and the CPU seconds that it took."""
    model = peft_model(lm)
    vectors = model.prompt_encoder["default"].embedding.weight
    rows = [sentence(lm, template, fact, whole=whole) for fact in facts]
    seconds = tune(model, rows, pairs, rate)
    return vectors.detach().clone(), seconds


def tune(model: Any, rows: Sequence[tuple[list[int], list[int]]], pairs: int, rate: float) -> float:
    """Tune what is tuned of a model in one cycle over this many pairs, as PEFT's users do; return the CPU seconds."""
    order = random.Random(0)
    numbers: list[int] = []
    while len(numbers) < pairs:
        numbers += order.sample(range(len(rows)), len(rows))
    steps = [numbers[start : start + BATCH] for start in range(0, pairs, BATCH)]
    optimizer = torch.optim.AdamW([one for one in model.parameters() if one.requires_grad], lr=rate)
    # A tenth of the steps up, the others down; not from 0 on, so that no step is wasted.
    growing, count = max(1, len(steps) // 10), len(steps)
    rise_and_fall = lambda step: min((step + 1) / growing, (count - step) / max(1, count - growing))  # noqa: E731
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, rise_and_fall)
    began = time.process_time()
    for step in steps:
        ids = [torch.tensor(rows[n][0] + rows[n][1]) for n in step]
        labels = [torch.tensor([-100] * len(rows[n][0]) + rows[n][1]) for n in step]
        batch = {
            "input_ids": pad_sequence(ids, batch_first=True, padding_value=0),
            "attention_mask": pad_sequence([torch.ones_like(of) for of in ids], batch_first=True),
            "labels": pad_sequence(labels, batch_first=True, padding_value=-100),
        }
        model(**batch).loss.backward()
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
    return time.process_time() - began


def with_vectors(lm: FrozenLM, template: Template, vectors: Tensor, answers: str) -> Mixture:
    """Return a mixture with PEFT's free vectors before the sentence, whose words stay as they are."""
    mixture = Mixture(lm, [template], MixtureSpec.model_validate({**IN_FRONT, "answers": answers}))
    with torch.no_grad():
        mixture.vectors[: len(vectors)] = vectors.to(mixture.vectors.dtype)
    return mixture


def facts_of(lm: FrozenLM, name: str, answers: str) -> tuple[Relation, Template]:
    """Return the relation with the facts that are used, and LAMA's template."""
    whole = load_relation(f"trex_original/{name}")
    (template,) = load_prompts([f"trex/{name}"], relation=whole)
    plain = Mixture(lm, [template], MixtureSpec.model_validate({"begin": "line-break", "answers": answers}))
    usable = {split: plain.encode(whole.split(split))[0].facts for split in ("train", "dev", "test")}
    sizes = {"train": TRAIN_FACTS, "dev": DEV_FACTS, "test": TEST_FACTS}
    return Relation.of(whole.name, *(sample(usable[split], sizes[split]) for split in sizes)), template


def figures(mixture: Mixture, relation: Relation) -> dict[str, Any]:
    """Score dev and test."""
    dev, test = (scored_facts(mixture, relation, split) for split in ("dev", "test"))
    log_losses = [fmean(math.inf if log_p is None else -log_p for log_p in of["log_p"]) for of in (dev, test)]
    right = 100 * fmean(rank is not None and rank <= 1 for rank in test["rank"])
    return {"facts": len(test["xs"]), "P@1": right, "log_loss": log_losses[1], "dev": log_losses[0]}


class Followed:
    """Follows a run of askwell: the CPU seconds of its steps, and each score on dev."""

    def __init__(self) -> None:
        self.scored: list[tuple[int, float, float]] = []
        """Pairs, the time, and dev's log-loss."""
        self.of_steps: list[float] = []
        self._end: float | None = None

    def __call__(self, state: TrainingProgress) -> None:
        """Take one progress report."""
        now = time.process_time()
        if state.record is not None:
            self.scored.append((state.record.pairs, now, state.record.dev["log_loss"]))
        elif self._end is not None:
            self.of_steps.append(now - self._end)
        self._end = now


def do(lm: FrozenLM, name: str, contender: str, rate: float | None, pairs: int, answers: str) -> dict[str, Any]:
    """Do one run; for askwell's, also record dev's log-loss after each number of pairs and CPU seconds."""
    relation, template = facts_of(lm, name, answers)
    if rate is not None:
        vectors, seconds = tune_peft(lm, template, relation.train, pairs, rate, whole=answers != "one-token")
        mixture, more = with_vectors(lm, template, vectors, answers), {}
    else:
        spec = MixtureSpec.model_validate({**OURS[contender], "answers": answers})
        mixture, followed = Mixture(lm, [template], spec, relation=relation), Followed()
        began = time.process_time()
        train(mixture, relation, TrainingSpec(pairs=pairs), progress=followed)
        seconds = time.process_time() - began
        more = {
            "step_cpu_seconds": round(sum(followed.of_steps), 1),
            "dev_after": [(read, round(at - began, 1), dev) for read, at, dev in followed.scored],
        }
    times = {"cpu_seconds": round(seconds, 1), "pairs_per_second": round(pairs / seconds, 1)}
    return {**figures(mixture, relation), **times, **more}


def steps_in_turns(lm: FrozenLM, name: str, pairs: int, rounds: int) -> dict[str, Any]:
    """Measure, in turns, the CPU seconds of the steps alone, with askwell's default and with PEFT."""
    relation, template = facts_of(lm, name, "one-token")
    relation = Relation.of(relation.name, relation.train, relation.dev[:4], relation.test[:4])
    ours, theirs = [], []
    for _ in range(rounds):
        theirs.append(tune_peft(lm, template, relation.train, pairs, RATES[-1], whole=False)[1])
        spec = MixtureSpec.model_validate({**OURS[DEFAULT], "answers": "one-token"})
        followed = Followed()
        train(Mixture(lm, [template], spec, relation=relation), relation, TrainingSpec(pairs=pairs), progress=followed)
        ours.append(sum(followed.of_steps) * pairs / followed.scored[-1][0])
    ratios = sorted(their / our for their, our in zip(theirs, ours, strict=True))
    rounded = {who: [round(seconds, 2) for seconds in of] for who, of in (("peft", theirs), ("askwell", ours))}
    return {"relation": name, "pairs": pairs, **rounded, "ratio": round(median(ratios), 2), "load": os.getloadavg()[0]}


def best_rates(lines: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Keep, of PEFT's rates, the best on dev for each relation, and all other runs."""
    kept: dict[tuple[Any, ...], dict[str, Any]] = {}
    for line in lines:
        key = tuple(line[name] for name in ("answers", "pairs", "relation", "contender"))
        if key not in kept or line["dev"] < kept[key]["dev"]:
            kept[key] = line
    return list(kept.values())


def table(lines: Sequence[dict[str, Any]], contenders: Sequence[str]) -> str:
    """Return a table with a row for each contender, over the relations that all of them have."""
    by_cell = {(line["contender"], line["relation"]): line for line in lines}
    names = relations_of(lines, contenders)
    rows = []
    for contender in contenders:
        own = [by_cell[contender, name] for name in names]
        each = [f"{line['P@1']:.1f}" for line in own]
        means = [fmean(line[key] for line in own) for key in ("P@1", "log_loss", "cpu_seconds", "pairs_per_second")]
        rows.append([contender, *each, f"{means[0]:.1f}", f"{means[1]:.2f}", f"{means[2]:.0f}", f"{means[3]:.1f}"])
    return markdown(["", *names, "macro P@1", "log-loss", "CPU s", "pairs/s"], rows)


def relations_of(lines: Sequence[dict[str, Any]], contenders: Sequence[str]) -> list[str]:
    """Return the relations that all of these contenders have."""
    done = {(line["contender"], line["relation"]) for line in lines}
    names = dict.fromkeys(line["relation"] for line in lines)
    return [name for name in names if all((contender, name) in done for contender in contenders)]


def times_to_quality(lines: Sequence[dict[str, Any]]) -> dict[str, tuple[float, float]]:
    """Return, for each relation, PEFT's CPU seconds and those after which askwell's default had reached PEFT's final
    log-loss on dev. Dev is scored four times in a run, so the latter is an upper bound."""
    by_cell = {(line["contender"], line["relation"]): line for line in lines}
    found = {}
    for name in relations_of(lines, [PEFT, DEFAULT]):
        theirs, ours = by_cell[PEFT, name], by_cell[DEFAULT, name]
        reached = [seconds for _, seconds, dev in ours.get("dev_after", ()) if dev <= theirs["dev"]]
        if reached:
            found[name] = (theirs["cpu_seconds"], reached[0])
    return found


def summary(lines: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Compare askwell's default with PEFT in a few numbers."""
    from scipy import stats

    by_cell = {(line["contender"], line["relation"]): line for line in lines}
    names = relations_of(lines, [PEFT, DEFAULT])
    pairs = [(by_cell[DEFAULT, name], by_cell[PEFT, name]) for name in names]
    differences = [ours["P@1"] - theirs["P@1"] for ours, theirs in pairs]
    timed = {name: step_ratio(*pair) for name, pair in zip(names, pairs, strict=True) if "step_cpu_seconds" in pair[0]}
    return {
        "relations": names,
        "P@1": round(fmean(differences), 1),
        "p": float(stats.wilcoxon(differences).pvalue),
        "behind": [name for name, difference in zip(names, differences, strict=True) if difference < 0],
        "pairs_per_second": round(fmean(o["pairs_per_second"] / t["pairs_per_second"] for o, t in pairs), 2),
        "pairs_per_second_of_steps": {name: round(ratio, 2) for name, ratio in timed.items()},
        "time_to_quality": {
            name: round(ours / theirs, 3) for name, (theirs, ours) in times_to_quality(lines).items()
        },
    }  # fmt: skip


def step_ratio(ours: dict[str, Any], theirs: dict[str, Any]) -> float:
    """Return askwell's pairs per second in times of PEFT's, without dev scores on either side."""
    return (ours["dev_after"][-1][0] / ours["step_cpu_seconds"]) / (theirs["pairs"] / theirs["cpu_seconds"])


def compared_row(answers: str, found: dict[str, Any]) -> list[str]:
    """Return a row of the table that compares askwell's default with PEFT."""
    steps, times = (list(found[key].values()) for key in ("pairs_per_second_of_steps", "time_to_quality"))
    return [
        answers,
        str(len(found["relations"])),
        f"{found['P@1']:+.1f}",
        f"{found['p']:.2g}",
        ", ".join(found["behind"]) or "none",
        f"{found['pairs_per_second']:.1f}",
        f"{fmean(steps):.1f} ({min(steps):.1f}–{max(steps):.1f}; {len(steps)} relations)" if steps else "–",
        f"{median(times):.2f} ({max(times):.2f} at most; {len(times)} relations)" if times else "–",
    ]


def rates_run(lines: Sequence[dict[str, Any]]) -> str:
    """Say with which rates PEFT was run on which relations."""
    by_relation: dict[str, list[float]] = {}
    for line in lines:
        if line["contender"] == PEFT:
            by_relation.setdefault(line["relation"], []).append(line["rate"])
    by_rates: dict[tuple[float, ...], list[str]] = {}
    for name, rates in by_relation.items():
        by_rates.setdefault(tuple(sorted(rates)), []).append(name)
    return "; ".join(f"{', '.join(map(str, rates))}: {', '.join(names)}" for rates, names in by_rates.items())


def tables(every: Sequence[dict[str, Any]]) -> dict[str, str]:
    """Return the tables of docs/findings/peft.md, by the name of their place."""
    made, compared = {}, []
    for answers in ("one-token", "any-length"):
        of_all = [line for line in every if line["answers"] == answers]
        own, parts = best_rates(of_all), []
        compared.append(compared_row(answers, summary(own)))
        parts += [f"PEFT's learning rates: {rates_run(of_all)}.", table(own, [PEFT, DEFAULT])]
        contenders = list(dict.fromkeys(line["contender"] for line in own))
        if set(contenders) != {PEFT, DEFAULT}:
            parts += ["Other openings, on the relations where they were run:", table(own, contenders)]
        times = times_to_quality(own)
        rows = [[name, f"{t:.0f}", f"{o:.0f}", f"{o / t:.2f}"] for name, (t, o) in times.items()]
        header = ["", "PEFT, CPU s", "askwell's default, CPU s at most", "ratio"]
        made[answers] = "\n\n".join([*parts, "Time to PEFT's final log-loss on dev:", markdown(header, rows)])
    header = ["answers", "relations", "P@1, askwell minus PEFT", "p", "behind on", "pairs/s, × PEFT's"]
    header += ["the same, steps alone", "time to PEFT's log-loss on dev, × PEFT's"]
    made["compared"] = markdown(header, compared)
    steps = read_lines(STEPS)
    rows = [[line["relation"], *(f"{median(line[who]):.1f}" for who in ("peft", "askwell"))] for line in steps]
    rows = [[*row, f"{line['ratio']:.1f}"] for row, line in zip(rows, steps, strict=True)]
    mean = ["mean", "", "", f"{fmean(line['ratio'] for line in steps):.1f}"]
    made["steps"] = markdown(["", "PEFT, CPU s", "askwell's default, CPU s", "ratio (median)"], [*rows, mean])
    return made


def gaps(every: Sequence[dict[str, Any]]) -> list[Gap]:
    """Return the rows of the chart: P@1 of both on each relation."""
    rows = []
    for answers in ("one-token", "any-length"):
        own = best_rates([line for line in every if line["answers"] == answers])
        by_cell = {(line["contender"], line["relation"]): line["P@1"] for line in own}
        names = relations_of(own, [PEFT, DEFAULT])
        rows += [Gap(f"{name}, {answers} answers", by_cell[DEFAULT, name], by_cell[PEFT, name]) for name in names]
    return rows


def main() -> None:
    """Do the missing runs, or write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("relations", nargs="*")
    parser.add_argument("--pairs", type=int, default=400)
    parser.add_argument("--answers", choices=["one-token", "any-length"], default="one-token")
    parser.add_argument("--contenders", nargs="*", choices=[PEFT, *OURS], default=[PEFT, *OURS])
    parser.add_argument("--rates", nargs="*", type=float, default=RATES, help="PEFT's rates; default: all three")
    parser.add_argument("--steps", type=int, metavar="ROUNDS", help="only time steps, in turns, in so many rounds")
    parser.add_argument("--page", action="store_true", help="only write the page")
    options = parser.parse_args()
    if options.page:
        every = read_lines(RUNS)
        fill(FINDINGS / "peft.md", tables(every))
        draw_gaps(FINDINGS / "peft.md", gaps(every), first="askwell's default", second="PEFT", measure="P@1")
        return
    torch.set_num_threads(1)
    done, lm = read_lines(RUNS), load_lm("smollm2", device="cpu")
    if options.steps:
        lines = [steps_in_turns(lm, name, options.pairs, options.steps) for name in options.relations]
        STEPS.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
        return
    for name in options.relations:
        for contender, rate in [(PEFT, rate) for rate in options.rates] + [(contender, None) for contender in OURS]:
            if contender not in options.contenders:
                continue
            asked = {"answers": options.answers, "pairs": options.pairs, "relation": name, "contender": contender}
            asked["rate"] = rate
            if not any(asked.items() <= line.items() for line in done):
                line = {**asked, **do(lm, name, contender, rate, options.pairs, options.answers)}
                print(json.dumps(append_line(RUNS, line)), flush=True)


if __name__ == "__main__":
    main()
