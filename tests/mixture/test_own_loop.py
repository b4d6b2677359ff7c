"""A mixture in a loop of your own: forward, embeddings, adapters, and the examples."""

import runpy
import warnings
from pathlib import Path

import pytest
import torch
from builders import tiny
from builders.worlds import PAIRS, REPEATED, TEMPLATES, frozen

import askwell
from askwell.answers.likelihood import likelihood
from askwell.errors import BadOption, UsageError
from askwell.lms.batches import words_of
from askwell.mixture.mixture import Mixture
from askwell.specs.mixture_spec import MixtureSpec

EXAMPLES = Path(__file__).parents[2] / "examples"
XS, YS = [x for x, _ in PAIRS[:6]], [y for _, y in PAIRS[:6]]


def test_forward_is_the_mean_of_the_prompts_probabilities_and_carries_gradients():
    model, tokenizer = tiny.TINY["bert"]()
    templates = ["[X] lies in [Y] .", "the capital of [X] is [Y]"]
    mixture = Mixture(askwell.load_lm(model, tokenizer), templates, MixtureSpec(answers="one-token"))
    expected = []
    for x, y in zip(XS, YS, strict=True):
        of_prompts = []
        for template in templates:
            ids = tokenizer(template.replace("[X]", x).replace("[Y]", "[MASK]"), return_tensors="pt")
            at = int((ids["input_ids"][0] == tokenizer.mask_token_id).nonzero())
            of_prompts.append(model(**ids).logits[0, at].softmax(0)[tokenizer.convert_tokens_to_ids(y)])
        expected.append(torch.stack(of_prompts).mean().log())
    got = mixture(XS, YS)
    torch.testing.assert_close(got, torch.stack(expected), rtol=1e-4, atol=1e-4)
    (-got.mean()).backward()
    assert mixture.vectors.grad is not None
    assert mixture.vectors.grad.abs().sum() > 0
    assert mixture.weight_logits.grad is not None
    assert all(parameter.grad is None for parameter in model.parameters())
    assert {name for name, _ in mixture.named_parameters()} == {"vectors", "weighting.logits"}


@pytest.mark.parametrize("name", ["bert", "bart", "gpt2"])
def test_forward_is_what_training_minimises(name):
    mixture = Mixture(frozen(name), TEMPLATES, MixtureSpec(answers="any-length", deep=True))
    mixture.configure_answers(REPEATED)
    assert mixture.answer_kind is not None
    encoded, left_out = mixture.encode(REPEATED.train[:4])
    assert not left_out
    got = mixture([fact.x for fact in encoded.facts], [fact.y for fact in encoded.facts])
    assert torch.equal(got, likelihood(mixture, encoded, torch.arange(4)).total)


def test_forward_among_candidates_is_what_ask_says():
    mixture = Mixture(frozen("bert"), TEMPLATES)
    mixture.configure_answers(REPEATED, candidates={"north": ["Norway", "Germany"], "south": ["Peru", "Egypt"]})
    got = mixture(["Paris", "Rome"], ["north", "south"]).exp()
    said = [{reply.y: reply.probability for reply in replies} for replies in mixture.ask(["Paris", "Rome"])]
    assert got.tolist() == pytest.approx([said[0]["north"], said[1]["south"]], rel=1e-5)
    with pytest.raises(UsageError, match="'Austria' is not among the candidates"):
        mixture(["Paris"], ["Austria"])


def test_pairs_that_cannot_be_asked_and_arguments_that_are_none():
    mixture = Mixture(frozen("bert"), TEMPLATES, MixtureSpec(answers="one-token"))
    with pytest.raises(UsageError, match=r"1 of 2 pairs .* 'Rome' → 'Massachusetts Reykjavik': y is not one token"):
        mixture(["Paris", "Rome"], ["France", "Massachusetts Reykjavik"])
    with pytest.raises(BadOption, match="a list of xs"):
        mixture(["Paris"], ["France", "Italy"])


@pytest.mark.parametrize("name", ["bert", "bart", "gpt2", "llama"])
def test_embeddings_give_what_the_prompts_say(name):
    mixture = Mixture(frozen(name), TEMPLATES)
    with torch.no_grad():
        mixture.vectors.add_(0.05 * torch.randn(mixture.vectors.shape, generator=torch.Generator().manual_seed(1)))
    embedded = mixture.embed("Paris")
    logits = mixture.lm.model(**embedded.inputs).logits[embedded.rows, embedded.positions]
    words = words_of(["Paris"], mixture.lm.wording, mixture.lm.device)
    for prompt in range(len(mixture.prompts)):
        expected = mixture.word_log_probs(words, torch.zeros(1, dtype=torch.long), prompt)[0]
        torch.testing.assert_close(logits[prompt].log_softmax(0).detach(), expected, rtol=1e-4, atol=1e-4)
    logits.sum().backward()
    assert mixture.vectors.grad is not None


