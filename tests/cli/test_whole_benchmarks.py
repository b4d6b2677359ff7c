"""All facts of a benchmark scored without a split, and by whole statements."""

import json

import pytest
from builders import tiny
from builders.commands import refused

from askwell.evaluation.outcomes import read_outcomes

FACTS = [("Italy", "Rome"), ("Peru", "Lima"), ("Norway", "Oslo"), ("France", "Paris")]
PROMPT = ("--prompts", "The capital of [X] is [Y] .")


def test_every_fact_is_a_test_fact(askwell, lms, tmp_path):
    lines = "".join(json.dumps({"x": x, "y": y}) + "\n" for x, y in FACTS)
    (tmp_path / "facts.jsonl").write_text(lines)
    (tmp_path / "only").mkdir()
    (tmp_path / "only" / "test.jsonl").write_text(lines)
    found = []
    for source in (("facts.jsonl", "--split-ratio", "0-0-100"), ("only",)):
        done = askwell("evaluate", "--lm", lms["bert"], *PROMPT, "--facts", tmp_path / source[0], *source[1:], "--json")
        assert done.code == 0, done.err
        found.append(json.loads(done.out))
    assert found[0]["facts"] == found[1]["facts"] == len(FACTS)
    assert found[0]["micro"] == found[1]["micro"]
    out = ("--out", tmp_path / "run", "--lm", lms["bert"], *PROMPT)
    refused(askwell("train", "--facts", tmp_path / "only", *out), "train facts")


def test_statements_are_ranked_among_a_folder_of_candidates(askwell, lms, tmp_path):
    (tmp_path / "capital.csv").write_text("x,y\n" + "".join(f"{x},{y}\n" for x, y in FACTS))
    (tmp_path / "words").mkdir()
    (tmp_path / "words" / "capital.txt").write_text("Rome\nLima\nOslo\n")
    facts = ("--facts", tmp_path / "capital.csv", "--split-ratio", "0-0-100", "--candidates", tmp_path / "words")
    arguments = ("evaluate", "--lm", lms["bert"], *PROMPT, *facts, "--score", "statement")
    done = askwell(*arguments, "--json")
    assert done.code == 0, done.err
    document = json.loads(done.out)
    assert document["facts"] == 3
    assert document["left_out"] == {"y is not among the candidates": 1}
    assert "3 candidates" in document["vocabulary"]
    refused(askwell(*arguments, "--deep"), "--score statement", "hard prompts")


def test_tuned_prompts_are_scored_by_statements_in_folds(askwell, lms, tmp_path):
    """Each fact has a tuned score by a mixture of the other folds, beside that of the hard prompts on the same facts;
    capitals are one-to-one, so no right answer of a fold was seen in training."""
    facts = [*FACTS, ("Spain", "Madrid"), ("Japan", "Tokyo"), ("China", "Beijing"), ("Chile", "Santiago")]
    (tmp_path / "capital.csv").write_text("x,y\n" + "".join(f"{x},{y}\n" for x, y in facts))
    of_lm = ("--lm", lms["bert"], *PROMPT, "--facts", tmp_path / "capital.csv")
    done = askwell(
        "train", *of_lm, "--folds", "2", "--pairs", "20", "--learning-rate", "0.3", "--out", tmp_path / "run"
    )
    assert done.code == 0, done.err
    statements = ("--score", "statement", "--per-fact", tmp_path / "facts.parquet", "--json")
    done = askwell("evaluate", tmp_path / "run", *statements)
    assert done.code == 0, done.err
    tuned = json.loads(done.out)
    assert sorted((one.x, one.y) for one in read_outcomes(tmp_path / "facts.parquet")) == sorted(facts)
    done = askwell("evaluate", *of_lm, "--split-ratio", "0-0-100", *statements)
    assert done.code == 0, done.err
    hard = json.loads(done.out)
    assert hard.keys() <= tuned.keys()
    assert "as_words" not in hard
    assert tuned["as_words"]["micro"] == hard["micro"]
    assert tuned["as_words"]["log_loss"] == pytest.approx(hard["log_loss"])
    assert tuned["log_loss"] != pytest.approx(hard["log_loss"])
    assert tuned["gain"]["facts"] == len(facts)
    assert f"{len(facts)} candidates" in tuned["vocabulary"]


def test_bear_has_the_published_figure_beside_it(askwell, tmp_path):
    """Facts and prompts lie where `askwell data import bear` writes them; the LM has a name of the leaderboard."""
    tiny.save(*tiny.make_bert(), tmp_path / "bert-base-cased")
    lines = {"facts": [{"x": x, "y": y} for x, y in FACTS], "prompts": []}
    lines["prompts"] = [{"template": text} for text in (PROMPT[1], "[Y] is the capital of [X] .")]
    for kind, records in lines.items():
        (tmp_path / kind / "bear").mkdir(parents=True)
        for relation in ("P36", "P1376"):
            (tmp_path / kind / "bear" / f"{relation}.jsonl").write_text(
                "".join(json.dumps(one) + "\n" for one in records)
            )
    of_bear = ("--facts", "bear", "--prompts", "bear", "--data", tmp_path, "--split-ratio", "0-0-100")
    statements = ("evaluate", "--lm", tmp_path / "bert-base-cased", *of_bear, "--score", "statement")
    done = askwell(*statements)
    assert done.code == 0, done.err
    assert "on all 7,731 facts: 18.4 (standard error 0.4)" in done.out
    document = json.loads(askwell(*statements, "--json").out)
    each = document["accuracy_of_prompts"]
    assert f"Each hard prompt alone, other right answers kept: {each[0]:.1f}, {each[1]:.1f}" in done.out
    assert document["published"]["accuracy"] == 18.39
    assert document["relations"].keys() == {"bear/P36", "bear/P1376"}
