"""One run (an LM, a relation, prompts, a setting: everything that determines the result), and a grid of runs."""

import tomllib
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, Field, ValidationError, field_validator, model_validator

from askwell.errors import BadFile, did_you_mean
from askwell.files import hash_json, read_text
from askwell.specs.base import Spec
from askwell.specs.mixture_spec import AnswersChoice, MixtureSpec
from askwell.specs.training_spec import AutoPromptSpec, BaselineName, FineTuningSpec, TrainingSpec

DeviceKind = Literal["cpu", "cuda", "mps"]
Digits = Literal["float32", "bfloat16", "float16", "float64"]
ControlKind = Literal["random-weights", "random-embeddings"]
"""LMs that know nothing: all weights drawn at random, or only the word embeddings."""
TYPED = "given"
"""The name of prompts that are in no file, but were typed."""


class PromptText(Spec):
    """A template as it was read, with its weight if the file gives one."""

    template: str
    weight: float | None = None


class Start(Spec):
    """A mixture learned on another LM, from which a run starts."""

    lm: str
    """The name of the LM that it was learned on."""
    mixture_sha256: str
    """The hash of the saved mixture."""


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
    best_only: Annotated[bool, Field(exclude_if=lambda only: not only)] = False
    """Find out only whether y is the best answer (P@1), which is much quicker where answers have any length; later
    ranks are bounds, and measures of trust are left out."""
    start: Annotated[Start | None, Field(exclude_if=lambda start: start is None)] = None
    """The mixture of another LM that this one is carried over from; None if it starts from words."""

    @model_validator(mode="after")
    def _fits_together(self) -> "RunSpec":
        if self.training is not None and self.training.threads is not None:
            raise ValueError("threads belong to the run, not to its training")
        if (self.candidates is None) != (self.candidates_sha256 is None):
            raise ValueError("candidates have both a name and a hash, or neither")
        if self.training is not None and self.training.classify and self.candidates is None:
            raise ValueError("classify needs candidates to choose among: name them with --candidates, or --among train")
        if self.control is not None and self.training is None:
            raise ValueError("a control shows what tuning achieves by itself, so it must be tuned")
        if self.start is not None and (self.control is not None or self.baseline is not None):
            raise ValueError("only a mixture on the LM itself can start from another LM's, not a control or a baseline")
        if not self.templates and self.baseline is None:
            raise ValueError("a run needs at least one template")
        return self

    @property
    def seed(self) -> int:
        """The seed of all random draws."""
        return self.mixture.seed

    @property
    def learns(self) -> bool:
        """Whether anything is tuned on train facts, or searched for with them."""
        return any(how is not None for how in (self.training, self.search, self.fine_tuning))

    @property
    def tuned(self) -> tuple[str, ...]:
        """What of the mixture is tuned: vectors, layers, weights."""
        mixture, training = self.mixture, self.training
        if training is None:
            return ()
        parts = {
            "vectors": training.tune_vectors and not mixture.keeps_words,
            "layers": training.tune_layers and mixture.deep,
            "weights": training.tune_weights,
        }
        return tuple(name for name, is_tuned in parts.items() if is_tuned)

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


MOST_RUNS = 100_000
"""The maximum number of runs in a sweep: its plan holds each of them, at a few kilobytes and milliseconds per run."""

EngineName = Literal["in-process", "pool", "ray"]
# Chosen for the whole sweep, not for each setting.
_OF_THE_SWEEP = {"seed": "seeds", "threads": "threads"}
_MIXTURE_KEYS = tuple(name for name in MixtureSpec.model_fields if name not in _OF_THE_SWEEP)
_TRAINING_KEYS = tuple(name for name in TrainingSpec.model_fields if name not in _OF_THE_SWEEP)


def _without_repeats(given: tuple[Any, ...]) -> tuple[Any, ...]:
    for one, times in Counter(given).items():
        if times > 1:
            raise ValueError(f"{one} is given twice")
    return given


_Seed = Annotated[int, Field(ge=0, lt=2**63)]
Seeds = Annotated[tuple[_Seed, ...], Field(min_length=1), AfterValidator(_without_repeats)]
ControlKinds = Annotated[tuple[ControlKind, ...], AfterValidator(_without_repeats)]


