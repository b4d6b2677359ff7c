"""Families of LMs, and a prompt as a question to one: what each of its stacks reads, and where the answer is read.

A stack is a sequence of layers with its own input: a masked or causal LM has one, a seq2seq LM an encoder and a
decoder. Masked LMs are BERT, RoBERTa, DistilBERT, ALBERT, ELECTRA's generators, ModernBERT and similar models;
denoising seq2seq LMs are BART and similar models; causal LMs are GPT-2, Llama, Qwen, SmolLM2 and similar models."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, NamedTuple

from torch import Tensor, nn
from transformers import (
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    AutoModelForSeq2SeqLM,
    PretrainedConfig,
    PreTrainedModel,
)
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES, MODEL_FOR_MASKED_LM_MAPPING_NAMES

from askwell.errors import LMUnavailable
from askwell.lms.tokenisation import WITH_A_SPACE, Beginning, PromptTokens, SpecialTokens, Wording
from askwell.specs.mixture_spec import Begin


class Token(NamedTuple):
    """A fixed token of a question."""

    id: int
    prompt_token: int = -1
    """Which of the prompt's tokens this is, counted from 0; -1 for special tokens and masks, which are not tuned."""


class X(StrEnum):
    """What is at x's blank."""

    SHOWN = "shown"
    MASKED = "masked"
    ABSENT = "absent"


@dataclass(frozen=True)
class Stream:
    """What one stack reads: fixed tokens on both sides of x, and room for y's own tokens where they are read."""

    left: tuple[Token, ...]
    right: tuple[Token, ...]
    x: X = X.SHOWN
    y_at: int | None = None
    """How many of the fixed tokens come before y's tokens; None if y has none here."""
    y_after_x: bool = False
    """Whether x's tokens come before y's."""


@dataclass(frozen=True)
class Question:
    """One prompt put to an LM. The answer is read from the last stream."""

    streams: Mapping[str, Stream]
    read_at: int
    """The first position that is read, counted without x's tokens."""
    read_after_x: bool
    """Whether x's tokens come before that position."""
    reads_x: bool = False
    """Whether x's tokens are read, one position each, rather than y's blank."""
    reads_after_x: bool = False
    """Whether the fixed tokens after x are read, too, or alone."""
    end: int | None = None
    """The token that follows an answer of any length and marks its end; None if there is none, because the number of
    y's tokens is given (masked LMs), or if x's first token follows it (`ends_with_x`)."""
    ends_with_x: bool = False


class Unusable(Exception):
    """A prompt that a family of LMs cannot use; the message says why."""


@dataclass(frozen=True)
class Sentence:
    """A prompt between the LM's special tokens, with a token at y's blank."""

    left: tuple[Token, ...]
    right: tuple[Token, ...]
    y_at: int
    y_after_x: bool

    def until_y(self) -> Stream:
        """Return all that comes before y."""
        if self.y_after_x:
            return Stream(self.left, self.right[: self.y_at - len(self.left)])
        return Stream(self.left[: self.y_at], (), X.ABSENT)

    def around_y(self) -> Stream:
        """Return the whole sentence with room for any number of tokens at y."""
        if self.y_after_x:
            at = self.y_at - len(self.left)
            right = self.right[:at] + self.right[at + 1 :]
            return Stream(self.left, right, y_at=self.y_at, y_after_x=True)
        left = self.left[: self.y_at] + self.left[self.y_at + 1 :]
        return Stream(left, self.right, y_at=self.y_at)

    def through_y(self) -> Stream:
        """Return all that comes before y, and then any number of tokens of y."""
        return replace(self.until_y(), y_at=self.y_at, y_after_x=self.y_after_x)

    def until_after_x(self) -> Stream:
        """Return all up to the last of x's tokens."""
        return Stream(self.left, ())


