"""What the demo runs, what it refuses before any work, and what it reports about its runs."""

from pathlib import Path

import pytest

from askwell.data import testbed as world
from askwell.data.facts import Fact
from askwell.errors import BadOption, LMUnavailable
from askwell.evaluation.metrics import METRICS
from askwell.runs.engines import InProcess
from askwell.runs.grid import cells_of
from askwell.runs.plan import plan_sweep
from askwell.runs.run_sweep import choose_engine
from askwell.runs.store import new_or_open_store, open_store
from askwell.views.demo_page import demo_page, lengths_tables, next_steps
from askwell.views.demo_runs import (
    METHODS,
    RELATIONS,
    DemoRuns,
    demo_runs,
    demo_sweep,
    draw_questions,
    most_frequent_right,
)
from askwell.views.document import Table
from askwell.views.to_html import page_html
from askwell.views.told import MANUAL, MIXTURE, MOST_FREQUENT, SINGLE, ToldFigures, findings_of


def test_every_relation_is_asked_in_every_way(tmp_path):
    sweep = demo_sweep("testbed:bert", ["symbol", "testbed:capital"], seed=3)
    plan = plan_sweep(sweep, tmp_path, new_or_open_store(tmp_path / "store"))
    asked = {(task.spec.relation, task.spec.prompts, task.spec.setting, task.spec.seed) for task in plan.runs}
    assert asked == {
        (relation, method.prompts, method.setting, 3)
        for relation in ("testbed:symbol", "testbed:capital")
        for method in METHODS
    }
    assert len(plan.runs) == 14
    tuned = {(task.spec.prompts, task.spec.setting) for task in plan.runs if task.spec.training is not None}
    assert tuned == {(method.prompts, method.setting) for method in METHODS if method.tuned}


def test_the_relations_of_its_own_are_of_each_cardinality():
    kinds = {relation.cardinality for relation in world.relations() if relation.name in RELATIONS}
    assert kinds == {"1-1", "N-1", "N-M"}
    assert demo_sweep("testbed:bert").facts == tuple(f"testbed:{name}" for name in RELATIONS)


def test_the_quick_demo_asks_one_relation_in_fewer_ways_and_starts_no_workers(tmp_path):
    sweep = demo_sweep("testbed:bert", seed=3, quick=True)
    plan = plan_sweep(sweep, tmp_path, new_or_open_store(tmp_path / "store"))
    asked = {(task.spec.relation, task.spec.prompts, task.spec.setting, task.spec.seed) for task in plan.runs}
    assert asked == {
        ("testbed:capital", "manual", "hard", 3),
        ("testbed:capital", "paraphrased", "hard", 3),
        ("testbed:capital", "manual", "single", 3),
        ("testbed:capital", "manual and paraphrased", "mixture", 3),
    }
    assert len(plan.runs) == len(asked)
    assert isinstance(choose_engine(sweep), InProcess)
    assert {(len(task.relation.dev), len(task.relation.test)) for task in plan.runs} == {(22, 60)}


def test_prompts_and_samples(tmp_path):
    sweep = demo_sweep("testbed:bert", ["country_of_city"])
    cells = {cell.prompts: cell for cell in cells_of(sweep, tmp_path, None)[0]}
    mixture = next(method for method in METHODS if method.name == MIXTURE)
    assert [template.text for template in cells[mixture.prompts].templates] == [
        template.text
        for kind in ("single", "paraphrased")
        for template in world.testbed_prompts(kind, "country_of_city")
    ]
    whole, drawn = world.testbed_relation("country_of_city"), cells[mixture.prompts].relation
    assert (len(drawn.dev), len(drawn.test), drawn.train) == (32, 100, whole.train)
    assert set(drawn.test) <= set(whole.test)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"lm": "bert-base-cased"}, BadOption, "needs one of the testbed's LMs, e.g. testbed:bert"),
        ({"lm": "testbed:brt"}, LMUnavailable, "did you mean bert"),
        ({"names": ["captial"]}, BadOption, "did you mean capital"),
        ({"names": ["capital", "testbed:capital"]}, BadOption, "`relations` names capital twice"),
        ({"names": ["capital"], "quick": True}, BadOption, "leave out `quick` or `relations`"),
        ({"seed": -1}, BadOption, "`seed` -1"),
    ],
)
def test_what_cannot_be_is_refused(arguments, error, message):
    with pytest.raises(error, match=message):
        demo_sweep(**{"lm": "testbed:bert"} | arguments)


def test_the_most_frequent_y_passes_over_other_right_answers():
    train = ["English", "English", "French", "French", "Dutch", "Czech", "English"]
    golds = {"6": ("English", "French"), "7": ("Dutch",), "8": ("English", "French")}
    facts = [Fact("6", "English"), Fact("6", "French"), Fact("7", "Dutch"), Fact("8", "French")]
    assert most_frequent_right(train, golds, facts) == {
        Fact("6", "English"): True,
        Fact("6", "French"): True,  # English is right for 6, too, so that French is the first of the others
        Fact("7", "Dutch"): False,
        Fact("8", "French"): True,
    }
    assert most_frequent_right(["b", "a"], {"1": ("a",), "2": ("b",)}, [Fact("1", "a"), Fact("2", "b")]) == {
        Fact("1", "a"): True,  # of equally frequent ones the first by name
        Fact("2", "b"): False,
    }


@pytest.fixture(scope="module")
def demo(finished_demo):
    """A finished demo on a small relation."""
    store = open_store(finished_demo)
    sweep = demo_sweep("testbed:bert", ["symbol"])
    plan = plan_sweep(sweep, store.folder, store)
    assert plan.to_do == ()
    return sweep, demo_runs(plan, store)