def test_deep_mixtures_have_no_embeddings():
    mixture = Mixture(frozen("bert"), TEMPLATES, MixtureSpec(deep=True))
    mixture.embed("Paris")  # nothing is tuned yet
    with torch.no_grad():
        next(mixture.deltas["layers"].parameters()).fill_(0.1)
    with pytest.raises(BadOption, match="tuned at every layer"):
        mixture.embed("Paris")
    with pytest.raises(UsageError, match="cannot be asked"):
        Mixture(frozen("bert"), TEMPLATES).embed("")
    with pytest.raises(BadOption, match="only a causal LM goes on"):
        Mixture(frozen("bert"), TEMPLATES).embed("Paris").of_prompt(0)


@pytest.mark.parametrize("spec", [MixtureSpec(prefix=4), MixtureSpec(begin="eos")])
def test_a_prefix_is_an_adapter_that_peft_loads(spec, tmp_path):
    peft = pytest.importorskip("peft")
    lm = frozen("gpt2")
    mixture = Mixture(lm, "the capital of [X] [Y]" if not spec.prefix else "[X] [Y]", spec)
    with torch.no_grad():
        mixture.vectors.add_(0.1 * torch.randn(mixture.vectors.shape, generator=torch.Generator().manual_seed(1)))
    mixture.save_peft(tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PEFT's own, about what it does not find in a config of ours
        model = peft.PeftModel.from_pretrained(lm.model, str(tmp_path))
    x = lm.wording.encode("Paris", mixture.prompts[0].tokens.x_place)
    with torch.no_grad():
        logits = model(input_ids=torch.tensor([x]), attention_mask=torch.ones(1, len(x), dtype=torch.long)).logits
    words = words_of(["Paris"], lm.wording, lm.device)
    expected = mixture.word_log_probs(words, torch.zeros(1, dtype=torch.long), 0)[0]
    torch.testing.assert_close(logits[0, -1].log_softmax(0), expected, rtol=1e-4, atol=1e-4)


def test_the_adapter_of_a_stored_lm_names_its_folder(tmp_path):
    peft = pytest.importorskip("peft")
    mixture = Mixture(askwell.load_lm("testbed:causal"), "[X] [Y]", MixtureSpec(prefix=2))
    mixture.save_peft(tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = peft.AutoPeftModelForCausalLM.from_pretrained(str(tmp_path))
    assert model.get_base_model().config.vocab_size == mixture.lm.model.config.vocab_size
    saved = model.get_prompt_embedding_to_save("default")
    assert torch.equal(saved, mixture.embed("France").of_prompt(0)[: len(saved)].detach())


def test_generate_goes_on_from_embeddings():
    mixture = Mixture(frozen("gpt2"), TEMPLATES)
    with torch.no_grad():
        mixture.vectors.add_(0.05 * torch.randn(mixture.vectors.shape, generator=torch.Generator().manual_seed(1)))
    model = mixture.lm.model
    for prompt in range(len(mixture.prompts)):
        embeds = mixture.embed("Paris").of_prompt(prompt)[None]
        with torch.no_grad():
            made = model.generate(inputs_embeds=embeds, max_new_tokens=3, do_sample=False, pad_token_id=0)[0].tolist()
            by_hand = []
            for _ in range(3):  # greedy, with the public model's own forward pass
                by_hand.append(int(model(inputs_embeds=embeds).logits[0, -1].argmax()))
                embeds = torch.cat([embeds, mixture.lm.word_vectors(torch.tensor([by_hand[-1:]]))], dim=1)
        assert made == by_hand


@pytest.mark.parametrize(
    ("lm", "templates", "message"),
    [
        ("bert", ["[X] [Y]"], "for causal LMs here"),
        ("gpt2", TEMPLATES, "this mixture has"),
        ("gpt2", ["[X] lies in [Y]"], "words between x and y"),
        ("gpt2", ["[X] [Y]"], "no token before x"),
    ],
)
def test_what_peft_cannot_hold(lm, templates, message, tmp_path):
    pytest.importorskip("peft")
    spec = MixtureSpec() if lm == "bert" else MixtureSpec(begin="nothing")
    with pytest.raises(BadOption, match=message):
        Mixture(frozen(lm), templates, spec).save_peft(tmp_path)


@pytest.mark.parametrize(("example", "at_least"), [("own_loop.py", 60), ("with_trainer.py", 60)])
def test_the_examples_learn(example, at_least, capsys):
    found = runpy.run_path(str(EXAMPLES / example))
    assert found["losses"][-1] < 0.7 * found["losses"][0]
    assert found["evaluation"].micro["P@1"] > at_least
    assert "Evaluation of" in capsys.readouterr().out
