"""Walks give what the public models give, and are used only where they do."""

import itertools
from dataclasses import replace
from typing import Any

import agreement
import pytest
import torch
from agreement import ALL, FURTHER, exact, moved, usable, words
from builders import tiny, tiny_walks
from builders.specs import paper_spec
from torch import Tensor
from transformers import BertForMaskedLM

from askwell.errors import BadOption
from askwell.lms import frozen
from askwell.lms.batches import Batch, StreamBatch
from askwell.lms.frozen import FrozenLM
from askwell.lms.walks import attention
from askwell.lms.walks.attention import attend, attend_fused, groups_of
from askwell.lms.walks.known_models import walk_of
from askwell.lms.walks.layers import FeedForward
from askwell.lms.walks.walk import Rows, pack

XS = ["Paris", "Reykjavik", "Mary Cassatt", "Cuba"]


@pytest.fixture(autouse=True)
def _exact(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "transformers.models.modernbert.modeling_modernbert.apply_rotary_pos_emb", agreement.exact_rotary
    )
    monkeypatch.setattr(
        "transformers.models.gemma2.modeling_gemma2.eager_attention_forward", agreement.exact_eager_attention
    )


@pytest.mark.parametrize("name", [*ALL, *FURTHER])
def test_which_models_are_walked(name: str) -> None:
    """All but the ModernBERT whose window is shorter than any sentence."""
    assert (exact(name).walk is None) == (name == "modernbert")
    assert (agreement.plain(name).walk is None) == (name == "modernbert")


WALKED = [name for name in [*ALL, *FURTHER] if name != "modernbert"]
PRECISIONS = [(name, precision) for precision in ("float64", "float32") for name in WALKED]


@pytest.mark.parametrize("question", ["y", "x"])
@pytest.mark.parametrize("deep", [False, True])
@pytest.mark.parametrize(("name", "precision"), PRECISIONS)
def test_a_walk_gives_what_the_public_model_gives(name: str, precision: str, deep: bool, question: str) -> None:
    lm, templates = exact(name) if precision == "float64" else agreement.plain(name), usable(name)
    mixture = moved(lm, templates, paper_spec(deep=deep, weighting="data-dependent"))
    xs, _ = words(lm, XS)
    table = mixture.pairs.y_table if question == "y" else mixture.pairs.x_table
    facts = torch.tensor([3, 0, 1, 2, 2, 0, 1, 3])
    prompts = torch.tensor([number % len(templates) for number in (0, 1, 2, 3, 4, 3, 2, 1)])
    batch = table.batch(xs, facts, prompts)
    assert len(batch.streams[list(batch.streams)[-1]].lengths.unique()) > 2, "sequences of one length test little"
    tokens = torch.arange(len(batch.read_pairs)) * 5 % lm.vocabulary_size
    deltas = mixture.layer_deltas or None
    found = []
    for use_walk in (True, False):
        mixture.zero_grad()
        log_probs, log_totals = lm.log_probs_of(batch, mixture.vectors, deltas, tokens, use_walk=use_walk)
        (log_probs * torch.arange(1.0, len(tokens) + 1, dtype=log_probs.dtype)).sum().backward()
        found.append([log_probs, log_totals, *agreement.gradients(mixture).values()])
    for ours, theirs in zip(*found, strict=True):
        near = 1e-9 if precision == "float64" else 5e-5 * max(1.0, float(theirs.detach().abs().max()))
        torch.testing.assert_close(ours, theirs, atol=near, rtol=0)
    assert bool(found[0][2].any())


