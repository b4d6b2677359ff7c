"""Sentences that go on from a kept beginning give what whole sentences give, gradients included."""

import agreement
import pytest
import torch
from agreement import CAUSAL, SEQ2SEQ, exact, moved, plain, usable, words

from askwell.lms.batches import AnswerTokens, Batch, StreamBatch
from askwell.lms.walks.past import KeptRows, Past, Paths
from askwell.specs.mixture import MixtureSpec

XS = ["Paris", "Reykjavik", "Mary Cassatt"]
YS = [[7, 12, 9], [7, 12], [30], [7, 3, 8], [11, 2, 5], [9]]
CONTEXTS = [0, 0, 0, 1, 2, 2]
"""The beginning that each y goes on from."""


def answers(ids: list[list[int]], first_read: int = 0) -> AnswerTokens:
    lengths = torch.tensor([len(row) for row in ids])
    longest = max(map(len, ids))
    padded = torch.tensor([row + [0] * (longest - len(row)) for row in ids], dtype=torch.long).view(len(ids), longest)
    return AnswerTokens(padded, lengths, torch.full_like(lengths, first_read), lengths + 1 - first_read)


def beginnings(lm, kept, batch: Batch) -> Past:
    """The kept beginnings of all pairs of a batch."""
    lengths = [stream.lengths for stream in batch.streams.values()]
    source = Paths.consecutive(kept.source_first, lengths[0]) if kept.source_first is not None else None
    return Past(kept.rows, Paths.consecutive(kept.first, lengths[-1]), source)


def going_on(past: Past, chosen: torch.Tensor) -> Past:
    return Past(past.kept, past.paths.of(chosen), None if past.source is None else past.source.of(chosen))


@pytest.mark.parametrize("precision", ["float64", "float32"])
@pytest.mark.parametrize("deep", [False, True])
@pytest.mark.parametrize("name", [*CAUSAL, *SEQ2SEQ])
def test_going_on_from_a_kept_beginning(name: str, deep: bool, precision: str) -> None:
    lm = exact(name) if precision == "float64" else plain(name)
    mixture = moved(lm, usable(name), MixtureSpec(deep=deep))
    table, deltas = mixture.long_answers.table, mixture.layer_deltas or None
    xs, facts = words(lm, XS)
    prompts = torch.tensor([1, 0, 2])
    contexts = torch.tensor(CONTEXTS)
    last = list(lm.stacks)[-1]
    tokens = torch.arange(40) * 5 % lm.vocabulary_size
    weights = torch.arange(1.0, 41.0, dtype=lm.dtype)

    whole = table.answer_batch(xs, facts[contexts], prompts[contexts], answers(YS))
    reads = torch.arange(len(whole.read_pairs))
    log_probs, log_totals = lm.log_probs_of(whole, mixture.vectors, deltas, tokens[reads])
    (log_probs * weights[reads]).sum().backward()
    expected = [log_probs, log_totals, *agreement.gradients(mixture).values()]

    mixture.zero_grad()
    held = table.answer_batch(xs, facts, prompts, answers([[], [], []]))
    none = torch.zeros(0, dtype=torch.long)
    _, first_totals, kept = lm.several_log_probs_of(held, mixture.vectors, deltas, none, none, keeps=True)
    assert kept is not None
    past = beginnings(lm, kept, held)
    lengths = torch.tensor(list(map(len, YS)))
    own = StreamBatch(answers(YS).ids, torch.full((len(YS), 3), -1), lengths)
    read_pairs = torch.arange(len(YS)).repeat_interleave(lengths)
    nth = torch.cat([torch.arange(length) for length in lengths.tolist()])
    later = Batch({last: own}, read_pairs, nth, going_on(past, contexts))
    # The first token of a y is read from the beginning itself, the others from the y's own rows.
    is_first = torch.cat([torch.arange(length + 1) == 0 for length in lengths.tolist()])
    of_first, _, _ = lm.several_log_probs_of(held, mixture.vectors, deltas, contexts, tokens[reads][is_first])
    every = torch.arange(len(read_pairs))
    of_later, later_totals, kept_later = lm.several_log_probs_of(
        later, mixture.vectors, deltas, every, tokens[reads][~is_first], keeps=True
    )
    joined = torch.zeros(len(reads), dtype=lm.dtype).masked_scatter(is_first, of_first)
    joined = joined.masked_scatter(~is_first, of_later)
    (joined * weights[reads]).sum().backward()
    totals = torch.zeros_like(joined).masked_scatter(is_first, first_totals[contexts])
    totals = totals.masked_scatter(~is_first, later_totals)
    ours = [joined, totals, *agreement.gradients(mixture).values()]
    assert bool(expected[2].any())
    for number, (one, other) in enumerate(zip(ours, expected, strict=True)):
        near = (
            (1e-9 if number < 2 else 1e-7)
            if precision == "float64"
            else 5e-5 * max(1.0, float(other.detach().abs().max()))
        )
        torch.testing.assert_close(one, other, atol=near, rtol=0)
    assert kept_later is not None
    assert kept_later.rows.count == int(lengths.sum())


@pytest.mark.parametrize("name", [*CAUSAL, *SEQ2SEQ])
def test_token_by_token(name: str) -> None:
    """Each step keeps one row more; what is kept without gradients is a constant."""
    lm = exact(name)
    mixture = moved(lm, usable(name), MixtureSpec(deep=True))
    table, deltas, last = mixture.long_answers.table, mixture.layer_deltas, list(lm.stacks)[-1]
    xs, facts = words(lm, XS)
    prompts, ys = torch.tensor([1, 0, 2]), torch.tensor([[7, 12, 9], [30, 2, 4], [8, 8, 8]])
    whole = table.answer_batch(xs, facts, prompts, answers(ys.tolist(), first_read=3))
    expected = lm.logits(whole, mixture.vectors, deltas)
    held = table.answer_batch(xs, facts, prompts, answers([[], [], []]))
    logits, kept = lm.logits_and_kept(held, mixture.vectors, deltas)
    assert [len(part) for part in logits] == [1, 1, 1]
    past = beginnings(lm, kept, held)
    rows: KeptRows = past.kept
    for step in range(3):
        stream = StreamBatch(ys[:, step, None], torch.full((3, 1), -1), torch.ones(3, dtype=torch.long))
        batch = Batch({last: stream}, facts, torch.zeros_like(facts), past)
        logits, kept = lm.logits_and_kept(batch, mixture.vectors, deltas, at_once=2)
        found = torch.cat(list(logits))
        assert not kept.rows.layers[0][0].requires_grad
        rows, first = rows.followed_by(kept.rows), rows.count
        past = Past(rows, past.paths.then(first + kept.first), past.source)
    torch.testing.assert_close(found, expected, atol=1e-9, rtol=0)


def test_paths_by_hand() -> None:
    paths = Paths.consecutive(torch.tensor([4, 0]), torch.tensor([2, 3]))
    assert paths.in_a_row().tolist() == [4, 5, 0, 1, 2]
    longer = paths.of(torch.tensor([1, 0, 0])).then(torch.tensor([9, 8, 7]))
    assert longer.lengths.tolist() == [4, 3, 3]
    assert longer.in_a_row().tolist() == [0, 1, 2, 9, 4, 5, 8, 4, 5, 7]
