"""Runs are done once, go on where they were interrupted, and are the same every time."""

import json

import pytest

from askwell.data import testbed as world
from askwell.data.facts import Fact
from askwell.demo import results as plans
from askwell.demo.findings import draw_questions
from askwell.demo.results import MANUAL, PER_FACT, RESULT, RUNS, SINGLE, plan_demo, run_demo
from askwell.errors import DamagedFile

pytestmark = pytest.mark.slow


@pytest.fixture
def two_runs(monkeypatch):
    """A plan of one hard and one tuned run."""
    monkeypatch.setattr(plans, "METHODS", (MANUAL, SINGLE))
    return plan_demo("testbed:bert", ["symbol"], seed=3, quick=False)


def files_in(folder):
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_an_interrupted_demo_goes_on_and_comes_out_the_same(two_runs, tmp_path):
    whole, steps = tmp_path / "whole", []
    results = run_demo(two_runs, whole, steps.append)
    assert [step.number for step in steps if step.result] == [1, 2]
    assert all(not step.was_there for step in steps)
    shares = [step.share for step in steps if step.number == 2]
    assert shares == sorted(shares)
    assert (shares[0], shares[-1]) == (0.0, 1.0)

    class Stop(Exception): ...

    def stop(step):
        if step.number == 2 and step.share > 0.5:
            raise Stop

    cut = tmp_path / "cut"
    with pytest.raises(Stop):
        run_demo(two_runs, cut, stop)
    assert len(list(cut.rglob(RESULT))) == 1
    again = []
    assert [result.outcomes for result in run_demo(two_runs, cut, again.append)] == [
        result.outcomes for result in results
    ]
    assert again[0].was_there
    assert again[0].number == 1
    gone_on = [step.share for step in again if step.number == 2]
    assert 0.0 not in gone_on[1:]
    assert gone_on[1] > 0.3, "training began anew"
    assert files_in(cut) == files_in(whole)

    kept = []
    run_demo(two_runs, cut, kept.append)
    assert [step.was_there for step in kept] == [True, True]

    folder = next((cut / RUNS).glob("*soft-single*"))
    assert json.loads((folder / RESULT).read_text())["run"]["relation"] == "symbol"
    (folder / PER_FACT).write_bytes(b"")
    with pytest.raises(DamagedFile, match=r"remove .*soft-single"):
        run_demo(two_runs, cut)


def test_questions_are_drawn_by_lot_and_marked_right_or_wrong(monkeypatch, tmp_path):
    from askwell.demo import findings as questions

    monkeypatch.setattr(plans, "METHODS", (MANUAL,))
    monkeypatch.setattr(questions, "MIXTURE", MANUAL)
    results = run_demo(plan_demo("testbed:bert", ["language"], seed=0, quick=False), tmp_path)
    drawn = draw_questions(results, seed=0)
    assert [question.kind for question in drawn] == ["told"] * 3 + ["withheld"] * 2
    assert drawn == draw_questions(results, seed=0)
    assert drawn != draw_questions(results, seed=1)
    golds = world.testbed_relation("language").golds
    for question in drawn:
        assert question.golds == golds[question.x]
        assert {Fact(question.x, y) in world.told("language") for y in question.golds} == {question.kind == "told"}
        outcome = next(outcome for outcome in results[0].outcomes if outcome.x == question.x)
        assert (question.hard.text, question.hard.right) == (
            outcome.answers[0],
            outcome.answers[0] in golds[question.x],
        )
