"""Answers of any length, read by the LM: log p(y | t, x) of whole answers, and how prefixes of answers go on.

A causal LM and a decoder are read token by token, and then at the token that ends the answer. A masked LM has as many
masks at y as the answer has tokens, and fills them in from left to right, one forward pass each.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Float, Int
from torch import Tensor

from askwell.lms.batches import AnswerTokens, QuestionTable, Words
from askwell.lms.frozen import FrozenLM
from askwell.mixture.pairs import PairReader, Tuned
from askwell.mixture.prompts import Prompt
from askwell.mixture.search import Continuations, Prefix


@dataclass(frozen=True)
class _Reads:
    """Sentences to read, some of which may belong to the same (fact, prompt) pair."""

    texts: Int[Tensor, " sentences"]
    prompts: Int[Tensor, " sentences"]
    ys: AnswerTokens
    targets: Int[Tensor, "sentences most_reads"]
    """The tokens whose probabilities are read, as many of each row as the sentence has reads."""
    pairs: Int[Tensor, " sentences"]
    """The pair that each sentence belongs to."""


class LongAnswers:
    """The questions of a mixture's prompts for answers of any length."""

    def __init__(self, lm: FrozenLM, prompts: Sequence[Prompt], reader: PairReader) -> None:
        self._lm, self._prompts, self._reader = lm, prompts, reader
        self._questions = [lm.family.ask_answer(prompt.tokens, lm.wording, lm.special) for prompt in prompts]
        self.fills_masks = self._questions[0].fills_masks

    @cached_property
    def table(self) -> QuestionTable:
        """The questions, with room for y's tokens."""
        return self._reader.table_of(self._questions)

    @cached_property
    def _ends(self) -> Int[Tensor, " prompts"]:
        """The token that ends an answer; -1 where that is x's first token, or where nothing does."""
        ends = [-1 if question.end is None else question.end for question in self._questions]
        return torch.tensor(ends, device=self._lm.device)

    def log_probs(
        self,
        tuned: Tuned,
        xs: Words,
        ys: Words,
        facts: Int[Tensor, " facts"],
        log_lengths: Float[Tensor, " lengths"] | None = None,
    ) -> Float[Tensor, "facts prompts"]:
        """log p(y | t, x) of each fact's y under every prompt, with gradients.

        `log_lengths` is log p(m | r) of a masked LM's answers, from one token on; the others have none.
        """
        kept = tuned.kept
        texts, prompts = facts.repeat_interleave(len(kept)), kept.repeat(len(facts))
        reads = self._masked_reads(xs, ys, texts, prompts) if self.fills_masks else self._reads(xs, ys, texts, prompts)
        lengths = self.table.lengths(xs, reads.texts, reads.prompts) + reads.ys.lengths
        read = self._reader.reading(tuned, len(facts) * self.bytes_of_fact(xs, ys))
        total = torch.zeros(len(texts), dtype=self._lm.parameter_dtype, device=self._lm.device)
        for chosen in self._reader.batches(lengths, int(reads.ys.reads.max())):
            some = _chosen(reads.ys, chosen)
            batch = self.table.answer_batch(xs, reads.texts[chosen], reads.prompts[chosen], some)
            columns = torch.arange(reads.targets.shape[1], device=self._lm.device)
            targets = reads.targets[chosen][columns < some.reads[:, None]]
            of_token = read(batch, reads.prompts[chosen], targets)
            total = total.index_add(0, reads.pairs[chosen][batch.read_pairs], of_token)
        if log_lengths is not None:
            length = ys.lengths[self._reader.y_places[prompts], texts]
            of_length = log_lengths[(length - 1).clamp(max=len(log_lengths) - 1)]
            total = total + of_length.masked_fill(length > len(log_lengths), -torch.inf)
        table = total.view(len(facts), len(kept))
        if len(kept) == len(self._prompts):
            return table
        return table.new_full((len(facts), len(self._prompts)), -torch.inf).index_copy(1, kept, table)

    def bytes_of_fact(self, xs: Words, ys: Words) -> int:
        """About what is kept of a fact and all its prompts until gradients are taken."""
        longest = int(ys.lengths.max())
        if self.fills_masks:
            return self._reader.bytes_of_fact(xs, answer=longest, sentences=longest)
        return self._reader.bytes_of_fact(xs, answer=longest + 1)

    @torch.no_grad()
    def continuations(
        self,
        tuned: Tuned,
        prompts: Int[Tensor, " prompts"],
        xs: Words,
        questions: Int[Tensor, " questions"],
        prefixes: Sequence[Prefix],
    ) -> Continuations:
        """How prefixes of answers go on under some prompts, which need y in one form.

        A question is the number of its x; special tokens are never part of an answer.
        """
        lm, count = self._lm, len(prompts)
        texts = questions[torch.tensor([prefix.question for prefix in prefixes], device=lm.device)]
        texts, asked = texts.repeat_interleave(count), prompts.repeat(len(prefixes))
        done = torch.tensor([len(prefix.tokens) for prefix in prefixes], device=lm.device).repeat_interleave(count)
        whole = [len(prefix.tokens) if prefix.length is None else prefix.length for prefix in prefixes]
        lengths = torch.tensor(whole, device=lm.device).repeat_interleave(count)
        longest, filler = max(whole), lm.special.mask if self.fills_masks else 0
        padded = [[*prefix.tokens, *[filler] * (longest - len(prefix.tokens))] for prefix in prefixes]
        ids = torch.tensor(padded, dtype=torch.long, device=lm.device).view(len(prefixes), longest)
        ys = AnswerTokens(ids.repeat_interleave(count, 0), lengths, done, torch.ones_like(done))
        sizes = self.table.lengths(xs, texts, asked) + lengths
        log_probs = torch.empty(len(texts), lm.vocabulary_size, dtype=lm.parameter_dtype, device=lm.device)
        for chosen in self._reader.batches(sizes, 1):
            batch = self.table.answer_batch(xs, texts[chosen], asked[chosen], _chosen(ys, chosen))
            log_probs[chosen] = lm.logits(batch, tuned.vectors, tuned.deltas).log_softmax(1)
        by_prefix = log_probs.view(len(prefixes), count, -1).double()
        log_end = None
        if not self.fills_masks:
            ends = self._ends_of(xs, texts, asked).view(len(prefixes), count, 1)
            log_end = by_prefix.gather(2, ends)[..., 0]
        by_prefix = by_prefix.index_fill(2, torch.tensor(self._never, device=lm.device), -torch.inf)
        return Continuations(by_prefix, log_end)

    @cached_property
    def _never(self) -> list[int]:
        """Tokens that are never part of an answer, as far as the LM's distribution has them."""
        tokenizer = self._lm.tokenizer
        special = {token for token, added in tokenizer.added_tokens_decoder.items() if added.special}
        return sorted(token for token in special | {*tokenizer.all_special_ids} if token < self._lm.vocabulary_size)

    def _ends_of(self, xs: Words, texts: Tensor, prompts: Tensor) -> Int[Tensor, " pairs"]:
        ends = self._ends[prompts]
        return torch.where(ends < 0, xs.ids[self._reader.x_places[prompts], texts, 0], ends)

    def _spelt(self, ys: Words, texts: Tensor, prompts: Tensor) -> tuple[Tensor, Tensor]:
        """y's tokens in the form that each prompt needs, and how many they are."""
        places = self._reader.y_places[prompts]
        return ys.ids[places, texts], ys.lengths[places, texts]

    def _reads(self, xs: Words, ys: Words, texts: Tensor, prompts: Tensor) -> _Reads:
        """One sentence for each pair, read at all of y's tokens and at its end."""
        ids, lengths = self._spelt(ys, texts, prompts)
        ends = self._ends_of(xs, texts, prompts)
        targets = torch.cat([ids, ids.new_zeros(len(ids), 1)], dim=1)
        targets = targets.scatter(1, lengths[:, None], ends[:, None])
        return _Reads(
            texts, prompts, AnswerTokens(ids, lengths, torch.zeros_like(lengths), lengths + 1), targets,
            torch.arange(len(texts), device=texts.device),
        )  # fmt: skip

    def _masked_reads(self, xs: Words, ys: Words, texts: Tensor, prompts: Tensor) -> _Reads:  # noqa: ARG002
        """A sentence for each token of each pair's y: the tokens before it are filled in, the others are masks."""
        ids, lengths = self._spelt(ys, texts, prompts)
        pairs = torch.arange(len(texts), device=texts.device).repeat_interleave(lengths)
        first = (lengths.cumsum(0) - lengths)[pairs]
        steps = torch.arange(len(pairs), device=texts.device) - first
        columns = torch.arange(ids.shape[1], device=texts.device)
        filled = torch.where(columns < steps[:, None], ids[pairs], self._lm.special.mask)
        ones = torch.ones_like(steps)
        targets = ids[pairs].gather(1, steps[:, None])
        return _Reads(texts[pairs], prompts[pairs], AnswerTokens(filled, lengths[pairs], steps, ones), targets, pairs)


def length_log_probs(lengths: Sequence[int], most: int = 10) -> Float[Tensor, " lengths"]:
    """log p(m | r): how many tokens the train ys have, plus one half each, up to the longest of them, normalised.

    Where all have one token, that is the only length.
    """
    longest = min(max(lengths, default=1), most)
    counts = torch.full((longest,), 0.5, dtype=torch.float64)
    for length in lengths:
        if length <= longest:
            counts[length - 1] += 1
    return (counts / counts.sum()).log()


def _chosen(ys: AnswerTokens, chosen: Tensor) -> AnswerTokens:
    lengths = ys.lengths[chosen]
    return AnswerTokens(ys.ids[chosen][:, : int(lengths.max())], lengths, ys.first_read[chosen], ys.reads[chosen])
