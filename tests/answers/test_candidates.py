"""Probabilities among candidates and labels, and the loss of classification, against a plain loop over the reference;
and the files that candidates are read from."""

import math
from collections.abc import Sequence
from pathlib import Path

import agreement
import pytest
import reference
import torch
from agreement import (
    GLUED_X,
    X_FIRST,
    Y_FIRST,
    Twin,
    exact,
    ids,
    moved,
    pieces,
    plain,
    script,
    usable,
    words,
    x_ids,
)
from builders import tiny
from builders.specs import paper_spec
from builders.worlds import frozen
from enumeration import end_of

from askwell.answers.candidate_answers import CandidateAnswers
from askwell.answers.candidates import Candidates, find_candidates, load_candidates
from askwell.data.facts import Fact, Relation
from askwell.errors import BadFile, BadOption, NothingLeft
from askwell.mixture.mixture import Mixture
from askwell.specs.mixture_spec import AnswerKind
from askwell.training.loop import Objective

NAMES = ["bert", "roberta", "bart", "gpt2", "llama"]
SETTINGS = ["static", "data-dependent", "product"]
LENGTHS = (0.5, 0.2, 0.3)
# What each label is called cannot be spelled by the tiny LMs; its words can.
LABELLED = {"a city": ("Paris", "Reykjavik"), "a person": ("Mary Cassatt",), "an island": ("Cuba",)}
PAIRS = [("Paris", "an island"), ("Mary Cassatt", "a person"), ("Reykjavik", "Paris")]
"""Two ys are labels, and one is a word of a label."""
GOLD_LABELS = ["an island", "a person", "a city"]
XS = [x for x, _ in PAIRS]


def labelled() -> Candidates:
    every = [(word, label) for label, of_label in LABELLED.items() for word in of_label]
    return Candidates("kinds", tuple(word for word, _ in every), tuple(label for _, label in every))


def plain_words() -> Candidates:
    return Candidates("words", tuple(word for of_label in LABELLED.values() for word in of_label))


def templates_of(name: str) -> list[str]:
    return usable(name, (X_FIRST[0], GLUED_X, X_FIRST[3], Y_FIRST[0]))


def kind_of(name: str) -> AnswerKind:
    """Answers of up to three tokens; how long they are is given to masked LMs."""
    if tiny.FAMILY[name] != "masked":
        return AnswerKind(any_length=True, longest=10)
    return AnswerKind(any_length=True, longest=10, log_lengths=tuple(map(math.log, LENGTHS)))


def mixture_of(name: str, setting: str) -> Mixture:
    spec = {"combine": "product"} if setting == "product" else {"weighting": setting, "deep": True}
    mixture = moved(exact(name), templates_of(name), paper_spec(**spec))
    mixture.answer_kind = kind_of(name)
    return mixture


def log_p_word(twin: Twin, name: str, t: int, x: str, word: str) -> torch.Tensor:
    """log p(word | t, x), the word in tokens that are written by hand."""
    lm, template = exact(name), twin.templates[t]
    y_ids = ids(name, agreement.XS[script(name)][word][0])
    log_length = math.log(LENGTHS[len(y_ids) - 1]) if tiny.FAMILY[name] == "masked" else 0.0
    return reference.log_p_answer(
        lm.model, lm.tokenizer, tiny.FAMILY[name], pieces(name, template),
        x_ids(name, template, x), y_ids, end_of(name, template, x), twin.vectors[t], twin.deltas[t] or None,
        log_length,
    )  # fmt: skip


def expected(twin: Twin, name: str, x: str, setting: str, labels: Sequence[Sequence[str]]) -> torch.Tensor:
    """p(label | x, r) over labels, as sums and products of probabilities."""
    by_prompt = []
    for t in range(len(twin.templates)):
        by_label = [[log_p_word(twin, name, t, x, word).exp() for word in of_label] for of_label in labels]
        by_prompt.append(torch.stack([torch.stack(of_label).sum() for of_label in by_label]))
    log_weights = twin.log_weights(x if setting == "data-dependent" else None)
    if setting == "product":
        logs = [probabilities.log() for probabilities in by_prompt]
        return reference.log_product(log_weights.exp(), logs).exp()
    weighted = [weight.exp() * of_prompt for weight, of_prompt in zip(log_weights, by_prompt, strict=True)]
    total = torch.stack(weighted).sum(0)
    return total / total.sum()


