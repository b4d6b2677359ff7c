"""Mixtures agree with the plain reference: every tiny LM, whole distributions, and gradients of all that is tuned."""

import functools
import os
from itertools import product

import agreement
import pytest
import reference
import torch
from agreement import ALL, GLUED_X, GLUED_Y, YS, Twin, exact, ids, moved, plain, usable, words
from builders.specs import paper_spec
from torch import Tensor

from askwell.answers.encode import EncodedFacts
from askwell.answers.likelihood import likelihood
from askwell.answers.one_token import OneTokenAnswers
from askwell.data.facts import Fact
from askwell.errors import NothingLeft
from askwell.lms.batches import Words
from askwell.mixture.mixture import Mixture

FULL = bool(os.environ.get("ASKWELL_TEST_FULL"))
XS = ["Reykjavik", "Paris", "Mary Cassatt"]  # three tokens, one token, three tokens in two words
SPECS = {
    "layer 0, static": paper_spec(),
    "layer 0, data-dependent": paper_spec(weighting="data-dependent"),
    "deep, static": paper_spec(deep=True),
    "deep, data-dependent": paper_spec(deep=True, weighting="data-dependent"),
}
# Without deltas, and with all there is, on each LM; the two between on one LM of each family.
CASES = [
    (name, kind)
    for name, kind in product(ALL, SPECS)
    if FULL or kind in ("layer 0, static", "deep, data-dependent") or name in ("bert", "bart", "gpt2")
]


@pytest.fixture(autouse=True)
def _exact_modernbert(monkeypatch: pytest.MonkeyPatch) -> None:
    target = "transformers.models.modernbert.modeling_modernbert.apply_rotary_pos_emb"
    monkeypatch.setattr(target, agreement.exact_rotary)


def assert_near(ours: Tensor, theirs: Tensor, tolerance: float) -> None:
    torch.testing.assert_close(ours.detach().double(), theirs.detach().double(), rtol=0, atol=tolerance)


@functools.cache
def mixture_and_twin(name: str, kind: str) -> tuple[Mixture, Twin]:
    """Both are shared by the tests below, since asking the reference takes most of their time."""
    mixture = moved(exact(name), usable(name), SPECS[kind])
    return mixture, Twin.of(name, usable(name), mixture)


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_whole_distributions_in_float64(name: str, kind: str) -> None:
    spec, templates = SPECS[kind], usable(name)
    mixture, twin = mixture_and_twin(name, kind)
    xs, facts = words(exact(name), XS)
    with torch.no_grad():
        of_x = mixture.log_p_x(xs, facts)
        log_weights = mixture.weighting(of_x if (spec.weighting == "data-dependent") else None, len(XS))
        log_probs = OneTokenAnswers(mixture).log_probs(xs, facts)
        by_prompt = [mixture.word_log_probs(xs, facts, t) for t in range(len(templates))]
    for number, x in enumerate(XS):
        for t in range(len(templates)):
            assert_near(by_prompt[t][number], twin.log_p_y(t, x), 1e-9)
            if spec.weighting == "data-dependent":
                assert_near(of_x[number, t], twin.log_p_x(t, x), 1e-9)
        assert_near(log_weights[number], twin.log_weights(x if (spec.weighting == "data-dependent") else None), 1e-9)
        expected = twin.log_mixture(x, data_dependent=(spec.weighting == "data-dependent"))
        assert_near(log_probs[number], expected, 1e-9)
        assert float(log_probs[number].exp().sum()) == pytest.approx(1, abs=1e-12)


def with_golds(xs: Words, golds: Tensor) -> EncodedFacts:
    """x's with gold tokens; where all prompts have y at one place, answers are tokens."""
    return EncodedFacts((), xs, xs, golds[0], golds)


