"""Candidates through the tree of their tokens get what each would get by itself, gradients included."""

import agreement
import pytest
import torch
from agreement import GLUED_Y, exact, moved, usable, words
from builders import tiny_walks

from askwell.answers import tree as answer_tree
from askwell.answers.tree import Trie, candidate_log_probs
from askwell.lms.batches import Words
from askwell.lms.frozen import FrozenLM
from askwell.prompts import pairs
from askwell.prompts.long_answers import length_log_probs
from askwell.specs.mixture_spec import MixtureSpec

XS = ["Reykjavik", "Paris", "Mary Cassatt"]
CANDIDATES = [
    "Iceland", "Peru", "Mary Cassatt", "Mary", "Ice", "Massachusetts", "Reykjavik", "Rome", "Mary Boston", "Peru Peru",
]  # fmt: skip


@pytest.fixture(autouse=True)
def _exact(monkeypatch: pytest.MonkeyPatch) -> None:
    target = "transformers.models.modernbert.modeling_modernbert.apply_rotary_pos_emb"
    monkeypatch.setattr(target, agreement.exact_rotary)
    target = "transformers.models.gemma2.modeling_gemma2.eager_attention_forward"
    monkeypatch.setattr(target, agreement.exact_eager_attention)


def one_by_one(mixture, xs: Words, facts, candidates: Words, log_lengths) -> torch.Tensor:
    """log p(c | t, x), each candidate scored as the only one."""
    count, each = candidates.lengths.shape[1], []
    for number in range(count):
        same = torch.full((xs.lengths.shape[1],), number)
        ys = Words(candidates.ids[:, same], candidates.lengths[:, same])
        each.append(mixture.long_answers.log_probs(mixture.tuned, xs, ys, facts, log_lengths))
    return torch.stack(each, 2)


def compare(mixture, xs: Words, facts, candidates: Words, log_lengths) -> None:
    count = candidates.lengths.shape[1]
    weights = torch.linspace(0.5, 2.0, len(facts) * len(mixture.tuned.kept) * count, dtype=torch.float64)
    found = []
    for in_a_tree in (True, False):
        mixture.zero_grad()
        if in_a_tree:
            log_probs = candidate_log_probs(mixture.long_answers, mixture.tuned, xs, facts, candidates, log_lengths)
        else:
            log_probs = one_by_one(mixture, xs, facts, candidates, log_lengths)
        assert log_probs.shape == (len(facts), len(mixture.prompts), count)
        (log_probs[:, mixture.tuned.kept].flatten() * weights).sum().backward()
        found.append((log_probs.detach(), agreement.gradients(mixture)))
    (ours, our_gradients), (theirs, their_gradients) = found
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-9)
    assert bool(their_gradients["vectors"].any())
    for name, gradient in their_gradients.items():
        torch.testing.assert_close(our_gradients[name], gradient, rtol=0, atol=1e-7)
    with torch.no_grad():
        plain = candidate_log_probs(mixture.long_answers, mixture.tuned, xs, facts, candidates, log_lengths)
    torch.testing.assert_close(plain, theirs, rtol=0, atol=1e-9)


@pytest.mark.parametrize("deep", [False, True])
@pytest.mark.parametrize("name", ["bert", "roberta", "bart", "gpt2", "llama", "modernbert"])
def test_a_tree_gives_what_one_candidate_at_a_time_gives(name: str, deep: bool) -> None:
    lm = exact(name)
    mixture = moved(lm, [*usable(name)[:3], GLUED_Y, *usable(name)[5:6]], MixtureSpec(deep=deep))
    xs, facts = words(lm, XS)
    candidates, _ = words(lm, CANDIDATES)
    longest = int(candidates.lengths.max())
    log_lengths = length_log_probs([1, 2, 2, 3, longest]) if mixture.long_answers.fills_masks else None
    compare(mixture, xs, facts[[2, 0]], candidates, log_lengths)


