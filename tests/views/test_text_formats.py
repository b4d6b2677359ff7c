"""Markdown, LaTeX and CSV of the same table."""

import csv
import io
import re
import shutil
import subprocess

import pytest
from builders.stores import keep, keep_arrows, new_store

from askwell.views.document import MISSING, Cell, Column, ColumnGroup, Row, Table
from askwell.views.study import report_latex, report_markdown, study_of
from askwell.views.study_rows import FIELDS
from askwell.views.to_files import csv_table, label, latex_escaped, latex_table, markdown_escaped, markdown_table

TABLE = Table(
    "100 % of a_b & c; p < 0.02",
    "prompts",
    (ColumnGroup("init", (Column("P@1"), Column("MRR"))), ColumnGroup("", (Column("n"),))),
    (
        Row("a_b|c", (Cell("1.0"), Cell("→ 2.0 (+1.0)", strong=True), MISSING), begins="lm & co"),
        Row("the paper", (Cell("3.0 ± 0.1", note="1 of 2"), MISSING, Cell("4")), pale=True),
    ),
)


def test_a_table_in_markdown_has_escaped_names_bold_cells_and_its_caption():
    assert markdown_table(TABLE).splitlines() == [
        "| prompts | init: P@1 | init: MRR | n |",
        "| --- | ---: | ---: | ---: |",
        "| **lm & co** |  |  |  |",
        r"| a\_b\|c | 1.0 | **→ 2.0 (+1.0)** | – |",
        "| *the paper* | 3.0 ± 0.1 (1 of 2) | – | 4 |",
        "",
        r"100 % of a\_b & c; p \< 0.02",
    ]


def test_a_table_in_latex_has_column_groups_escaped_names_and_its_caption():
    assert latex_table(TABLE, "main_x").splitlines() == [
        r"\begin{table}[tp]",
        r"\centering\footnotesize\setlength{\tabcolsep}{4pt}",
        r"\begin{tabular}{l rr r}",
        r"\toprule",
        r" & \multicolumn{2}{c}{init} & \multicolumn{1}{c}{} \\",
        r"\cmidrule(lr){2-3}",
        r"prompts & P@1 & MRR & n \\",
        r"\midrule",
        r"\multicolumn{4}{l}{\emph{lm \& co}} \\",
        r"a\_b$|$c & 1.0 & \textbf{$\rightarrow$ 2.0 (+1.0)} & -- \\",
        r"\quad \emph{the paper} & 3.0 $\pm$ 0.1 {\scriptsize 1 of 2} & -- & 4 \\",
        r"\bottomrule",
        r"\end{tabular}",
        r"\caption{100 \% of a\_b \& c; p $<$ 0.02}",
        r"\label{tab:main-x}",
        r"\end{table}",
    ]


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("50 % & more", r"50 \% \& more"),
        ("trex_original #1 $", r"trex\_original \#1 \$"),
        ("2^H {x} ~ \\", r"2\textasciicircum{}H \{x\} \textasciitilde{} \textbackslash{}"),
        ("a → b ± c − d", r"a $\rightarrow$ b $\pm$ c $-$ d"),
    ],
)
def test_what_latex_acts_on_is_escaped(text, written):
    assert latex_escaped(text) == written


def test_a_label_holds_nothing_that_latex_acts_on():
    assert label("main-trex_original%é") == "main-trex-original--"


@pytest.fixture
def study(tmp_path):
    store = new_store(tmp_path)
    keep_arrows(store, prompts='100 %_&, "quoted"')
    keep(store, [1], lm="other_lm", prompts="single")
    return study_of(store.runs(), drawn=0)


def test_csv_reads_back_with_all_digits(study):
    table = study.tables[0]
    rows = list(csv.DictReader(io.StringIO(csv_table(FIELDS, table.records))))
    assert len(rows) == len(table.records) == 4 * 4
    for row, record in zip(rows, table.records, strict=True):
        assert row["prompts"] == record["prompts"]
        assert (float(row["value"]) if row["value"] else None) == record["value"]
    soft = next(row for row in rows if row["kind"] == "soft" and row["figure"] == "P@1" and "%" in row["prompts"])
    assert float(soft["value"]) == 100 * 3.5 / 6
    assert soft["test_facts"] == "6"
    lone = next(row for row in rows if row["prompts"] == "single")
    assert (lone["deviation"], lone["gain"], lone["test_facts"]) == ("", "", "1")


def test_the_latex_report_is_balanced_and_holds_every_table(study):
    text = report_latex(study)
    for name in ("table", "tabular"):
        assert text.count(rf"\begin{{{name}}}") == text.count(rf"\end{{{name}}}") == len(study.tables)
    bare = re.sub(r"\\.", "", text)
    assert bare.count("{") == bare.count("}")
    assert bare.count("$") % 2 == 0
    for line in text.splitlines():
        assert not re.search(r"(?<!\\)[#_^~]", line) or line.startswith("%") or r"\setlength" in line, line
    for block in text.split(r"\begin{tabular}")[1:]:
        columns = len(re.sub(r"[^lr]", "", re.findall(r"^\{([lr ]+)\}", block)[0]))
        body = block.split(r"\midrule")[1].split(r"\bottomrule")[0]
        for line in body.splitlines():
            if line.endswith(r"\\") and r"\multicolumn" not in line:
                assert len(re.findall(r"(?<!\\)&", line)) == columns - 1


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="pdflatex is not installed, so nothing can be typeset")
def test_the_latex_report_is_typeset_without_an_error(study, tmp_path):
    notes = Table("a", "b", (ColumnGroup("", (Column("one", "50 % of_these"), Column("two"))),), TABLE.rows[:0])
    body = report_latex(study) + latex_table(TABLE, "t") + latex_table(notes, "n")
    paper = rf"\documentclass{{article}}\usepackage{{booktabs}}\begin{{document}}{body}\end{{document}}"
    (tmp_path / "paper.tex").write_text(paper, encoding="utf-8")
    command = ["pdflatex", "-halt-on-error", "-interaction=nonstopmode", "paper.tex"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout[-2000:]
    assert "Missing character" not in done.stdout
    assert (tmp_path / "paper.pdf").stat().st_size > 10_000


def test_the_markdown_report_names_every_table_and_drawing(study):
    text = report_markdown(study)
    for made in study.tables:
        assert f"## {markdown_escaped(made.title)}\n" in text
    for figure in study.drawings:
        assert f"(figures/{figure.name}.svg)" in text
    assert r"100 %\_&" in text
