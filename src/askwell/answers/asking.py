"""How prompts answer, by what counts as an answer; and several mixtures of one LM asked at once."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from askwell.answers.candidate_answers import CandidateAnswers
from askwell.answers.candidates import Candidates
from askwell.answers.encode import AnswerKind
from askwell.answers.one_token import OneTokenAnswers
from askwell.answers.open import OpenAnswers
from askwell.answers.reply import Replies
from askwell.answers.strategy import Answers
from askwell.lms.batches import words_of
from askwell.prompts.pairs import PairReader, Tuned
from askwell.prompts.prompt_set import PromptSet

# Each x takes prompts × vocabulary numbers while it is answered.
_NUMBERS_AT_ONCE = 2**25


def answers_for(prompts: PromptSet, kind: AnswerKind, candidates: Candidates | None = None) -> Answers:
    """Return the way to answer with answers of this kind, among candidates if there are any."""
    if candidates is not None and (kind.any_length or candidates.labels is not None):
        return CandidateAnswers(prompts, candidates, kind)
    return OpenAnswers(prompts, kind) if kind.any_length else OneTokenAnswers(prompts, candidates)


@dataclass(frozen=True)
class AskedX:
    """A way of answering, and the x to ask about."""

    answers: Answers
    x: str
    top: int = 10


class AskedTogether:
    """Prompts of one LM that are read in common batches, which fills a forward pass better. None of them may be tuned
    afterwards.

    Answers of one token are read off at one place; others are asked one mixture at a time.
    """

    def __init__(self, each: Sequence[Answers]) -> None:
        self._lm = each[0].prompts.lm
        joint = [answers.prompts for answers in each if isinstance(answers, OneTokenAnswers)]
        prompts = [prompt for of_mixture in joint for prompt in of_mixture.prompts]
        self._reader = PairReader(self._lm, prompts, reads_x=False)
        self._first: dict[PromptSet, int] = {}
        first = 0
        for of_mixture in joint:
            self._first[of_mixture] = first
            first += len(of_mixture.prompts)
        self._tuned = _joined(joint, first) if joint else None

    def ask(self, questions: Sequence[AskedX]) -> list[Replies]:
        """Return the most probable answers to each question, best first. Every x must be one that can be asked."""
        found: dict[int, Replies] = {}
        joint = [number for number, question in enumerate(questions) if question.answers.prompts in self._first]
        for some in self._within_bounds(questions, joint):
            found |= zip(some, self._read([questions[number] for number in some]), strict=True)
        alone: dict[tuple[Answers, int], list[int]] = {}
        for number, question in enumerate(questions):
            if number not in found:
                alone.setdefault((question.answers, question.top), []).append(number)
        for (answers, top), numbers in alone.items():
            found |= zip(numbers, answers.ask([questions[number].x for number in numbers], top), strict=True)
        return [found[number] for number in range(len(questions))]

    def _within_bounds(self, questions: Sequence[AskedX], numbers: Sequence[int]) -> Iterator[list[int]]:
        some: list[int] = []
        prompts = 0
        for number in numbers:
            added = len(questions[number].answers.prompts.prompts)
            if some and (prompts + added) * self._lm.vocabulary_size > _NUMBERS_AT_ONCE:
                yield some
                some, prompts = [], 0
            some.append(number)
            prompts += added
        if some:
            yield some

    def _read(self, questions: Sequence[AskedX]) -> list[Replies]:
        device = self._lm.device
        words = words_of([question.x for question in questions], self._lm.wording, device)
        counts = [len(question.answers.prompts.prompts) for question in questions]
        rows = torch.arange(len(questions), device=device).repeat_interleave(torch.tensor(counts, device=device))
        ranges = [
            torch.arange(count, device=device) + self._first[question.answers.prompts]
            for question, count in zip(questions, counts, strict=True)
        ]
        if self._tuned is None:
            raise RuntimeError("no mixture is read in common")
        of_pairs = self._reader.pair_log_probs(self._tuned, words, rows, torch.cat(ranges)).split(counts)
        found: dict[int, Replies] = {}
        groups: dict[tuple[Answers, int], list[int]] = {}
        for number, question in enumerate(questions):
            groups.setdefault((question.answers, question.top), []).append(number)
        for (answers, top), numbers in groups.items():
            assert isinstance(answers, OneTokenAnswers)
            log_probs = torch.stack([of_pairs[number] for number in numbers])
            asked = torch.tensor(numbers, device=device)
            found |= zip(numbers, answers.replies(words, asked, log_probs, top), strict=True)
        return [found[number] for number in range(len(questions))]


def _joined(each: Sequence[PromptSet], prompts: int) -> Tuned:
    """Return the parameters of all mixtures as those of one; what a shallow one adds to deeper layers is 0."""
    lm = each[0].lm
    deltas = None
    if any(of_mixture.layer_deltas for of_mixture in each):
        deltas = {
            name: [
                torch.cat(
                    [
                        of_mixture.layer_deltas[name][layer].detach()
                        if of_mixture.layer_deltas
                        else of_mixture.vectors.new_zeros(len(of_mixture.vectors), stack.width)
                        for of_mixture in each
                    ]
                )
                for layer in range(stack.layers)
            ]
            for name, stack in lm.stacks.items()
        }
    vectors = torch.cat([of_mixture.vectors.detach() for of_mixture in each])
    return Tuned(vectors, deltas, torch.arange(prompts, device=lm.device))
