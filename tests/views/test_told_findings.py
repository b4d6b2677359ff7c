"""Sentences agree with the figures, whatever these are."""

import re
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st
from made_up import figures

from askwell.views.demo_runs import METHODS
from askwell.views.told import MOST_FREQUENT, findings_of

LM = "testbed:bert"


def found(right, counts, others=(0, 0), curves=None):
    return findings_of(figures(right, counts, others), curves or {}, LM)


def test_tuning_that_helps():
    right = {"manual": {"a": (20, 0), "b": (10, 0)}, "soft-mixture": {"a": (90, 5), "b": (50, 0)}}
    findings = found(right, {"a": (100, 20), "b": (50, 10)})
    assert findings.tuning == (
        "Asked with a hand-written prompt, testbed:bert gets 20.0 % of the told facts right (the mean over 2 "
        "relations); asked with a tuned mixture of soft prompts, 95.0 %. Of 150 told facts, the mixture answers 110 "
        "that the hand-written prompt misses, and misses 0 that the prompt answers; this is unlikely to be chance "
        "(sign test, p < 0.001).",
        "Relation by relation, on told facts, tuning clearly helped a (20.0 → 90.0) and b (20.0 → 100.0).",
    )
    assert findings.withheld[1] == (
        "The mixture gets 95.0 % of told facts and 12.5 % of withheld ones right: the 82.5 points between them "
        "come from what the LM was told; the rest may be guesses."
    )


def test_tuning_that_does_harm_is_said_to():
    right = {"manual": {"a": (90, 10)}, "soft-mixture": {"a": (20, 0)}}
    findings = found(right, {"a": (100, 20)}, others=(20, 0))
    assert "testbed:bert gets 90.0 % of the told facts right; asked with a tuned mixture" in findings.tuning[0]
    assert (
        "Of 100 told facts, the mixture answers 0 that the hand-written prompt misses, and misses 70"
        in (findings.tuning[0])
    )
    assert len(findings.tuning) == 1
    assert findings.withheld[-1].startswith("Tuning lowers the score on withheld facts. ")


def test_methods_that_were_not_run_are_not_compared():
    made = figures({}, {"a": (30, 10)}, (30, 0))
    run = ("manual", "soft-single", "soft-mixture", MOST_FREQUENT)
    fewer = replace(made, right={method: made.right[method] for method in run})
    assert findings_of(fewer, {}, LM).variants == (
        "On 30 told facts there is no clear difference between a single soft prompt and the mixture (30 versus 30).",
    )


def test_tuning_that_changes_nothing():
    findings = found({}, {"a": (30, 10), "b": (30, 10)}, others=(30, 0))
    assert findings.tuning[0].endswith("Fact by fact, both do the same on all 60 told facts.")
    assert findings.tuning[1] == (
        "Relation by relation, on told facts, tuning made no clear difference to a (100.0 → 100.0) and "
        "b (100.0 → 100.0)."
    )
    assert findings.variants == (
        "On 60 told facts there is no clear difference between the tuned mixture and the hard prompts mined from the "
        "text (60 versus 60), between a single soft prompt and the mixture (60 versus 60), between tuning all layers "
        "and tuning the first alone (60 versus 60) or between starting from random vectors and starting from words "
        "(60 versus 60).",
    )


def test_relations_that_part_are_told_apart():
    right = {
        "manual": {"helped": (0, 0), "same": (9, 0), "harmed": (10, 0)},
        "soft-mixture": {"helped": (10, 0), "same": (10, 0), "harmed": (0, 0)},
    }
    findings = found(right, dict.fromkeys(("helped", "same", "harmed"), (10, 5)))
    assert findings.tuning[1] == (
        "Relation by relation, on told facts, tuning clearly helped helped (0.0 → 100.0); it made no clear "
        "difference to same (90.0 → 100.0); it hurt harmed (100.0 → 0.0)."
    )
    assert "this may be chance (sign test, p = 1.00)" in findings.tuning[0]


def test_variants_that_differ_get_a_sentence_each():
    right = {"soft-mixture": {"a": (90, 0)}, "mined": {"a": (50, 0)}, "deep-mixture": {"a": (99, 0)}}
    right |= {"soft-single": {"a": (90, 0)}, "random-mixture": {"a": (10, 0)}}
    assert found(right, {"a": (100, 10)}).variants == (
        "The tuned mixture does better than the hard prompts mined from the text: 90 versus 50 of 100 told facts "
        "right (p < 0.001).",
        "Tuning all layers does better than tuning the first alone: 99 versus 90 of 100 told facts right "
        "(p = 0.004).",  # 2 / 2**9
        "Starting from random vectors does worse than starting from words: 10 versus 90 of 100 told facts right "
        "(p < 0.001).",
        "On 100 told facts there is no clear difference between a single soft prompt and the mixture (90 versus 90).",
    )


