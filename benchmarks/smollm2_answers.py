"""Answers of any length on real facts: SmolLM2-135M, one soft prompt a relation; docs/smollm2_answers.md.

    askwell lm pull smollm2
    ASKWELL_DATA=… python benchmarks/smollm2_answers.py            # does what is not done yet, relation by relation
    ASKWELL_DATA=… python benchmarks/smollm2_answers.py --page     # only writes the page from what there is

The prompt is LAMA's, the training askwell's default, and all facts are taken whose y has at most ten tokens. The same
with `--answers one-token` stands beside it, on the facts that it can be asked. Checkpoints, mixtures and outcomes are
kept in build/smollm2_answers, the figures of each relation in benchmarks/results/smollm2_answers.json.
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

from askwell import Mixture, load_lm, train
from askwell.data.facts import SPLITS, Relation
from askwell.data.names import read_prompts, read_relation
from askwell.errors import NothingLeft
from askwell.evaluation.comparison import compare_outcomes
from askwell.evaluation.controls import MAJORITY, PRIOR
from askwell.evaluation.metrics import RANK_METRICS, scores_of
from askwell.evaluation.outcomes import Outcome, read_outcomes, write_outcomes
from askwell.evaluation.ranking import AskedFacts, asked_facts
from askwell.evaluation.significance import interval_text
from askwell.lms.frozen import FrozenLM
from askwell.mixture.begin import choose_begin
from askwell.mixture.candidates import Candidates
from askwell.mixture.encode import count_reasons, encode_relation
from askwell.mixture.save import load_mixture, save_mixture
from askwell.runs.record import environment
from askwell.specs.mixture_spec import NO_LEAD_IN, AnswersName, MixtureSpec

HERE = Path(__file__).parent
KEPT, RESULTS = HERE.parent / "build/smollm2_answers", HERE / "results/smollm2_answers.json"
DOCUMENT = HERE.parent / "docs/smollm2_answers.md"
RELATIONS = {
    "P176": "trex",
    "P36": "trex",
    "P413": "trex",
    "P264": "trex",
    "date_of_birth": "google_re",
    "place_of_birth": "google_re",
}
FIRST = "P176"
"""From its train facts the beginning of sentences is chosen."""
WANTED = {"P176": 80.0, "P36": 45.0}
OLDER = "6639058"
"""The commit of runs that were made before searches followed a sure answer to its end."""
PART = 64
"""Facts that are asked before their outcomes are written."""
UNTUNED = 32
"""Test facts that are asked before tuning: nearly all searches go to their limit there, which takes long."""


class Work:
    """One relation and one kind of answers."""

    def __init__(self, lm: FrozenLM, name: str, answers: AnswersName, begin: Any) -> None:
        self.lm, self.name, self.answers = lm, name, answers
        self.folder = KEPT / name / answers
        self.relation = relation_of(name)
        templates = read_prompts([f"{RELATIONS[name]}/{name}"], relation=self.relation)
        self.untuned = Mixture(lm, templates, MixtureSpec(begin=begin, answers=answers), relation=self.relation)

    def tuned(self) -> tuple[Mixture, dict[str, Any]]:
        """The mixture after default training, and how that went; trained if it was not yet."""
        kept = self.folder / "training.json"
        if kept.exists():
            return load_mixture(self.folder / "mixture", self.lm), json.loads(kept.read_text(encoding="utf-8"))
        mixture = self.untuned
        self.folder.mkdir(parents=True, exist_ok=True)
        cpu = time.process_time()
        resume = (self.folder / "checkpoint.safetensors").exists()
        result = train(mixture, self.relation, folder=self.folder, resume=resume, progress=self._say)
        save_mixture(mixture, self.folder / "mixture")
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
        """The test facts that can be asked."""
        return asked_facts(mixture, self.relation, "test", None, encode_relation(mixture, self.relation))

    def outcomes_among(self, mixture: Mixture, candidates: Candidates) -> list[Outcome]:
        """The outcomes of all test facts whose y is a candidate, ranked among the candidates alone."""
        asked = asked_facts(mixture, self.relation, "test", candidates)
        return [outcome for some in asked.chunks() for outcome in asked.ask(some)[0] if outcome.y in candidates.names]

    def outcomes(self, mixture: Mixture, what: str, most: int | None) -> tuple[list[Outcome], int]:
        """The outcomes of test facts, in an order drawn once, and how many searches ended early; kept part by part."""
        asked = self.asked(mixture)
        order = list(range(len(asked.facts)))
        random.Random(0).shuffle(order)
        outcomes: list[Outcome] = []
        unsettled = 0
        for start in range(0, min(most or len(order), len(order)), PART):
            path = self.folder / what / f"{start:05}.parquet"
            if not path.exists():
                before, found = asked.unsettled, []
                for some in torch.tensor(order[start : start + PART]).split(32):
                    found += asked.ask(some)[0]
                path.parent.mkdir(parents=True, exist_ok=True)
                path.with_suffix(".json").write_text(f"{asked.unsettled - before}\n", encoding="utf-8")
                write_outcomes(found, path)
            outcomes += read_outcomes(path)
            unsettled += json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
            right = sum(outcome.rank <= 1 for outcome in outcomes)
            print(self.name, self.answers, what, f"{right} of {len(outcomes)} right", flush=True)
        return outcomes, unsettled


def relation_of(name: str) -> Relation:
    """The facts of a relation, as they were published."""
    return read_relation(f"{'trex_original' if RELATIONS[name] == 'trex' else 'google_re'}/{name}")


def any_length(lm: FrozenLM, name: str, begin: Any, most: int | None) -> dict[str, Any]:
    """What tuning for whole answers makes of a relation, beside what needs no knowledge."""
    work = Work(lm, name, "any-length", begin)
    mixture, how = work.tuned()
    after, unsettled = work.outcomes(mixture, "tuned", most)
    before, unsettled_before = work.outcomes(Work(lm, name, "any-length", begin).untuned, "untuned", UNTUNED)
    asked = work.asked(mixture)
    priors, _ = asked.priors(0)
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
        "test_facts": len(asked.facts),
        "left_out": count_reasons(asked.left_out),
        "asked": len(after),
        "asked_untuned": len(before),
        "untuned": {**scores_of(before, RANK_METRICS), "unsettled": unsettled_before},
        "tuned": {**scores_of(after, RANK_METRICS), "unsettled": unsettled},
        "controls": controls,
        "training": how,
    }


def one_token(lm: FrozenLM, name: str, begin: Any, most: int | None) -> dict[str, Any] | None:
    """The same for one-token answers, and both kinds on the facts that both were asked; None if there are none."""
    try:
        work = Work(lm, name, "one-token", begin)
    except NothingLeft:  # not even an example can be written
        return None
    facts = encode_relation(work.untuned, work.relation)
    if not all(len(facts.split(split)) for split in SPLITS):
        return None
    mixture, how = work.tuned()
    after, _ = work.outcomes(mixture, "tuned", None)
    long = Work(lm, name, "any-length", begin)
    of_any, _ = long.outcomes(long.tuned()[0], "tuned", most)
    compared = compare_outcomes(of_any, after)
    before, _ = work.outcomes(Work(lm, name, "one-token", begin).untuned, "untuned", None)
    ys = Candidates("one-token ys", tuple(sorted({fact.y for split in SPLITS for fact in facts.split(split).facts})))
    among = compare_outcomes(long.outcomes_among(long.tuned()[0], ys), work.outcomes_among(mixture, ys))
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
    """What sentences begin with: chosen once, as `askwell train` does on the first relation, and kept."""
    if "begin" not in kept:
        relation = relation_of(FIRST)
        choice = choose_begin(lm, [(relation, read_prompts([f"{RELATIONS[FIRST]}/{FIRST}"], relation=relation))])
        assert choice is not None
        kept["begin"] = choice.model_dump(include={"begin", "log_probabilities", "relations", "pairs"})
        write_kept(kept)
    return kept["begin"]


# ── the page ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def document(kept: dict[str, Any]) -> str:
    """The page of the documentation."""
    begin, rows = kept["begin"], [kept["any-length"][name] for name in RELATIONS if name in kept["any-length"]]
    rows += [row for name, row in kept.get("without_opening", {}).items()]
    missing = [name for name in RELATIONS if name not in kept["any-length"]]
    pairs = sorted({row["training"]["pairs"] for row in rows})
    scores = ", ".join(f"{name} {score:.2f}" for name, score in begin["log_probabilities"].items())
    lines = [
        "# SmolLM2-135M: answers of any length on real facts",
        "",
        f"Made by `python benchmarks/smollm2_answers.py` on {kept['date']}. One soft prompt that starts from LAMA's",
        f"manual prompt; default training on all train facts ({' or '.join(f'{p:,}' for p in pairs)} pairs), one seed.",
        "An answer is right if the whole string is. P@1, P@10 and MRR are in per cent, among all answers of up to ten",
        "tokens, with other right answers skipped; ranks after the tenth count as 0. Sentences begin with a "
        f"{begin['begin'].replace('-', ' ')}: the mean",
        f"log-probability of train's ys ({FIRST}) under the hand-written prompt is {scores}.",
        "",
        "## Answers of any length",
        "",
        "| relation | before the sentence | test facts | asked | left out | majority | prior "
        "| by hand P@1 / P@10 / MRR | tuned P@1 | P@10 | MRR | search ended early | wanted P@1 |",
        "|---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for row in rows:
        name, by_hand, tuned = row["relation"], row["untuned"], row["tuned"]
        cells = [
            name, before_sentence(row["training"]), str(row["test_facts"]), str(row["asked"]),
            str(sum(row["left_out"].values())),
            f"{row['controls'][MAJORITY]['P@1']:.1f}", f"{row['controls'][PRIOR]['P@1']:.1f}",
            " / ".join(f"{by_hand[metric]:.1f}" for metric in RANK_METRICS),
            *(f"{tuned[metric]:.1f}" for metric in RANK_METRICS),
            str(tuned["unsettled"]), f"{WANTED[name]:.0f}" if name in WANTED else "",
        ]  # fmt: skip
        lines.append(f"| {' | '.join(cells)} |")
    lines += [
        "",
        "*By hand* is the prompt before tuning, on up to 64 of the same test facts. It must also produce the word that",
        'follows y in the template, and such LMs hardly ever write "Paris ." with a space. So without examples it is',
        "hardly ever right, and tuning teaches it where an answer ends. *Before the sentence* is what",
        "`askwell train` chooses; the rows with nothing were made before it could choose. *Majority* always gives the",
        "most frequent y of train, *prior* what the tuned prompt answers on average over the x's of train. *Left out*",
        "are ys of more than ten tokens. *Search ended early*: facts whose rank was still unknown after 100 prefixes;",
        "they count as not answered. Where only some of the test facts were asked, they were drawn at random.",
        *no_better_than_majority(rows),
        "",
        "| relation | template | train facts | dev P@1 while tuning | CPU s | commit |",
        "|---|---|---:|---|---:|---|",
    ]
    for row in rows:
        how = row["training"]
        dev = " → ".join(f"{line['dev']['P@1']:.1f}" for line in how["dev"])
        seconds = "–" if how["cpu_seconds"] is None else f"{how['cpu_seconds']:.0f}"
        lines.append(
            f"| {row['relation']} | `{row['template']}` | {how['train_facts']} | {dev} | {seconds} "
            f"| {(how['made_with'] or '–')[:7]} |"
        )
    lines += [
        "",
        f"Runs of commit {OLDER} read every sentence in full (later ones read what sentences share only once). Their",
        "searches extended up to 32 prefixes at a time, so that some answers of five or more tokens were not reached.",
    ]
    beside = {name: kept["one-token"][name] for name in RELATIONS if kept["one-token"].get(name)}
    lines += [
        "",
        "## Beside one-token answers",
        "",
        "The same prompt, tuned with `--answers one-token` on the facts whose y is one token of the LM, and evaluated",
        "on such facts only, among all tokens. The last columns compare both kinds of tuning on the facts that both",
        "were asked; the prompt tuned for whole answers still ranks whole strings there. So it may answer with one of",
        "the ys of several tokens, which the other never meets: where those are the frequent ones (nine of ten test",
        "facts of P413), it does.",
        "",
        "| relation | test facts | by hand | tuned P@1 | P@10 | MRR | shared facts | any length | one token | "
        "difference |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for name, row in beside.items():
        cells = [
            name, str(row["asked"]), f"{row['untuned']['P@1']:.1f}",
            *(f"{row['tuned'][metric]:.1f}" for metric in RANK_METRICS),
            str(row["shared"]), f"{row['any_length_there']:.1f}", f"{row['one_token_there']:.1f}",
            f"{row['difference']:+.1f} ({interval_text(row['low'], row['high'], '{:+.1f}'.format)})",
        ]  # fmt: skip
        lines.append(f"| {' | '.join(cells)} |")
    fair = {name: row["among_ys"] for name, row in beside.items() if "among_ys" in row}
    if fair:
        lines += [
            "",
            "Both prompts with the same choice: all test facts whose y is one token, ranked among the relation's",
            "one-token ys.",
            "",
            "| relation | one-token ys | test facts | any length | one token | difference |",
            "|---|---:|---:|---:|---:|---:|",
        ]
        for name, row in fair.items():
            interval = interval_text(row["low"], row["high"], "{:+.1f}".format)
            cells = [name, str(row["ys"]), str(row["facts"]), f"{row['a']:.1f}", f"{row['b']:.1f}"]
            lines.append(f"| {' | '.join(cells)} | {row['difference']:+.1f} ({interval}) |")
    without = [name for name, row in kept["one-token"].items() if row is None]
    notes = [f"{name}: no y is one token, so it cannot be evaluated this way." for name in without]
    not_yet = [name for name in RELATIONS if name not in kept["one-token"]]
    notes += [f"Not measured yet, any length: {', '.join(missing)}."] if missing else []
    notes += [f"Not measured yet, one token: {', '.join(not_yet)}."] if not_yet else []
    return "\n".join([*lines, "", *notes]).rstrip() + "\n"


def no_better_than_majority(rows: list[dict[str, Any]]) -> list[str]:
    """A sentence about the relations on which tuning learned no more than train's most frequent y, if there are any."""
    names = []
    for row in rows:
        best, tuned = max(row["controls"][name]["P@1"] for name in (MAJORITY, PRIOR)), row["tuned"]["P@1"]
        if tuned - best < (tuned * (100 - tuned) / row["asked"]) ** 0.5:
            names.append(row["relation"])
    return names and [
        "",
        f"On {', '.join(names)}, the tuned prompt is less than a standard error better than the majority or its own",
        "prior. What it has learned there is the prior over answers; its score is no evidence of what the LM knows.",
    ]


def before_sentence(how: dict[str, Any]) -> str:
    """What comes before the sentence; in runs that are older than openings, nothing does."""
    if how.get("shots"):
        return f"{how['shots']} examples"
    return "nothing" if how.get("lead_in", NO_LEAD_IN) == NO_LEAD_IN else how["lead_in"]


def read_kept() -> dict[str, Any]:
    """The figures so far."""
    if RESULTS.exists():
        return json.loads(RESULTS.read_text(encoding="utf-8"))
    return {"any-length": {}, "one-token": {}}


def write_kept(kept: dict[str, Any]) -> None:
    """Writes the figures so far."""
    RESULTS.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")


def main() -> None:
    """Does what is not done yet, and writes figures and page after each relation."""
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
                    DOCUMENT.write_text(document(kept), encoding="utf-8")
    DOCUMENT.write_text(document(kept), encoding="utf-8")


def is_partial(row: dict[str, Any], most: int | None) -> bool:
    """Whether fewer facts were asked than are to be."""
    return row["asked"] < min(most or row["test_facts"], row["test_facts"])


if __name__ == "__main__":
    main()
