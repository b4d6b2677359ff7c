"""The choices that define a mixture before it is tuned."""

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from askwell.files import is_utf8
from askwell.specs.base import Spec

Initial = Literal["words", "random", "random-full"]
WeightingName = Literal["auto", "static", "data-dependent", "certainty", "combined", "question", "gate"]
Match = Literal["exact", "loose"]
AnswersName = Literal["one-token", "any-length"]
AnswersChoice = Literal["auto", "one-token", "any-length"]
ANSWERS_IN_WORDS: dict[str, str] = {"one-token": "one-token answers", "any-length": "answers of any length"}
"""Narrower kinds first."""
LONGEST_ANSWER = 10
"""The default limit on the tokens of an answer."""
Begin = Literal["nothing", "space", "bos", "eos", "line-break"]
"""What a sentence begins with. Only causal LMs have a choice; with the others, sentences begin with a space."""
BeginOption = Literal["auto", "nothing", "space", "bos", "eos", "line-break"]
NO_LEAD_IN, AUTO_LEAD_IN = "none", "auto"
A_FACT = "Here is a fact about the world :"


@dataclass(frozen=True)
class AnswerKind:
    """One token of the LM, or a string of any length up to a limit. It is saved with a tuned mixture."""

    any_length: bool = False
    longest: int = 1
    """The most tokens of an answer."""
    log_lengths: tuple[float, ...] = ()
    """log p(m | r) of a masked LM's answers, from one token on; empty for LMs that mark where an answer ends."""
    through: tuple[int, ...] = ()
    """Tokens that end an answer after some prompt but are also part of a train y or a candidate: answers may continue
    after them. Every other token that ends an answer after some prompt ends it after all."""

    @property
    def name(self) -> AnswersName:
        """The kind's name in specs and tables."""
        return "any-length" if self.any_length else "one-token"

    @property
    def is_long(self) -> bool:
        """Whether an answer can have more than one token: a masked LM's answers may all have one."""
        return self.any_length and len(self.log_lengths) != 1

    @property
    def most_tokens(self) -> int | None:
        """The tokens for which a sentence needs room; None if answers are one token."""
        return (len(self.log_lengths) or self.longest) if self.any_length else None

    @property
    def fits_any_lm(self) -> bool:
        """Whether it has nothing that was learned of an LM or its tokens."""
        return not self.any_length

    @property
    def why_not(self) -> str:
        """Say why words cannot be answers."""
        if self.any_length:
            return "the LM cannot spell within the longest allowed answer"
        return "are not one token of the LM"

    def describe(self, lm_name: str) -> str:
        """Describe the answers that the right one is ranked among; the limit is stated only if it was chosen."""
        if self.longest == LONGEST_ANSWER:
            return f"all answers of any length of {lm_name}"
        return f"all answers of up to {self.longest} tokens of {lm_name}"


ONE_TOKEN = AnswerKind()