@pytest.mark.filterwarnings("default:The .grad attribute of a Tensor")  # torch's own, while it traces
@pytest.mark.parametrize("name", ["bert", "llama", "gpt2"])
def test_compiled_feed_forward_blocks_give_what_the_plain_ones_give(name: str) -> None:
    lm, mixture = exact(name), moved(exact(name), usable(name), paper_spec(deep=True))
    blocks = FeedForward(compiled=True, backend="aot_eager")  # all of torch.compile but the making of kernels
    xs, _ = words(lm, XS)
    found = []
    for count in (8, 5, 3):  # numbers of rows differ, and the compiled function serves them all
        facts, prompts = torch.tensor([3, 0, 1, 2, 2, 0, 1, 3])[:count], torch.arange(count) % len(usable(name))
        batch = mixture.pairs.y_table.batch(xs, facts, prompts)
        tokens = torch.arange(len(batch.read_pairs)) * 5 % lm.vocabulary_size
        for walk in (walk_of(lm.model, FeedForward()), walk_of(lm.model, blocks)):
            assert walk is not None
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(lm, "walk", walk)
                mixture.zero_grad()
                log_probs, _ = lm.log_probs_of(batch, mixture.vectors, mixture.layer_deltas, tokens)
                log_probs.sum().backward()
            found.append([log_probs, *agreement.gradients(mixture).values()])
    for plain, compiled in zip(found[::2], found[1::2], strict=True):
        for ours, theirs in zip(compiled, plain, strict=True):
            torch.testing.assert_close(ours, theirs, atol=1e-10, rtol=0)


def test_one_compiled_block_serves_all_layers_and_batches() -> None:
    graphs = []

    def counting(graph: torch.fx.GraphModule, _inputs: list[Tensor]) -> Any:
        graphs.append(graph)
        return graph.forward

    torch._dynamo.reset()
    blocks = FeedForward(compiled=True, backend=counting)
    layers = [[torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.Linear(16, 8), torch.nn.LayerNorm(8)] for _ in "123"]
    for rows in (4, 9, 6, 31):
        for parts in layers:
            blocks.post_norm(*parts, torch.randn(rows, 8))
    assert len(graphs) == 1


@pytest.mark.filterwarnings("default:The .grad attribute of a Tensor")  # torch's own, while it traces
def test_an_lm_that_torch_cannot_compile_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(graph: torch.fx.GraphModule, _inputs: list[Tensor]) -> Any:
        raise RuntimeError("no compiler here")

    model, tokenizer = tiny.TINY["bert"]()
    monkeypatch.setattr(frozen, "FeedForward", lambda **options: FeedForward(**options, backend=broken))
    assert not FrozenLM(model, tokenizer).is_compiled
    with pytest.raises(BadOption, match=r"`compiled` cannot be used here: torch\.compile fails for BertForMaskedLM"):
        FrozenLM(model, tokenizer, compiled=True)
    monkeypatch.setattr(frozen, "FeedForward", lambda **options: FeedForward(**options, backend="aot_eager"))
    assert FrozenLM(model, tokenizer, compiled=True).is_compiled


def test_distributions_and_logits_of_a_walk(monkeypatch: pytest.MonkeyPatch) -> None:
    lm = exact("bert")
    mixture = moved(lm, usable("bert"))
    xs, facts = words(lm, XS)
    batch = mixture.pairs.y_table.batch(xs, facts, torch.tensor([0, 1, 2, 3]))
    walked = lm.logits(batch, mixture.vectors), *lm.distributions(batch, mixture.vectors)
    monkeypatch.setattr(lm, "walk", None)
    monkeypatch.setattr(frozen, "_PROBABILITIES_AT_ONCE", 3 * lm.vocabulary_size)
    logits = lm.logits(batch, mixture.vectors)
    hooked = list(lm.distributions(batch, mixture.vectors))
    torch.testing.assert_close(walked[0], logits, atol=1e-11, rtol=0)
    assert len(walked) == 2, "all places fit at once"
    assert [len(part) for _, part, _ in hooked] == [3, 1]
    for some, probabilities, log_totals in (walked[1], *hooked):
        torch.testing.assert_close(probabilities, logits[some].softmax(1), atol=1e-11, rtol=0)
        torch.testing.assert_close(log_totals, logits[some].logsumexp(1), atol=1e-11, rtol=0)


class OwnBert(BertForMaskedLM):
    """A class that askwell does not know, although it is made of known parts."""


def test_a_class_that_is_not_known_runs_as_a_whole() -> None:
    model, tokenizer = tiny.TINY["bert"]()
    assert FrozenLM(tiny.as_class(OwnBert, model), tokenizer).walk is None


def test_a_model_that_computes_something_else_is_not_walked() -> None:
    model, tokenizer = tiny.TINY["bert"]()
    base: Any = model.base_model
    part = base.encoder.layer[1].attention.output
    public = part.forward
    part.forward = lambda hidden, residual: 1.001 * public(hidden, residual)
    assert FrozenLM(model, tokenizer).walk is None


