"""What tuned prompts bring out of the testbed's LMs, beside hard ones: the tables of docs/testbed.md.

    python benchmarks/elicitation.py                       # all LMs; what is done is kept in build/elicitation
    python benchmarks/elicitation.py --lms testbed:bert --relations capital
    python benchmarks/elicitation.py --answers any-length  # the second part of the page

For told facts a tuned mixture is held against the hard prompts that are not in the text (manual and paraphrased, equal
weights), and the one tuned manual prompt against itself untuned, with the paired permutation test over all facts. The
relations of the study of defaults are left out.
"""

import argparse
import datetime
import json
from pathlib import Path
from typing import Any

import torch

from askwell import Mixture, MixtureSpec, load_lm, train
from askwell.data.facts import Fact
from askwell.data.split import sample
from askwell.data.testbed import relations, testbed_prompts, testbed_relation, told
from askwell.evaluation.comparison import compare_outcomes
from askwell.evaluation.outcomes import Outcome, read_outcomes, write_outcomes
from askwell.evaluation.scoring import evaluate
from askwell.lms.frozen import FrozenLM
from askwell.lms.tokenisation import Place
from askwell.mixture.begin import resolve_begin
from askwell.specs.mixture_spec import AnswersName

HERE = Path(__file__).parent
KEPT, DOCUMENT = HERE.parent / "build/elicitation", HERE.parent / "docs/testbed.md"
ONE_TOKEN, ANY_LENGTH = HERE / "results/elicitation.json", HERE / "results/elicitation_any_length.json"
LMS = ("testbed:bert", "testbed:roberta", "testbed:bart", "testbed:causal")
STUDIED = ("dialling_code", "country_of_region", "neighbour")
DRAWN = 150
"""Test facts of a relation that are asked for answers of any length, at most: each is a search."""
LONG_WAYS = ("manual", "soft-manual")
LONG_WORDS = (
    "A masked LM has p(m | r), the lengths of the train ys, before it has seen x: where one in ten of these has two",
    "tokens, no answer of two tokens can be more probable than a tenth, and any single token that fits the question",
    "a little comes before it. So masked LMs seldom rank told answers of several tokens first, unless most ys of the",
    "relation are long. Decoders and causal LMs have no such bound.",
)
ABSENT = ("single", "paraphrased")
"""Kinds of prompts that are not in the text."""
WAYS: dict[str, tuple[str, tuple[str, ...], MixtureSpec, bool]] = {
    "manual": ("manual, hard", ("single",), MixtureSpec(), False),
    "absent": ("manual + paraphrased, hard", ABSENT, MixtureSpec(), False),
    "mined": ("mined, hard (in the text)", ("mined",), MixtureSpec(weights="file"), False),
    "soft-manual": ("manual, soft", ("single",), MixtureSpec(), True),
    "soft-absent": ("manual + paraphrased, soft", ABSENT, MixtureSpec(), True),
    "deep-absent": ("manual + paraphrased, deep", ABSENT, MixtureSpec(deep=True), True),
    "soft-mined": ("mined, soft", ("mined",), MixtureSpec(), True),
    "soft-words": ("random words, soft", ("random",), MixtureSpec(), True),
    "soft-vectors": ("random vectors, soft", ABSENT, MixtureSpec(initial="random"), True),
}


def outcomes_of(lm_name: str, lm: FrozenLM, relation_name: str, way: str, answers: AnswersName) -> list[Outcome]:
    """What one way of asking makes of the test facts of a relation; kept once it is known."""
    path = KEPT / answers / lm_name.replace(":", "-") / way / f"{relation_name}.parquet"
    if path.exists():
        return list(read_outcomes(path))
    _, kinds, spec, tuned = WAYS[way]
    relation = testbed_relation(relation_name)
    if answers == "any-length":
        relation = sample(relation, train=None, dev=None, test=DRAWN, seed=0)
    templates = [template for kind in kinds for template in testbed_prompts(kind, relation_name)]
    spec = spec.model_copy(update={"answers": answers})
    mixture = Mixture(lm, templates, resolve_begin(spec, lm, [(relation, templates)]))
    if tuned:
        train(mixture, relation)
    evaluation = evaluate(mixture, relation)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_outcomes(evaluation.outcomes, path)
    return list(evaluation.outcomes)


