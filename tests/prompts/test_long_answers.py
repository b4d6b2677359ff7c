"""Answers of any length agree with the plain reference: every tiny LM, all prompts, gradients of all that is tuned."""

import math

import agreement
import pytest
import reference
import torch
from agreement import ALL, GLUED_Y, Twin, exact, moved, pieces, usable, words, x_ids
from builders import tiny
from enumeration import end_of
from torch import Tensor

from askwell.answers.tree import candidate_log_probs
from askwell.lms.batches import Words
from askwell.prompts.long_answers import length_log_probs
from askwell.specs.mixture_spec import MixtureSpec

XS = ["Reykjavik", "Paris", "Mary Cassatt"]
YS = ["Iceland", "Peru", "Mary Cassatt"]


@pytest.fixture(autouse=True)
def _exact_modernbert(monkeypatch: pytest.MonkeyPatch) -> None:
    target = "transformers.models.modernbert.modeling_modernbert.apply_rotary_pos_emb"
    monkeypatch.setattr(target, agreement.exact_rotary)


@pytest.mark.parametrize("deep", [False, True])
@pytest.mark.parametrize("name", ALL)
def test_probabilities_and_gradients_of_whole_answers_in_float64(name: str, deep: bool) -> None:
    lm, templates = exact(name), usable(name)
    mixture = moved(lm, templates, MixtureSpec(deep=deep))
    twin = Twin.of(name, templates, mixture)
    xs, facts = words(lm, XS)
    ys, _ = words(lm, YS)
    log_lengths = length_log_probs([1, 2, 2, 3, 4, 5]) if tiny.FAMILY[name] == "masked" else None
    ours = mixture.long_answers.log_probs(mixture.tuned, xs, ys, facts, log_lengths)
    (ours + mixture.weighting(None, len(XS))).logsumexp(1).sum().backward()
    total = torch.zeros((), dtype=torch.float64)
    for number, x in enumerate(XS):
        each = []
        for t, template in enumerate(templates):
            place = 1 if template == GLUED_Y else 0
            y_ids = ys.ids[place, number, : int(ys.lengths[place, number])].tolist()
            log_length = 0.0 if log_lengths is None else float(log_lengths[len(y_ids) - 1])
            expected = reference.log_p_answer(
                lm.model, lm.tokenizer, tiny.FAMILY[name], pieces(name, template), x_ids(name, template, x), y_ids,
                end_of(name, template, x), twin.vectors[t], twin.deltas[t] or None, log_length,
            )  # fmt: skip
            torch.testing.assert_close(ours[number, t].detach(), expected.detach(), rtol=0, atol=1e-9)
            each.append(expected)
        total = total + (torch.stack(each) + twin.log_weights(None)).logsumexp(0)
    total.backward()
    theirs, ours_by_name = twin.gradients(), agreement.gradients(mixture)
    assert ours_by_name.keys() <= theirs.keys()
    assert any(bool(gradient.any()) for gradient in ours_by_name.values())
    for parameter, gradient in ours_by_name.items():
        torch.testing.assert_close(gradient, theirs[parameter], rtol=0, atol=1e-7)


def test_lengths_are_those_of_train_with_one_half_each():
    expected = torch.tensor([2.5, 0.5, 1.5], dtype=torch.float64) / 4.5
    torch.testing.assert_close(length_log_probs([1, 1, 3]).exp(), expected)
    assert length_log_probs([1, 1]).exp().tolist() == [1.0]
    assert len(length_log_probs([1, 40])) == 10


