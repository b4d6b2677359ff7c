"""LMs that are offloaded, spread or quantised are read as they are, and answer as they would in memory."""

import logging

import pytest
import torch
from accelerate import cpu_offload, disk_offload
from builders import tiny
from builders.worlds import REPEATED, TEMPLATES
from transformers import AutoModelForCausalLM, BitsAndBytesConfig, LlamaConfig, LlamaForCausalLM

import askwell
from askwell.errors import BadOption
from askwell.lms import hooked as placed
from askwell.lms.frozen import FrozenLM
from askwell.mixture.mixture import Mixture
from askwell.specs.mixture_spec import MixtureSpec

SPEC = MixtureSpec(answers="one-token", deep=True)
XS, YS = [fact.x for fact in REPEATED.train[:3]], [fact.y for fact in REPEATED.train[:3]]


def in_memory(name: str) -> FrozenLM:
    model, tokenizer = tiny.TINY[name]()
    lm = FrozenLM(model, tokenizer, name=name)
    lm.walk = None
    return lm


def told(lm: FrozenLM) -> tuple[torch.Tensor, torch.Tensor]:
    """What a mixture says, and its gradient."""
    mixture = Mixture(lm, TEMPLATES, SPEC)
    log_probs = mixture(XS, YS)
    log_probs.sum().backward()
    assert mixture.vectors.grad is not None
    assert all(parameter.grad is None for parameter in lm.model.parameters())
    return log_probs.detach(), mixture.vectors.grad


@pytest.mark.parametrize("name", ["bert", "gpt2", "bart"])
@pytest.mark.parametrize("where", ["cpu", "disk"])
def test_an_offloaded_lm_answers_as_one_in_memory(name, where, tmp_path, caplog, monkeypatch):
    placed.tell_once.cache_clear()
    model, tokenizer = tiny.TINY[name]()
    if where == "cpu":
        cpu_offload(model, execution_device=torch.device("cpu"), offload_buffers=False)
    else:
        disk_offload(model, str(tmp_path), execution_device=torch.device("cpu"))
    with caplog.at_level(logging.WARNING, "askwell"):
        lm = askwell.load_lm(model, tokenizer)
        askwell.load_lm(model, tokenizer)
    assert [record.message for record in caplog.records] == [
        f"{type(model).__name__} is offloaded to CPU or disk: it is not moved, and is read as a whole, without the "
        "fast walk"
    ]
    assert lm.walk is None
    assert lm.device.type == "cpu"
    plain = in_memory(name)
    assert lm.identity.tensors_sha256 == plain.identity.tensors_sha256
    for ours, theirs in zip(told(lm), told(plain), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)
    assert "offloaded" in str(lm)


def test_a_device_map_from_files(tmp_path):
    model, tokenizer = tiny.TINY["gpt2"]()
    tiny.save(model, tokenizer, tmp_path / "lm")
    spread = askwell.load_lm(
        tmp_path / "lm", device_map={"transformer.wte": "cpu", "transformer.wpe": "cpu", "transformer.h.0": "disk",
                                     "transformer.h.1": "cpu", "transformer.h.2": "cpu", "transformer.ln_f": "cpu",
                                     "lm_head": "cpu"},
    )  # fmt: skip
    assert spread.stays is not None
    plain = askwell.load_lm(tmp_path / "lm", device="cpu")
    assert plain.stays is None
    assert spread.identity == plain.identity
    for ours, theirs in zip(told(spread), told(plain), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)
    auto = askwell.load_lm(tmp_path / "lm", device_map="auto")
    torch.testing.assert_close(told(auto)[0], told(plain)[0], rtol=1e-4, atol=1e-5)
    with pytest.raises(BadOption, match="leave out device= and dtype="):
        askwell.load_lm(tmp_path / "lm", device_map="auto", dtype="float64")


def test_a_quantised_lm_is_neither_cast_nor_walked(monkeypatch):
    placed.tell_once.cache_clear()
    model, tokenizer = tiny.TINY["bert"]()
    monkeypatch.setattr(model, "is_quantized", True, raising=False)  # as transformers marks them
    lm = askwell.load_lm(model, tokenizer, dtype=torch.bfloat16)
    assert (lm.stays, lm.walk, lm.dtype) == ("quantised", None, torch.float32)


