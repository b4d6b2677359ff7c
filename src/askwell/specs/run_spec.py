"""One run: an LM, a relation, prompts and a setting, with everything that determines the result."""

from typing import Literal

from pydantic import Field, model_validator

from askwell.files import hash_json
from askwell.specs.base import Spec
from askwell.specs.baseline_specs import AutoPromptSpec, BaselineName, FineTuningSpec
from askwell.specs.mixture_spec import MixtureSpec
from askwell.specs.training_spec import TrainingSpec

DeviceKind = Literal["cpu", "cuda", "mps"]
Digits = Literal["float32", "bfloat16", "float16", "float64"]
ControlKind = Literal["random-weights", "random-embeddings"]
"""LMs that know nothing: all weights drawn at random, or only the word embeddings."""


class PromptText(Spec):
    """A template as it was read, with its weight if the file gives one."""

    template: str
    weight: float | None = None


class RunSpec(Spec):
    """A run. Two runs with the same spec give the same numbers, and the hash of the spec is the run's id.

    The LM, facts and candidates are identified by name and by the hash of their content, prompts by their texts: a
    file that changes makes a different run, a file that moves does not. The number of threads, the kind of device and
    the precision affect the last digits, so they are part of the spec; the engine and the places of files are not. The
    names of the prompts and of the setting are part of it, because tables are grouped by them. The version of askwell
    is not: it is recorded beside the run, in its environment.
    """

    lm: str
    """The LM's public name."""
    lm_sha256: str
    """Hash of its tokenizer, config and tensors."""
    relation: str
    facts_sha256: str
    """Hash of the facts used, after sampling."""
    prompts: str
    """The name of the prompts, by which tables group runs."""
    templates: tuple[PromptText, ...] = ()
    """As they were read; a baseline that makes its own prompt has none."""
    setting: str
    """The name of the setting, by which tables group runs."""
    mixture: MixtureSpec
    training: TrainingSpec | None
    """How it is tuned; None for untuned prompts."""
    candidates: str | None = None
    """The name of the candidate vocabulary; None: all answers of the LM."""
    candidates_sha256: str | None = None
    threads: int = Field(default=1, ge=1, le=1024)
    """CPU threads of the run."""
    device: DeviceKind = "cpu"
    dtype: Digits = "float32"
    """Precision in which the LM runs."""
    control: ControlKind | None = None
    """The same tuning on an LM that knows nothing: the LM with random weights, drawn by the run's seed."""
    baseline: BaselineName | None = None
    """A baseline, run instead of one of our mixtures."""
    search: AutoPromptSpec | None = None
    """How AutoPrompt searches."""
    fine_tuning: FineTuningSpec | None = None
    """How the whole LM is tuned."""

    @model_validator(mode="after")
    def _fits_together(self) -> "RunSpec":
        if self.training is not None and self.training.threads is not None:
            raise ValueError("threads belong to the run, not to its training")
        if (self.candidates is None) != (self.candidates_sha256 is None):
            raise ValueError("candidates have both a name and a hash, or neither")
        if self.training is not None and self.training.classify and self.candidates is None:
            raise ValueError("classify needs candidates to choose among")
        if self.control is not None and self.training is None:
            raise ValueError("a control shows what tuning achieves by itself, so it must be tuned")
        if not self.templates and self.baseline is None:
            raise ValueError("a run needs at least one template")
        return self

    @property
    def seed(self) -> int:
        """The seed of all random draws."""
        return self.mixture.seed

    @property
    def id(self) -> str:
        """Return the SHA-256 of the spec as JSON with sorted keys: the name of the run's folder."""
        return hash_json(self.model_dump(mode="json"))

    @property
    def label(self) -> str:
        """The run in a few words."""
        return f"{self.asked_lm} · {self.relation} · {self.prompts} · {self.setting} · seed {self.seed}"

    @property
    def asked_lm(self) -> str:
        """The name of the LM; for a control, with what was done to it."""
        return self.lm if self.control is None else f"{self.lm} ({self.control.replace('-', ' ')})"
