"""Ablation, effective prompts, data-dependent weights, baselines and what is left, against figures made by hand."""

import math

import pytest
from builders.stores import A, B, keep, new_store

from askwell.errors import UsageError
from askwell.views.study import study_of
from askwell.views.study_cells import kept_runs
from askwell.views.study_rows import lines_of
from askwell.views.study_tables import (
    ablation_table,
    baselines_table,
    dependence_table,
    effective_table,
    other_table,
)


@pytest.fixture
def store(tmp_path):
    return new_store(tmp_path)


def shown(study) -> list[tuple[str, str, list[str]]]:
    return [(row.begins, row.heading, [cell.text for cell in row.cells]) for row in study.table.rows]


def test_the_ablation_has_four_rows_for_each_source_in_which_a_part_was_tuned(store):
    keep(store, [1, 20], setting="init", tuned=False)
    keep(store, [1, 2], setting="w", training={"tune_vectors": False})
    keep(store, [1, 1], setting="s")
    keep(store, [1, 1], setting="s", prompts="single")
    lines = lines_of(kept_runs(store.runs()))
    assert shown(ablation_table(lines, "set")) == [
        ("bert-base-cased · mined", "baseline (init)", ["50.0", "50.0", "52.5"]),
        ("", "weights only", ["50.0", "100.0", "75.0"]),
        ("", "vectors only", ["–", "–", "–"]),
        ("", "both (soft)", ["100.0", "100.0", "100.0"]),
    ]


def test_effective_prompts_are_told_over_relations_of_each_the_mean_over_seeds(store):
    for relation, numbers in {A: (3.0, 5.0), B: (1.0, 3.0), "set:c": (6.0, 6.0)}.items():
        for seed, number in enumerate(numbers):
            keep(store, [1], relation, seed=seed, known={"effective_prompts": number})
    keep(store, [1], prompts="single", templates=["[X] in [Y] ."])
    keep(store, [1], setting="v", training={"tune_weights": False}, known={"effective_prompts": 2.0})
    study = effective_table(lines_of(kept_runs(store.runs())), "set")
    # The relations' means are 4, 2 and 6.
    assert shown(study) == [("bert-base-cased", "mined, soft", ["2.0", "4.0", "2.0", "2.0", "6.0"])]
    assert study is not None
    values = {record["figure"]: record["value"] for record in study.records}
    assert values == {"prompts": 2.0, "mean": 4.0, "std": 2.0, "min": 2.0, "max": 6.0}


def test_one_relation_has_no_deviation(store):
    keep(store, [1])
    study = effective_table(lines_of(kept_runs(store.runs())), "set")
    assert shown(study)[0][2] == ["2.0", "2.0", "–", "2.0", "2.0"]


def test_static_stands_above_data_dependent_with_temperature_and_entropy(store):
    keep(store, [1, 20], known={"effective_prompts": 8.0})
    keep(store, [1, 1], B, known={"effective_prompts": 2.0})
    for relation, temperature, entropy in ((A, 1.0, 0.5), (B, 2.0, 1.0)):
        more = {"temperature": temperature, "mean_entropy_over_x": entropy}
        keep(store, [1, 1], relation, setting="dd", mixture={"weighting": "data-dependent"}, known=more)
    keep(store, [1], setting="d", mixture={"weighting": "data-dependent", "deep": True},
         known={"temperature": 4.0, "mean_entropy_over_x": 0.0})  # fmt: skip
    study = dependence_table(lines_of(kept_runs(store.runs())), "set")
    found = shown(study)
    assert found[:2] == [
        ("bert-base-cased · mined, soft", "static", ["75.0", "75.0", f"{100 * 3.05 / 4:.1f}", "–", "2.00"]),
        ("", "data-dependent", ["100.0", "100.0", "100.0", "1.50", "0.75"]),
    ]
    assert found[2:] == [
        ("bert-base-cased · mined, deep", "static", ["–"] * 5),
        ("", "data-dependent", ["100.0", "100.0", "100.0", "4.00", "0.00"]),
    ]
    assert math.log2(8) / 2 + math.log2(2) / 2 == 2.0


def test_baselines_have_their_names(store):
    keep(store, [1, 20], prompts="single", setting="init", tuned=False, templates=["[X] in [Y] ."])
    keep(store, [1, 1], setting="init", tuned=False)
    keep(store, [1, 1], prompts="ours", setting="init", tuned=False)
    keep(store, [1, 1], setting="p", tuned=False, mixture={"combine": "product", "weights": "file"})
    keep(store, [1, 1], setting="pl", mixture={"combine": "product"})
    keep(store, [1, 1], setting="r", tuned=False, mixture={"initial": "random"})
    keep(store, [1, 1], setting="em", training={"method": "em"})
    study = baselines_table(lines_of(kept_runs(store.runs())), "set")
    assert [(heading, cells[0]) for _, heading, cells in shown(study)] == [
        ("LAMA: single", "50.0"),
        ("LPAQA: mined, mixture, uniform", "100.0"),
        ("LPAQA: mined, learned product", "100.0"),
        ("LPAQA: mined, product, published weights", "100.0"),
        ("hard prompts: ours, mixture, uniform", "100.0"),
        ("random vectors, untuned: random (mined)", "100.0"),
    ]


def test_no_kind_of_run_is_missing_from_all_tables(store):
    keep(store, [1, 20], setting="d", mixture={"deep": True}, training={"tune_vectors": False})
    study = other_table(lines_of(kept_runs(store.runs())), "set")
    assert shown(study) == [
        ("bert-base-cased", "mined: deep, layers and weights tuned", ["50.0", "50.0", "52.5"])
    ]  # fmt: skip
    assert [table.name for table in study_of(store.runs(), drawn=0).tables] == ["other-set", "believe-set", "parts-set"]


def test_each_set_has_its_tables(store):
    keep(store, [1], "trex_distinct/P19")
    keep(store, [1], "google_re/place_of_birth", setting="init", tuned=False)
    keep(store, [1], "google_re/place_of_death", setting="init", tuned=False)
    names = [table.name for table in study_of(store.runs(), drawn=0).tables]
    assert names == [
        "main-google_re", "full-google_re", "main-google_re-macro", "baselines-google_re",
        "distinct_y-trex_distinct", "full-trex_distinct", "effective_prompts-trex_distinct",
        "believe-trex_distinct", "parts-trex_distinct",
    ]  # fmt: skip


def test_tables_without_a_row_are_left_out(store):
    keep(store, [1], prompts="single", templates=["[X] in [Y] ."])
    lines = lines_of(kept_runs(store.runs()))
    for make in (ablation_table, baselines_table, effective_table, dependence_table, other_table):
        assert make(lines, "set") is None


def test_controls_are_no_ordinary_runs(store):
    keep(store, [1], control="random-weights")
    with pytest.raises(UsageError, match="controls"):
        kept_runs(store.runs())
    keep(store, [20])
    assert [run.spec.control for run in kept_runs(store.runs())] == [None]