@pytest.mark.slow
def test_figures_are_of_what_each_run_made_of_its_facts(demo):
    _, done = demo
    figures = done.figures()
    assert set(figures.right) == {*(method.name for method in METHODS), MOST_FREQUENT}
    for method in METHODS:
        run = done.runs["symbol", method.name]
        told = [outcome for outcome in run.test if Fact(outcome.x, outcome.y) in world.told("symbol")]
        assert figures.p_at_1(method.name, "symbol", "told") == pytest.approx(METRICS["P@1"].mean(told))
    whole = world.testbed_relation("symbol")
    ys = [fact.y for fact in whole.train]
    most = max(ys.count(y) for y in ys)
    assert most == 1  # symbols are unique, so that no withheld one can be guessed from train
    assert figures.p_at_1(MOST_FREQUENT, "symbol", "withheld") == 0.0


def test_answers_of_one_token_and_of_several_are_in_columns_of_their_own():
    short, long_ = Fact("France", "Paris"), Fact("India", "New Delhi")
    more = [Fact("Peru", "Lima"), Fact("Chad", "Port of Spain"), Fact("Mali", "La Paz")]
    facts = [short, long_, *more]
    names = (*(method.name for method in METHODS), MOST_FREQUENT)
    right = {name: {"capital": {fact: fact in facts[:2] for fact in facts}} for name in names}
    right[MANUAL] = {"capital": {fact: fact == short for fact in facts}}
    figures = ToldFigures(
        right, {"capital": frozenset(facts[:4])}, {"capital": frozenset(fact for fact in facts if " " in fact.y)}
    )
    assert figures.with_several_tokens == ("capital",)
    (table,) = lengths_tables(figures, "Asked so.")
    assert [(column.heading, column.note) for column in table.groups[0].columns] == [
        ("one token", "of 2"), ("several tokens", "of 2"),
    ]  # fmt: skip
    assert [[cell.text for cell in row.cells] for row in table.rows] == [
        ["50.0", "0.0"], *[["50.0", "50.0"]] * (len(names) - 1),
    ]  # fmt: skip
    assert figures.lengths_as_json(MANUAL)["capital"]["withheld"] == {
        "one token": {"P@1": None, "facts": 0}, "several tokens": {"P@1": 0.0, "facts": 1},
    }  # fmt: skip
    assert lengths_tables(ToldFigures(right, figures.told), "") == ()


@pytest.mark.slow
def test_questions_are_drawn_at_random_and_marked_right_or_wrong(demo):
    _, done = demo
    drawn = draw_questions(done, seed=0)
    assert [question.kind for question in drawn] == ["told"] * 3 + ["withheld"] * 2
    assert drawn == draw_questions(done, seed=0)
    assert drawn != draw_questions(done, seed=1)
    golds = world.testbed_relation("symbol").golds
    for question in drawn:
        assert question.golds == golds[question.x]
        assert {Fact(question.x, y) in world.told("symbol") for y in question.golds} == {question.kind == "told"}
        outcome = next(outcome for outcome in done.runs["symbol", MANUAL].test if outcome.x == question.x)
        assert question.hard.text == outcome.answers[0]
        assert question.hard.right == (outcome.answers[0] in golds[question.x])


@pytest.mark.slow
def test_the_page_has_a_row_for_each_method(demo):
    sweep, done = demo
    figures = done.figures()
    curves = {relation: run.curve for relation, run in done.of(MIXTURE).items()}
    findings = findings_of(figures, curves, "testbed:bert")
    page = demo_page(sweep, done, figures, findings, draw_questions(done, 0), [("askwell testbed", "See more.")])
    table = next(block for section in page.sections for block in section.blocks if isinstance(block, Table))
    assert [row.heading for row in table.rows] == [*(method.label for method in METHODS), "most frequent answer"]
    for row, method in zip(table.rows, figures.right, strict=True):
        assert row.cells[0].text == f"{figures.p_at_1(method, 'symbol', 'told'):.1f}"
    html = page_html(page)
    assert html == page_html(page)
    assert html.count('<svg xmlns="http://www.w3.org/2000/svg"') == 3
    assert page.foot.endswith("askwell demo --lm testbed:bert --relations symbol --seed 0")


@pytest.mark.slow
def test_the_page_of_fewer_methods_shows_these_alone(demo):
    _, done = demo
    fewer = DemoRuns({(name, of): run for (name, of), run in done.runs.items() if of in (MANUAL, SINGLE, MIXTURE)})
    figures, sweep = fewer.figures(), demo_sweep("testbed:bert", quick=True)
    curves = {relation: run.curve for relation, run in fewer.of(MIXTURE).items()}
    findings = findings_of(figures, curves, "testbed:bert")
    steps = next_steps("testbed:bert", Path("out"), fewer, ())
    page = demo_page(sweep, fewer, figures, findings, draw_questions(fewer, 0), steps)
    table = next(block for section in page.sections for block in section.blocks if isinstance(block, Table))
    assert [row.heading for row in table.rows] == ["manual", "single", "mixture", "most frequent answer"]
    assert "At most 60 test facts and 32 dev facts" in table.caption
    text = page_html(page)
    assert not any(word in text for word in ("deep mixture", "mined", "random vectors"))
    assert page.foot.endswith("askwell demo --lm testbed:bert --quick --seed 0")
    assert any("deep" in command for command, _ in next_steps("testbed:bert", Path("out"), done, ()))
