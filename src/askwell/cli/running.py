"""What `train`, `baseline` and `evaluate` share: loading the LM, the run itself, and printing its results."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from askwell.cli.progress import RunBars
from askwell.cli.tables import print_table
from askwell.cli.terminal import note, note_left_out_facts, print_json, say
from askwell.cli.trust import trust_lines
from askwell.data.facts import Relation
from askwell.data.templates import Template
from askwell.display.summary import counted
from askwell.evaluation.controls import MAJORITY, PRIOR, PRIOR_CORRECTED, PRIOR_MASKED_X
from askwell.evaluation.knowledge import KnowledgeFigures
from askwell.evaluation.labels import LabelFigures
from askwell.evaluation.metrics import METRICS, TABLE_METRICS, scores_of
from askwell.evaluation.scoring import Evaluation, EvaluationFigures
from askwell.evaluation.significance import interval_text
from askwell.lms.frozen import FrozenLM
from askwell.lms.load import load_lm, set_threads
from askwell.runs.folder import check_folder, clear_folder, hold_folder
from askwell.runs.record import RunRecord
from askwell.runs.run import run
from askwell.runs.score_source import Scored
from askwell.runs.seeds import SeveralRuns
from askwell.specs.run_spec import RunSpec

_CONTROLS = {
    MAJORITY: "the most frequent ys of train",
    PRIOR: "the prompts' prior",
    PRIOR_MASKED_X: "the prompts with x masked",
}

# What is left of 80 characters beside the scores.
_WIDTH_OF_LABELS = 40


def load_for_run(
    lm: str, relation: Relation, templates: Sequence[Template], threads: int | None, **loading: Any
) -> FrozenLM:
    """Loads the LM of a run, and notes what the run will use."""
    for line in relation.counts.lines():
        note(line)
    loaded = load_lm(lm, **loading)
    set_threads(threads)
    note(
        f"{relation.name}: {len(relation.train)} train, {len(relation.dev)} dev and {len(relation.test)} test facts, "
        f"{counted(len(templates), 'prompt')}, on {loaded.identity.name} ({loaded.family.name}, {loaded.device})"
    )
    return loaded


def run_with_bars(
    spec: RunSpec, lm: FrozenLM, relation: Relation, folder: Path, *, overwrite: bool, **options: Any
) -> RunRecord:
    """Does a run and shows its progress; `overwrite` removes the files of an earlier run first."""
    with hold_folder(folder), RunBars(folder) as bars:
        # Checked again, since another run may have finished there while the LM was loading.
        check_folder(folder, resume=options.get("resume", False), overwrite=overwrite)
        if overwrite:
            clear_folder(folder)
        return run(spec, lm, relation, folder, progress=bars, **options)


def print_run(record: RunRecord, folder: Path, *, json: bool) -> None:
    """Prints the results of a run, as JSON or as a summary."""
    if json:
        print_json(record.as_json(folder))
    else:
        print_record(record, folder)


def print_record(record: RunRecord, folder: Path) -> None:
    """Prints the summary of a run: scores, controls, and what to do next."""
    if record.training is not None:
        for split, left_out in record.training.left_out.items():
            note_left_out_facts(split, left_out)
    note_left_out_facts("test", record.test.left_out, record.test.left_out_facts)
    note_few_candidates(record.test)
    for figures in (record.untuned, record.test):
        note_unsettled(figures, "untuned " if figures is record.untuned else "")
    name = record.spec.baseline or ("tuned" if record.spec.training is not None else "untuned")
    print_scores({"untuned": record.untuned, name: record.test})
    print_labels(record.test.labels)
    print_controls(record)
    tuned = record.spec.training is not None and record.training is not None and record.training.pairs is not None
    found = record.training.prompt if record.training is not None else None
    lines = []
    if found is not None:
        lines.append(f"prompt found: {found}")
    elif len(record.prompts) == 1 and record.spec.baseline is not None:
        lines.append(f"prompt: {record.prompts[0].template}")
    seconds = record.environment.seconds or 0.0
    if record.mixture.shots:
        lines.append(f"{len(record.prompts[0].examples)} examples before the question; {seconds:.0f} s in all.")
    if tuned and record.training is not None:
        lines.append(
            f"effective prompts: {record.effective_prompts:.1f} of {len(record.prompts)}; the state after "
            f"{record.training.best_pairs} of {record.training.pairs} pairs was best on dev; {seconds:.0f} s in all."
        )
    follow = f"askwell compare {folder} OTHER" if record.spec.baseline else f'askwell ask {folder} "…"'
    lines.append(f"Saved in {folder}. Next: {follow}, or askwell show {folder}")
    say(*lines)


def note_few_candidates(figures: EvaluationFigures) -> None:
    """Notes how many candidates were left out."""
    if figures.candidates_left_out:
        words = counted(figures.candidates_left_out, "candidate")
        note(f"{words} left out, which the LM cannot spell within the longest allowed answer")


def note_unsettled(figures: EvaluationFigures | None, of: str = "") -> None:
    """Notes between which bounds the scores are if the search was cut for some facts."""
    if figures is not None and figures.unsettled:
        note(f"{of}{figures.bounds_text}")


def print_scores(evaluations: dict[str, EvaluationFigures | None]) -> None:
    """Prints a row of scores for each evaluation."""
    shown = {name: evaluation for name, evaluation in evaluations.items() if evaluation is not None}
    last = list(shown.values())[-1]
    table = Table("", *METRICS, title=f"{counted(last.facts, 'test fact')}, ranked among {last.vocabulary}")
    for name, evaluation in shown.items():
        table.add_row(name, *(metric.text(evaluation.score(key)) for key, metric in METRICS.items()))
    print_table(table)


def print_labels(found: LabelFigures | None) -> None:
    """Prints precision, recall and F1 of each label, and the confusion table, or its most frequent errors if it is
    too wide."""
    if found is None:
        return
    table = Table("", "facts", "precision", "recall", "F1", title="Labels")
    in_columns = sum(len(label) + 6 for label in found.labels) <= _WIDTH_OF_LABELS
    for heading in [f"→ {label}" for label in found.labels] if in_columns else ["taken for"]:
        table.add_column(Text(heading), justify="right" if in_columns else "left")
    for label, row in zip(found.labels, found.confusion, strict=True):
        scores = found.scores[label]
        figures = ("–" if score is None else f"{score:.1f}" for score in (scores.precision, scores.recall, scores.f1))
        wrong = ", ".join(f"{other} ({count})" for other, count in list(found.taken_for(label).items())[:3])
        chosen = [*map(str, row)] if in_columns else [wrong]
        table.add_row(Text(label), str(scores.facts), *figures, *map(Text, chosen))
    print_table(table)
    say(f"Macro F1: {found.macro_f1:.1f}.")


def print_controls(record: RunRecord) -> None:
    """Prints the scores of answers that ignore x, and the gain over the best of them."""
    for name, problem in record.controls_missing.items():
        note(f"no control {name} for {record.relation.name}: {problem}")
    corrected = record.controls.get(PRIOR_CORRECTED)
    score = None if corrected is None or corrected.test is None else corrected.test["P@1"]
    say(*control_lines(record.knowledge, score))


def control_lines(found: KnowledgeFigures | None, corrected: float | None) -> list[str]:
    """The controls in a few sentences."""
    if found is None:
        return []
    each = ", ".join(f"{_CONTROLS.get(name, name)} {scores.test:.1f}" for name, scores in found.controls.items())
    verdict = "" if found.is_there else ", which may be chance"
    best = _CONTROLS.get(found.control, found.control)
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


def print_several(several: SeveralRuns) -> None:
    """Prints a table of the scores of several runs, and a sentence on how often their answers agree."""
    facts, left_out = ("–".join(map(str, counts)) for counts in (several.facts, several.left_out))
    asked = f"{facts} facts ({left_out} left out), ranked among {several.vocabulary}"
    table = Table("", "mean", "std. dev.", "min", "max", title=f"{several.relation}: {several.runs} runs, {asked}")
    for name, spread in several.scores.items():
        figures: Sequence[float | None] = (spread.mean, spread.deviation, spread.low, spread.high)
        table.add_row(name, *(METRICS[name].text(figure) for figure in figures))
    print_table(table)
    right = several.consistency.same_of_right
    among = "" if right is None else f", {100 * right:.1f} % where one of the two is right"
    say(f"Two runs give the same answer to {100 * several.consistency.same:.1f} % of the x's{among}.")


def print_scored(scored: Scored) -> None:
    """Prints the scores, then the controls, the spread of several runs, and the measures of trust."""
    _print_evaluation(scored.evaluation)
    for name, lack in scored.controls_missing.items():
        note(f"no controls for {name}: {lack}")
    outcomes = {} if scored.controls is None else scored.controls.outcomes
    corrected = outcomes.get(PRIOR_CORRECTED, {}).get("test")
    say(*control_lines(scored.knowledge, scores_of(corrected)["P@1"] if corrected else None))
    for runs in scored.several_runs:
        print_several(runs)
    for trust in scored.trust or ():
        say(*trust_lines(trust))


def _print_evaluation(evaluation: Evaluation) -> None:
    figures = evaluation.figures()
    note_left_out_facts(evaluation.split, figures.left_out, figures.left_out_facts)
    note_few_candidates(figures)
    note_unsettled(figures)
    title = f"{counted(figures.facts, f'{evaluation.split} fact')}, ranked among {evaluation.vocabulary}"
    table = Table("", "facts", *TABLE_METRICS, title=title)

    def add(name: str, facts: int | float, scores: Mapping[str, int | float]) -> None:
        table.add_row(name, f"{facts:.0f}", *(METRICS[metric].text(scores.get(metric)) for metric in TABLE_METRICS))

    for name, scores in figures.relations.items():
        add(name, scores["facts"], scores)
    if len(figures.relations) > 1:
        table.add_section()
        add("micro average", figures.facts, figures.micro)
        add("macro average", figures.facts, figures.macro)
    add("other golds kept (raw)", figures.facts, figures.raw.micro)
    print_table(table)
    print_labels(figures.labels)
