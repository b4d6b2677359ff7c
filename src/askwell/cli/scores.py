"""What `askwell evaluate` does with each relation, and what it prints of all of them."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from rich.table import Table

from askwell.cli.running import control_lines, note_few_candidates, note_unsettled, print_labels, print_several
from askwell.cli.terminal import Bar, counted, note, note_left_out_facts, say, stdout
from askwell.cli.trust import trust_lines
from askwell.data.facts import Relation, SplitName
from askwell.errors import BadOption, NothingLeft
from askwell.evaluation.controls import PRIOR_CORRECTED, Controls, controls_together
from askwell.evaluation.evaluate import Evaluation, together
from askwell.evaluation.examine import examine
from askwell.evaluation.knowledge import KnowledgeFigures, knowledge_over
from askwell.evaluation.metrics import METRICS, TABLE_METRICS, scores_of
from askwell.evaluation.trust import Trust, trust_of
from askwell.files import to_json
from askwell.mixture.candidates import Candidates
from askwell.runs.seeds import SeveralRuns, several_runs
from askwell.runs.sources import EvaluationJob


@dataclass
class Scored:
    """What was found for all relations together; `controls` and `trust` are None if they were not asked for."""

    evaluation: Evaluation
    several_runs: list[SeveralRuns]
    """The relations that were evaluated more than once."""
    counts: dict[str, Any]
    """What is worth knowing about the facts, by relation."""
    relations_left_out: dict[str, str]
    controls: Controls | None
    controls_missing: dict[str, str]
    knowledge: KnowledgeFigures | None
    """The gain over the best control."""
    trust: list[Trust] | None


def score_jobs(
    jobs: Iterable[EvaluationJob],
    split: SplitName,
    candidates_of: Callable[[Relation], Candidates | None],
    *,
    controls: bool,
    trust: bool,
    risk: float,
    confidence: float | None,
) -> Scored:
    """Scores mixtures on their relations; a relation of which no fact can be asked is left out."""
    evaluations: list[Evaluation] = []
    found: list[Controls] = []
    trusts: list[Trust] = []
    counts: dict[str, Any] = {}
    left_out: dict[str, str] = {}
    missing: dict[str, str] = {}
    for job in jobs:
        name, candidates = job.relation.name, candidates_of(job.relation)
        counts[name] = job.relation.counts.as_json()
        for line in job.relation.counts.lines():
            note(f"{name}: {line}")
        lacks = [other for other in ("train", "dev") if not job.relation.split(other)]
        if controls and lacks:
            missing[name] = f"it has no {' and no '.join(lacks)} facts to make and choose them with"
        try:
            with Bar(f"{split} facts of {name}") as shown:
                examination = examine(
                    job.mixture, job.relation, splits=(split, "dev") if trust else (split,), candidates=candidates,
                    controls=controls and not lacks, prompts=trust, seed=job.mixture.spec.seed, progress=shown,
                )  # fmt: skip
                evaluations.append(examination.evaluations[split])
                if trust:
                    options: Any = {"candidates": candidates, "risk": risk, "confidence": confidence, "progress": shown}
                    trusts.append(trust_of(job.mixture, job.relation, examination, **options))
        except NothingLeft as nothing:
            left_out[name] = str(nothing)
            note(f"{name} is left out: {nothing}")
            continue
        if examination.controls.missing:
            missing[name] = "; ".join(dict.fromkeys(examination.controls.missing.values()))
        elif controls and not lacks:
            found.append(examination.controls)
    if not evaluations:
        raise BadOption("; ".join(left_out.values()))
    evaluation, all_controls = together(evaluations), controls_together(found)
    gain = knowledge_over(evaluation.outcomes, all_controls)
    return Scored(
        evaluation,
        several_runs(evaluations),
        counts,
        left_out,
        all_controls if controls else None,
        missing,
        None if gain is None else gain.figures(),
        trusts if trust else None,
    )


def scored_as_json(scored: Scored) -> dict[str, Any]:
    """The document that --json prints."""
    document = to_json(scored.evaluation.figures())
    document |= {"counts": scored.counts, "relations_left_out": scored.relations_left_out}
    if scored.controls is not None:
        document |= {
            "controls": to_json(scored.controls.figures()),
            "controls_missing": scored.controls_missing,
            "knowledge": to_json(scored.knowledge),
        }
    document |= {"several_runs": to_json(scored.several_runs)} if scored.several_runs else {}
    return document | ({} if scored.trust is None else {"trust": to_json(scored.trust)})


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
    stdout.print(table)
    print_labels(figures.labels)
