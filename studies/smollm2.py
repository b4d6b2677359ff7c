"""SmolLM2-135M on published facts: one soft prompt for each relation, answers of any length and of one token.

    askwell lm pull smollm2
    ASKWELL_DATA=… python studies/smollm2.py            # do what is missing, relation by relation
    python studies/smollm2.py --page                    # only write docs/findings/smollm2.md

The prompt is LAMA's, the training askwell's default, and all facts are used whose y has at most ten tokens. Next to it
is the same with `--answers one-token`, on the facts that can be asked in that way. Checkpoints, mixtures and outcomes
are kept in build/smollm2, the figures of each relation in results/smollm2.json.
"""

import argparse
import datetime
import json
import random
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from lines import RESULTS
from pages import FINDINGS, fill, table

from askwell import Mixture, load_lm, train
from askwell.answers.candidates import Candidates
from askwell.answers.reply import count_reasons
from askwell.data.facts import SPLITS, Relation
from askwell.data.names import load_prompts, load_relation
from askwell.errors import NothingLeft
from askwell.evaluation.comparison import compare
from askwell.evaluation.examine import AskedFacts
from askwell.evaluation.knowledge import MAJORITY, PRIOR, priors_of
from askwell.evaluation.metrics import RANK_METRICS, scores_of
from askwell.evaluation.outcomes import Outcome, read_outcomes, write_outcomes
from askwell.evaluation.significance import interval_text
from askwell.lms.frozen import FrozenLM
from askwell.prompts.context import begin_scores
from askwell.runs.record import environment
from askwell.specs.mixture_spec import NO_LEAD_IN, AnswersName, MixtureSpec

KEPT, FIGURES = Path(__file__).parents[1] / "build" / "smollm2", RESULTS / "smollm2.json"
RELATIONS = {
    "P176": "trex",
    "P36": "trex",
    "P413": "trex",
    "P264": "trex",
    "date_of_birth": "google_re",
    "place_of_birth": "google_re",
}
FIRST = "P176"
"""The relation on whose train facts the beginning of sentences is chosen."""
PART = 64
"""Facts that are asked at a time, before their outcomes are written."""
UNTUNED = 32
"""Test facts that are asked before tuning, where nearly all searches go to their limit, which takes long."""


