"""The table of metrics, and means over facts and over relations."""

import math
import subprocess
import sys
from pathlib import Path

import pytest
import reference
from builders.outcomes import outcome
from hypothesis import given
from hypothesis import strategies as st

from askwell.errors import BadOption
from askwell.evaluation import metrics
from askwell.evaluation.metrics import (
    METRICS,
    RANK_METRICS,
    log_loss_of,
    macro,
    metric_named,
    scores_of,
    units_of,
)
from askwell.evaluation.outcomes import Outcome

RANKS = st.lists(st.integers(2, 60).map(lambda double: double / 2), min_size=1, max_size=20)  # 1, 1.5, 2, …


def ranked(ranks: list[float], relation: str = "r") -> list[Outcome]:
    return [outcome(f"x{number}", rank=rank, relation=relation) for number, rank in enumerate(ranks)]


def of_relations(ranks: dict[str, list[float]]) -> list[Outcome]:
    return [one for relation, of_relation in ranks.items() for one in ranked(of_relation, relation)]


@given(RANKS)
def test_scores_against_the_reference(ranks: list[float]) -> None:
    assert scores_of(ranked(ranks)) == pytest.approx(reference.brute_metrics(ranks))


@given(st.dictionaries(st.text(max_size=3), RANKS, min_size=1, max_size=4))
def test_averages_against_the_reference(ranks: dict[str, list[float]]) -> None:
    everything = [rank for of_relation in ranks.values() for rank in of_relation]
    assert scores_of(of_relations(ranks)) == pytest.approx(reference.brute_metrics(everything))
    each = [reference.brute_metrics(of_relation) for of_relation in ranks.values()]
    means = {name: sum(scores[name] for scores in each) / len(each) for name in ("P@1", "P@10", "MRR")}
    assert macro(of_relations(ranks)) == pytest.approx(means)


def test_scores_match_those_computed_by_hand() -> None:
    outcomes = of_relations({"P19": [1.0, 2.0, 4.0], "P20": [20.0]})
    # Facts: one of four at 1, three of four within 10, 1 + 1/2 + 1/4 + 1/20 = 1.8 over four.
    assert scores_of(outcomes) == pytest.approx({"P@1": 25, "P@10": 75, "MRR": 45})
    # P19: 1/3, 3/3, 1.75/3. P20: 0, 0, 1/20.
    assert macro(outcomes) == pytest.approx({"P@1": 100 / 6, "P@10": 50, "MRR": (175 / 3 + 5) / 2})


def test_a_tie_for_the_first_place_is_no_hit() -> None:
    assert scores_of(ranked([1.5])) == pytest.approx({"P@1": 0, "P@10": 100, "MRR": 200 / 3})
    assert scores_of(ranked([10.5]))["P@10"] == 0.0
    assert scores_of(ranked([10.0]))["P@10"] == 100.0


def test_log_loss_is_a_mean_of_nats_and_none_where_it_is_infinite() -> None:
    sure, unsure = outcome("a", log_probability=-1.0), outcome("b", rank=2, log_probability=-3.0)
    assert log_loss_of([sure, unsure]) == pytest.approx(2.0)
    assert METRICS["log-loss"].mean([sure, unsure]) == pytest.approx(2.0)
    assert log_loss_of([sure, outcome("c", rank=9, log_probability=-math.inf)]) is None


def test_the_table_says_how_each_metric_is_read() -> None:
    assert RANK_METRICS == ("P@1", "P@10", "MRR")
    assert [name for name, metric in METRICS.items() if not metric.higher_is_better] == ["log-loss"]
    assert [metric.key for metric in METRICS.values()] == ["P@1", "P@10", "MRR", "log_loss"]
    assert METRICS["MRR"].text(33.333) == "33.3"
    assert METRICS["log-loss"].text(1.23456) == "1.235"
    assert METRICS["log-loss"].text(None) == "–"


def test_units_are_named_once_if_they_are_the_same() -> None:
    assert units_of(["P@1", "MRR"]) == "in per cent"
    assert units_of(["log-loss"]) == "in nats"
    assert units_of(["P@1", "MRR", "log-loss"]) == "P@1, MRR in per cent; log-loss in nats"


def test_raw_ranks_take_the_place_of_ranks() -> None:
    found = Outcome("r", "x", "y", ("y", "z"), 1.0, 2.0, -1.0, (), ())
    assert scores_of([found.with_raw_rank()]) == {"P@1": 0.0, "P@10": 100.0, "MRR": 50.0}


def test_no_outcomes_no_scores() -> None:
    for mean in (scores_of, macro):
        with pytest.raises(BadOption, match="no outcomes"):
            mean([])


def test_an_unknown_metric_is_refused_by_name() -> None:
    with pytest.raises(BadOption, match="'P@2': choose one of P@1, P@10, MRR, log-loss"):
        metric_named("P@2")


ONE_MORE = """
import sys
from types import ModuleType

source = open(sys.argv[1], encoding="utf-8").read()
entry = 'Metric("P@10", lambda outcome: float(outcome.rank <= 10), most=1.0),'
assert entry in source
changed = ModuleType("askwell.evaluation.metrics")
sys.modules[changed.__name__] = changed
rank = 'Metric("rank", lambda outcome: outcome.rank, higher_is_better=False, scale=1.0, unit="places"),'
exec(source.replace(entry, entry + entry.replace("10", "5") + rank), changed.__dict__)

from askwell.cli.runs import MetricName
from askwell.evaluation.comparison import compare
from askwell.evaluation.scoring import Evaluation
from askwell.evaluation.outcomes import Outcome
from askwell.mixture.description import _scores
from askwell.views.to_files import markdown_table
from askwell.views import study_tables
from askwell.views.study_rows import what_it_shows
from askwell.runs.query import _BARE_SCORE, _BEST_FIRST, RUN_COLUMNS as _COLUMNS

outcomes = [Outcome("r", str(rank), "y", ("y",), rank, rank, -1.0, ("y",), (0.5,)) for rank in (1.0, 4.0, 7.0, 20.0)]
evaluation = Evaluation("test", "all", tuple(outcomes), ())
scores = {"P@1": 25.0, "P@10": 75.0, "P@5": 50.0, "rank": 8.0, "MRR": 100 * (1 + 1 / 4 + 1 / 7 + 1 / 20) / 4}
assert evaluation.micro == scores
assert compare(outcomes, outcomes, metric="P@5").micro.a == 50.0
assert "P@5" in MetricName.__args__
assert "P@5" in _COLUMNS and "P@5" in _BEST_FIRST and _BARE_SCORE.fullmatch("P@5")
assert "P@5" in study_tables.TABLE_METRICS
card = markdown_table(*_scores({"test": evaluation.for_card()}))
assert "| split | facts | P@1 | P@10 | P@5 | rank | MRR | ranked among |" in card
assert "Means over facts (P@1, P@10, P@5, MRR in per cent; rank in places);" in card
assert what_it_shows("paper").startswith("Scores (P@1, P@10, P@5, MRR in per cent; rank in places), means")
"""


def test_a_further_metric_is_one_entry_of_the_table() -> None:
    done = subprocess.run(
        [sys.executable, "-c", ONE_MORE, str(Path(metrics.__file__))], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
