"""Figures: what they draw, as SVG and PDF, the same each time."""

import re
from dataclasses import replace
from xml.etree import ElementTree

import pytest
from matplotlib.patches import Rectangle
from report.made_store import A, B, keep, keep_arrows, new_store
from scipy import stats

from askwell.errors import DamagedFile
from askwell.report.cells import RunGroup, kept_runs
from askwell.report.charts import chart_style
from askwell.report.figures import chosen_runs, curve_figure, interval, mean_curve, prompt_figures, score_figure, wilson
from askwell.report.rows import lines_of
from askwell.report.study import report_page, study_of, write_report
from askwell.report.svg_pdf import figure_of, svg_pdf

DRAWING = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 200 100"><title>not drawn</title>'
    '<rect x="1" y="2" width="30" height="4" fill="#ff0000" rx="2"/>'
    '<g><line x1="0" x2="200" y1="50" y2="50" stroke="#00ff00"/>'
    '<text x="100" y="20" font-size="10" fill="#0000ff" text-anchor="middle" font-weight="700">word</text>'
    '<text x="10" y="80" font-size="10" fill="#000000">one<tspan fill="#ff0000"> two </tspan>three</text></g></svg>'
)


@pytest.mark.parametrize(("right", "count"), [(0, 5), (3, 7), (50, 100), (9, 9)])
def test_wilson_is_scipys(right, count):
    expected = stats.binomtest(right, count).proportion_ci(method="wilson")
    assert wilson(right / count, count) == pytest.approx((expected.low, expected.high))


def test_the_interval_of_a_cell_is_of_its_facts(tmp_path):
    store = new_store(tmp_path)
    keep_arrows(store)
    drawn = interval(lines_of(kept_runs(store))[0].groups["init"])
    expected = stats.binomtest(1, 6).proportion_ci(method="wilson")
    assert (drawn.score, drawn.low, drawn.high) == pytest.approx((100 / 6, 100 * expected.low, 100 * expected.high))


def test_scores_are_told_in_words_too_and_the_same_each_time(tmp_path):
    store = new_store(tmp_path)
    keep_arrows(store)
    lines = lines_of(kept_runs(store))
    first, again = score_figure(lines, "set"), score_figure(lines, "set")
    assert (first.svg, first.pdf) == (again.svg, again.pdf)
    assert first.pdf.startswith(b"%PDF")
    assert b"CreationDate" not in first.pdf
    title = ElementTree.fromstring(first.svg)[0].text
    assert title == "P@1 in per cent. bert-base-cased: mined: init 16.7, soft 58.3, deep 100.0."


def test_a_curve_is_the_mean_of_runs_wherever_one_was_scored(tmp_path):
    store = new_store(tmp_path)
    keep(store, [1], A, history=[(0, 0.0), (100, 50.0)])
    keep(store, [1], B, history=[(0, 20.0), (200, 80.0)])
    group = RunGroup(tuple(kept_runs(store)))
    # At 100 the second run is half way, at 50; at 200 the first has ended, at 50.
    assert mean_curve(group) == [(0.0, 10.0), (100.0, 50.0), (200.0, 65.0)]
    drawn = curve_figure(lines_of(kept_runs(store)), "set")
    assert drawn is not None
    assert "bert-base-cased · mined, soft: 10.0 at first, 65.0 at the end" in drawn.svg
    assert drawn.pdf.startswith(b"%PDF")


def test_runs_without_a_history_have_no_curve_and_a_damaged_one_is_named(tmp_path):
    store = new_store(tmp_path)
    made = keep(store, [1])
    assert curve_figure(lines_of(kept_runs(store)), "set") is None
    (store.run_folder(made.id) / "history.jsonl").write_text('{"pairs": 1}\n')
    with pytest.raises(DamagedFile, match=r"history\.jsonl is damaged"):
        curve_figure(lines_of(kept_runs(store)), "set")