def lay_out(prompt: PromptTokens, prefix: Sequence[int], suffix: Sequence[int], y: int) -> Sentence:
    """Return the sentence of a prompt, with token `y` at y's blank."""
    numbers = iter(range(len(prompt.before) + len(prompt.between) + len(prompt.after)))
    before, between, after = (
        tuple(Token(id_, next(numbers)) for id_ in stretch) for stretch in (prompt.before, prompt.between, prompt.after)
    )
    start, end = tuple(map(Token, prefix)), tuple(map(Token, suffix))
    if prompt.x_first:
        left, right = start + before, (*between, Token(y), *after, *end)
        return Sentence(left, right, y_at=len(left) + len(between), y_after_x=True)
    left, right = (*start, *before, Token(y), *between), after + end
    return Sentence(left, right, y_at=len(start) + len(before), y_after_x=False)


# ── families ──────────────────────────────────────────────────────────────────────────────────────────────────────


class Family(ABC):
    """A family of LMs. To add one, write a class like those below and name it in `FAMILIES`."""

    name: str
    auto_class: Any
    """The class of transformers that loads LMs of this family."""
    masks_x = True
    """Whether the LM can be asked with a mask in place of x."""
    fills_masks = False
    """Whether the tokens of an answer are masks of which the first are filled in, so that its length is given
    beforehand."""
    shares_prefixes = False
    """Whether nothing that is computed for a token depends on later tokens, so that sentences with the same beginning
    can share its computation."""
    reads_questions = False
    """Whether the LM tells how probable a prompt's words after x are, given x, in the reading that tells what y is."""

    @abstractmethod
    def fits(self, config: PretrainedConfig) -> bool:
        """Return whether LMs of this config are asked in this family's way."""

    def stacks(self, model: PreTrainedModel) -> Mapping[str, nn.Module]:
        """Return the parts of the model that have one stack of layers each, in the order of `Question.streams`."""
        return {"layers": model.base_model}

    def inputs(self, embedded: Mapping[str, tuple[Tensor, Tensor]]) -> dict[str, Any]:
        """Return the arguments of the model's forward for each stack's (embeddings, attention mask)."""
        embeddings, attention_mask = embedded["layers"]
        return {"inputs_embeds": embeddings, "attention_mask": attention_mask}

    def beginnings(self, wording: Wording, special: SpecialTokens) -> Mapping[Begin, Beginning]:  # noqa: ARG002
        """Return what a sentence can begin with, the default first: a space, so that a word has the same form there as
        elsewhere."""
        return {"space": WITH_A_SPACE}

    @abstractmethod
    def ask_y(self, prompt: PromptTokens, wording: Wording, special: SpecialTokens) -> Question:
        """Return the question for y; raises Unusable for a prompt that the family cannot use."""

    @abstractmethod
    def ask_answer(self, prompt: PromptTokens, wording: Wording, special: SpecialTokens) -> Question:
        """Return the question for answers of any length; raises Unusable for a prompt that the family cannot use."""

    @abstractmethod
    def ask_x(self, prompt: PromptTokens, wording: Wording, special: SpecialTokens) -> Question:
        """Return the question for x's own tokens, with y blank: p(x | t)."""

    def ask_question(self, prompt: PromptTokens, wording: Wording, special: SpecialTokens) -> Question:
        """Return the question for x and for the prompt's own words after it, where the LM can be asked for them."""
        return self.ask_x(prompt, wording, special)


