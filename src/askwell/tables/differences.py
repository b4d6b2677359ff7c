"""Where our figures differ from the paper's by definition, as far as the runs themselves tell."""

from collections.abc import Sequence
from statistics import fmean

from askwell.tables.kept import KeptRun
from askwell.tables.paper import Paper

# A relation's count may differ a little from the paper's, e.g. by repeated lines.
_NEARLY = 0.97


def differences(runs: Sequence[KeptRun], paper: Paper) -> tuple[str, ...]:
    """Sentences on what to keep in mind when these runs stand beside the paper's figures."""
    told = ["Ranks: we pass over other right answers for the same x; the paper ranks y among all words."]
    if any(len(run.spec.templates) > 1 for run in runs):
        told.append("Answers: tokens that spell the same word in their places are one answer here.")
    left_out = sum(run.left_out for run in runs)
    if left_out:
        told.append(
            f"Facts: {left_out} of {left_out + sum(run.facts for run in runs)} facts (over all runs) could not be "
            "asked, e.g. since y is not one token of the LM, and are in no figure."
        )
    told += [sentence for sentence in (_recipe(runs), _candidates(runs), _sampled(runs, paper)) if sentence]
    return tuple(told)


def _recipe(runs: Sequence[KeptRun]) -> str:
    tuned = [run.spec.training for run in runs if run.spec.training is not None]
    ours = {(training.recipe, training.method) for training in tuned} - {("paper", "em")}
    if not ours:
        return ""
    names = {"cycle": "one cycle over a budget of pairs", "paper": "the paper's schedule"}
    methods = {"gradient": "by gradient", "em": "by EM"}
    listed = "; ".join(f"{names[recipe]}, {methods[method]}" for recipe, method in sorted(ours))
    return f"Training: the paper's released code trains by EM; here: {listed}."


def _candidates(runs: Sequence[KeptRun]) -> str:
    named = sorted({run.spec.candidates for run in runs if run.spec.candidates})
    return f"Vocabulary: answers are ranked among {', '.join(named)}." if named else ""


def _sampled(runs: Sequence[KeptRun], paper: Paper) -> str:
    told = []
    for fact_set in sorted({run.fact_set for run in runs}):
        expected = paper.pairs_a_relation(fact_set)
        read = {run.spec.relation: run.metrics["relation"]["read"] for run in runs if run.fact_set == fact_set}
        if expected is not None and fmean(read.values()) < _NEARLY * expected:
            told.append(
                f"{fact_set} has {fmean(read.values()):.0f} facts a relation ({len(read)} relations) here, train and "
                f"dev included, {expected:.0f} in the paper"
            )
    return f"Sample: {'; '.join(told)}." if told else ""
