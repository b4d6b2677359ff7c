"""What `askwell evaluate` does with each relation, and what it prints of all of them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from rich.table import Table

from askwell.cli.progress import Bar
from askwell.cli.running import control_lines, print_several
from askwell.cli.terminal import counted, note, note_left_out_facts, say, stdout
from askwell.cli.trust import trust_lines
from askwell.data.facts import SplitName
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
    """What was found for each relation, and for all of them together."""

    with_controls: bool
    with_trust: bool
    evaluations: list[Evaluation] = field(default_factory=list)
    controls: list[Controls] = field(default_factory=list)
    trust: list[Trust] = field(default_factory=list)
    counts: dict[str, Any] = field(default_factory=dict)
    """What is worth knowing about the facts, by relation."""
    relations_left_out: dict[str, str] = field(default_factory=dict)
    controls_missing: dict[str, str] = field(default_factory=dict)

    @property
    def together(self) -> Evaluation:
        """All relations as one."""
        return together(self.evaluations)

    @property
    def all_controls(self) -> Controls:
        """The controls of all relations as one."""
        return controls_together(self.controls)

    @property
    def knowledge(self) -> KnowledgeFigures | None:
        """The gain over the best control."""
        found = knowledge_over(self.together.outcomes, self.all_controls)
        return None if found is None else found.figures()

    @property
    def several_runs(self) -> list[SeveralRuns]:
        """The relations that were evaluated more than once."""
        return several_runs(self.evaluations)


def score_jobs(
    jobs: Iterable[EvaluationJob],
    split: SplitName,
    candidates: Candidates | None,
    *,
    controls: bool,
    trust: bool,
    risk: float,
    confidence: float | None,
) -> Scored:
    """Scores mixtures on their relations; a relation of which no fact can be asked is left out."""
    scored = Scored(controls, trust)
    for job in jobs:
        name = job.relation.name
        scored.counts[name] = job.relation.counts.as_json()
        for line in job.relation.counts.lines():
            note(f"{name}: {line}")
        lacks = [other for other in ("train", "dev") if not job.relation.split(other)]
        if controls and lacks:
            scored.controls_missing[name] = f"it has no {' and no '.join(lacks)} facts to make and choose them with"
        try:
            with Bar(f"{split} facts of {name}") as shown:
                examination = examine(
                    job.mixture, job.relation, splits=(split, "dev") if trust else (split,), candidates=candidates,
                    controls=controls and not lacks, prompts=trust, seed=job.mixture.spec.seed, progress=shown,
                )  # fmt: skip
                scored.evaluations.append(examination.evaluations[split])
                if trust:
                    found = trust_of(
                        job.mixture, job.relation, examination, candidates=candidates, risk=risk,
                        confidence=confidence, progress=shown,
                    )  # fmt: skip
                    scored.trust.append(found)
        except NothingLeft as nothing:
            scored.relations_left_out[name] = str(nothing)
            note(f"{name} is left out: {nothing}")
            continue
        if examination.controls.missing:
            scored.controls_missing[name] = "; ".join(dict.fromkeys(examination.controls.missing.values()))
        elif controls and not lacks:
            scored.controls.append(examination.controls)
    if not scored.evaluations:
        raise BadOption("; ".join(scored.relations_left_out.values()))
    return scored


def scored_as_json(scored: Scored) -> dict[str, Any]:
    """The document that --json prints."""
    document = to_json(scored.together.figures())
    document |= {"counts": scored.counts, "relations_left_out": scored.relations_left_out}
    if scored.with_controls:
        document |= {
            "controls": to_json(scored.all_controls.figures()),
            "controls_missing": scored.controls_missing,
            "knowledge": to_json(scored.knowledge),
        }
    document |= {"several_runs": to_json(scored.several_runs)} if scored.several_runs else {}
    document |= {"trust": to_json(scored.trust)} if scored.with_trust else {}
    return document


def print_scored(scored: Scored) -> None:
    """Prints the scores, then the controls, the spread of several runs, and the measures of trust."""
    _print_table(scored.together)
    for name, lack in scored.controls_missing.items():
        note(f"no controls for {name}: {lack}")
    corrected = scored.all_controls.outcomes.get(PRIOR_CORRECTED, {}).get("test")
    say(*control_lines(scored.knowledge, scores_of(corrected)["P@1"] if corrected else None))
    for runs in scored.several_runs:
        print_several(runs)
    for trust in scored.trust:
        say(*trust_lines(trust))


def _print_table(evaluation: Evaluation) -> None:
    figures = evaluation.figures()
    note_left_out_facts(evaluation.split, figures.left_out, figures.left_out_facts)
    if figures.candidates_left_out:
        note(f"{counted(figures.candidates_left_out, 'candidate')} left out: not one token of the LM")
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
