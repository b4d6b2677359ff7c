"""What counts as an answer: one token of the LM, or a string of any length; what is saved of that, and how facts decide
it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from askwell.data.facts import Relation
from askwell.errors import BadOption
from askwell.lms.batches import PLACES, TokenisedTexts
from askwell.lms.frozen import FrozenLM
from askwell.lms.tokenisation import Place
from askwell.prompts.long_answers import length_log_probs
from askwell.prompts.prompt_set import PromptSet
from askwell.specs.mixture_spec import LONGEST_ANSWER, AnswersName

NOT_ONE_TOKEN = "y is not one token of the LM"
TOO_MANY_TOKENS = "y has more tokens than the longest answer may have"
NOT_SPELT = "y has a character that the LM's tokenizer does not know"


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

    def describe(self, lm_name: str) -> str:
        """Describe the answers that the right one is ranked among; the limit is stated only if it was chosen."""
        if self.longest == LONGEST_ANSWER:
            return f"all answers of any length of {lm_name}"
        return f"all answers of up to {self.longest} tokens of {lm_name}"

    def lengths_on(self, lm: FrozenLM) -> Float[Tensor, " lengths"] | None:
        """Return log p(m | r) as a tensor; None if there is none."""
        if not self.log_lengths:
            return None
        return torch.tensor(self.log_lengths, dtype=lm.parameter_dtype, device=lm.device)

    def why_not(self, prompts: PromptSet, ys: TokenisedTexts) -> list[str | None]:
        """Return the reason why each y cannot be an answer, None where it can."""
        if not self.any_length:
            return [NOT_ONE_TOKEN if number is None else None for number in word_numbers(prompts, ys)]
        places, unknown = prompts.token_words.places, prompts.lm.wording.unknown_id
        lengths = ys.lengths[[PLACES.index(place) for place in places]]
        not_spelt = (lengths == 0).any(0)
        for place in places:
            not_spelt |= ys.holds(unknown, place)
        too_long = np.asarray((lengths > self.longest).any(0))
        return [
            NOT_SPELT if is_not_spelt else TOO_MANY_TOKENS if is_too_long else None
            for is_not_spelt, is_too_long in zip(not_spelt.tolist(), too_long.tolist(), strict=True)
        ]


ONE_TOKEN = AnswerKind()


def word_numbers(prompts: PromptSet, ys: TokenisedTexts) -> list[int | None]:
    """Return the number of each y among the words of one token; in a product every prompt must have a form of it."""
    numbers = prompts.token_words.numbers_of(ys)
    if not prompts.is_product:
        return numbers
    has_all = prompts.token_words.has_all_forms
    return [number if number is not None and has_all[number] else None for number in numbers]


def kind_of_facts(
    prompts: PromptSet,
    train: TokenisedTexts,
    others: TokenisedTexts | None = None,
    *,
    candidates: TokenisedTexts | None = None,
    whole: bool = False,
) -> AnswerKind:
    """Return what the spec says counts as an answer, or what the ys of train and of other facts need; with `whole`,
    answers of any length.

    How long a masked LM's answers are is learned from those ys of train that can be answers. Answers of other LMs stop
    at a token that ends them, except where a train y or a candidate itself contains that token.
    """
    choice, longest = prompts.spec.answers, prompts.spec.longest_answer
    if whole and choice == "one-token":
        raise BadOption(
            "`answers` one-token: a mixture that is tuned to choose among candidates takes whole answers",
            answers="--answers",
        )
    if choice == "auto":
        every = [ys for ys in (train, others) if ys is not None]
        needs_more = whole or any(None in word_numbers(prompts, ys) for ys in every)
        choice = "any-length" if needs_more else "one-token"
    if choice == "one-token":
        return ONE_TOKEN
    kind = AnswerKind(any_length=True, longest=longest)
    if not prompts.lm.family.fills_masks:
        held = [ys for ys in (train, candidates) if ys is not None]
        return replace(
            kind, through=tuple(end for end in prompts.long_answers.end_tokens if _holds(prompts, held, end))
        )
    of_place = train.lengths[PLACES.index(prompts.token_words.places[0])].tolist()
    lengths = [n for n, why in zip(of_place, kind.why_not(prompts, train), strict=True) if why is None]
    return replace(kind, log_lengths=tuple(length_log_probs(lengths, longest).tolist()))


def _holds(prompts: PromptSet, texts: Sequence[TokenisedTexts], token: int) -> bool:
    """Tell whether some text has this token in a form that the prompts need."""
    return any(ys.holds(token, place).any() for ys in texts for place in prompts.token_words.places)


def kind_without_facts(prompts: PromptSet) -> AnswerKind:
    """Return what the spec says counts as an answer; otherwise one token for masked LMs, which learn from facts how
    long answers are, and any length for the others."""
    choice, masks = prompts.spec.answers, prompts.lm.family.fills_masks
    if choice == "any-length" and masks:
        raise BadOption(
            "`answers` any-length: a masked LM learns from train facts how long answers are; name the relation with "
            "`facts`",
            answers="--answers",
            facts="--facts",
        )
    if choice == "one-token" or masks:
        return ONE_TOKEN
    return AnswerKind(any_length=True, longest=prompts.spec.longest_answer)


def needs_any_length(lm: FrozenLM, relation: Relation) -> bool:
    """Tell whether some y of a relation is not one token of the LM."""
    ys: Sequence[str] = list(dict.fromkeys(fact.y for split in relation.splits.values() for fact in split))
    return any(len(tokens) != 1 for tokens in lm.wording.encode_all(ys, Place.SPACED))