class LMChoice(Spec):
    """An LM of the grid."""

    source: str = Field(min_length=1)
    """A name such as testbed:bert or bert-base-cased, a checkpoint folder, or a .gguf file."""
    revision: str | None = None
    """Branch, tag or commit of an LM on the hub."""
    tokenizer: str | None = None
    """A tokenizer that is not stored with the LM's weights: a folder, a vocab.txt, or a name on the hub."""


class Setting(Spec):
    """A named way to combine prompts and to tune them.

    In the file it is one flat table with the keys of a mixture and of its training.
    """

    tuned: bool = True
    """Tune the mixture; false leaves the prompts untuned."""
    prompts: tuple[str, ...] | None = None
    """The names of the prompts that it applies to; default: all."""
    seeds: Seeds | None = None
    """Its own seeds, instead of the sweep's."""
    controls: ControlKinds | None = None
    """Its own controls, instead of the sweep's."""
    mixture: MixtureSpec = MixtureSpec()
    training: TrainingSpec = TrainingSpec()

    @model_validator(mode="before")
    @classmethod
    def _from_a_flat_table(cls, table: Any) -> Any:
        if not isinstance(table, dict) or {"mixture", "training"} & set(table):
            return table
        own = [name for name in cls.model_fields if name not in ("mixture", "training")]
        for key in table:
            if key in _OF_THE_SWEEP:
                raise ValueError(f"{key} is chosen for all settings together: set {_OF_THE_SWEEP[key]} at the top")
            if key not in (known := (*own, *_MIXTURE_KEYS, *_TRAINING_KEYS)):
                raise ValueError(f"there is no key {key!r}{did_you_mean(key, known)}")
        training = {key: value for key, value in table.items() if key in _TRAINING_KEYS}
        if table.get("tuned") is False and training:
            raise ValueError(f"tuned is false, so {', '.join(sorted(training))} would have no effect")
        return {
            **{key: value for key, value in table.items() if key in own},
            "mixture": {key: value for key, value in table.items() if key in _MIXTURE_KEYS},
            "training": training,
        }

    @model_validator(mode="after")
    def _controls_are_tuned(self) -> "Setting":
        if self.controls and not self.tuned:
            raise ValueError("tuned is false, so controls would have no effect")
        return self


