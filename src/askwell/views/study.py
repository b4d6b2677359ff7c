"""A report: what was found in some runs, and all tables and figures that can be made from them, as one page, as one
text, and in a folder."""

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from askwell.files import write_all, write_whole
from askwell.runs.folder import Run
from askwell.runs.query import select_runs
from askwell.version import VERSION
from askwell.views.document import Document, Drawing, Figure, Points, Section, Table, without_empty_columns
from askwell.views.findings import (
    LMFindings,
    finding_points,
    findings_of,
    relation_tables,
    some_answers,
    told_drawings,
)
from askwell.views.paper_figures import differences
from askwell.views.study_cells import kept_runs
from askwell.views.study_figures import chosen_runs, curve_drawing, prompt_drawings, score_drawing
from askwell.views.study_rows import FIELDS, Line, StudyTable, lines_of, same_facts
from askwell.views.study_tables import tables_of
from askwell.views.to_files import PREAMBLE, csv_table, latex_escaped, latex_table, markdown_section
from askwell.views.to_html import page_html
from askwell.views.trust_figures import CellTrust, ControlRuns, control_runs, trust_in
from askwell.views.trust_section import parts_table, trust_figures, trust_sentences, trust_table


@dataclass(frozen=True)
class FactSetStudy:
    """The tables and figures of one set of facts."""

    fact_set: str
    findings: tuple[LMFindings, ...]
    """What was found, for each LM."""
    told: tuple[Drawing, ...]
    """P@1 on told and on withheld facts, for each LM of which these are known."""
    tables: tuple[StudyTable, ...]
    scores: Drawing | None
    """P@1 of all prompts, untuned and tuned."""
    curves: Drawing | None
    beside_the_paper: tuple[str, ...]
    """How our figures are defined differently from the paper's; empty if none of the paper's is shown."""
    trust: tuple[CellTrust, ...]
    """How far the score of every tuned cell can be trusted."""
    trust_tables: tuple[StudyTable, ...]
    """The table of these, and their scores in parts."""
    trust_charts: tuple[Drawing, ...]

    @property
    def sections(self) -> list[Section]:
        """What comes after what was found."""
        # A sentence that several captions share is in the first of them.
        said = "" if self.scores is None else self.scores.note

        def shown(made: StudyTable) -> Table:
            nonlocal said
            caption = " ".join(sentence for sentence in made.caption if sentence not in said)
            said += caption
            return replace(without_empty_columns(made.table), caption=caption)

        sections = [Section(made.title, (shown(made),)) for made in self.tables]
        if self.beside_the_paper:
            heading = f"{self.fact_set}: what to bear in mind when comparing with the paper's figures"
            sections.append(Section(heading, (Points(self.beside_the_paper),)))
        sections += [] if self.curves is None else [Section(self.curves.heading, (_figure(self.curves),))]
        sections += some_answers(self.findings)
        if self.trust_tables:
            believe, *further = self.trust_tables
            best = {(of.lm, of.best_tuned.line.label, of.best_tuned.kind) for of in self.findings if of.best_tuned}
            shown_cells = [cell for cell in self.trust if (cell.line.lm, cell.line.label, cell.kind) in best]
            explained = [Points(tuple(trust_sentences(cell)), cell.label) for cell in shown_cells]
            sections.append(Section(believe.title, (shown(believe), *explained, Figure(self.trust_charts, ""))))
            sections += [Section(made.title, (shown(made),)) for made in further]
        return sections


@dataclass(frozen=True)
class Study:
    """What a report shows of some runs."""

    runs: tuple[Run, ...]
    sets: tuple[FactSetStudy, ...]
    prompts: tuple[Drawing, ...]
    """Tuned mixtures in words."""
    problems: tuple[str, ...]
    """What could not be drawn, and why."""

    @property
    def tables(self) -> list[StudyTable]:
        """All tables."""
        return [table for part in self.sets for table in (*part.tables, *part.trust_tables)]

    @property
    def drawings(self) -> list[Drawing]:
        """All figures."""
        scores = [part.scores for part in self.sets]
        others = (one for part in self.sets for one in (part.curves, *part.trust_charts, *part.told))
        return [drawing for drawing in (*scores, *others, *self.prompts) if drawing is not None]

    def as_json(self) -> dict[str, Any]:
        """Return all figures of all tables."""
        return {
            "tables": {table.name: table.as_json() for table in self.tables},
            "believe": [cell.as_json() for part in self.sets for cell in part.trust],
            "beside_the_paper": {part.fact_set: list(part.beside_the_paper) for part in self.sets},
            "problems": list(self.problems),
        }

    def found(self) -> Document:
        """Return what was found in each set and the scores of its prompts, for a terminal."""
        sections = []
        for part in self.sets:
            scores = [replace(made.table, title=made.title, caption="") for made in part.tables[:1]]
            blocks = (*finding_points(part.findings), *(relation_tables(part.findings) or scores))
            sections.append(Section(self._heading(part), blocks))
        return Document("", sections=tuple(sections))

    def _heading(self, part: FactSetStudy) -> str:
        return f"{part.fact_set}: what was found" if len(self.sets) > 1 else "What was found"

    @property
    def sections(self) -> list[Section]:
        """The sections of the page and of the text, in order: first what was found."""
        sections = []
        for part in self.sets:
            headlines, *details = finding_points(part.findings)
            charts = [] if part.scores is None else [_figure(part.scores)]
            if part.told:
                drawings = tuple(replace(drawing, note="") for drawing in part.told)
                charts.insert(0, Figure(drawings, part.told[0].note))
            blocks = (headlines, *charts[:1], *details, *relation_tables(part.findings), *charts[1:])
            sections.append(Section(self._heading(part), blocks))
        sections += [section for part in self.sets for section in part.sections]
        if self.prompts:
            sections.append(Section("What the soft prompts look like", tuple(map(_figure, self.prompts))))
        if self.problems:
            sections.append(Section("What could not be drawn", (Points(self.problems),)))
        return sections


