"""Many candidates at once: log p(c | t, x) of every candidate, each of their common prefixes read once.

Causal LMs and decoders go through the tree of the candidates' tokens level by level: each node is read once for a pair
of a fact and a prompt, as one token after the kept keys and values of what stands before it. A masked LM has a tree
for each number of tokens, and reads a sentence for each of its inner nodes: all candidates of one token come from one
sentence. All tokens that follow a node are read from its one distribution.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from askwell.lms.batches import AnswerTokens, Words
from askwell.lms.walks.past import Past, ranges
from askwell.mixture.pairs import Tuned

if TYPE_CHECKING:
    from askwell.mixture.long_answers import LongAnswers

# Nodes that are read at once: enough to fill the machine.
_ROWS_AT_ONCE = 1024
# What is kept of the nodes of the pairs that are scored at once.
_KEPT_BYTES = 2**28


@dataclass(frozen=True)
class Trie:
    """The tokens of candidates as a tree, whose root is node 0; a parent comes before its children."""

    tokens: Int[Tensor, " nodes"]
    parents: Int[Tensor, " nodes"]
    depths: Int[Tensor, " nodes"]
    ways: Int[Tensor, "candidates longest"]
    """The nodes that spell each candidate, then the root."""
    ends: Int[Tensor, " candidates"]
    """The node at which each candidate ends."""

    @classmethod
    def of(cls, candidates: Sequence[Sequence[int]], device: torch.device) -> "Trie":
        """The tree of these token sequences."""
        known: dict[tuple[int, int], int] = {}
        tokens, parents, depths, ways = [0], [0], [0], []
        for candidate in candidates:
            node, way = 0, []
            for depth, token in enumerate(candidate, start=1):
                if (node, token) not in known:
                    known[node, token] = len(tokens)
                    tokens.append(token)
                    parents.append(node)
                    depths.append(depth)
                node = known[node, token]
                way.append(node)
            ways.append(way)
        longest = max(map(len, ways), default=0)
        padded = [way + [0] * (longest - len(way)) for way in ways]
        return cls(
            *(torch.tensor(each, device=device) for each in (tokens, parents, depths)),
            torch.tensor(padded, dtype=torch.long, device=device).view(len(ways), longest),
            torch.tensor([way[-1] if way else 0 for way in ways], dtype=torch.long, device=device),
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
        """The same, and that a candidate ends at a node: the column behind all nodes, with the token -1."""
        ended, device = self.ends.unique(), self.tokens.device
        nodes = torch.cat([self.parents[1:], ended])
        columns = torch.cat([torch.arange(1, len(self), device=device), len(self) + ended])
        tokens = torch.cat([self.tokens[1:], torch.full_like(ended, -1)])
        return Targets.of(nodes, columns, tokens, len(self))

    def spelt(self, nodes: Int[Tensor, " nodes"], longest: int, filler: int) -> Int[Tensor, "nodes longest"]:
        """The tokens from the root to each node, and then a filler."""
        ids = torch.full((len(nodes), longest), filler, device=nodes.device)
        at = nodes
        for _ in range(int(self.depths[nodes].max()) if len(nodes) else 0):
            below = (at > 0).nonzero()[:, 0]
            ids[below, self.depths[at[below]] - 1] = self.tokens[at[below]]
            at = self.parents[at]
        return ids


@dataclass(frozen=True)
class Targets:
    """What is read at each node: tokens, and the columns into which their log-probabilities go."""

    columns: Int[Tensor, " targets"]
    tokens: Int[Tensor, " targets"]
    first: Int[Tensor, " nodes"]
    counts: Int[Tensor, " nodes"]

    @classmethod
    def of(cls, nodes: Tensor, columns: Tensor, tokens: Tensor, count: int) -> "Targets":
        """From targets in any order; there are so many nodes."""
        order = nodes.argsort(stable=True)
        counts = torch.bincount(nodes, minlength=count)
        return cls(columns[order], tokens[order], counts.cumsum(0) - counts, counts)

    def at(self, nodes: Int[Tensor, " rows"]) -> tuple[Tensor, Tensor, Tensor]:
        """For rows that stand at these nodes: the row, the column and the token of each target."""
        counts = self.counts[nodes]
        rows = torch.arange(len(nodes), device=nodes.device).repeat_interleave(counts)
        chosen = ranges(self.first[nodes], counts)
        return rows, self.columns[chosen], self.tokens[chosen]


class CandidateReader:
    """Scores candidates under a mixture's prompts, as they are now."""

    def __init__(self, answers: "LongAnswers", tuned: Tuned, xs: Words) -> None:
        self._answers, self._tuned, self._xs, self._lm = answers, tuned, xs, answers.lm

    def log_probs(
        self, candidates: Sequence[Sequence[int]], texts: Int[Tensor, " pairs"], prompts: Int[Tensor, " pairs"]
    ) -> Float[Tensor, "pairs candidates"]:
        """log p(c | t, x) of candidates in tokens for pairs whose prompts take y in one form, with gradients; p(m | r)
        of a masked LM left out."""
        device = self._lm.device
        if not self._answers.fills_masks:
            trie = Trie.of(candidates, device)
            parts = [self._through(trie, texts[some], prompts[some]) for some in self._chunks(trie, texts, prompts)]
            return torch.cat(parts)
        lengths = torch.tensor([len(candidate) for candidate in candidates], device=device)
        found = torch.zeros(len(texts), len(candidates), dtype=self._lm.parameter_dtype, device=device)
        for length in lengths.unique().tolist():
            chosen = (lengths == length).nonzero()[:, 0]
            trie = Trie.of([candidates[number] for number in chosen.tolist()], device)
            found = found.index_copy(1, chosen, self._filling(trie, length, texts, prompts))
        return found

    def _chunks(self, trie: Trie, texts: Tensor, prompts: Tensor) -> Iterator[slice]:
        """Pairs of whose trees no more is kept than fits; with gradients all of it is kept, whatever is done."""
        number = torch.finfo(self._lm.dtype).bits // 8
        of_token = sum(2 * number * stack.layers * stack.width for stack in self._lm.stacks.values())
        tokens = int(self._answers.table.lengths(self._xs, texts, prompts).max()) + len(trie)
        at_once = len(texts) if torch.is_grad_enabled() else max(1, _KEPT_BYTES // (tokens * of_token))
        return (slice(start, start + at_once) for start in range(0, len(texts), at_once))

    # ── causal LMs and decoders ───────────────────────────────────────────────────────────────────────────────────

    def _through(self, trie: Trie, texts: Tensor, prompts: Tensor) -> Float[Tensor, "pairs candidates"]:
        """Through the tree, level by level."""
        pairs, nodes, device = len(texts), len(trie), self._lm.device
        ends, targets = self._answers.ends_of(self._xs, texts, prompts), trie.children_and_ends
        tokens = int(self._answers.table.lengths(self._xs, texts, prompts).sum()) + pairs * nodes
        recompute = self._answers.reader.must_recompute(tokens)
        values: list[Tensor] = []
        places: list[Tensor] = []

        def read(hidden: Tensor, of_pairs: Tensor, at: Tensor) -> None:
            """Takes the log-probabilities of all that follows some nodes."""
            rows, columns, wanted = targets.at(at)
            wanted = torch.where(wanted < 0, ends[of_pairs[rows]], wanted)
            log_probs, log_totals = self._lm.log_probs_of_hidden(hidden, rows, wanted)
            self._answers.reader.refuse_not_finite(of_pairs, prompts, log_totals)
            values.append(log_probs)
            places.append(of_pairs[rows] * 2 * nodes + columns)

        hidden, past = self._answers.beginnings(self._tuned, self._xs, texts, prompts, recompute=recompute)
        every = torch.arange(pairs, device=device)
        read(hidden, every, torch.zeros_like(every))
        place_above = torch.zeros(nodes, dtype=torch.long, device=device)  # of each node among those kept of its level
        kept_above = 1
        walk, is_inner = self._hidden_and_kept(recompute), trie.children.counts > 0
        for depth in range(1, int(trie.depths.max()) + 1):
            at_depth = trie.depths == depth
            inner, leaves = (at_depth & is_inner).nonzero()[:, 0], (at_depth & ~is_inner).nonzero()[:, 0]
            # The inner nodes of all pairs come first: what is read of the others is not needed again.
            at = torch.cat([inner.repeat(pairs), leaves.repeat(pairs)])
            of_pairs = torch.cat([every.repeat_interleave(len(some)) for some in (inner, leaves)])
            seen, kept_rows = of_pairs * kept_above + place_above[trie.parents[at]], pairs * len(inner)
            own: list[Past] = []
            for start in range(0, len(at), _ROWS_AT_ONCE):
                rows = slice(start, start + _ROWS_AT_ONCE)
                batch = self._answers.next_tokens(trie.tokens[at[rows]], past.of(seen[rows]))
                hidden, kept = walk(batch, self._tuned.vectors, self._tuned.deltas, keeps=start < kept_rows)
                read(hidden, of_pairs[rows], at[rows])
                if kept is not None:
                    own.append(kept.of(torch.arange(min(len(hidden), kept_rows - start), device=device)))
            if own:
                past = past.of(seen[:kept_rows]).with_own(Past.joined(own))
                place_above[inner] = torch.arange(len(inner), device=device)
                kept_above = len(inner)
        table = _table(values, places, (pairs, 2 * nodes))
        return table[:, trie.ways].sum(2) + table[:, nodes + trie.ends]

    def _hidden_and_kept(self, recompute: bool) -> Callable[..., tuple[Tensor, Past | None]]:
        read: Any = self._lm.hidden_and_kept
        return partial(checkpoint, read, use_reentrant=False, preserve_rng_state=False) if recompute else read

    # ── masked LMs ────────────────────────────────────────────────────────────────────────────────────────────────

    def _filling(self, trie: Trie, length: int, texts: Tensor, prompts: Tensor) -> Float[Tensor, "pairs candidates"]:
        """Candidates of one length: as many masks, of which the first are filled in with each common prefix."""
        pairs, device, answers = len(texts), self._lm.device, self._answers
        nodes = trie.children.counts.nonzero()[:, 0]
        filled = trie.spelt(nodes, length, self._lm.special.mask)
        of_pairs, rows = torch.arange(pairs, device=device).repeat_interleave(len(nodes)), nodes.repeat(pairs)
        ones = torch.ones_like(rows)
        ys = AnswerTokens(filled.repeat(pairs, 1), length * ones, trie.depths[rows], ones)
        sizes = answers.table.lengths(self._xs, texts[of_pairs], prompts[of_pairs]) + length
        read: Any = self._lm.several_log_probs_of
        if answers.reader.must_recompute(int(sizes.sum())):
            read = partial(checkpoint, read, use_reentrant=False, preserve_rng_state=False)
        values, places = [], []
        for chosen in answers.reader.batches(sizes, 1):
            asked = of_pairs[chosen]
            batch = answers.table.answer_batch(self._xs, texts[asked], prompts[asked], ys.of(chosen))
            reads, columns, tokens = trie.children.at(rows[chosen])
            log_probs, log_totals = read(batch, self._tuned.vectors, self._tuned.deltas, reads, tokens)
            answers.reader.refuse_not_finite(batch.read_pairs, prompts[asked], log_totals)
            values.append(log_probs)
            places.append(asked[reads] * len(trie) + columns)
        return _table(values, places, (pairs, len(trie)))[:, trie.ways].sum(2)


def _table(values: Sequence[Tensor], places: Sequence[Tensor], shape: tuple[int, int]) -> Tensor:
    """The values at their places, 0 elsewhere."""
    together = torch.cat(list(values))
    flat = together.new_zeros(shape[0] * shape[1]).index_copy(0, torch.cat(list(places)), together)
    return flat.view(shape)
