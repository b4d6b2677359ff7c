"""The limits within which the service works."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Settings:
    """Every choice of a service; what it serves is `runs`, or the testbed."""

    runs: Path | None = None
    """A run, a folder of runs or a store; None: the testbed."""
    training: bool = True
    """Whether runs can be started."""
    token: str | None = None
    """What every request has to bring; None: nothing."""
    hosts: tuple[str, ...] = ("127.0.0.1", "localhost", "::1")
    """The names under which the service answers; anything else in a Host header is refused."""
    memory: int = 4 * 2**30
    """Bytes of LMs that stay loaded."""
    places: int = 1024
    """x's that can wait to be asked."""
    batch: int = 256
    """x's that are asked at once."""
    kept_answers: int = 20_000
    """x's whose answers are kept."""
    waiting_jobs: int = 8
    """Training jobs that can wait."""
    body: int = 4 * 2**20
    """Bytes of a request."""
    body_seconds: float = 30.0
    """How long a request may take to arrive."""
    threads: int | None = None
    """CPU threads of the LM; None: as torch has them."""
    one_by_one: bool = False
    """Ask every x alone, as a service without batches would; for benchmarks."""


MOST_XS = 1000
"""x's in one request."""
LONGEST_TEXT = 1000
"""Characters of an x, a y or a template."""
LONGEST_NAME = 200
MOST_FACTS = 20_000
MOST_TEMPLATES = 200
MOST_ANSWERS = 100
