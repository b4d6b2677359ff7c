"""Precision, recall, F1 and the confusion table of labels, against figures worked out by hand."""

import pytest
from agreement import X_FIRST, moved, plain
from builders.outcomes import outcome

from askwell.answers.candidates import Candidates
from askwell.answers.listed import NOT_A_CANDIDATE
from askwell.data.facts import Fact, Relation
from askwell.evaluation.examine import evaluate_split, examine
from askwell.evaluation.labels import MOST_LABELS, added, figures_of, label_figures
from askwell.evaluation.scoring import EvaluationFigures, together
from askwell.files import to_json

LABELS = ("good", "bad", "neutral", "never")
LABEL_OF = {"good": "good", "great": "good", "bad": "bad", "okay": "neutral", "never": "never"}
OUTCOMES = [
    outcome("x1", "good", answers={"good": 0.9, "bad": 0.1}),
    outcome("x2", "great", answers={"good": 0.6, "bad": 0.4}),
    outcome("x3", "good", 2, answers={"bad": 0.6, "good": 0.4}),
    outcome("x4", "bad", answers={"bad": 0.7, "good": 0.3}),
    outcome("x5", "bad", 2, answers={"neutral": 0.5, "bad": 0.3}),
    outcome("x6", "okay", 3, answers={"good": 0.5, "bad": 0.3}),
    # Good is right, too, and so passed over when bad is looked for.
    outcome("x7", "bad", 1, raw_rank=2, golds=("great", "bad"), answers={"good": 0.6, "bad": 0.4}),
]
CONFUSION = ((2, 1, 0, 0), (0, 2, 1, 0), (1, 0, 0, 0), (0, 0, 0, 0))


def test_figures_by_hand() -> None:
    found = label_figures(OUTCOMES, LABELS, LABEL_OF.get)
    assert found is not None
    assert found.labels == LABELS
    assert found.confusion == CONFUSION
    two_thirds = pytest.approx(200 / 3)
    assert to_json(found.scores) == {
        "good": {"facts": 3, "chosen": 3, "precision": two_thirds, "recall": two_thirds, "f1": two_thirds},
        "bad": {"facts": 3, "chosen": 3, "precision": two_thirds, "recall": two_thirds, "f1": two_thirds},
        "neutral": {"facts": 1, "chosen": 1, "precision": 0.0, "recall": 0.0, "f1": 0.0},
        "never": {"facts": 0, "chosen": 0, "precision": None, "recall": None, "f1": None},
    }
    assert found.macro_f1 == pytest.approx(400 / 9), "over the three labels that occur"


def test_precision_and_recall_are_not_mixed_up() -> None:
    found = figures_of(("a", "b"), [[3, 1], [4, 8]])
    a = found.scores["a"]
    assert (a.precision, a.recall, a.f1) == pytest.approx((100 * 3 / 7, 75.0, 100 * 6 / 11))
    assert a.precision is not None
    assert a.recall is not None
    assert a.f1 == pytest.approx(2 * a.precision * a.recall / (a.precision + a.recall))


def test_what_a_label_is_taken_for_most_frequent_first() -> None:
    found = figures_of(("a", "b", "c"), [[3, 1, 2], [0, 4, 0], [0, 0, 0]])
    assert found.taken_for("a") == {"c": 2, "b": 1}
    assert list(found.taken_for("a")) == ["c", "b"]
    assert found.taken_for("b") == {}


def test_a_label_that_is_chosen_but_never_right_counts_in_the_mean() -> None:
    found = figures_of(("a", "b"), [[1, 1], [0, 0]])
    assert found.scores["b"].precision == 0.0
    assert found.scores["b"].recall is None
    assert found.macro_f1 == pytest.approx((100 * 2 / 3 + 0) / 2)


def test_many_labels_have_no_table() -> None:
    many = tuple(map(str, range(MOST_LABELS + 1)))
    assert label_figures([outcome("x", "1")], many, str) is None
    assert label_figures([outcome("x", "1")], many[1:], str) is not None


