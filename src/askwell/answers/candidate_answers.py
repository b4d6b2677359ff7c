"""Answers chosen among candidates of any length, or among labels of several words, all of which are scored."""

from collections.abc import Iterator, Sequence
from functools import cached_property

import torch
from jaxtyping import Float, Int
from torch import Tensor

from askwell.answers import listed
from askwell.answers.candidates import Candidates
from askwell.answers.listed import ListedAnswers, best_first, combine
from askwell.answers.reply import Replies
from askwell.answers.strategy import BatchNotes
from askwell.answers.tree import candidate_log_probs
from askwell.errors import BadOption, NothingLeft
from askwell.lms.batches import Words
from askwell.prompts.prompt_set import PromptSet
from askwell.specs.mixture_spec import AnswerKind

_XS_AT_ONCE = 32


class CandidateAnswers(ListedAnswers):
    """Labels, each with one or more words, with gradients into everything that is tuned; without labels, each word is
    its own label."""

    is_closed = True

    def __init__(self, prompts: PromptSet, candidates: Candidates, kind: AnswerKind) -> None:
        super().__init__(prompts, kind, candidates)
        self._among = candidates
        label_of = dict(zip(candidates.words, candidates.labels or candidates.words, strict=True))
        tokenised = {word: self._tokenised(word) for word in label_of}
        self.candidates_left_out = tuple(word for word, tokens in tokenised.items() if tokens is None)
        if len(self.candidates_left_out) == len(tokenised):
            raise NothingLeft("candidates", {"it cannot be spelled in the LM's tokens, or is too long": len(tokenised)})
        # Words that the LM spells in the same way (good and Good, if it is uncased) are one.
        first: dict[tuple[tuple[int, ...], ...], str] = {}
        for word, tokens in tokenised.items():
            if tokens is not None:
                same = first.setdefault(tokens, word)
                if candidates.labels is not None and label_of[same] != label_of[word]:
                    raise BadOption(
                        f"the LM spells {same!r} ({label_of[same]}) and {word!r} ({label_of[word]}) in the same way, "
                        f"so they cannot belong to two labels of {candidates.name}"
                    )
        self._labels = tuple(dict.fromkeys(label_of[word] for word in first.values()))
        """Labels with at least one word that the LM can answer with."""
        self.count = len(self._labels)
        numbers = {label: number for number, label in enumerate(self._labels)}
        self._words_asked, device = list(first.values()), prompts.lm.device
        self._ys = prompts.words_of(self._words_asked)
        of_label: list[list[int]] = [[] for _ in self._labels]
        for number, word in enumerate(self._words_asked):
            of_label[numbers[label_of[word]]].append(number)
        most = max(map(len, of_label))
        # The words of each label, padded with its last word to the most words that a label has.
        self._of_label = torch.tensor([row + row[-1:] * (most - len(row)) for row in of_label], device=device)
        self._is_padding = torch.tensor([[n >= len(row) for n in range(most)] for row in of_label], device=device)
        self._number_of = numbers if candidates.labels is not None else {}
        self._by_tokens = {tokens: numbers[label_of[word]] for tokens, word in first.items()}

    @property
    def vocabulary(self) -> str:
        """The answers that golds are ranked among, in words."""
        return f"{self.count} {'candidates' if self._among.labels is None else 'labels'} of {self._among.name}"

    @property
    def asked_at_once(self) -> int:
        """How many facts can be asked at once while the probabilities of all answers are held."""
        return max(1, listed.NUMBERS_AT_ONCE // 8 // (self.count * len(self.prompts.prompts)))

    def word(self, number: int) -> str:
        """Return a label, or the word itself."""
        return self._labels[number]

    def _find(self, ys: Sequence[str]) -> list[int | None]:
        """Return the number of the label that each y is, or is a word of; None if there is none."""
        return [self._number_of.get(y, self._by_tokens.get(self._tokenised(y) or ())) for y in ys]

    def _tokenised(self, word: str) -> tuple[tuple[int, ...], ...] | None:
        """Return the word's tokens at each place, or its number among words of one token; None if it is no answer."""
        words, wording = self.prompts.token_words, self.prompts.lm.wording
        longest = self.kind.most_tokens
        if longest is None:
            (number,) = words.numbers_of([word])
            return None if number is None else ((number,),)
        forms = tuple(tuple(wording.encode(word, place)) for place in words.places)
        fits = all(0 < len(tokens) <= longest and wording.unknown_id not in tokens for tokens in forms)
        return forms if fits else None

    # ── log-probabilities ─────────────────────────────────────────────────────────────────────────────────────────

    def by_prompt(self, xs: Words, rows: Int[Tensor, " facts"]) -> Float[Tensor, "facts prompts labels"]:
        """Return log p(label | t, x): the sum over its words, not normalised over labels."""
        of_words = self._of_words(xs, rows)
        if self._among.labels is None:
            return of_words
        return of_words[..., self._of_label].masked_fill(self._is_padding, -torch.inf).logsumexp(-1)

    def _of_words(self, xs: Words, rows: Int[Tensor, " facts"]) -> Float[Tensor, "facts prompts words"]:
        prompts = self.prompts
        if self.kind.any_length:
            lengths = prompts.log_lengths_for(xs, rows, self.kind.log_lengths)
            return candidate_log_probs(
                prompts.long_answers, prompts.tuned, xs, rows, self._ys, lengths, with_ends=prompts.spec.end == "token"
            )
        every = range(len(prompts.prompts))
        return torch.stack([prompts.word_log_probs(xs, rows, t)[:, self._one_token] for t in every], dim=1)

    @cached_property
    def _one_token(self) -> Int[Tensor, " words"]:
        return torch.tensor(self.prompts.token_words.numbers_of(self._words_asked), device=self.prompts.lm.device)

    @torch.no_grad()
    def log_probs(
        self,
        xs: Words,
        rows: Int[Tensor, " facts"],
        notes: BatchNotes | None = None,
        log_weights: Float[Tensor, " prompts"] | None = None,
    ) -> Float[Tensor, "facts answers"]:
        """Return log p(y | x, r) of all labels, not normalised over them."""
        by_prompt = self.by_prompt(xs, rows)
        weights = self._log_weights(xs, rows, by_prompt) if log_weights is None else log_weights.expand(len(rows), -1)
        if notes is not None:
            at = torch.arange(len(rows), device=rows.device)
            for prompt in notes.prompts:
                probs = by_prompt[:, prompt].exp()
                rest = (1 - probs.sum(1, keepdim=True)).clamp(min=0)
                every = torch.cat([probs, rest], dim=1)
                notes.note(at, torch.full_like(at, prompt), weights[:, prompt].exp(), every)
        return combine(self.prompts, by_prompt, weights)

    def _notes(self, fact_count: int) -> BatchNotes:
        """Return empty notes; everything that is not a candidate counts as one answer, which is never the best."""
        allowed = torch.arange(self.count, device=self.prompts.lm.device)
        return BatchNotes(self.prompts, fact_count, self.count + 1, allowed)

    # ── asking ────────────────────────────────────────────────────────────────────────────────────────────────────

    @torch.no_grad()
    def ask(self, xs: Sequence[str], top: int = 10) -> Iterator[Replies]:
        """Yield the most probable labels for each x, best first; probabilities sum to one over all labels."""
        self.check_askable(xs)
        for words, rows in self._in_batches(xs, _XS_AT_ONCE):
            by_prompt = self.by_prompt(words, rows)
            log_probs = combine(self.prompts, by_prompt, self._log_weights(words, rows, by_prompt)).log_softmax(1)
            best = best_first(log_probs, min(top, self.count))
            yield from self._replies(best, log_probs.gather(1, best), by_prompt.log_softmax(2), self.word)
