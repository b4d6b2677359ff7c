"""Evaluates a mixture on held-out facts: its scores and, on request, those of controls and how far to trust them."""

from collections.abc import Callable
from dataclasses import dataclass, fields

from askwell.answers.candidates import GivenCandidates, as_candidates
from askwell.calls import checked
from askwell.data.facts import Relation, SplitName
from askwell.errors import BadOption
from askwell.evaluation.controls import Controls
from askwell.evaluation.examine import examine
from askwell.evaluation.scoring import Evaluation
from askwell.evaluation.trust import Trust, trust_of
from askwell.mixture.mixture import Mixture


@dataclass(frozen=True, repr=False)
class FullEvaluation(Evaluation):
    """The outcomes of the facts of a split, with the controls and measures of trust that were asked for."""

    controls: Controls | None = None
    """The scores of answers that need no knowledge of x; None unless `controls` was asked for."""
    trust: Trust | None = None
    """How far the scores can be trusted; None unless `trust` was asked for."""


@checked
def evaluate(
    mixture: Mixture,
    relation: Relation,
    split: SplitName = "test",
    *,
    candidates: GivenCandidates = None,
    controls: bool = False,
    trust: bool = False,
    risk: float = 0.1,
    confidence: float | None = None,
    top: int = 10,
    seed: int = 0,
    progress: Callable[[int, int], None] | bool | None = None,
) -> FullEvaluation:
    """Score a mixture on the facts of a split, with the `top` most probable answers to each.

    `controls=True` also scores answers that need no knowledge of x. `trust=True` also measures calibration, agreement
    of the prompts and what can be answered at a `risk` (and `confidence`) on test, with thresholds from dev. If it
    takes long, a terminal or notebook shows a progress bar, unless `progress` is False; if it is a function, it is
    called with the number of facts done and the total instead.
    """
    if trust and split != "test":
        raise BadOption("trust is measured on test, with thresholds learned on dev: leave `split` at test")
    among = as_candidates(candidates)
    encoded = mixture.encode_relation(relation, candidates=among or mixture.candidates)
    splits: list[SplitName] = ["test", "dev"] if trust else [split]
    found = examine(
        mixture,
        relation,
        splits,
        candidates=among,
        top=top,
        facts=encoded,
        controls=controls,
        prompts=trust,
        seed=seed,
        progress=progress,
    )
    measured = None
    if trust:
        measured = trust_of(
            mixture,
            relation,
            found,
            candidates=among,
            risk=risk,
            confidence=confidence,
            facts=encoded,
            progress=progress,
        )
    evaluation = found.evaluations[split]
    known = {field.name: getattr(evaluation, field.name) for field in fields(evaluation)}
    return FullEvaluation(**known, controls=found.controls if controls else None, trust=measured)
