"""What SmolLM2-135M knows of T-REx, asked by hand and by one tuned prompt: the tables of docs/smollm2.md.

    askwell lm pull smollm2
    ASKWELL_DATA=… python benchmarks/smollm2.py            # what is done is kept in build/smollm2

The hand-written prompts are LAMA's; relations whose template ends in [Y] can be asked of a causal LM as they are.
Tuned prompts start from them and are trained with askwell's defaults on at most 300 of the train facts whose y is one
token; all test facts whose y is one token are asked. Beside the manual prompts stands the easier question which other
reports ask of causal LMs: the first token of y, whatever follows, for all facts, other golds not left out.
"""

import argparse
import datetime
import json
import math
import random
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import torch

from askwell import Mixture, load_lm, train
from askwell.data.data_folder import data_folder
from askwell.data.facts import Fact, Relation
from askwell.data.names import read_prompts, read_relation
from askwell.evaluation.metrics import RANK_METRICS, Scores, scores_of
from askwell.evaluation.outcomes import Outcome
from askwell.evaluation.scoring import Evaluation, evaluate, together
from askwell.files import to_json
from askwell.lms.batches import words_of
from askwell.mixture import distributions
from askwell.mixture.encode import encode_facts
from askwell.specs.mixture_spec import MixtureSpec

HERE = Path(__file__).parent
KEPT = HERE.parent / "build/smollm2"
TUNED = ("P103", "P36", "P176", "P19")
TRAIN_FACTS, ASKED = 300, 100
SPACED = "P176"
BEGIN = MixtureSpec(begin="space")


def sample(facts: tuple[Any, ...], count: int) -> list[Any]:
    """This many of the facts, always the same."""
    return sorted(random.Random(0).sample(facts, min(count, len(facts))))


@torch.no_grad()
def by_first_token(mixture: Mixture, facts: Sequence[Fact]) -> Scores:
    """How the one prompt of a mixture ranks the first token of each y among all tokens."""
    lm, (prompt,) = mixture.lm, mixture.prompts
    words = words_of([fact.x for fact in facts], lm.wording, lm.device)
    golds = torch.tensor([lm.wording.encode(fact.y, prompt.tokens.y_place)[0] for fact in facts])
    outcomes: list[Outcome] = []
    for some in torch.arange(len(facts)).split(100):
        log_probs = distributions.prompt_log_probs(mixture, words, some, 0)
        of_golds = log_probs.gather(1, golds[some, None])
        ranks = (1.0 + (log_probs > of_golds).sum(1)).tolist()
        outcomes += [Outcome("", "", "", (), rank, rank, math.nan, (), ()) for rank in ranks]
    return scores_of(outcomes, RANK_METRICS)


def by_hand(lm: Any, names: list[str]) -> tuple[Evaluation, list[Scores]]:
    """The manual prompts over up to 100 test facts of each relation, and the same by the first token of y."""
    evaluations, first_tokens = [], []
    for name in names:
        relation = read_relation(f"trex_original/{name}")
        mixture = Mixture(lm, read_prompts([f"trex/{name}"], relation=relation), BEGIN)
        asked = Relation.of(relation.name, relation.train, relation.dev, sample(relation.test, ASKED))
        evaluations.append(evaluate(mixture, asked))
        first_tokens.append(by_first_token(mixture, asked.test))
        print(name, f"{evaluations[-1].micro['P@1']:.1f}", flush=True)
    return together(evaluations), first_tokens


@torch.no_grad()
def without_space(lm: Any, name: str) -> tuple[float, float]:
    """P@1 of a relation's manual prompt with and without the space before its first word, other golds not left out."""
    relation = read_relation(f"trex_original/{name}")
    (template,) = read_prompts([f"trex/{name}"], relation=relation)
    facts = encode_facts(Mixture(lm, [template], BEGIN), relation.test)[0].facts
    right = []
    for space in (" ", ""):
        texts = [space + template.text.partition("[Y]")[0].replace("[X]", fact.x).rstrip() for fact in facts]
        logits = (lm.model(**lm.tokenizer(text, return_tensors="pt").to(lm.device)).logits[0, -1] for text in texts)
        answers = [lm.tokenizer.decode([int(of_text.argmax())]) for of_text in logits]
        right.append(100 * fmean(answer == f" {fact.y}" for answer, fact in zip(answers, facts, strict=True)))
    return right[0], right[1]