def ours_of_gold(mixture: Mixture, xs: list[str], golds: Tensor) -> tuple[Tensor, Tensor]:
    """log p(y | t, x) and log p(y | x, r) of gold tokens, as training puts them together."""
    tokens, facts = words(mixture.lm, xs)
    gold = mixture.pairs.gold_log_probs(mixture.tuned, tokens, golds, facts)
    return gold, likelihood(mixture, with_golds(tokens, golds), facts).total


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_gold_log_probs_and_gradients_in_float64(name: str, kind: str) -> None:
    spec, templates = SPECS[kind], usable(name)
    mixture, twin = mixture_and_twin(name, kind)
    golds = [*ids(name, YS[agreement.script(name)]), 30, 77]
    gold, total = ours_of_gold(mixture, XS, torch.tensor([golds, golds]))
    total.sum().backward()
    loss = torch.zeros((), dtype=torch.float64)
    for number, (x, y) in enumerate(zip(XS, golds, strict=True)):
        for t in range(len(templates)):
            assert_near(gold[number, t], twin.log_p_y(t, x)[y], 1e-9)
        of_mixture = twin.log_mixture(x, data_dependent=(spec.weighting == "data-dependent"))[y]
        assert_near(total[number], of_mixture, 1e-9)
        loss = loss + of_mixture
    loss.backward()
    ours, theirs = agreement.gradients(mixture), twin.gradients()
    assert ours.keys() == theirs.keys()
    for parameter, gradient in theirs.items():
        assert_near(ours[parameter], gradient, 1e-7)
    tuned = {"vectors", "weighting.logits", *(key for key in ours if key.endswith(".0"))}
    tuned |= {"weighting.log_temperature"} if (spec.weighting == "data-dependent") else set()
    assert all(bool(theirs[parameter].any()) for parameter in tuned)


