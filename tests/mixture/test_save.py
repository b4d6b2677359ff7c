"""Saved mixtures: what is loaded again, what is refused, and what a crash leaves behind."""

import json
import math
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from agreement import ALL, moved, plain, usable, words
from builders import tiny
from builders.specs import paper_spec
from huggingface_hub import ModelCard
from safetensors.torch import load_file

from askwell.answers.one_token import OneTokenAnswers
from askwell.data.templates import parse_template
from askwell.errors import BadFile, DamagedFile, LMUnavailable, WrongLM
from askwell.lms.frozen import FrozenLM
from askwell.lms.load import load_lm
from askwell.mixture.description import About, model_card
from askwell.mixture.learned_from import DevAnswers, LearnedFrom, RelationRecord
from askwell.mixture.mixture import Mixture
from askwell.mixture.save import read_description
from askwell.specs.mixture_spec import ONE_TOKEN, AnswerKind, MixtureSpec
from askwell.specs.training_spec import TrainingSpec

P19 = RelationRecord(name="P19")

XS = ["Reykjavik", "Paris"]
FILES = {"config.json", "mixture.safetensors", "README.md"}
SPECS = {
    "layer 0": paper_spec(),
    "deep and data-dependent": paper_spec(deep=True, weighting="data-dependent"),
    "product": paper_spec(combine="product"),
    "copies": paper_spec(copies=2, noise=0.3, seed=5),
    "random": paper_spec(initial="random", seed=3),
}
TEMPLATES = ["The capital of [X] is [Y] .", "[X] ([Y])", "[X]'s city is | `[Y]` ."]


def saved(folder: Path, spec: MixtureSpec | None = None, seed: int = 11, about: About | None = None) -> Mixture:
    mixture = moved(plain("roberta"), TEMPLATES, spec, seed=seed)
    mixture.save_pretrained(folder, about=about)
    return mixture


def answered(right: int) -> DevAnswers:
    document = {"relation": "P19", "vocabulary": "all", "candidates": None, "facts": 1, "left_out": {}}
    return DevAnswers.model_validate({**document, "probabilities": [0.5], "right": [right]})


def assert_same(one: Mixture, other: Mixture) -> None:
    mine, theirs = one.state_dict(), other.state_dict()
    assert mine.keys() == theirs.keys()
    assert all(torch.equal(mine[key], theirs[key]) for key in mine)


CASES = [(name, "deep and data-dependent") for name in ALL] + [("roberta", kind) for kind in SPECS]


@pytest.mark.parametrize(("name", "kind"), dict.fromkeys(CASES))
def test_what_is_saved_comes_back(name: str, kind: str, tmp_path: Path) -> None:
    mixture = moved(plain(name), usable(name), SPECS[kind])
    mixture.save_pretrained(tmp_path)
    back = Mixture.from_pretrained(tmp_path, lm=plain(name))
    assert_same(mixture, back)
    assert back.spec == mixture.spec
    assert [prompt.template for prompt in back.prompts] == [prompt.template for prompt in mixture.prompts]
    xs, facts = words(plain(name), XS)
    assert torch.equal(OneTokenAnswers(back).log_probs(xs, facts), OneTokenAnswers(mixture).log_probs(xs, facts))
    assert {path.name for path in tmp_path.iterdir()} == FILES, "and nothing that could run code"


@pytest.mark.parametrize(
    "kind",
    [
        None,
        ONE_TOKEN,
        AnswerKind(any_length=True, longest=7),
        AnswerKind(any_length=True, longest=3, log_lengths=(-0.1, math.log(1 / 3), -7.25)),
    ],
)
def test_what_counts_as_an_answer_comes_back(kind: AnswerKind | None, tmp_path: Path) -> None:
    mixture = moved(plain("roberta"), TEMPLATES, MixtureSpec(answers="any-length", longest_answer=7))
    mixture.answer_kind = kind
    mixture.save_pretrained(tmp_path)
    assert read_description(tmp_path).answers == kind
    back = Mixture.from_pretrained(tmp_path, lm=plain("roberta"))
    assert back.answer_kind == kind
    assert back.spec == mixture.spec
    if kind is not None and kind.is_long:
        assert back.ask("Paris", top=3) == mixture.ask("Paris", top=3)


