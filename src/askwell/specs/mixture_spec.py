"""The choices that define a mixture before it is tuned."""

from collections.abc import Callable
from typing import Any, ClassVar, Literal

from pydantic import Field, field_validator, model_serializer, model_validator

from askwell.files import is_utf8
from askwell.specs.base import Spec

Initial = Literal["words", "random", "random-full"]
WeightingName = Literal["static", "data-dependent"]
AnswersName = Literal["one-token", "any-length"]
AnswersChoice = Literal["auto", "one-token", "any-length"]
LONGEST_ANSWER = 10
"""The default limit on the tokens of an answer."""
Begin = Literal["nothing", "space", "bos", "eos", "line-break"]
"""What a sentence begins with. Only causal LMs have a choice; with the others, sentences begin with a space."""
BeginOption = Literal["auto", "nothing", "space", "bos", "eos", "line-break"]
BEGIN_OF_0_1_0: Begin = "space"
NO_LEAD_IN, AUTO_LEAD_IN = "none", "auto"
A_FACT = "Here is a fact about the world :"
NO_OPENING_WRITTEN: dict[str, Any] = {"lead_in": NO_LEAD_IN, "shots": 0}
"""What specs mean that were written before lead-ins and examples existed."""
# In version 0.1.0 the weighting was a flag. It is still written as one, so that files and ids of runs stay the same.
_BY_DATA_DEPENDENT: dict[bool, WeightingName] = {False: "static", True: "data-dependent"}


