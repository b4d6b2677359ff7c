"""A tokenizer can be apart from the weights, or be made from a vocab.txt; an LM that cannot be asked is refused."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from agreement import words
from builders import tiny
from builders.specs import paper_spec
from transformers import AlbertConfig, AlbertForMaskedLM, BertTokenizer, T5Config, T5ForConditionalGeneration

from askwell.answers.one_token import OneTokenAnswers
from askwell.errors import LMUnavailable
from askwell.lms.checkpoints import wordpiece
from askwell.lms.load import load_lm
from askwell.mixture.learned_from import TOKENIZER_PATH
from askwell.mixture.mixture import Mixture
from askwell.runs.sources import saved_mixture

Checkpoints = Callable[[str], Path]
VOCABULARY = tiny.TINY["bert"]()[1].get_vocab()
TEMPLATES = ["The capital of [X] is [Y] .", "Boston born [X] was in [Y]"]
PIECES = sorted(VOCABULARY, key=VOCABULARY.__getitem__)


def vocabulary(folder: Path, pieces: list[str]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "vocab.txt").write_text("\n".join(pieces) + "\n", encoding="utf-8")
    return folder / "vocab.txt"


@pytest.fixture
def albert(tmp_path: Path) -> tuple[AlbertForMaskedLM, Path]:
    """An ALBERT that was trained with BERT's WordPiece: weights, config and no tokenizer."""
    tokenizer = tiny.TINY["bert"]()[1]
    size: Any = {"vocab_size": len(tokenizer), "embedding_size": 16, "hidden_size": 24, "intermediate_size": 40}
    config = AlbertConfig(**size, num_hidden_layers=2, num_attention_heads=2, max_position_embeddings=tiny.POSITIONS)
    torch.manual_seed(0)
    model = AlbertForMaskedLM(config).eval()
    model.save_pretrained(tmp_path / "albert")
    return model, tmp_path / "albert"


def expected(model: AlbertForMaskedLM, x: str) -> torch.Tensor:
    """log p(· | x) of the first template by the public model, in tokens that are written out."""
    tokenizer = tiny.TINY["bert"]()[1]
    tokens = f"[CLS] The capital of {x} is [MASK] . [SEP]".split()
    ids = torch.tensor([[tokenizer.get_vocab()[token] for token in tokens]])
    with torch.no_grad():
        return model(input_ids=ids).logits[0, tokens.index("[MASK]")].log_softmax(-1)


def test_an_albert_with_berts_vocabulary_beside_it_loads(albert: tuple[AlbertForMaskedLM, Path]) -> None:
    model, folder = albert
    with pytest.raises(LMUnavailable, match=r"albert: it has no tokenizer.*`tokenizer`"):
        load_lm(folder, device="cpu")
    vocabulary(folder, PIECES)
    lm = load_lm(folder, device="cpu")
    answers = OneTokenAnswers(Mixture(lm, TEMPLATES[:1], paper_spec())).log_probs(*words(lm, ["Paris", "Reykjavik"]))
    torch.testing.assert_close(answers[0], expected(model, "Paris"), rtol=0, atol=1e-5)
    torch.testing.assert_close(answers[1], expected(model, "Rey ##kja ##vik"), rtol=0, atol=1e-5)


def test_a_tokenizer_apart_from_the_weights(albert: tuple[AlbertForMaskedLM, Path], tmp_path: Path) -> None:
    model, folder = albert
    file = vocabulary(tmp_path / "apart", PIECES)
    tiny.TINY["bert"]()[1].save_pretrained(tmp_path / "whole")
    digests = set()
    for tokenizer in (file, file.parent, tmp_path / "whole"):
        lm = load_lm(folder, tokenizer=tokenizer, device="cpu")
        answers = OneTokenAnswers(Mixture(lm, TEMPLATES[:1], paper_spec())).log_probs(*words(lm, ["Paris"]))
        torch.testing.assert_close(answers[0], expected(model, "Paris"), rtol=0, atol=1e-5)
        assert lm.tokenizer_source == str(tokenizer)
        digests.add(lm.identity.digest)
    assert len(digests) == 1
    swapped = [PIECES[1], PIECES[0], *PIECES[2:]]
    other = load_lm(folder, tokenizer=vocabulary(tmp_path / "swapped", swapped), device="cpu")
    assert other.identity.differences(lm.identity) == ["tokenizer"]
    assert other.identity.digest not in digests


def test_it_replaces_the_one_beside_the_weights(checkpoints: Checkpoints, tmp_path: Path) -> None:
    BertTokenizer(vocab=VOCABULARY, do_lower_case=True).save_pretrained(tmp_path)
    own, other = load_lm(checkpoints("bert"), device="cpu"), load_lm(checkpoints("bert"), tokenizer=tmp_path)
    assert own.identity.differences(other.identity) == ["tokenizer"]
    assert len(other.wording.encode("Paris", other.wording.marks)) > 1


