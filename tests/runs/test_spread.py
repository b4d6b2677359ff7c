"""Mean and spread over runs, by hand."""

import pytest

from askwell.runs.several_runs import spreads_of


def test_the_spread_has_n_minus_one_in_its_denominator():
    spread = spreads_of([{"P@1": 10.0}, {"P@1": 14.0}, {"P@1": 12.0}])["P@1"]
    assert (spread.runs, spread.mean, spread.low, spread.high) == (3, 12, 10, 14)
    assert spread.deviation == pytest.approx(2.0)  # √((4 + 4 + 0) / 2)


def test_each_score_that_all_have():
    found = spreads_of([{"P@1": 1.0, "MRR": 2.0}, {"P@1": 3.0}])
    assert list(found) == ["P@1"]
    assert found["P@1"].mean == 2
