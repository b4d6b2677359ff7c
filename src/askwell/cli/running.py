"""Shared by `train`, `baseline` and `evaluate`: loading the LM, executing the run, and printing its results."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from askwell.cli.progress import RunBars
from askwell.cli.terminal import note, note_left_out_facts, print_json, say, show, show_document
from askwell.data.facts import Relation
from askwell.data.templates import Template
from askwell.evaluation.controls import PRIOR_CORRECTED
from askwell.evaluation.metrics import scores_of
from askwell.evaluation.scoring import Evaluation, EvaluationFigures
from askwell.lms.frozen import FrozenLM
from askwell.lms.load import load_lm
from askwell.lms.machine import set_threads
from askwell.runs.folder import check_folder, clear_folder, hold_folder
from askwell.runs.record import RunRecord
from askwell.runs.run import run
from askwell.runs.score_source import Scored
from askwell.specs.run_spec import RunSpec
from askwell.views.printable import counted
from askwell.views.scores import control_sentences, evaluation_blocks, label_blocks, score_table, spread_blocks
from askwell.views.trust_of_mixture import trust_of_mixture


def load_for_run(
    lm: str, relation: Relation, templates: Sequence[Template], threads: int | None, **loading: Any
) -> FrozenLM:
    """Load the LM of a run, and note what the run will use."""
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
    """Execute a run and show its progress; `overwrite` removes the files of an earlier run first."""
    with hold_folder(folder), RunBars(folder) as bars:
        # Checked again, since another run may have finished there while the LM was loading.
        check_folder(folder, resume=options.get("resume", False), overwrite=overwrite)
        if overwrite:
            clear_folder(folder)
        return run(spec, lm, relation, folder, progress=bars, **options)


def print_run(record: RunRecord, folder: Path, *, json: bool) -> None:
    """Print the results of a run, as JSON or as a summary."""
    if json:
        print_json(record.as_json(folder))
    else:
        print_record(record, folder)


def print_record(record: RunRecord, folder: Path) -> None:
    """Print the summary of a run: scores, controls, and what to do next."""
    if record.training is not None:
        for split, left_out in record.training.left_out.items():
            note_left_out_facts(split, left_out)
    note_left_out_facts("test", record.test.left_out, record.test.left_out_facts)
    note_few_candidates(record.test)
    for figures in (record.untuned, record.test):
        note_unsettled(figures, "untuned " if figures is record.untuned else "")
    name = record.spec.baseline or ("tuned" if record.spec.training is not None else "untuned")
    show(score_table({"untuned": record.untuned, name: record.test}), *label_blocks(record.test.labels))
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
    """Note how many candidates were left out."""
    if figures.candidates_left_out:
        words = counted(figures.candidates_left_out, "candidate")
        note(f"{words} left out, which the LM cannot spell within the longest allowed answer")


def note_unsettled(figures: EvaluationFigures | None, of: str = "") -> None:
    """Note the bounds on the scores if the search was cut short for some facts."""
    if figures is not None and figures.unsettled:
        note(f"{of}{figures.bounds_text}")


def print_controls(record: RunRecord) -> None:
    """Print the scores of answers that ignore x, and the gain over the best of them."""
    for name, problem in record.controls_missing.items():
        note(f"no control {name} for {record.relation.name}: {problem}")
    corrected = record.controls.get(PRIOR_CORRECTED)
    score = None if corrected is None or corrected.test is None else corrected.test["P@1"]
    say(*control_sentences(record.knowledge, score))


def print_scored(scored: Scored) -> None:
    """Print the scores, then the controls, the spread of several runs, and the measures of trust."""
    _show_evaluation(scored.evaluation)
    for name, lack in scored.controls_missing.items():
        note(f"no controls for {name}: {lack}")
    outcomes = {} if scored.controls is None else scored.controls.outcomes
    corrected = outcomes.get(PRIOR_CORRECTED, {}).get("test")
    say(*control_sentences(scored.knowledge, scores_of(corrected)["P@1"] if corrected else None))
    for runs in scored.several_runs:
        show(*spread_blocks(runs))
    for trust in scored.trust or ():
        show_document(trust_of_mixture(trust))


def _show_evaluation(evaluation: Evaluation) -> None:
    figures = evaluation.figures()
    note_left_out_facts(evaluation.split, figures.left_out, figures.left_out_facts)
    note_few_candidates(figures)
    note_unsettled(figures)
    show(*evaluation_blocks(evaluation))