class SweepSpec(Spec):
    """All choices of a sweep. Paths are relative to the current folder, as on the command line."""

    store: str | None = None
    """The folder for the runs; several sweeps can share one."""
    lms: tuple[LMChoice, ...] = Field(min_length=1)
    facts: tuple[str, ...] = Field(min_length=1)
    """Relations (testbed:capital, trex_original/P19, a folder or a file), or whole sets of them (testbed,
    trex_original, a folder of folders or files)."""
    prompts: dict[str, Annotated[tuple[str, ...], Field(min_length=1)]] = Field(min_length=1)
    """Named prompts, each a list of sources: templates, files, testbed:single and the like, or a set such as
    trex_paraphrase, which has a file for each relation."""
    most_prompts: dict[str, Annotated[int, Field(ge=1)]] = Field(default_factory=dict)
    """By the name of prompts: keep the first of a relation, and draw as many others as make this number."""
    joined_punctuation: bool = False
    """Write prompts without the space that tokenised text has before punctuation: "[Y]." instead of "[Y] .". A causal
    LM hardly ever ends an answer in the latter way."""
    settings: dict[str, Setting] = Field(min_length=1)
    seeds: Seeds = (0,)
    controls: ControlKinds = ()
    """Also run every tuned setting on these LMs that know nothing: a score there is not knowledge."""
    split_by: Literal["random", "distinct-y", "stratified"] | None = None
    """How single files of facts are split."""
    split_ratio: str | None = None
    """Sizes of train, dev and test when single files are split; default: 80-10-10."""
    x: str | None = None
    """The column of single files that holds x; default: x, sub_label or sub."""
    y: str | None = None
    """The column of single files that holds y; default: y, obj_label or obj."""
    train_facts: int | None = Field(default=None, ge=1, lt=2**63)
    """Draw at most this many train facts of each relation."""
    dev_facts: int | None = Field(default=None, ge=1, lt=2**63)
    """Draw at most this many dev facts of each relation."""
    test_facts: int | None = Field(default=None, ge=1, lt=2**63)
    """Draw at most this many test facts of each relation."""
    facts_seed: int = Field(default=0, ge=0, lt=2**63)
    """Seed of splits and samples, separate from the seeds of the runs, so that all runs are asked the same facts."""
    candidates: str | None = None
    """A file of words, one per line, among which answers are ranked."""
    answers: AnswersChoice = "auto"
    """The answers of all settings that do not choose their own: one token of the LM, any length, or (auto) any length
    for an LM if one of the relations needs it."""
    best_only: bool = False
    """Find out only whether y is the best answer (P@1), which is much quicker where answers have any length; later
    ranks are bounds, and measures of trust are left out."""
    data: str | None = None
    """The data folder, which contains facts/ and prompts/."""
    threads: int = Field(default=1, ge=1, le=1024)
    """CPU threads of each run."""
    device: DeviceKind = "cpu"
    dtype: Digits = "float32"
    """Precision in which the LMs run."""
    compiled: bool = False
    """Compile parts of the LMs' layers with torch.compile: slow to start, but worth it for long runs on a GPU."""
    engine: EngineName = "pool"
    workers: int | None = Field(default=None, ge=1, le=1024)
    """How many worker processes the pool has; default: as many as the cores allow."""
    address: str | None = None
    """Address of the Ray cluster; default: one is started on this machine."""
    cpus_per_run: float | None = Field(default=None, gt=0)
    """CPUs that Ray reserves for a run; default: as many as its threads."""
    gpus_per_run: float | None = Field(default=None, ge=0)
    """GPUs that Ray reserves for a run; default: one if the device is cuda, otherwise none."""

    @field_validator("lms", mode="before")
    @classmethod
    def _lms_by_name(cls, lms: Any) -> Any:
        return [{"source": lm} if isinstance(lm, str) else lm for lm in lms] if isinstance(lms, list) else lms

    @model_validator(mode="after")
    def _fits_together(self) -> "SweepSpec":
        named = [(f"settings.{name}.prompts", one) for name, of in self.settings.items() for one in of.prompts or ()]
        for where, name in (*named, *(("most_prompts", name) for name in self.most_prompts)):
            if name not in self.prompts:
                raise ValueError(f"{where}: there are no prompts named {name!r}{did_you_mean(name, self.prompts)}")
        self.check_size(len(self.facts))
        return self

    def check_size(self, relations: int) -> None:
        """Raise ValueError if the sweep, on this many relations, has too many runs for a plan."""
        runs = 0
        for setting in self.settings.values():
            names = len(self.prompts if setting.prompts is None else setting.prompts)
            controls = self.controls if setting.controls is None else setting.controls
            runs += names * len(setting.seeds or self.seeds) * (1 + len(controls) if setting.tuned else 1)
        runs *= len(self.lms) * relations
        if runs > MOST_RUNS:
            raise ValueError(
                f"{runs:,} runs, and a sweep has at most {MOST_RUNS:,}; several smaller ones can share a store"
            )


def read_sweep(path: Path, instead: Mapping[str, Any] | None = None) -> SweepSpec:
    """Read the sweep that a TOML file describes; keys in `instead` override the file's."""
    try:
        table = tomllib.loads(read_text(path))
    except (ValueError, RecursionError) as error:
        raise BadFile(path, f"is not TOML: {error}") from None
    try:
        return SweepSpec.model_validate({**table, **(instead or {})})
    except ValidationError as error:
        raise BadFile(path, "; ".join(_in_words(problem) for problem in error.errors())) from None


def _in_words(problem: Any) -> str:
    """Describe one problem, with the key as it is written in the file."""
    parts = [str(part) for part in problem["loc"]]
    if parts[:1] == ["settings"] and parts[2:3] in (["mixture"], ["training"]):
        # Settings are flat in the file; which of the two specs a key belongs to does not matter to the reader.
        del parts[2]
    key = ".".join(parts)
    if problem["type"] == "extra_forbidden":
        table: type[BaseModel] = {"lms": LMChoice, "settings": Setting}.get(parts[0], SweepSpec)
        above = ".".join(parts[:-1])
        meant = did_you_mean(parts[-1], tuple(table.model_fields))
        return f"{above + ': ' if above else ''}there is no key {parts[-1]!r}{meant}"
    if problem["type"] == "missing":
        return f"{key} is missing"
    message = problem["msg"].removeprefix("Value error, ")
    return f"{key}: {message}" if key else message