class MixtureSpec(Spec):
    """How prompts are combined and initialised."""

    older_names: ClassVar[tuple[str, ...]] = ("data_dependent",)

    combine: Literal["mixture", "product"] = "mixture"
    """Sum the prompts' probabilities, or multiply them (a product of experts over hard prompts)."""
    deep: bool = False
    """Perturb the prompt tokens at all layers, not only at layer 0."""
    weighting: WeightingName = "static"
    """Use the same prompt weights for every x, or weights that also depend on how probable each prompt finds x
    (--data-dependent for short)."""
    initial: Initial = "words"
    """Initialise the prompt vectors from the prompts' words, or at random."""
    copies: int = Field(default=1, ge=1, le=1000)
    """How many copies of each prompt to use."""
    noise: float = Field(default=0.0, ge=0.0)
    """Add noise to each initial prompt vector, of this many standard deviations of the LM's word vectors."""
    weights: Literal["uniform", "file"] = "uniform"
    """Start from equal prompt weights, or from those in the prompt file."""
    seed: int = Field(default=0, ge=0, lt=2**63)
    """Seed of all random draws."""
    answers: AnswersChoice = "auto"
    """Allow only answers that are one token of the LM (the paper's setting), answers of any length, or (auto) answers
    of any length if some fact needs them."""
    longest_answer: int = Field(default=LONGEST_ANSWER, ge=1, le=100)
    """If answers can have any length, leave out facts whose y has more tokens than this."""
    begin: BeginOption = "auto"
    """What a causal LM's sentences begin with. auto: whatever makes the train ys most probable under the untuned
    prompts, chosen once per LM; a line break if there are no facts to choose by."""
    lead_in: str = AUTO_LEAD_IN
    """A text before the sentence of every prompt, tuned with it. none: no such text. auto: for a causal LM, one of a
    few texts, a few examples (see shots), or nothing, whichever makes the train ys most probable under the untuned
    prompts, chosen once per LM; for other LMs, nothing."""
    prefix: int = Field(default=0, ge=0, le=1000)
    """Put this many free vectors before the sentence of every prompt, in front of its lead-in."""
    prefix_words: str = A_FACT
    """What these vectors are initialised from: words, repeated as often as needed; label: the relation's name in words;
    random: random vectors."""
    shots: int | None = Field(default=None, ge=0, le=1000)
    """Write this many train facts before the question as in-context examples, in the prompt's own words; each prompt
    has its own. A prompt is neither trained on nor asked about an x of its examples. Default: chosen together with the
    lead-in, or 0 if a lead-in is given."""
    shot_separator: str = "\n"
    """What separates the examples from each other and from the question; a line break can be written as \\n."""
    shot_draws: int = Field(default=1, ge=1, le=1000)
    """Draw the examples of each prompt this many times, and keep the draw that makes its dev facts most probable."""

    @model_validator(mode="before")
    @classmethod
    def _read_data_dependent(cls, given: Any) -> Any:
        if not isinstance(given, dict) or "data_dependent" not in given:
            return given
        rest = {key: value for key, value in given.items() if key != "data_dependent"}
        if not isinstance(given["data_dependent"], bool):
            raise ValueError(f"data_dependent is true or false, not {given['data_dependent']!r}")
        weighting = _BY_DATA_DEPENDENT[given["data_dependent"]]
        if rest.setdefault("weighting", weighting) != weighting:
            raise ValueError("data_dependent and weighting contradict each other: give one of them")
        return rest

    @model_serializer(mode="wrap")
    def _write_data_dependent(self, write: Callable[[Any], dict[str, Any]]) -> dict[str, Any]:
        written = write(self)
        if written.get("weighting") not in _BY_DATA_DEPENDENT.values():
            return written
        old = ("data_dependent", self.weighting == "data-dependent")
        return dict(old if name == "weighting" else (name, value) for name, value in written.items())

    @property
    def canonical(self) -> dict[str, Any]:
        """The choices as they are hashed. Choices that version 0.1.0 already had (answers of one token, sentences that
        begin with a space) have the same hash as in 0.1.0."""
        document = self.model_dump(mode="json")
        if self.answers == "one-token":
            del document["answers"], document["longest_answer"]
        if self.begin == BEGIN_OF_0_1_0:
            del document["begin"]
        return {name: choice for name, choice in document.items() if name not in self.unused}

    @property
    def unused(self) -> set[str]:
        """The choices about what comes before the sentence that have no effect here."""
        no_lead_in = {"lead_in"} if self.lead_in in (NO_LEAD_IN, AUTO_LEAD_IN) else set()
        no_prefix = {"prefix", "prefix_words"} if not self.prefix else set()
        no_shots = {"shots", "shot_separator", "shot_draws"} if not self.shots else set()
        return no_lead_in | no_prefix | no_shots

    def asking_like(self, other: "MixtureSpec | None", **changes: Any) -> "MixtureSpec":
        """This spec with the other's answers, beginning of sentences, lead-in and, where possible, number of examples,
        so that both ask the same question in different ways."""
        names: tuple[str, ...] = ("answers", "longest_answer", "begin", "lead_in")
        if other is not None and self.combine != "product" and (other.shots or (other.shots == 0 and not self.shots)):
            names += ("shots", "shot_separator", "shot_draws")
        shared = {} if other is None else {name: getattr(other, name) for name in names}
        return self.model_copy(update={**shared, **changes})

    @property
    def with_named_opening(self) -> "MixtureSpec":
        """This spec with nothing before the sentence except what was given explicitly; nothing is chosen
        automatically."""
        lead_in = NO_LEAD_IN if self.lead_in == AUTO_LEAD_IN else self.lead_in
        return self.model_copy(update={"lead_in": lead_in, "shots": self.shots or 0})

    @classmethod
    def of_0_1_0(cls, document: dict[str, Any]) -> "MixtureSpec":
        """The choices that version 0.1.0 saved; a newer document is read unchanged."""
        return cls.model_validate({"answers": "one-token", "begin": BEGIN_OF_0_1_0, **NO_OPENING_WRITTEN, **document})

    @field_validator("lead_in", "prefix_words")
    @classmethod
    def _is_plain_text(cls, text: str) -> str:
        text = with_line_breaks(text)
        if not text.strip():
            raise ValueError(f"the text is empty; write {NO_LEAD_IN} for nothing")
        if "[X]" in text or "[Y]" in text:
            raise ValueError("the text has a blank, but it is the same for every x: blanks belong in the prompts")
        return text.lstrip(" ")

    @field_validator("shot_separator")
    @classmethod
    def _has_line_breaks(cls, text: str) -> str:
        return with_line_breaks(text)

    @model_validator(mode="after")
    def _fits_together(self) -> "MixtureSpec":
        if self.copies > 1 and self.noise == 0 and self.initial == "words" and not self.shots:
            raise ValueError(f"copies is {self.copies} with no noise: equal copies would stay equal; set noise above 0")
        if self.combine == "product" and (self.deep or self.weighting != "static"):
            raise ValueError("a product of experts has hard prompts and static weights: leave out deep and weighting")
        if self.combine == "product" and self.shots:
            raise ValueError("a product of experts has no examples: leave out shots")
        if self.shot_draws > 1 and not self.shots:
            raise ValueError("shot_draws without shots: there are no examples to draw")
        return self


def with_line_breaks(text: str) -> str:
    r"""A text in which \n is a line break, since shells make these hard to type; ValueError if it is not UTF-8."""
    if not is_utf8(text):  # as the shell passes on what is typed in another encoding
        raise ValueError("the text holds bytes that are not UTF-8")
    return text.replace("\\n", "\n")