class MixtureSpec(Spec):
    """How prompts are combined and initialised."""

    combine: Literal["mixture", "product"] = "mixture"
    """Sum the prompts' probabilities, or multiply them (a product of experts over hard prompts)."""
    deep: bool = False
    """Perturb the prompt tokens at all layers, not only at layer 0."""
    weighting: WeightingName = "auto"
    """Use the same prompt weights for every x (static), or weights that also depend on how probable each prompt finds x
    (data-dependent), on how certain each prompt is of its answer (certainty), on both (combined), on both and, in a
    causal LM, on how probable the prompt's words are after x (question), or on a learned gate that sees what the LM
    makes of x (gate). auto: static, unless weights of the kind question (combined, if the LM is not causal) that are
    fitted to some train facts make others of them clearly more probable, which is found out when the mixture is
    tuned."""
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
    match: Annotated[Match, Field(exclude_if=lambda match: match == "exact")] = "exact"
    """Count as right only the exact strings of the facts and their aliases, or (loose) also what differs from one of
    them only in case, punctuation or an article."""
    end: Annotated[Literal["token", "none"], Field(exclude_if=lambda end: end == "token")] = "token"
    """Whether the probability of a candidate of a causal or seq2seq LM includes the token that ends it, or (none) only
    its own tokens, as in other tools' multiple choice."""
    begin: BeginOption = "auto"
    """What a causal LM's sentences begin with. auto: whatever makes the run's train ys most probable under the untuned
    prompts; a line break if there are no facts to choose by."""
    lead_in: str = AUTO_LEAD_IN
    """A text before the sentence of every prompt, tuned with it. none: no such text. auto: for a causal LM, one of a
    few texts, a few examples (see shots), or nothing, whichever makes the run's train ys most probable under the
    untuned prompts; for other LMs, and without train facts, nothing."""
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
    opening: Literal["auto", "own", "shared"] = "auto"
    """What stands before the sentences (free vectors, lead-in, examples) is each prompt's own, in its own words and
    tuned for it alone, or shared: one for all prompts, with examples in the words of the heaviest prompt (the first of
    equals), tuned once. A causal LM reads a shared one once a step; an x that it shows cannot be asked at all. auto:
    what askwell chooses itself is shared by prompts in different words, and its examples are in the words of the prompt
    that does best with them; what you name is each prompt's own."""

    @property
    def keeps_words(self) -> bool:
        """Whether prompts stay the words that they are: a product of experts has no vectors to tune, and no
        examples."""
        return self.combine == "product"

    @property
    def most_tokens(self) -> int | None:
        """The most tokens that an answer may have; None if answers are one token."""
        return None if self.answers == "one-token" else self.longest_answer

    @property
    def with_named_opening(self) -> "MixtureSpec":
        """Return this spec with nothing before the sentence except what was given explicitly; nothing is chosen
        automatically."""
        lead_in = NO_LEAD_IN if self.lead_in == AUTO_LEAD_IN else self.lead_in
        opening = "own" if self.opening == "auto" else self.opening
        return self.model_copy(update={"lead_in": lead_in, "shots": self.shots or 0, "opening": opening})

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
        differ = self.shots and self.opening != "shared"
        if self.copies > 1 and self.noise == 0 and self.initial == "words" and not differ:
            raise ValueError(f"copies is {self.copies} with no noise: equal copies would stay equal; set noise above 0")
        if self.combine == "product" and (self.deep or self.weighting not in ("auto", "static")):
            raise ValueError("a product of experts has hard prompts and static weights: leave out deep and weighting")
        if self.combine == "product" and self.shots:
            raise ValueError("a product of experts has no examples: leave out shots")
        if self.shot_draws > 1 and not self.shots:
            raise ValueError("shot_draws without shots: there are no examples to draw")
        return self


class ContextScores(Spec):
    """How probable a run's train facts are after each context that was tried before the sentence: means over the same
    facts, under the same untuned prompts. Empty if there was nothing to choose."""

    begins: dict[Begin, float] = Field(default_factory=dict)
    """By what the sentences begin with: means of log p(y | x, t)."""
    lead_ins: dict[str, float] = Field(default_factory=dict)
    """By the text before the sentence: means of log p(y | x) under the prompts' mixture with equal weights."""
    shots: dict[int, float] = Field(default_factory=dict)
    """By the number of in-context examples; empty if these are too many for the facts or for the LM's longest input."""
    template: str | None = Field(default=None, exclude_if=lambda template: template is None)
    """The prompt in whose words these examples are, if all prompts have the same; None if each has its own."""
    least: float | None = None
    """Half the log-probability of guessing among the LM's tokens: a lead-in or examples must make the facts more
    probable than this. To an LM that was trained on little text they are noise, which tuning then has to overcome."""


class SettledMixtureSpec(MixtureSpec):
    """A mixture's choices after every "auto" was replaced by a value: what its LM is actually asked with."""

    begin: Begin
    opening: Literal["own", "shared"] = "own"
    lead_in: str = NO_LEAD_IN
    shots: int = Field(default=0, ge=0, le=1000)
    context_scores: ContextScores = ContextScores()
    """Why these were chosen."""
    weighting_scores: dict[WeightingName, float] = Field(default_factory=dict)
    """Why this weighting was chosen: the log-loss of train facts that weights were not fitted to; empty if it was not
    chosen."""
    opening_template: str | None = None
    """The prompt in whose words a shared opening shows its examples; None if each prompt has its own opening."""

    @field_validator("lead_in")
    @classmethod
    def _is_chosen(cls, text: str) -> str:
        if text == AUTO_LEAD_IN:
            raise ValueError(f"{AUTO_LEAD_IN} is not a lead-in: the spec is not settled")
        return text


def with_line_breaks(text: str) -> str:
    r"""Replace \n by a line break, since shells make these hard to type; ValueError if the text is not UTF-8."""
    if not is_utf8(text):  # as the shell passes on what is typed in another encoding
        raise ValueError("the text holds bytes that are not UTF-8")
    return text.replace("\\n", "\n")
