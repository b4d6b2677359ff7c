"""What a worker is given, and what it gives back."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from askwell.data.facts import Relation
from askwell.mixture.answers import Candidates
from askwell.specs.run import DeviceKind, Digits, RunSpec


@dataclass(frozen=True)
class LMKey:
    """Runs with the same key share a loaded LM."""

    source: str
    revision: str | None
    device: DeviceKind
    dtype: Digits
    compiled: bool


@dataclass(frozen=True)
class RunTask:
    """A run with all that a worker needs but the LM, so that it can be done where none of our files are."""

    spec: RunSpec
    lm_source: str
    revision: str | None
    relation: Relation
    candidates: Candidates | None
    store: Path
    store_id: str
    compiled: bool = False

    @property
    def lm(self) -> LMKey:
        """The LM as it is to be loaded."""
        return LMKey(self.lm_source, self.revision, self.spec.device, self.spec.dtype, self.compiled)


@dataclass(frozen=True)
class RunDone:
    """A run that is whole."""

    id: str
    p_at_1: float
    seconds: float
    files: Mapping[str, bytes] | None = None
    """The files of the run, where the worker does not see the store; None where it has put them there."""


@dataclass(frozen=True)
class RunFailed:
    """A run that could not be done."""

    id: str
    message: str
    traceback: str | None = None
    """Of an error that nobody foresaw."""


RunOutcome = RunDone | RunFailed
