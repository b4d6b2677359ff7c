"""What `askwell evaluate` prints."""

from collections.abc import Mapping

from rich.table import Table

from askwell.cli.running import control_lines, note_few_candidates, note_unsettled, print_labels, print_several
from askwell.cli.tables import print_table
from askwell.cli.terminal import note, note_left_out_facts, say
from askwell.cli.trust import trust_lines
from askwell.display.summary import counted
from askwell.evaluation.controls import PRIOR_CORRECTED
from askwell.evaluation.evaluate import Evaluation
from askwell.evaluation.metrics import METRICS, TABLE_METRICS, scores_of
from askwell.runs.scoring import Scored


def print_scored(scored: Scored) -> None:
    """Prints the scores, then the controls, the spread of several runs, and the measures of trust."""
    _print_table(scored.evaluation)
    for name, lack in scored.controls_missing.items():
        note(f"no controls for {name}: {lack}")
    outcomes = {} if scored.controls is None else scored.controls.outcomes
    corrected = outcomes.get(PRIOR_CORRECTED, {}).get("test")
    say(*control_lines(scored.knowledge, scores_of(corrected)["P@1"] if corrected else None))
    for runs in scored.several_runs:
        print_several(runs)
    for trust in scored.trust or ():
        say(*trust_lines(trust))


def _print_table(evaluation: Evaluation) -> None:
    figures = evaluation.figures()
    note_left_out_facts(evaluation.split, figures.left_out, figures.left_out_facts)
    note_few_candidates(figures)
    note_unsettled(figures)
    title = f"{counted(figures.facts, f'{evaluation.split} fact')}, {evaluation.vocabulary}"
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
