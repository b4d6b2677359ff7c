"""Reads (fact, prompt) pairs with the LM: in batches of about equal length, within bounded memory."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import cached_property, partial

import torch
from jaxtyping import Float, Int
from torch import Tensor

from askwell.errors import NotFinite
from askwell.lms.batches import PLACES, AnswerTokens, Batch, QuestionTable, TokenRows, Words
from askwell.lms.families import Question
from askwell.lms.frozen import FrozenLM
from askwell.prompts.prompt import Prompt, token_rows
from askwell.prompts.shared_prefixes import SharedPrefixes, read_again

# A forward pass reads about this many tokens at once: enough to fill the machine, few enough for its caches.
_TOKENS_AT_ONCE = 2048
# It gives at most this many logits, one for each token of the vocabulary at each place that is read.
_LOGITS_AT_ONCE = 2**22
# Training keeps this many bytes of activations for one backward pass.
_TRAINING_BYTES = 2 * 2**30


@dataclass(frozen=True)
class Tuned:
    """The parameters of a mixture with which the LM reads its prompts."""

    vectors: Float[Tensor, "prompt_tokens embedding"]
    deltas: Mapping[str, Sequence[Tensor]] | None
    kept: Int[Tensor, " kept"]
    """The prompts that were not dropped."""


class PairReader:
    """The questions that the prompts of a mixture ask about facts, read by the LM."""

    def __init__(
        self,
        lm: FrozenLM,
        prompts: Sequence[Prompt],
        *,
        reads_x: bool,
        until_y: bool = False,
        rows: TokenRows | None = None,
    ) -> None:
        """Read x itself if `reads_x`, with a causal LM also the prompt's words after it if `until_y`."""
        self._lm, self._prompts, self._reads_x, self._until_y = lm, prompts, reads_x, until_y
        self.rows = token_rows(prompts) if rows is None else rows
        """The rows of the vectors that each prompt's tokens have."""
        self._longest_known: tuple[Words, int] | None = None

    @cached_property
    def y_table(self) -> QuestionTable:
        """The questions after y."""
        return self.table_of([prompt.question for prompt in self._prompts])

    @cached_property
    def x_table(self) -> QuestionTable:
        """The questions after x itself, and after the words up to y if these are read."""
        lm = self._lm
        ask = lm.family.ask_question if self._until_y else lm.family.ask_x
        questions = [ask(prompt.tokens, lm.wording, lm.special) for prompt in self._prompts]
        if self._until_y and self._lm.family.reads_questions and self._begin_alike(questions):
            # x is equally probable with all of them, which says nothing about any: only the words after it are read.
            questions = [replace(question, reads_x=False, read_after_x=True) for question in questions]
        return self.table_of(questions)

    def _begin_alike(self, questions: Sequence[Question]) -> bool:
        """Tell whether all questions have the same tokens before x, with the same vectors."""
        lefts = [next(iter(question.streams.values())).left for question in questions]
        read = {
            tuple((token.id, rows[token.prompt_token] if token.prompt_token >= 0 else -1) for token in left)
            for left, rows in zip(lefts, self.rows, strict=True)
        }
        return len(read) == len({prompt.tokens.x_place for prompt in self._prompts}) == 1

    @cached_property
    def y_places(self) -> Int[Tensor, " prompts"]:
        """The place of y in each prompt, as a number among PLACES."""
        return torch.tensor([PLACES.index(p.tokens.y_place) for p in self._prompts], device=self._lm.device)

    @cached_property
    def x_places(self) -> Int[Tensor, " prompts"]:
        """The place of x in each prompt, as a number among PLACES."""
        return torch.tensor([PLACES.index(p.tokens.x_place) for p in self._prompts], device=self._lm.device)

    @cached_property
    def shared_prefixes(self) -> SharedPrefixes:
        """What the sentences that ask for y have in common, for LMs that share it."""
        return SharedPrefixes(self._lm, self._prompts, self.y_table, self.x_places, self.rows)

    def keeping(self, *many_xs: Words, unchanged: bool = False) -> AbstractContextManager[None]:
        """Cache, inside the block, what the LM computes for these x's and never changes, as far as memory allows; if
        nothing that is tuned changes inside the block, also what comes before x."""
        if not self._lm.shares_prefixes:
            return nullcontext()
        asked = [xs for xs in many_xs if xs.lengths.shape[1]]
        fitting = [xs for xs in asked if self._lm.can_share(int(self.longest_question(xs).max()))]
        return self.shared_prefixes.keeping(*fitting, unchanged=unchanged)

    # ── log-probabilities ─────────────────────────────────────────────────────────────────────────────────────────

    def gold_log_probs(
        self, tuned: Tuned, xs: Words, gold_tokens: Int[Tensor, "places texts"], rows: Int[Tensor, " facts"]
    ) -> Float[Tensor, "facts prompts"]:
        """Return log p(y | t, x) of each fact's y, with gradients; -inf where y has no token, and for dropped
        prompts."""
        of_pairs, columns = all_pairs(rows, tuned)
        read = self.reading(tuned, len(rows) * self.bytes_of_fact(xs))
        parts, order = [], []
        for chosen, batch in self.sentences(tuned, self.y_table, xs, of_pairs, columns):
            texts, prompts = of_pairs[chosen], columns[chosen]
            tokens = gold_tokens[self.y_places[prompts], texts]
            gold = read(batch, prompts, tokens.clamp(min=0))
            parts.append(gold.masked_fill(tokens < 0, -torch.inf))
            order.append(chosen)
        return self.of_all_prompts(tuned, _unsort(parts, order).view(len(rows), len(tuned.kept)), dropped=-torch.inf)

    def log_p_x(self, tuned: Tuned, xs: Words, rows: Int[Tensor, " facts"]) -> Float[Tensor, "facts prompts"]:
        """Return log p(x | t), or that of x and the prompt's words up to y, with gradients; 0 for dropped prompts."""
        of_pairs, columns = all_pairs(rows, tuned)
        read = self.reading(tuned, len(rows) * self.bytes_of_fact(xs))
        parts, order = [], []
        for chosen, batch in self.sentences(tuned, self.x_table, xs, of_pairs, columns):
            texts, prompts = of_pairs[chosen], columns[chosen]
            of_token = read(batch, prompts, self.x_table.x_targets(xs, texts, prompts))
            parts.append(of_token.new_zeros(len(chosen)).index_add(0, batch.read_pairs, of_token))
            order.append(chosen)
        return self.of_all_prompts(tuned, _unsort(parts, order).view(len(rows), len(tuned.kept)), dropped=0.0)

    @torch.no_grad()
    def pair_log_probs(
        self, tuned: Tuned, xs: Words, rows: Int[Tensor, " pairs"], prompts: Int[Tensor, " pairs"]
    ) -> Float[Tensor, "pairs vocabulary"]:
        """Return log p(· | t, x) of every token of the LM for each pair of a fact and a prompt."""
        parts, order = [], []
        for chosen, batch in self.sentences(tuned, self.y_table, xs, rows, prompts):
            logits = self._lm.logits(batch, tuned.vectors, tuned.deltas)
            log_total = logits.logsumexp(1)
            self.refuse_not_finite(batch.read_pairs, prompts[chosen], log_total)
            parts.append(logits.sub_(log_total[:, None]))
            order.append(chosen)
        return _unsort(parts, order)

    @torch.no_grad()
    def distributions(
        self, tuned: Tuned, xs: Words, rows: Int[Tensor, " facts"]
    ) -> Iterator[tuple[Int[Tensor, " pairs"], Int[Tensor, " pairs"], Float[Tensor, "pairs vocabulary"]]]:
        """Yield all pairs in batches: the place of the fact among `rows`, the prompt, and p(· | t, x)."""
        at, columns = all_pairs(torch.arange(len(rows), device=self._lm.device), tuned)
        for chosen, batch in self.sentences(tuned, self.y_table, xs, rows[at], columns):
            places, prompts = at[chosen], columns[chosen]
            for some, probabilities, log_total in self._lm.distributions(batch, tuned.vectors, tuned.deltas):
                self.refuse_not_finite(batch.read_pairs[some], prompts, log_total)
                yield places[some], prompts[some], probabilities

    @torch.no_grad()
    def certainty(self, tuned: Tuned, xs: Words, rows: Int[Tensor, " facts"]) -> Float[Tensor, "facts prompts"]:
        """Return how certain each prompt is of its answer: minus the entropy of p(· | t, x); 0 for dropped prompts."""
        found = torch.zeros(len(rows), len(self._prompts), dtype=self._lm.parameter_dtype, device=self._lm.device)
        for at, prompts, probabilities in self.distributions(tuned, xs, rows):
            found[at, prompts] = -torch.special.entr(probabilities).sum(1)
        return found

    def sample(self, tuned: Tuned, xs: Words, pairs: int) -> Batch:
        """Return some of the pairs of these x's and all prompts, spread evenly, as the LM reads them."""
        kept = tuned.kept
        every = xs.lengths.shape[1] * len(kept)
        chosen = torch.linspace(0, every - 1, min(pairs, every), device=kept.device).round().long().clamp(max=every - 1)
        return self.y_table.batch(xs, chosen // len(kept), kept[chosen % len(kept)])

    # ── sizes ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def longest_question(self, xs: Words) -> Int[Tensor, " texts"]:
        """Return the number of tokens of each x's longest question."""
        longest = self.longest_in(self.y_table, xs)
        return torch.maximum(longest, self.longest_in(self.x_table, xs)) if self._reads_x else longest

    def longest_in(self, table: QuestionTable, xs: Words, answer: int = 0) -> Int[Tensor, " texts"]:
        """Return the number of tokens of each x's longest sentence of a table, with an answer of this many tokens."""
        texts = torch.arange(xs.lengths.shape[1], device=self._lm.device)
        every = [torch.full_like(texts, prompt) for prompt in range(len(self._prompts))]
        return torch.stack([table.lengths(xs, texts, prompts, answer=answer) for prompts in every]).amax(0)

    def facts_at_once(self, bytes_of_fact: int) -> int:
        """Return how many facts can be trained on in one forward and backward pass within bounded memory."""
        return max(1, _TRAINING_BYTES // bytes_of_fact)

    def bytes_of_fact(self, xs: Words, *, answer: int = 1, sentences: int = 1) -> int:
        """Estimate how many bytes are kept for a fact and all its prompts until gradients are computed.

        An answer of several tokens is read in one sentence, or in this many with one read each.
        """
        longest = self._longest_tokens(xs)
        tokens = (longest + answer - 1) * sentences + (longest if self._reads_x else 0)
        reads = max(answer, sentences) + (self.x_table.most_reads(xs) if self._reads_x else 0)
        number = torch.finfo(self._lm.dtype).bits // 8
        return len(self._prompts) * (tokens * self._bytes_of_token + reads * number * self._lm.vocabulary_size)

    def _longest_tokens(self, xs: Words) -> int:
        """Return the most tokens that are read for one of these x's; cached, since every step needs it."""
        if self._longest_known is None or self._longest_known[0] is not xs:
            longest = int(self.longest_question(xs).max())
            if self._lm.can_share(longest) and (not self._reads_x or self._may_share(self.x_table)):
                longest -= self.shared_prefixes.least(xs)
                longest += int(xs.lengths.max()) if self._reads_x else 0  # x itself is read with every prompt
            self._longest_known = xs, longest
        return self._longest_known[1]

    @property
    def _bytes_of_token(self) -> int:
        number = torch.finfo(self._lm.dtype).bits // 8
        # For each token and layer: the inputs of norms, projections and activations; twice as much in Llama as in BERT.
        return sum(20 * number * stack.layers * stack.width for stack in self._lm.stacks.values())

    def _may_share(self, table: QuestionTable) -> bool:
        """Tell whether the sentences of a table begin as those that ask for y, so that what these share is the same."""
        if table is not self.__dict__.get("x_table"):
            return True
        lefts = (next(iter(prompt.question.streams.values())).left for prompt in self._prompts)
        return self._until_y and all(lefts)

    def must_recompute(self, tokens: int) -> bool:
        """Tell whether this many tokens are too many to keep everything that gradients need, so that each batch is read
        once more when they are computed."""
        return torch.is_grad_enabled() and tokens * self._bytes_of_token > 2 * _TRAINING_BYTES

    # ── inner parts ───────────────────────────────────────────────────────────────────────────────────────────────

    def reading(self, tuned: Tuned, size: int) -> Callable[..., Float[Tensor, " reads"]]:
        """Return the function that reads a batch: if there are too many bytes to keep, each batch is read once more
        when its gradients are computed, so that a fact with any number of prompts fits."""
        too_large = torch.is_grad_enabled() and size > 2 * _TRAINING_BYTES
        return read_again(partial(self.log_probs_of, tuned), when=too_large)

    def log_probs_of(
        self, tuned: Tuned, batch: Batch, prompts: Int[Tensor, " pairs"], tokens: Int[Tensor, " reads"]
    ) -> Float[Tensor, " reads"]:
        """Return the log-probability of one token at each place that is read, with its gradient."""
        log_probs, log_total = self._lm.log_probs_of(batch, tuned.vectors, tuned.deltas, tokens)
        self.refuse_not_finite(batch.read_pairs, prompts, log_total)
        return log_probs

    def table_of(self, questions: Sequence[Question]) -> QuestionTable:
        """Return the questions of all prompts, ready to be combined with any x's."""
        places = [prompt.tokens.x_place for prompt in self._prompts]
        mask = self._lm.tokenizer.mask_token_id
        return QuestionTable(questions, places, self.rows, mask, self._lm.device)

    def refuse_not_finite(
        self, pairs: Int[Tensor, " reads"], prompts: Int[Tensor, " pairs"], log_total: Float[Tensor, " reads"]
    ) -> None:
        """Raise NotFinite, with the prompt's name, where the total of a distribution is not finite."""
        is_finite = torch.isfinite(log_total)
        if not is_finite.all():
            worst = int(prompts[pairs[~is_finite][0]])
            raise NotFinite(
                f"the LM {self._lm.identity.name} gives probabilities that are not finite, first with the prompt "
                f"{self._prompts[worst].template.text!r}; a lower learning rate, or `dtype` float32, may help",
                dtype="--dtype",
            )

    def of_all_prompts(
        self, tuned: Tuned, table: Float[Tensor, "facts kept *rest"], dropped: float
    ) -> Float[Tensor, "facts prompts *rest"]:
        """Return a table over the prompts in use as one over all prompts, with this value for dropped ones."""
        if len(tuned.kept) == len(self._prompts):
            return table
        shape = (len(table), len(self._prompts), *table.shape[2:])
        return table.new_full(shape, dropped).index_copy(1, tuned.kept, table)

    def sentences(
        self,
        tuned: Tuned,
        table: QuestionTable,
        xs: Words,
        texts: Int[Tensor, " pairs"],
        prompts: Int[Tensor, " pairs"],
        ys: AnswerTokens | None = None,
    ) -> Iterator[tuple[Int[Tensor, " chosen"], Batch]]:
        """Yield all pairs as the LM reads them, with these tokens at y, in batches of about the same length.

        What sentences share, which the LM need read only once, is the past of each batch.
        """
        lengths = table.lengths(xs, texts, prompts)
        reads = table.most_reads(xs)
        if ys is not None:
            lengths, reads = lengths + ys.lengths, int(ys.reads.max())

        def batch_of(chosen: Tensor) -> Batch:  # shapes in an inner function's signature are evaluated at every call
            if ys is None:
                return table.batch(xs, texts[chosen], prompts[chosen])
            return table.answer_batch(xs, texts[chosen], prompts[chosen], ys.of(chosen))

        if not (self._may_share(table) and len(texts) and self._lm.can_share(int(lengths.max()))):
            for chosen in self.batches(lengths, reads):
                yield chosen, batch_of(chosen)
            return
        first_reads = table.first_reads(xs, texts, prompts)
        recompute = self.must_recompute(len(tuned.kept) * int(lengths.max()))
        shared = self.shared_prefixes.of(
            tuned.vectors, tuned.deltas, xs, texts, prompts, first_reads, recompute=recompute
        )  # fmt: skip
        for pairs, in_past, past in shared:
            for some in self.batches(lengths[pairs] - in_past, reads):
                yield pairs[some], batch_of(pairs[some]).after(in_past[some], past.of(some))

    def batches(self, lengths: Int[Tensor, " sentences"], reads: int) -> Iterator[Int[Tensor, " chosen"]]:
        """Yield batches of sentences of about the same length, each read at no more than this many places."""
        order = lengths.argsort(stable=True)
        start, sorted_lengths = 0, lengths[order].tolist()
        most_pairs = max(1, _LOGITS_AT_ONCE // (reads * self._lm.vocabulary_size))
        for end in range(1, len(sorted_lengths) + 1):
            is_last = end == len(sorted_lengths)
            is_full = not is_last and (
                sorted_lengths[end] * (end + 1 - start) > _TOKENS_AT_ONCE or end - start >= most_pairs
            )
            if is_last or is_full:
                yield order[start:end]
                start = end


def all_pairs(rows: Int[Tensor, " facts"], tuned: Tuned) -> tuple[Int[Tensor, " pairs"], Int[Tensor, " pairs"]]:
    """Return each fact with each prompt that was not dropped."""
    return rows.repeat_interleave(len(tuned.kept)), tuned.kept.repeat(len(rows))


def _unsort(parts: list[Tensor], order: list[Tensor]) -> Tensor:
    """Return the parts in the order of the pairs that they belong to."""
    return torch.cat(parts)[torch.cat(order).argsort()]
