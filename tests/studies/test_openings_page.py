"""The figures of the page on openings, from lines whose means and p-values are known."""

import sys
from math import comb
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "studies"))
import openings_page


def line(relation: str, ranks: list[float | None]) -> dict:
    facts = [f"fact {number}" for number in range(len(ranks))]
    return {"relation": relation, "fact_digests": facts, "tuned": {"rank": ranks, "log_p": [-1.0] * len(ranks)}}


FIRST = [line("P1", [1.0, 1.0, 1.0, 1.0]), line("P2", [1.0, None]), line("P3", [1.0, 2.0])]
SECOND = [line("P1", [2.0, 3.0, 1.0, 1.5]), line("P2", [2.0, 1.0]), line("P3", [4.0, 2.0])]


def test_means_over_facts_and_over_relations() -> None:
    scores = openings_page.joined(FIRST, "tuned")
    assert openings_page.micro(scores) == pytest.approx(100 * 6 / 8)
    assert openings_page.macro(scores) == pytest.approx((100 + 50 + 50) / 3)
    assert openings_page.log_loss(scores) == "1.00"


def test_paired_tests_over_facts_and_over_relations() -> None:
    found = openings_page.compare(openings_page.joined(FIRST, "tuned"), openings_page.joined(SECOND, "tuned"))
    assert (found.facts, found.relations) == (8, 3)
    assert found.micro == pytest.approx(100 * (6 - 2) / 8)
    # The first alone is right on five facts, the second alone on one: at least five of six coins alike.
    assert found.mcnemar == pytest.approx(2 * sum(comb(6, k) for k in (5, 6)) / 2**6)
    assert found.macro == pytest.approx((75 + 0 + 50) / 3)
    # Differences of 75, 0 and 50 points: both that are not 0 point the same way.
    assert found.wilcoxon == pytest.approx(2 / 2**2)


def test_only_facts_that_both_were_asked_are_compared() -> None:
    fewer = [line("P1", [2.0, 3.0])]
    found = openings_page.compare(openings_page.joined(FIRST, "tuned"), openings_page.joined(fewer, "tuned"))
    assert (found.facts, found.relations, found.micro) == (2, 1, 100.0)


def test_an_answer_without_probability_has_no_log_loss() -> None:
    scores = {("P1", "fact"): openings_page.Scored(False, None)}
    assert openings_page.log_loss(scores) == "–"
