"""Facts in the LM's tokens, and which are left out and why."""

from collections import Counter
from collections.abc import Container, Iterable
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from askwell.answers.candidates import Candidates
from askwell.answers.kind import ONE_TOKEN, TOO_MANY_TOKENS, AnswerKind, kind_of_facts, word_numbers
from askwell.data.facts import Fact, Relation, SplitName
from askwell.errors import BadOption, NothingLeft
from askwell.lms.batches import TokenisedTexts, Words
from askwell.prompts.prompt_set import OWN_EXAMPLE, PromptSet


@dataclass(frozen=True)
class LeftOutFact:
    """A fact that is not asked, and why."""

    fact: Fact
    reason: str


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
            facts, kind.why_not(prompts, ys), prompts.why_too_long(xs, kind.most_tokens), strict=True
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


class EncodedRelation:
    """The facts of a relation in the LM's tokens. Each split is encoded once, when it is first needed."""

    def __init__(
        self,
        prompts: PromptSet,
        relation: Relation,
        *,
        kind: AnswerKind | None = None,
        candidates: Candidates | None = None,
        whole_answers: bool = False,
    ) -> None:
        """Decide from the facts what counts as an answer, unless it is given."""
        if not isinstance(relation, Relation):
            raise BadOption(
                f"a Relation is needed, not {type(relation).__name__}: askwell.load_relation makes one of "
                "pairs, a dictionary, a frame or a file"
            )
        self.relation = relation
        self._prompts, self._labels = prompts, {} if candidates is None else candidates.words_of
        train, others = self._asked_for(relation.train), self._asked_for((*relation.dev, *relation.test))
        words = () if candidates is None else candidates.words
        own = (fact.y for facts in relation.splits.values() for fact in facts)
        self._ys = ys = TokenisedTexts([*train, *others, *words, *own], prompts.lm.wording)
        self.kind = kind or kind_of_facts(
            prompts, ys.among(train), ys.among(others), candidates=ys.among(words), whole=whole_answers
        )
        self._encoded: dict[SplitName, tuple[EncodedFacts, tuple[LeftOutFact, ...]]] = {}

    def split(self, name: SplitName) -> EncodedFacts:
        """Return the facts of a split that can be asked."""
        return self._of(name)[0]

    def left_out(self, name: SplitName) -> tuple[LeftOutFact, ...]:
        """Return the facts of a split that cannot be asked."""
        return self._of(name)[1]

    def need(self, name: SplitName) -> EncodedFacts:
        """Return the same as `split`, or raise an error if there are none."""
        if not len(self.split(name)):
            raise no_facts_left(f"{name} facts of {self.relation.name}", self.left_out(name))
        return self.split(name)

    def _of(self, name: SplitName) -> tuple[EncodedFacts, tuple[LeftOutFact, ...]]:
        if name not in self._encoded:
            facts = self.relation.split(name)
            encoded, left_out = encode_facts(self._prompts, facts, self.kind, self._labels, self._ys)
            self._encoded[name] = encoded, tuple(left_out)
        return self._encoded[name]

    def _asked_for(self, facts: Iterable[Fact]) -> list[str]:
        """Return what the LM should answer: the words of each y that is a label, or y itself."""
        return [word for fact in facts for word in self._labels.get(fact.y, (fact.y,))]


def _without_reason(reasons: list[str | None]) -> np.ndarray:
    return np.flatnonzero(np.fromiter((reason is None for reason in reasons), bool, len(reasons)))


def count_reasons(left_out: Iterable[LeftOutFact]) -> dict[str, int]:
    """Return how many facts were left out for each reason."""
    return dict(Counter(fact.reason for fact in left_out))


def way_out_of(reason: str) -> str:
    """Return what to do about facts that were left out for this reason, if anything."""
    return "; `askwell train --longest-answer N` allows for more" if reason == TOO_MANY_TOKENS else ""


def no_facts_left(what: str, left_out: Iterable[LeftOutFact]) -> NothingLeft:
    """Return the error for when all facts were left out, with what can be done about it."""
    reasons = count_reasons(left_out)
    return NothingLeft(what, reasons, "".join(way_out_of(reason) for reason in reasons))