def test_a_saved_mixture_finds_its_tokenizer(
    albert: tuple[AlbertForMaskedLM, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, folder = albert
    file = vocabulary(tmp_path / "apart", PIECES)
    mixture = Mixture(load_lm(folder, tokenizer=file, device="cpu"), TEMPLATES, paper_spec())
    mixture.save_pretrained(tmp_path / "saved")
    assert (tmp_path / "saved" / TOKENIZER_PATH).read_text() == f"{file}\n"
    assert json.loads((tmp_path / "saved" / "config.json").read_text())["tokenizer"] == "vocab.txt"
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    again = Mixture.from_pretrained(tmp_path / "saved")
    assert again.lm.identity == mixture.lm.identity
    # The LM and its tokenizer have moved: both can be named.
    shutil.move(folder, tmp_path / "moved")
    shutil.move(file, tmp_path / "vocab.txt")
    options: Any = {"revision": None, "device": "cpu", "dtype": "auto"}
    moved = saved_mixture(
        str(tmp_path / "saved"), str(tmp_path / "moved"), tokenizer=str(tmp_path / "vocab.txt"), **options
    )
    assert not moved.lm.identity.differences(mixture.lm.identity)
    with pytest.raises(LMUnavailable, match=f"`tokenizer` {file}: there is no such folder or file"):
        saved_mixture(str(tmp_path / "saved"), str(tmp_path / "moved"), **options)


def test_a_tokenizer_of_another_lm_is_refused(albert: tuple[AlbertForMaskedLM, Path], tmp_path: Path) -> None:
    _, folder = albert
    many = vocabulary(tmp_path / "many", [*PIECES, *(f"word{number}" for number in range(3))])
    message = rf"`tokenizer`: it has tokens up to number {len(PIECES) + 2}, but .*albert has {len(PIECES)} word vectors"
    with pytest.raises(LMUnavailable, match=message):
        load_lm(folder, tokenizer=many, device="cpu")
    (tmp_path / "empty").mkdir()
    with pytest.raises(LMUnavailable, match=r"`tokenizer` .*empty: no tokenizer can be loaded from there"):
        load_lm(folder, tokenizer=tmp_path / "empty", device="cpu")
    with pytest.raises(LMUnavailable, match=r"`tokenizer` .*config.json: it is a file; name its folder"):
        load_lm(folder, tokenizer=folder / "config.json", device="cpu")


def test_a_vocabulary_of_another_kind_is_refused(albert: tuple[AlbertForMaskedLM, Path], tmp_path: Path) -> None:
    _, folder = albert
    with pytest.raises(LMUnavailable, match=r"`tokenizer` .*: vocab.txt has no piece \[UNK\]"):
        load_lm(folder, tokenizer=vocabulary(tmp_path / "other", ["<s>", "</s>", "Paris"]), device="cpu")


SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def test_lower_case_and_accents_follow_the_vocabulary(tmp_path: Path) -> None:
    def tokens(name: str, pieces: list[str], text: str, settings: dict[str, bool] | None = None) -> list[str]:
        file = vocabulary(tmp_path / name, [*SPECIAL, *pieces])
        if settings is not None:
            (file.parent / "tokenizer_config.json").write_text(json.dumps(settings))
        return wordpiece(file).tokenize(text)

    assert tokens("cased", ["Paris", "paris"], "Paris paris") == ["Paris", "paris"]
    assert tokens("lower", ["paris", "cafe"], "Paris Café") == ["paris", "cafe"]
    assert tokens("accents", ["paris", "café"], "Paris Café") == ["paris", "café"]
    assert tokens("hangul", ["서울", "paris"], "서울 Paris") == ["서울", "paris"]  # not cut into its letters
    given = {"do_lower_case": False}
    assert tokens("given", ["paris", "##aris"], "paris Paris", given) == ["paris", "[UNK]"]


def test_t5_is_refused_with_a_sentence(tmp_path: Path) -> None:
    tokenizer = tiny.TINY["gpt2"]()[1]
    size: Any = {"vocab_size": len(tokenizer), "d_model": 16, "d_kv": 8, "d_ff": 16, "num_layers": 1, "num_heads": 2}
    model = T5ForConditionalGeneration(T5Config(**size))
    tiny.save(model, tokenizer, tmp_path)
    with pytest.raises(
        LMUnavailable, match=r"has no mask token \(t5\).*such as BART, but not T5 and similar models"
    ) as refusal:
        load_lm(tmp_path, device="cpu")
    assert str(refusal.value).startswith(f"{tmp_path}: ")
