"""Answers of any length, read by the LM: log p(y | t, x) of whole answers.

A causal LM and a decoder are read token by token, and then at the token that ends the answer. A masked LM has as many
masks at y as the answer has tokens, and fills them in from left to right, one forward pass each.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from askwell.lms.batches import AnswerTokens, Batch, QuestionTable, StreamBatch, Words
from askwell.lms.frozen import FrozenLM
from askwell.lms.vocabulary import special_tokens
from askwell.lms.walks.past import Past
from askwell.prompts.pairs import PairReader, Tuned, all_pairs
from askwell.prompts.prompt import Prompt
from askwell.prompts.shared_prefixes import read_again

LogLengths = Float[Tensor, " lengths"] | Float[Tensor, "facts prompts lengths"]
"""log p(m | r), or log p(m | r, x, t), from one token on."""


@dataclass(frozen=True)
class _Reads:
    """Sentences to read, some of which may belong to the same (fact, prompt) pair."""

    texts: Int[Tensor, " sentences"]
    prompts: Int[Tensor, " sentences"]
    ys: AnswerTokens
    targets: Int[Tensor, "sentences most_reads"]
    """The tokens whose probabilities are read, one for each read of the sentence."""
    pairs: Int[Tensor, " sentences"]
    """The pair that each sentence belongs to."""


@dataclass(frozen=True)
class Steps:
    """The distributions of all steps in which some answers are read under one prompt, answer after answer."""

    log_probs: Float[Tensor, "steps vocabulary"]
    targets: Int[Tensor, " steps"]
    ends: Int[Tensor, " steps"]
    """The token that would end the answer at each step."""
    pairs: Int[Tensor, " steps"]
    """The answer that each step belongs to."""


class LongAnswers:
    """The questions of a mixture's prompts for answers of any length."""

    def __init__(self, lm: FrozenLM, prompts: Sequence[Prompt], reader: PairReader) -> None:
        self.lm, self._prompts, self.reader = lm, prompts, reader
        self._questions = [lm.family.ask_answer(prompt.tokens, lm.wording, lm.special) for prompt in prompts]
        self.fills_masks = lm.family.fills_masks

    @cached_property
    def table(self) -> QuestionTable:
        """The questions, with room for y's tokens."""
        return self.reader.table_of(self._questions)

    @cached_property
    def _ends(self) -> Int[Tensor, " prompts"]:
        """The token that ends an answer; -1 if that is x's first token, or if there is none."""
        ends = [-1 if question.end is None else question.end for question in self._questions]
        return torch.tensor(ends, device=self.lm.device)

    def log_probs(
        self,
        tuned: Tuned,
        xs: Words,
        ys: Words,
        rows: Int[Tensor, " facts"],
        log_lengths: LogLengths | None = None,
        *,
        with_end: bool = True,
    ) -> Float[Tensor, "facts prompts"]:
        """Return log p(y | t, x) of each fact's y under every prompt, with gradients.

        `log_lengths` is log p(m | r) or log p(m | r, x, t) of a masked LM's answers, from one token on; other LMs have
        none, and their answers can be read without the token that ends them.
        """
        texts, prompts = all_pairs(rows, tuned)
        ids, lengths = self._spelt(ys, texts, prompts)
        reads = self._reads(xs, ids, lengths, texts, prompts, with_end=with_end)
        read = self.reader.reading(tuned, len(rows) * self.bytes_of_fact(xs, ys))
        total = self._summed(read, tuned, xs, reads, len(texts))
        if log_lengths is not None:
            total = total + log_p_of_lengths(lengths, of_pairs(log_lengths, tuned))
        return self.reader.of_all_prompts(tuned, total.view(len(rows), len(tuned.kept)), dropped=-torch.inf)

    @torch.no_grad()
    def certainty_of_blanks(
        self, tuned: Tuned, xs: Words, rows: Int[Tensor, " facts"], longest: int
    ) -> Float[Tensor, "facts prompts lengths"]:
        """Return s_m(t, x), for up to this many blanks: minus the sum of the entropies at all m blanks, none of which
        is filled in; 0 for dropped prompts."""
        texts, prompts = all_pairs(rows, tuned)
        lengths = torch.arange(1, longest + 1, device=self.lm.device).repeat(len(texts))
        texts, prompts = (each.repeat_interleave(longest) for each in (texts, prompts))
        blanks = torch.full((len(texts), longest), self.lm.special.mask, device=self.lm.device)
        ys = AnswerTokens(blanks, lengths, torch.zeros_like(lengths), lengths)
        found = torch.zeros(len(texts), dtype=self.lm.parameter_dtype, device=self.lm.device)
        for chosen, batch in self.reader.sentences(tuned, self.table, xs, texts, prompts, ys):
            for some, probabilities, log_total in self.lm.distributions(batch, tuned.vectors, tuned.deltas):
                pairs = batch.read_pairs[some]
                self.reader.refuse_not_finite(pairs, prompts[chosen], log_total)
                found.index_add_(0, chosen[pairs], -torch.special.entr(probabilities).sum(1))
        return self.reader.of_all_prompts(tuned, found.view(len(rows), len(tuned.kept), longest), dropped=0.0)

    def end_of(self, prompt: int) -> int | None:
        """Return the token that ends an answer to a prompt; None if that is x's first token, or if there is none."""
        return self._questions[prompt].end

    @cached_property
    def end_tokens(self) -> tuple[int, ...]:
        """The tokens that end answers to the prompts, without those that are part of x."""
        return tuple(sorted({question.end for question in self._questions if question.end is not None}))

    @cached_property
    def has_one_end(self) -> bool:
        """Whether answers end with the same token after all prompts."""
        return len({(question.end, question.ends_with_x) for question in self._questions}) == 1

    @torch.no_grad()
    def steps(self, tuned: Tuned, xs: Words, ys: Words, rows: Int[Tensor, " facts"], prompt: int) -> Steps:
        """Return the distributions at y's tokens, and at its end if there is one, under one prompt."""
        prompts = torch.full_like(rows, prompt)
        reads = self._reads(xs, *self._spelt(ys, rows, prompts), rows, prompts)
        columns = torch.arange(reads.targets.shape[1], device=self.lm.device)
        is_read = columns < reads.ys.reads[:, None]
        pairs = reads.pairs.repeat_interleave(reads.ys.reads)
        first = reads.ys.reads.cumsum(0) - reads.ys.reads
        shape = (len(pairs), self.lm.vocabulary_size)
        log_probs = torch.empty(shape, dtype=self.lm.parameter_dtype, device=self.lm.device)
        for chosen, batch in self.reader.sentences(tuned, self.table, xs, reads.texts, reads.prompts, reads.ys):
            counts = reads.ys.reads[chosen].tolist()
            nth = torch.cat([torch.arange(count, device=self.lm.device) for count in counts])
            at = first[chosen][batch.read_pairs] + nth
            log_probs[at] = self.lm.logits(batch, tuned.vectors, tuned.deltas).log_softmax(1)
        ends = pairs.new_zeros(len(pairs)) if self.fills_masks else self.ends_of(xs, rows, prompts)[pairs]
        return Steps(log_probs, reads.targets[is_read], ends, pairs)

    def bytes_of_fact(self, xs: Words, ys: Words) -> int:
        """Estimate how many bytes are kept for a fact and all its prompts until gradients are computed."""
        longest = int(ys.lengths.max())
        if self.fills_masks:
            return self.reader.bytes_of_fact(xs, answer=longest, sentences=longest)
        return self.reader.bytes_of_fact(xs, answer=longest + 1)

    def _summed(
        self, read: Callable[..., Float[Tensor, " reads"]], tuned: Tuned, xs: Words, reads: _Reads, pairs: int
    ) -> Float[Tensor, " pairs"]:
        """Sum what is read for each of this many pairs."""
        total = torch.zeros(pairs, dtype=self.lm.parameter_dtype, device=self.lm.device)
        columns = torch.arange(reads.targets.shape[1], device=self.lm.device)
        for chosen, batch in self.reader.sentences(tuned, self.table, xs, reads.texts, reads.prompts, reads.ys):
            targets = reads.targets[chosen][columns < reads.ys.reads[chosen, None]]
            of_token = read(batch, reads.prompts[chosen], targets)
            total = total.index_add(0, reads.pairs[chosen][batch.read_pairs], of_token)
        return total

    def log_probs_of_spelt(
        self,
        tuned: Tuned,
        xs: Words,
        ids: Int[Tensor, "pairs longest"],
        lengths: Int[Tensor, " pairs"],
        texts: Int[Tensor, " pairs"],
        prompts: Int[Tensor, " pairs"],
        *,
        with_end: bool = True,
    ) -> Float[Tensor, " pairs"]:
        """Return log p(y | t, x) of answers in tokens, with a whole sentence for each pair; not for masked LMs."""
        reads = self._reads(xs, ids, lengths, texts, prompts, with_end=with_end)
        return self._summed(partial(self.reader.log_probs_of, tuned), tuned, xs, reads, len(texts))

    def beginnings(
        self,
        tuned: Tuned,
        xs: Words,
        texts: Int[Tensor, " pairs"],
        prompts: Int[Tensor, " pairs"],
        *,
        recompute: bool = False,
    ) -> tuple[Float[Tensor, "pairs width"], Past]:
        """Read everything before y once for each pair; return what the output embedding reads at its last token, and
        its past; with gradients, for LMs with a walk."""
        read = read_again(self.lm.hidden_and_kept, when=recompute)
        none = torch.zeros_like(texts)
        ys = AnswerTokens(none.new_empty(len(texts), 0), none, none, torch.ones_like(none))
        hidden, kept, order = [], [], []
        for chosen, batch in self.reader.sentences(tuned, self.table, xs, texts, prompts, ys):
            of_batch, own = read(batch, tuned.vectors, tuned.deltas)
            assert own is not None
            hidden.append(of_batch)
            kept.append(own if batch.past is None else batch.past.compact().with_own(own))
            order.append(chosen)
        unsort = torch.cat(order).argsort()
        return torch.cat(hidden)[unsort], Past.joined(kept).of(unsort)

    def next_tokens(self, tokens: Int[Tensor, " pairs"], past: Past) -> Batch:
        """Return the batch of sentences that continue their past with one token of y each, and are read there."""
        nothing, one = torch.full_like(tokens, -1), torch.ones_like(tokens)
        stream = StreamBatch(tokens[:, None], nothing[:, None], one)
        return Batch({list(self.lm.stacks)[-1]: stream}, one.cumsum(0) - 1, torch.zeros_like(tokens), past)

    @cached_property
    def never(self) -> list[int]:
        """Tokens that are never part of an answer, as far as the LM's distribution has them."""
        return special_tokens(self.lm)

    def ends_of(self, xs: Words, texts: Int[Tensor, " pairs"], prompts: Int[Tensor, " pairs"]) -> Int[Tensor, " pairs"]:
        """Return the token that ends an answer of each pair."""
        ends = self._ends[prompts]
        return torch.where(ends < 0, xs.ids[self.reader.x_places[prompts], texts, 0], ends)

    def _spelt(self, ys: Words, texts: Tensor, prompts: Tensor) -> tuple[Tensor, Tensor]:
        """Return y's tokens in the form that each prompt needs, and their number."""
        places = self.reader.y_places[prompts]
        return ys.ids[places, texts], ys.lengths[places, texts]

    def _reads(
        self, xs: Words, ids: Tensor, lengths: Tensor, texts: Tensor, prompts: Tensor, *, with_end: bool = True
    ) -> _Reads:
        """Return the sentences in which answers in tokens are read: one for each pair, at all of y's tokens and at its
        end; of a masked LM one for each token, in which those before it are filled in and the others are masks."""
        if not self.fills_masks:
            targets = torch.cat([ids, ids.new_zeros(len(ids), 1)], dim=1)
            targets = targets.scatter(1, lengths[:, None], self.ends_of(xs, texts, prompts)[:, None])
            ys = AnswerTokens(ids, lengths, torch.zeros_like(lengths), lengths + with_end)
            return _Reads(texts, prompts, ys, targets, torch.arange(len(texts), device=texts.device))
        pairs = torch.arange(len(texts), device=texts.device).repeat_interleave(lengths)
        first = (lengths.cumsum(0) - lengths)[pairs]
        steps = torch.arange(len(pairs), device=texts.device) - first
        columns = torch.arange(ids.shape[1], device=texts.device)
        filled = torch.where(columns < steps[:, None], ids[pairs], self.lm.special.mask)
        ys = AnswerTokens(filled, lengths[pairs], steps, torch.ones_like(steps))
        return _Reads(texts[pairs], prompts[pairs], ys, ids[pairs].gather(1, steps[:, None]), pairs)