def test_withheld_facts_that_tuning_raises_are_no_knowledge():
    right = {"soft-mixture": {"a": (20, 12)}, "manual": {"a": (20, 2)}, MOST_FREQUENT: {"a": (0, 1)}}
    findings = found(right, {"a": (20, 20)})
    assert findings.withheld[0].endswith(
        "The tuned mixture guesses 60.0 % of them right, the hand-written prompt 10.0 %, and always giving the most "
        "frequent answer of the training facts 5.0 %."
    )
    assert findings.withheld[-1].startswith("Tuning also raises the score on withheld facts, which cannot be knowledge")
    assert findings.elicited == (
        "a: the mixture gets 100.0 % of 20 told facts right and 60.0 % of 20 withheld ones, more than the 5.0 % from "
        "always giving the most frequent answer; it guesses better.",
    )


def test_told_facts_that_come_out_no_better_than_withheld_ones():
    equal = found({"soft-mixture": {"a": (10, 10)}}, {"a": (20, 20)})
    assert equal.withheld[1].startswith("The mixture is not clearly better on told facts than on withheld ones")
    worse = found({"soft-mixture": {"a": (0, 20)}}, {"a": (20, 20)})
    assert worse.withheld[1].startswith("The mixture does worse on told facts than on withheld ones")


def test_kinds_without_facts_are_said_to_have_none():
    findings = found({}, {"a": (10, 0)})
    assert findings.withheld == ("No withheld facts were asked, so nothing can be said about guessing.",)
    assert findings.elicited == ("a: no withheld facts were asked.",)
    findings = found({}, {"a": (0, 10)})
    assert findings.tuning == ("No told facts were asked, so nothing can be said about what tuning elicits.",)
    assert findings.variants == ()


def test_learning_says_when_most_of_the_gain_was_there():
    curves = {
        "a": [(0.0, 10.0), (500.0, 60.0), (1000.0, 96.0), (1500.0, 100.0)],
        "b": [(0.0, 50.0), (500.0, 40.0)],
        "c": [(0.0, 0.0), (400.0, 100.0), (800.0, 90.0)],
    }
    assert found({}, {"a": (10, 10)}, curves=curves).learning == (
        "The mixture reached nine tenths of its gain in dev P@1 after this many (fact, prompt) pairs: 1000 for a "
        "and 400 for c, out of at most 1500.",
        "Tuning the mixture did not raise dev P@1 for b.",
    )


SHARES = st.tuples(st.integers(0, 40), st.integers(0, 40))


@settings(max_examples=60, deadline=None)
@given(
    st.dictionaries(
        st.sampled_from([*(method.name for method in METHODS), MOST_FREQUENT]),
        st.fixed_dictionaries({"a": SHARES, "b": SHARES}),
    ),
    SHARES,
    SHARES,
)
def test_no_sentence_says_the_opposite_of_its_own_figures(right, of_a, of_b):
    findings = found(right, {"a": of_a, "b": of_b})
    for sentence in findings.variants:
        for verdict, more, less in re.findall(r"does (better|worse) than .*?: (\d+) against (\d+) of", sentence):
            assert int(more) > int(less) if verdict == "better" else int(more) < int(less)
    for sentence in findings.tuning[1:]:
        for part in sentence.split("; it "):
            for before, after in re.findall(r"\(([\d.]+) → ([\d.]+)\)", part):
                assert "clearly helped" not in part or float(before) < float(after)
                assert " hurt " not in part or float(before) > float(after)
    for sentence in findings.withheld:
        for told, withheld in re.findall(r"([\d.]+) % of told facts and ([\d.]+) % of withheld", sentence):
            assert "points between" not in sentence or float(told) > float(withheld)
            assert "does worse on told" not in sentence or float(told) < float(withheld)
    for sentence in findings.elicited:
        for withheld, prior in re.findall(r"and ([\d.]+) % of \d+ withheld ones, .*?([\d.]+) % from always", sentence):
            assert "more than the" not in sentence or float(withheld) > float(prior)
            assert "less than the" not in sentence or float(withheld) < float(prior)
