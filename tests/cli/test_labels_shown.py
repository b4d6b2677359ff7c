"""Classification on the command line: train, evaluate and ask among labels, and what they print about them."""

import json

import pytest
from builders.worlds import TEMPLATES, write_relation

CITIES, COUNTRIES = ("Paris", "Rome", "Lima", "Oslo", "Berlin", "Vienna"), ("Italy", "Peru", "Norway", "Spain", "Egypt")
PAIRS = [*((x, "city") for x in CITIES), *((x, "a country") for x in COUNTRIES)]
QUICK = ("--recipe", "paper", "--epochs", "2", "--threads", "1", "--learning-rate", "0.01")
LABELS = "city: Boston, Quito\na country: France, Mary Cassatt\nhill: 日本\n"


@pytest.fixture
def relation(tmp_path):
    train = [*PAIRS, ("Cuba", "island")]
    return write_relation(tmp_path / "kinds", train=train, dev=PAIRS[3:8], test=[*PAIRS, ("Cuba", "island")])


@pytest.fixture
def labels(tmp_path):
    path = tmp_path / "labels.txt"
    path.write_text(LABELS, encoding="utf-8")
    return path


@pytest.fixture
def trained(askwell, lms, relation, labels, tmp_path):
    done = askwell(
        "train", "--lm", lms["bert"], "--facts", relation, "--prompts", TEMPLATES[0], "--candidates", labels,
        "--out", tmp_path / "run", *QUICK,
    )  # fmt: skip
    assert done.code == 0, done.err
    return done, tmp_path / "run"


def test_train_prints_and_records_how_labels_are_told_apart(trained):
    done, folder = trained
    assert "11 test facts, ranked among 2 labels of labels" in " ".join(done.out.split())
    for heading in ("precision", "recall", "F1", "→ city", "→ a country", "Macro F1"):
        assert heading in done.out
    assert "1 candidate left out, which the LM cannot spell" in done.err
    record = json.loads((folder / "run.json").read_text())
    found = record["test"]["labels"]
    assert found["labels"] == ["city", "a country"]
    assert [sum(row) for row in found["confusion"]] == [6, 5]
    right = found["confusion"][0][0] + found["confusion"][1][1]
    assert record["test"]["micro"]["P@1"] == pytest.approx(100 * right / 11)
    assert found["scores"]["city"]["recall"] == pytest.approx(100 * found["confusion"][0][0] / 6)
    # Without a word of its own, the label hill cannot be chosen; the island is no label at all.
    assert record["test"]["candidates_left_out"] == 1
    assert record["test"]["left_out"] == {"y is not among the candidates": 1}
    assert record["training"]["left_out"]["train"] == {"y is not among the candidates": 1}
    assert record["untuned"]["labels"]["labels"] == found["labels"]


def test_a_run_asks_and_is_evaluated_among_its_labels(askwell, trained, relation):
    _, folder = trained
    asked = askwell("ask", folder, "Paris", "--json")
    assert asked.code == 0, asked.err
    assert {answer["y"] for answer in asked.json[0]["answers"]} == {"city", "a country"}
    assert sum(answer["probability"] for answer in asked.json[0]["answers"]) == pytest.approx(1)
    scored = askwell("evaluate", folder, "--facts", relation, "--json")
    assert scored.code == 0, scored.err
    assert scored.json["labels"] == json.loads((folder / "run.json").read_text())["test"]["labels"]
    assert "Macro F1" in askwell("evaluate", folder, "--facts", relation).out


def test_a_threshold_is_learned_among_its_labels(askwell, trained, relation):
    _, folder = trained
    done = askwell("ask", folder, "Paris", "--risk", "0.99", "--json")
    assert done.code == 0, done.err
    named = askwell("ask", folder, "Paris", "--risk", "0.99", "--facts", relation, "--json")
    assert named.code == 0, named.err
    assert named.json[0]["threshold"] == pytest.approx(done.json[0]["threshold"], abs=1e-5)


def test_untuned_prompts_among_labels(askwell, lms, relation, labels):
    one_token = ("--lm", lms["bert"], "--prompts", TEMPLATES[0], "--candidates", labels)
    done = askwell("evaluate", *one_token, "--facts", relation, "--no-controls", "--json")
    assert done.code == 0, done.err
    assert done.json["facts"] == 11
    assert done.json["labels"]["labels"] == ["city", "a country"]
    asked = askwell("ask", *one_token, "Paris")
    assert asked.code == 0, asked.err
    # Without facts the candidates themselves tell a masked LM how long answers are.
    assert "1 of 5 candidates left out" in asked.err
    assert "'日本'" in asked.err
    given = askwell("ask", *one_token, "Paris", "--answers", "one-token")
    assert "3 of 5 candidates left out" in given.err
    assert "'Boston', 'Mary Cassatt', '日本'" in given.err


def test_many_labels_are_named_by_what_they_are_taken_for(askwell, lms, tmp_path):
    pairs = [(x, y) for x, y in zip(CITIES, CITIES[1:] + CITIES[:1], strict=True)]
    facts = write_relation(tmp_path / "next", train=pairs, dev=pairs, test=pairs)
    done = askwell(
        "evaluate", "--lm", lms["bert"], "--prompts", TEMPLATES[0], "--facts", facts, "--among", "train",
        "--no-controls",
    )  # fmt: skip
    assert done.code == 0, done.err
    assert "taken for" in done.out
    assert "→" not in done.out


def test_a_word_of_two_labels_is_a_mistake_that_names_the_line(askwell, lms, relation, tmp_path):
    (tmp_path / "twice.txt").write_text("city: Boston\n\ncountry: France, Boston\n")
    out = tmp_path / "none"
    done = askwell(
        "train", "--lm", lms["bert"], "--facts", relation, "--prompts", TEMPLATES[0], "--out", out,
        "--candidates", tmp_path / "twice.txt",
    )  # fmt: skip
    assert done.code == 2
    assert "twice.txt" in done.err
    assert "line 3: 'Boston' is already a word of 'city'" in done.err
    assert not out.exists()
