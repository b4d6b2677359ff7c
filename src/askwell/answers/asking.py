"""How prompts answer, by what counts as an answer; and several mixtures of one LM asked at once."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, chain

import torch
from torch import Tensor

from askwell.answers.candidate_answers import CandidateAnswers
from askwell.answers.candidates import Candidates
from askwell.answers.encode import AnswerKind
from askwell.answers.one_token import OneTokenAnswers
from askwell.answers.open import OpenAnswers
from askwell.answers.reply import Replies
from askwell.answers.strategy import Answers
from askwell.errors import BadOption
from askwell.lms.batches import words_of
from askwell.prompts.pairs import PairReader, Tuned
from askwell.prompts.prompt import token_rows
from askwell.prompts.prompt_set import PromptSet

# Each x takes prompts × vocabulary numbers while it is answered.
_NUMBERS_AT_ONCE = 2**25


def answers_for(prompts: PromptSet, kind: AnswerKind, candidates: Candidates | None = None) -> Answers:
    """Return the way to answer with answers of this kind, among candidates if there are any."""
    if candidates is not None and (kind.any_length or candidates.labels is not None):
        return CandidateAnswers(prompts, candidates, kind)
    if kind.any_length and prompts.spec.end == "none":
        raise BadOption("`end` none is for candidates, which can be compared without their ends", end="--end")
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
        ends = accumulate((len(of_mixture.vectors) for of_mixture in joint), initial=0)
        rows = [token_rows(one.prompts, first) for one, first in zip(joint, ends, strict=False)]
        self._reader = PairReader(self._lm, prompts, reads_x=False, rows=[*chain.from_iterable(rows)])
        firsts = accumulate((len(of_mixture.prompts) for of_mixture in joint), initial=0)
        self._first = dict(zip(joint, firsts, strict=False))
        if joint:
            self._tuned = _joined(joint, len(prompts))

    def ask(self, questions: Sequence[AskedX]) -> list[Replies]:
        """Return the most probable answers to each question, best first. Every x must be one that can be asked."""
        found: dict[int, Replies] = {}
        some: list[int] = []
        prompts = 0
        for number, question in enumerate(questions):
            if question.answers.prompts in self._first:
                added = len(question.answers.prompts.prompts)
                if some and (prompts + added) * self._lm.vocabulary_size > _NUMBERS_AT_ONCE:
                    found |= self._read(questions, some)
                    some, prompts = [], 0
                some.append(number)
                prompts += added
        if some:
            found |= self._read(questions, some)
        alone = [number for number in range(len(questions)) if number not in found]
        for (answers, top), numbers in _by_mixture(questions, alone).items():
            found |= zip(numbers, answers.ask([questions[number].x for number in numbers], top), strict=True)
        return [found[number] for number in range(len(questions))]

    def _read(self, questions: Sequence[AskedX], numbers: Sequence[int]) -> dict[int, Replies]:
        """Answer the questions of these numbers, all of which are about answers of one token."""
        device, mixtures = self._lm.device, [questions[number].answers.prompts for number in numbers]
        words = words_of([questions[number].x for number in numbers], self._lm.wording, device)
        prompts = [torch.arange(len(one.prompts), device=device) + self._first[one] for one in mixtures]
        counts = [len(one.prompts) for one in mixtures]
        rows = torch.arange(len(numbers), device=device).repeat_interleave(torch.tensor(counts, device=device))
        of_pairs = self._reader.pair_log_probs(self._tuned, words, rows, torch.cat(prompts)).split(counts)
        row_of = {number: row for row, number in enumerate(numbers)}
        found: dict[int, Replies] = {}
        for (answers, top), some in _by_mixture(questions, numbers).items():
            assert isinstance(answers, OneTokenAnswers)
            asked = [row_of[number] for number in some]
            log_probs = torch.stack([of_pairs[row] for row in asked])
            found |= zip(some, answers.replies(words, torch.tensor(asked, device=device), log_probs, top), strict=True)
        return found


def _by_mixture(questions: Sequence[AskedX], numbers: Sequence[int]) -> dict[tuple[Answers, int], list[int]]:
    groups: dict[tuple[Answers, int], list[int]] = {}
    for number in numbers:
        groups.setdefault((questions[number].answers, questions[number].top), []).append(number)
    return groups


def _joined(each: Sequence[PromptSet], prompts: int) -> Tuned:
    """Return the parameters of all mixtures as those of one; what a shallow one adds to deeper layers is 0."""

    def delta(of_mixture: PromptSet, stack: str, layer: int, width: int) -> Tensor:
        deltas = of_mixture.layer_deltas
        return deltas[stack][layer].detach() if deltas else of_mixture.vectors.new_zeros(len(of_mixture.vectors), width)

    lm, deltas = each[0].lm, None
    if any(of_mixture.layer_deltas for of_mixture in each):
        deltas = {
            name: [
                torch.cat([delta(of_mixture, name, layer, stack.width) for of_mixture in each])
                for layer in range(stack.layers)
            ]
            for name, stack in lm.stacks.items()
        }
    vectors = torch.cat([of_mixture.vectors.detach() for of_mixture in each])
    return Tuned(vectors, deltas, torch.arange(prompts, device=lm.device))
