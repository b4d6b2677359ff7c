"""The interface through which all mixtures answer: with one token, among candidates, or with strings of any length.

Training, evaluation, asking and serving call an `Answers` without knowing its kind. `OneTokenAnswers`,
`CandidateAnswers` and `OpenAnswers` are the existing ones; a new one takes a subclass and a line in `kinds.py`.
"""

import random
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from askwell.answers.candidates import Candidates
from askwell.answers.encode import EncodedFacts
from askwell.answers.likelihood import Likelihood, ReadOnce, likelihood, read_once
from askwell.answers.reply import LeftOutFact, PromptReply, Replies
from askwell.data.facts import Fact, Relation
from askwell.errors import NothingLeft, UsageError
from askwell.lms.batches import PLACES, Words
from askwell.lms.frozen import FrozenLM
from askwell.prompts.prompt_set import PromptSet
from askwell.specs.mixture_spec import AnswerKind, AnswersName

_FACTS_READ_AT_ONCE = 64
# The most log-probabilities that a product holds at once, for all prompts.
_NUMBERS_OF_PRODUCT = 2**26

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
class PromptAnswers:
    """The best answers of a mixture's prompts to some x's, as arrays to compute with; dropped prompts have none."""

    prompts: tuple[int, ...]
    """The numbers of the prompts that were not dropped."""
    best: Int[np.ndarray, "xs prompts"]
    """The number of each prompt's best answer, in the list of answers if there is one."""
    of_mixture: Int[np.ndarray, " xs"]
    """The number of the mixture's best answer."""
    weights: Float[np.ndarray, "xs prompts"]
    """p(t | r), or p(t | r, x) of a data-dependent mixture; the exponents of a product."""
    divergences: Float[np.ndarray, " xs"]
    """The Jensen–Shannon divergence of the prompts' distributions, by these weights, in nats: the entropy of their
    mean minus the mean of their entropies. It is 0 if all are the same."""

    @classmethod
    def joined(cls, parts: "Sequence[PromptAnswers]") -> "PromptAnswers":
        """Concatenate the answers to several groups of x's."""
        columns = zip(*((part.best, part.of_mixture, part.weights, part.divergences) for part in parts), strict=True)
        return cls(parts[0].prompts, *map(np.concatenate, columns))

    def of(self, rows: list[int]) -> "PromptAnswers":
        """Return the answers to the x's in these rows."""
        return PromptAnswers(
            self.prompts, self.best[rows], self.of_mixture[rows], self.weights[rows], self.divergences[rows]
        )


class BatchNotes:
    """Notes the distributions of the prompts for a batch of facts, of which all answers are listed.

    Best answers are the best among those allowed; divergences are those of the whole distributions.
    """

    def __init__(
        self, prompts: PromptSet, fact_count: int, answers: int, allowed: Int[Tensor, " candidates"] | None
    ) -> None:
        self.prompts = tuple(prompts.tuned.kept.tolist())
        device, count = prompts.lm.device, len(self.prompts)
        self._allowed = allowed
        self._column = torch.full((len(prompts.prompts),), -1, device=device)
        self._column[list(self.prompts)] = torch.arange(count, device=device)
        nothing = torch.zeros(0, dtype=sum_dtype(prompts.lm), device=device)
        self._best = nothing.new_zeros(fact_count, count, dtype=torch.long)
        self._weights = nothing.new_zeros(fact_count, count)
        self._mean = nothing.new_zeros(fact_count, answers)
        self._mean_of_entropies = nothing.new_zeros(fact_count)

    def note(
        self,
        rows: Int[Tensor, " pairs"],
        prompts: Int[Tensor, " pairs"],
        weights: Float[Tensor, " pairs"],
        probs: Float[Tensor, "pairs answers"],
    ) -> None:
        """Note the distributions of some (fact, prompt) pairs."""
        columns = self._column[prompts]
        if (columns < 0).any():  # a product also asks dropped prompts
            return
        weights = weights.to(self._mean.dtype)
        self._best[rows, columns] = best_of_rows(probs, self._allowed)
        self._weights[rows, columns] = weights
        self._mean_of_entropies.index_add_(0, rows, weights * torch.special.entr(probs.to(weights.dtype)).sum(1))
        # Row by row: index_add_ would write out an index as large as the probabilities.
        for row, weight, of_row in zip(rows.tolist(), weights.tolist(), probs, strict=True):
            self._mean[row].add_(of_row, alpha=weight)

    def answers(self, log_probs: Float[Tensor, "facts answers"]) -> PromptAnswers:
        """Return what was noted, given the mixture's distribution over the answers that are ranked."""
        of_mixture = log_probs.argmax(1)
        # Rounding can leave a tiny negative number where all prompts give the same distribution.
        divergences = (torch.special.entr(self._mean).sum(1) - self._mean_of_entropies).clamp(min=0)
        columns = (self._best, of_mixture, self._weights, divergences)
        return PromptAnswers(self.prompts, *(column.cpu().numpy() for column in columns))


def best_of_rows(values: Float[Tensor, "xs answers"], allowed: Int[Tensor, " candidates"] | None) -> Int[Tensor, " xs"]:
    """Return the number of the best answer of each row, among those allowed; ties go to the first, as everywhere."""
    return (values if allowed is None else values[:, allowed]).argmax(1)