class SentencesOnly(torch.nn.Module):
    """A part that takes [sentences, tokens, width] and nothing else."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(width, width)

    def forward(self, hidden: Tensor) -> Tensor:
        sentences, tokens, width = hidden.shape
        return self.linear(hidden.view(sentences * tokens, width)).view(sentences, tokens, width)


def test_a_model_with_a_part_that_cannot_be_walked_runs_as_a_whole() -> None:
    model, tokenizer = tiny.TINY["bert"]()
    base: Any = model.base_model
    base.encoder.layer[0].attention.self.query = SentencesOnly(24)
    assert FrozenLM(model, tokenizer).walk is None


def test_a_window_that_no_sentence_fits_into_is_not_walked() -> None:
    assert FrozenLM(*tiny_walks.make_qwen2(window=None)).walk is not None
    assert FrozenLM(*tiny_walks.make_qwen2(window=3)).walk is None
    assert FrozenLM(*tiny_walks.make_opt(before=False)).walk is None


WINDOWED = [tiny_walks.make_qwen2, tiny_walks.make_mistral, tiny_walks.make_gemma2, tiny_walks.make_gemma3]
WINDOWED += [tiny_walks.make_modernbert_wide]


@pytest.mark.parametrize("make", WINDOWED)
def test_sentences_longer_than_a_window_go_through_the_whole_model(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each batch takes the way that is right for it; a walk through the longer ones would give something else."""
    lm = FrozenLM(*make(window=6), dtype=torch.float64)
    assert lm.walk is not None
    walked = []
    real = lm.walk.hidden
    monkeypatch.setattr(lm, "walk", replace(lm.walk, hidden=lambda *given: walked.append(1) or real(*given)))
    vectors = torch.randn(1, lm.embedding_size, generator=torch.Generator().manual_seed(0), dtype=torch.float64)

    def read(length: int) -> tuple[Tensor, Batch]:
        ids = (torch.arange(length) * 7 % 60 + 5).expand(2, -1)
        prompt_tokens = torch.full_like(ids, -1)
        prompt_tokens[:, 0] = 0
        stream = StreamBatch(ids, prompt_tokens, torch.tensor([length, 2]))
        batch = Batch({"layers": stream}, torch.tensor([0, 1]), torch.tensor([length - 1, 1]))
        inputs = lm.word_vectors(ids).index_put((torch.arange(2), torch.zeros(2, dtype=torch.long)), vectors[0])
        whole = lm.model(inputs_embeds=inputs[:1]).logits[0, -1]
        torch.testing.assert_close(lm.logits(batch, vectors)[0], whole, atol=1e-6, rtol=0)
        tokens = torch.tensor([3, 4])
        log_probs, _ = lm.log_probs_of(batch, vectors, None, tokens)
        of_several, _ = lm.several_log_probs_of(batch, vectors, None, torch.tensor([0, 1]), tokens)
        torch.testing.assert_close(log_probs[0], whole.log_softmax(0)[3], atol=1e-6, rtol=0)
        torch.testing.assert_close(of_several, log_probs, atol=1e-9, rtol=0)
        (_, probabilities, _), *_rest = lm.distributions(batch, vectors)
        torch.testing.assert_close(probabilities[0], whole.softmax(0), atol=1e-6, rtol=0)
        return whole, batch

    read(6)
    assert len(walked) == 4
    whole, batch = read(12)
    assert len(walked) == 4
    assert lm.can_keep(6)
    assert not lm.can_keep(7)
    with pytest.raises(ValueError, match="more than 6 tokens"):
        lm.hidden_and_kept(batch, vectors)
    monkeypatch.setattr(lm, "window", None)
    assert (lm.logits(batch, vectors)[0] - whole).abs().max() > 1e-3


