"""Facts in the tokens of a mixture's LM, and which are left out and why."""

from collections import Counter
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from askwell.data.facts import Fact, Relation, SplitName, collector_paused
from askwell.errors import BadOption, NothingLeft
from askwell.files import is_utf8
from askwell.lms.batches import PLACES, SpeltTexts, Words
from askwell.lms.frozen import FrozenLM
from askwell.lms.tokenisation import Place
from askwell.mixture.answers import ONE_TOKEN, AnswerKind
from askwell.prompts.long_answers import length_log_probs

if TYPE_CHECKING:
    from askwell.mixture.candidates import Candidates
    from askwell.mixture.mixture import Mixture

NOT_ONE_TOKEN = "y is not one token of the LM"
TOO_MANY_TOKENS = "y has more tokens than the longest answer may have"
NOT_SPELT = "y has a character that the LM's tokenizer does not know"
TOO_LONG = "x is longer than the LM's context allows"
NO_TOKENS = "x has no token of the LM"
NOT_TEXT = "x holds bytes that are not UTF-8"
OWN_EXAMPLE = "every prompt shows x as an example"


@dataclass(frozen=True)
class LeftOutFact:
    """A fact that is not asked, and why."""

    fact: Fact
    reason: str


@dataclass(frozen=True)
class EncodedFacts:
    """Facts that a mixture can be asked about."""

    facts: tuple[Fact, ...]
    xs: Words
    ys: Words
    answers: Int[Tensor, " facts"]
    """The number of y among the mixture's one-token answers; -1 if y is not one of them."""
    gold_tokens: Int[Tensor, "places facts"]
    """The token that spells y at each place, -1 if it is not one token."""
    kind: AnswerKind = ONE_TOKEN

    def __len__(self) -> int:
        return len(self.facts)

    def subset(self, kept: Bool[Tensor, " facts"]) -> "EncodedFacts":
        """Those of the facts that are marked as kept."""
        return EncodedFacts(
            tuple(fact for fact, is_kept in zip(self.facts, kept.tolist(), strict=True) if is_kept),
            Words(self.xs.ids[:, kept], self.xs.lengths[:, kept]),
            Words(self.ys.ids[:, kept], self.ys.lengths[:, kept]),
            self.answers[kept],
            self.gold_tokens[:, kept],
            self.kind,
        )


@collector_paused()
def encode_facts(
    mixture: "Mixture", facts: Iterable[Fact], kind: AnswerKind | None = None, labels: Container[str] = ()
) -> tuple[EncodedFacts, list[LeftOutFact]]:
    """The facts that the mixture can be asked about, and those that are left out.

    What counts as an answer follows from the mixture, or else from the facts themselves, unless it is given. A y that
    is one of the `labels` is never an answer itself, so the LM need not be able to spell it.
    """
    facts, lm = list(facts), mixture.lm
    kind = kind or answer_kind(mixture, [fact.y for fact in facts])
    # Texts are tokenised once, and padded into tensors only when it is known which are asked.
    xs, ys = _spelt_xs(mixture, [fact.x for fact in facts]), SpeltTexts([fact.y for fact in facts], lm.wording)
    numbers = _gold_answers(mixture, ys)
    if kind.any_length:
        unanswerable = _why_unspellable(mixture, ys, kind)
    else:
        unanswerable = [NOT_ONE_TOKEN if number is None else None for number in numbers]
    reasons = [
        (None if fact.y in labels else of_y) or of_x
        for fact, of_y, of_x in zip(facts, unanswerable, _why_unaskable(mixture, xs, kind), strict=True)
    ]
    kept = _places_without(reasons)
    words = xs.words(lm.device, kept)
    if mixture.examples:
        shown = mixture.is_own_example(words, torch.arange(len(kept), device=lm.device)).tolist()
        for place, is_shown in zip(kept.tolist(), shown, strict=True):
            reasons[place] = OWN_EXAMPLE if is_shown else None
        kept = _places_without(reasons)
        words = xs.words(lm.device, kept)
    left_out = [LeftOutFact(fact, why) for fact, why in zip(facts, reasons, strict=True) if why is not None]
    chosen = kept.tolist()
    answers = torch.tensor([-1 if (n := numbers[place]) is None else n for place in chosen], dtype=torch.long)
    answers = answers.to(lm.device)
    tokens = mixture.answer_space.tokens[:, answers.clamp(min=0)].masked_fill(answers < 0, -1)
    asked = tuple(facts[place] for place in chosen)
    return EncodedFacts(asked, words, ys.words(lm.device, kept), answers, tokens, kind), left_out


def _places_without(reasons: Sequence[str | None]) -> np.ndarray:
    return np.flatnonzero(np.fromiter((reason is None for reason in reasons), bool, len(reasons)))