class Masked(Family):
    """One mask takes y's place; the LM's distribution there is the answer."""

    name = "masked"
    fills_masks = True
    auto_class = AutoModelForMaskedLM

    def fits(self, config: PretrainedConfig) -> bool:
        """Return whether LMs of this config are masked LMs."""
        is_causal = any("CausalLM" in name or "LMHead" in name for name in config.architectures or [])
        is_decoder = config.is_encoder_decoder or getattr(config, "is_decoder", False)
        return config.model_type in MODEL_FOR_MASKED_LM_MAPPING_NAMES and not is_causal and not is_decoder

    def ask_y(self, prompt: PromptTokens, wording: Wording, special: SpecialTokens) -> Question:
        """Return the whole sentence with a mask at y."""
        sentence = lay_out(prompt, wording.prefix, wording.suffix, special.mask)
        return Question({"layers": Stream(sentence.left, sentence.right)}, sentence.y_at, sentence.y_after_x)

    def ask_answer(self, prompt: PromptTokens, wording: Wording, special: SpecialTokens) -> Question:
        """Return the whole sentence with as many masks at y as it has tokens; they are filled in from left to right."""
        sentence = lay_out(prompt, wording.prefix, wording.suffix, special.mask)
        return Question({"layers": sentence.around_y()}, sentence.y_at, sentence.y_after_x)

    def ask_x(self, prompt: PromptTokens, wording: Wording, special: SpecialTokens) -> Question:
        """Return the whole sentence with masks at y and at all of x's tokens."""
        sentence = lay_out(prompt, wording.prefix, wording.suffix, special.mask)
        stream = Stream(sentence.left, sentence.right, X.MASKED)
        return Question({"layers": stream}, len(sentence.left), read_after_x=False, reads_x=True)


class Seq2Seq(Family):
    """The encoder reads the prompt with a mask at y; the decoder is forced to copy the prompt up to y.

    The decoder's tokens see the encoder's, and so all of x: sentences share no beginnings.
    """

    name = "seq2seq"
    auto_class = AutoModelForSeq2SeqLM

    def fits(self, config: PretrainedConfig) -> bool:
        """Return whether LMs of this config have an encoder and a decoder."""
        return config.is_encoder_decoder

    def stacks(self, model: PreTrainedModel) -> Mapping[str, nn.Module]:
        """Return encoder and decoder."""
        return {"encoder": model.get_encoder(), "decoder": model.get_decoder()}

    def inputs(self, embedded: Mapping[str, tuple[Tensor, Tensor]]) -> dict[str, Any]:
        """Return the model's arguments."""
        embeddings, attention_mask = embedded["encoder"]
        decoder_embeddings, decoder_attention_mask = embedded["decoder"]
        return {
            "inputs_embeds": embeddings,
            "attention_mask": attention_mask,
            "decoder_inputs_embeds": decoder_embeddings,
            "decoder_attention_mask": decoder_attention_mask,
            "use_cache": False,
        }

    def ask_y(self, prompt: PromptTokens, wording: Wording, special: SpecialTokens) -> Question:
        """Return the decoder's next token after its copy of everything before y."""
        sentence = lay_out(prompt, wording.prefix, wording.suffix, special.mask)
        copy = lay_out(prompt, [special.decoder_start, *wording.prefix], (), special.mask)
        streams = {"encoder": Stream(sentence.left, sentence.right), "decoder": copy.until_y()}
        return Question(streams, copy.y_at - 1, copy.y_after_x)

    def ask_answer(self, prompt: PromptTokens, wording: Wording, special: SpecialTokens) -> Question:
        """Return the decoder continues with y's tokens after its copy of everything before y, and then with what
        follows.

        The encoder sees one mask at y, whatever the length of the answer.
        """
        question = self.ask_y(prompt, wording, special)
        copy = lay_out(prompt, [special.decoder_start, *wording.prefix], (), special.mask)
        streams = {**question.streams, "decoder": copy.through_y()}
        follows = prompt.after if prompt.x_first else prompt.between
        if not follows and not prompt.x_first:
            return replace(question, streams=streams, ends_with_x=True)
        return replace(question, streams=streams, end=(*follows, *wording.suffix, special.text_end)[0])

    def ask_x(self, prompt: PromptTokens, wording: Wording, special: SpecialTokens) -> Question:
        """Return the decoder's tokens at x, where the encoder sees masks at x and at y."""
        sentence = lay_out(prompt, wording.prefix, wording.suffix, special.mask)
        copy = lay_out(prompt, [special.decoder_start, *wording.prefix], (), special.mask).until_after_x()
        streams = {"encoder": Stream(sentence.left, sentence.right, X.MASKED), "decoder": copy}
        return Question(streams, len(copy.left) - 1, read_after_x=False, reads_x=True)