def test_packing_by_hand() -> None:
    ids = torch.tensor([[5, 6, 7], [8, 0, 0], [9, 10, 11]])
    prompt_tokens = torch.tensor([[-1, 4, -1], [2, -1, -1], [3, -1, 1]])
    stream = StreamBatch(ids, prompt_tokens, torch.tensor([3, 1, 3]))
    packed = pack(Batch({"layers": stream}, torch.tensor([0, 1, 2]), torch.tensor([1, 0, 2])))
    rows = packed.streams["layers"]
    assert rows.ids.tolist() == [8, 5, 6, 7, 9, 10, 11]
    assert rows.positions.tolist() == [0, 0, 1, 2, 0, 1, 2]
    assert rows.tuned.tolist() == [0, 2, 4, 6]
    assert rows.prompt_tokens.tolist() == [2, 4, 3, 1]
    assert rows.lengths == (1, 3, 3)
    assert packed.read_at.tolist() == [0, 2, 6]
    assert packed.reads.prompt_tokens.tolist() == [2, 4, 1]
    assert packed.unsort.tolist() == [1, 0, 2]
    (group,) = groups_of(rows, rows.lengths, causal=False)
    assert group.query_rows.tolist() == [[0, 0, 0], [1, 2, 3], [4, 5, 6]]
    assert group.is_query.tolist() == [[True, False, False], [True] * 3, [True] * 3]
    assert group.visible is not None
    assert group.visible.sum(2).tolist() == [[1], [3], [3]]
    (read,) = groups_of(packed.reads, packed.key_lengths, causal=True)
    assert read.query_rows.tolist() == [[0], [1], [2]]
    assert read.key_rows[:, :4].tolist() == [[0, 0, 0, 0], [1, 2, 3, 3], [4, 5, 6, 6]]
    assert read.visible is not None
    assert read.visible[:, 0, :4].tolist() == [[True] + [False] * 3, [True] * 2 + [False] * 2, [True] * 3 + [False]]


def rows_of(lengths: tuple[int, ...], positions: list[int], sees: Tensor | None = None) -> Rows:
    """Rows of pairs with these lengths; only what attention looks at."""
    nothing = torch.zeros(sum(lengths), dtype=torch.long)
    return Rows(nothing, torch.tensor(positions), nothing[:0], nothing[:0], lengths, sees)