def answer_kind(
    mixture: "Mixture",
    train_ys: Sequence[str],
    other_ys: Iterable[str] = (),
    *,
    whole: bool = False,
    candidates: Iterable[str] = (),
) -> AnswerKind:
    """What counts as an answer to a mixture: what it was tuned for, what its spec says, or what the ys need; answers of
    any length where `whole` ones are wanted.

    How long a masked LM's answers are is learned from those ys of train that can be answers. Those of other LMs are
    over at a token that ends them, except where a train y or a candidate itself holds that token.
    """
    if mixture.answer_kind is not None:
        return mixture.answer_kind
    choice, longest, lm = mixture.spec.answers, mixture.spec.longest_answer, mixture.lm
    if whole and choice == "one-token":
        raise BadOption(
            "`answers` one-token: a mixture that is tuned to choose among candidates takes whole answers",
            answers="--answers",
        )
    if choice == "auto" and whole:
        choice = "any-length"
    if choice == "auto":
        every = list(dict.fromkeys([*train_ys, *other_ys]))
        needs_more = None in _gold_answers(mixture, SpeltTexts(every, lm.wording))
        choice = "any-length" if needs_more else "one-token"
    if choice == "one-token":
        return ONE_TOKEN
    if not lm.family.fills_masks:
        held = _ends_within(mixture, SpeltTexts([*train_ys, *candidates], lm.wording))
        return AnswerKind(any_length=True, longest=longest, through=held)
    kind, ys = AnswerKind(any_length=True, longest=longest), SpeltTexts(train_ys, lm.wording)
    of_place = ys.lengths[PLACES.index(mixture.answer_space.places[0])]
    lengths = of_place[_places_without(_why_unspellable(mixture, ys, kind))].tolist()
    return replace(kind, log_lengths=tuple(length_log_probs(lengths, longest).tolist()))


def _ends_within(mixture: "Mixture", ys: SpeltTexts) -> tuple[int, ...]:
    """The tokens that end answers to the mixture's prompts and are part of some of these ys."""
    places = mixture.answer_space.places
    return tuple(
        end for end in mixture.long_answers.end_tokens if any(ys.holds(end, place).any() for place in places)
    )  # fmt: skip


def needs_any_length(lm: FrozenLM, relation: Relation) -> bool:
    """Whether some y of a relation is not one token of the LM."""
    ys = list(dict.fromkeys(fact.y for fact in (*relation.train, *relation.dev, *relation.test)))
    return any(len(tokens) != 1 for tokens in lm.wording.encode_all(ys, Place.SPACED))


def default_kind(mixture: "Mixture") -> AnswerKind:
    """What counts as an answer without facts to decide: what the mixture was tuned for or its spec says; otherwise one
    token for masked LMs, which learn from facts how long answers are, and any length for the others."""
    if mixture.answer_kind is not None:
        return mixture.answer_kind
    choice, masks = mixture.spec.answers, mixture.lm.family.fills_masks
    if choice == "any-length" and masks:
        raise BadOption(
            "`answers` any-length: a masked LM learns from train facts how long answers are; name the relation "
            "with `facts`",
            answers="--answers",
            facts="--facts",
        )
    if choice == "one-token" or masks:
        return ONE_TOKEN
    return AnswerKind(any_length=True, longest=mixture.spec.longest_answer)


class EncodedRelation:
    """The facts of a relation in a mixture's tokens. Each split is encoded once, when it is first needed."""

    def __init__(
        self,
        mixture: "Mixture",
        relation: Relation,
        *,
        candidates: "Candidates | None" = None,
        whole_answers: bool = False,
    ) -> None:
        if not isinstance(relation, Relation):
            raise BadOption(
                f"a Relation is needed, not {type(relation).__name__}: askwell.read_relation makes one of "
                "pairs, a dictionary, a frame or a file"
            )
        self.relation = relation
        self._mixture, self._labels = mixture, {} if candidates is None else candidates.words_of
        train, others = self._asked_for(relation.train), self._asked_for((*relation.dev, *relation.test))
        words = () if candidates is None else candidates.words
        self.kind = answer_kind(mixture, train, others, whole=whole_answers, candidates=words)
        self._encoded: dict[SplitName, tuple[EncodedFacts, tuple[LeftOutFact, ...]]] = {}

    def split(self, name: SplitName) -> EncodedFacts:
        """The facts of a split that the mixture can be asked."""
        return self._of(name)[0]

    def left_out(self, name: SplitName) -> tuple[LeftOutFact, ...]:
        """The facts of a split that it cannot be asked about."""
        return self._of(name)[1]

    def need(self, name: SplitName) -> EncodedFacts:
        """The same as `split`; an error if there are none."""
        if not len(self.split(name)):
            raise no_facts_left(f"{name} facts of {self.relation.name}", self.left_out(name))
        return self.split(name)

    def _of(self, name: SplitName) -> tuple[EncodedFacts, tuple[LeftOutFact, ...]]:
        if name not in self._encoded:
            facts, left_out = encode_facts(self._mixture, self.relation.split(name), self.kind, self._labels)
            self._encoded[name] = facts, tuple(left_out)
        return self._encoded[name]

    def _asked_for(self, facts: Iterable[Fact]) -> list[str]:
        """What the LM should answer: the words of each y that is a label, or y itself."""
        return [word for fact in facts for word in self._labels.get(fact.y, (fact.y,))]