def test_what_else_comes_back(tmp_path: Path) -> None:
    templates = [parse_template("[X] is [Y] .", 0.5), parse_template("[X] is [Y] !", 0.25), "[Y] is [X]"]
    mixture = Mixture(plain("gpt2"), [*templates, parse_template("[X] was [Y]", 0.25)], paper_spec(weights="file"))
    about = About(
        relation=RelationRecord(name="P19", sha256="f00", split_by="random", counts={"read": 3}),
        learned_from=LearnedFrom(train_facts=3, training=TrainingSpec(pairs=8), pairs=8),
        scores={"test": {"facts": 3, "P@1": 66.7, "vocabulary": "all"}},
        dev_answers=answered(1),
    )
    mixture.save_pretrained(tmp_path, about=about)
    back = Mixture.from_pretrained(str(tmp_path), lm=plain("gpt2"))
    found = read_description(tmp_path)
    for name in About.model_fields:
        assert getattr(found, name) == getattr(about, name)
    assert back.left_out_prompts == mixture.left_out_prompts
    assert len(back.left_out_prompts) == 2
    assert back.weights.tolist() == mixture.weights.tolist() == pytest.approx([0.75, 0.25])
    card = (tmp_path / "README.md").read_text()
    assert "P19" in card
    assert "66.7" in card
    again = tmp_path / "again"
    back.save_pretrained(again, about=found)
    assert (again / "config.json").read_bytes() == (tmp_path / "config.json").read_bytes()
    back.save_pretrained(again)
    assert read_description(again).dev_answers is None
    assert (read_description(again).relation, read_description(again).learned_from) == (None, None)


def test_the_folder_of_a_run_is_as_good_as_its_mixtures(tmp_path: Path) -> None:
    mixture = saved(tmp_path / "run" / "mixture", about=About(relation=P19))
    assert_same(Mixture.from_pretrained(tmp_path / "run", lm=plain("roberta")), mixture)
    assert read_description(tmp_path / "run").relation == P19


def test_the_description_can_be_read_without_the_lm(tmp_path: Path) -> None:
    mixture = saved(tmp_path, paper_spec(weighting="data-dependent"))
    description = read_description(tmp_path)
    assert [prompt.template for prompt in description.prompts] == TEMPLATES
    assert description.mixture_weights == pytest.approx(mixture.weights.tolist())
    assert description.effective_prompts == pytest.approx(mixture.effective_prompts)
    assert description.temperature == pytest.approx(2.0137527)  # e to the 0.7
    assert description.base_lm.architecture == "RobertaForMaskedLM"


def test_saving_twice_gives_the_same_bytes(tmp_path: Path) -> None:
    mixture = saved(tmp_path / "one")
    mixture.save_pretrained(tmp_path / "two")
    mixture.save_pretrained(tmp_path / "one")
    for name in FILES:
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes(), name


def test_saving_again_replaces(tmp_path: Path) -> None:
    saved(tmp_path, seed=1)
    second = saved(tmp_path, paper_spec(deep=True), seed=2)
    assert_same(second, Mixture.from_pretrained(tmp_path, lm=plain("roberta")))
    assert {path.name for path in tmp_path.iterdir()} == FILES


def test_tensors_are_plain_safetensors(tmp_path: Path) -> None:
    mixture = saved(tmp_path, paper_spec(deep=True))
    tensors = load_file(tmp_path / "mixture.safetensors")
    assert set(tensors) == {"vectors", "initial_vectors", "weighting.logits", *(f"deltas.layers.{n}" for n in range(2))}
    assert torch.equal(tensors["vectors"], mixture.vectors)


# On which LM


def test_another_lm_is_refused(tmp_path: Path) -> None:
    saved(tmp_path)
    with pytest.raises(WrongLM, match="architecture, tokenizer, config, weights differ"):
        Mixture.from_pretrained(tmp_path, lm=plain("bert"))
    tiny_lm: Any = tiny.TINY["roberta"]()
    model, tokenizer = tiny_lm
    with torch.no_grad():
        model.get_input_embeddings().weight[9, 3] += 0.5
    with pytest.raises(WrongLM, match="its weights differ"):
        Mixture.from_pretrained(tmp_path, lm=FrozenLM(model, tokenizer))


