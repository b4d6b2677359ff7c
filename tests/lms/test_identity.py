"""An LM is the same LM wherever it is stored and in whatever precision it runs; any other change makes it another."""

import copy
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from builders import tiny
from safetensors.torch import load_file, save_file
from transformers import AlbertTokenizer, BertTokenizer

from askwell.lms.frozen import FrozenLM
from askwell.lms.identity import LMIdentity
from askwell.lms.load import load_lm

Checkpoints = Callable[[str], Path]


def in_memory(name: str) -> LMIdentity:
    return FrozenLM(*tiny.TINY[name]()).identity


@pytest.mark.parametrize("name", tiny.TINY)
def test_memory_folder_copy_and_precision_are_one_lm(name: str, checkpoints: Checkpoints, tmp_path: Path) -> None:
    folder = checkpoints(name)
    shutil.copytree(folder, tmp_path / "elsewhere")
    saved = load_lm(folder, device="cpu").identity
    assert in_memory(name).differences(saved) == []
    assert saved.differences(load_lm(tmp_path / "elsewhere", device="cpu").identity) == []
    for precision in ("float16", "bfloat16", "float64"):
        loaded = load_lm(folder, device="cpu", dtype=precision)
        assert loaded.dtype == getattr(torch, precision)
        assert not saved.differences(loaded.identity), precision
    assert saved.name == name
    assert str(tmp_path) not in saved.model_dump_json()


def test_one_weight_makes_another_lm(checkpoints: Checkpoints, tmp_path: Path) -> None:
    folder = tmp_path / "changed"
    shutil.copytree(checkpoints("bert"), folder)
    tensors = load_file(folder / "model.safetensors")
    name = sorted(tensors)[0]
    tensors[name].view(-1)[0] += 1e-6
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    changed = load_lm(folder, device="cpu").identity
    assert load_lm(checkpoints("bert"), device="cpu").identity.differences(changed) == ["weights"]


@pytest.mark.parametrize(
    ("key", "value"), [("layer_norm_eps", 1e-5), ("hidden_act", "relu"), ("num_attention_heads", 4)]
)
def test_the_config_makes_another_lm(key: str, value: Any, checkpoints: Checkpoints, tmp_path: Path) -> None:
    folder = tmp_path / "changed"
    shutil.copytree(checkpoints("bert"), folder)
    config = json.loads((folder / "config.json").read_text())
    assert config[key] != value
    (folder / "config.json").write_text(json.dumps(config | {key: value}))
    changed = load_lm(folder, device="cpu").identity
    assert in_memory("bert").differences(changed) == ["config"]
    assert in_memory("bert").differences(changed)


def test_what_says_how_a_checkpoint_was_written_does_not_count(checkpoints: Checkpoints, tmp_path: Path) -> None:
    folder = tmp_path / "newer"
    shutil.copytree(checkpoints("bert"), folder)
    config = json.loads((folder / "config.json").read_text())
    config |= {"transformers_version": "5.99.0", "_name_or_path": "somewhere/else"}
    (folder / "config.json").write_text(json.dumps(dict(reversed(config.items()))))
    assert not in_memory("bert").differences(load_lm(folder, device="cpu").identity)


def test_the_tokenizer_makes_another_lm() -> None:
    model, tokenizer = tiny.TINY["bert"]()
    identity = FrozenLM(model, tokenizer).identity
    vocabulary = tokenizer.get_vocab()
    lowering = BertTokenizer(vocab=dict(vocabulary), do_lower_case=True)
    assert identity.differences(FrozenLM(model, lowering).identity) == ["tokenizer"]
    swapped = vocabulary | {"Paris": vocabulary["Rome"], "Rome": vocabulary["Paris"]}
    exchanged = BertTokenizer(vocab=swapped, do_lower_case=False)
    assert identity.differences(FrozenLM(model, exchanged).identity) == ["tokenizer"]


def test_merges_make_another_lm() -> None:
    model, tokenizer = tiny.TINY["gpt2"]()
    identity = FrozenLM(model, tokenizer).identity
    description = json.loads(tokenizer.backend_tokenizer.to_str())["model"]
    merges = [tuple(merge) for merge in description["merges"]]
    other = type(tokenizer)(vocab=description["vocab"], merges=[*merges[1:], merges[0]])
    assert other.get_vocab() == tokenizer.get_vocab()
    assert identity.differences(FrozenLM(model, other).identity) == ["tokenizer"]


def test_scores_of_a_unigram_tokenizer_make_another_lm() -> None:
    """The vocabulary is the same, but Paris is now written letter by letter."""
    model, tokenizer = tiny.TINY["albert"]()
    identity = FrozenLM(model, tokenizer).identity
    pieces = json.loads(tokenizer.backend_tokenizer.to_str())["model"]["vocab"]
    rescored = AlbertTokenizer(vocab=[(piece, -99.0 if "paris" in piece else score) for piece, score in pieces])
    assert rescored.get_vocab() == tokenizer.get_vocab()
    assert rescored("Paris")["input_ids"] != tokenizer("Paris")["input_ids"]
    assert identity.differences(FrozenLM(model, rescored).identity) == ["tokenizer"]


def test_all_parts_that_differ_are_named() -> None:
    differences = in_memory("bert").differences(in_memory("gpt2"))
    assert set(differences) == {"architecture", "tokenizer", "config", "family", "weights"}
    assert in_memory("bart").differences(in_memory("bart-scaled")) == ["config"]


def test_a_model_that_is_only_copied_is_the_same() -> None:
    model, tokenizer = tiny.TINY["llama"]()
    assert not FrozenLM(model, tokenizer).identity.differences(FrozenLM(copy.deepcopy(model), tokenizer).identity)


def test_a_hub_name_and_a_folder_are_the_same_lm(tmp_path, monkeypatch):
    """As public BERT's, this config.json writes few keys; the hub's cache is made by hand."""
    commit = "0123456789" * 4
    repository = tmp_path / "hub" / "models--me--bert"
    snapshot = repository / "snapshots" / commit
    tiny.save(*tiny.TINY["bert"](), snapshot)
    config = json.loads((snapshot / "config.json").read_text())
    kept = {key: value for key, value in config.items() if key not in ("is_decoder", "classifier_dropout", "dtype")}
    (snapshot / "config.json").write_text(json.dumps(kept | {"gradient_checkpointing": False}))
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(commit)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr("transformers.utils.hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    from_hub, from_folder = load_lm("me/bert", device="cpu"), load_lm(snapshot, device="cpu")
    assert from_hub.identity.differences(from_folder.identity) == []
    assert from_hub.identity.revision == commit