def bytes_of_cached_token(lm: FrozenLM) -> int:
    """Return about how many bytes the keys and values of a token take in all layers."""
    number = torch.finfo(lm.dtype).bits // 8
    return sum(2 * number * stack.layers * stack.width for stack in lm.stacks.values())


def of_pairs(log_lengths: LogLengths, tuned: Tuned) -> Float[Tensor, "*pairs lengths"]:
    """Return log p(m | r, x, t) of each pair of a fact and a prompt that was not dropped; log p(m | r) as it is."""
    return log_lengths if log_lengths.dim() == 1 else log_lengths[:, tuned.kept].flatten(0, 1)


def log_p_of_lengths(lengths: Int[Tensor, " ys"], log_lengths: Float[Tensor, "*ys lengths"]) -> Float[Tensor, " ys"]:
    """Return log p(m) of ys of these lengths, with the same p(m) for all or with each its own; -inf for those that are
    longer than any known one."""
    longest = log_lengths.shape[-1]
    at = (lengths - 1).clamp(max=longest - 1)
    known = log_lengths[at] if log_lengths.dim() == 1 else log_lengths.gather(1, at[:, None])[:, 0]
    return known.masked_fill(lengths > longest, -torch.inf)


def length_log_probs(lengths: Sequence[int], most: int = 10) -> Float[Tensor, " lengths"]:
    """Estimate log p(m | r): the count of each length among the train ys, up to the longest, plus one half, normalised.

    If all have one token, that is the only length.
    """
    longest = min(max(lengths, default=1), most)
    counts = torch.full((longest,), 0.5, dtype=torch.float64)
    for length, count in Counter(lengths).items():
        if length <= longest:
            counts[length - 1] += count
    return (counts / counts.sum()).log()


