"""The tables of labels, against counts given by hand."""

from dataclasses import replace

import pytest
from builders.stores import A, B, figures_of, keep

from askwell.evaluation import labels
from askwell.runs.run_group import kept_runs
from askwell.views.study import report_latex, report_markdown, study_of
from askwell.views.study_rows import lines_of
from askwell.views.study_tables import label_tables

NAMES = ("good", "bad")


def classified(store, confusion, relation=A, names=NAMES, **spec):
    """Keeps a run with such a confusion table."""
    test = replace(figures_of([1], "lm", relation, "test", 0), labels=labels.figures_of(names, confusion))
    keep(store, [1], relation, known={"test": test}, **spec)


def shown(table) -> list[tuple[str, str, list[str]]]:
    return [(row.begins, row.heading, [cell.text for cell in row.cells]) for row in table.table.rows]


def test_a_row_for_each_label_and_counts_of_seeds_added_up(store):
    classified(store, [[3, 0], [1, 1]], setting="init", tuned=False)
    classified(store, [[2, 1], [0, 4]])
    classified(store, [[1, 0], [4, 4]], seed=1)
    (table,) = label_tables(lines_of(kept_runs(store.runs())), "set")
    assert table.name == "labels-set-a"
    assert table.title == "Labels of set:a"
    assert shown(table) == [
        ("bert-base-cased · mined, untuned", "good", ["3", "75.0", "100.0", "85.7", "3", "0"]),
        ("", "bad", ["2", "100.0", "50.0", "66.7", "1", "1"]),
        ("", "all (macro F1)", ["5", "–", "–", "76.2", "–", "–"]),
        # Good: 3 of the 7 for which it was chosen, 3 of 4; bad: 8 of 9, 8 of 12.
        ("bert-base-cased · mined, tuned", "good", ["4", "42.9", "75.0", "54.5", "3", "1"]),
        ("", "bad", ["12", "88.9", "66.7", "76.2", "4", "8"]),
        ("", "all (macro F1)", ["16", "–", "–", "65.4", "–", "–"]),
    ]
    values = {(one["kind"], one["figure"]): one["value"] for one in table.records}
    assert values["soft", "bad: good chosen"] == 4
    assert values["soft", "good: recall"] == 75.0
    assert values["init", "macro F1"] == pytest.approx(100 * (6 / 7 + 2 / 3) / 2)


def test_each_relation_and_set_of_labels_has_its_table(store):
    classified(store, [[1, 0], [0, 1]])
    classified(store, [[1, 0], [0, 1]], relation=B)
    classified(store, [[1, 0], [0, 1]], names=("yes", "no"), prompts="single")
    keep(store, [1], prompts="paraphrased")
    tables = label_tables(lines_of(kept_runs(store.runs())), "set")
    assert sorted(table.name for table in tables) == ["labels-set-a", "labels-set-a-2", "labels-set-b"]


def test_many_labels_are_named_by_what_they_are_taken_for(store):
    names = tuple(f"label {number}" for number in range(12))
    confusion = [[0] * 12 for _ in names]
    confusion[0][0], confusion[0][3], confusion[0][7] = 5, 1, 2
    classified(store, confusion, names=names)
    (table,) = label_tables(lines_of(kept_runs(store.runs())), "set")
    assert shown(table)[0][2] == ["8", "100.0", "62.5", "76.9", "label 7 (2), label 3 (1)"]
    assert shown(table)[1][2] == ["0", "–", "–", "–", "–"]


def test_runs_without_labels_have_no_table(store):
    keep(store, [1])
    assert label_tables(lines_of(kept_runs(store.runs())), "set") == []


def test_the_report_has_it_in_every_form(store):
    classified(store, [[2, 1], [0, 4]], names=("a_b", "bad"))
    study = study_of(store.runs(), drawn=0)
    assert "labels-set-a" in study.as_json()["tables"]
    assert "## Labels of set:a" in report_markdown(study)
    assert "| **2** | 1 |" in report_markdown(study)
    assert r"a\_b" in report_latex(study)
