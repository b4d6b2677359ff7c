"""How far scores can be trusted, from runs and controls made by hand."""

from dataclasses import replace

import pytest
from builders.outcomes import outcome
from builders.stores import A, B, keep, new_store

from askwell.data.facts import Fact
from askwell.data.names import cardinalities
from askwell.data.testbed import relations, told_facts, withheld_facts
from askwell.evaluation.confidence import Calibration, RiskCoverage
from askwell.evaluation.knowledge import ControlFigures
from askwell.evaluation.scoring import Projection
from askwell.evaluation.trust import Agreement, AtRisk, Consistency, SignalAreas, Trust
from askwell.runs.run_group import control_runs, kept_runs
from askwell.views.document import MISSING
from askwell.views.study import report_latex, report_markdown, report_page, study_of
from askwell.views.study_rows import lines_of
from askwell.views.to_html import page_html
from askwell.views.trust_figures import known_parts, trust_in
from askwell.views.trust_section import parts_table, trust_sentences, trust_table


def trust(**fields: object) -> Trust:
    """Made-up measures of a run, of which only a few matter here."""
    found = {
        "relation": A, "lm": "lm", "vocabulary": "all", "facts": 4, "left_out": {}, "dev_facts": 4, "dev_left_out": {},
        "questions": 4, "several_ys": 0, "scores": {}, "calibration": Calibration(4, 0.5, 0.5, 0.0, ()),
        "risk_coverage": RiskCoverage((), (), (), 0.0), "signals": SignalAreas(4, {}, 0.0, 0.0), "at_risk": None,
        "answer_sets": None, "consistency": None, "projection": None, "missing": {},
    }  # fmt: skip
    return Trust(**found | fields)  # ty: ignore[invalid-argument-type]


TRUST = trust(
    at_risk=AtRisk(0.1, 0.95, 0.5, 4, 0.5, 0.0, 4, 2, 1, 0.5, 0.5),
    consistency=Consistency(2, Agreement(4, 0.5, 0.5, 0.5, 0.5), None),
    projection=Projection(A, "test", "all", 4, 0, {}, {"P@1": 25.0}, 0.5),
)


def cells_of(store):
    runs = store.runs()
    return trust_in(lines_of(kept_runs(runs)), control_runs(runs))


def filled(folder):
    """Relation a: 3 of 4 right; majority gets the first, an LM with random weights the first two. b: 1 of 2 right."""
    made = new_store(folder)
    metrics = {
        "trust": TRUST,
        "controls": {"prior-corrected": ControlFigures("corrected", test={"P@1": 50.0})},
        "partitions": {"seen y": {"seen y": {"facts": 3, "P@1": 100.0}, "unseen y": {"facts": 1, "P@1": 0.0}}},
    }
    keep(
        made,
        (1, 1, 1, 20),
        A,
        controls={"majority": (1, 20, 20, 20)},
        known=metrics,
        counts={"test_in_train": 2},
        confidences=(0.9, 0.8, 0.7, 0.6),
    )
    keep(made, (1, 1, 20, 20), A, control="random-weights")
    metrics = metrics | {
        "partitions": {"seen y": {"seen y": {"facts": 1, "P@1": 0.0}, "unseen y": {"facts": 1, "P@1": 100.0}}}
    }
    keep(made, (20, 1), B, controls={"majority": (20, 20)}, known=metrics, counts={"test_in_train": 2},
         confidences=(0.2, 0.4))  # fmt: skip
    keep(made, (20, 20), B, control="random-weights")
    return made


@pytest.fixture
def store(tmp_path):
    return filled(tmp_path)


@pytest.fixture(scope="module")
def cell(tmp_path_factory):
    (found,) = cells_of(filled(tmp_path_factory.mktemp("store")))
    return found


def test_controls_and_gain(cell):
    """Of 6 facts 4 are right; majority has 1, the blank LM 2 on dev and on test: it is the best control."""
    assert cell.score.mean == pytest.approx(400 / 6)
    assert cell.knowledge.control == "random-weights"
    assert {name: scores["test"] for name, scores in cell.knowledge.controls.items()} == pytest.approx(
        {"majority": 100 / 6, "random-weights": 200 / 6}
    )
    assert cell.knowledge.gain == pytest.approx(200 / 6)
    assert not cell.knowledge.is_there  # of two facts


