"""Checkpoints that are broken or do not fit together are refused in one sentence, before anything large is built."""

import json
import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from builders import tiny

from askwell.errors import LMUnavailable
from askwell.lms.load import load_lm


def config(**changes: Any) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        path = folder / "config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | changes))

    return change


def file(name: str, content: bytes) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        (folder / name).write_bytes(content)

    return write


def pickled(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(b"cos\nsystem\n(S'touch harmed'\ntR.")


def other_numbers(folder: Path) -> None:
    path = folder / "tokenizer.json"
    document = json.loads(path.read_text())
    document["model"]["vocab"] = {token: number + 10**6 for token, number in document["model"]["vocab"].items()}
    path.write_text(json.dumps(document))


@pytest.mark.parametrize(
    "harm",
    [
        other_numbers,
        config(num_hidden_layers=1_000_000),
        config(num_hidden_layers=-1),
        config(vocab_size=10**9),
        config(vocab_size=-5),
        config(hidden_size=10**6, num_attention_heads=1),
        config(hidden_size=7),
        config(num_attention_heads=0),
        config(max_position_embeddings=10**10),
        config(num_hidden_layers="many"),
        config(model_type=["bert"]),
        file("config.json", b"[]"),
        file("config.json", b"\xff"),
        file("tokenizer.json", b"{}"),
        file("tokenizer.json", b'{"model": 3'),
        file("model.safetensors", b"\xff" * 64),
        file("model.safetensors", b""),
        pickled,
    ],
)
def test_a_broken_checkpoint_is_refused_in_one_sentence(
    harm: Callable[[Path], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny.save(*tiny.TINY["bert"](), tmp_path / "lm")
    harm(tmp_path / "lm")
    monkeypatch.chdir(tmp_path)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(LMUnavailable) as refused:
        load_lm(tmp_path / "lm")
    assert len(str(refused.value)) < 1000
    assert "\n" not in str(refused.value)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 500_000  # kilobytes
    assert not (tmp_path / "harmed").exists()


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        (pickled, "askwell reads weights alone: take safetensors"),
        (config(model_type="own", auto_map={"AutoConfig": "own.Own"}), "runs no code of a checkpoint"),
        (config(vocab_size=10), "other shapes than its config.json says"),
        (other_numbers, "word vectors"),
    ],
)
def test_what_is_wrong_is_said_in_our_own_words(
    harm: Callable[[Path], None], said: str, tmp_path: Path, recwarn: pytest.WarningsRecorder
) -> None:
    tiny.save(*tiny.TINY["bert"](), tmp_path / "lm")
    harm(tmp_path / "lm")
    with pytest.raises(LMUnavailable) as refused:
        load_lm(tmp_path / "lm")
    assert said in str(refused.value)
    assert "weights_only" not in str(refused.value)
    assert not recwarn.list
