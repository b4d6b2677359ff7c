"""What kind of run a run is. Its spec decides; the free names of settings do not."""

from dataclasses import dataclass
from typing import Any

from askwell.specs import RunSpec

INIT, SOFT, DEEP = "init", "soft", "deep"
WEIGHTS, VECTORS = "weights only", "vectors only"
ARROWS = (INIT, SOFT, DEEP)
"""The kinds that follow each other in the paper's tables."""
EM, DATA_DEPENDENT, PRODUCT, PUBLISHED = "EM", "data-dependent", "product of experts", "published weights"

_SHALLOW = {("vectors", "weights"): SOFT, ("weights",): WEIGHTS, ("vectors",): VECTORS, (): "nothing tuned"}
_DEEP = {("vectors", "layers", "weights"): DEEP}
# They are told by the kind, by the row or by the seed; all else is how a kind of run was done.
_IN_THE_KIND = {"tune_vectors", "tune_layers", "tune_weights", "method"}
_IN_THE_ROW = {"deep", "data_dependent", "initial", "copies", "combine", "weights", "seed"}


@dataclass(frozen=True)
class Kind:
    """What was tuned, and what else makes a run another one than the plain kind."""

    tuned: str
    """init, soft, deep, weights only, vectors only; or in words what of a deep mixture was tuned."""
    extras: tuple[str, ...] = ()
    """EM, data-dependent, 3 copies, …: each makes a row of its own."""


def kind_of(spec: RunSpec) -> Kind:
    """The kind of a run."""
    mixture, training = spec.mixture, spec.training
    extras = [
        *([EM] if training is not None and training.method == "em" else []),
        *([DATA_DEPENDENT] if mixture.data_dependent else []),
        *([PRODUCT] if mixture.combine == "product" else []),
        *([PUBLISHED] if mixture.weights == "file" else []),
        *([f"{mixture.copies} copies"] if mixture.copies > 1 else []),
    ]
    return Kind(_tuned(spec), tuple(extras))


def place_of(tuned: str) -> tuple[int, str]:
    """Where a kind stands among others."""
    order = (*ARROWS, WEIGHTS, VECTORS)
    return order.index(tuned) if tuned in order else len(order), tuned


def source_of(spec: RunSpec) -> str:
    """The name of the prompts; vectors that start at random only stand at the prompts' places, and are told apart."""
    initial = spec.mixture.initial
    return spec.prompts if initial == "words" else f"{initial} ({spec.prompts})"


def how_of(spec: RunSpec) -> dict[str, Any]:
    """All choices of a run that neither its kind, its row nor its seed tells."""
    training = {} if spec.training is None else spec.training.model_dump(mode="json", exclude=_IN_THE_KIND)
    return {
        **spec.mixture.model_dump(mode="json", exclude=_IN_THE_ROW),
        **training,
        "threads": spec.threads,
        "device": spec.device,
        "dtype": spec.dtype,
    }


def _tuned(spec: RunSpec) -> str:
    if spec.training is None:
        return INIT
    deep = spec.mixture.deep
    parts = [
        *(["vectors"] if spec.training.tune_vectors and spec.mixture.combine == "mixture" else []),
        *(["layers"] if spec.training.tune_layers and deep else []),
        *(["weights"] if spec.training.tune_weights else []),
    ]
    named = (_DEEP if deep else _SHALLOW).get(tuple(parts))
    return named or f"deep, {' and '.join(parts) or 'nothing'} tuned"