# Probabilities and gradients


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("name", NAMES)
def test_labels_and_the_loss_of_classification_agree_with_a_plain_loop(name: str, setting: str) -> None:
    mixture, candidates = mixture_of(name, setting), labelled()
    twin = Twin.of(name, templates_of(name), mixture)
    relation = Relation.of("kinds", [Fact(x, y) for x, y in PAIRS], [], [])
    facts = mixture.encode_relation(relation, candidates=candidates, whole_answers=True).need("train")
    answers = CandidateAnswers(mixture, candidates, facts.kind)
    assert answers.labels == tuple(LABELLED)
    assert [(fact.x, fact.y) for fact in facts.facts] == sorted(PAIRS)
    loss = Objective(answers, facts, "gradient").loss(torch.arange(len(facts)))
    loss.to_minimise.backward()
    total = torch.zeros((), dtype=torch.float64)
    replies = dict(zip(XS, mixture.ask(XS, candidates=candidates), strict=True))
    for (x, _), gold in zip(PAIRS, GOLD_LABELS, strict=True):
        probabilities = expected(twin, name, x, setting, list(LABELLED.values()))
        total = total - probabilities[list(LABELLED).index(gold)].log()
        ours = {reply.y: reply.probability for reply in replies[x]}
        assert sum(ours.values()) == pytest.approx(1, abs=1e-12)
        assert ours == pytest.approx(dict(zip(LABELLED, probabilities.tolist(), strict=True)), abs=1e-9)
        assert [reply.probability for reply in replies[x]] == sorted(ours.values(), reverse=True)
    assert loss.negative_log_likelihood == pytest.approx(total.item(), abs=1e-9)
    assert loss.to_minimise.item() == pytest.approx(total.item(), abs=1e-9)
    total.backward()
    theirs, ours_by_name = twin.gradients(), agreement.gradients(mixture)
    assert any(bool(gradient.any()) for gradient in ours_by_name.values())
    for parameter, gradient in ours_by_name.items():
        if parameter.startswith("lengths."):  # test_lengths.py compares these
            continue
        if setting != "product" or parameter == "weighting.logits":  # a product's prompts stay hard
            torch.testing.assert_close(gradient, theirs[parameter], rtol=0, atol=1e-7)


@pytest.mark.parametrize("name", NAMES)
def test_words_that_stand_for_themselves(name: str) -> None:
    mixture = mixture_of(name, "static")
    candidates = plain_words()
    twin = Twin.of(name, templates_of(name), mixture)
    (replies,) = mixture.ask(["Paris"], candidates=candidates)
    probabilities = expected(twin, name, "Paris", "static", [[word] for word in candidates.words])
    ours = {reply.y: reply.probability for reply in replies}
    assert ours == pytest.approx(dict(zip(candidates.words, probabilities.tolist(), strict=True)), abs=1e-9)
    assert sum(ours.values()) == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("name", ["bert", "bart", "gpt2"])
def test_one_token_words_of_a_label_count_together(name: str, setting: str) -> None:
    mixture = mixture_of(name, setting)
    mixture.answer_kind = AnswerKind()
    candidates = Candidates("c", ("Rome", "Lima", "Oslo"), ("south", "south", "north"))
    twin = Twin.of(name, templates_of(name), mixture)
    tokens = [ids(name, word if script(name) == "wordpiece" else f"Ġ{word}")[0] for word in candidates.words]
    (replies,) = mixture.ask(["Paris"], candidates=candidates)
    each = [twin.log_p_y(t, "Paris").exp()[tokens].detach() for t in range(len(twin.templates))]
    by_label = [torch.stack([of_prompt[0] + of_prompt[1], of_prompt[2]]) for of_prompt in each]
    weights = twin.log_weights("Paris" if setting == "data-dependent" else None).exp().detach()
    if setting == "product":
        south, north = reference.log_product(weights, [of_prompt.log() for of_prompt in by_label]).exp().tolist()
    else:
        total = sum(weight * of_prompt for weight, of_prompt in zip(weights, by_label, strict=True))
        south, north = (total / total.sum()).tolist()
    assert {reply.y: reply.probability for reply in replies} == pytest.approx({"south": south, "north": north})


