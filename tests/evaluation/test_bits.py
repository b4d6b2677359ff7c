"""Bits beyond a control, by hand."""

import math

import pytest
from builders.outcomes import outcome

from askwell.data.facts import SplitName
from askwell.evaluation.knowledge import bits_over, knowledge
from askwell.evaluation.outcomes import Outcome
from askwell.files import to_json
from askwell.views.scores import detail_sentences


def facts(*probabilities, first=0):
    """Outcomes of facts whose y has these probabilities."""
    logs = [math.log(p) if p else -math.inf for p in probabilities]
    return [outcome(f"x{n}", f"y{n}", 2, log_probability=log) for n, log in enumerate(logs, start=first)]


def test_a_control_that_gives_an_eighth_leaves_three_bits():
    found = bits_over(facts(1, 1), {"prior": {"dev": facts(0.1), "test": facts(1 / 8, 1 / 8)}})
    assert found is not None
    assert found.bits == pytest.approx(3)
    assert (found.facts, found.log_loss, found.control_log_loss) == (2, 0, pytest.approx(math.log(8)))


def test_the_control_is_chosen_on_dev_by_log_loss():
    controls: dict[str, dict[SplitName, list[Outcome]]] = {
        "majority": {"dev": facts(0.5, 0.0), "test": facts(1 / 2, 1 / 2)},  # a y that it thinks impossible
        "prior": {"dev": facts(0.2, 0.2), "test": facts(1 / 16, 1 / 4)},
        "prior-masked-x": {"dev": facts(0.1, 0.2), "test": facts(1, 1)},
    }
    found = bits_over(facts(1 / 2, 1 / 8), controls)
    assert found is not None
    assert found.control == "prior"
    assert found.bits == pytest.approx((4 + 2) / 2 - (1 + 3) / 2)


def test_only_facts_that_both_answered_count_and_worse_is_below_zero():
    found = bits_over(facts(1 / 4, 1 / 4), {"prior": {"dev": facts(0.5), "test": facts(1 / 2, 1 / 2, first=1)}})
    assert found is not None
    assert found.facts == 1
    assert found.bits == pytest.approx(-1)


@pytest.mark.parametrize(
    ("run", "dev", "test"),
    [
        (facts(0.0), facts(0.5), facts(0.5)),
        (facts(0.5), facts(0.5), facts(0.0)),
        (facts(0.5), facts(0.0), facts(0.5)),
        (facts(0.5), facts(0.5), facts(0.5, first=7)),
        (facts(0.5), [outcome("x0", "y0", 1, log_probability=math.nan)], facts(0.5)),
    ],
    ids=["impossible y", "impossible on test", "impossible on dev", "other facts", "ranks alone"],
)
def test_there_are_no_bits_where_there_is_no_log_loss(run, dev, test):
    assert bits_over(run, {"prior": {"dev": dev, "test": test}}) is None


def test_they_are_in_the_record_and_in_a_sentence():
    found = knowledge(facts(1 / 2, 1 / 2), {"prior": {"dev": facts(0.1), "test": facts(1 / 8, 1 / 8)}}, resamples=99)
    assert found is not None
    assert to_json(found)["bits"]["bits"] == pytest.approx(2)
    assert any("2.00 bits a fact" in line for line in detail_sentences(found, None))
    ranks = knowledge(facts(1 / 2), {"prior": {"dev": facts(0.0), "test": facts(0.5)}}, resamples=99)
    assert "bits" not in to_json(ranks)