def only(outcomes: list[Outcome], *, is_told: bool) -> list[Outcome]:
    """The outcomes of told, or of withheld facts."""
    return [o for o in outcomes if (Fact(o.x, o.y) in told(o.relation)) == is_told]


def macro(outcomes: list[Outcome], names: list[str]) -> float:
    """The mean over relations of P@1, in per cent."""
    shares = []
    for name in names:
        of_relation = [o.rank <= 1 for o in outcomes if o.relation.endswith(f":{name}")]
        if of_relation:
            shares.append(sum(of_relation) / len(of_relation))
    return 100 * sum(shares) / len(shares)


def figures(by_way: dict[str, list[Outcome]], names: list[str]) -> dict[str, Any]:
    """The figures of one LM."""
    exact = [r.name for r in relations() if r.cardinality != "N-M" and r.name in names]
    one_to_one = [r.name for r in relations() if r.cardinality == "1-1" and r.name in names]
    rows = {}
    for way, outcomes in by_way.items():
        those_told, withheld = only(outcomes, is_told=True), only(outcomes, is_told=False)
        rows[way] = {
            "told": macro(those_told, names),
            "told_exact": macro(those_told, exact),
            "withheld": macro(withheld, names),
            "withheld_one_to_one": macro(withheld, one_to_one),
            "told_facts": len(those_told),
            "withheld_facts": len(withheld),
        }
        if WAYS[way][3]:
            base = by_way["manual" if way == "soft-manual" else "absent"]
            compared = compare_outcomes(those_told, only(base, is_told=True))
            rows[way] |= {
                "gain": compared.micro.difference,
                "low": compared.micro.low,
                "high": compared.micro.high,
                "p": compared.micro.p,
            }
    return rows


def document(kept: dict[str, Any]) -> str:
    """The part of the page about one-token answers."""
    results, names = kept["lms"], kept["relations"]
    lines = [
        "# The testbed: what tuned prompts elicit",
        "",
        f"Made by `python benchmarks/elicitation.py` on {kept['date']}.",
        "",
        f"Relations: {', '.join(names)};",
        "those of the [study of defaults](defaults.md) are left out. P@1 in per cent among all",
        "answers of the LM, other golds filtered, macro average over relations, test facts whose y is one token.",
        "*Told* facts are in the text that the LM was trained on, *withheld* ones are not: what is right there",
        "comes from a prior. *1-1 withheld* is the part of relations in which no prior helps. The gain is that",
        "over the hard manual and paraphrased prompts, which are not in the text (for the one manual prompt: over",
        "itself, untuned), on all told facts (micro), with its 95 % interval and the p-value of the paired",
        "permutation test. Default training throughout. Where hard prompts pass 95 % already, little is left to gain.",
        "",
    ]
    for lm, rows in results.items():
        lines += [f"## {lm}", "", "| prompts | told | told, 1-1 and N-1 | withheld | 1-1 withheld | gain | p |"]
        lines.append("|---|---:|---:|---:|---:|---:|---:|")
        for way, row in rows.items():
            cells = [f"{row[key]:.1f}" for key in ("told", "told_exact", "withheld", "withheld_one_to_one")]
            gain = f"{row['gain']:+.1f} ({row['low']:+.1f} … {row['high']:+.1f})" if "gain" in row else ""
            p = "" if "p" not in row else "< 0.001" if row["p"] < 0.001 else f"{row['p']:.3f}"
            lines.append(f"| {WAYS[way][0]} | {' | '.join(cells)} | {gain} | {p} |")
        facts = next(iter(rows.values()))
        lines += ["", f"{facts['told_facts']} told and {facts['withheld_facts']} withheld test facts.", ""]
    return "\n".join(lines)


def is_long(lm: FrozenLM, y: str) -> bool:
    """Whether an answer has several tokens."""
    return len(lm.wording.encode(y, Place.SPACED)) > 1


