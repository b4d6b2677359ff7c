"""What counts as an answer, as facts decide it, and facts in the LM's tokens: which are left out, and why."""

from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from askwell.answers.candidates import Candidates
from askwell.answers.reply import NOT_ONE_TOKEN, NOT_SPELT, TOO_MANY_TOKENS, LeftOutFact, no_facts_left
from askwell.data.facts import Fact, Relation, SplitName
from askwell.errors import BadOption
from askwell.lms.batches import PLACES, TokenisedTexts, Words
from askwell.lms.frozen import FrozenLM
from askwell.lms.tokenisation import Place
from askwell.prompts.long_answers import length_log_probs
from askwell.prompts.prompt_set import OWN_EXAMPLE, PromptSet
from askwell.specs.mixture_spec import LONGEST_ANSWER, AnswersName


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
        places, ends = prompts.token_words.places, prompts.long_answers.end_tokens
        is_held = [any(ys.holds(end, place).any() for ys in held for place in places) for end in ends]
        return replace(kind, through=tuple(end for end, is_inside in zip(ends, is_held, strict=True) if is_inside))
    of_place = train.lengths[PLACES.index(prompts.token_words.places[0])].tolist()
    lengths = [n for n, why in zip(of_place, kind.why_not(prompts, train), strict=True) if why is None]
    return replace(kind, log_lengths=tuple(length_log_probs(lengths, longest).tolist()))


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


# ── facts ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


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