class Work:
    """One relation and one kind of answers."""

    def __init__(self, lm: FrozenLM, name: str, answers: AnswersName, begin: Any) -> None:
        self.lm, self.name, self.answers = lm, name, answers
        self.folder = KEPT / name / answers
        self.relation = relation_of(name)
        templates = load_prompts([f"{RELATIONS[name]}/{name}"], relation=self.relation)
        self.untuned = Mixture(lm, templates, MixtureSpec(begin=begin, answers=answers), relation=self.relation)

    def tuned(self) -> tuple[Mixture, dict[str, Any]]:
        """Return the mixture after default training, and how that went; train it if that has not been done."""
        kept = self.folder / "training.json"
        if kept.exists():
            return Mixture.from_pretrained(self.folder / "mixture", self.lm), json.loads(
                kept.read_text(encoding="utf-8")
            )
        mixture = self.untuned
        self.folder.mkdir(parents=True, exist_ok=True)
        cpu = time.process_time()
        resume = (self.folder / "checkpoint.safetensors").exists()
        result = train(mixture, self.relation, folder=self.folder, resume=resume, progress=self._say)
        mixture.save_pretrained(self.folder / "mixture")
        how = {
            "train_facts": result.train_facts,
            "dev_facts": result.dev_facts,
            "pairs": result.pairs,
            "dev": [line.as_json() for line in result.history],
            "cpu_seconds": None if resume else round(time.process_time() - cpu, 1),
            "made_with": environment().git,
            "lead_in": mixture.spec.lead_in,
            "shots": mixture.spec.shots,
        }
        kept.write_text(json.dumps(how, indent=1) + "\n", encoding="utf-8")
        return mixture, how

    def _say(self, state: Any) -> None:
        if state.record is not None:
            print(self.name, self.answers, state.pairs_done, json.dumps(state.record.as_json()), flush=True)

    def asked(self, mixture: Mixture) -> AskedFacts:
        """Return the test facts that can be asked."""
        return AskedFacts(mixture, self.relation, "test", None, mixture.encode_relation(self.relation))

    def outcomes_among(self, mixture: Mixture, candidates: Candidates) -> list[Outcome]:
        """Rank all test facts whose y is a candidate among the candidates alone."""
        asked = AskedFacts(mixture, self.relation, "test", candidates)
        return [outcome for rows in asked.batches() for outcome in asked.ask(rows)[0] if outcome.y in candidates.names]

    def outcomes(self, mixture: Mixture, what: str, most: int | None) -> tuple[list[Outcome], int]:
        """Return outcomes of test facts, in an order drawn once, and how many searches ended early; saved in parts."""
        asked = self.asked(mixture)
        order = list(range(len(asked)))
        random.Random(0).shuffle(order)
        outcomes: list[Outcome] = []
        unsettled = 0
        for start in range(0, min(most or len(order), len(order)), PART):
            path = self.folder / what / f"{start:05}.parquet"
            if not path.exists():
                found: list[Outcome] = []
                for some in torch.tensor(order[start : start + PART]).split(32):
                    found += asked.ask(some)[0]
                path.parent.mkdir(parents=True, exist_ok=True)
                write_outcomes(found, path)
            outcomes += read_outcomes(path)
            unsettled = sum(not outcome.is_settled for outcome in outcomes)
            right = sum(outcome.rank <= 1 for outcome in outcomes)
            print(self.name, self.answers, what, f"{right} of {len(outcomes)} right", flush=True)
        return outcomes, unsettled


def relation_of(name: str) -> Relation:
    """Read the facts of a relation, as they were published."""
    return load_relation(f"{'trex_original' if RELATIONS[name] == 'trex' else 'google_re'}/{name}")


def any_length(lm: FrozenLM, name: str, begin: Any, most: int | None) -> dict[str, Any]:
    """Score a relation after tuning for whole answers, and the controls that need no knowledge."""
    work = Work(lm, name, "any-length", begin)
    mixture, how = work.tuned()
    after, unsettled = work.outcomes(mixture, "tuned", most)
    before, unsettled_before = work.outcomes(Work(lm, name, "any-length", begin).untuned, "untuned", UNTUNED)
    asked = work.asked(mixture)
    priors, _ = priors_of(asked.answers, relation_of(name))
    answered = {(outcome.x, outcome.y) for outcome in after}
    controls = {
        control: scores_of(
            [o for o in asked.prior_outcomes(priors[control]) if (o.x, o.y) in answered], RANK_METRICS
        )
        for control in (MAJORITY, PRIOR)
    }  # fmt: skip
    return {
        "relation": name,
        "template": work.untuned.prompts[0].template.text,
        "test_facts": len(asked),
        "left_out": count_reasons(asked.left_out),
        "asked": len(after),
        "asked_untuned": len(before),
        "untuned": {**scores_of(before, RANK_METRICS), "unsettled": unsettled_before},
        "tuned": {**scores_of(after, RANK_METRICS), "unsettled": unsettled},
        "controls": controls,
        "training": how,
    }


