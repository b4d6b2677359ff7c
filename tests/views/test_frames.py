"""Results as frames and as plots."""

import sys

import matplotlib
import pytest
from builders.outcomes import run_of_distinct_ys
from builders.stores import keep, new_store
from builders.testbed import load_testbed_lm
from matplotlib import pyplot

import askwell
from askwell.errors import BadOption
from askwell.runs.folder import load_runs
from askwell.training.history import HistoryLine, TrainingResult

matplotlib.use("agg")


@pytest.fixture(autouse=True)
def closed():
    yield
    pyplot.close("all")


def evaluation(*ranks: float, confidences=None) -> askwell.Evaluation:
    return askwell.Evaluation("test", "words", tuple(run_of_distinct_ys(ranks, "r", confidences)), ())


def result(*scores: float) -> TrainingResult:
    history = tuple(
        HistoryLine(n, 10 * n, 1.0, {"P@1": float(p), "log_loss": 1.0, "facts": 9}, 1.0) for n, p in enumerate(scores)
    )
    return TrainingResult(
        spec=askwell.TrainingSpec(), history=history, left_out={}, train_facts=9, dev_facts=9, pairs=20,
        planned_pairs=20, step_sizes={}, finished=True, vocabulary="",
    )  # fmt: skip


def test_outcomes_as_frames():
    pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    found = evaluation(1, 4, 2)
    frame, table = found.to_pandas(), found.to_arrow()
    assert list(frame["rank"]) == table["rank"].to_pylist() == [1, 4, 2]
    assert list(frame["x"]) == [outcome.x for outcome in found.outcomes]
    assert table.column_names == list(frame.columns)
    assert table["answers"].to_pylist() == [list(outcome.answers) for outcome in found.outcomes]


def test_history_and_runs_as_frames(tmp_path):
    pytest.importorskip("pandas")
    assert list(result(5, 20).to_pandas()["dev_P@1"]) == [5, 20]
    store = new_store(tmp_path)
    keep(store, (1, 20), seed=1, history=[(0, 5.0), (10, 20.0)])
    keep(store, (1, 1), seed=2)
    runs = load_runs(tmp_path)
    frame = runs.to_pandas()
    assert dict(zip(frame["seed"], frame["P@1"], strict=True)) == {1: 50.0, 2: 100.0}
    first = next(run for run in runs if run.record.spec.seed == 1)
    assert list(first.history_to_pandas()["pairs"]) == [0, 10]
    assert list(first.to_pandas()["rank"]) == [1, 20]


def test_without_the_library_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(BadOption, match="pip install pandas"):
        evaluation(1).to_pandas()


def test_a_curve_and_where_its_best_state_is():
    axes = result(5, 20, 10).plot(label="soft")
    curve, best = axes.get_lines()
    assert list(curve.get_xdata()) == [0, 10, 20]
    assert list(curve.get_ydata()) == [5, 20, 10]
    assert (list(best.get_xdata()), list(best.get_ydata())) == ([10], [20])
    assert result(1, 2).plot(ax=axes) is axes
    assert len(axes.get_lines()) == 4


def test_the_weights_of_prompts():
    axes = askwell.Mixture(load_testbed_lm("bert"), ["[X] is in [Y] .", "[X] " + "or " * 30 + "[Y]"]).plot()
    assert [round(bar.get_width(), 3) for bar in axes.patches] == [0.5, 0.5]
    labels = [label.get_text() for label in axes.get_yticklabels()]
    assert labels[0] == "[X] is in [Y] ."
    assert labels[1].endswith("…")


def test_an_evaluation_plots_accuracy_against_confidence():
    axes = evaluation(1, 1, 5, confidences=(0.75, 0.75, 0.25)).plot()
    _, points = axes.get_lines()
    assert sorted(zip(points.get_xdata(), points.get_ydata(), strict=True)) == [(25.0, 0.0), (75.0, 100.0)]
    assert sorted(bar.get_height() for bar in axes.patches) == [0.0, 100.0]
    assert "25.0 %" in axes.get_title(loc="left")


def test_a_run_without_a_history_has_no_curve(tmp_path):
    store = new_store(tmp_path)
    keep(store, (1, 20), seed=1, history=[(0, 5.0), (10, 20.0)])
    keep(store, (1, 1), seed=2)
    for run in load_runs(tmp_path):
        if run.record.spec.seed == 1:
            assert list(run.plot().get_lines()[0].get_ydata()) == [5, 20]
        else:
            with pytest.raises(BadOption, match="no history"):
                run.plot()