@pytest.mark.parametrize("name", ALL)
def test_gradient_of_p_x_in_float64(name: str) -> None:
    templates = usable(name)
    mixture = moved(exact(name), templates, paper_spec(deep=True, weighting="data-dependent"))
    twin = Twin.of(name, templates, mixture)
    cotangent = torch.randn(len(XS), len(templates), generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    (mixture.log_p_x(*words(exact(name), XS)) * cotangent).sum().backward()
    expected = [[twin.log_p_x(t, x) for t in range(len(templates))] for x in XS]
    (torch.stack([torch.stack(row) for row in expected]) * cotangent).sum().backward()
    ours, theirs = agreement.gradients(mixture), twin.gradients()
    for parameter in [key for key in theirs if key.startswith(("vectors", "deltas"))]:
        assert_near(ours[parameter], theirs[parameter], 1e-7)
        if parameter == "vectors" or parameter.endswith(".0"):  # the last layer of a masked LM is read at masks alone
            assert theirs[parameter].any()


@pytest.mark.parametrize("name", ALL)
def test_float32_is_close_to_the_reference_in_float64(name: str) -> None:
    """Against the reference in float64, so that errors of the reference do not hide ours."""
    templates = usable(name)
    mixture = moved(plain(name), templates, paper_spec(deep=True, weighting="data-dependent"))
    xs, facts = words(plain(name), XS)
    with torch.no_grad():
        twin = Twin.of(name, templates, mixture)
        log_probs, of_x = OneTokenAnswers(mixture).log_probs(xs, facts), mixture.log_p_x(xs, facts)
        assert log_probs.dtype == torch.float32
        log_weights = mixture.weighting(of_x, len(XS))
        for number, x in enumerate(XS):
            assert_near(log_probs[number], twin.log_mixture(x, data_dependent=True), 5e-5)
            assert_near(log_weights[number], twin.log_weights(x), 5e-5)
            for t in range(len(templates)):
                assert_near(of_x[number, t], twin.log_p_x(t, x), 5e-5)
                assert_near(mixture.word_log_probs(xs, facts, t)[number], twin.log_p_y(t, x), 5e-5)


@pytest.mark.parametrize("template", ["[X] [Y]", GLUED_X, "in [Y] lies [X]vik."])
@pytest.mark.parametrize("name", ALL)
def test_one_prompt_is_every_mixture(name: str, template: str) -> None:
    lm = exact(name)
    if template not in usable(name):  # a causal LM reads nothing after y
        assert template.index("[Y]") < template.index("[X]")
        with pytest.raises(NothingLeft):
            Mixture(lm, [template], paper_spec())
        return
    xs, facts = words(lm, XS)
    answers = []
    for spec in (paper_spec(), paper_spec(weighting="data-dependent"), paper_spec(combine="product")):
        mixture = moved(lm, [template], spec)
        answers.append(OneTokenAnswers(mixture).log_probs(xs, facts))
        twin = Twin.of(name, [template], mixture)
        for number, x in enumerate(XS):
            assert_near(answers[-1][number], twin.log_p_y(0, x), 1e-9)
    assert_near(answers[0], answers[1], 1e-12)
    assert_near(answers[0], answers[2], 1e-12)


@pytest.mark.parametrize("name", ["bert", "bart", "gpt2"])
def test_a_high_temperature_gives_the_static_mixture(name: str) -> None:
    templates, lm = usable(name), exact(name)
    xs, facts = words(lm, XS)
    static = moved(lm, templates)
    dependent = moved(lm, templates, paper_spec(weighting="data-dependent"))
    assert torch.equal(static.weight_logits, dependent.weight_logits)
    expected = OneTokenAnswers(static).log_probs(xs, facts)
    distances = []
    for log_temperature in (0.0, 4.0, 8.0, 30.0):
        with torch.no_grad():
            agreement.log_temperature_of(dependent).fill_(log_temperature)
        distances.append(float((OneTokenAnswers(dependent).log_probs(xs, facts) - expected).abs().max()))
    assert distances[0] > 0.1
    assert distances == sorted(distances, reverse=True)
    assert distances[-1] < 1e-10


def test_p_x_is_constant_where_all_prompts_of_a_causal_lm_begin_with_x() -> None:
    lm = exact("llama")
    mixture = moved(lm, ["[X] is [Y]", "[X] , its capital [Y]"], paper_spec(weighting="data-dependent"))
    xs, facts = words(lm, XS)
    of_x = mixture.log_p_x(xs, facts)
    assert_near(of_x[:, 0], of_x[:, 1], 1e-12)
    assert_near(mixture.weighting(of_x, 3).exp(), mixture.weights.expand(3, 2), 1e-12)


# Products of experts


@pytest.mark.parametrize("name", ALL)
def test_product_of_experts(name: str) -> None:
    templates = usable(name)
    mixture = moved(exact(name), templates, paper_spec(combine="product"))
    twin = Twin.of(name, templates, mixture)
    xs, facts = words(exact(name), XS)
    golds = [*ids(name, YS[agreement.script(name)]), 30, 77]
    ours = OneTokenAnswers(mixture).log_probs(xs, facts)
    total = likelihood(mixture, with_golds(xs, torch.tensor([golds, golds])), facts).total
    total.sum().backward()
    loss = torch.zeros((), dtype=torch.float64)
    for number, x in enumerate(XS):
        each = [twin.log_p_y(t, x).detach() for t in range(len(templates))]
        expected = reference.log_product(reference.log_softmax(twin.weight_logits).exp(), each)
        assert_near(ours[number], expected, 1e-9)
        assert_near(total[number], expected[golds[number]], 1e-9)
        loss = loss + expected[golds[number]]
    loss.backward()
    assert twin.weight_logits.grad is not None
    assert mixture.weight_logits.grad is not None
    assert_near(mixture.weight_logits.grad, twin.weight_logits.grad, 1e-7)
    assert twin.weight_logits.grad.abs().max() > 1e-3
    assert mixture.vectors.grad is None, "the prompts of a product stay hard"


# Answers in several forms

FORMS = ["[X], its capital is [Y].", GLUED_Y, GLUED_X]
# Each word after a space, and after a bracket; None is no one-token form.
WORDS: dict[str, dict[str, tuple[str | None, str | None]]] = {
    "byte-level": {
        "Rome": ("ĠRome", "Rome"),  # both forms
        "Italy": ("ĠItaly", None),  # spaced only
        "Cuba": (None, "Cuba"),  # glued only
    },
    "albert": {"Rome": ("▁rome", "rome"), "Italy": ("▁italy", None), "Cuba": (None, "cuba")},
}


@pytest.mark.parametrize("data_dependent", [False, True])
@pytest.mark.parametrize("name", [name for name in ALL if name not in agreement.WORDPIECE])
def test_each_prompt_reads_its_own_form(name: str, data_dependent: bool) -> None:
    mixture = moved(
        exact(name), FORMS, paper_spec(weighting="data-dependent" if data_dependent else "static", deep=True)
    )
    forms = WORDS[agreement.script(name)]
    facts = [Fact("Reykjavik", y) for y in forms] + [Fact("Paris", "Massachusetts")]
    encoded, left_out = mixture.encode(facts)
    assert [fact.y for fact in encoded.facts] == list(forms)
    assert [(fact.fact.y, fact.reason) for fact in left_out] == [("Massachusetts", "y is not one token of the LM")]

    everyone = torch.arange(len(encoded))
    with torch.no_grad():
        gold = mixture.pairs.gold_log_probs(mixture.tuned, encoded.xs, encoded.gold_tokens, everyone)
        log_probs = OneTokenAnswers(mixture).log_probs(encoded.xs, everyone)
        by_prompt = [mixture.word_log_probs(encoded.xs, everyone, t) for t in range(len(FORMS))]
    twin = Twin.of(name, FORMS, mixture)
    numbers = [tuple(None if form is None else ids(name, form)[0] for form in pair) for pair in forms.values()]
    each = []
    for t, template in enumerate(FORMS):
        own = [pair[1 if template == GLUED_Y else 0] for pair in numbers]
        each.append(reference.read_answers(twin.log_p_y(t, "Reykjavik").detach(), own))
        assert_near(torch.stack([gold[n, t] for n in range(3)]), each[t], 1e-9)
        assert_near(torch.stack([by_prompt[t][n, encoded.answers[n]] for n in range(3)]), each[t], 1e-9)
    weights = twin.log_weights("Reykjavik" if data_dependent else None).detach()
    expected = reference.log_mixture(weights, each)
    assert_near(torch.stack([log_probs[n, encoded.answers[n]] for n in range(3)]), expected, 1e-9)
    assert_near(log_probs.exp().sum(1), torch.ones(3), 1e-12)


def test_wordpiece_has_one_form_after_space_and_bracket() -> None:
    mixture = Mixture(exact("bert"), FORMS, paper_spec())
    assert mixture.token_words.count == len(exact("bert").tokenizer)


@pytest.mark.parametrize("name", ["roberta", "bart", "llama", "albert"])
def test_a_product_needs_a_form_for_every_prompt(name: str) -> None:
    """An answer that one prompt cannot give has probability 0 in a product, and the others sum to 1."""
    mixture = moved(exact(name), FORMS, paper_spec(combine="product"))
    facts = [Fact("Reykjavik", y) for y in ("Rome", "Italy", "Cuba")]
    encoded, left_out = mixture.encode(facts)
    assert [fact.y for fact in encoded.facts] == ["Rome"]
    assert [fact.fact.y for fact in left_out] == ["Italy", "Cuba"]
    log_probs = OneTokenAnswers(mixture).log_probs(encoded.xs, torch.arange(1))
    assert float(log_probs.exp().sum()) == pytest.approx(1, abs=1e-12)

    twin = Twin.of(name, FORMS, mixture)
    tokenizer = exact(name).tokenizer
    space = "▁" if name == "albert" else "Ġ"
    vocabulary = tokenizer.get_vocab()
    both = [word for word in vocabulary if space + word in vocabulary]
    each = []
    for t, template in enumerate(FORMS):
        mark = "" if template == GLUED_Y else space
        own = [vocabulary[mark + word] for word in both]
        each.append(reference.read_answers(twin.log_p_y(t, "Reykjavik").detach(), own))
    expected = reference.log_product(reference.log_softmax(twin.weight_logits).exp().detach(), each)
    assert_near(log_probs[0, encoded.answers[0]], expected[both.index("rome" if name == "albert" else "Rome")], 1e-9)
    total = likelihood(mixture, encoded, torch.arange(1)).total
    assert_near(total[0], log_probs[0, encoded.answers[0]], 1e-12)
