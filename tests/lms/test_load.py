"""LMs are loaded whole or refused with a reason; what is loaded answers as it did in memory and never changes."""

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import agreement
import gguf
import httpx
import numpy as np
import pytest
import torch
from agreement import plain, usable, words
from builders import tiny
from builders.specs import paper_spec
from builders.tiny_gguf import write_gguf
from huggingface_hub import get_session
from transformers import BertConfig, BertForSequenceClassification, BertModel, ElectraForPreTraining, GPT2Config

from askwell.answers.one_token import OneTokenAnswers
from askwell.errors import BadFile, BadOption, LMUnavailable
from askwell.lms import checkpoints as stored
from askwell.lms.families import family_of
from askwell.lms.frozen import FrozenLM
from askwell.lms.load import load_lm
from askwell.mixture.mixture import Mixture
from askwell.specs.mixture_spec import MixtureSpec

Checkpoints = Callable[[str], Path]
XS = ["Reykjavik", "Paris"]


@pytest.mark.parametrize("name", tiny.TINY)
def test_a_saved_lm_answers_as_in_memory(name: str, checkpoints: Checkpoints) -> None:
    loaded = load_lm(checkpoints(name), device="cpu")
    assert loaded.source == str(checkpoints(name))
    assert loaded.dtype == torch.float32
    assert loaded.family.name == tiny.FAMILY[name]
    assert loaded.identity.revision is None
    mixtures = [Mixture(lm, usable(name), paper_spec(weighting="data-dependent")) for lm in (plain(name), loaded)]
    ours, theirs = (OneTokenAnswers(mixture).log_probs(*words(mixture.lm, XS)) for mixture in mixtures)
    assert torch.equal(ours, theirs)


@pytest.mark.parametrize("name", tiny.TINY)
def test_each_lm_has_its_stacks_with_their_layers_and_widths(name: str) -> None:
    lm = plain(name)
    layers = {
        "bert": {"layers": (3, 24)},
        "roberta": {"layers": (2, 24)},
        "distilbert": {"layers": (2, 24)},
        "albert": {"layers": (3, 24)},
        "electra": {"layers": (2, 20)},
        "modernbert": {"layers": (3, 24)},
        "bart": {"encoder": (2, 24), "decoder": (3, 24)},
        "bart-scaled": {"encoder": (2, 24), "decoder": (3, 24)},
        "gpt2": {"layers": (3, 24)},
        "llama": {"layers": (2, 32)},
        "llama-metaspace": {"layers": (2, 32)},
    }
    assert {stack: (found.layers, found.width) for stack, found in lm.stacks.items()} == layers[name]
    assert lm.embedding_size == {"albert": 16, "electra": 28}.get(name, next(iter(layers[name].values()))[1])
    assert lm.vocabulary_size == lm.word_count == len(lm.tokenizer)


# What is refused


def test_a_checkpoint_without_head_is_refused(tmp_path: Path) -> None:
    model, tokenizer = tiny.TINY["bert"]()
    bare = tiny.as_class(BertModel, model, add_pooling_layer=False)
    tiny.save(bare, tokenizer, tmp_path)
    with pytest.raises(LMUnavailable, match=r"lacks weights.*cls\.predictions\.") as refusal:
        load_lm(tmp_path, device="cpu")
    assert "BertForMaskedLM" in str(refusal.value)
    assert "at random" in str(refusal.value)


def test_other_heads_are_refused(tmp_path: Path) -> None:
    bert, tokenizer = tiny.TINY["bert"]()
    tiny.save(tiny.as_class(BertForSequenceClassification, bert), tokenizer, tmp_path / "classifier")
    with pytest.raises(LMUnavailable, match=r"lacks weights.*cls\.predictions"):
        load_lm(tmp_path / "classifier", device="cpu")
    electra, tokenizer = tiny.TINY["electra"]()
    tiny.save(tiny.as_class(ElectraForPreTraining, electra), tokenizer, tmp_path / "discriminator")
    with pytest.raises(LMUnavailable, match=r"lacks weights.*generator"):
        load_lm(tmp_path / "discriminator", device="cpu")


def test_weights_of_another_shape_are_refused(checkpoints: Checkpoints, tmp_path: Path) -> None:
    folder = tmp_path / "wider"
    shutil.copytree(checkpoints("bert"), folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"intermediate_size": 41}))
    with pytest.raises(LMUnavailable, match="wider"):
        load_lm(folder, device="cpu")


def test_a_missing_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LMUnavailable, match=r"nowhere: there is no such folder or file"):
        load_lm(tmp_path / "nowhere", device="cpu")
    with pytest.raises(LMUnavailable, match=r"model\.gguf: there is no such file"):
        load_lm(tmp_path / "model.gguf", device="cpu")


