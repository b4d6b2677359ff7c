"""The interface through which all mixtures answer: with one token, among candidates, or with strings of any length.

Training, evaluation, asking and serving call an `Answers` without knowing its kind. `OneTokenAnswers`,
`CandidateAnswers` and `OpenAnswers` are the existing ones; a new one takes a subclass and a line in `choose.py`.
"""

import random
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from askwell.answers.candidates import Candidates
from askwell.answers.encode import EncodedFacts, LeftOutFact
from askwell.answers.kind import AnswerKind
from askwell.answers.likelihood import Likelihood, ReadOnce, facts_at_once, likelihood, read_once
from askwell.answers.prompt_answers import PromptAnswers
from askwell.answers.reply import PromptReply, Replies
from askwell.data.facts import Fact, Relation
from askwell.errors import UsageError
from askwell.lms.batches import PLACES, Words
from askwell.prompts.prompt_set import PromptSet
from askwell.specs.mixture_spec import AnswersName

Golds = Mapping[str, Sequence[str]]
"""All right answers for each x."""


@dataclass(frozen=True)
class Ranking:
    """Where the right answer to a question is among all answers, and which are the best."""

    rank: float
    """With the other right answers left out."""
    raw_rank: float
    log_probability: float
    answers: tuple[str, ...] = ()
    """The most probable answers, best first."""
    probabilities: tuple[float, ...] = ()
    rank_at_most: float = float("nan")
    """The rank if all that a search left open were more probable; NaN if the rank is known."""


@dataclass(frozen=True)
class Prior(ABC):
    """The same answers for every x."""

    description: str
    """What they are made from, in words."""

    @abstractmethod
    def rank(self, facts: Sequence[Fact], golds: Golds, top: int = 10) -> list[Ranking]:
        """Return the rankings of facts if these answers are given to all of them."""