# ── how long a masked LM's answers are ────────────────────────────────────────────────────────────────────────────────


class Lengths(nn.Module):
    """p(m | r, x, t) = softmax over m of c_m + β s_m(t, x), s_m being how certain a prompt is of what stands at m
    blanks: minus the sum of their entropies.

    c starts at log p(m | r) and β at 0, which is p(m | r). No gradient goes through s: prompts are tuned to be right,
    not to be certain.
    """

    def __init__(self, log_lengths: Sequence[float], **like: Any) -> None:
        super().__init__()
        self.initial = tuple(log_lengths)
        """log p(m | r), from one token on."""
        self.logits = nn.Parameter(torch.tensor(self.initial, **like))
        """c."""
        self.slope = nn.Parameter(torch.zeros((), **like))
        """β."""
        self.requires_grad_(False)  # until they are fitted, after all else

    def forward(self, certainty: Float[Tensor, "*pairs lengths"]) -> Float[Tensor, "*pairs lengths"]:
        """Return c_m + β s_m(t, x) from s_m(t, x)."""
        return self.logits + self.slope * certainty

    @property
    def are_fixed(self) -> bool:
        """Whether they are p(m | r), and are not being fitted: s need not be read."""
        if any(parameter.requires_grad for parameter in self.parameters()):
            return False
        return not self.slope.any() and torch.equal(self.logits, self.logits.new_tensor(self.initial))