@pytest.mark.parametrize("name", ["bart", "gpt2", "llama"])
def test_a_tree_in_batches_that_share_nodes(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """More nodes than stand together: those above a batch are in it, too, and are not read again."""
    monkeypatch.setattr(answer_tree, "_NODES_TOGETHER", 3)
    monkeypatch.setattr("askwell.lms.walks.output._COLUMNS_AT_ONCE", 7)
    lm = exact(name)
    mixture = moved(lm, [*usable(name)[:2], GLUED_Y])
    xs, facts = words(lm, XS)
    candidates, _ = words(lm, CANDIDATES)
    compare(mixture, xs, facts, candidates, None)


@pytest.mark.parametrize("name", ["gpt2", "bart", "gemma2", "pythia"])
def test_an_lm_without_a_walk(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    lm = exact(name)
    mixture = moved(lm, usable(name)[:2])
    xs, facts = words(lm, XS)
    candidates, _ = words(lm, CANDIDATES[:5])
    walked = candidate_log_probs(mixture.long_answers, mixture.tuned, xs, facts, candidates)
    monkeypatch.setattr(lm, "walk", None)
    whole = candidate_log_probs(mixture.long_answers, mixture.tuned, xs, facts, candidates)
    torch.testing.assert_close(whole, walked, rtol=0, atol=1e-9)
    compare(mixture, xs, facts[:1], candidates, None)


def test_candidates_that_outgrow_a_window(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every question fits into the window, but not with the longest candidate after it."""
    lengths = []
    for window in (64, 11):
        lm = FrozenLM(*tiny_walks.make_mistral(window), dtype=torch.float64)
        mixture = moved(lm, usable("mistral")[:1])
        xs, facts = words(lm, XS)
        lengths = mixture.long_answers.table.lengths(xs, facts, torch.zeros_like(facts))
        candidates, _ = words(lm, CANDIDATES)
        found = candidate_log_probs(mixture.long_answers, mixture.tuned, xs, facts, candidates)
        monkeypatch.setattr(lm, "walk", None)
        whole = candidate_log_probs(mixture.long_answers, mixture.tuned, xs, facts, candidates)
        torch.testing.assert_close(found, whole, rtol=0, atol=1e-6)
    assert int(lengths.max()) <= 11 < int(lengths.max() + candidates.lengths.max())


@pytest.mark.parametrize("name", ["bert", "gpt2"])
def test_in_small_parts_and_computed_again_for_gradients(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answer_tree, "_ROWS_AT_ONCE", 4)
    monkeypatch.setattr("askwell.lms.walks.output._ROWS_AT_ONCE", 2)
    monkeypatch.setattr(answer_tree, "_KEPT_BYTES", 1)
    monkeypatch.setattr(pairs, "_TRAINING_BYTES", 1)
    monkeypatch.setattr("askwell.lms.walks.output._LOGITS_AT_ONCE", 500)
    lm = exact(name)
    mixture = moved(lm, usable(name)[:2], MixtureSpec(deep=True))
    xs, facts = words(lm, XS)
    candidates, _ = words(lm, CANDIDATES)
    compare(mixture, xs, facts, candidates, None)


def test_dropped_prompts_and_lengths_without_probability_give_nothing() -> None:
    lm = exact("bert")
    mixture = moved(lm, usable("bert")[:3])
    mixture.weight_logits.data[1] = -torch.inf
    xs, facts = words(lm, XS)
    candidates, _ = words(lm, CANDIDATES)
    log_lengths = length_log_probs([1, 2])
    found = candidate_log_probs(mixture.long_answers, mixture.tuned, xs, facts, candidates, log_lengths)
    assert bool((found[:, 1] == -torch.inf).all())
    is_short = candidates.lengths[0] <= 2
    assert bool(is_short.any())
    assert bool((~is_short).any())
    assert bool(found[:, [0, 2]][:, :, is_short].isfinite().all())
    assert bool((found[:, :, ~is_short] == -torch.inf).all())


def test_all_candidates_of_one_token_need_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    lm = exact("bert")
    mixture = moved(lm, usable("bert")[:1])
    xs, facts = words(lm, ["Paris"])
    candidates, _ = words(lm, ["Rome", "Peru", "Oslo", "Lima"])
    read, several = [], lm.several_log_probs_of

    def counting(batch, *others):
        read.append(len(batch.read_pairs))
        return several(batch, *others)

    monkeypatch.setattr(lm, "several_log_probs_of", counting)
    candidate_log_probs(mixture.long_answers, mixture.tuned, xs, facts, candidates)
    assert read == [1]


def test_a_tree_by_hand() -> None:
    trie = Trie.of([[5, 6], [5], [7, 6, 8], [5, 6], []], torch.device("cpu"))
    assert trie.tokens.tolist() == [0, 5, 6, 7, 6, 8]
    assert trie.parents.tolist() == [0, 0, 1, 0, 3, 4]
    assert trie.paths.tolist() == [[1, 2, 0], [1, 0, 0], [3, 4, 5], [1, 2, 0], [0, 0, 0]]
    assert trie.ends.tolist() == [2, 1, 5, 2, 0]
    assert trie.spelt(torch.tensor([0, 4, 1]), 3, 9).tolist() == [[9, 9, 9], [7, 6, 9], [5, 9, 9]]
    rows, columns, tokens = trie.children_and_ends.at(torch.tensor([1, 0]))
    assert list(zip(rows.tolist(), columns.tolist(), tokens.tolist(), strict=True)) == [
        (0, 2, 6), (0, 7, -1), (1, 1, 5), (1, 3, 7), (1, 6, -1),
    ]  # fmt: skip


def test_batches_by_hand() -> None:
    """The tree 1 → (2 → 3, 4), 5: three nodes together, of which those above the first come again."""
    trie = Trie.of([[5, 6, 7], [5, 8], [9]], torch.device("cpu"))
    batches = trie.batches(3)
    assert batches.lengths.tolist() == [5]  # never fewer than twice the depth: six
    trie = Trie.of([[5, 6, 7], [5, 6, 8], [5, 6, 9], [5, 6, 10], [5, 6, 11], [12]], torch.device("cpu"))
    batches = trie.batches(3)
    assert batches.nodes.tolist() == [[1, 2, 3, 4, 5, 6], [1, 2, 7, 8, 0, 0]]
    assert batches.lengths.tolist() == [6, 4]
    assert batches.is_new.int().tolist() == [[1, 1, 1, 1, 1, 1], [0, 0, 1, 1, 0, 0]]
    assert batches.sees[1].int().tolist() == [
        [1, 0, 0, 0, 0, 0],
        [1, 1, 0, 0, 0, 0],
        [1, 1, 1, 0, 0, 0],
        [0, 0, 0, 1, 0, 0],
        [0] * 6,
        [0] * 6,
    ]
