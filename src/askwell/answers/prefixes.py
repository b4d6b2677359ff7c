"""How prefixes of answers continue under the experts of a search: an expert is a prompt with an x.

A causal LM or a decoder reads what comes before y once for each expert and keeps its keys and values; opening a prefix
then reads one token, the prefix's last, after those of all prefixes that it continues. Masked LMs, and LMs without a
walk, read the whole sentence for each prefix.
"""

from collections.abc import Iterator, Sequence
from functools import cached_property

import torch
from jaxtyping import Float, Int
from torch import Tensor

from askwell.answers.likelihood import multiply
from askwell.answers.search import Continuations, Prefix
from askwell.lms.batches import AnswerTokens, Words
from askwell.lms.walks.past import KeptRows, Past, Paths
from askwell.prompts.long_answers import LongAnswers
from askwell.prompts.pairs import Tuned

# The most logits held at once, except that those of all experts of one prefix always are.
_LOGITS_AT_ONCE = 2**23
# The most bytes cached for the sentences of one search; a search that outgrows it reads whole sentences from then on.
_KEPT_BYTES = 2**29


class PrefixReader:
    """Opens prefixes of answers to some questions, with the same prompts for all of them. Made for one search."""

    def __init__(
        self,
        answers: LongAnswers,
        tuned: Tuned,
        xs: Words,
        texts: Int[Tensor, "questions experts"],
        prompts: Int[Tensor, " experts"],
        exponents: Float[Tensor, " prompts"] | None = None,
        never: Sequence[int] = (),
    ) -> None:
        """Prepare to read prefixes; in a product, the prompts of each x are multiplied with these exponents into one
        expert. The tokens of `never` continue no prefix, like those that are never part of an answer."""
        self._answers, self._tuned, self._xs, self._texts, self._prompts = answers, tuned, xs, texts, prompts
        self._lm, self._exponents = answers.lm, exponents
        self._never = torch.tensor([*answers.never, *never], dtype=torch.long, device=self._lm.device)
        self._kept: KeptRows | None = None
        self._by_sentences = False
        self._opened: dict[tuple[int, tuple[int, ...]], tuple[Paths, Paths | None]] = {}
        """The cached rows of each prefix that was opened, under each expert, and the encoder's."""
        self._hidden_after: dict[tuple[int, tuple[int, ...]], Float[Tensor, "experts width"]] = {}
        """What the output embedding reads after each of them, for when it is opened again."""

    @torch.no_grad()
    def __call__(self, prefixes: Sequence[Prefix], branches: int) -> Continuations:
        """Return how the prefixes continue, in order."""
        texts = self._texts[[prefix.question for prefix in prefixes]]
        log_joint = torch.stack([prefix.log_joint for prefix in prefixes])
        parts = []
        start = 0
        for logits in self._logits(prefixes, texts):
            some = slice(start, start + len(logits))
            parts.append(self._best(logits, texts[some], log_joint[some], branches))
            start = some.stop
        return Continuations.joined(parts)

    def _best(
        self, logits: Float[Tensor, "prefixes experts vocabulary"], texts: Tensor, log_joint: Tensor, branches: int
    ) -> Continuations:
        prompts = self._prompts.expand(len(texts), -1)
        log_totals = logits.logsumexp(2)
        every = torch.arange(prompts.numel(), device=prompts.device)
        self._answers.reader.refuse_not_finite(every, prompts.flatten(), log_totals.flatten())
        log_end = None
        if not self._answers.fills_masks:
            ends = self._answers.ends_of(self._xs, texts.flatten(), prompts.flatten()).view(*texts.shape, 1)
            log_end = logits.gather(2, ends)[..., 0].double() - log_totals.double()
        if self._exponents is not None:
            shape = (len(logits), -1, len(self._exponents))
            log_probs = (logits - log_totals.unsqueeze(2)).unflatten(1, shape[1:])
            of_ends = None if log_end is None else log_end.view(shape).to(logits.dtype)
            one_end = self._answers.has_one_end
            logits, log_end, log_totals = multiply(log_probs, of_ends, self._exponents, one_end=one_end)
            log_end = None if log_end is None else (log_end - log_totals).double()
        logits.index_fill_(2, self._never, -torch.inf)
        return Continuations.best_of(log_joint, logits, log_totals, log_end, branches)

    def _logits(self, prefixes: Sequence[Prefix], texts: Tensor) -> Iterator[Float[Tensor, "some experts vocabulary"]]:
        """Yield the logits after the prefixes, in batches."""
        experts = len(self._prompts)
        together = max(1, _LOGITS_AT_ONCE // (experts * self._lm.vocabulary_size))
        if not self._keeps(prefixes):
            for start in range(0, len(prefixes), together):
                some = slice(start, start + together)
                yield self._of_sentences(prefixes[some], texts[some]).view(-1, experts, self._lm.vocabulary_size)
            return
        for hidden in self._hidden(prefixes, texts).split(together * experts):
            yield self._lm.head.logits(hidden).view(-1, experts, self._lm.vocabulary_size)

    def _keeps(self, prefixes: Sequence[Prefix]) -> bool:
        """Tell whether the sentences so far can be cached; once they cannot, neither can later, longer ones."""
        if self._by_sentences or self._answers.fills_masks:
            return False
        longest = self._longest_question + max(len(prefix.tokens) for prefix in prefixes)
        rows = 0 if self._kept is None else self._kept.count
        self._by_sentences = not self._lm.can_keep(longest) or rows * self._lm.bytes_of_kept_row > _KEPT_BYTES
        if self._by_sentences:
            self._kept = None
            self._opened.clear()
            self._hidden_after.clear()
        return not self._by_sentences

    @cached_property
    def _longest_question(self) -> int:
        """The most tokens that come before y."""
        prompts = self._prompts.expand(len(self._texts), -1).flatten()
        return int(self._answers.table.lengths(self._xs, self._texts.flatten(), prompts).max())

    # ── whole sentences ───────────────────────────────────────────────────────────────────────────────────────────

    def _of_sentences(self, prefixes: Sequence[Prefix], texts: Tensor) -> Float[Tensor, "pairs vocabulary"]:
        lm, experts = self._lm, len(self._prompts)
        texts, prompts = texts.flatten(), self._prompts.repeat(len(prefixes))
        done = torch.tensor([len(prefix.tokens) for prefix in prefixes], device=lm.device).repeat_interleave(experts)
        whole = [len(prefix.tokens) if prefix.length is None else prefix.length for prefix in prefixes]
        lengths = torch.tensor(whole, device=lm.device).repeat_interleave(experts)
        longest, filler = max(whole), lm.special.mask if self._answers.fills_masks else 0
        padded = [[*prefix.tokens, *[filler] * (longest - len(prefix.tokens))] for prefix in prefixes]
        ids = torch.tensor(padded, dtype=torch.long, device=lm.device).view(len(prefixes), longest)
        ys = AnswerTokens(ids.repeat_interleave(experts, 0), lengths, done, torch.ones_like(done))
        logits = torch.empty(len(texts), lm.vocabulary_size, dtype=lm.parameter_dtype, device=lm.device)
        sentences = self._answers.reader.sentences
        for chosen, batch in sentences(self._tuned, self._answers.table, self._xs, texts, prompts, ys):
            logits[chosen] = lm.logits(batch, self._tuned.vectors, self._tuned.deltas)
        return logits

    # ── cached questions ──────────────────────────────────────────────────────────────────────────────────────────

    def _hidden(self, prefixes: Sequence[Prefix], texts: Tensor) -> Float[Tensor, "pairs width"]:
        """Return what the output embedding reads after each prefix under each expert."""
        names = [(prefix.question, prefix.tokens) for prefix in prefixes]
        fresh = [row for row, name in enumerate(names) if name not in self._hidden_after]
        if fresh:
            of_fresh = [prefixes[row] for row in fresh]
            at_start = [not prefix.tokens for prefix in of_fresh]
            if any(at_start) and not all(at_start):
                raise ValueError("questions are opened before any prefix of their answers")
            asked = [prefix.question for prefix in of_fresh]
            hidden = self._read_questions(asked, texts[fresh]) if all(at_start) else self._read_tokens(of_fresh)
            each = hidden.split(len(self._prompts))
            self._hidden_after |= zip([names[row] for row in fresh], each, strict=True)
            if len(fresh) == len(prefixes):
                return hidden
        return torch.cat([self._hidden_after[name] for name in names])

    def _read_questions(self, questions: Sequence[int], texts: Tensor) -> Float[Tensor, "pairs width"]:
        hidden, past = self._answers.beginnings(
            self._tuned, self._xs, texts.flatten(), self._prompts.repeat(len(texts))
        )
        self._opened.clear()
        self._note([(question, ()) for question in questions], past)
        return hidden

    def _read_tokens(self, prefixes: Sequence[Prefix]) -> Float[Tensor, "pairs width"]:
        paths, source = zip(*(self._opened[prefix.question, prefix.tokens[:-1]] for prefix in prefixes), strict=True)
        sources = [each for each in source if each is not None]
        assert self._kept is not None
        past = Past(self._kept, Paths.stacked(paths), Paths.stacked(sources) if sources else None)
        last = torch.tensor([prefix.tokens[-1] for prefix in prefixes], device=self._lm.device)
        batch = self._answers.next_tokens(last.repeat_interleave(len(self._prompts)), past)
        hidden, own = self._lm.hidden_and_kept(batch, self._tuned.vectors, self._tuned.deltas)
        assert own is not None
        self._note([(prefix.question, prefix.tokens) for prefix in prefixes], past.with_own(own))
        return hidden

    def _note(self, opened: Sequence[tuple[int, tuple[int, ...]]], past: Past) -> None:
        """Cache the rows of opened prefixes, the experts of each in consecutive rows."""
        self._kept = past.kept
        for number, prefix in enumerate(opened):
            start = number * len(self._prompts)
            of_prefix = past.of(torch.arange(start, start + len(self._prompts), device=self._lm.device))
            self._opened[prefix] = (of_prefix.paths, of_prefix.source)
