"""The record of a run: what was run, on what, and with what result, as one typed and versioned document.

Each run has its own folder, with the same layout however it was made (`askwell train`, a baseline, a sweep, the demo):

    run.json           the record, written last: a folder that has one is complete
    environment.json   versions, date and seconds; the only file that differs between two runs of the same spec
    about.json         what people call the run, and note about it; only if they do
    facts.parquet      the outcome of each test fact; dev.parquet: of each dev fact; untuned.parquet: of each test fact
                       before tuning, if it was scored then
    train.parquet      the x's of the train facts, with all their right answers
    controls.parquet   where answers that need no knowledge rank the same facts
    history.jsonl      dev scores during tuning
    mixture/           the saved mixture, if anything was tuned
    checkpoint.safetensors   only while the run is under way
"""

import platform
import subprocess
import sys
from collections.abc import Mapping
from datetime import datetime
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from askwell.data.split_audit import RelationAudit
from askwell.evaluation.knowledge import ControlFigures, Knowledge
from askwell.evaluation.metrics import METRICS, TABLE_METRICS, units_of
from askwell.evaluation.scoring import EvaluationFigures
from askwell.evaluation.trust import Trust
from askwell.files import to_json
from askwell.lms.identity import LMIdentity
from askwell.mixture.learned_from import LearnedFrom, RelationRecord
from askwell.specs.mixture_spec import SettledMixtureSpec
from askwell.specs.run_spec import RunSpec
from askwell.version import VERSION
from askwell.views.document import Document, overview
from askwell.views.printable import counted
from askwell.views.to_text import ShowsItself

RECORD, ENVIRONMENT, HISTORY, REMARKS = "run.json", "environment.json", "history.jsonl", "about.json"
TEST_OUTCOMES, DEV_OUTCOMES, UNTUNED_OUTCOMES = "facts.parquet", "dev.parquet", "untuned.parquet"
AS_WRITTEN, FITTED = "as written", "with fitted weights"
ONLY_WEIGHTS = "only weights tuned"
TRAIN_GOLDS, CONTROLS = "train.parquet", "controls.parquet"


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class PromptRecord(_Part):
    """A prompt as it was when the run ended."""

    template: str
    weight: float
    """p(t | r), or its exponent in a product."""
    examples: tuple[tuple[str, str], ...] = ()
    """The train facts (x, y) that it shows before the question, in order."""
    example_log_losses: tuple[float, ...] = ()
    """The log-loss of dev facts with each draw of examples, if several were compared; the lowest was chosen."""


class LeftOutTemplate(_Part):
    """A template that the LM could not use."""

    template: str
    reason: str


class HistoryRecord(BaseModel):
    """Dev scores at some point during tuning. A search or fine-tuning adds more fields."""

    model_config = ConfigDict(frozen=True, extra="allow")

    pairs: int | None = None
    """(fact, prompt) pairs trained on so far."""
    train_loss: float | None = None
    dev: dict[str, float | None]

    @field_validator("dev")
    @classmethod
    def _need_score(cls, dev: dict[str, float | None]) -> dict[str, float | None]:
        if dev.get("P@1") is None:
            raise ValueError("there is no P@1")
        return dev


class Environment(BaseModel):
    """The versions, platform and times of a run. It names no path, no machine and no user."""

    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)

    version: Literal[1] = 1
    askwell: str = VERSION
    git: str | None = None
    """The commit of askwell's work tree; "+" marks changed files."""
    python: str | None = None
    torch: str | None = None
    transformers: str | None = None
    platform: str | None = None
    began: datetime | None = None
    """When the run began, or was resumed for the last time, in UTC."""
    seconds: float | None = Field(default=None, ge=0, le=1e9)
    """From building the mixture to the last measurement, without loading the LM; for a resumed run, since then."""
    seconds_to_load: float | None = None
    """How long loading the LM took, in sweeps."""


class Remarks(_Part):
    """What people call a run, and what they note about it. It changes nothing else, and can be changed at any time."""

    model_config = ConfigDict(extra="ignore", str_strip_whitespace=True)

    name: str = Field(default="", max_length=200)
    note: str = Field(default="", max_length=10_000)

    @model_validator(mode="after")
    def _need_one_line(self) -> Self:
        if len(self.name.splitlines()) > 1:
            raise ValueError("a name is a single line; what is longer is a note")
        return self


