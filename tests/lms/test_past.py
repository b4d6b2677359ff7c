"""Sentences continued from a cached prefix give what whole sentences give, gradients included."""

import agreement
import pytest
import torch
from agreement import CAUSAL, FURTHER_CAUSAL, SEQ2SEQ, exact, moved, plain, usable, words
from builders.specs import paper_spec

from askwell.lms.batches import AnswerTokens, Batch, StreamBatch
from askwell.lms.walks.past import Paths

XS = ["Paris", "Reykjavik", "Mary Cassatt"]
YS = [[7, 12, 9], [7, 12], [30], [7, 3, 8], [11, 2, 5], [9]]
CONTEXTS = [0, 0, 0, 1, 2, 2]
"""The beginning that each y goes on from."""


def answers(ids: list[list[int]], first_read: int = 0) -> AnswerTokens:
    lengths = torch.tensor([len(row) for row in ids])
    longest = max(map(len, ids))
    padded = torch.tensor([row + [0] * (longest - len(row)) for row in ids], dtype=torch.long).view(len(ids), longest)
    return AnswerTokens(padded, lengths, torch.full_like(lengths, first_read), lengths + 1 - first_read)


@pytest.mark.parametrize("precision", ["float64", "float32"])
@pytest.mark.parametrize("deep", [False, True])
@pytest.mark.parametrize("name", [*CAUSAL, *SEQ2SEQ, *FURTHER_CAUSAL])
def test_going_on_from_a_kept_beginning(name: str, deep: bool, precision: str) -> None:
    lm = exact(name) if precision == "float64" else plain(name)
    mixture = moved(lm, usable(name), paper_spec(deep=deep))
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
    hidden, past = lm.hidden_and_kept(held, mixture.vectors, deltas)
    assert past is not None
    lengths = torch.tensor(list(map(len, YS)))
    own = StreamBatch(answers(YS).ids, torch.full((len(YS), 3), -1), lengths)
    read_pairs = torch.arange(len(YS)).repeat_interleave(lengths)
    nth = torch.cat([torch.arange(length) for length in lengths.tolist()])
    later = Batch({last: own}, read_pairs, nth, past.of(contexts))
    # The first token of a y is read from the beginning itself, the others from the y's own rows.
    is_first = torch.cat([torch.arange(length + 1) == 0 for length in lengths.tolist()])
    of_first, first_totals = lm.head.several_log_probs_of(hidden, contexts, tokens[reads][is_first])
    every = torch.arange(len(read_pairs))
    of_later, later_totals = lm.several_log_probs_of(later, mixture.vectors, deltas, every, tokens[reads][~is_first])
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


@pytest.mark.parametrize("name", [*CAUSAL, *SEQ2SEQ, *FURTHER_CAUSAL])
def test_token_by_token(name: str) -> None:
    """Each step keeps one row more."""
    lm = exact(name)
    mixture = moved(lm, usable(name), paper_spec(deep=True))
    table, deltas, last = mixture.long_answers.table, mixture.layer_deltas, list(lm.stacks)[-1]
    xs, facts = words(lm, XS)
    prompts, ys = torch.tensor([1, 0, 2]), torch.tensor([[7, 12, 9], [30, 2, 4], [8, 8, 8]])
    whole = table.answer_batch(xs, facts, prompts, answers(ys.tolist(), first_read=3))
    expected = lm.logits(whole, mixture.vectors, deltas)
    held = table.answer_batch(xs, facts, prompts, answers([[], [], []]))
    with torch.no_grad():
        _, past = lm.hidden_and_kept(held, mixture.vectors, deltas)
        for step in range(3):
            assert past is not None
            stream = StreamBatch(ys[:, step, None], torch.full((3, 1), -1), torch.ones(3, dtype=torch.long))
            batch = Batch({last: stream}, facts, torch.zeros_like(facts), past)
            hidden, own = lm.hidden_and_kept(batch, mixture.vectors, deltas)
            assert own is not None
            past = past.with_own(own)
    found = lm.head.logits(hidden)
    torch.testing.assert_close(found, expected, atol=1e-9, rtol=0)


def test_paths_by_hand() -> None:
    paths = Paths.consecutive(torch.tensor([4, 0]), torch.tensor([2, 3]))
    assert paths.in_a_row().tolist() == [4, 5, 0, 1, 2]
    own = Paths.consecutive(torch.tensor([2, 1, 0]), torch.tensor([1, 1, 1]))
    longer = paths.of(torch.tensor([1, 0, 0])).followed_by(own, rows_before=7)
    assert longer.lengths.tolist() == [4, 3, 3]
    assert longer.in_a_row().tolist() == [0, 1, 2, 9, 4, 5, 8, 4, 5, 7]