@pytest.mark.filterwarnings("ignore")  # bitsandbytes warns of its casts
def test_weights_of_eight_bits_are_read_as_they_are(tmp_path):
    pytest.importorskip("bitsandbytes")
    model, tokenizer = tiny.TINY["gpt2"]()
    tiny.save(model, tokenizer, tmp_path)
    quantised = AutoModelForCausalLM.from_pretrained(
        tmp_path, quantization_config=BitsAndBytesConfig(load_in_8bit=True), device_map={"": "cpu"}
    )
    weight = quantised.get_parameter("transformer.h.0.mlp.c_fc.weight")
    assert weight.dtype == torch.int8
    before = weight.detach().clone()
    lm = askwell.load_lm(quantised, tokenizer)
    assert (lm.stays, lm.walk) == ("quantised", None)
    (ours, gradient), (theirs, true_gradient) = told(lm), told(in_memory("gpt2"))
    torch.testing.assert_close(ours, theirs, rtol=0, atol=0.1)  # what eight bits lose
    assert torch.nn.functional.cosine_similarity(gradient.flatten(), true_gradient.flatten(), dim=0) > 0.95
    askwell.train(Mixture(lm, TEMPLATES, SPEC), REPEATED, askwell.TrainingSpec(pairs=8), progress=False)
    assert torch.equal(weight, before)


@pytest.mark.filterwarnings("ignore")  # bitsandbytes warns of its casts
@pytest.mark.parametrize("called_before", [False, True])
@pytest.mark.parametrize("kind", ["nf4", "fp4"])
def test_weights_of_four_bits_pass_gradients_as_the_same_weights_written_out(kind, called_before, tmp_path):
    bitsandbytes = pytest.importorskip("bitsandbytes")
    small, tokenizer = tiny.TINY["llama"]()
    wider = {"hidden_size": 64, "intermediate_size": 128, "head_dim": 16}
    torch.manual_seed(0)
    tiny.save(LlamaForCausalLM(LlamaConfig.from_dict(small.config.to_dict() | wider)), tokenizer, tmp_path)
    four_bits = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type=kind, bnb_4bit_compute_dtype=torch.float32)
    quantised = AutoModelForCausalLM.from_pretrained(tmp_path, quantization_config=four_bits, device_map={"": "cpu"})
    if called_before:  # on CPUs with AVX512-BF16 this repacks the weights
        with torch.no_grad():
            quantised(torch.tensor([[5, 6, 7]]))
    lm = askwell.load_lm(quantised, tokenizer)
    assert (lm.stays, lm.walk) == ("quantised", None)
    written_out = AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32)
    layers = {name: each for name, each in quantised.named_modules() if type(each) is bitsandbytes.nn.Linear4bit}
    assert len(layers) == 14  # seven projections in each of two layers
    for name, layer in layers.items():
        weight = bitsandbytes.functional.dequantize_4bit(layer.weight.data, layer.weight.quant_state)
        written_out.get_parameter(f"{name}.weight").data = weight.float().clone()
    plain = askwell.load_lm(written_out, tokenizer)
    mixture = Mixture(lm, TEMPLATES, SPEC)
    mixture.ask(XS[0])  # without gradients, as at the start of training
    for ours, theirs in zip(told(lm), told(plain), strict=True):
        assert (ours - theirs).norm() < 1e-4 * theirs.norm()
    askwell.train(mixture, REPEATED, askwell.TrainingSpec(pairs=8), progress=False)
    torch.testing.assert_close(told(lm)[1], told(plain)[1], rtol=1e-3, atol=1e-4)


def test_a_checkpoint_in_half_precision_stays_in_it(tmp_path):
    model, tokenizer = tiny.TINY["gpt2"]()
    tiny.save(model.to(torch.bfloat16), tokenizer, tmp_path)
    lm = askwell.load_lm(tmp_path, device_map="auto")
    assert lm.dtype == torch.bfloat16
    mixture = Mixture(lm, TEMPLATES, SPEC)
    assert mixture.vectors.dtype == torch.float32
    assert mixture(XS, YS).isfinite().all()