def test_tables_are_added_where_labels_are_the_same() -> None:
    one, other = figures_of(("a", "b"), [[1, 2], [3, 4]]), figures_of(("a", "b"), [[10, 0], [0, 1]])
    assert added([one, other]) == figures_of(("a", "b"), [[11, 2], [3, 5]])
    assert added([one, None]) is None
    assert added([one, figures_of(("b", "a"), [[1, 2], [3, 4]])]) is None
    assert added([]) is None


# From evaluations

KINDS = Candidates("kinds", ("Rome", "Paris", "Italy", "Peru"), ("city", "city", "country", "country"))
KIND_OF = dict(zip(KINDS.words, KINDS.labels or (), strict=True)) | {"city": "city", "country": "country"}
PAIRS = [("Oslo", "city"), ("Norway", "country"), ("Lima", "Rome"), ("Egypt", "country"), ("Boston", "Paris")]
RELATION = Relation.of(
    "kinds",
    train=[Fact("Berlin", "city"), Fact("Spain", "country")],
    dev=[Fact("Vienna", "city")],
    test=[*(Fact(x, y) for x, y in PAIRS), Fact("Mary Cassatt", "Norway")],
)


def test_an_evaluation_among_labels_counts_what_was_chosen() -> None:
    evaluation = evaluate_split(moved(plain("bert"), X_FIRST), RELATION, candidates=KINDS)
    assert evaluation.vocabulary == "2 labels of kinds"
    assert [(fact.fact.y, fact.reason) for fact in evaluation.left_out] == [("Norway", NOT_A_CANDIDATE)]
    assert sorted((one.x, one.y) for one in evaluation.outcomes) == sorted(PAIRS)
    expected = {("city", "city"): 0, ("city", "country"): 0, ("country", "city"): 0, ("country", "country"): 0}
    for one in evaluation.outcomes:
        assert sum(one.probabilities) == pytest.approx(1)
        expected[KIND_OF[one.y], one.answers[0]] += 1
    found = evaluation.labels
    assert found is not None
    assert found.labels == ("city", "country")
    counted = {(a, b): found.confusion[i][j] for i, a in enumerate(found.labels) for j, b in enumerate(found.labels)}
    assert counted == expected
    right = expected["city", "city"] + expected["country", "country"]
    assert evaluation.micro["P@1"] == pytest.approx(100 * right / len(PAIRS))


def test_words_without_labels_are_labels_of_their_own() -> None:
    relation = Relation.of("r", [Fact("Oslo", "Rome")], [Fact("Oslo", "Rome")], [Fact("Lima", "Peru")])
    words = Candidates("words", ("Rome", "Peru"))
    found = evaluate_split(moved(plain("bert"), X_FIRST), relation, candidates=words).labels
    assert found is not None
    assert set(found.labels) == {"Rome", "Peru"}
    assert found.scores["Peru"].facts == 1


def test_without_candidates_there_are_no_labels() -> None:
    relation = Relation.of("r", [Fact("Oslo", "Rome")], [], [Fact("Lima", "Peru")])
    assert evaluate_split(moved(plain("bert"), X_FIRST), relation).labels is None


def test_several_evaluations_together() -> None:
    mixture = moved(plain("bert"), X_FIRST)
    one = evaluate_split(mixture, RELATION, candidates=KINDS)
    assert together([one, one]).labels == added([one.labels, one.labels])
    assert examine(mixture, RELATION, candidates=KINDS).evaluations["test"] == one


def test_figures_of_before_still_load_and_those_of_now_come_back() -> None:
    from pydantic import TypeAdapter

    figures = evaluate_split(moved(plain("bert"), X_FIRST), RELATION, candidates=KINDS).figures()
    adapter, document = TypeAdapter(EvaluationFigures), to_json(figures)
    assert adapter.validate_python(document) == figures
    old = {name: value for name, value in document.items() if name != "labels"}
    assert adapter.validate_python(old).labels is None
