"""A report: all tables and figures that can be made from some runs, as one page, as one text, and in a folder."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from askwell.files import write_all, write_whole
from askwell.runs.folder import Run
from askwell.runs.query import select_runs
from askwell.version import VERSION
from askwell.views.document import Document, Drawing, Figure, Points, Section
from askwell.views.label_tables import label_tables
from askwell.views.paper_figures import Paper, differences, is_distinct_y
from askwell.views.score_tables import ablation_table, arrows_table, baselines_table, main_table, no_paper, other_table
from askwell.views.study_cells import ARROWS, kept_runs
from askwell.views.study_figures import StudyFigure, chosen_runs, curve_figure, prompt_figures, score_figure
from askwell.views.study_rows import FIELDS, Line, StudyTable, groups_of, lines_of
from askwell.views.to_files import PREAMBLE, csv_table, latex_escaped, latex_table, markdown_section
from askwell.views.to_html import page_html
from askwell.views.trust_figures import CellTrust, ControlRuns, control_runs, trust_in
from askwell.views.trust_section import parts_table, sentences_of, trust_figures, trust_table
from askwell.views.weight_tables import dependence_table, effective_table


@dataclass(frozen=True)
class FactSetStudy:
    """The tables and figures of one set of facts, in the order in which they are read."""

    fact_set: str
    tables: tuple[StudyTable, ...]
    figures: tuple[StudyFigure, ...]
    beside_the_paper: tuple[str, ...]
    """How our figures are defined differently from the paper's; empty if none of the paper's is shown."""
    trust: tuple[CellTrust, ...]
    """How far the score of every tuned cell can be trusted."""
    trust_tables: tuple[StudyTable, ...]
    """The table of these, and their scores in parts."""
    trust_charts: tuple[StudyFigure, ...]


@dataclass(frozen=True)
class Study:
    """What a report shows."""

    sets: tuple[FactSetStudy, ...]
    prompts: tuple[StudyFigure, ...]
    """Tuned mixtures in words."""
    problems: tuple[str, ...]
    """What could not be drawn, and why."""

    @property
    def tables(self) -> list[StudyTable]:
        """All tables."""
        return [table for part in self.sets for table in (*part.tables, *part.trust_tables)]

    @property
    def figures(self) -> list[StudyFigure]:
        """All figures."""
        of_sets = (figure for part in self.sets for figure in (*part.figures, *part.trust_charts))
        return [*of_sets, *self.prompts]

    def as_json(self) -> dict[str, Any]:
        """All figures of all tables."""
        return {
            "tables": {table.name: table.as_json() for table in self.tables},
            "believe": [cell.as_json() for part in self.sets for cell in part.trust],
            "beside_the_paper": {part.fact_set: list(part.beside_the_paper) for part in self.sets},
            "problems": list(self.problems),
        }


def study_of(runs: Sequence[Run], paper: Paper | None = None, *, drawn: int = 4) -> Study:
    """The tables and figures of runs, and how far their scores can be trusted.

    `drawn` is how many tuned mixtures are drawn, for which LMs are loaded. Runs on LMs that know nothing are the
    controls of the others, and appear in no table themselves.
    """
    lines, controls = lines_of(kept_runs(runs)), control_runs(runs)
    figures, problems = prompt_figures(chosen_runs(lines, drawn)) if drawn else ([], [])
    by_set: dict[str, list[Line]] = {}
    for line in lines:
        by_set.setdefault(line.fact_set, []).append(line)
    studies = [_of_set(fact_set, of_set, paper, controls) for fact_set, of_set in by_set.items()]
    return Study(tuple(studies), tuple(figures), tuple(problems))


def _of_set(fact_set: str, lines: Sequence[Line], paper: Paper | None, controls: ControlRuns) -> FactSetStudy:
    scores = no_paper if paper is None else paper.distinct_y if is_distinct_y(fact_set) else paper.score
    arrows = [line for line in lines if groups_of([line], ARROWS)]
    several = any(len(group.relations) > 1 for line in arrows for group in line.groups.values())
    made = [
        main_table(arrows, fact_set, "micro", scores) if arrows else None,
        arrows_table(arrows, fact_set, scores) if arrows else None,
        main_table(arrows, fact_set, "macro") if several else None,
        baselines_table(lines, fact_set, scores),
        ablation_table(lines, fact_set, no_paper if paper is None else paper.ablation),
        effective_table(lines, fact_set, paper),
        dependence_table(lines, fact_set),
        other_table(lines, fact_set),
        *label_tables(lines, fact_set),
    ]
    tables = [table for table in made if table is not None]
    figures = [score_figure(arrows, fact_set) if arrows else None, curve_figure(lines, fact_set)]
    beside: tuple[str, ...] = ()
    if paper is not None and any(record["paper"] is not None for table in tables for record in table.records):
        runs = {run.spec.id: run for line in lines for group in line.groups.values() for run in group.runs}
        beside = differences(list(runs.values()), paper)
    cells = trust_in(lines, controls)
    return FactSetStudy(
        fact_set,
        tuple(tables),
        tuple(figure for figure in figures if figure is not None),
        beside,
        tuple(cells),
        (trust_table(cells, fact_set), parts_table(cells, fact_set)) if cells else (),
        tuple(trust_figures(cells, fact_set)) if cells else (),
    )


def report_page(name: str, runs: Sequence[Run], study: Study, *, further: Sequence[Section] = ()) -> Document:
    """The page of a study of the runs in a folder of that name; `further` sections come last."""
    specs = [run.record.spec for run in runs if run.record.spec.control is None]
    return Document(
        title="What was asked, and how it was answered",
        lead=(
            "Tables and figures made from a folder of runs. A dash means that there was no run; runs that differ in "
            "more than relation and seed never share a cell."
        ),
        about=(
            ("Folder", name),
            ("Runs", str(len(specs))),
            ("LMs", ", ".join(sorted({spec.lm for spec in specs}))),
            ("Facts", ", ".join(part.fact_set for part in study.sets)),
            ("Seeds", ", ".join(map(str, sorted({spec.seed for spec in specs})))),
        ),
        sections=(*sections_of(study), *further),
        foot=f"Made by askwell {VERSION} with: askwell report {name}",
    )


def report_markdown(study: Study) -> str:
    """The study as Markdown; it refers to the drawings in the folder figures."""
    return "\n".join(["# Report\n", *map(markdown_section, sections_of(study))])


def report_latex(study: Study) -> str:
    """All tables of the study as a fragment of LaTeX."""
    parts = [PREAMBLE]
    for part in study.sets:
        tables = [*part.tables, *part.trust_tables]
        parts += [f"% {table.name}\n{latex_table(table.table, table.name)}" for table in tables]
        parts += [f"\\par\\noindent {latex_escaped(sentence)}\n" for sentence in part.beside_the_paper]
    return "\n".join(parts)


def sections_of(study: Study) -> list[Section]:
    """The sections of the page and of the text, in order."""
    sections = [section for part in study.sets for section in _of_facts(part)]
    if study.prompts:
        sections.append(Section("What the soft prompts look like", tuple(map(_figure, study.prompts))))
    if study.problems:
        sections.append(Section("What could not be drawn", (Points(study.problems),)))
    return sections


def _of_facts(part: FactSetStudy) -> list[Section]:
    sections = [Section(table.title, (table.table,)) for table in part.tables]
    if part.beside_the_paper:
        heading = f"{part.fact_set}: what to bear in mind when comparing with the paper's figures"
        sections.append(Section(heading, (Points(part.beside_the_paper),)))
    sections += [Section(figure.title, (_figure(figure),)) for figure in part.figures]
    if part.trust_tables:
        believe, *further = part.trust_tables
        told = [Points(tuple(sentences_of(cell)), cell.label) for cell in part.trust]
        charts = [Drawing(figure.name, figure.chart, figure.title, figure.caption) for figure in part.trust_charts]
        figures = Figure(tuple(charts), "Confidence and correctness.")
        sections.append(Section(believe.title, (believe.table, *told, figures)))
        sections += [Section(table.title, (table.table,)) for table in further]
    return sections


def _figure(figure: StudyFigure) -> Figure:
    return Figure((Drawing(figure.name, figure.chart),), figure.caption, wide=True)


ReportFormat = Literal["markdown", "latex", "csv", "html"]
FORMATS: tuple[ReportFormat, ...] = ("markdown", "latex", "csv", "html")
_WRITTEN = ".written-by-askwell"
"""Lists the files of the report in the folder."""


def write_report(study: Study, page: Document, folder: Path, formats: Collection[ReportFormat] = FORMATS) -> list[Path]:
    """Writes the formats, and all figures as SVG and PDF; returns the paths of what was written."""
    contents: dict[str, str | bytes] = {}
    if "markdown" in formats:
        contents["report.md"] = report_markdown(study)
    if "latex" in formats:
        contents["report.tex"] = report_latex(study)
    if "html" in formats:
        contents["report.html"] = page_html(page)
    if "csv" in formats:
        contents |= {f"tables/{table.name}.csv": csv_table(FIELDS, table.records) for table in study.tables}
    for figure in study.figures:
        contents[f"figures/{figure.name}.svg"] = figure.chart.svg()
        contents[f"figures/{figure.name}.pdf"] = figure.chart.pdf()
    write_all({folder / name: content for name, content in contents.items()})
    _remove_old_files(folder, contents)
    write_whole(folder / _WRITTEN, "".join(f"{name}\n" for name in sorted(contents)))
    return [folder / name for name in contents]


@dataclass(frozen=True)
class Report:
    """A report that was written."""

    source: Path
    """Where its runs are."""
    runs: tuple[Run, ...]
    study: Study
    folder: Path
    files: tuple[Path, ...]

    def as_json(self) -> dict[str, Any]:
        """What was written, and all figures of all tables, as plain JSON."""
        files = [str(path) for path in self.files]
        return {"store": str(self.source), "runs": len(self.runs), "files": files, **self.study.as_json()}


def make_report(
    source: Path,
    folder: Path,
    *,
    where: str | None = None,
    formats: Collection[ReportFormat] = FORMATS,
    paper: Paper | None = None,
    drawn: int = 4,
) -> Report:
    """Writes the report on the runs at a path into a folder; see `study_of`."""
    runs = select_runs(source, where)
    study = study_of(runs, paper, drawn=drawn)
    written = write_report(study, report_page(source.resolve().name, runs, study), folder, formats)
    return Report(source, tuple(runs), study, folder, tuple(written))


def _remove_old_files(folder: Path, but: Collection[str]) -> None:
    """Removes files of an earlier report, and nothing else: an old table beside new ones would be misleading."""
    if (folder / _WRITTEN).is_file():
        for name in (folder / _WRITTEN).read_text(encoding="utf-8").splitlines():
            if name not in but and not Path(name).is_absolute() and ".." not in Path(name).parts:
                (folder / name).unlink(missing_ok=True)