def test_easy_and_hard_facts_and_seen_and_unseen_ys_are_scored_apart(cell):
    """Easy are the two facts of a that a control has; of the four others two are right."""
    assert cell.parts["control"] == {"easy": {"facts": 2, "P@1": 100.0}, "hard": {"facts": 4, "P@1": 50.0}}
    assert cell.parts["seen y"]["seen y"] == {"facts": 4, "P@1": pytest.approx(75)}
    assert cell.parts["seen y"]["unseen y"] == {"facts": 2, "P@1": pytest.approx(50)}


def test_measures_are_put_together(cell):
    assert cell.answered == (8, 4, 2)
    assert cell.agreement == pytest.approx(0.5)
    assert cell.projected == pytest.approx(25)
    assert cell.corrected == pytest.approx(50)
    assert cell.leaked == 4
    # Six bins of one answer each: |1 - 0.9|, |1 - 0.8|, |1 - 0.7|, |0 - 0.6|, |0 - 0.2|, |1 - 0.4|.
    assert cell.calibration.ece == pytest.approx((0.1 + 0.2 + 0.3 + 0.6 + 0.2 + 0.6) / 6)


def test_sentences_and_table_tell_score_control_gain_and_errors(cell):
    told = " ".join(trust_sentences(cell))
    assert "66.7 % of 6 test facts are answered correctly" in told
    assert "the same tuning on an LM with random weights 33.3" in told
    assert "(chosen on dev: the same tuning on an LM with random weights): 33.3 (95 % interval " in told
    assert "which may be chance" in told
    assert "On the 4 facts that no control gets right, it scores 50.0; on the 2 others, 100.0." in told
    assert "On the 2 facts whose answer is never an answer in train, it scores 50.0; on the others, 75.0." in told
    assert "calibration error" not in told
    assert "questions" not in told
    assert "too few facts to say how far its probabilities can be trusted" in told
    assert "4 test facts are also in train" in told
    cells = [cell.text for cell in trust_table([cell], "set").table.rows[0].cells]
    assert cells == [
        "66.7",
        "the same tuning on an LM with random weights",
        "33.3",
        "+33.3",
        "50.0",
        "50.0",
        "33.3",
        "50.0",
        "50.0",
        "50.0",
        "25.0",
    ]


def test_of_enough_facts_calibration_and_abstention_are_told(cell, monkeypatch):
    monkeypatch.setattr("askwell.views.trust_figures.FEW", 6)
    told = " ".join(trust_sentences(cell))
    assert "answers 50.0 % of the 8 questions, and 50.0 % of these answers are wrong" in told
    # the mean of the six errors of test_measures_are_put_together
    assert "expected calibration error 33.3 %" in told


def test_without_controls_nothing_is_claimed(tmp_path):
    made = new_store(tmp_path)
    keep(made, (1, 1))
    (cell,) = cells_of(made)
    assert cell.knowledge is None
    told = " ".join(trust_sentences(cell))
    assert "it is not clear how much of it is knowledge" in told
    assert "knows something" not in told
    assert [cell.text for cell in trust_table([cell], "set").table.rows[0].cells][1:4] == ["–", "–", "–"]


def test_a_control_of_some_relations_alone_does_not_count(store):
    keep(store, (1, 1), "set:c", controls={"majority": (1, 1)})
    (cell,) = cells_of(store)
    assert cell.knowledge is not None
    assert list(cell.knowledge.controls) == ["majority"]


def test_the_same_answers_of_two_seeds_are_counted_and_told(tmp_path):
    made = new_store(tmp_path)
    for seed, ranks in ((0, (1, 1, 20, 20)), (1, (1, 20, 20, 20))):
        keep(made, ranks, seed=seed, controls={"majority": (20, 20, 20, 20)})
    (cell,) = cells_of(made)
    assert cell.seeds is not None
    assert cell.knowledge is not None
    assert cell.seeds.same == 0.75
    assert cell.knowledge.gain == pytest.approx(37.5)
    assert "Tuned again with another seed, it gives the same answer to 75 %" in " ".join(trust_sentences(cell))


def test_it_stands_in_every_format(store, monkeypatch):
    monkeypatch.setattr("askwell.views.trust_figures.FEW", 1)
    study = study_of(store.runs(), drawn=0)
    page = page_html(report_page(study, "store"))
    for text in (page, report_markdown(study)):
        assert "Can I believe this?" in text
        assert "which may be chance" in text
    assert "tab:believe-set" in report_latex(study)
    assert study.as_json()["believe"][0]["knowledge"]["control"] == "random-weights"
    assert [table.name for table in study.tables][-2:] == ["believe-set", "parts-set"]
    assert {"reliability-set-bert-base-cased", "risk_coverage-set"} <= {figure.name for figure in study.drawings}