def test_the_lm_is_loaded_if_it_is_not_given(tmp_path: Path) -> None:
    tiny.save(*tiny.TINY["roberta"](), tmp_path / "lm")
    mixture = moved(load_lm(tmp_path / "lm", device="cpu"), TEMPLATES)
    mixture.save_pretrained(tmp_path / "mixture")
    back = Mixture.from_pretrained(tmp_path / "mixture")
    xs, facts = words(back.lm, XS)
    assert torch.equal(OneTokenAnswers(back).log_probs(xs, facts), OneTokenAnswers(mixture).log_probs(xs, facts))

    shutil.move(tmp_path / "lm", tmp_path / "moved")
    with pytest.raises(LMUnavailable, match="needs the LM it was learned on"):
        Mixture.from_pretrained(tmp_path / "mixture")
    there = Mixture.from_pretrained(tmp_path / "mixture", lm=load_lm(tmp_path / "moved", device="cpu"))
    assert_same(there, mixture)


def test_an_lm_in_memory_must_be_given(tmp_path: Path) -> None:
    saved(tmp_path)
    with pytest.raises(LMUnavailable, match="a model in memory"):
        Mixture.from_pretrained(tmp_path)


def test_an_lm_in_another_precision_is_the_same_lm(tmp_path: Path) -> None:
    tiny.save(*tiny.TINY["roberta"](), tmp_path / "lm")
    mixture = moved(load_lm(tmp_path / "lm", device="cpu"), TEMPLATES)
    mixture.save_pretrained(tmp_path / "mixture")
    double = Mixture.from_pretrained(tmp_path / "mixture", lm=load_lm(tmp_path / "lm", device="cpu", dtype="float64"))
    assert double.vectors.dtype == torch.float64
    assert torch.equal(double.vectors.float(), mixture.vectors)


# Damage


def flip_byte(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


def empty(path: Path) -> None:
    path.write_bytes(b"")


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-10])


def alter(**changes: Any) -> Callable[[Path], None]:
    def edit(path: Path) -> None:
        config = json.loads(path.read_text())
        path.write_text(json.dumps(config | changes))

    return edit


DAMAGE: dict[str, tuple[str, Callable[[Path], None], str]] = {
    "truncated tensors": ("mixture.safetensors", truncate, r"mixture\.safetensors is truncated or altered"),
    "empty tensors": ("mixture.safetensors", empty, "truncated"),
    "flipped byte": ("mixture.safetensors", flip_byte, "its hash is not the one in config"),
    "truncated config": ("config.json", truncate, r"config\.json is damaged"),
    "another answer to dev": (
        "config.json",
        alter(dev_answers={"right": [1]}),
        r"config\.json is damaged: dev_answers",
    ),
    "another prompt": ("config.json", alter(prompts=[{"template": "[X] [Y]"}]), "does not fit its prompts"),
    "later version": ("config.json", alter(version=2), r"config\.json was written by a later askwell .*: upgrade"),
}


@pytest.mark.parametrize("case", DAMAGE)
def test_damage_is_found(case: str, tmp_path: Path) -> None:
    saved(tmp_path, about=About(dev_answers=answered(1)))
    name, damage, message = DAMAGE[case]
    damage(tmp_path / name)
    with pytest.raises(DamagedFile, match=message):
        Mixture.from_pretrained(tmp_path, lm=plain("roberta"))


def test_what_is_no_saved_mixture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(BadFile, match=r"holds no config\.json"):
        Mixture.from_pretrained(tmp_path, lm=plain("roberta"))
    with pytest.raises(BadFile, match="no such folder here, and no such mixture on the hub"):
        Mixture.from_pretrained(tmp_path / "missing", lm=plain("roberta"))
    (tmp_path / "file").write_text("")
    with pytest.raises(BadFile, match="is a file"):
        Mixture.from_pretrained(tmp_path / "file", lm=plain("roberta"))
    tiny.save(*tiny.TINY["bert"](), tmp_path / "bert")
    with pytest.raises(BadFile, match="not the description of a saved askwell mixture"):
        Mixture.from_pretrained(tmp_path / "bert", lm=plain("roberta"))
    saved(tmp_path / "mixture")
    (tmp_path / "mixture" / "mixture.safetensors").unlink()
    with pytest.raises(BadFile, match=r"holds no mixture\.safetensors"):
        Mixture.from_pretrained(tmp_path / "mixture", lm=plain("roberta"))