def sum_dtype(lm: FrozenLM) -> torch.dtype:
    """Return double precision, if the device has it."""
    return torch.float32 if lm.device.type == "mps" else torch.float64


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
    most_xs_of_prior: ClassVar[int]
    """A prior is the mean over at most this many x's of train."""
    best_only = False
    """Where answers are searched for: look only for the best. Ranks after the first are then bounds."""

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

    def numbers_of(self, ys: Sequence[str]) -> list[int | None] | None:  # noqa: ARG002 - unless a subclass has a list
        """Return the number of each y in the list of answers, None for one that is not in it; None if there is no
        list."""
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

    @property
    def can_read_once(self) -> bool:
        """Whether what the LM says of a fact's y and x is all that `likelihood` needs of it."""
        return not self.prompts.is_product and self.candidates is None

    def read_once(self, encoded: EncodedFacts) -> ReadOnce | None:
        """Return what `likelihood` need not read again while neither vectors nor layers of the prompts are tuned; None
        if there is nothing."""
        if not self.can_read_once:
            return None
        batches = encoded.rows.split(max(_FACTS_READ_AT_ONCE, self.facts_at_once(encoded)))
        return ReadOnce.joined([read_once(self.prompts, encoded, rows) for rows in batches])

    def facts_at_once(self, encoded: EncodedFacts) -> int:
        """Return how many facts can be trained on in one forward and backward pass within bounded memory."""
        pairs = self.prompts.pairs
        if not encoded.kind.is_long:
            return pairs.facts_at_once(pairs.bytes_of_fact(encoded.xs))
        if self.prompts.is_product:
            steps = int(encoded.ys.lengths.max()) + 1
            of_fact = len(self.prompts.prompts) * steps * self.prompts.lm.vocabulary_size
            return max(1, _NUMBERS_OF_PRODUCT // of_fact)
        return pairs.facts_at_once(self.prompts.long_answers.bytes_of_fact(encoded.xs, encoded.ys))

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
    def _behind(self, x: str, own: Iterable[tuple[str, float]]) -> list[PromptReply]:
        """Return what every prompt answers to x, with its weight for x, heaviest first."""
        weights = self.prompts.weights
        if not self.prompts.is_product:
            weights = self.prompts.log_weights_for(*self._words([x]))[0].exp()
        replies = self._prompt_replies(weights, [(number, *answer) for number, answer in enumerate(own)])
        return sorted(replies, key=lambda one: -one.weight)

    def _prompt_replies(self, weights: Tensor, own: Iterable[tuple[int, str, float]]) -> list[PromptReply]:
        """Return what prompts answer, from their numbers, answers and probabilities."""
        texts = [prompt.template.text for prompt in self.prompts.prompts]
        return [PromptReply(number, texts[number], float(weights[number]), y, p) for number, y, p in own]

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

        Where answers are not listed, a rank only says whether y is what the LM would write or, where answers are
        searched for, the best one (1), or not (infinite). Facts for which that is not known are left out, and so are
        impossible ys from the log-loss.
        """

    @abstractmethod
    def majority(self, relation: Relation) -> Prior:
        """Return the ys of train by how often they occur there; it is an error if none can be an answer."""

    def mean_prior(self, relation: Relation, *, seed: int = 0, most: int | None = None) -> Prior:
        """Return the mean of p(y | x, r) over the distinct x's of train; of more than `most`, that many are drawn with
        the seed. It is an error if none can be asked."""
        distinct = sorted({fact.x for fact in relation.train})
        most = most or self.most_xs_of_prior
        # Drawn first: most of a million x's are never asked, and tokenising them takes as long as the rest of a run.
        some = distinct if len(distinct) <= most else sorted(random.Random(seed).sample(distinct, most))
        reasons = self.why_unaskable(some)
        xs = [x for x, reason in zip(some, reasons, strict=True) if reason is None]
        if not xs:
            raise NothingLeft(f"train x's of {relation.name}", Counter(reason for reason in reasons if reason))
        of = len(xs) if len(some) == len(distinct) else len(distinct)
        asked = f"all {of} x's of train"
        if len(xs) != of:
            asked = f"{len(xs)} of the {of} x's of train, drawn with the seed {seed}"
        return self._prior(f"the mean of the answers to {asked}", *self._words(xs))

    def masked_prior(self) -> Prior | None:
        """Return p(y | r) with one mask token in place of x; None if the LM is not asked with masks."""
        lm = self.prompts.lm
        mask = lm.tokenizer.mask_token_id
        if mask is None or not lm.family.masks_x:
            return None
        ids = torch.full((len(PLACES), 1, 1), mask, device=lm.device)
        x = Words(ids, torch.ones(len(PLACES), 1, dtype=torch.long, device=lm.device))
        # Without an x, weights cannot depend on it.
        log_weights = self._static_log_weights() if self.prompts.weighting.depends_on_x else None
        row = torch.zeros(1, dtype=torch.long, device=lm.device)
        return self._prior("the answer to one mask token in place of x", x, row, log_weights)

    @abstractmethod
    def _prior(
        self,
        description: str,
        xs: Words,
        rows: Int[Tensor, " xs"],
        log_weights: Float[Tensor, " prompts"] | None = None,
    ) -> Prior:
        """Return the mean of p(y | x, r) over the x's in these rows; weights that do not depend on x can replace the
        mixture's."""

    def _static_log_weights(self) -> Float[Tensor, " prompts"]:
        """Return log p(t | r)."""
        return self.prompts.weight_logits.detach().log_softmax(0)
