"""Facts in the LM's tokens: which are left out, and why."""

from collections.abc import Container, Iterable
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from askwell.answers.reply import NOT_ONE_TOKEN, NOT_SPELT, TOO_MANY_TOKENS, LeftOutFact
from askwell.data.facts import Fact
from askwell.lms.batches import PLACES, TokenisedTexts, Words
from askwell.prompts.prompt_set import OWN_EXAMPLE, PromptSet
from askwell.specs.mixture_spec import ONE_TOKEN, AnswerKind


def word_numbers(prompts: PromptSet, ys: TokenisedTexts) -> list[int | None]:
    """Return the number of each y among the words of one token; in a product every prompt must have a form of it."""
    numbers = prompts.token_words.numbers_of(ys)
    if not prompts.is_product:
        return numbers
    has_all = prompts.token_words.has_all_forms
    return [number if number is not None and has_all[number] else None for number in numbers]


def why_not(kind: AnswerKind, prompts: PromptSet, ys: TokenisedTexts) -> list[str | None]:
    """Return the reason why each y cannot be an answer, None where it can."""
    if not kind.any_length:
        return [NOT_ONE_TOKEN if number is None else None for number in word_numbers(prompts, ys)]
    places, unknown = prompts.token_words.places, prompts.lm.wording.unknown_id
    lengths = ys.lengths[[PLACES.index(place) for place in places]]
    not_spelt = (lengths == 0).any(0)
    for place in places:
        not_spelt |= ys.holds(unknown, place)
    too_long = np.asarray((lengths > kind.longest).any(0))
    return [
        NOT_SPELT if is_not_spelt else TOO_MANY_TOKENS if is_too_long else None
        for is_not_spelt, is_too_long in zip(not_spelt.tolist(), too_long.tolist(), strict=True)
    ]


@dataclass(frozen=True)
class EncodedFacts:
    """Facts that some prompts can be asked about."""

    facts: tuple[Fact, ...]
    xs: Words
    ys: Words
    answers: Int[Tensor, " facts"]
    """The number of y among the words of one token; -1 if y is not one of them."""
    gold_tokens: Int[Tensor, "places facts"]
    """The token that spells y at each place, -1 if it is not one token."""
    kind: AnswerKind = ONE_TOKEN

    def __len__(self) -> int:
        return len(self.facts)

    @property
    def rows(self) -> Int[Tensor, " facts"]:
        """The number of every fact."""
        return torch.arange(len(self), device=self.answers.device)

    def subset(self, kept: Bool[Tensor, " facts"]) -> "EncodedFacts":
        """Return those of the facts that are marked as kept."""
        return EncodedFacts(
            tuple(fact for fact, is_kept in zip(self.facts, kept.tolist(), strict=True) if is_kept),
            Words(self.xs.ids[:, kept], self.xs.lengths[:, kept]),
            Words(self.ys.ids[:, kept], self.ys.lengths[:, kept]),
            self.answers[kept],
            self.gold_tokens[:, kept],
            self.kind,
        )


def encode_facts(
    prompts: PromptSet,
    facts: Iterable[Fact],
    kind: AnswerKind,
    labels: Container[str] = (),
    tokenised_ys: TokenisedTexts | None = None,
) -> tuple[EncodedFacts, list[LeftOutFact]]:
    """Return the facts that the prompts can be asked about, and those that are left out.

    A y that is one of the `labels` is never an answer itself, so the LM need not be able to spell it.
    """
    facts, lm = list(facts), prompts.lm
    # Texts are tokenised once, and padded into tensors only when it is known which are asked.
    xs, texts = prompts.tokenised_xs([fact.x for fact in facts]), [fact.y for fact in facts]
    ys = TokenisedTexts(texts, lm.wording) if tokenised_ys is None else tokenised_ys.among(texts)
    reasons = [
        (None if fact.y in labels else of_y) or of_x
        for fact, of_y, of_x in zip(
            facts, why_not(kind, prompts, ys), prompts.why_too_long(xs, kind.most_tokens), strict=True
        )
    ]
    kept = _without_reason(reasons)
    words = xs.words(lm.device, kept)
    if prompts.examples:
        shown = prompts.is_own_example(words, torch.arange(len(kept), device=lm.device)).tolist()
        for place, is_shown in zip(kept.tolist(), shown, strict=True):
            reasons[place] = OWN_EXAMPLE if is_shown else None
        kept = _without_reason(reasons)
        words = xs.words(lm.device, kept)
    left_out = [LeftOutFact(fact, why) for fact, why in zip(facts, reasons, strict=True) if why is not None]
    chosen, numbers = kept.tolist(), word_numbers(prompts, ys)
    answers = torch.tensor([-1 if (n := numbers[place]) is None else n for place in chosen], dtype=torch.long)
    answers = answers.to(lm.device)
    tokens = prompts.token_words.tokens[:, answers.clamp(min=0)].masked_fill(answers < 0, -1)
    asked = tuple(facts[place] for place in chosen)
    return EncodedFacts(asked, words, ys.words(lm.device, kept), answers, tokens, kind), left_out


def _without_reason(reasons: list[str | None]) -> np.ndarray:
    return np.flatnonzero(np.fromiter((reason is None for reason in reasons), bool, len(reasons)))
