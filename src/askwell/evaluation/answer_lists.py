"""Lists of answers whose probabilities can all be computed: the LM's one-token answers, all or those among candidates,
and candidates of any length."""

from collections.abc import Sequence
from functools import cached_property
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from askwell.evaluation.agreement import PromptObserver
from askwell.lms.batches import Words
from askwell.mixture import distributions
from askwell.mixture.answers import AnswerKind
from askwell.mixture.candidates import Candidates, CandidateScorer
from askwell.mixture.mixture import Mixture

# Numbers (facts × answers) that are held at once.
_NUMBERS_AT_ONCE = 2**23


@runtime_checkable
class AnswerList(Protocol):
    """Answers that a mixture can give, by their numbers."""

    mixture: Mixture
    count: int
    kind: AnswerKind
    is_closed: bool
    """Whether nothing else can be answered, so that probabilities sum to one over the list."""
    left_out: tuple[str, ...]
    """How many candidates the LM cannot answer with."""

    @property
    def vocabulary(self) -> str:
        """The answers that golds are ranked among, in words."""
        ...

    @property
    def facts_at_once(self) -> int:
        """How many facts can be asked at once while the probabilities of all answers are held."""
        ...

    def numbers_of(self, ys: Sequence[str]) -> list[int | None]:
        """The number of each y, None for one that is not in the list."""
        ...

    def word(self, number: int) -> str:
        """An answer as a person reads it."""
        ...

    def log_probs(
        self,
        xs: Words,
        some: Int[Tensor, " facts"],
        observer: PromptObserver | None = None,
        log_weights: Float[Tensor, " prompts"] | None = None,
    ) -> Float[Tensor, "facts answers"]:
        """log p(y | x, r) of all answers, not normalised over the list; weights that do not depend on x can replace the
        mixture's."""
        ...

    def observer(self) -> PromptObserver:
        """An observer that notes each prompt's own answers while they are combined."""
        ...


class OneTokenAnswers:
    """The answers that are one token of the LM: all of them, or those among candidates."""

    def __init__(self, mixture: Mixture, candidates: Candidates | None = None) -> None:
        self.mixture, self._candidates = mixture, candidates
        self.kind, self.is_closed = AnswerKind(), candidates is not None
        self._allowed, self.left_out = (None, ()) if candidates is None else candidates.answers(mixture)
        self.count = mixture.answer_space.count if self._allowed is None else len(self._allowed)

    @property
    def vocabulary(self) -> str:
        """The answers that golds are ranked among, in words."""
        if self._candidates is None:
            return self.mixture.answer_space.description
        return f"{self.count} candidates of {self._candidates.name}"

    @property
    def facts_at_once(self) -> int:
        """How many facts can be asked at once while the probabilities of all answers are held."""
        return max(1, _NUMBERS_AT_ONCE // self.mixture.answer_space.count)

    def numbers_of(self, ys: Sequence[str]) -> list[int | None]:
        """The number of each y, None for one that is not in the list."""
        numbers = self.mixture.answer_space.numbers_of(ys)
        return numbers if self._allowed is None else [None if n is None else self._place.get(n) for n in numbers]

    def word(self, number: int) -> str:
        """The surface word of an answer."""
        return self.mixture.answer_space.word(number if self._allowed is None else int(self._allowed[number]))

    def log_probs(
        self,
        xs: Words,
        some: Int[Tensor, " facts"],
        observer: PromptObserver | None = None,
        log_weights: Float[Tensor, " prompts"] | None = None,
    ) -> Float[Tensor, "facts answers"]:
        """log p(y | x, r) of all answers."""
        if log_weights is None:
            return distributions.log_probs(self.mixture, xs, some, self._allowed, observer)
        whole = torch.full((len(some), self.mixture.answer_space.count), -torch.inf, device=self.mixture.lm.device)
        for prompt, log_weight in enumerate(log_weights):
            whole = torch.logaddexp(whole, log_weight + distributions.prompt_log_probs(self.mixture, xs, some, prompt))
        return whole if self._allowed is None else whole[:, self._allowed]

    def observer(self) -> PromptObserver:
        """An observer that notes each prompt's own answers while they are combined."""
        return PromptObserver(self.mixture, self.mixture.answer_space.count, self._allowed)

    @cached_property
    def _place(self) -> dict[int, int]:
        allowed = [] if self._allowed is None else self._allowed.tolist()
        return {number: place for place, number in enumerate(allowed)}


class CandidateAnswers:
    """Candidates of any length, or labels of several words."""

    def __init__(self, scorer: CandidateScorer) -> None:
        self.scorer, self.mixture, self.kind = scorer, scorer.mixture, scorer.kind
        self.is_closed, self.left_out, self.count = True, scorer.left_out, len(scorer.labels)

    @property
    def vocabulary(self) -> str:
        """The answers that golds are ranked among, in words."""
        what = "candidates" if self.scorer.candidates.labels is None else "labels"
        return f"{self.count} {what} of {self.scorer.candidates.name}"

    @property
    def facts_at_once(self) -> int:
        """How many facts can be asked at once while the probabilities of all answers are held."""
        return max(1, _NUMBERS_AT_ONCE // 8 // (self.count * len(self.mixture.prompts)))

    def numbers_of(self, ys: Sequence[str]) -> list[int | None]:
        """The number of each y, None for one that is not in the list."""
        return [self.scorer.number_of(y) for y in ys]

    def word(self, number: int) -> str:
        """A label, or the word itself."""
        return self.scorer.labels[number]

    @torch.no_grad()
    def log_probs(
        self,
        xs: Words,
        some: Int[Tensor, " facts"],
        observer: PromptObserver | None = None,
        log_weights: Float[Tensor, " prompts"] | None = None,
    ) -> Float[Tensor, "facts answers"]:
        """log p(y | x, r) of all answers."""
        weights = self.mixture.log_weights_for(xs, some) if log_weights is None else log_weights.expand(len(some), -1)
        by_prompt = self.scorer.by_prompt(xs, some)
        if observer is not None:
            rows = torch.arange(len(some), device=some.device)
            for prompt in observer.prompts:
                probs = by_prompt[:, prompt].exp()
                rest = (1 - probs.sum(1, keepdim=True)).clamp(min=0)
                of_prompt = torch.full_like(rows, prompt)
                observer(rows, of_prompt, weights[:, prompt].exp(), torch.cat([probs, rest], dim=1))
        return self.scorer.combine(by_prompt, weights)

    def observer(self) -> PromptObserver:
        """An observer that notes each prompt's own answers; everything that is not a candidate counts as one answer,
        which is never the best."""
        return PromptObserver(self.mixture, self.count + 1, torch.arange(self.count, device=self.mixture.lm.device))


def answers_among(mixture: Mixture, candidates: Candidates | None, kind: AnswerKind) -> AnswerList:
    """The list of answers to choose from."""
    if candidates is None or (not kind.any_length and candidates.labels is None):
        return OneTokenAnswers(mixture, candidates)
    return CandidateAnswers(CandidateScorer(mixture, candidates, kind))
