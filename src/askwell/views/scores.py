"""The scores of an evaluation, of a run, or of several, as tables."""

from collections.abc import Mapping

from askwell.evaluation.labels import LabelFigures
from askwell.evaluation.metrics import METRICS, TABLE_METRICS
from askwell.evaluation.scoring import Evaluation, EvaluationFigures
from askwell.runs.several_runs import SeveralRuns
from askwell.views.document import Block, Paragraph, Table, table
from askwell.views.printable import counted


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
    rows["other golds kept (raw)"] = (figures.facts, figures.raw["micro"])
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
    """Return how well each label is recognised, if answers were chosen among labels."""
    return [] if found is None else [found.table(), Paragraph(f"Macro F1: {found.macro_f1:.1f}.")]


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
