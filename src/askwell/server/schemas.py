"""The requests and responses of the API, as its OpenAPI document shows them."""

import uuid
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from askwell.server.settings import LONGEST_NAME, LONGEST_TEXT, MOST_ANSWERS, MOST_FACTS, MOST_TEMPLATES, MOST_XS

Name = Annotated[str, StringConstraints(min_length=1, max_length=LONGEST_NAME)]
Text = Annotated[str, StringConstraints(min_length=1, max_length=LONGEST_TEXT)]
Word = Annotated[Text, StringConstraints(pattern=r"\S")]


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


class AskRequest(_Body):
    """Some x's for one mixture."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"mixture": "p36", "xs": ["France", "Peru"]}]})

    mixture: Name
    """A name from the list of mixtures."""
    xs: list[Text] = Field(min_length=1, max_length=MOST_XS)
    """What to ask about, such as countries for their capitals."""
    top: int = Field(default=10, ge=1, le=MOST_ANSWERS)
    """How many answers to give to each x."""
    by_prompt: bool = False
    """Whether to give the probability under each prompt as well."""


class Answer(_Body):
    """An answer to an x."""

    y: str
    """What is answered."""
    probability: float
    """p(y | x, r)."""
    by_prompt: list[float] | None = None
    """Its probability under each prompt, if requested."""


class Answers(_Body):
    """For each x its answers, best first."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"answers": [[{"y": "Paris", "probability": 0.9}], [{"y": "Lima", "probability": 0.8}]]}]
        }
    )

    answers: list[list[Answer]]
    """A list for each x, in the order of the request."""
    unseen: list[float] | None = None
    """For each x, below which probability answers may be missing, 0 if none is; only where a search was cut."""


@dataclass(frozen=True, kw_only=True)
class MixtureInfo:
    """A mixture that can be asked."""

    __pydantic_config__ = ConfigDict(use_attribute_docstrings=True)

    name: str
    kind: Literal["tuned", "hard"]
    """Tuned, or untuned hard prompts."""
    lm: str
    relation: str
    label: str
    """What the relation says, for people."""
    prompts: int
    setting: str
    run: str | None = None
    """The run it comes from."""


class Mixtures(_Body):
    """All mixtures."""

    mixtures: list[MixtureInfo]


class LMInfo(_Body):
    """An available LM."""

    name: str
    about: str
    megabytes: float | None
    loaded: bool


class LMs(_Body):
    """All available LMs."""

    lms: list[LMInfo]


class RunList(_Body):
    """All runs, with the columns of `askwell runs`; `problems` names folders that cannot be read, and why."""

    runs: list[dict[str, Any]]
    problems: dict[str, str]


class PairBody(_Body):
    """A fact."""

    x: Word
    y: Word
    aliases: list[Word] = Field(default=[], max_length=100)
    """Further right answers for x."""


class TrainRequest(_Body):
    """What to train: your own facts and templates, or `testbed:…` as the relation."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "lm": "testbed:bert",
                    "relation": "capitals",
                    "facts": [{"x": "France", "y": "Paris"}, {"x": "Peru", "y": "Lima"}, {"x": "Japan", "y": "Tokyo"}],
                    "templates": ["the capital of [X] is [Y] ."],
                }
            ]
        }
    )

    lm: Name
    relation: Name
    facts: list[PairBody] = Field(default=[], max_length=MOST_FACTS)
    templates: list[Text] = Field(min_length=1, max_length=MOST_TEMPLATES)
    split: Annotated[str, StringConstraints(max_length=40)] | None = None
    """The sizes of train, dev and test, such as 70-15-15; default: 80-10-10."""
    candidates: list[Text] = Field(default=[], max_length=MOST_FACTS)
    """Words that answers are chosen from; if every one has the form "label: word, word", labels with their words."""
    shots: int | None = Field(default=None, ge=0, le=1000)
    """How many examples a causal LM reads before its sentences; default: chosen on train facts."""
    deep: bool = False
    pairs: int | None = Field(default=None, ge=1, le=1_000_000)
    """The budget in (fact, prompt) pairs."""
    seed: int = Field(default=0, ge=0, lt=2**31)
    split_seed: int | None = Field(default=None, ge=0, lt=2**31)
    """The seed of the split, by which runs with several seeds have the same facts; default: the seed."""


class HistoryPoint(_Body):
    """Dev scores at some point of tuning."""

    pairs: int
    train_loss: float | None
    dev_p_at_1: float
    dev_mrr: float | None
    """None for answers of any length, which are not ranked on dev."""


class JobInfo(_Body):
    """A training job."""

    model_config = ConfigDict(frozen=False)

    id: str = Field(default_factory=lambda: uuid.uuid4().hex[:12])
    state: Literal["waiting", "running", "done", "cancelled", "failed"] = "waiting"
    lm: str
    relation: str
    phase: str = "waiting for its turn"
    done: int = 0
    total: int = 0
    """The total for the phase, in (fact, prompt) pairs or facts."""
    history: list[HistoryPoint] = []
    message: str = ""
    mixture: str | None = None
    """The name under which it can be asked, once it is done."""


class JobList(_Body):
    """All training jobs, the newest first."""

    jobs: list[JobInfo]


class Problem(BaseModel):
    """What was wrong, as a sentence."""

    error: str


class Health(_Body):
    """That the service is up."""

    status: Literal["ok"]
    version: str
