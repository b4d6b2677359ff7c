"""A report: what was found in some runs, and all tables and figures that can be made from them, as one page, as one
text, and in a folder."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from askwell.files import write_all, write_whole
from askwell.runs.folder import Run
from askwell.runs.query import select_runs
from askwell.version import VERSION
from askwell.views.document import Document, Drawing, Figure, Points, Section, Table, without_empty_columns
from askwell.views.findings import LMFindings, findings_of
from askwell.views.findings_shown import TOLD_KEYS, found_blocks, some_answers, told_figures
from askwell.views.label_tables import label_tables
from askwell.views.paper_figures import differences
from askwell.views.score_tables import ablation_table, arrows_table, baselines_table, main_table, other_table
from askwell.views.study_cells import ARROWS, DEEP, SOFT, kept_runs
from askwell.views.study_figures import StudyFigure, chosen_runs, curve_figure, prompt_figures, score_figure
from askwell.views.study_rows import FIELDS, Line, StudyTable, lines_of, same_facts
from askwell.views.to_files import PREAMBLE, csv_table, latex_escaped, latex_table, markdown_section
from askwell.views.to_html import page_html
from askwell.views.trust_figures import CellTrust, ControlRuns, control_runs, trust_in
from askwell.views.trust_section import parts_table, trust_figures, trust_sentences, trust_table
from askwell.views.weight_tables import dependence_table, effective_table


@dataclass(frozen=True)
class FactSetStudy:
    """The tables and figures of one set of facts, in the order in which they are read."""

    fact_set: str
    findings: tuple[LMFindings, ...]
    """What was found, for each LM."""
    told: tuple[StudyFigure, ...]
    """P@1 on told and on withheld facts, for each LM of which these are known."""
    tables: tuple[StudyTable, ...]
    scores: StudyFigure | None
    """P@1 of all prompts, untuned and tuned."""
    figures: tuple[StudyFigure, ...]
    beside_the_paper: tuple[str, ...]
    """How our figures are defined differently from the paper's; empty if none of the paper's is shown."""
    trust: tuple[CellTrust, ...]
    """How far the score of every tuned cell can be trusted."""
    trust_tables: tuple[StudyTable, ...]
    """The table of these, and their scores in parts."""
    trust_charts: tuple[StudyFigure, ...]

    @property
    def filled_tables(self) -> list[StudyTable]:
        """The tables that the runs fill: gains from init to soft to deep are shown where there are all three."""
        kinds = {kind for found in self.findings for cell in found.cells for kind in cell.line.groups}
        unfilled = set() if kinds >= {*ARROWS} else {"full"}
        unfilled |= set() if kinds & {SOFT, DEEP} else {"main"}
        return [made for made in self.tables if made.kind not in unfilled]


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
        scores = [part.scores for part in self.sets if part.scores is not None]
        of_sets = (figure for part in self.sets for figure in (*part.figures, *part.trust_charts, *part.told))
        return [*scores, *of_sets, *self.prompts]

    def as_json(self) -> dict[str, Any]:
        """All figures of all tables."""
        return {
            "tables": {table.name: table.as_json() for table in self.tables},
            "believe": [cell.as_json() for part in self.sets for cell in part.trust],
            "beside_the_paper": {part.fact_set: list(part.beside_the_paper) for part in self.sets},
            "problems": list(self.problems),
        }


def study_of(runs: Sequence[Run], *, drawn: int = 4) -> Study:
    """Return the tables and figures of runs, and how far their scores can be trusted.

    `drawn` is how many tuned mixtures are drawn, for which LMs are loaded. Runs on LMs that know nothing are the
    controls of the others, and appear in no table themselves.
    """
    lines, controls = lines_of(kept_runs(runs)), control_runs(runs)
    figures, problems = prompt_figures(chosen_runs(lines, drawn)) if drawn else ([], [])
    by_set: dict[str, list[Line]] = {}
    for line in lines:
        by_set.setdefault(line.fact_set, []).append(line)
    studies = [_of_set(fact_set, of_set, controls) for fact_set, of_set in by_set.items()]
    return Study(tuple(studies), tuple(figures), tuple(problems))


def _of_set(fact_set: str, lines: Sequence[Line], controls: ControlRuns) -> FactSetStudy:
    arrows = same_facts(lines, ARROWS)
    several = any(len(group.relations) > 1 for line in arrows for group in line.groups.values())
    made = [
        main_table(arrows, fact_set, "micro") if arrows else None,
        arrows_table(arrows, fact_set) if arrows else None,
        main_table(arrows, fact_set, "macro") if several else None,
        baselines_table(lines, fact_set),
        ablation_table(lines, fact_set),
        effective_table(lines, fact_set),
        dependence_table(lines, fact_set),
        other_table(lines, fact_set),
        *label_tables(lines, fact_set),
    ]
    tables = [table for table in made if table is not None]
    curves = curve_figure(lines, fact_set)
    beside: tuple[str, ...] = ()
    if any(record["paper"] is not None for table in tables for record in table.records):
        runs = {run.spec.id: run for line in lines for group in line.groups.values() for run in group.runs}
        beside = differences(list(runs.values()))
    cells = trust_in(lines, controls)
    findings = findings_of(same_facts(lines), cells)
    return FactSetStudy(
        fact_set,
        tuple(findings),
        tuple(told_figures(fact_set, findings)),
        tuple(tables),
        score_figure(arrows, fact_set) if arrows else None,
        () if curves is None else (curves,),
        beside,
        tuple(cells),
        (trust_table(cells, fact_set), parts_table(cells, fact_set)) if cells else (),
        tuple(trust_figures(cells, fact_set)) if cells else (),
    )


def report_page(
    name: str,
    runs: Sequence[Run],
    study: Study,
    *,
    title: str = "",
    lead: str = "",
    made_with: str = "",
    further: Sequence[Section] = (),
) -> Document:
    """Return the page of a study of the runs in a folder of that name; `further` sections come last."""
    specs = [run.record.spec for run in runs if run.record.spec.control is None]
    return Document(
        title=title or f"What the runs of {name} found",
        lead=lead,
        about=(
            ("Folder", name),
            ("Runs", str(len(specs))),
            ("LMs", ", ".join(sorted({spec.lm for spec in specs}))),
            ("Facts", ", ".join(part.fact_set for part in study.sets)),
            ("Seeds", ", ".join(map(str, sorted({spec.seed for spec in specs})))),
        ),
        sections=(*sections_of(study), *further),
        foot="A dash means that there was no run; runs that differ in more than relation and seed never share a cell. "
        f"Made by askwell {VERSION} with: {made_with or f'askwell report {name}'}",
    )


def report_markdown(study: Study) -> str:
    """Return the study as Markdown; it refers to the drawings in the folder figures."""
    return "\n".join(["# Report\n", *map(markdown_section, sections_of(study))])


def report_latex(study: Study) -> str:
    """Return all tables of the study as a fragment of LaTeX."""
    parts = [PREAMBLE]
    for part in study.sets:
        parts += [
            f"% {made.name}\n{latex_table(without_empty_columns(made.table), made.name)}"
            for made in (*part.tables, *part.trust_tables)
        ]
        parts += [f"\\par\\noindent {latex_escaped(sentence)}\n" for sentence in part.beside_the_paper]
    return "\n".join(parts)


def sections_of(study: Study) -> list[Section]:
    """Return the sections of the page and of the text, in order: first what was found."""
    sections = [
        Section(
            f"{part.fact_set}: what was found" if len(study.sets) > 1 else "What was found",
            tuple(found_blocks(part.findings, _found_figures(part))),
        )
        for part in study.sets
    ]
    sections += [section for part in study.sets for section in _of_facts(part)]
    if study.prompts:
        sections.append(Section("What the soft prompts look like", tuple(map(_figure, study.prompts))))
    if study.problems:
        sections.append(Section("What could not be drawn", (Points(study.problems),)))
    return sections


def _found_figures(part: FactSetStudy) -> list[Figure]:
    told = tuple(Drawing(figure.name, figure.chart, figure.title) for figure in part.told)
    shown = [Figure(told, " ".join(part.told[0].caption), TOLD_KEYS)] if told else []
    return [*shown, *([] if part.scores is None else [_figure(part.scores)])]


def _of_facts(part: FactSetStudy) -> list[Section]:
    # A sentence that several captions share is in the first of them.
    said = set() if part.scores is None else {*part.scores.caption}

    def shown(made: StudyTable) -> Table:
        caption = " ".join(sentence for sentence in made.caption if sentence not in said)
        said.update(made.caption)
        return replace(without_empty_columns(made.table), caption=caption)

    sections = [Section(made.title, (shown(made),)) for made in part.filled_tables]
    if part.beside_the_paper:
        heading = f"{part.fact_set}: what to bear in mind when comparing with the paper's figures"
        sections.append(Section(heading, (Points(part.beside_the_paper),)))
    sections += [Section(figure.title, (_figure(figure),)) for figure in part.figures]
    sections += some_answers(part.findings)
    if part.trust_tables:
        believe, *further = part.trust_tables
        explained = [Points(tuple(trust_sentences(cell)), cell.label) for cell in part.trust]
        charts = [
            Drawing(figure.name, figure.chart, figure.title, " ".join(figure.caption)) for figure in part.trust_charts
        ]
        sections.append(Section(believe.title, (shown(believe), *explained, Figure(tuple(charts), ""))))
        sections += [Section(made.title, (shown(made),)) for made in further]
    return sections


_NARROW = 480


def _figure(figure: StudyFigure) -> Figure:
    is_wide = figure.chart.figure.bbox.width > _NARROW  # a small chart is not blown up
    return Figure((Drawing(figure.name, figure.chart),), " ".join(figure.caption), wide=is_wide)


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
    drawn: int = 4,
) -> Report:
    """Writes the report on the runs at a path into a folder; see `study_of`."""
    runs = select_runs(source, where)
    study = study_of(runs, drawn=drawn)
    written = write_report(study, report_page(source.resolve().name, runs, study), folder, formats)
    return Report(source, tuple(runs), study, folder, tuple(written))


def _remove_old_files(folder: Path, but: Collection[str]) -> None:
    """Removes files of an earlier report, and nothing else: an old table beside new ones would be misleading."""
    if (folder / _WRITTEN).is_file():
        for name in (folder / _WRITTEN).read_text(encoding="utf-8").splitlines():
            if name not in but and not Path(name).is_absolute() and ".." not in Path(name).parts:
                (folder / name).unlink(missing_ok=True)