def test_all_strings_of_a_masked_lm_sum_to_one() -> None:
    """Every string of one or two tokens of the whole vocabulary, special ones too, under a mixture of two prompts."""
    lm = exact("bert")
    mixture = moved(lm, usable("bert")[:2])
    xs, facts = words(lm, ["Paris"])
    tokens = torch.arange(lm.vocabulary_size)
    one = torch.stack([tokens, torch.zeros_like(tokens)], 1)
    ids = torch.cat([one, torch.cartesian_prod(tokens, tokens)])
    lengths = torch.cat([torch.ones_like(tokens), torch.full((len(tokens) ** 2,), 2)])
    every = Words(ids.expand(2, -1, -1), lengths.expand(2, -1))
    with torch.no_grad():
        found = candidate_log_probs(mixture.long_answers, mixture.tuned, xs, facts, every, length_log_probs([1, 1, 2]))
        log_probs = (found + mixture.weighting(None, 1)[:, :, None]).logsumexp(1)[0]
    assert float(log_probs.logsumexp(0)) == pytest.approx(0, abs=1e-9)
    assert float(log_probs[lengths == 2].logsumexp(0)) == pytest.approx(math.log(1.5 / 4), abs=1e-9)


@torch.no_grad()
def next_tokens(twin: Twin, t: int, x: str, written: Tensor) -> Tensor:
    """The distribution of what follows each row of tokens in the place of y, by the public model alone."""
    lm, name, template = exact(twin.name), twin.name, twin.templates[t]
    given = (twin.vectors[t], x_ids(name, template, x))
    before = reference.before(pieces(name, template), "y")
    embed, rows = lm.model.get_input_embeddings(), (len(written), -1, -1)
    if tiny.FAMILY[name] == "causal":
        question = reference.fill(lm.model, before, *given, None).inputs_embeds
        logits = lm.model(inputs_embeds=torch.cat([question.expand(*rows), embed(written)], 1)).logits
        return logits[:, -1].softmax(-1)
    start = reference.Piece("special", [lm.model.config.decoder_start_token_id])
    question = reference.fill(lm.model, [start, *before], *given, None).inputs_embeds
    whole = reference.fill(lm.model, pieces(name, template), *given, lm.tokenizer.mask_token_id).inputs_embeds
    decoder = torch.cat([question.expand(*rows), embed(written)], 1)
    return lm.model(inputs_embeds=whole.expand(*rows), decoder_inputs_embeds=decoder).logits[:, -1].softmax(-1)


@pytest.mark.parametrize("name", ["gpt2", "llama", "bart"])
def test_all_strings_that_are_written_out_sum_to_one(name: str) -> None:
    """No token at all, every answer of one token, and all that goes on after it, are everything that can happen; so are
    an answer, every answer that has one token more, and all that goes on after that, for answers that begin alike.

    Strings that hold the end are no answers here: they are part of a shorter one.
    """
    lm, x, templates = exact(name), "Paris", usable(name)[:2]
    mixture = moved(lm, templates)
    twin = Twin.of(name, templates, mixture)
    xs, facts = words(lm, [x])
    for t, template in enumerate(templates):
        end = end_of(name, template, x)
        assert end is not None
        tokens = torch.tensor([token for token in range(lm.vocabulary_size) if token != end])

        def ours(ids: Tensor, t: int = t) -> Tensor:
            every = Words(ids.expand(2, -1, -1), torch.full((2, len(ids)), ids.shape[1]))
            with torch.no_grad():
                found = candidate_log_probs(mixture.long_answers, mixture.tuned, xs, facts, every)
            return found[0, t].exp().sum()

        first = next_tokens(twin, t, x, torch.empty(1, 0, dtype=torch.long))[0]
        second = next_tokens(twin, t, x, tokens[:, None])
        go_on = (first[tokens] * (1 - second[:, end])).sum()
        everything = first[end] + ours(tokens[:, None]) + go_on
        assert float(everything) == pytest.approx(1, abs=1e-9)
        for row in (7, 200):
            begun = torch.stack([tokens[row].expand(len(tokens)), tokens], 1)
            third = next_tokens(twin, t, x, begun)
            go_on = (first[tokens[row]] * second[row, tokens] * (1 - third[:, end])).sum()
            everything = ours(begun[:1, :1]) + ours(begun) + go_on
            assert float(everything) == pytest.approx(float(first[tokens[row]]), rel=1e-9)