_NARROW = 480


def _figure(drawing: Drawing) -> Figure:
    """Return a drawing that stands under its own heading; a small one is not blown up."""
    return Figure((replace(drawing, heading="", note=""),), drawing.note, wide=drawing.chart.size[0] > _NARROW)


def study_of(runs: Sequence[Run], *, drawn: int = 4) -> Study:
    """Return the tables and figures of runs, and how far their scores can be trusted.

    `drawn` is how many tuned mixtures are drawn, for which LMs are loaded. Runs on LMs that know nothing are the
    controls of the others, and appear in no table themselves.
    """
    lines, controls = lines_of(kept_runs(runs)), control_runs(runs)
    drawings, problems = prompt_drawings(chosen_runs(lines, drawn))
    by_set: dict[str, list[Line]] = defaultdict(list)
    for line in lines:
        by_set[line.fact_set].append(line)
    sets = tuple(_of_set(fact_set, of_set, controls) for fact_set, of_set in by_set.items())
    return Study(tuple(runs), sets, tuple(drawings), tuple(problems))


def _of_set(fact_set: str, lines: Sequence[Line], controls: ControlRuns) -> FactSetStudy:
    compared, cells = same_facts(lines), trust_in(lines, controls)
    findings = findings_of(compared, cells)
    tables = tables_of(lines, findings, fact_set)
    beside: tuple[str, ...] = ()
    if any(record["paper"] is not None for table in tables for record in table.records):
        runs = {run.spec.id: run for line in lines for group in line.groups.values() for run in group.runs}
        beside = differences(list(runs.values()))
    return FactSetStudy(
        fact_set=fact_set,
        findings=tuple(findings),
        told=tuple(told_drawings(fact_set, findings)),
        tables=tuple(tables),
        scores=score_drawing(compared, fact_set),
        curves=curve_drawing(lines, fact_set),
        beside_the_paper=beside,
        trust=tuple(cells),
        trust_tables=(trust_table(cells, fact_set), parts_table(cells, fact_set)) if cells else (),
        trust_charts=tuple(trust_figures(cells, fact_set)) if cells else (),
    )


def report_page(study: Study, name: str, made_with: str = "") -> Document:
    """Return the page of a study of the runs in a folder of that name, which a command made."""
    specs = [run.record.spec for run in study.runs if run.record.spec.control is None]
    return Document(
        title=f"What the runs of {name} found",
        about=(
            ("Folder", name),
            ("Runs", str(len(specs))),
            ("LMs", ", ".join(sorted({spec.lm for spec in specs}))),
            ("Facts", ", ".join(part.fact_set for part in study.sets)),
            ("Seeds", ", ".join(map(str, sorted({spec.seed for spec in specs})))),
        ),
        sections=tuple(study.sections),
        foot="A dash means that there was no run; runs that differ in more than relation and seed never share a cell. "
        f"Made by askwell {VERSION} with: {made_with or f'askwell report {name}'}",
    )


def report_markdown(study: Study) -> str:
    """Return the study as Markdown; it refers to the drawings in the folder figures."""
    return "\n".join(["# Report\n", *map(markdown_section, study.sections)])


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


ReportFormat = Literal["markdown", "latex", "csv", "html"]
FORMATS: tuple[ReportFormat, ...] = ("markdown", "latex", "csv", "html")
_WRITTEN = ".written-by-askwell"
"""Lists the files of the report in the folder."""


def make_report(
    source: Path,
    folder: Path,
    *,
    where: str | None = None,
    formats: Collection[ReportFormat] = FORMATS,
    drawn: int = 4,
) -> tuple[Study, list[Path]]:
    """Write the report on the runs at a path into a folder; return what it shows and its files. See `study_of`."""
    study = study_of(select_runs(source, where), drawn=drawn)
    return study, write_report(study, source.resolve().name, folder, formats)


def write_report(study: Study, name: str, folder: Path, formats: Collection[ReportFormat] = FORMATS) -> list[Path]:
    """Write the formats, and all figures as SVG and PDF; return the paths of what was written."""
    contents: dict[str, str | bytes] = {}
    if "markdown" in formats:
        contents["report.md"] = report_markdown(study)
    if "latex" in formats:
        contents["report.tex"] = report_latex(study)
    if "html" in formats:
        contents["report.html"] = page_html(report_page(study, name))
    if "csv" in formats:
        contents |= {f"tables/{table.name}.csv": csv_table(FIELDS, table.records) for table in study.tables}
    for drawing in study.drawings:
        contents[f"figures/{drawing.name}.svg"] = drawing.chart.svg()
        contents[f"figures/{drawing.name}.pdf"] = drawing.chart.pdf()
    write_all({folder / name: content for name, content in contents.items()})
    _remove_old_files(folder, contents)
    write_whole(folder / _WRITTEN, "".join(f"{name}\n" for name in sorted(contents)))
    return [folder / name for name in contents]


def _remove_old_files(folder: Path, but: Collection[str]) -> None:
    """Remove files of an earlier report, and nothing else: an old table beside new ones would be misleading."""
    if (folder / _WRITTEN).is_file():
        for name in (folder / _WRITTEN).read_text(encoding="utf-8").splitlines():
            if name not in but and not Path(name).is_absolute() and ".." not in Path(name).parts:
                (folder / name).unlink(missing_ok=True)
