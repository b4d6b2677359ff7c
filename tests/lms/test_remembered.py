"""What was found out about an LM at an earlier start is reused, and only where it still applies."""

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from builders import tiny
from safetensors.torch import load_file, save_file

from askwell.data.testbed import lm_folder
from askwell.lms import frozen, load
from askwell.lms import identity as remembered
from askwell.lms.frozen import FrozenLM
from askwell.lms.identity import identify
from askwell.lms.load import load_lm
from askwell.mixture.mixture import Mixture


@pytest.fixture
def stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with an LM, whose files count as old."""
    monkeypatch.setattr(remembered, "_SETTLED_SECONDS", -1e6)
    return Path(shutil.copytree(lm_folder("testbed:bart"), tmp_path / "lm"))


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was found out anew, by the names of the functions that do it."""
    done: list[str] = []

    def noting(module: Any, name: str) -> None:
        real = getattr(module, name)

        def noted(*arguments: Any, **options: Any) -> Any:
            done.append(name)
            return real(*arguments, **options)

        monkeypatch.setattr(module, name, noted)

    noting(load, "identify")
    noting(frozen, "probe")
    noting(frozen, "agrees")
    return done


ALL = ["identify", "probe", "agrees"]


def entries(kind: str) -> list[Path]:
    return list((Path(os.environ["ASKWELL_CACHE"]) / kind).iterdir())


def answers(lm: FrozenLM) -> list[float]:
    return [reply.probability for reply in Mixture(lm, ["The capital of [X] is [Y] ."]).ask("France")]


def test_a_second_start_finds_nothing_anew_and_answers_the_same(stored: Path, work: list[str]) -> None:
    first = load_lm(stored)
    assert work == ALL
    second = load_lm(stored)
    assert work == ALL
    assert second.identity == first.identity
    assert {name: (s.layers, s.width) for name, s in second.stacks.items()} == {
        "encoder": (2, 128),
        "decoder": (2, 128),
    }
    assert second.walk is not None
    assert answers(second) == answers(first)
    second.walk = first.walk = None  # the public model as a whole, whose head is held to the positions that are read
    assert answers(second) == answers(first)


def test_that_a_walk_differs_is_remembered_too(stored: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(frozen, "agrees", lambda _lm: False)
        assert load_lm(stored).walk is None
    assert load_lm(stored).walk is None


@pytest.mark.parametrize("kind", ["checked", "identified"])
@pytest.mark.parametrize("damage", ["cut", "another", "no JSON", "a list"])
def test_a_damaged_or_foreign_entry_is_made_anew(stored: Path, work: list[str], kind: str, damage: str) -> None:
    expected = answers(load_lm(stored))
    (entry,) = entries(kind)
    whole = entry.read_text()
    if damage == "another":
        document = json.loads(whole)
        document["key"]["torch"] = "1.0"
        entry.write_text(json.dumps(document))
    else:
        entry.write_text({"cut": whole[:-40], "no JSON": "\0\1", "a list": "[1]"}[damage])
    work.clear()
    assert answers(load_lm(stored)) == expected
    assert work == (["identify"] if kind == "identified" else ["probe", "agrees"])
    assert json.loads(entry.read_text()) == json.loads(whole)


def test_another_version_finds_everything_anew(stored: Path, work: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    load_lm(stored)
    versions = remembered._versions()
    monkeypatch.setattr(remembered, "_versions", lambda: versions | {"transformers": "99.0"})
    load_lm(stored)
    assert work == [*ALL, *ALL]


def test_altered_weights_of_the_same_size_and_age_are_another_lm(stored: Path, work: list[str]) -> None:
    first = load_lm(stored)
    path = stored / "model.safetensors"
    before = path.stat()
    tensors = load_file(path)
    name = max(tensors, key=lambda name: tensors[name].numel())
    tensors[name] = tensors[name].flip(0).contiguous()
    save_file(tensors, path, metadata={"format": "pt"})
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert path.stat().st_size == before.st_size
    second = load_lm(stored)
    assert work == [*ALL, *ALL]
    assert second.identity.differences(first.identity) == ["weights"]


def test_young_files_are_not_remembered(tmp_path: Path, work: list[str]) -> None:
    folder = Path(shutil.copytree(lm_folder("testbed:bart"), tmp_path / "lm"))
    load_lm(folder)
    load_lm(folder)
    assert work == [*ALL, "identify"]


def test_a_remembered_identity_is_that_of_the_model(stored: Path) -> None:
    load_lm(stored)
    lm = load_lm(stored)
    model, tokenizer, folder = load.load_checkpoint_files(str(stored), None)
    assert lm.identity == identify(model, tokenizer, name="lm", family="seq2seq", folder=folder)


def test_a_cache_that_cannot_be_written_does_no_harm(
    stored: Path, work: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("ASKWELL_CACHE", str(tmp_path / "file" / "cache"))
    load_lm(stored)
    load_lm(stored)
    assert work == [*ALL, *ALL]


def test_models_in_memory_are_always_checked(work: list[str]) -> None:
    for _ in range(2):
        model, tokenizer = tiny.TINY["bert"]()
        FrozenLM(model, tokenizer, dtype=torch.float32)
    assert work == ["probe", "agrees"] * 2