def test_parts_of_relations_that_are_known(tmp_path, monkeypatch):
    """Of two relations of the testbed, 1-1 and N-1, and one of T-REx; of a fourth nothing is known."""
    kinds = {relation.name: relation.cardinality for relation in relations()}
    assert (kinds["capital"], kinds["currency"]) == ("1-1", "N-1")
    list_of_kinds = tmp_path / "meta/lama_relations.jsonl"
    list_of_kinds.parent.mkdir()
    list_of_kinds.write_text('{"relation": "P19", "type": "N-1"}\n{"relation": "P20"}\n')
    monkeypatch.setenv("ASKWELL_DATA", str(tmp_path))
    facts = [
        ("testbed:capital", sorted(told_facts("capital"))[0], 1),
        ("testbed:capital", sorted(withheld_facts("capital"))[0], 7),
    ]
    facts += [
        ("testbed:currency", sorted(told_facts("currency"))[0], 1),
        ("trex_original/P19", Fact("Ada", "London"), 2),
    ]
    facts += [("trex_original/P20", Fact("Ada", "London"), 1), ("mine", Fact("Ada", "London"), 1)]
    outcomes = [outcome(fact.x, fact.y, rank, relation=name) for name, fact, rank in facts]
    parts = known_parts(outcomes)
    assert {name: [o.relation for o in those] for name, those in parts["cardinality"].items()} == {
        "1-1": ["testbed:capital"] * 2,
        "N-1": ["testbed:currency", "trex_original/P19"],
    }
    assert {name: [o.rank for o in those] for name, those in parts["told"].items()} == {"told": [1, 1], "withheld": [7]}
    monkeypatch.delenv("ASKWELL_DATA")
    assert cardinalities(["trex_original/P19", "testbed:capital"]) == {"testbed:capital": "1-1"}
    assert known_parts(outcomes[-1:]) == {}


def test_the_table_of_parts(cell):
    """The partition by y in x has one part alone, and is left out; a cell without a part is missing."""
    easier = {"easy": {"facts": 3, "P@1": 90.0}, "hard": {"facts": 3, "P@1": 50.0}}
    other = replace(cell, kind="deep", parts={"told": {"told": {"facts": 3, "P@1": 100.0}}, "control": easier})
    first = replace(cell, parts=cell.parts | {"y in x": {"y not in x": {"facts": 6, "P@1": 50.0}}})
    table = parts_table([first, other], "set").table
    assert [(group.heading, [(c.heading, c.note) for c in group.columns]) for group in table.groups] == [
        ("by controls", [("easy", ""), ("hard", "")]),
        ("y in train", [("seen y", "4 facts"), ("unseen y", "2 facts")]),
    ]
    assert [(cell.text, cell.note) for cell in table.rows[0].cells] == [
        ("100.0", "2"),
        ("50.0", "4"),
        ("75.0", ""),
        ("50.0", ""),
    ]
    assert [(cell.text, cell.note) for cell in table.rows[1].cells[:2]] == [("90.0", "3"), ("50.0", "3")]
    assert set(table.rows[1].cells[2:]) == {MISSING}


def test_told_and_withheld_in_words(cell):
    parts = {"told": {"told": {"facts": 3, "P@1": 100.0}, "withheld": {"facts": 2, "P@1": 50.0}}}
    assert (
        "Here the truth is known: of the 3 facts in the LM's training text, 100.0 % are answered correctly; of the 2 "
        "withheld from it, 50.0 %."
    ) in trust_sentences(replace(cell, parts=parts))


def test_nearest_words_of_runs_that_are_words_still(tmp_path):
    """One relation's prompts were moved, and their nearest words score 25; the other's are words, and score 50."""
    words = trust(missing={"projection": "the prompts are words already"})
    made = new_store(tmp_path / "one")
    keep(made, (1, 1, 1, 20), A, known={"trust": TRUST})
    keep(made, (20, 1), B, known={"trust": words})
    (found,) = cells_of(made)
    assert found.projected == pytest.approx((4 * 25 + 2 * 50) / 6)
    both = new_store(tmp_path / "both")
    keep(both, (1, 1, 1, 20), A, known={"trust": words})
    keep(both, (20, 1), B, known={"trust": words})
    (found,) = cells_of(both)
    assert found.projected is None
