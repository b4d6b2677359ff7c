"""The kind of a run, which follows from its spec, whatever its setting is called; and the step from one cell to the
next."""

import math
from collections.abc import Callable
from typing import Any

from askwell.evaluation.comparison import Difference, Outcomes, paired_difference
from askwell.evaluation.outcomes import Outcome
from askwell.runs.record import ONLY_WEIGHTS
from askwell.runs.run_group import RunGroup
from askwell.specs.mixture_spec import AUTO_LEAD_IN, NO_LEAD_IN
from askwell.specs.run_spec import RunSpec

INIT, SOFT, DEEP = "init", "soft", "deep"
WEIGHTS, VECTORS = "weights only", "vectors only"
ARROWS = (INIT, SOFT, DEEP)
"""The kinds that follow each other in the paper's tables."""
KINDS = (*ARROWS, WEIGHTS, VECTORS)
"""All kinds that have a name, in the order of tables."""
_IN_WORDS = {
    INIT: "untuned",
    SOFT: "tuned",
    DEEP: "tuned at all layers",
    WEIGHTS: ONLY_WEIGHTS,
    VECTORS: "only vectors tuned",
}
EM = "EM"
AUTO, STATIC = "auto", "static"
"""The weighting that a run chooses itself, and the one that does not depend on x; each of the others gets its own row,
under its name."""

_SHALLOW = {("vectors", "weights"): SOFT, ("weights",): WEIGHTS, ("vectors",): VECTORS, (): "nothing tuned"}
_DEEP = {("vectors", "layers", "weights"): DEEP}
# Kind, row and seed show these; everything else is how a run was done.
_IN_THE_KIND = {"tune_vectors", "tune_layers", "tune_weights", "method"}
_IN_THE_ROW = {"deep", "weighting", "initial", "copies", "combine", "weights", "seed", "prefix", "shots"}


def kind_of(spec: RunSpec) -> str:
    """Return what was tuned: one of KINDS, or a description of what was tuned in a deep mixture."""
    if spec.training is None:
        return INIT
    kinds = _DEEP if spec.mixture.deep else _SHALLOW
    return kinds.get(spec.tuned) or f"deep, {' and '.join(spec.tuned) or 'nothing'} tuned"


def extras_of(spec: RunSpec) -> tuple[str, ...]:
    """Return what distinguishes a run from plain ones of its kind, which have other rows: EM, data-dependent, …"""
    mixture, training = spec.mixture, spec.training
    extras = {
        EM: training is not None and training.method == "em",
        f"weighted by x ({mixture.weighting})": mixture.weighting not in (AUTO, STATIC),
        "product of experts": mixture.combine == "product",
        "published weights": mixture.weights == "file",
        f"{mixture.copies} copies": mixture.copies > 1,
        "lead-in": mixture.lead_in not in (NO_LEAD_IN, AUTO_LEAD_IN),
        f"prefix of {mixture.prefix}": mixture.prefix > 0,
        f"{mixture.shots} shots": bool(mixture.shots),
    }
    return tuple(name for name, applies in extras.items() if applies)


def in_words(kind: str, group: RunGroup | None = None) -> str:
    """Return a kind as people are told of it, without the paper's names; of a group that was kept as it had been, how
    that was."""
    return f"kept {group.kept}" if group is not None and group.kept else _IN_WORDS.get(kind, kind)


def place_of(kind: str) -> tuple[int, str]:
    """Return the place of a kind in the order of tables, to sort by."""
    return KINDS.index(kind) if kind in KINDS else len(KINDS), kind


def source_of(spec: RunSpec) -> str:
    """Return the name of the prompts; where vectors began at random, only their positions come from the prompts."""
    initial = spec.mixture.initial
    return spec.prompts if initial == "words" else f"{initial} ({spec.prompts})"


def how_of(spec: RunSpec) -> dict[str, Any]:
    """Return all choices of a run that its kind, row and seed do not show."""
    return {
        **spec.mixture.model_dump(mode="json", exclude=_IN_THE_ROW),
        **({} if spec.training is None else spec.training.model_dump(mode="json", exclude=_IN_THE_KIND)),
        **spec.model_dump(mode="json", include={"threads", "device", "dtype"}),
    }


def change_of(
    before: RunGroup | None, after: RunGroup | None, metric: str, among: Callable[[Outcome], bool] | None = None
) -> Difference | None:
    """Return the difference between two cells, all relations together; None if they share no relation or no seed.

    `among` limits it to some facts, where the outcomes of single facts are known.
    """
    if before is None or after is None or not {*before.relations} & {*after.relations}:
        return None
    if not before.has_outcomes:
        scores = after.score(metric).mean, before.score(metric).mean
        return Difference(*scores, scores[0] - scores[1], low=None, high=None, p=math.nan, exact=False)
    a, b = _by_seed(after, among), _by_seed(before, among)
    if isinstance(a, dict) and isinstance(b, dict) and not a.keys() & b.keys():
        return None
    return paired_difference(a, b, metric)


def _by_seed(group: RunGroup, among: Callable[[Outcome], bool] | None) -> Outcomes:
    """Return a group's outcomes by seed; a group with one seed is compared with every seed of the other."""
    found = {seed: [*filter(among, outcomes)] for seed, outcomes in group.outcomes.items()} if among else group.outcomes
    return found if len(found) > 1 else next(iter(found.values()))