def tuned(lm: Any, name: str) -> dict[str, Any]:
    """One soft prompt, trained with the defaults; kept once it is known."""
    kept = KEPT / f"{name}.json"
    if kept.exists():
        return json.loads(kept.read_text(encoding="utf-8"))
    whole = read_relation(f"trex_original/{name}")
    mixture = Mixture(lm, read_prompts([f"trex/{name}"], relation=whole), BEGIN)
    usable = encode_facts(mixture, whole.train)[0].facts
    relation = Relation.of(whole.name, sample(usable, TRAIN_FACTS), whole.dev, whole.test)
    untuned = evaluate(mixture, relation)
    began, cpu = time.perf_counter(), time.process_time()
    result = train(mixture, relation)
    seconds, cpu_seconds = time.perf_counter() - began, time.process_time() - cpu
    after = evaluate(mixture, relation)
    majority = Counter(fact.y for fact in relation.train).most_common(1)[0][0]
    right = sum(outcome.y == majority for outcome in after.outcomes) / len(after.outcomes)
    row = {
        "relation": name,
        "train_facts": len(relation.train),
        "test_facts": len(after.outcomes),
        "left_out": len(after.left_out),
        "untuned": untuned.micro,
        "tuned": after.micro,
        "majority": 100 * right,
        "pairs": result.history[-1].pairs,
        "seconds": round(seconds, 1),
        "cpu_seconds": round(cpu_seconds, 1),
    }
    print(json.dumps(row), flush=True)
    KEPT.mkdir(parents=True, exist_ok=True)
    kept.write_text(json.dumps(row) + "\n", encoding="utf-8")
    return row


def document(
    manual: dict[str, Any] | None, first: Sequence[Scores], spaces: tuple[float, float], rows: list[dict[str, Any]]
) -> str:
    """The page of the documentation."""
    lines = [
        "# SmolLM2-135M on T-REx",
        "",
        f"Made by `python benchmarks/smollm2.py` on {datetime.datetime.now(tz=datetime.UTC).date()}. Scores in per",
        "cent over the LM's whole vocabulary, other golds filtered, test facts whose y is one token.",
        "",
        "One soft prompt, started from LAMA's manual prompt, askwell's default training, at most 300 train facts with",
        "a y of one token:",
        "",
        "| relation | train | test facts | left out | majority | by hand | tuned | P@10 | MRR | s |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    lines += [
        f"| {row['relation']} | {row['train_facts']} | {row['test_facts']} | {row['left_out']} | "
        f"{row['majority']:.1f} | {row['untuned']['P@1']:.1f} | {row['tuned']['P@1']:.1f} | "
        f"{row['tuned']['P@10']:.1f} | {row['tuned']['MRR']:.1f} | "
        f"{row['seconds']:.0f} |"
        for row in rows
    ]
    if manual is not None:
        scores = manual["macro"]
        lines += [
            "",
            f"Manual prompts alone, {len(first)} relations whose template ends in [Y], up to {ASKED} test facts each "
            f"({manual['facts']} facts with a y of one token), macro average: P@1 {scores['P@1']:.1f}, "
            f"P@10 {scores['P@10']:.1f}, MRR {scores['MRR']:.1f}. By the first token of y, all facts: "
            f"P@1 {fmean(s['P@1'] for s in first):.1f}, P@10 {fmean(s['P@10'] for s in first):.1f}, "
            f"MRR {fmean(s['MRR'] for s in first):.1f}.",
            "",
            "How a sentence begins matters to this LM. Here it begins with a space (`--begin space`), so that its "
            "first word has the form that it has elsewhere. Asked by hand, "
            f'"[X] is produced by [Y] ." ({SPACED}) has {spaces[0]:.1f} % right answers with that space and '
            f"{spaces[1]:.1f} % without it, by the public model alone.",
        ]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Asks, trains, writes the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--relations", nargs="*", default=list(TUNED), help="those that are tuned")
    parser.add_argument("--no-manual", action="store_true", help="leave out the manual prompts of all relations")
    chosen = parser.parse_args()
    lm = load_lm("smollm2")
    rows = [tuned(lm, name) for name in chosen.relations]
    names, data = [], data_folder(None)
    if data is None:
        parser.error("there is no data folder: askwell data pull, or set ASKWELL_DATA")
    for path in sorted((data / "prompts" / "trex").glob("P*.jsonl")):
        template = json.loads(path.read_text(encoding="utf-8").splitlines()[0])["template"]
        has_facts = (data / "facts" / "trex_original" / path.stem).exists()
        if has_facts and template.removesuffix(".").strip().endswith("[Y]"):
            names.append(path.stem)
    asked, first = (None, []) if chosen.no_manual else by_hand(lm, names)
    manual = None if asked is None else to_json(asked.figures())
    spaces = (0.0, 0.0) if chosen.no_manual else without_space(lm, SPACED)
    (HERE / "results" / "smollm2.json").write_text(
        json.dumps({"tuned": rows, "manual": manual and {**manual, "left_out_facts": None}}, indent=2) + "\n",
        encoding="utf-8",
    )
    (HERE.parent / "docs").mkdir(exist_ok=True)
    (HERE.parent / "docs" / "smollm2.md").write_text(document(manual, first, spaces, rows), encoding="utf-8")


if __name__ == "__main__":
    main()