def encode_relation(
    mixture: "Mixture", relation: Relation, *, candidates: "Candidates | None" = None, whole_answers: bool = False
) -> EncodedRelation:
    """The relation's facts in the tokens of the mixture's LM; with `whole_answers`, answers always have any length.

    `candidates` are those that it will choose among: a y that is a label means the label's words.
    """
    return EncodedRelation(mixture, relation, candidates=candidates, whole_answers=whole_answers)


def why_unaskable(mixture: "Mixture", xs: Sequence[str], kind: AnswerKind = ONE_TOKEN) -> list[str | None]:
    """For each x the reason why the LM cannot be asked about it, None if it can.

    Answers of any length also need room for the longest.
    """
    texts = [x if is_utf8(x) else "" for x in xs]
    reasons = _why_unaskable(mixture, _spelt_xs(mixture, texts), kind)
    return [reason if is_utf8(x) else NOT_TEXT for x, reason in zip(xs, reasons, strict=True)]


def _spelt_xs(mixture: "Mixture", xs: Sequence[str]) -> SpeltTexts:
    """The x's at the places at which some prompt has them, and at the first, by which examples know them."""
    needed = {PLACES[0], *(PLACES[place] for place in mixture.pairs.x_places.tolist())}
    return SpeltTexts(xs, mixture.lm.wording, needed)


def _why_unaskable(mixture: "Mixture", xs: SpeltTexts, kind: AnswerKind) -> list[str | None]:
    if not len(xs):
        return []
    words = xs.lengths_alone(mixture.lm.device)
    empty = (words.lengths == 0).any(0).tolist()
    longest = mixture.pairs.longest_question(words)
    if kind.any_length:
        with_answer = mixture.long_answers.longest_sentence(words, len(kind.log_lengths) or kind.longest)
        longest = torch.maximum(longest, with_answer)
    limit = mixture.lm.context
    return [
        NO_TOKENS if is_empty else TOO_LONG if limit is not None and length > limit else None
        for is_empty, length in zip(empty, longest.tolist(), strict=True)
    ]


def why_unspellable(mixture: "Mixture", ys: Iterable[str], kind: AnswerKind) -> list[str | None]:
    """For each y the reason why it cannot be an answer of any length, None where it can."""
    return _why_unspellable(mixture, SpeltTexts(list(ys), mixture.lm.wording), kind)


def _why_unspellable(mixture: "Mixture", ys: SpeltTexts, kind: AnswerKind) -> list[str | None]:
    places, unknown = mixture.answer_space.places, mixture.lm.wording.unknown_id
    lengths = ys.lengths[[PLACES.index(place) for place in places]]
    not_spelt = (lengths == 0).any(0)
    for place in places:
        not_spelt |= ys.holds(unknown, place)
    too_long = np.asarray((lengths > kind.longest).any(0))
    return [
        NOT_SPELT if is_not_spelt else TOO_MANY_TOKENS if is_too_long else None
        for is_not_spelt, is_too_long in zip(not_spelt.tolist(), too_long.tolist(), strict=True)
    ]


def count_reasons(left_out: Iterable[LeftOutFact]) -> dict[str, int]:
    """How many facts were left out for each reason."""
    return dict(Counter(fact.reason for fact in left_out))


def way_out_of(reason: str) -> str:
    """What to do about facts that were left out for this reason, if anything."""
    return "; `askwell train --longest-answer N` allows for more" if reason == TOO_MANY_TOKENS else ""


def no_facts_left(what: str, left_out: Iterable[LeftOutFact]) -> NothingLeft:
    """The error that all facts were left out, with what can be done about it."""
    reasons = count_reasons(left_out)
    return NothingLeft(what, reasons, "".join(way_out_of(reason) for reason in reasons))


def _gold_answers(mixture: "Mixture", ys: SpeltTexts) -> list[int | None]:
    """The number of each y among the mixture's answers; in a product every prompt must have a form of it."""
    space, needed = mixture.answer_space, [PLACES.index(place) for place in mixture.answer_space.places]
    numbers = space.numbers_of_spelt(ys)
    if mixture.spec.combine == "mixture":
        return numbers
    has_all = (space.tokens[needed] >= 0).all(0).tolist()
    return [n if n is not None and has_all[n] else None for n in numbers]
