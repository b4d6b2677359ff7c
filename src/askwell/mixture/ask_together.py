"""Asks several mixtures of one LM at once, which fills a forward pass better than asking them one by one."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from askwell.lms.batches import words_of
from askwell.mixture.ask import ask, replies
from askwell.mixture.distributions import answer_log_probs
from askwell.mixture.encode import default_kind
from askwell.mixture.mixture import Mixture
from askwell.mixture.reply import Reply
from askwell.prompts.pairs import PairReader, Tuned

# Each x holds prompts × vocabulary numbers while it is answered.
_NUMBERS_AT_ONCE = 2**25


@dataclass(frozen=True)
class AskedX:
    """A mixture, and the x to ask it about."""

    mixture: Mixture
    x: str
    top: int = 10


class AskedTogether:
    """Mixtures of one LM whose prompts are read in common batches. None of them may be tuned afterwards."""

    def __init__(self, mixtures: Sequence[Mixture]) -> None:
        self.mixtures = tuple(mixtures)
        self._lm = mixtures[0].lm
        self._kinds = {mixture: default_kind(mixture) for mixture in self.mixtures}
        self._joint = [mixture for mixture in self.mixtures if self._is_joint(mixture)]
        self._allowed = {
            mixture: None if mixture.candidates is None else mixture.candidates.answers(mixture)[0]
            for mixture in self._joint
        }
        prompts = [prompt for mixture in self._joint for prompt in mixture.prompts]
        self._reader = PairReader(self._lm, prompts, reads_x=False)
        self._first: dict[Mixture, int] = {}
        first = 0
        for mixture in self._joint:
            self._first[mixture] = first
            first += len(mixture.prompts)
        self._tuned = _joined(self._joint, first) if self._joint else None

    def ask(self, questions: Sequence[AskedX]) -> list[list[Reply]]:
        """The most probable answers to each question, best first. Every x must be one that can be asked."""
        found: dict[int, list[Reply]] = {}
        joint = [number for number, question in enumerate(questions) if question.mixture in self._first]
        for some in self._within_bounds(questions, joint):
            found |= zip(some, self._read([questions[number] for number in some]), strict=True)
        alone: dict[tuple[Mixture, int], list[int]] = {}
        for number, question in enumerate(questions):
            if question.mixture not in self._first:
                alone.setdefault((question.mixture, question.top), []).append(number)
        for (mixture, top), numbers in alone.items():
            found |= zip(numbers, ask(mixture, [questions[number].x for number in numbers], top=top), strict=True)
        return [found[number] for number in range(len(questions))]

    def _is_joint(self, mixture: Mixture) -> bool:
        """Whether its answers are single tokens, read off at one place; longer ones are searched mixture by mixture."""
        labels = mixture.candidates is not None and mixture.candidates.labels is not None
        return not self._kinds[mixture].any_length and not labels

    def _within_bounds(self, questions: Sequence[AskedX], numbers: Sequence[int]) -> Iterator[list[int]]:
        some: list[int] = []
        prompts = 0
        for number in numbers:
            added = len(questions[number].mixture.prompts)
            if some and (prompts + added) * self._lm.vocabulary_size > _NUMBERS_AT_ONCE:
                yield some
                some, prompts = [], 0
            some.append(number)
            prompts += added
        if some:
            yield some

    def _read(self, questions: Sequence[AskedX]) -> list[list[Reply]]:
        device = self._lm.device
        words = words_of([question.x for question in questions], self._lm.wording, device)
        counts = [len(question.mixture.prompts) for question in questions]
        facts = torch.arange(len(questions), device=device).repeat_interleave(torch.tensor(counts, device=device))
        ranges = [
            torch.arange(count, device=device) + self._first[question.mixture]
            for question, count in zip(questions, counts, strict=True)
        ]
        if self._tuned is None:
            raise RuntimeError("no mixture is read in common")
        of_pairs = self._reader.pair_log_probs(self._tuned, words, facts, torch.cat(ranges)).split(counts)
        found: dict[int, list[Reply]] = {}
        groups: dict[tuple[Mixture, int], list[int]] = {}
        for number, question in enumerate(questions):
            groups.setdefault((question.mixture, question.top), []).append(number)
        for (mixture, top), numbers in groups.items():
            by_prompt = answer_log_probs(mixture, torch.stack([of_pairs[number] for number in numbers]))
            asked = torch.tensor(numbers, device=device)
            answers = replies(mixture, words, asked, by_prompt, top, self._allowed[mixture])
            found |= zip(numbers, answers, strict=True)
        return [found[number] for number in range(len(questions))]


def _joined(mixtures: Sequence[Mixture], prompts: int) -> Tuned:
    """The parameters of all mixtures as those of one; what a shallow mixture adds to deeper layers is 0."""
    lm = mixtures[0].lm
    deltas = None
    if any(mixture.layer_deltas for mixture in mixtures):
        deltas = {
            name: [
                torch.cat(
                    [
                        mixture.layer_deltas[name][layer].detach()
                        if mixture.layer_deltas
                        else mixture.vectors.new_zeros(len(mixture.vectors), stack.width)
                        for mixture in mixtures
                    ]
                )
                for layer in range(stack.layers)
            ]
            for name, stack in lm.stacks.items()
        }
    vectors = torch.cat([mixture.vectors.detach() for mixture in mixtures])
    return Tuned(vectors, deltas, torch.arange(prompts, device=lm.device))
