"""What tuned prompts elicit from the testbed's LMs, compared with hard ones: the tables of docs/findings/testbed.md.

    python studies/elicitation.py                       # all LMs; finished runs are kept in build/elicitation
    python studies/elicitation.py --lms testbed:bert --relations capital --no-page
    python studies/elicitation.py --answers any-length  # the second part of the page
    python studies/elicitation.py --page                # only write the page

On told facts, a tuned mixture is compared with the hard prompts that are not in the text (manual and paraphrased, equal
weights), and the one tuned manual prompt with itself untuned, by the paired permutation test over all facts. The
relations of the study of defaults are left out.
"""

import argparse
import datetime
import json
from pathlib import Path
from typing import Any

import torch
from lines import RESULTS
from pages import FINDINGS, draw_gaps, fill, table

from askwell import Mixture, MixtureSpec, load_lm, train
from askwell.data.facts import Fact
from askwell.data.split import sample
from askwell.data.testbed import relations, testbed_prompts, testbed_relation, told_facts
from askwell.evaluation.comparison import compare
from askwell.evaluation.examine import evaluate_split
from askwell.evaluation.outcomes import Outcome, read_outcomes, write_outcomes
from askwell.lms.frozen import FrozenLM
from askwell.lms.tokenisation import Place
from askwell.specs.mixture_spec import AnswersName
from askwell.views.charts import Gap

KEPT = Path(__file__).parents[1] / "build" / "elicitation"
ONE_TOKEN, ANY_LENGTH = RESULTS / "elicitation.json", RESULTS / "elicitation_any_length.json"
LMS = ("testbed:bert", "testbed:roberta", "testbed:bart", "testbed:causal")
STUDIED = ("dialling_code", "country_of_region", "neighbour")
DRAWN = 150
"""Test facts of a relation that are asked for answers of any length, at most: each is a search."""
LONG_WAYS = ("manual", "soft-manual")
ABSENT = ("single", "paraphrased")
"""Kinds of prompts that are not in the text."""
STATIC: dict[str, Any] = {"weighting": "static"}
WAYS: dict[str, tuple[str, tuple[str, ...], MixtureSpec, bool]] = {
    "manual": ("manual, hard", ("single",), MixtureSpec(), False),
    "absent": ("manual + paraphrased, hard", ABSENT, MixtureSpec(), False),
    "mined": ("mined, hard (in the text)", ("mined",), MixtureSpec(weights="file"), False),
    "soft-manual": ("manual, soft", ("single",), MixtureSpec(), True),
    "soft-absent": ("manual + paraphrased, soft", ABSENT, MixtureSpec(**STATIC), True),
    "deep-absent": ("manual + paraphrased, deep", ABSENT, MixtureSpec(**STATIC, deep=True), True),
    "soft-mined": ("mined, soft", ("mined",), MixtureSpec(**STATIC), True),
    "soft-words": ("random words, soft", ("random",), MixtureSpec(**STATIC), True),
    "soft-vectors": ("random vectors, soft", ABSENT, MixtureSpec(**STATIC, initial="random"), True),
}


def outcomes_of(lm_name: str, lm: FrozenLM, relation_name: str, way: str, answers: AnswersName) -> list[Outcome]:
    """Return the outcomes of a relation's test facts under one way of asking, from disk if they are there."""
    path = KEPT / answers / lm_name.replace(":", "-") / way / f"{relation_name}.parquet"
    if path.exists():
        return list(read_outcomes(path))
    _, kinds, spec, tuned = WAYS[way]
    relation = testbed_relation(relation_name)
    if answers == "any-length":
        relation = sample(relation, train=None, dev=None, test=DRAWN, seed=0)
    templates = [template for kind in kinds for template in testbed_prompts(kind, relation_name)]
    spec = spec.model_copy(update={"answers": answers})
    mixture = Mixture(lm, templates, spec, relation=relation)
    if tuned:
        train(mixture, relation, fit_weights=False, tune_lengths=False)
    evaluation = evaluate_split(mixture, relation)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_outcomes(evaluation.outcomes, path)
    return list(evaluation.outcomes)


def only(outcomes: list[Outcome], *, is_told: bool) -> list[Outcome]:
    """Return the outcomes of told, or of withheld facts."""
    return [o for o in outcomes if (Fact(o.x, o.y) in told_facts(o.relation)) == is_told]


def macro(outcomes: list[Outcome], names: list[str]) -> float:
    """Return the mean of P@1 over relations, in per cent."""
    shares = []
    for name in names:
        of_relation = [o.rank <= 1 for o in outcomes if o.relation.endswith(f":{name}")]
        if of_relation:
            shares.append(sum(of_relation) / len(of_relation))
    return 100 * sum(shares) / len(shares)


