"""What counts as an answer, as a spec or facts decide it; the strategy for it; a relation's facts encoded for it."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from askwell.answers.candidate_answers import CandidateAnswers
from askwell.answers.candidates import Candidates
from askwell.answers.encode import EncodedFacts, encode_facts, why_not, word_numbers
from askwell.answers.listed import ListedAnswers
from askwell.answers.one_token import OneTokenAnswers
from askwell.answers.open import OpenAnswers
from askwell.answers.reply import LeftOutFact, no_facts_left
from askwell.answers.strategy import Answers
from askwell.data.facts import Fact, Relation, SplitName
from askwell.errors import BadOption
from askwell.lms.batches import PLACES, TokenisedTexts
from askwell.lms.frozen import FrozenLM
from askwell.lms.tokenisation import Place
from askwell.prompts.long_answers import length_log_probs
from askwell.prompts.prompt_set import PromptSet
from askwell.specs.mixture_spec import ONE_TOKEN, AnswerKind, AnswersChoice, AnswersName


def answers_for(prompts: PromptSet, kind: AnswerKind, candidates: Candidates | None = None) -> Answers:
    """Return the way to answer with answers of this kind, among candidates if there are any."""
    if candidates is not None:
        return answers_among(prompts, kind, candidates)
    if kind.any_length and prompts.spec.end == "none":
        raise BadOption("`end` none is for candidates, which can be compared without their ends", end="--end")
    return OpenAnswers(prompts, kind) if kind.any_length else OneTokenAnswers(prompts)


def answers_among(prompts: PromptSet, kind: AnswerKind, candidates: Candidates) -> ListedAnswers:
    """Return the way to choose among candidates."""
    if kind.any_length or candidates.labels is not None:
        return CandidateAnswers(prompts, candidates, kind)
    return OneTokenAnswers(prompts, candidates)


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
    lengths = [n for n, why in zip(of_place, why_not(kind, prompts, train), strict=True) if why is None]
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


def common_kind(choice: AnswersChoice, lms: Iterable[FrozenLM], relations: Iterable[Relation]) -> AnswersName:
    """Return the one kind of answers that these relations have on these LMs, so that no mean or comparison mixes
    kinds: what was chosen or, with auto, what some relation needs on some LM."""
    if choice != "auto":
        return choice
    relations = list(relations)
    return "any-length" if any(_has_long_ys(lm, one) for lm in lms for one in relations) else "one-token"


def _has_long_ys(lm: FrozenLM, relation: Relation) -> bool:
    ys: Sequence[str] = list(dict.fromkeys(fact.y for split in relation.splits.values() for fact in split))
    return any(len(tokens) != 1 for tokens in lm.wording.encode_all(ys, Place.SPACED))


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
