"""Figures: what they draw, as SVG and PDF, the same each time."""

import re
from dataclasses import replace
from xml.etree import ElementTree

import pytest
from builders.stores import A, B, keep, keep_arrows, new_store
from scipy import stats

from askwell.errors import DamagedFile
from askwell.runs.run_group import RunGroup, kept_runs
from askwell.views.study import report_page, study_of, write_report
from askwell.views.study_figures import chosen_runs, curve_drawing, interval, mean_curve, prompt_drawings, score_drawing
from askwell.views.study_rows import lines_of
from askwell.views.to_html import page_html


def test_the_interval_of_a_cell_is_of_its_facts(tmp_path):
    store = new_store(tmp_path)
    keep_arrows(store)
    drawn = interval(lines_of(kept_runs(store.runs()))[0].groups["init"])
    expected = stats.binomtest(1, 6).proportion_ci(method="wilson")
    assert drawn == pytest.approx((100 / 6, 100 * expected.low, 100 * expected.high))


def test_the_interval_of_a_mean_over_seeds_is_of_a_whole_number_of_right_answers(tmp_path):
    store = new_store(tmp_path)
    for seed, ranks in enumerate(([1, 2, 2, 2], [1, 1, 1, 2], [1, 1, 1, 1])):
        keep(store, ranks, seed=seed)
    drawn = interval(lines_of(kept_runs(store.runs()))[0].groups["soft"])
    z, share, count = stats.norm.ppf(0.975), 3 / 4, 4  # 8/3 of 4 facts are right on average
    middle = (share + z**2 / (2 * count)) / (1 + z**2 / count)
    reach = z / (1 + z**2 / count) * (share * (1 - share) / count + z**2 / (4 * count**2)) ** 0.5
    expected = (100 * (1 + 3 + 4) / 12, 100 * (middle - reach), 100 * (middle + reach))
    assert drawn == pytest.approx(expected)


def test_scores_are_told_in_words_too_and_the_same_each_time(tmp_path):
    store = new_store(tmp_path)
    keep_arrows(store)
    lines = lines_of(kept_runs(store.runs()))
    first, again = score_drawing(lines, "set").chart, score_drawing(lines, "set").chart
    assert (first.svg(), first.pdf()) == (again.svg(), again.pdf())
    assert first.pdf().startswith(b"%PDF")
    assert b"CreationDate" not in first.pdf()
    title, described = (element.text for element in ElementTree.fromstring(first.svg())[:2])
    assert title == "P@1 in per cent"
    assert described == "bert-base-cased: mined: untuned 16.7, tuned 58.3, tuned at all layers 100.0."


def test_a_curve_is_the_mean_of_runs_wherever_one_was_scored(tmp_path):
    store = new_store(tmp_path)
    keep(store, [1], A, history=[(0, 0.0), (100, 50.0)])
    keep(store, [1], B, history=[(0, 20.0), (200, 80.0)])
    group = RunGroup(tuple(kept_runs(store.runs())))
    # At 100 the second run is half way, at 50; at 200 the first has ended, at 50.
    assert mean_curve(group) == [(0.0, 10.0), (100.0, 50.0), (200.0, 65.0)]
    drawn = curve_drawing(lines_of(kept_runs(store.runs())), "set")
    assert drawn is not None
    assert "bert-base-cased · mined, tuned: 10.0 at first, 65.0 at the end" in drawn.chart.description


def test_runs_without_a_history_have_no_curve_and_a_damaged_one_is_named(tmp_path):
    store = new_store(tmp_path)
    made = keep(store, [1])
    assert curve_drawing(lines_of(kept_runs(store.runs())), "set") is None
    (store.run_folder(made.id) / "history.jsonl").write_text('{"pairs": 1}\n')
    with pytest.raises(DamagedFile, match=r"history\.jsonl is damaged"):
        curve_drawing(lines_of(kept_runs(store.runs())), "set")


def test_soft_mixtures_with_most_prompts_are_drawn_the_lms_in_turn(tmp_path):
    store = new_store(tmp_path)
    for lm in ("one", "two"):
        for relation in (A, B):
            keep(store, [1], relation, lm=lm)
            keep(store, [1], relation, lm=lm, seed=1)
            keep(store, [1], relation, lm=lm, prompts="single", templates=["[X] in [Y] ."])
            keep(store, [1], relation, lm=lm, setting="em", training={"method": "em"})
    lines = lines_of(kept_runs(store.runs()))
    told = [(run.spec.lm, run.spec.relation, run.spec.prompts, run.spec.seed) for run in chosen_runs(lines, 3)]
    assert told == [("one", A, "mined", 0), ("one", B, "mined", 0), ("two", A, "mined", 0)]
    assert chosen_runs(lines, 0) == []


def test_a_mixture_that_cannot_be_loaded_is_told_not_fatal(tmp_path):
    store = new_store(tmp_path)
    keep(store, [1])
    figures, problems = prompt_drawings(chosen_runs(lines_of(kept_runs(store.runs())), 1))
    assert figures == []
    assert len(problems) == 1
    assert problems[0].startswith("set:a on bert-base-cased: mined, soft is not drawn: ")


def test_the_page_is_whole(tmp_path):
    store = new_store(tmp_path / "runs <kept>")
    keep_arrows(store)
    study = study_of(store.runs(), drawn=0)
    page = report_page(study, store.folder.name)
    keep(store, [1], lm="smollm2")
    about = dict(report_page(study_of(store.runs(), drawn=0), store.folder.name).about)
    assert about["LMs"] == "bert-base-cased, smollm2 (SmolLM2-135M-Instruct with 4-bit weights)"
    (part,) = study.sets
    assert [section.heading for section in page.sections] == [
        "What was found",
        *(one.title for one in part.tables),
        "Some answers",
        *(one.title for one in part.trust_tables),
    ]
    html = page_html(page)
    assert "runs &lt;kept&gt;" in html
    assert not re.search(r'(?:src|href)="(?!#|data:)', html)
    assert "init" not in re.sub(r"base64,\S+|initial", "", html)
    written = write_report(study, "runs", tmp_path / "out", ["csv"])
    names = [path.relative_to(tmp_path / "out").as_posix() for path in written]
    assert names[0] == "tables/all_scores-set.csv"
    assert not any(name.startswith("report.") for name in names)
    assert {"figures/scores-set.svg", "figures/scores-set.pdf"} <= set(names)
    assert all(path.is_file() for path in written)


def test_a_new_report_leaves_nothing_of_the_old_one_and_all_that_is_not_ours(tmp_path):
    store = new_store(tmp_path / "runs")
    keep_arrows(store)
    study, out = study_of(store.runs(), drawn=0), tmp_path / "out"
    first = write_report(study, "runs", out)
    (out / "figures/mine.svg").write_text("<svg/>")
    second = write_report(replace(study, sets=()), "runs", out, ["markdown"])
    assert [path.name for path in second] == ["report.md"]
    assert {path for path in first if path.exists()} == {out / "report.md"}
    assert (out / "figures/mine.svg").exists()
