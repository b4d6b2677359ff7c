"""The prompts' weights, and which tables there are, against figures made by hand."""

import math

import pytest
from builders.stores import A, B, keep

from askwell.errors import UsageError
from askwell.runs.run_group import kept_runs
from askwell.views.study import study_of
from askwell.views.study_rows import lines_of
from askwell.views.study_tables import effective_table, paper_table


def shown(study) -> list[tuple[str, str, list[str]]]:
    return [(row.begins, row.heading, [cell.text for cell in row.cells]) for row in study.table.rows]


def test_effective_prompts_are_told_over_relations_of_each_the_mean_over_seeds(store):
    for relation, numbers in {A: (3.0, 5.0), B: (1.0, 3.0), "set:c": (6.0, 6.0)}.items():
        for seed, number in enumerate(numbers):
            keep(store, [1], relation, seed=seed, known={"effective_prompts": number})
    keep(store, [1], prompts="single", templates=["[X] in [Y] ."])
    keep(store, [1], setting="v", training={"tune_weights": False}, known={"effective_prompts": 2.0})
    study = effective_table(lines_of(kept_runs(store.runs())), "set")
    # The relations' means are 4, 2 and 6.
    entropy = sum(map(math.log2, (3, 5, 1, 3, 6, 6))) / 6
    assert shown(study) == [
        ("bert-base-cased", "mined, tuned", ["2.0", "4.0", "2.0", "2.0", "6.0", "–", f"{entropy:.2f}"])
    ]
    assert study is not None
    values = {record["figure"]: record["value"] for record in study.records}
    assert values == {
        "prompts": 2.0, "mean": 4.0, "std": 2.0, "min": 2.0, "max": 6.0, "T": None, "entropy": pytest.approx(entropy),
    }  # fmt: skip


def test_one_relation_has_no_deviation(store):
    keep(store, [1])
    study = effective_table(lines_of(kept_runs(store.runs())), "set")
    assert shown(study)[0][2] == ["2.0", "2.0", "–", "2.0", "2.0", "–", "1.00"]


def test_weights_that_depend_on_x_have_a_temperature(store):
    for relation, temperature, entropy in ((A, 1.0, 0.5), (B, 2.0, 1.0)):
        more = {"temperature": temperature, "mean_entropy_over_x": entropy}
        keep(store, [1, 1], relation, setting="dd", mixture={"weighting": "data-dependent"}, known=more)
    (found,) = shown(effective_table(lines_of(kept_runs(store.runs())), "set"))
    assert (found[1], found[2][-2:]) == ("mined, weighted by x (data-dependent), tuned", ["1.50", "0.75"])


def test_no_kind_of_run_is_missing_from_all_tables(store):
    keep(store, [1, 20], setting="d", mixture={"deep": True}, training={"tune_vectors": False})
    study = study_of(store.runs(), drawn=0)
    (row,) = shown(study.tables[0])
    assert row == ("bert-base-cased", "mined, deep, layers and weights tuned", ["50.0", "50.0", "52.5", "–", "2"])
    assert [table.name for table in study.tables] == ["all_scores-set", "believe-set", "parts-set"]


def test_each_set_has_its_tables(store):
    keep(store, [1], "trex_distinct/P19")
    keep(store, [1], "google_re/place_of_birth", setting="init", tuned=False)
    keep(store, [1], "google_re/place_of_death", setting="init", tuned=False)
    names = [table.name for table in study_of(store.runs(), drawn=0).tables]
    assert names == [
        "all_scores-google_re", "all_scores-trex_distinct", "paper-trex_distinct", "effective_prompts-trex_distinct",
        "believe-trex_distinct", "parts-trex_distinct",
    ]  # fmt: skip


def test_tables_without_a_row_are_left_out(store):
    keep(store, [1], prompts="single", templates=["[X] in [Y] ."])
    lines = lines_of(kept_runs(store.runs()))
    for make in (effective_table, paper_table):
        assert make(lines, "set") is None


def test_controls_are_no_ordinary_runs(store):
    keep(store, [1], control="random-weights")
    with pytest.raises(UsageError, match="controls"):
        kept_runs(store.runs())
    keep(store, [20])
    assert [run.spec.control for run in kept_runs(store.runs())] == [None]