def naive(
    queries: Tensor, keys: Tensor, values: Tensor, rows: Rows, key_lengths: tuple[int, ...], causal: bool, size: int
) -> Tensor:
    """Attention query by query and head by head, with a scale of 0.3."""
    shared = queries.shape[1] // keys.shape[1]
    out, query_row, key_row = [], 0, 0
    for query_count, key_count in zip(rows.lengths, key_lengths, strict=True):
        for _ in range(query_count):
            seen = [
                key_row + key
                for key in range(key_count)
                if not causal
                or (key <= rows.positions[query_row] if rows.sees is None else bool(rows.sees[query_row, key]))
            ]
            heads = []
            for head in range(queries.shape[1] // size):
                query = queries[query_row, head * size : (head + 1) * size]
                columns = slice((head // shared) * size, (head // shared + 1) * size)
                scores = torch.stack([0.3 * query @ keys[row, columns] for row in seen])
                heads.append(sum(p * values[row, columns] for p, row in zip(scores.softmax(0), seen, strict=True)))
            out.append(torch.cat(heads))
            query_row += 1
        key_row += key_count
    return torch.stack(out)


TREE = torch.tensor(
    [[1, 1, 0, 0, 0], [1, 0, 1, 0, 0], [1, 0, 1, 1, 0], [1, 1, 0, 0, 1], [1, 0, 1, 0, 0]], dtype=torch.bool
)
"""Which keys each row sees."""
ATTENTION = {
    "each sees all, lengths far apart": (rows_of((3, 3, 1, 2), [0, 1, 2, 0, 1, 2, 0, 0, 1]), (3, 3, 16, 50), False),
    "causal": (rows_of((1, 3, 3, 4), [0, 0, 1, 2, 0, 1, 2, 0, 1, 2, 3]), (1, 3, 3, 4), True),
    "causal, after a past": (rows_of((2, 1, 3), [2, 3, 17, 30, 31, 32]), (4, 18, 33), True),
    "no query in one pair": (rows_of((2, 0), [1, 2]), (3, 4), True),
    "branches of a tree": (rows_of((2, 3), [0, 1, 1, 2, 1], TREE), (4, 5), True),
    "all alike": (rows_of((2, 2, 2), [1, 2, 2, 3, 0, 3]), (4, 4, 4), True),
}


@pytest.mark.parametrize("way", [attend, attend_fused])
@pytest.mark.parametrize("key_heads", [1, 2, 4])
@pytest.mark.parametrize("case", ATTENTION)
def test_attention_against_loops(way: Any, key_heads: int, case: str) -> None:
    rows, key_lengths, causal = ATTENTION[case]
    generator, size, key_rows = torch.Generator().manual_seed(0), 6, sum(key_lengths)
    shapes = [(sum(rows.lengths), 4 * size), (key_rows, key_heads * size), (key_rows, key_heads * size)]
    leaves = [torch.randn(*shape, generator=generator, dtype=torch.float64).requires_grad_() for shape in shapes]
    ours = way(*leaves, groups_of(rows, key_lengths, causal=causal), size, 0.3)
    cotangent = torch.randn(ours.shape, generator=generator, dtype=torch.float64)
    our_gradients = torch.autograd.grad((ours * cotangent).sum(), leaves)
    theirs = naive(*leaves, rows, key_lengths, causal, size)
    torch.testing.assert_close(ours, theirs, atol=1e-12, rtol=0)
    their_gradients = torch.autograd.grad((theirs * cotangent).sum(), leaves)
    for our_gradient, their_gradient in zip(our_gradients, their_gradients, strict=True):
        torch.testing.assert_close(our_gradient, their_gradient, atol=1e-12, rtol=0)


def test_groups_are_bounded_and_of_similar_lengths(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention, "_PAIRS_TOGETHER", 6)
    monkeypatch.setattr(attention, "_SCORES_TOGETHER", 5 * 22 * 32)
    monkeypatch.setattr(attention, "_EVEN_PAIRS", 4)
    monkeypatch.setattr(attention, "_remembered_groups", attention._groups)
    lengths = (3, 4, *[5] * 4, 6, 20, 20, 22, 22, 22, 33, 70, 500)
    groups = groups_of(rows_of(lengths, [0] * sum(lengths)), lengths, causal=False)
    assert [[int(count) for count in group.is_key.sum(1)] for group in groups] == [
        [3, 4], [5] * 4, [6, 20, 20], [22, 22, 22], [33], [70], [500]
    ]  # fmt: skip
    assert [group.key_rows.shape[1] for group in groups] == [16, 5, 32, 22, 33, 70, 500]
    ends = [0, *itertools.accumulate(int(group.is_query.sum()) for group in groups)]
    assert [(group.queries.start, group.queries.stop) for group in groups] == list(itertools.pairwise(ends))


def test_a_long_pair_does_not_pad_short_ones() -> None:
    groups = groups_of(rows_of((5, 20, 70), [0] * 95), (5, 20, 70), causal=False)
    assert [[int(count) for count in group.is_key.sum(1)] for group in groups] == [[5, 20], [70]]


def test_a_pair_does_not_depend_on_those_it_is_padded_with() -> None:
    generator, lengths = torch.Generator().manual_seed(0), (3, 9, 17, 30)
    queries, keys, values = (torch.randn(sum(lengths), 64, generator=generator) for _ in range(3))
    together = attend(queries, keys, values, groups_of(rows_of(lengths, [0] * 59), lengths, causal=False), 32, 0.2)
    start = 0
    for length in lengths:
        some = slice(start, start + length)
        groups = groups_of(rows_of((length,), [0] * length), (length,), causal=False)
        alone = attend(queries[some], keys[some], values[some], groups, 32, 0.2)
        torch.testing.assert_close(alone, together[some], atol=1e-6, rtol=0)
        start += length


def test_whole_mixtures_agree_with_fused_attention(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a GPU would run, run on the CPU."""
    for name in ("bert", "bart", "llama"):
        lm = exact(name)
        mixture = moved(lm, usable(name), paper_spec(deep=True))
        xs, facts = words(lm, XS)
        golds = torch.full((2, len(XS)), 30)
        expected = mixture.pairs.gold_log_probs(mixture.tuned, xs, golds, facts)
        with monkeypatch.context() as patched:
            patched.setattr(attention._Attend, "apply", lambda *given: attend_fused(*given[:6]))
            ours = mixture.pairs.gold_log_probs(mixture.tuned, xs, golds, facts)
        torch.testing.assert_close(ours, expected, atol=1e-11, rtol=0)
