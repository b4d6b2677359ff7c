"""Many candidates at once: log p(c | t, x) of every candidate, with each common prefix read once.

Causal LMs and decoders read the tree of the candidates' tokens once for a pair of a fact and a prompt, after the cached
keys and values of what comes before it: each node is one row, which attends to the nodes above it and to none beside
it. A masked LM has a tree for each number of tokens, and reads a sentence for each of its inner nodes: all candidates
of one token come from one sentence. All tokens that follow a node are read from its one distribution.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from askwell.lms.batches import AnswerTokens, Batch, StreamBatch, Words
from askwell.lms.walks.past import ranges
from askwell.prompts.long_answers import LogLengths, LongAnswers, bytes_of_cached_token, of_pairs
from askwell.prompts.pairs import Tuned, all_pairs
from askwell.prompts.shared_prefixes import read_again

# About how many nodes are read at once: enough to fill the machine.
_ROWS_AT_ONCE = 1024
# About how many nodes share a segment of attention, most of which do not attend to each other.
_NODES_TOGETHER = 64
# The most bytes cached for the questions scored at once, and for what is read after them.
_KEPT_BYTES = 2**28


@dataclass(frozen=True)
class Trie:
    """The tokens of candidates as a tree, whose root is node 0; nodes are numbered depth first."""

    tokens: Int[Tensor, " nodes"]
    parents: Int[Tensor, " nodes"]
    depths: Int[Tensor, " nodes"]
    paths: Int[Tensor, "candidates longest"]
    """The nodes that spell each candidate, then the root."""
    ends: Int[Tensor, " candidates"]
    """The node at which each candidate ends."""

    @classmethod
    def of(cls, candidates: Sequence[Sequence[int]], device: torch.device) -> "Trie":
        """Build the tree of these token sequences."""
        known: dict[tuple[int, int], int] = {}
        tokens, parents, depths = [0], [0], [0]
        paths: list[list[int]] = [[] for _ in candidates]
        for number in sorted(range(len(candidates)), key=lambda number: tuple(candidates[number])):
            candidate, node, path = candidates[number], 0, paths[number]
            for depth, token in enumerate(candidate, start=1):
                if (node, token) not in known:
                    known[node, token] = len(tokens)
                    tokens.append(token)
                    parents.append(node)
                    depths.append(depth)
                node = known[node, token]
                path.append(node)
        longest = max(map(len, paths), default=0)
        padded = [path + [0] * (longest - len(path)) for path in paths]
        return cls(
            *(torch.tensor(each, device=device) for each in (tokens, parents, depths)),
            torch.tensor(padded, dtype=torch.long, device=device).view(len(paths), longest),
            torch.tensor([path[-1] if path else 0 for path in paths], dtype=torch.long, device=device),
        )

    def __len__(self) -> int:
        return len(self.tokens)

    @cached_property
    def children(self) -> "Targets":
        """The children of each node."""
        every = torch.arange(1, len(self), device=self.tokens.device)
        return Targets.of(self.parents[1:], every, self.tokens[1:], len(self))

    @cached_property
    def children_and_ends(self) -> "Targets":
        """The same, and that a candidate ends at a node: the column after all nodes, with the token -1."""
        ended, device = self.ends.unique(), self.tokens.device
        nodes = torch.cat([self.parents[1:], ended])
        columns = torch.cat([torch.arange(1, len(self), device=device), len(self) + ended])
        tokens = torch.cat([self.tokens[1:], torch.full_like(ended, -1)])
        return Targets.of(nodes, columns, tokens, len(self))

    @cached_property
    def batched(self) -> "NodeBatches":
        """All nodes except the root, in batches that are read side by side."""
        return self.batches(_NODES_TOGETHER)

    def batches(self, together: int) -> "NodeBatches":
        """Return all nodes except the root, in batches of about this many, each with all nodes above them."""
        parents, count = self.parents.tolist(), len(self)
        together = max(together, 2 * int(self.depths.max()))
        nodes: list[list[int]] = []
        new: list[int] = []
        start = 1
        while start < count:
            above, at = [], parents[start]
            while at:
                above.append(at)
                at = parents[at]
            end = min(count, start + together - len(above))
            nodes.append([*reversed(above), *range(start, end)])
            new.append(len(above))
            start = end
        longest = max(map(len, nodes), default=0)
        padded = [each + [0] * (longest - len(each)) for each in nodes]
        device = self.tokens.device
        lengths = torch.tensor(list(map(len, nodes)), dtype=torch.long, device=device)
        of_batch = torch.tensor(padded, dtype=torch.long, device=device).view(len(nodes), longest)
        columns = torch.arange(longest, device=device)
        within = columns < lengths[:, None]
        sees = torch.zeros(len(nodes), longest, longest, dtype=torch.bool, device=device)
        at = of_batch
        for _ in range(int(self.depths.max())):
            sees |= (at[:, :, None] == of_batch[:, None, :]) & (at > 0)[:, :, None]
            at = self.parents[at]
        is_new = within & (columns >= torch.tensor(new, dtype=torch.long, device=device)[:, None])
        return NodeBatches(of_batch, lengths, sees, is_new)

    def spelt(self, nodes: Int[Tensor, " nodes"], longest: int, filler: int) -> Int[Tensor, "nodes longest"]:
        """Return the tokens from the root to each node, padded with a filler."""
        ids = torch.full((len(nodes), longest), filler, device=nodes.device)
        at = nodes
        for _ in range(int(self.depths[nodes].max()) if len(nodes) else 0):
            below = (at > 0).nonzero()[:, 0]
            ids[below, self.depths[at[below]] - 1] = self.tokens[at[below]]
            at = self.parents[at]
        return ids


@lru_cache(maxsize=32)
def trie_of(candidates: tuple[tuple[int, ...], ...], device: torch.device) -> Trie:
    """Build the tree of these token sequences; the last ones are cached, since all batches of facts use the same."""
    return Trie.of(candidates, device)


@dataclass(frozen=True)
class NodeBatches:
    """The nodes of a tree in batches, each of which holds every node above its own."""

    nodes: Int[Tensor, "batches longest"]
    lengths: Int[Tensor, " batches"]
    sees: Bool[Tensor, "batches longest longest"]
    """Which nodes of its batch each node attends to: itself and those above it."""
    is_new: Bool[Tensor, "batches longest"]
    """Whether a node is in no earlier batch."""


@dataclass(frozen=True)
class Targets:
    """What is read at each node: tokens, and the columns into which their log-probabilities go."""

    columns: Int[Tensor, " targets"]
    tokens: Int[Tensor, " targets"]
    first: Int[Tensor, " nodes"]
    counts: Int[Tensor, " nodes"]

    @classmethod
    def of(cls, nodes: Tensor, columns: Tensor, tokens: Tensor, count: int) -> "Targets":
        """Build from targets in any order; there are this many nodes."""
        order = nodes.argsort(stable=True)
        counts = torch.bincount(nodes, minlength=count)
        return cls(columns[order], tokens[order], counts.cumsum(0) - counts, counts)

    def at(self, nodes: Int[Tensor, " rows"]) -> tuple[Tensor, Tensor, Tensor]:
        """Return the row, the column and the token of each target, for rows at these nodes."""
        counts = self.counts[nodes]
        rows = torch.arange(len(nodes), device=nodes.device).repeat_interleave(counts)
        chosen = ranges(self.first[nodes], counts)
        return rows, self.columns[chosen], self.tokens[chosen]


class CandidateReader:
    """Scores candidates under a mixture's prompts in their present state."""

    def __init__(self, answers: LongAnswers, tuned: Tuned, xs: Words, *, with_ends: bool = True) -> None:
        self._answers, self._tuned, self._xs, self._lm = answers, tuned, xs, answers.lm
        self._with_ends = with_ends
        self._stack = list(self._lm.stacks)[-1]

    def log_probs(
        self, candidates: Sequence[Sequence[int]], texts: Int[Tensor, " pairs"], prompts: Int[Tensor, " pairs"]
    ) -> Float[Tensor, "pairs candidates"]:
        """Return log p(c | t, x) of candidates in tokens for pairs whose prompts take y in one form, with gradients;
        p(m | r, x, t) of a masked LM left out."""
        device = self._lm.device
        found = torch.zeros(len(texts), len(candidates), dtype=self._lm.parameter_dtype, device=device)
        if not candidates:
            return found
        lengths = torch.tensor([len(candidate) for candidate in candidates], device=device)
        if self._answers.fills_masks:
            for length in lengths.unique().tolist():
                chosen = (lengths == length).nonzero()[:, 0]
                trie = trie_of(tuple(tuple(candidates[number]) for number in chosen.tolist()), device)
                found = found.index_copy(1, chosen, self._filling(trie, length, texts, prompts))
            return found
        longest = int(lengths.max())
        if self._lm.can_keep(int(self._answers.table.lengths(self._xs, texts, prompts).max()) + longest):
            trie = trie_of(tuple(map(tuple, candidates)), device)
            # As many pairs as have caches that fit into memory; with gradients, everything is kept in any case.
            sentence = int(self._answers.table.lengths(self._xs, texts, prompts).max())
            of_pair = sentence * bytes_of_cached_token(self._lm) + 16 * len(trie)
            at_once = len(texts) if torch.is_grad_enabled() else max(1, _KEPT_BYTES // of_pair)
            parts = zip(texts.split(at_once), prompts.split(at_once), strict=True)
            return torch.cat([self._through(trie, *part) for part in parts])
        # An LM without a walk keeps nothing and reads a whole sentence for each candidate.
        padded = [[*candidate, *[0] * (longest - len(candidate))] for candidate in candidates]
        ids = torch.tensor(padded, dtype=torch.long, device=device).repeat(len(texts), 1)
        asked, asked_with = (each.repeat_interleave(len(candidates)) for each in (texts, prompts))
        of_pairs = self._answers.log_probs_of_spelt(
            self._tuned, self._xs, ids, lengths.repeat(len(texts)), asked, asked_with, with_end=self._with_ends
        )
        return of_pairs.view(found.shape)

    # ── causal LMs and decoders ───────────────────────────────────────────────────────────────────────────────────

    def _through(self, trie: Trie, texts: Tensor, prompts: Tensor) -> Float[Tensor, "pairs candidates"]:
        """Score the candidates through the tree, after everything before y."""
        pairs, nodes, device = len(texts), len(trie), self._lm.device
        ends, targets = self._answers.ends_of(self._xs, texts, prompts), trie.children_and_ends
        tokens = int(self._answers.table.lengths(self._xs, texts, prompts).sum()) + pairs * nodes
        recompute = self._answers.reader.must_recompute(tokens)
        values: list[Tensor] = []
        places: list[Tensor] = []

        def read(hidden: Tensor, of_pairs: Tensor, at: Tensor) -> None:
            """Record the log-probabilities of all that follows some nodes."""
            rows, columns, wanted = targets.at(at)
            wanted = torch.where(wanted < 0, ends[of_pairs[rows]], wanted)
            log_probs, log_totals = self._lm.head.several_log_probs_of(hidden, rows, wanted)
            self._answers.reader.refuse_not_finite(of_pairs, prompts, log_totals)
            values.append(log_probs)
            places.append(of_pairs[rows] * 2 * nodes + columns)

        hidden, past = self._answers.beginnings(self._tuned, self._xs, texts, prompts, recompute=recompute)
        every = torch.arange(pairs, device=device)
        read(hidden, every, torch.zeros_like(every))
        walk, batches = read_again(self._lm.hidden_and_kept, when=recompute), trie.batched
        batch_count, longest = batches.nodes.shape
        of_pairs = every.repeat_interleave(batch_count)
        of_batches = torch.arange(batch_count, device=device).repeat(pairs)
        for some in torch.arange(len(of_pairs), device=device).split(max(1, _ROWS_AT_ONCE // max(1, longest))):
            at, asked = of_batches[some], of_pairs[some]
            nodes_at, (rows, columns) = batches.nodes[at], batches.is_new[at].nonzero(as_tuple=True)
            stream = StreamBatch(trie.tokens[nodes_at], torch.full_like(nodes_at, -1), batches.lengths[at])
            batch = Batch({self._stack: stream}, rows, columns, past.of(asked), batches.sees[at])
            hidden, _ = walk(batch, self._tuned.vectors, self._tuned.deltas, keeps=False)
            read(hidden, asked[rows], nodes_at[rows, columns])
        table = _table(values, places, (pairs, 2 * nodes))
        spelt = table[:, trie.paths].sum(2)
        return spelt + table[:, nodes + trie.ends] if self._with_ends else spelt

    # ── masked LMs ────────────────────────────────────────────────────────────────────────────────────────────────

    def _filling(self, trie: Trie, length: int, texts: Tensor, prompts: Tensor) -> Float[Tensor, "pairs candidates"]:
        """Score candidates of one length: as many masks, of which the first are filled in with each common prefix."""
        pairs, device, answers = len(texts), self._lm.device, self._answers
        nodes = trie.children.counts.nonzero()[:, 0]
        filled = trie.spelt(nodes, length, self._lm.special.mask)
        of_pairs, rows = torch.arange(pairs, device=device).repeat_interleave(len(nodes)), nodes.repeat(pairs)
        ones = torch.ones_like(rows)
        ys = AnswerTokens(filled.repeat(pairs, 1), length * ones, trie.depths[rows], ones)
        sizes = answers.table.lengths(self._xs, texts[of_pairs], prompts[of_pairs]) + length
        recompute = answers.reader.must_recompute(int(sizes.sum()))
        read = read_again(self._lm.several_log_probs_of, when=recompute)
        values, places = [], []
        for chosen in answers.reader.batches(sizes, 1):
            asked = of_pairs[chosen]
            batch = answers.table.answer_batch(self._xs, texts[asked], prompts[asked], ys.of(chosen))
            reads, columns, tokens = trie.children.at(rows[chosen])
            log_probs, log_totals = read(batch, self._tuned.vectors, self._tuned.deltas, reads, tokens)
            answers.reader.refuse_not_finite(batch.read_pairs, prompts[asked], log_totals)
            values.append(log_probs)
            places.append(asked[reads] * len(trie) + columns)
        return _table(values, places, (pairs, len(trie)))[:, trie.paths].sum(2)


def _table(values: Sequence[Tensor], places: Sequence[Tensor], shape: tuple[int, int]) -> Tensor:
    """Return a table of the values at their places, 0 elsewhere."""
    together = torch.cat(list(values))
    flat = together.new_zeros(shape[0] * shape[1]).index_copy(0, torch.cat(list(places)), together)
    return flat.view(shape)


def candidate_log_probs(
    answers: LongAnswers,
    tuned: Tuned,
    xs: Words,
    rows: Int[Tensor, " facts"],
    candidates: Words,
    log_lengths: LogLengths | None = None,
    *,
    with_ends: bool = True,
) -> Float[Tensor, "facts prompts candidates"]:
    """Return log p(c | t, x) of every candidate c for each fact's x under every prompt, with gradients; `with_ends`
    includes the token that ends it.

    It is -inf for prompts that were dropped, and for candidates of a length that has no probability.
    """
    lm, reader = answers.lm, CandidateReader(answers, tuned, xs, with_ends=with_ends)
    count = candidates.lengths.shape[1]
    texts, prompts = all_pairs(rows, tuned)
    places = answers.reader.y_places[prompts]
    found = torch.full((len(texts), count), -torch.inf, dtype=lm.parameter_dtype, device=lm.device)
    for place in places.unique().tolist():
        chosen = (places == place).nonzero()[:, 0]
        lengths = candidates.lengths[place]
        spelt = [ids[:length] for ids, length in zip(candidates.ids[place].tolist(), lengths.tolist(), strict=True)]
        asked = torch.arange(count, device=lm.device)
        if log_lengths is not None:
            asked = (lengths <= log_lengths.shape[-1]).nonzero()[:, 0]
        by_pair = reader.log_probs([spelt[number] for number in asked.tolist()], texts[chosen], prompts[chosen])
        if log_lengths is not None:
            of_lengths = of_pairs(log_lengths, tuned).to(by_pair.dtype)
            of_lengths = of_lengths if log_lengths.dim() == 1 else of_lengths[chosen]
            by_pair = by_pair + of_lengths[..., lengths[asked] - 1]
        whole = by_pair.new_full((len(chosen), count), -torch.inf).index_copy(1, asked, by_pair)
        found = found.index_copy(0, chosen, whole)
    return answers.reader.of_all_prompts(tuned, found.view(len(rows), len(tuned.kept), count), dropped=-torch.inf)
