"""P@1, P@10 and MRR over facts and over relations."""

import pytest
import reference
from hypothesis import given
from hypothesis import strategies as st

from askwell.evaluation.metrics import Scores, macro, micro, scores_of

RANKS = st.lists(st.integers(2, 60).map(lambda double: double / 2), min_size=1, max_size=20)  # 1, 1.5, 2, …


@given(RANKS)
def test_scores_against_the_reference(ranks: list[float]) -> None:
    assert scores_of(ranks).as_json() == pytest.approx(reference.brute_metrics(ranks))


@given(st.dictionaries(st.text(max_size=3), RANKS, min_size=1, max_size=4))
def test_averages_against_the_reference(ranks: dict[str, list[float]]) -> None:
    everything = [rank for of_relation in ranks.values() for rank in of_relation]
    assert micro(ranks).as_json() == pytest.approx(reference.brute_metrics(everything))
    each = [reference.brute_metrics(of_relation) for of_relation in ranks.values()]
    means = {name: sum(scores[name] for scores in each) / len(each) for name in ("P@1", "P@10", "MRR")}
    assert macro(ranks).as_json() == pytest.approx(means)


def test_by_hand() -> None:
    ranks = {"P19": [1.0, 2.0, 4.0], "P20": [20.0]}
    # Facts: one of four at 1, three of four within 10, 1 + 1/2 + 1/4 + 1/20 = 1.8 over four.
    assert micro(ranks).as_json() == pytest.approx({"P@1": 25, "P@10": 75, "MRR": 45})
    # P19: 1/3, 3/3, 1.75/3. P20: 0, 0, 1/20.
    assert macro(ranks).as_json() == pytest.approx({"P@1": 100 / 6, "P@10": 50, "MRR": (175 / 3 + 5) / 2})


def test_a_tie_for_the_first_place_is_no_hit() -> None:
    assert scores_of([1.5]).as_json() == pytest.approx({"P@1": 0, "P@10": 100, "MRR": 200 / 3})
    assert scores_of([10.5]).p_at_10 == 0.0
    assert scores_of([10.0]).p_at_10 == 100.0


def test_relations_without_facts_have_no_part_in_macro() -> None:
    assert macro({"P19": [1.0], "P20": []}) == Scores(100.0, 100.0, 100.0)


def test_no_ranks_no_scores() -> None:
    with pytest.raises(ValueError, match="no ranks"):
        scores_of([])