def long_figures(lm: FrozenLM, by_way: dict[str, list[Outcome]]) -> dict[str, Any]:
    """The figures of one LM for answers of any length: of all facts, and of those with several tokens."""
    rows = {}
    for way, outcomes in by_way.items():
        row: dict[str, Any] = {}
        for name, is_told in (("told", True), ("withheld", False)):
            some = only(outcomes, is_told=is_told)
            for part, chosen in (("", some), ("_long", [o for o in some if is_long(lm, o.y)])):
                row[name + part] = {"facts": len(chosen)} | {
                    f"P@{rank}": 100 * sum(o.rank <= rank for o in chosen) / len(chosen) if chosen else None
                    for rank in (1, 10)
                }
        rows[way] = row
    return rows


def long_section(kept: dict[str, Any]) -> list[str]:
    """The part of the page about answers of any length."""
    lines = [
        "# Answers of any length",
        "",
        f"Made by `python benchmarks/elicitation.py --answers any-length` on {kept['date']}. Relations:",
        f"{', '.join(kept['relations'])}.",
        "P@1 in per cent of whole answers among all answers of any length, over all test facts (micro), told and",
        f"withheld; at most {DRAWN} test facts of a relation are drawn. *Several tokens* are the facts that a run with",
        "one-token answers leaves out; of told ones, P@10 is given as well. The number of facts is in brackets.",
        "",
        "| LM | prompts | told | told, several tokens | P@10 | withheld | withheld, several tokens |",
        "|---|---|---:|---:|---:|---:|---:|",
    ]
    for lm, rows in kept["lms"].items():
        for way, row in rows.items():
            cells = [
                "–" if cell["P@1"] is None else f"{cell['P@1']:.1f} ({cell['facts']})"
                for cell in (row[name] for name in ("told", "told_long", "withheld", "withheld_long"))
            ]
            cells.insert(2, f"{row['told_long']['P@10']:.1f}")
            lines.append(f"| {lm} | {WAYS[way][0]} | {' | '.join(cells)} |")
    missing = [lm for lm in LMS if lm not in kept["lms"]]
    left = [name for name in kept["every"] if name not in kept["relations"]]
    notes = [f"Not measured yet: {', '.join(missing + left)}.", ""] if missing or left else []
    return [*lines, "", *LONG_WORDS, "", *notes]


def main() -> None:
    """Does what is not done yet, then writes the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lms", nargs="+", default=list(LMS))
    parser.add_argument("--relations", nargs="+")
    parser.add_argument("--ways", nargs="+", choices=list(WAYS))
    parser.add_argument("--answers", default="one-token", choices=["one-token", "any-length"])
    parser.add_argument("--no-page", action="store_true", help="only do the runs")
    chosen = parser.parse_args()
    every = [relation.name for relation in relations() if relation.name not in STUDIED]
    ways = chosen.ways or list(WAYS)
    if chosen.answers == "any-length":
        # All of the testbed's LMs share one list of words, so any of their tokenizers tells which answers are long.
        lm = load_lm(LMS[0])
        every = [name for name in every if any(is_long(lm, fact.y) for fact in testbed_relation(name).test)]
        ways = chosen.ways or list(LONG_WAYS)
    names = chosen.relations or every
    torch.set_num_threads(1)
    results: dict[str, Any] = {}
    for lm_name in chosen.lms:
        lm = load_lm(lm_name)
        by_way = {}
        for way in ways:
            by_way[way] = [o for name in names for o in outcomes_of(lm_name, lm, name, way, chosen.answers)]
            print(lm_name, way, f"told {macro(only(by_way[way], is_told=True), names):.1f}", flush=True)
        results[lm_name] = figures(by_way, names) if chosen.answers == "one-token" else long_figures(lm, by_way)
    if chosen.no_page:
        return
    if chosen.answers == "one-token":
        write_json(ONE_TOKEN, {"date": today(), "relations": names, "lms": results})
    else:
        write_json(ANY_LENGTH, {"date": today(), "relations": names, "every": every, "lms": results})
    kept = json.loads(ONE_TOKEN.read_text(encoding="utf-8"))
    text = document(kept)
    if ANY_LENGTH.exists():
        text += "\n" + "\n".join(long_section(json.loads(ANY_LENGTH.read_text(encoding="utf-8"))))
    DOCUMENT.write_text(text, encoding="utf-8")


def write_json(path: Path, results: dict[str, Any]) -> None:
    """Keeps what was measured."""
    path.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")


def today() -> str:
    """The date."""
    return str(datetime.datetime.now(tz=datetime.UTC).date())


if __name__ == "__main__":
    main()