def test_soft_mixtures_with_most_prompts_are_drawn_the_lms_in_turn(tmp_path):
    store = new_store(tmp_path)
    for lm in ("one", "two"):
        for relation in (A, B):
            keep(store, [1], relation, lm=lm)
            keep(store, [1], relation, lm=lm, seed=1)
            keep(store, [1], relation, lm=lm, prompts="single", templates=["[X] in [Y] ."])
            keep(store, [1], relation, lm=lm, setting="em", training={"method": "em"})
    lines = lines_of(kept_runs(store))
    told = [(run.spec.lm, run.spec.relation, run.spec.prompts, run.spec.seed) for run in chosen_runs(lines, 3)]
    assert told == [("one", A, "mined", 0), ("one", B, "mined", 0), ("two", A, "mined", 0)]
    assert chosen_runs(lines, 0) == []


def test_a_mixture_that_cannot_be_loaded_is_told_not_fatal(tmp_path):
    store = new_store(tmp_path)
    keep(store, [1])
    figures, problems = prompt_figures(chosen_runs(lines_of(kept_runs(store)), 1))
    assert figures == []
    assert len(problems) == 1
    assert problems[0].startswith("set:a on bert-base-cased: mined, soft is not drawn: ")


def test_a_drawing_of_words_is_drawn_again_for_pdf():
    with chart_style():
        figure = figure_of(DRAWING)
    axes = figure.axes[0]
    assert tuple(figure.get_size_inches() * 72) == (200, 100)
    texts = {text.get_text(): text for text in axes.texts if text.get_text()}
    assert list(texts) == ["word", "one", " two ", "three"]
    assert texts["word"].get_color() == "#0000ff"
    assert texts["word"].get_position()[0] < 100 < texts["word"].get_position()[0] + 40
    places = [texts[name].get_position()[0] for name in ("one", " two ", "three")]
    assert places == sorted(places)
    assert [text.get_position()[1] for text in texts.values()] == [20, 80, 80, 80]
    rectangle = axes.patches[0]
    assert isinstance(rectangle, Rectangle)
    assert rectangle.get_bbox().bounds == (1, 2, 30, 4)
    assert svg_pdf(DRAWING) == svg_pdf(DRAWING)
    with pytest.raises(ValueError, match="<circle> cannot be drawn"):
        svg_pdf('<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 9 9"><circle/></svg>')


def test_the_page_is_whole_and_takes_further_sections(tmp_path):
    from askwell.report.page import Paragraph, Section, render_page

    store = new_store(tmp_path / "runs <kept>")
    keep_arrows(store)
    runs = kept_runs(store)
    study = study_of(runs, drawn=0)
    page = report_page(store, runs, study, further=[Section("Can I believe this?", (Paragraph("Yes."),))])
    assert page.sections[-1].heading == "Can I believe this?"
    assert [section.heading for section in page.sections[:-1]] == [
        *(table.title for table in study.tables), *(figure.title for figure in study.figures),
    ]  # fmt: skip
    html = render_page(page)
    assert "runs &lt;kept&gt;" in html
    assert not re.search(r'(?:src|href)="(?!#)', html)
    assert "<strong>" not in html.split("init → soft → deep")[0]
    written = write_report(study, page, tmp_path / "out", ["csv"])
    names = [path.relative_to(tmp_path / "out").as_posix() for path in written]
    assert names[0] == "tables/main-set.csv"
    assert not any(name.startswith("report.") for name in names)
    assert {"figures/scores-set.svg", "figures/scores-set.pdf"} <= set(names)
    assert all(path.is_file() for path in written)


def test_a_new_report_leaves_nothing_of_the_old_one_and_all_that_is_not_ours(tmp_path):
    store = new_store(tmp_path / "runs")
    keep_arrows(store)
    runs = kept_runs(store)
    study, out = study_of(runs, drawn=0), tmp_path / "out"
    page = report_page(store, runs, study)
    first = write_report(study, page, out)
    (out / "figures/mine.svg").write_text("<svg/>")
    second = write_report(replace(study, sets=()), page, out, ["markdown"])
    assert [path.name for path in second] == ["report.md"]
    assert {path for path in first if path.exists()} == {out / "report.md"}
    assert (out / "figures/mine.svg").exists()
