"""The scores of an evaluation, of a run, or of several: tables and sentences."""

from collections.abc import Mapping

from askwell.evaluation.controls import MAJORITY, PRIOR, PRIOR_MASKED_X
from askwell.evaluation.knowledge import KnowledgeFigures
from askwell.evaluation.labels import LabelFigures
from askwell.evaluation.metrics import METRICS, TABLE_METRICS
from askwell.evaluation.scoring import Evaluation, EvaluationFigures
from askwell.evaluation.significance import interval_text
from askwell.runs.several_runs import SeveralRuns
from askwell.views.document import Block, Paragraph, Table, table
from askwell.views.printable import NONE, counted

CONTROLS = {
    MAJORITY: "the most frequent ys of train",
    PRIOR: "the prompts' prior",
    PRIOR_MASKED_X: "the prompts with x masked",
    "random-weights": "the same tuning on an LM with random weights",
    "random-embeddings": "the same tuning on the LM with random word vectors",
}
"""What each control is, in a few words."""

# What is left of 80 characters beside the scores.
_WIDTH_OF_LABELS = 40


def score_table(evaluations: Mapping[str, EvaluationFigures | None]) -> Table:
    """Return a row of scores for each evaluation."""
    shown = {name: evaluation for name, evaluation in evaluations.items() if evaluation is not None}
    last = list(shown.values())[-1]
    rows = [
        (name, *(metric.text(evaluation.score(key)) for key, metric in METRICS.items()))
        for name, evaluation in shown.items()
    ]
    title = f"{counted(last.facts, 'test fact')}, ranked among {last.vocabulary}"
    return table(("", *METRICS), rows, numbers=METRICS, title=title)


def evaluation_blocks(evaluation: Evaluation) -> list[Block]:
    """Return the scores of each relation and their averages, and those of labels."""
    figures = evaluation.figures()
    rows = {name: (int(scores["facts"]), scores) for name, scores in figures.relations.items()}
    if len(figures.relations) > 1:
        rows |= {"micro average": (figures.facts, figures.micro), "macro average": (figures.facts, figures.macro)}
    rows["other golds kept (raw)"] = (figures.facts, figures.raw.micro)
    title = f"{counted(figures.facts, f'{evaluation.split} fact')}, ranked among {evaluation.vocabulary}"
    scored = table(
        ("", "facts", *TABLE_METRICS),
        [
            (name, str(facts), *(METRICS[metric].text(scores.get(metric)) for metric in TABLE_METRICS))
            for name, (facts, scores) in rows.items()
        ],
        numbers=("facts", *TABLE_METRICS),
        title=title,
    )
    return [scored, *label_blocks(figures.labels)]


def label_blocks(found: LabelFigures | None) -> list[Block]:
    """Return precision, recall and F1 of each label, and the confusion table, or its most frequent errors if that is
    too wide."""
    if found is None:
        return []
    in_columns = sum(len(label) + 6 for label in found.labels) <= _WIDTH_OF_LABELS
    chosen = [f"→ {label}" for label in found.labels] if in_columns else ["taken for"]
    numbers = ("facts", "precision", "recall", "F1")
    rows = []
    for label, row in zip(found.labels, found.confusion, strict=True):
        scores = found.scores[label]
        figures = (NONE if score is None else f"{score:.1f}" for score in (scores.precision, scores.recall, scores.f1))
        wrong = ", ".join(f"{other} ({count})" for other, count in list(found.taken_for(label).items())[:3])
        rows.append((label, str(scores.facts), *figures, *(map(str, row) if in_columns else [wrong])))
    labels = table(("", *numbers, *chosen), rows, numbers=(*numbers, *(chosen if in_columns else ())), title="Labels")
    return [labels, Paragraph(f"Macro F1: {found.macro_f1:.1f}.")]


def control_sentences(found: KnowledgeFigures | None, corrected: float | None) -> list[str]:
    """Return what answers that ignore x score, and the gain over the best of them."""
    if found is None:
        return []
    each = ", ".join(f"{CONTROLS.get(name, name)} {scores.test:.1f}" for name, scores in found.controls.items())
    verdict = "" if found.is_there else ", which may be chance"
    best = CONTROLS.get(found.control, found.control)
    lines = [
        f"P@1 without looking at x: {each}.",
        f"Gain over the best of them (chosen on dev: {best}): {found.gain:.1f} ({100 * found.confidence:.0f} % "
        f"interval {interval_text(found.low, found.high, '{:.1f}'.format)}){verdict}.",
    ]
    if corrected is not None:
        lines.append(
            f"P@1 with each answer's probability divided by its prior: {corrected:.1f}. (The prior is the "
            "prompts' average answer, regardless of x; an answer that they prefer anyway must gain more from x to rank "
            "first.)"
        )
    return lines


def spread_blocks(several: SeveralRuns) -> list[Block]:
    """Return the mean and spread of several runs' scores, and how often their answers agree."""
    facts, left_out = ("–".join(map(str, counts)) for counts in (several.facts, several.left_out))
    asked = f"{facts} facts ({left_out} left out), ranked among {several.vocabulary}"
    columns = ("mean", "std. dev.", "min", "max")
    spread = table(
        ("", *columns),
        [
            (name, *map(METRICS[name].text, (of.mean, of.deviation, of.low, of.high)))
            for name, of in several.scores.items()
        ],
        numbers=columns,
        title=f"{several.relation}: {several.runs} runs, {asked}",
    )
    right = several.consistency.same_of_right
    among = "" if right is None else f", {100 * right:.1f} % where one of the two is right"
    same = f"Two runs give the same answer to {100 * several.consistency.same:.1f} % of the x's{among}."
    return [spread, Paragraph(same)]
