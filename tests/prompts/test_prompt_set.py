"""Which templates can be used with an LM, and what happens to the others."""

import pytest
import torch
from agreement import CAUSAL, exact, plain, words
from builders.specs import paper_spec

from askwell.answers.one_token import OneTokenAnswers
from askwell.data.templates import parse_template
from askwell.errors import BadOption, BadTemplate, NothingLeft
from askwell.mixture.mixture import Mixture
from askwell.specs.mixture_spec import WeightingName


@pytest.mark.parametrize("name", CAUSAL)
def test_causal_lms_reject_y_before_x_and_say_so(name: str) -> None:
    mixture = Mixture(plain(name), ["[X] is in [Y] .", "[Y] is the city of [X] ."], paper_spec())
    assert [prompt.template.text for prompt in mixture.prompts] == ["[X] is in [Y] ."]
    (left_out,) = mixture.left_out_prompts
    assert left_out.template.text == "[Y] is the city of [X] ."
    assert "y comes before x" in left_out.reason


@pytest.mark.parametrize("name", ["bert", "bart"])
def test_other_lms_use_both_orders(name: str) -> None:
    mixture = Mixture(plain(name), ["[X] is in [Y] .", "[Y] is the city of [X] ."], paper_spec())
    assert len(mixture.prompts) == 2
    assert mixture.left_out_prompts == []


def test_nothing_left_names_the_reasons() -> None:
    with pytest.raises(NothingLeft, match="no prompts left: 2 × y comes before x"):
        Mixture(plain("gpt2"), ["[Y] is [X]", "[Y] : [X]"], paper_spec())
    with pytest.raises(NothingLeft, match="no prompts left: none were given"):
        Mixture(plain("gpt2"), [], paper_spec())


def test_prompts_that_the_cut_makes_the_same_are_merged() -> None:
    templates = [
        parse_template("[X] is in [Y] .", 0.2),
        parse_template("[X] was in [Y] .", 0.5),
        parse_template("[X] is in [Y] , the city", 0.1),
        parse_template("[X] is in [Y]", 0.2),
    ]
    mixture = Mixture(exact("gpt2"), templates, paper_spec(weights="file"))
    assert [prompt.template.text for prompt in mixture.prompts] == ["[X] is in [Y] .", "[X] was in [Y] ."]
    assert mixture.weights.tolist() == pytest.approx([0.5, 0.5])
    named = [(prompt.template.text, prompt.reason) for prompt in mixture.left_out_prompts]
    reason = "merged: up to y it is the same as '[X] is in [Y] .'"
    assert named == [("[X] is in [Y] , the city", reason), ("[X] is in [Y]", reason)]
    assert mixture.vectors.shape[0] == 4, "what comes after y has no vectors"

    masked = Mixture(exact("bert"), templates, paper_spec(weights="file"))
    assert len(masked.prompts) == 4
    assert masked.weights.tolist() == pytest.approx([0.2, 0.5, 0.1, 0.2])


def test_another_form_of_y_is_another_prompt() -> None:
    """Up to y both have the same tokens, but after the bracket y has another form than after a space."""
    mixture = Mixture(plain("gpt2"), ["[X] ([Y])", "[X] ( [Y] )"], paper_spec())
    assert len(mixture.prompts) == 2
    assert mixture.prompts[0].token_ids == mixture.prompts[1].token_ids


def test_merged_prompts_without_weights() -> None:
    mixture = Mixture(plain("gpt2"), ["[X] is in [Y] .", "[X] is in [Y] !"], paper_spec())
    assert len(mixture.prompts) == 1
    assert mixture.prompts[0].template.weight is None


def test_a_prompt_without_prompt_tokens() -> None:
    for name in ("bert", "roberta", "bart", "gpt2", "llama"):
        mixture = Mixture(exact(name), ["[X] [Y]"], paper_spec(deep=True))
        assert mixture.vectors.shape == (0, exact(name).embedding_size)
        log_probs = OneTokenAnswers(mixture).log_probs(*words(exact(name), ["Paris", "Reykjavik"]))
        assert log_probs.exp().sum(1).tolist() == pytest.approx([1, 1])


def test_weights_of_the_file() -> None:
    templates = [parse_template("[X] is [Y]", 3.0), parse_template("[X] was [Y]", 1.0)]
    assert Mixture(plain("bert"), templates, paper_spec()).weights.tolist() == [0.5, 0.5]
    assert Mixture(plain("bert"), templates, paper_spec(weights="file")).weights.tolist() == pytest.approx([0.75, 0.25])
    copied = Mixture(plain("bert"), templates, paper_spec(weights="file", copies=2, noise=0.1))
    assert copied.weights.tolist() == pytest.approx([0.375, 0.375, 0.125, 0.125])


def test_weights_that_are_not_in_the_file() -> None:
    with pytest.raises(BadOption, match=r"'\[X\] was \[Y\]' has no weight"):
        Mixture(plain("bert"), [parse_template("[X] is [Y]", 1.0), "[X] was [Y]"], paper_spec(weights="file"))
    with pytest.raises(BadOption, match="all of them are 0"):
        Mixture(plain("bert"), [parse_template("[X] is [Y]", 0.0)], paper_spec(weights="file"))


def test_a_bad_template_is_refused() -> None:
    with pytest.raises(BadTemplate):
        Mixture(plain("bert"), ["[X] is in"], paper_spec())


def test_a_weight_of_zero_is_no_prompt_but_no_harm() -> None:
    """log 0 is -inf; neither answers nor gradients may become NaN by it."""
    lm = exact("bert")
    templates = [parse_template("[X] is [Y]", 1.0), parse_template("[X] was in [Y]", 0.0)]
    weightings: tuple[WeightingName, ...] = ("static", "data-dependent")
    for weighting in weightings:
        mixture = Mixture(lm, templates, paper_spec(weights="file", weighting=weighting))
        xs, facts = words(lm, ["Paris", "Reykjavik"])
        alone = OneTokenAnswers(Mixture(lm, ["[X] is [Y]"], paper_spec())).log_probs(xs, facts)
        torch.testing.assert_close(OneTokenAnswers(mixture).log_probs(xs, facts), alone, rtol=0, atol=1e-12)
        golds = torch.full((2, 2), 30)
        of_x = mixture.log_p_x(xs, facts) if weighting == "data-dependent" else None
        weights = mixture.weighting(of_x, 2)
        (mixture.pairs.gold_log_probs(mixture.tuned, xs, golds, facts) + weights).logsumexp(1).sum().backward()
        for name, parameter in mixture.named_parameters():
            assert parameter.grad is None or parameter.grad.isfinite().all(), name
        assert mixture.effective_prompts == pytest.approx(1.0)
