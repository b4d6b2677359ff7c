"""Scores saved mixtures or untuned prompts on one relation or many: what `askwell evaluate` does."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from askwell.data.facts import Relation, SplitName
from askwell.errors import BadOption, NothingLeft
from askwell.evaluation.controls import Controls, controls_together
from askwell.evaluation.examine import examine
from askwell.evaluation.knowledge import KnowledgeFigures, knowledge_over
from askwell.evaluation.scoring import Evaluation, together
from askwell.evaluation.trust import Trust, trust_of
from askwell.files import to_json
from askwell.mixture.candidates import Candidates
from askwell.runs.run import Asking
from askwell.runs.seeds import SeveralRuns, several_runs
from askwell.runs.sources import EvaluationJob, Note


@dataclass(frozen=True)
class Scored:
    """The scores of all relations together; `controls` and `trust` are None if they were not requested."""

    evaluation: Evaluation
    several_runs: list[SeveralRuns]
    """The relations that were evaluated more than once."""
    counts: dict[str, Any]
    """Lines read, repeated and leaked, by relation: see `Counts`."""
    relations_left_out: dict[str, str]
    """Relations of which no fact could be asked, and why."""
    controls: Controls | None
    controls_missing: dict[str, str]
    """Relations without controls, and why."""
    knowledge: KnowledgeFigures | None
    """The gain over the best control."""
    trust: list[Trust] | None

    def as_json(self) -> dict[str, Any]:
        """All figures, as plain JSON."""
        document = to_json(self.evaluation.figures())
        document |= {"counts": self.counts, "relations_left_out": self.relations_left_out}
        if self.controls is not None:
            document |= {
                "controls": to_json(self.controls.figures()),
                "controls_missing": self.controls_missing,
                "knowledge": to_json(self.knowledge),
            }
        document |= {"several_runs": to_json(self.several_runs)} if self.several_runs else {}
        return document | ({} if self.trust is None else {"trust": to_json(self.trust)})


def score_jobs(
    jobs: Iterable[EvaluationJob],
    split: SplitName = "test",
    candidates_of: Callable[[Relation], Candidates | None] = lambda _relation: None,
    *,
    controls: bool = True,
    trust: bool = False,
    risk: float = 0.1,
    confidence: float | None = None,
    progress: Callable[[Asking], None] | None = None,
    note: Note = lambda _line: None,
) -> Scored:
    """The scores of mixtures on their relations; a relation of which no fact can be asked is left out.

    Controls need test facts; `trust` also measures how far each relation's scores can be trusted.
    """
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
        shown = _asking(f"{split} facts of {name}", progress)
        try:
            examination = examine(
                job.mixture,
                job.relation,
                splits=(split, "dev") if trust else (split,),
                candidates=candidates,
                controls=controls and not lacks,
                prompts=trust,
                seed=job.mixture.spec.seed,
                progress=shown,
            )
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


def _asking(what: str, progress: Callable[[Asking], None] | None) -> Callable[[int, int], None] | None:
    return None if progress is None else lambda done, total: progress(Asking(what, done, total))