def test_a_folder_without_config_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("no model")
    with pytest.raises(LMUnavailable, match=r"holds no config\.json"):
        load_lm(tmp_path, device="cpu")


@pytest.mark.parametrize("broken", ["config.json", "model.safetensors"])
def test_a_broken_checkpoint_is_refused(broken: str, checkpoints: Checkpoints, tmp_path: Path) -> None:
    folder = tmp_path / "broken"
    shutil.copytree(checkpoints("bert"), folder)
    (folder / broken).write_bytes((folder / broken).read_bytes()[:40])
    with pytest.raises(LMUnavailable, match=r"broken: cannot be loaded \("):
        load_lm(folder, device="cpu")


def test_a_folder_without_tokenizer_is_refused(checkpoints: Checkpoints, tmp_path: Path) -> None:
    folder = tmp_path / "mute"
    shutil.copytree(checkpoints("bert"), folder)
    for path in folder.glob("*token*"):
        path.unlink()
    with pytest.raises(LMUnavailable, match="mute"):
        load_lm(folder, device="cpu")


def test_a_hub_name_without_network(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(LMUnavailable) as refusal:
        load_lm("nobody/no-such-lm", device="cpu")
    message = str(refusal.value)
    assert "nobody/no-such-lm" in message
    assert "HF_HUB_OFFLINE is set" in message
    assert str(tmp_path) in message
    assert "\n" not in message


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The addresses that are asked of a hub that cannot be reached."""
    asked: list[str] = []

    def nobody(address: str, **_options: Any) -> None:
        asked.append(address)
        raise httpx.ConnectError("no such host")

    monkeypatch.delenv("HF_HUB_OFFLINE")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:9")
    stored._answers.cache_clear()
    monkeypatch.setattr("httpx.head", nobody)
    of_hub = type(get_session())  # of httpx or of its successor, as the version of huggingface_hub has it
    monkeypatch.setattr(of_hub, "send", lambda _client, request, **_options: nobody(str(request.url)))
    return asked


def test_a_hub_that_cannot_be_reached_is_asked_once(asked: list[str]) -> None:
    for name, alike in (
        ("smolm2", "Did you mean smollm2?"),
        ("nobody/no-such-lm", "testbed:bert"),
        ("berd", "smollm2"),
    ):
        with pytest.raises(LMUnavailable, match="the hub cannot be reached") as refusal:
            load_lm(name, device="cpu")
        assert alike in str(refusal.value)
        assert "`askwell lm list`" in str(refusal.value)
    with pytest.raises(LMUnavailable, match="`tokenizer` no-such-one"):
        load_lm("testbed:bert", tokenizer="no-such-one")
    with pytest.raises(BadFile, match="its cache has no such mixture"):
        Mixture.from_pretrained("nobody/no-such-mixture")
    assert asked == ["http://127.0.0.1:9"]


def test_what_is_in_the_cache_is_used_where_the_hub_cannot_be_reached(
    asked: list[str], checkpoints: Checkpoints, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository = tmp_path / "hub" / "models--me--bert"
    shutil.copytree(checkpoints("bert"), repository / "snapshots" / ("a" * 40))
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("a" * 40)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr("transformers.utils.hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    assert load_lm("me/bert", device="cpu").identity.revision == "a" * 40
    assert asked == ["http://127.0.0.1:9"]


def test_an_unknown_device_is_refused(checkpoints: Checkpoints) -> None:
    with pytest.raises(BadOption, match="`device` quantum"):
        load_lm(checkpoints("bert"), device="quantum")


def test_the_family_follows_from_the_config_and_unknown_types_are_refused() -> None:
    for name, make in tiny.TINY.items():
        assert family_of(make()[0].config).name == tiny.FAMILY[name]
    causal_bert = BertConfig(is_decoder=True, architectures=["BertLMHeadModel"])
    assert family_of(causal_bert).name == "causal"
    assert family_of(GPT2Config()).name == "causal"

    class Unknown(BertConfig):
        model_type = "crystal-ball"

    with pytest.raises(LMUnavailable, match=r"'crystal-ball'.*seq2seq, masked, causal"):
        family_of(Unknown())


# GGUF


@pytest.fixture(scope="module")
def gguf_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("gguf") / "tiny.gguf"
    write_gguf(path)
    return path


def test_a_gguf_file_loads_and_can_be_asked(gguf_file: Path) -> None:
    lm = load_lm(gguf_file, device="cpu")
    assert lm.family.name == "causal"
    assert lm.identity.name == "tiny.gguf"
    mixture = Mixture(lm, ["The capital of [X] is [Y] ."], MixtureSpec(begin="space", answers="one-token"))
    replies = mixture.ask("Paris", top=3)

    tokenizer: Any = lm.tokenizer
    around = tokenizer("Paris")["input_ids"]
    assert tokenizer.convert_ids_to_tokens(around)[-1] == "Paris"
    sentence = tokenizer.convert_tokens_to_ids(["ĠThe", "Ġcapital", "Ġof", "ĠParis", "Ġis"])
    with torch.no_grad():
        logits = lm.model(input_ids=torch.tensor([around[:-1] + sentence])).logits[0, -1]
    best = logits.softmax(0).topk(3)
    assert [reply.probability for reply in replies] == pytest.approx(best.values.tolist(), abs=1e-5)
    stored = next(tensor for tensor in gguf.GGUFReader(gguf_file).tensors if tensor.name == "token_embd.weight")
    expected = torch.tensor(np.array(stored.data)).view(-1, 32)
    assert torch.equal(lm.word_vectors(torch.arange(len(expected))), expected)


def test_a_gguf_file_is_the_same_lm_under_another_name(gguf_file: Path, tmp_path: Path) -> None:
    shutil.copy(gguf_file, tmp_path / "renamed.gguf")
    identity = load_lm(gguf_file, device="cpu").identity
    assert identity.differences(load_lm(tmp_path / "renamed.gguf", device="cpu").identity) == []


def test_a_gguf_file_that_asks_for_a_first_token_gets_it(gguf_file: Path) -> None:
    """It says add_bos_token, as those of Llama 3 do."""
    lm = load_lm(gguf_file, device="cpu")
    assert lm.wording.prefix == [lm.tokenizer.bos_token_id]


def test_loading_prints_nothing(gguf_file: Path, checkpoints: Checkpoints, capfd: pytest.CaptureFixture[str]) -> None:
    folder = checkpoints("bert")
    capfd.readouterr()
    load_lm(folder, device="cpu")
    load_lm(gguf_file, device="cpu")
    assert capfd.readouterr() == ("", "")


# Frozen


def state_hash(lm: FrozenLM) -> str:
    digest = hashlib.sha256()
    for name, tensor in sorted(lm.model.state_dict().items()):
        digest.update(name.encode())
        digest.update(tensor.numpy().tobytes())
    return digest.hexdigest()


@pytest.mark.parametrize("name", tiny.TINY)
def test_no_weight_gets_a_gradient_or_changes(name: str) -> None:
    lm = FrozenLM(*tiny.TINY[name]())
    before = state_hash(lm)
    mixture = Mixture(lm, usable(name), paper_spec(deep=True, weighting="data-dependent"))
    assert not any(key.startswith("lm") or "model" in key for key in mixture.state_dict())
    start = {key: value.clone() for key, value in mixture.state_dict().items()}
    optimiser = torch.optim.Adam(mixture.parameters(), lr=0.05)
    xs, facts = words(lm, XS)
    golds = torch.full((2, len(XS)), 40)
    for _ in range(2):
        optimiser.zero_grad()
        weights = mixture.weighting(mixture.log_p_x(xs, facts), len(XS))
        (-(mixture.pairs.gold_log_probs(mixture.tuned, xs, golds, facts) + weights).logsumexp(1)).sum().backward()
        optimiser.step()
    assert not torch.equal(mixture.vectors, start["vectors"]), "nothing was learned"
    assert all(parameter.grad is None and not parameter.requires_grad for parameter in lm.model.parameters())
    assert not lm.model.training
    assert state_hash(lm) == before
    with torch.no_grad():  # and no hook is left behind
        ids = torch.tensor([[5, 6, 7]])
        extra = {"decoder_input_ids": ids} if name in agreement.SEQ2SEQ else {}
        fresh = tiny.TINY[name]()[0]
        assert torch.equal(lm.model(input_ids=ids, **extra).logits, fresh(input_ids=ids, **extra).logits)


def test_a_mixture_does_not_move_or_train_its_lm() -> None:
    lm = FrozenLM(*tiny.TINY["bert"]())
    mixture = Mixture(lm, ["[X] is [Y]"], paper_spec())
    mixture.train()
    mixture.double()
    assert not lm.model.training
    assert lm.dtype == torch.float32


# Context


@pytest.mark.parametrize("name", ["roberta", "bert", "gpt2", "bart"])
def test_context_is_what_the_public_model_can_read(name: str) -> None:
    lm = plain(name)
    assert lm.context == tiny.POSITIONS  # RoBERTa's config says 66: two of its positions come before the first token
    assert lm.model.config.max_position_embeddings == (66 if name == "roberta" else 64)
    ids = torch.full((1, tiny.POSITIONS), 7)
    with torch.no_grad():
        assert lm.model(input_ids=ids).logits.isfinite().all()
        with pytest.raises((IndexError, RuntimeError)):
            lm.model(input_ids=torch.full((1, tiny.POSITIONS + 1), 7))