class Answers(ABC):
    """A way of answering with the prompts of a mixture, in whatever state they are."""

    is_listed: ClassVar[bool]
    """Whether the probabilities of all answers are computed: ranks cost nothing more, and a prior can correct them."""

    def __init__(self, prompts: PromptSet, kind: AnswerKind, candidates: Candidates | None = None) -> None:
        self.prompts, self.kind, self.candidates = prompts, kind, candidates
        self.candidates_left_out: tuple[str, ...] = ()
        """The candidates that the LM cannot answer with."""

    @property
    def name(self) -> AnswersName:
        """The name of the kind in specs and tables."""
        return self.kind.name

    @property
    @abstractmethod
    def vocabulary(self) -> str:
        """The answers that golds are ranked among, in words."""

    @property
    def labels(self) -> tuple[str, ...] | None:
        """All answers that can be given, if they are chosen among candidates."""
        return None

    def label_of(self, y: str) -> str | None:  # noqa: ARG002 - there are no labels unless a subclass has them
        """Return the label that y is, or is a word of; None if there is none."""
        return None

    # ── encoding ──────────────────────────────────────────────────────────────────────────────────────────────────

    def why_unaskable(self, xs: Sequence[str]) -> list[str | None]:
        """Return the reason why each x cannot be asked, None if it can."""
        return self.prompts.why_unaskable(xs, self.kind.most_tokens)

    def check_askable(self, xs: Sequence[str]) -> None:
        """Raise an error if some x cannot be asked."""
        for x, reason in zip(xs, self.why_unaskable(xs), strict=True):
            if reason is not None:
                raise UsageError(f"{x[:60]!r} cannot be asked: {reason}")

    def choose(self, encoded: EncodedFacts) -> tuple[EncodedFacts, tuple[LeftOutFact, ...]]:
        """Return the facts whose y is one of the answers, and the others."""
        return encoded, ()

    # ── training ──────────────────────────────────────────────────────────────────────────────────────────────────

    def likelihood(
        self, encoded: EncodedFacts, rows: Int[Tensor, " facts"], known: ReadOnce | None = None
    ) -> Likelihood:
        """Return log p(y | x, r) of the facts in these rows, with gradients into everything that is tuned."""
        return likelihood(self.prompts, encoded, rows, known)

    def read_once(self, encoded: EncodedFacts) -> ReadOnce | None:
        """Return what `likelihood` need not read again while only weights are tuned; None if there is nothing."""
        if self.prompts.is_product or self.candidates is not None:
            return None
        return read_once(self.prompts, encoded, self.facts_at_once(encoded))

    def facts_at_once(self, encoded: EncodedFacts) -> int:
        """Return how many facts can be trained on in one forward and backward pass within bounded memory."""
        return facts_at_once(self.prompts, encoded)

    # ── asking ────────────────────────────────────────────────────────────────────────────────────────────────────

    @abstractmethod
    def ask(self, xs: Sequence[str], top: int = 10) -> Iterator[Replies]:
        """Yield the most probable answers for each x, best first. Every x must be one that can be asked."""

    @abstractmethod
    def ask_each_prompt(self, xs: Sequence[str]) -> Iterator[list[PromptReply]]:
        """Yield the best answers of every prompt by itself to each x, without dropped prompts."""

    def prompts_behind(self, x: str) -> list[PromptReply]:
        """Return each prompt with its weight for x and its own best answer, heaviest first.

        A prompt's own answer is the one that it finds most probable among the mixture's best ten.
        """
        found = next(self.ask([x]))  # which refuses an x that cannot be asked
        best = [max(found, key=lambda reply, at=t: reply.by_prompt[at]) for t in range(len(self.prompts.prompts))]
        return self._behind(x, [(reply.y, reply.by_prompt[number]) for number, reply in enumerate(best)])

    @torch.no_grad()
    def _behind(self, x: str, own: Sequence[tuple[str, float]]) -> list[PromptReply]:
        weights = self.prompts.weights
        if not self.prompts.is_product:
            xs, rows = self._words([x])
            weights = self.prompts.log_weights_for(xs, rows)[0].exp()
        behind = [
            PromptReply(number, self.prompts.prompts[number].template.text, weight, y, probability)
            for number, (weight, (y, probability)) in enumerate(zip(weights.tolist(), own, strict=True))
        ]
        return sorted(behind, key=lambda one: -one.weight)

    def _reply_of(self, prompt: int, y: str, probability: float) -> PromptReply:
        weight = float(self.prompts.weights.detach()[prompt])
        return PromptReply(prompt, self.prompts.prompts[prompt].template.text, weight, y, probability)

    def _words(self, xs: Sequence[str]) -> tuple[Words, Int[Tensor, " xs"]]:
        """Return the tokens of x's, and the row of each."""
        lm = self.prompts.lm
        return self.prompts.words_of(xs), torch.arange(len(xs), device=lm.device)

    def _in_batches(self, xs: Sequence[str], size: int) -> Iterator[tuple[Words, Int[Tensor, " xs"]]]:
        """Yield the x's in batches, each padded to its longest x."""
        for start in range(0, len(xs), size):
            yield self._words(xs[start : start + size])

    # ── evaluation ────────────────────────────────────────────────────────────────────────────────────────────────

    @abstractmethod
    def batches(self, encoded: EncodedFacts) -> Iterable[Int[Tensor, " facts"]]:
        """Return the rows of all facts, in the batches in which they are asked."""

    @abstractmethod
    def rank(
        self,
        encoded: EncodedFacts,
        rows: Int[Tensor, " facts"],
        golds: Golds,
        top: int = 10,
        *,
        record: list[PromptAnswers] | None = None,
        prior: Prior | None = None,
    ) -> tuple[list[Ranking], list[Ranking]]:
        """Return the rankings of the facts in these rows, and those corrected by a prior where possible; add what each
        prompt alone answers to the record."""

    @abstractmethod
    def quick_ranks(self, encoded: EncodedFacts, golds: Golds) -> tuple[list[Ranking], float | None]:
        """Return the rankings of all facts without their best answers, and their log-loss, None if it is infinite.

        Where answers are searched for, a rank only says whether y is the best (1) or not (infinite), facts for which
        that is not known are left out, and so are impossible ys from the log-loss.
        """

    @abstractmethod
    def majority(self, relation: Relation) -> Prior:
        """Return the ys of train by how often they occur there; it is an error if none can be an answer."""

    @abstractmethod
    def mean_prior(self, relation: Relation, *, seed: int = 0) -> Prior:
        """Return the mean of p(y | x, r) over x's of train; it is an error if none can be asked."""

    @abstractmethod
    def masked_prior(self) -> Prior | None:
        """Return p(y | r) with one mask token in place of x; None if the LM is not asked with masks."""

    def _masked_x(self) -> Words | None:
        """Return one mask token as an x; None if the LM is not asked with masks."""
        lm = self.prompts.lm
        mask = lm.tokenizer.mask_token_id
        if mask is None or not lm.family.masks_x:
            return None
        ids = torch.full((len(PLACES), 1, 1), mask, device=lm.device)
        return Words(ids, torch.ones(len(PLACES), 1, dtype=torch.long, device=lm.device))

    def _static_log_weights(self) -> Float[Tensor, " prompts"]:
        """Return log p(t | r): without an x, weights cannot depend on it."""
        return self.prompts.weight_logits.detach().log_softmax(0)


def drawn(texts: Sequence[str], most: int, seed: int) -> Sequence[str]:
    """Return the texts, or this many of them, drawn with the seed, in their order."""
    return texts if len(texts) <= most else sorted(random.Random(seed).sample(texts, most))


def mean_description(asked: int, of: int, seed: int) -> str:
    """Describe which x's a prior is averaged over."""
    if asked == of:
        return f"the mean of the answers to all {of} x's of train"
    return f"the mean of the answers to {asked} of the {of} x's of train, drawn with the seed {seed}"