def one_token(lm: FrozenLM, name: str, begin: Any, most: int | None) -> dict[str, Any] | None:
    """Score one-token answers, and compare both kinds on the facts that both were asked; None if there are none."""
    try:
        work = Work(lm, name, "one-token", begin)
    except NothingLeft:  # not even an example can be written
        return None
    facts = work.untuned.encode_relation(work.relation)
    if not all(len(facts.split(split)) for split in SPLITS):
        return None
    mixture, how = work.tuned()
    after, _ = work.outcomes(mixture, "tuned", None)
    long = Work(lm, name, "any-length", begin)
    of_any, _ = long.outcomes(long.tuned()[0], "tuned", most)
    compared = compare(of_any, after)
    before, _ = work.outcomes(Work(lm, name, "one-token", begin).untuned, "untuned", None)
    ys = Candidates("one-token ys", tuple(sorted({fact.y for split in SPLITS for fact in facts.split(split).facts})))
    among = compare(long.outcomes_among(long.tuned()[0], ys), work.outcomes_among(mixture, ys))
    return {
        "among_ys": {"ys": len(ys.names), "facts": among.facts, **asdict(among.micro)},
        "asked": len(after),
        "shared": compared.facts,
        "untuned": scores_of(before, RANK_METRICS),
        "tuned": scores_of(after, RANK_METRICS),
        "any_length_there": compared.micro.a,
        "one_token_there": compared.micro.b,
        "difference": compared.micro.difference,
        "low": compared.micro.low,
        "high": compared.micro.high,
        "p": compared.micro.p,
        "training": how,
    }


def beginning(lm: FrozenLM, kept: dict[str, Any]) -> dict[str, Any]:
    """Choose what all sentences begin with, as `askwell train` does on the first relation."""
    if "begin" not in kept:
        relation = relation_of(FIRST)
        scores = begin_scores(lm, relation, load_prompts([f"{RELATIONS[FIRST]}/{FIRST}"], relation=relation))
        kept["begin"] = {"begin": max(scores, key=scores.__getitem__), "log_probabilities": scores}
        write_kept(kept)
    return kept["begin"]


# ── the page ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def tables(kept: dict[str, Any]) -> dict[str, str]:
    """Return the tables of the page, and the figures within its sentences, by the name of their place."""
    rows = [kept["any-length"][name] for name in RELATIONS if name in kept["any-length"]]
    rows += list(kept.get("without_opening", {}).values())
    beside = {name: kept["one-token"][name] for name in RELATIONS if kept["one-token"].get(name)}
    pairs = sorted({row["training"]["pairs"] for row in rows})
    scores = kept["begin"]["log_probabilities"].items()
    return {
        "date": kept["date"],
        "pairs": f"{pairs[0]:,} to {pairs[-1]:,}",
        "beginnings": ", ".join(f"{name} {score:.2f}" for name, score in scores),
        "any length": any_length_table(rows),
        "no better": ", ".join(no_better_than_majority(rows)) or "none",
        "training": training_table(rows),
        "one token": one_token_table(beside),
        "among ys": among_table(beside),
    }


def any_length_table(rows: list[dict[str, Any]]) -> str:
    """Return the table of whole answers."""
    header = ["relation", "before the sentence", "test facts", "asked", "left out", "majority", "prior"]
    header += ["by hand P@1 / P@10 / MRR", "tuned P@1", "P@10", "MRR", "search ended early"]
    shown = []
    for row in rows:
        by_hand, tuned = row["untuned"], row["tuned"]
        shown.append([
            row["relation"], before_sentence(row["training"]), row["test_facts"], row["asked"],
            sum(row["left_out"].values()),
            f"{row['controls'][MAJORITY]['P@1']:.1f}", f"{row['controls'][PRIOR]['P@1']:.1f}",
            " / ".join(f"{by_hand[metric]:.1f}" for metric in RANK_METRICS),
            *(f"{tuned[metric]:.1f}" for metric in RANK_METRICS), tuned["unsettled"],
        ])  # fmt: skip
    return table(header, shown, names=2)


def training_table(rows: list[dict[str, Any]]) -> str:
    """Return the table of templates and training runs."""
    shown = []
    for row in rows:
        how = row["training"]
        dev = [line["dev"]["P@1"] for line in how["dev"]]
        seconds = "–" if how["cpu_seconds"] is None else f"{how['cpu_seconds']:.0f}"
        shown.append([row["relation"], f"`{row['template']}`", (how["made_with"] or "–")[:7], how["train_facts"]])
        shown[-1] += [len(dev), f"{dev[0]:.1f} → {max(dev):.1f} → {dev[-1]:.1f}", seconds]
    header = ["relation", "template", "commit", "train facts", "dev scores"]
    return table([*header, "dev P@1: first → highest → last", "CPU s"], shown, names=3)