def figures(by_way: dict[str, list[Outcome]], names: list[str]) -> dict[str, Any]:
    """Return the figures of one LM."""
    exact = [r.name for r in relations() if r.cardinality != "N-M" and r.name in names]
    one_to_one = [r.name for r in relations() if r.cardinality == "1-1" and r.name in names]
    rows: dict[str, dict[str, Any]] = {}
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
            compared = compare(those_told, only(base, is_told=True))
            rows[way] |= {
                "gain": compared.micro.difference,
                "low": compared.micro.low,
                "high": compared.micro.high,
                "p": compared.micro.p,
            }
    return rows


def lm_table(rows: dict[str, Any]) -> str:
    """Return the table of one LM."""
    shown = []
    for way, row in rows.items():
        cells = [f"{row[key]:.1f}" for key in ("told", "told_exact", "withheld", "withheld_one_to_one")]
        gain = f"{row['gain']:+.1f} ({row['low']:+.1f} … {row['high']:+.1f})" if "gain" in row else ""
        p = "" if "p" not in row else "< 0.001" if row["p"] < 0.001 else f"{row['p']:.3f}"
        shown.append([WAYS[way][0], *cells, gain, p])
    return table(["prompts", "told", "told, 1-1 and N-1", "withheld", "1-1 withheld", "gain", "p"], shown)


def is_long(lm: FrozenLM, y: str) -> bool:
    """Tell whether an answer has several tokens."""
    return len(lm.wording.encode(y, Place.SPACED)) > 1


def long_figures(lm: FrozenLM, by_way: dict[str, list[Outcome]]) -> dict[str, Any]:
    """Return the figures of one LM for answers of any length: of all facts, and of those with several tokens."""
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


def long_table(kept: dict[str, Any]) -> str:
    """Return the table of answers of any length."""
    shown = []
    for lm, rows in kept["lms"].items():
        for way, row in rows.items():
            cells = [
                "–" if cell["P@1"] is None else f"{cell['P@1']:.1f} ({cell['facts']})"
                for cell in (row[name] for name in ("told", "told_long", "withheld", "withheld_long"))
            ]
            cells.insert(2, f"{row['told_long']['P@10']:.1f}")
            shown.append([lm, WAYS[way][0], *cells])
    header = ["LM", "prompts", "told", "told, several tokens", "P@10", "withheld", "withheld, several tokens"]
    return table(header, shown, names=2)


def write_page() -> None:
    """Write the tables of the page, with the relations and dates of what was measured."""
    one, long = (json.loads(path.read_text(encoding="utf-8")) for path in (ONE_TOKEN, ANY_LENGTH))
    facts = next(iter(next(iter(one["lms"].values())).values()))
    places = {lm: lm_table(rows) for lm, rows in one["lms"].items()} | {"any length": long_table(long)}
    places |= {"date": one["date"], "relations": ", ".join(one["relations"])}
    places |= {"facts": f"{facts['told_facts']} told and {facts['withheld_facts']} withheld"}
    places |= {"date of any length": long["date"], "relations of any length": ", ".join(long["relations"])}
    fill(FINDINGS / "testbed.md", places)
    gaps = [
        Gap(f"{lm}, {shown}", rows[f"soft-{way}"]["told"], rows[way]["told"])
        for lm, rows in one["lms"].items()
        for way, shown in {"manual": "one manual prompt", "absent": "with paraphrases", "mined": "mined"}.items()
    ]
    draw_gaps(FINDINGS / "testbed.md", gaps, first="tuned", second="untuned", measure="told facts found, %")


def main() -> None:
    """Do the missing runs, then write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lms", nargs="+", default=list(LMS))
    parser.add_argument("--relations", nargs="+")
    parser.add_argument("--ways", nargs="+", choices=list(WAYS))
    parser.add_argument("--answers", default="one-token", choices=["one-token", "any-length"])
    parser.add_argument("--no-page", action="store_true", help="only do the runs")
    parser.add_argument("--page", action="store_true", help="only write the page")
    chosen = parser.parse_args()
    if chosen.page:
        write_page()
        return
    every = [relation.name for relation in relations() if relation.name not in STUDIED]
    ways = chosen.ways or list(WAYS)
    if chosen.answers == "any-length":
        # The testbed's LMs share one vocabulary of words, so any of their tokenizers tells which answers are long.
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
    write_page()


def write_json(path: Path, results: dict[str, Any]) -> None:
    """Write what was measured."""
    path.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")


def today() -> str:
    """Return the date."""
    return str(datetime.datetime.now(tz=datetime.UTC).date())


if __name__ == "__main__":
    main()