def test_what_each_prompt_alone_would_choose_sums_to_one() -> None:
    (replies,) = mixture_of("bert", "static").ask(["Paris"], candidates=labelled())
    for of_prompt in zip(*(reply.by_prompt for reply in replies), strict=True):
        assert sum(of_prompt) == pytest.approx(1)


def test_words_that_the_lm_spells_alike_count_once() -> None:
    mixture = moved(exact("albert"), usable("albert"))  # it lower-cases
    mixture.answer_kind = kind_of("albert")
    xs, facts = words(exact("albert"), ["Paris"])
    each = [
        CandidateAnswers(mixture, Candidates("c", of, labels), kind_of("albert")).log_probs(xs, facts)
        for of, labels in (
            (("Rome", "Lima"), ("a", "b")),
            (("Rome", "rome", "Lima"), ("a", "a", "b")),
            (("Rome", "Lima", "ROME"), None),
        )
    ]
    torch.testing.assert_close(each[0], each[1])
    torch.testing.assert_close(each[0], each[2])
    with pytest.raises(BadOption, match=r"spells 'Rome' \(a\) and 'rome' \(b\) in the same way"):
        CandidateAnswers(mixture, Candidates("c", ("Rome", "rome"), ("a", "b")), kind_of("albert"))


# Which candidates can be asked for


def test_labels_and_words_are_found_by_their_numbers() -> None:
    answers = CandidateAnswers(mixture_of("bert", "static"), labelled(), kind_of("bert"))
    numbers = {"a city": 0, "Reykjavik": 0, "a person": 1, "Mary Cassatt": 1, "an island": 2, "Cuba": 2}
    assert {y: answers.numbers_of([y])[0] for y in numbers} == numbers
    assert answers.numbers_of(["Rome"]) == [None]
    assert answers.numbers_of(["a dog"]) == [None]


def test_what_is_too_long_or_unknown_is_left_out_and_its_label_with_it() -> None:
    mixture = mixture_of("bert", "static")
    kind = AnswerKind(any_length=True, longest=10, log_lengths=(math.log(0.5), math.log(0.5)))
    candidates = Candidates("c", ("Paris", "Reykjavik", "Mary Cassatt", "日本"), ("a", "a", "b", "c"))
    answers = CandidateAnswers(mixture, candidates, kind)
    assert answers.labels == ("a",)
    assert answers.candidates_left_out == ("Reykjavik", "Mary Cassatt", "日本")
    assert answers.numbers_of(["b"]) == [None]
    with pytest.raises(NothingLeft, match="no candidates left: 2 ×"):
        CandidateAnswers(mixture, Candidates("c", ("Reykjavik", "日本")), kind)


def test_lengths_of_a_masked_lms_answers_are_those_of_the_labels_words() -> None:
    mixture = Mixture(plain("bert"), ["[X] lies in [Y] ."])
    relation = Relation.of("kinds", [Fact("Rome", "a city"), Fact("Lima", "an island")], [], [])
    kind = mixture.encode_relation(relation, candidates=labelled(), whole_answers=True).kind
    # A city is Paris (one token) or Reykjavik (three), the island is Cuba (one): 2, 0 and 1, and one half each.
    assert [math.exp(length) for length in kind.log_lengths] == pytest.approx([2.5 / 4.5, 0.5 / 4.5, 1.5 / 4.5])