def one_token_table(beside: dict[str, Any]) -> str:
    """Return the table of one-token answers, and of both kinds of tuning on the facts that both were asked."""
    header = ["relation", "test facts", "by hand", "tuned P@1", "P@10", "MRR", "shared facts", "any length"]
    shown = []
    for name, row in beside.items():
        shown.append([
            name, row["asked"], f"{row['untuned']['P@1']:.1f}",
            *(f"{row['tuned'][metric]:.1f}" for metric in RANK_METRICS),
            row["shared"], f"{row['any_length_there']:.1f}", f"{row['one_token_there']:.1f}", difference(row),
        ])  # fmt: skip
    return table([*header, "one token", "difference"], shown)


def among_table(beside: dict[str, Any]) -> str:
    """Return the table of both kinds of tuning, ranked among the relation's one-token ys."""
    fair = {name: row["among_ys"] for name, row in beside.items() if "among_ys" in row}
    shown = [
        [name, row["ys"], row["facts"], f"{row['a']:.1f}", f"{row['b']:.1f}", difference(row)]
        for name, row in fair.items()
    ]
    return table(["relation", "one-token ys", "test facts", "any length", "one token", "difference"], shown)


def difference(row: dict[str, Any]) -> str:
    """Write a difference with its interval."""
    return f"{row['difference']:+.1f} ({interval_text(row['low'], row['high'], '{:+.1f}'.format)})"


def no_better_than_majority(rows: list[dict[str, Any]]) -> list[str]:
    """Return the relations on which tuning is less than a standard error better than the majority or its own prior."""
    names = []
    for row in rows:
        best, tuned = max(row["controls"][name]["P@1"] for name in (MAJORITY, PRIOR)), row["tuned"]["P@1"]
        if tuned - best < (tuned * (100 - tuned) / row["asked"]) ** 0.5:
            names.append(row["relation"])
    return names


def before_sentence(how: dict[str, Any]) -> str:
    """Say what comes before the sentence; nothing does in runs that are older than openings."""
    if how.get("shots"):
        return f"{how['shots']} examples"
    return "nothing" if how.get("lead_in", NO_LEAD_IN) == NO_LEAD_IN else how["lead_in"]


def read_kept() -> dict[str, Any]:
    """Read the figures so far."""
    if FIGURES.exists():
        return json.loads(FIGURES.read_text(encoding="utf-8"))
    return {"any-length": {}, "one-token": {}}


def write_kept(kept: dict[str, Any]) -> None:
    """Write the figures so far."""
    FIGURES.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")


def main() -> None:
    """Do the missing relations, and write the figures after each of them, then the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--relations", nargs="*", default=list(RELATIONS), choices=list(RELATIONS))
    parser.add_argument("--kinds", nargs="*", default=["any-length", "one-token"], choices=["any-length", "one-token"])
    parser.add_argument("--most", type=int, help="test facts of a relation that are asked, at most; drawn at random")
    parser.add_argument("--page", action="store_true", help="only write the page")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    kept = read_kept()
    if not chosen.page:
        lm = load_lm("smollm2", device="cpu")
        begin = beginning(lm, kept)["begin"]
        for name in chosen.relations:
            for kind in chosen.kinds:
                if name not in kept[kind] or (kind == "any-length" and is_partial(kept[kind][name], chosen.most)):
                    does = any_length if kind == "any-length" else one_token
                    kept[kind][name] = does(lm, name, begin, chosen.most)
                    kept["date"] = str(datetime.datetime.now(tz=datetime.UTC).date())
                    write_kept(kept)
    fill(FINDINGS / "smollm2.md", tables(kept))


def is_partial(row: dict[str, Any], most: int | None) -> bool:
    """Tell whether fewer facts were asked than are wanted."""
    return row["asked"] < min(most or row["test_facts"], row["test_facts"])


if __name__ == "__main__":
    main()