class Causal(Family):
    """The next token after everything before y is the answer; what comes after y is cut."""

    name = "causal"
    masks_x = False
    shares_prefixes = True
    reads_questions = True
    auto_class = AutoModelForCausalLM

    def fits(self, config: PretrainedConfig) -> bool:
        """Return whether LMs of this config are causal LMs."""
        return config.model_type in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES and not config.is_encoder_decoder

    def inputs(self, embedded: Mapping[str, tuple[Tensor, Tensor]]) -> dict[str, Any]:
        """Return the model's arguments."""
        return {**super().inputs(embedded), "use_cache": False}

    def beginnings(self, wording: Wording, special: SpecialTokens) -> Mapping[Begin, Beginning]:
        """Return those for which the LM has tokens. A causal LM's first position is special, so there is a choice."""
        first: dict[Begin, int | None] = {"line-break": wording.line_break, "bos": special.bos, "eos": special.eos}
        found: dict[Begin, Beginning] = {
            name: Beginning(() if wording.prefix[-1:] == [token] else (token,), wording.first_place)
            for name, token in first.items()
            if token is not None
        }
        return {**found, "nothing": Beginning((), wording.first_place), "space": WITH_A_SPACE}

    def ask_y(self, prompt: PromptTokens, wording: Wording, special: SpecialTokens) -> Question:  # noqa: ARG002
        """Return the sentence up to y, read at its last token."""
        sentence = self._sentence(prompt, wording)
        if not sentence.y_after_x:
            raise Unusable("y comes before x, and a causal LM reads only what comes before y")
        return Question({"layers": sentence.until_y()}, sentence.y_at - 1, read_after_x=True)

    def ask_answer(self, prompt: PromptTokens, wording: Wording, special: SpecialTokens) -> Question:
        """Return the sentence up to y, then y's tokens, then what follows y in the template, or the end of the text."""
        question, sentence = self.ask_y(prompt, wording, special), self._sentence(prompt, wording)
        follows = prompt.closing or prompt.after
        end = follows[0] if follows else special.text_end_or(wording.line_break)
        return replace(question, streams={"layers": sentence.through_y()}, end=end)

    def ask_x(self, prompt: PromptTokens, wording: Wording, special: SpecialTokens) -> Question:
        """Return the sentence up to x's end, from BOS or EOS on, so that x's first token has something before it."""
        left = self._sentence(prompt, wording).until_after_x().left
        if not left or left[0].id not in (special.bos, special.eos):
            left = (Token(special.text_start), *left)
        return Question({"layers": Stream(left, ())}, len(left) - 1, read_after_x=False, reads_x=True)

    def ask_question(self, prompt: PromptTokens, wording: Wording, special: SpecialTokens) -> Question:
        """Return the sentence up to y, read from x on; BOS or EOS comes first only if x would."""
        sentence = self._sentence(prompt, wording).until_y()
        left = sentence.left or (Token(special.text_start),)
        stream = Stream(left, sentence.right)
        return Question({"layers": stream}, len(left) - 1, read_after_x=False, reads_x=True, reads_after_x=True)

    def _sentence(self, prompt: PromptTokens, wording: Wording) -> Sentence:
        return lay_out(prompt, (*wording.prefix, *prompt.beginning.tokens), (), y=-1)


FAMILIES: tuple[Family, ...] = (Seq2Seq(), Masked(), Causal())
"""In the order in which they are tried on a config."""


def family_of(config: PretrainedConfig) -> Family:
    """Return the family of LMs to which a config belongs."""
    for family in FAMILIES:
        if family.fits(config):
            return family
    known = ", ".join(family.name for family in FAMILIES)
    raise LMUnavailable(
        f"an LM of type {config.model_type!r} belongs to none of the families that can be asked: {known}"
    )
