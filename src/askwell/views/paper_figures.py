"""The paper's published figures, shown beside ours, and what to bear in mind when comparing them."""

from collections.abc import Sequence
from statistics import fmean

from askwell.views.printable import counted
from askwell.views.study_cells import KeptRun
from askwell.views.study_rows import Line, read_texts

_PUBLISHED = read_texts("paper_figures.toml")
_METRICS = ("P@1", "P@10", "MRR")
_SETS = {"trex_extend": "trex_extended"}  # the name of the released folder
_SOURCES = {"manual": "single"}
_RECIPES = {
    "plateau": "until the log-loss on dev no longer falls",
    "cycle": "one cycle over a budget of pairs",
    "paper": "the paper's schedule",
}
_METHODS = {"gradient": "by gradient", "em": "by EM"}
# A relation's count may differ a little from the paper's, e.g. by repeated lines.
_NEARLY = 0.97


def paper_score(line: Line, kind: str, metric: str) -> float | None:
    """Return the paper's figure for a cell, if it has one for the same LM, facts and source of prompts."""
    if metric not in _METRICS or not line.is_plain:
        return None
    found = _PUBLISHED["scores"].get(_paper_set(line.fact_set), {}).get(line.lm.rpartition("/")[2], {})
    figures = found.get(_paper_source(line.source), {}).get(kind)
    return None if figures is None else figures[_METRICS.index(metric)]


def paper_effective_prompts(line: Line, figure: str) -> float | None:
    """Return the mean, std, min or max of the effective number of prompts in the paper."""
    if not line.is_plain:
        return None
    by_source = _PUBLISHED["effective_prompts"].get(_paper_set(line.fact_set), {})
    return by_source.get(_paper_source(line.source), {}).get(figure)


def _paper_source(source: str) -> str:
    return "random" if source.startswith("random") else _SOURCES.get(source, source)


def _paper_set(fact_set: str) -> str:
    # T-REx split so that no y is in two splits.
    return "distinct_y" if "distinct" in fact_set else _SETS.get(fact_set, fact_set)


def differences(runs: Sequence[KeptRun]) -> tuple[str, ...]:
    """Return what to bear in mind when comparing these runs with the paper's figures, as sentences."""
    told = ["Ranks: we skip other right answers for the same x; the paper ranks y among all words."]
    if any(len(run.spec.templates) > 1 for run in runs):
        told.append("Answers: tokens that spell the same word in their places count as one answer here.")
    if left_out := sum(run.figures.left_out_count for run in runs):
        told.append(
            f"Facts: {left_out} of {left_out + sum(run.facts for run in runs)} facts (over all runs) could not be "
            "asked, e.g. because y is not one token of the LM, and are left out of all scores."
        )
    trained = {(run.spec.training.recipe, run.spec.training.method) for run in runs if run.spec.training is not None}
    if others := sorted(trained - {("paper", "em")}):
        ways = "; ".join(f"{_RECIPES[recipe]}, {_METHODS[method]}" for recipe, method in others)
        told.append(f"Training: the paper's released code trains by EM; here: {ways}.")
    if candidates := sorted({run.spec.candidates for run in runs if run.spec.candidates}):
        told.append(f"Vocabulary: answers are ranked among {', '.join(candidates)}.")
    if samples := list(_samples(runs)):
        told.append(f"Sample: {'; '.join(samples)}.")
    return tuple(told)


def _samples(runs: Sequence[KeptRun]) -> list[str]:
    """Return which sets have fewer facts here than in the paper."""
    found = []
    for fact_set in sorted({run.fact_set for run in runs}):
        counts = {run.spec.relation: run.record.relation.counts for run in runs if run.fact_set == fact_set}
        ours = fmean(of.get("read", 0) for of in counts.values())
        theirs = _PUBLISHED["pairs"].get(_paper_set(fact_set))
        if theirs is not None and ours < _NEARLY * theirs:
            found.append(
                f"{fact_set} has {ours:.0f} facts per relation ({counted(len(counts), 'relation')}) here, including "
                f"train and dev, {theirs:.0f} in the paper"
            )
    return found