def test_labels_of_one_token_words_are_asked_as_one_token() -> None:
    mixture = Mixture(plain("bert"), ["[X] lies in [Y] ."])
    relation = Relation.of("r", [Fact("Rome", "not a token")], [], [Fact("Lima", "not a token")])
    candidates = Candidates("c", ("Paris", "Oslo"), ("not a token", "other"))
    encoded = mixture.encode_relation(relation, candidates=candidates)
    assert not encoded.kind.any_length
    assert len(encoded.need("test")) == 1
    assert mixture.encode_relation(relation).kind.any_length


# Files


def written(folder: Path, text: str) -> Path:
    path = folder / "moods.txt"
    path.write_text(text, encoding="utf-8")
    return path


def test_words_one_a_line(tmp_path: Path) -> None:
    found = load_candidates(written(tmp_path, "New Delhi\n\n  Paris \nParis\n10:30\n"))
    assert found == Candidates("moods", ("New Delhi", "Paris", "10:30"))
    assert found.names == found.words
    assert found.words_of == {}


def test_labels_with_their_words(tmp_path: Path) -> None:
    found = load_candidates(written(tmp_path, "good: good, great,good\n\nbad: bad , not good\ngood: fine\n"))
    assert found.words == ("good", "great", "bad", "not good", "fine")
    assert found.labels == ("good", "good", "bad", "bad", "good")
    assert found.names == ("good", "bad")
    assert found.words_of == {"good": ("good", "great", "fine"), "bad": ("bad", "not good")}


def test_times_and_titles_are_words(tmp_path: Path) -> None:
    assert load_candidates(written(tmp_path, "10:30\n11:45\n")).labels is None
    assert load_candidates(written(tmp_path, "Alien: Covenant\nBrazil\n")).words == ("Alien: Covenant", "Brazil")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("\n \n", "holds no words"),
        (
            "good: fine\n\nbad: sad, fine\n",
            "line 3: 'fine' is already a word of 'good' and cannot also be one of 'bad'",
        ),
        ("\ngood: fine\n\nneutral:\n", "line 4: 'neutral' has no words; write neutral: word, word"),
        ("good: fine\nbad: , ,\n", "line 2: 'bad' has no words"),
        ("good: fine\n\nfine: okay\n", "line 3: 'fine' is both a label and a word of 'good'"),
    ],
)
def test_files_of_candidates_that_are_ambiguous_or_empty_are_refused(tmp_path: Path, text: str, message: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(BadFile, match=message) as error:
        load_candidates(path)
    assert str(path) in str(error.value)


def test_the_hash_is_of_words_and_labels_not_of_their_order() -> None:
    one, other = Candidates("a", ("x", "y"), ("1", "2")), Candidates("b", ("y", "x"), ("2", "1"))
    assert one.digest == other.digest
    assert one.digest != Candidates("a", ("x", "y"), ("2", "1")).digest
    assert one.digest != Candidates("a", ("x", "y")).digest


def test_a_file_or_the_ys_of_train(tmp_path: Path) -> None:
    relation = Relation.of("r", [Fact("a", "Rome"), Fact("b", "Lima"), Fact("c", "Rome")], [], [Fact("d", "Oslo")])
    found = find_candidates(None, "train", relation)
    assert found is not None
    assert set(found.words) == {"Rome", "Lima"}
    assert find_candidates(None, None, relation) is None
    with pytest.raises(BadOption, match="give only one of them"):
        find_candidates(written(tmp_path, "Rome"), "train", relation)


# Saved


def test_a_saved_mixture_asks_among_its_labels_by_itself(tmp_path: Path) -> None:
    lm = frozen("bert")
    mixture = moved(lm, usable("bert"))
    mixture.answer_kind, mixture.candidates = kind_of("bert"), labelled()
    mixture.save_pretrained(tmp_path / "m")
    loaded = Mixture.from_pretrained(tmp_path / "m", lm)
    assert loaded.candidates == labelled()
    assert loaded.answer_kind == mixture.answer_kind
    assert list(loaded.ask(XS)) == list(mixture.ask(XS, candidates=labelled()))
    assert {reply.y for reply in loaded.ask("Paris")} == set(LABELLED)
    assert [reply.y for reply in loaded.ask("Paris", candidates=Candidates("one", ("Rome",)))] == ["Rome"]
