"""What `askwell lm list` and `askwell lm info` print."""

from builders import tiny, tiny_walks
from transformers import BertForMaskedLM

from askwell.lms.available import describe, list_lms
from askwell.lms.frozen import FrozenLM


def test_the_testbeds_lms_are_here_and_smollm2_can_be_pulled(monkeypatch, tmp_path):
    monkeypatch.setenv("ASKWELL_CACHE", str(tmp_path))
    listed = {lm.name: lm for lm in list_lms()}
    for name in ("bert", "roberta", "bart", "causal"):
        assert listed[f"testbed:{name}"].ready
        assert listed[f"testbed:{name}"].get == ""
    pullable = listed["smollm2"]
    assert (pullable.ready, pullable.megabytes, pullable.get) == (False, None, "askwell lm pull smollm2")
    (tmp_path / "lms" / "smollm2").mkdir(parents=True)
    (tmp_path / "lms" / "smollm2" / "model.safetensors").write_bytes(b"0" * 2_500_000)
    pulled = next(lm for lm in list_lms() if lm.name == "smollm2")
    assert (pulled.ready, pulled.megabytes) == (True, 2.5)


def test_a_masked_lm_can_use_every_prompt_and_a_causal_lm_only_x_before_y():
    masked, causal = (describe(FrozenLM(*tiny.TINY[name](), name=name)) for name in ("bert", "gpt2"))
    assert masked["prompts_it_can_use"] == ["x before y", "y before x", "x and y without any words"]
    assert masked["prompts_it_cannot_use"] == []
    assert causal["prompts_it_cannot_use"] == ["y before x"]
    assert (masked["family"], causal["family"]) == ("masked", "causal")


def test_sizes_are_those_of_the_public_model():
    model, tokenizer = tiny.TINY["bart"]()
    description = describe(FrozenLM(model, tokenizer, name="tiny"))
    config = model.config
    count = model.num_parameters()
    assert description["name"] == "tiny"
    assert description["encoder"] == f"{config.encoder_layers} layers × {config.d_model}"
    assert description["decoder"] == f"{config.decoder_layers} layers × {config.d_model}"
    assert (description["vocabulary"], description["parameters"]) == (config.vocab_size, count)
    assert description["megabytes_of_weights"] == round(4 * count / 1e6, 1)
    assert description["runs_on"] == "cpu in float32"
    assert description["path"] == "layer by layer, without padding (fast)"
    assert list(description)[-1] == "tensors_sha256"


def test_the_path_and_why(monkeypatch):
    def path(made):
        return describe(FrozenLM(*made, name="tiny"))["path"]

    assert "sentences of more than 40 tokens" in path(tiny_walks.make_mistral())
    assert path(tiny.TINY["modernbert"]()).endswith("there is no walk for a ModernBertForMaskedLM with this config")
    model, tokenizer = tiny.TINY["bert"]()

    class Own(BertForMaskedLM):
        pass

    assert path((tiny.as_class(Own, model), tokenizer)) == (
        "the public model as a whole, with padding: there is no walk for Own"
    )
    monkeypatch.setattr("askwell.lms.frozen.agrees", lambda _lm: False)
    assert path((model, tokenizer)).endswith("its walk and the public model give different results")