class RunRecord(ShowsItself, _Part):
    """Everything that is known about a complete run, except the outcomes of individual facts, stored beside it."""

    format: Literal["askwell-run"] = "askwell-run"
    version: Literal[1] = 1
    id: str
    """The hash of the spec."""
    spec: RunSpec
    """What was asked for."""
    mixture: SettledMixtureSpec
    """The settled mixture: also the context before a causal LM's sentences where the spec leaves it open, and why."""
    lm: LMIdentity
    relation: RelationRecord
    prompts: tuple[PromptRecord, ...]
    dropped_examples: int = 0
    """How many examples, over all prompts, did not fit into the LM's longest input."""
    left_out_prompts: tuple[LeftOutTemplate, ...] = ()
    effective_prompts: float
    temperature: float | None = None
    mean_entropy_over_x: float | None = None
    """For weights that depend on x: the mean entropy of p(t | r, x) over test facts, in bits."""
    untuned: EvaluationFigures | None = None
    """Test scores before tuning."""
    test: EvaluationFigures
    dev: EvaluationFigures | None = None
    controls: dict[str, ControlFigures] = {}
    controls_missing: dict[str, str] = {}
    knowledge: Knowledge | None = None
    """The gain over the best control."""
    trust: Trust | None = None
    partitions: dict[str, dict[str, dict[str, int | float]]] = {}
    """Scores on parts of the test facts, each with its number of facts."""
    audit: RelationAudit | None = None
    training: LearnedFrom | None = None
    history: tuple[HistoryRecord, ...] = Field(default=(), exclude=True)
    """Stored in history.jsonl."""
    environment: Environment = Field(default=Environment(), exclude=True)
    """Stored in environment.json."""

    @model_validator(mode="after")
    def _need_scores(self) -> Self:
        """Refuse scores without P@1, which tables need, and parts without facts."""
        parts = [scores for parts in self.partitions.values() for scores in parts.values()]
        scored: list[Mapping[str, Any]] = [of.micro for of in (self.untuned, self.test, self.dev) if of is not None]
        scored += [of for one in self.controls.values() for of in (one.test, one.dev) if of is not None]
        if any("P@1" not in scores for scores in [*scored, *parts]):
            raise ValueError("some of the scores have no P@1")
        if any(scores.get("facts", 0) < 1 for scores in parts):
            raise ValueError("some of the partitions have no facts")
        return self

    @property
    def as_written(self) -> str:
        """How the mixture was before tuning, if no step was better on dev: as written (as drawn if it began at random),
        perhaps with fitted weights. Empty if it was tuned, or never was."""
        if self.training is None or self.training.best_pairs != 0:
            return ""
        state, spec = AS_WRITTEN if self.mixture.initial == "words" else "as drawn", self.spec.training
        first = self.history[0].model_extra or {} if self.history else {}
        began = (first.get("effective_prompts", self.effective_prompts), first.get("temperature", self.temperature))
        if began == (self.effective_prompts, self.temperature):
            return state
        return f"{state}, {FITTED}" if spec is None or spec.tune_vectors else ""

    @property
    def state(self) -> str:
        """What its scores are of: a baseline, what was tuned, or how it was kept."""
        if self.spec.baseline or self.spec.training is None:
            return self.spec.baseline or "untuned"
        return (
            f"kept {self.as_written}"
            if self.as_written
            else ONLY_WEIGHTS
            if self.spec.tuned == ("weights",)
            else "tuned"
        )

    @property
    def learning_curve(self) -> list[tuple[float, float]]:
        """Dev P@1 against the pairs trained on."""
        points = [(line.pairs, line.dev["P@1"]) for line in self.history]
        return [(float(pairs), score) for pairs, score in points if pairs is not None and score is not None]

    def as_json(self, folder: Path) -> dict[str, Any]:
        """Return the record with its history, and the folder that it is in, as plain JSON."""
        baseline = {} if self.spec.baseline is None else {"baseline": self.spec.baseline}
        return {**baseline, "out": str(folder), **to_json(self), "history": to_json(self.history)}

    def summary(self) -> Document:
        """Summarise what was run and what it scores on test, beside the untuned prompts and the controls."""
        scored = {} if self.untuned is None else {"untuned": self.untuned.micro}
        scored[self.state] = self.test.micro
        scored |= {name: figures.test for name, figures in self.controls.items() if figures.test is not None}
        rows = [
            (name, *(METRICS[metric].text(scores.get(metric)) for metric in TABLE_METRICS))
            for name, scores in scored.items()
        ]
        spec = self.spec
        prompts = f"{counted(len(self.prompts), 'prompt')} ({spec.prompts})"
        heading = f"Run {self.id[:8]}: {spec.relation} on {spec.lm}, {prompts}, {spec.setting}, seed {spec.seed}"
        facts = counted(self.test.facts, "test fact")
        notes = (f"{facts}, among {self.test.vocabulary}; means over facts, {units_of(TABLE_METRICS)}",)
        return overview(heading, ("", *TABLE_METRICS), rows, TABLE_METRICS, notes)


@cache
def environment() -> Environment:
    """Return versions, platform, and the git commit of askwell if it runs from a work tree."""
    return Environment(
        git=_git_commit(Path(__file__).parent.parent),
        python=platform.python_version(),
        torch=version("torch"),
        transformers=version("transformers"),
        platform=f"{sys.platform} {platform.machine()}",
    )


def _git_commit(folder: Path) -> str | None:
    if not _git(folder, "ls-files", "version.py"):  # askwell is installed, perhaps inside someone else's work tree
        return None
    commit, changes = _git(folder, "rev-parse", "HEAD"), _git(folder, "status", "--porcelain", "--", ".")
    return f"{commit}{'+' if changes else ''}" if commit else None


def _git(folder: Path, *arguments: str) -> str | None:
    """Return what git prints; None if there is no git, or it fails."""
    command = ["git", "--no-optional-locks", "-C", str(folder), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