# Crashes


class Crash(BaseException):
    pass


def save_until(monkeypatch: pytest.MonkeyPatch, mixture: Mixture, folder: Path, step: int, about: About) -> bool:
    """Saves, and crashes right before the step-th time that a file is moved into place; whether it came so far."""
    moves = 0
    move = Path.replace

    def count(self: Path, target: Any) -> Path:
        nonlocal moves
        moves += 1
        if moves == step:
            raise Crash
        return move(self, target)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "replace", count)
        try:
            mixture.save_pretrained(folder, about=about)
        except Crash:
            return True
    return False


def test_a_crash_leaves_the_old_mixture_or_the_new(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lm = plain("roberta")
    old, new = moved(lm, TEMPLATES, seed=1), moved(lm, TEMPLATES, paper_spec(deep=True), seed=2)
    about_old, about_new = (About(dev_answers=answered(right)) for right in (0, 1))
    crashed = 0
    for step in range(1, 10):
        folder = tmp_path / str(step)
        old.save_pretrained(folder, about=about_old)
        if not save_until(monkeypatch, new, folder, step, about_new):
            break
        crashed += 1
        back = Mixture.from_pretrained(folder, lm=lm)
        assert_same(back, new if back.spec.deep else old)
        assert read_description(folder).dev_answers == answered(int(back.spec.deep))
        new.save_pretrained(folder)  # and saving once more sets all right
        assert_same(Mixture.from_pretrained(folder, lm=lm), new)
        assert {path.name for path in folder.iterdir()} >= FILES
    assert crashed >= 3


def test_a_first_save_that_crashed_before_its_last_step_still_loads(tmp_path: Path) -> None:
    mixture = saved(tmp_path)
    (tmp_path / "mixture.safetensors").rename(tmp_path / "mixture.safetensors.new")
    assert_same(Mixture.from_pretrained(tmp_path, lm=plain("roberta")), mixture)


def test_a_save_that_crashed_between_config_and_tensors_still_loads(tmp_path: Path) -> None:
    old = saved(tmp_path, seed=1)
    before = (tmp_path / "mixture.safetensors").read_bytes()
    new = saved(tmp_path, seed=2)
    (tmp_path / "mixture.safetensors").rename(tmp_path / "mixture.safetensors.new")
    (tmp_path / "mixture.safetensors").write_bytes(before)
    back = Mixture.from_pretrained(tmp_path, lm=plain("roberta"))
    assert_same(back, new)
    assert not torch.equal(back.vectors, old.vectors)


# The hub


def test_what_is_pushed_is_what_is_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    uploaded: dict[str, bytes] = {}
    created: list[str] = []

    class Repository:
        repo_id = "someone/mixture"

    def create_repo(_api: Any, repo_id: str, **_options: Any) -> Repository:
        created.append(repo_id)
        return Repository()

    def upload_folder(_api: Any, *, folder_path: Path, repo_id: str, **_options: Any) -> str:
        assert repo_id == "someone/mixture"
        uploaded.update({path.name: path.read_bytes() for path in Path(folder_path).rglob("*") if path.is_file()})
        return "https://huggingface.co/someone/mixture/commit/1"

    monkeypatch.setattr("huggingface_hub.hub_mixin.HfApi.create_repo", create_repo)
    monkeypatch.setattr("huggingface_hub.hub_mixin.HfApi.upload_folder", upload_folder)
    about = About(relation=P19)
    mixture = saved(tmp_path, about=about)
    mixture.push_to_hub("someone/mixture", about=about)
    assert created == ["someone/mixture"]
    assert uploaded == {path.name: path.read_bytes() for path in tmp_path.iterdir()}


def test_a_mixture_of_the_hub_is_fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mixture = saved(tmp_path)
    fetched = []

    def download(repo_id: str, name: str, **options: Any) -> str:
        fetched.append((repo_id, name, options))
        return str(tmp_path / name)

    monkeypatch.setattr("askwell.mixture.save.hf_hub_download", download)
    back = Mixture.from_pretrained("someone/mixture", lm=plain("roberta"), revision="abc")
    assert_same(back, mixture)
    assert ("someone/mixture", "config.json", {"revision": "abc"}) in fetched


def test_the_card_names_its_prompts_by_weight(tmp_path: Path) -> None:
    mixture = saved(tmp_path)
    card = (tmp_path / "README.md").read_text()
    rows = [line for line in card.splitlines() if line.startswith("| 0.")]
    weights = [float(row.split("|")[1]) for row in rows]
    assert weights == sorted(weights, reverse=True)
    assert weights == pytest.approx(sorted(mixture.weights.tolist(), reverse=True), abs=1e-4)
    assert card.startswith("---\n")
    assert "base_model" not in card, "a model in memory has no name on the hub"


def test_the_card_shows_what_was_chosen_and_no_defaults() -> None:
    lm = FrozenLM(*tiny.TINY["bert"]())
    about = About(relation=P19, learned_from=LearnedFrom(training=TrainingSpec(pairs=40)))
    card = str(model_card(Mixture(lm, TEMPLATES[:1], copies=2, noise=0.3), about))
    assert "of 2 prompts for P19" in card
    assert "- training: recipe cycle, pairs 40\n" in card  # a budget makes it one cycle
    assert "copies 2" in card
    assert not [
        usual
        for usual in ("combine", "seed", "deep", "prefix", "finished")
        if f"{usual} " in card.split("Learned from")[1]
    ]
    assert "A mixture of 1 prompt for P19" in str(model_card(Mixture(lm, TEMPLATES[:1]), about))


def test_the_header_of_the_card_has_the_test_scores_as_the_hub_reads_them() -> None:
    scores = {
        "dev": {"P@1": 10.0, "facts": 2, "vocabulary": "all"},
        "test": {"P@1": 75.0, "MRR": 80.5, "log_loss": 1.0, "facts": 4, "vocabulary": "all", "units": "in per cent"},
    }
    about = About(relation=RelationRecord(name="P19"), scores=scores)
    card = model_card(Mixture(FrozenLM(*tiny.TINY["bert"]()), TEMPLATES[:1]), about)
    card = ModelCard(str(card))
    data: Any = card.data
    results = data.eval_results
    assert [(one.metric_type, one.metric_value) for one in results] == [("p@1", 75.0), ("mrr", 80.5)]
    assert {(one.dataset_name, one.dataset_split) for one in results} == {("P19", "test")}


def test_texts_from_outside_stay_text_in_the_card() -> None:
    hostile = "<script>alert(1)</script> ![x](http://x) `a` |\x1b[31m\u202e"
    mixture = Mixture(FrozenLM(*tiny.TINY["bert"]()), ["[X] ``` <b> is [Y] ."])
    scores = {"test": {"facts": 1, "vocabulary": hostile, "P@1": 1.0}}
    about = About(relation=RelationRecord(name=hostile), learned_from=LearnedFrom(prompt=hostile), scores=scores)
    card = str(model_card(mixture, about))
    assert re.search(r"(?<!\\)(<script|\]\(http)", card) is None  # each of them is escaped
    assert all(one.isprintable() or one == "\n" for one in card)
    assert card.count(r"\<script\>alert(1)") == 4
    assert r"| \[X\] \`\`\` \<b\> is \[Y\] . |" in card


def test_tensors_that_are_no_numbers_are_refused_though_all_hashes_fit(tmp_path: Path) -> None:
    lm = FrozenLM(*tiny.TINY["bert"]())
    mixture = Mixture(lm, ["[X] is [Y] ."])
    with torch.no_grad():
        mixture.vectors[0, 0] = math.nan
    mixture.save_pretrained(tmp_path)
    with pytest.raises(DamagedFile, match="NaN"):
        Mixture.from_pretrained(tmp_path, lm=lm)
