"""What `train` and `evaluate` print about scores that need no knowledge, counted by hand."""

import json

import pytest
from builders.worlds import TEMPLATES, write_relation

PROMPTS = ("--prompts", TEMPLATES[0], "--prompts", TEMPLATES[1])
QUICK = ("--epochs", "1", "--threads", "1")


@pytest.fixture
def countries(tmp_path):
    """Train: Peru three times, Norway twice, Spain once. Dev: Peru, Norway. Test: Peru twice, Norway, Italy."""
    ys = {"train": ["Peru"] * 3 + ["Norway"] * 2 + ["Spain"], "dev": ["Peru", "Norway"]}
    ys["test"] = ["Peru", "Peru", "Norway", "Italy"]
    names = iter(
        ["Paris", "Rome", "Lima", "Oslo", "Berlin", "Vienna", "Quito", "Egypt", "Cuba", "Mary", "Havana", "Boston"]
    )
    splits = {split: [(next(names), y) for y in of_split] for split, of_split in ys.items()}
    return write_relation(tmp_path / "countries", **splits)


def check(document, p_at_1):
    controls = document["controls"]
    assert list(controls) == ["majority", "prior", "prior-masked-x", "prior-corrected"]
    assert controls["majority"]["test"]["P@1"] == 50  # Peru is right twice in four
    assert controls["majority"]["dev"]["P@1"] == 50
    assert controls["majority"]["test"]["P@10"] == 75
    assert controls["majority"]["description"] == "how often each y occurs in 6 train facts"
    assert controls["prior"]["description"] == "the mean of the answers to all 6 x's of train"
    knowledge = document["knowledge"]
    best = max(("majority", "prior", "prior-masked-x"), key=lambda name: controls[name]["dev"]["P@1"])
    assert knowledge["control"] == best
    assert knowledge["unit"] == "y"
    assert knowledge["gain"] == pytest.approx(p_at_1 - controls[best]["test"]["P@1"])
    assert knowledge["low"] <= 0 <= knowledge["high"]  # three ys cannot tell
    assert not knowledge["is_there"]


def test_train_and_evaluate_show_the_same_controls(askwell, lms, countries, tmp_path):
    run = ("train", "--lm", lms["bert"], "--facts", countries, *PROMPTS, *QUICK)
    trained = askwell(*run, "--out", tmp_path / "m", "--json")
    assert trained.code == 0, trained.err
    check(trained.json, trained.json["test"]["micro"]["P@1"])
    again = ("evaluate", tmp_path / "m", "--facts", countries)
    evaluated = askwell(*again, "--json").json
    for key in ("knowledge", "controls_missing"):
        assert evaluated[key] == trained.json[key]
    for name, figures in evaluated["controls"].items():  # evaluate asks test alone, so nothing of dev can be corrected
        assert figures["test"] == trained.json["controls"][name]["test"]
    for shown in (askwell(*again), askwell(*run, "--out", tmp_path / "n")):
        assert shown.code == 0, shown.err
        assert "P@1 without knowledge of x: the most frequent y's of train 50.0, the prompts' prior " in shown.out
        assert "Gain over the best of them (chosen on dev: " in shown.out
        assert ", which may be chance." in shown.out
        assert "divided by its prior" not in shown.out
        assert "bits a fact" not in shown.out
    assert "probability divided by its prior" in askwell(*again, "--trust").out
    for left_out in (askwell(*again, "--no-controls"), askwell(*again, "--split", "dev")):
        assert left_out.code == 0
        assert "looking at x" not in left_out.out
    assert "controls" not in askwell(*again, "--no-controls", "--json").json
    left_out = askwell(*run, "--out", tmp_path / "o", "--no-controls", "--json")
    assert (left_out.json["controls"], left_out.json["knowledge"], left_out.json["trust"]) == ({}, None, None)


def test_several_mixtures_are_held_against_their_own_controls(askwell, lms, countries, facts):
    places = (["--facts", countries], ["--facts", facts], ["--facts", countries, "--facts", facts])
    one, other, both = (askwell("evaluate", "--lm", lms["llama"], *PROMPTS, *p, "--json").json for p in places)
    assert list(both["controls"]) == ["majority", "prior", "prior-corrected"]
    for name, found in both["controls"].items():
        mean = (4 * one["controls"][name]["test"]["MRR"] + 4 * other["controls"][name]["test"]["MRR"]) / 8
        assert found["test"]["MRR"] == pytest.approx(mean)
    assert both["controls"]["majority"]["description"] == "how often each y occurs in 6 train facts"  # in either


@pytest.mark.parametrize(
    ("split", "why"),
    [
        ("train", "no train y of countries can be an answer"),
        ("dev", "no dev facts of countries left: 1 × y has a character"),
    ],
)
def test_what_is_missing_is_said(askwell, lms, countries, split, why):
    (countries / f"{split}.jsonl").write_text(json.dumps({"sub": "Paris", "obj": "東京"}))
    run = ("evaluate", "--lm", lms["bert"], *PROMPTS, "--facts", countries)
    shown = askwell(*run)
    assert shown.code == 0
    assert f"no controls for countries: {why}" in shown.err
    assert "looking at x" not in shown.out
    document = askwell(*run, "--json").json
    assert (document["controls"], document["knowledge"]) == ({}, None)
    assert split in document["controls_missing"]["countries"]
