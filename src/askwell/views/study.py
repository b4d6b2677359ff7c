"""A report: what was found in some runs, and all tables and figures that can be made from them, as one page, as one
text, and in a folder."""

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from askwell.files import write_all, write_whole
from askwell.runs.folder import Run
from askwell.runs.query import select_runs
from askwell.runs.run_group import ControlRuns, control_runs, kept_runs
from askwell.version import VERSION
from askwell.views.document import Block, Document, Drawing, Figure, Points, Section, Table, without_empty_columns
from askwell.views.findings import (
    LMFindings,
    finding_points,
    findings_of,
    relation_tables,
    some_answers,
    summary_table,
    told_drawings,
)
from askwell.views.study_figures import chosen_runs, curve_drawing, prompt_drawings, score_drawing
from askwell.views.study_rows import FIELDS, TEXTS, Line, StudyTable, lines_of, same_facts
from askwell.views.study_tables import differences, tables_of
from askwell.views.to_files import PREAMBLE, csv_table, latex_escaped, latex_table, markdown_sections
from askwell.views.to_html import page_html
from askwell.views.trust_figures import CellTrust, trust_in
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
    def found(self) -> list[Block]:
        """What was found: a sentence, a chart, further sentences and figures by relation."""
        headline, details = finding_points(self.findings)
        return [headline, *self._charts[:1], *details, *relation_tables(self.findings)]

    @property
    def _charts(self) -> list[Figure]:
        scores = [] if self.scores is None else [_figure(self.scores)]
        if not self.told:
            return scores
        drawings = tuple(replace(drawing, note="") for drawing in self.told)
        return [Figure(drawings, self.told[0].note), *scores]

    @property
    def sections(self) -> list[Section]:
        """What comes after what was found."""
        beside = Points(self.beside_the_paper, "What to bear in mind when comparing")
        sections = []
        for made in self.tables:
            above = self._charts[1:] if made.kind == "all_scores" else []
            below = [beside] if made.kind == "paper" else []
            sections.append(Section(made.title, (*above, made.table, *below)))
        sections += [] if self.curves is None else [Section(self.curves.heading, (_figure(self.curves),))]
        sections += some_answers(self.findings)
        if self.trust_tables:
            believe, *further = self.trust_tables
            explained = [Points(tuple(trust_sentences(cell)), cell.title) for cell in _explained(self.findings)]
            charts = [Figure(self.trust_charts, "")] if self.trust_charts else []
            sections.append(Section(believe.title, (believe.table, *explained, *charts)))
            sections += [Section(made.title, (made.table,)) for made in further]
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
        """Return what was found in each set, its scores, and the paper's where it has some, for a terminal."""
        sections = []
        for part in self.sets:
            in_short = relation_tables(part.findings, in_short=True)
            kinds = ("paper",) if in_short else ("all_scores", "paper")
            tables = (replace(made.table, title=made.title, caption="") for made in part.tables if made.kind in kinds)
            headline, details = finding_points(part.findings)
            blocks = (headline, *details, *in_short, *tables)
            heading = f"{part.fact_set}: {_FOUND.lower()}" if len(self.sets) > 1 else _FOUND
            sections.append(Section(heading, blocks))
        return Document("", sections=tuple(sections))

    @property
    def sections(self) -> list[Section]:
        """The sections of the page and of the text, in order: first what was found; of several sets a chapter each,
        below a table of them all."""
        several = len(self.sets) > 1
        by_set = {part.fact_set: part.findings for part in self.sets}
        sections = [Section("In short", (summary_table(by_set),))] if several else []
        for part in self.sets:
            of_set = (Section(_FOUND, tuple(part.found)), *part.sections)
            sections += [replace(one, within=part.fact_set) for one in of_set] if several else of_set
        if self.prompts:
            sections.append(
                Section(
                    "What the soft prompts look like", tuple(replace(_figure(one), wide=True) for one in self.prompts)
                )
            )
        if self.problems:
            sections.append(Section("What could not be drawn", (Points(self.problems),)))
        return list(_without_repetition(sections))


def _without_repetition(sections: Iterable[Section]) -> Iterator[Section]:
    """Yield the sections with no sentence of a caption said twice, and without empty columns."""
    said: set[str] = set()

    def once(block: Block) -> Block:
        if not isinstance(block, Table | Figure):
            return block
        sentences = [one for one in re.split(r"(?<=\.) (?=[A-Z0-9])", block.caption) if one not in said]
        said.update(sentences)
        shown = replace(block, caption=" ".join(sentences))
        return without_empty_columns(shown) if isinstance(shown, Table) else shown

    for section in sections:
        yield replace(section, blocks=tuple(map(once, section.blocks)))


_FOUND = "What was found"


def _figure(drawing: Drawing) -> Figure:
    """Return a drawing that stands under its own heading."""
    return Figure((replace(drawing, heading="", note=""),), drawing.note)


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
    compared = same_facts(lines)
    cells = trust_in(compared, controls)
    findings = findings_of(compared, cells)
    tables = tables_of(lines, findings, fact_set)
    beside: tuple[str, ...] = ()
    if any(table.kind == "paper" for table in tables):
        runs = {run.spec.id: run for line in lines for group in line.groups.values() for run in group.runs}
        beside = differences(list(runs.values()))
    return FactSetStudy(
        fact_set=fact_set,
        findings=tuple(findings),
        told=tuple(told_drawings(fact_set, findings)),
        tables=tuple(tables),
        scores=score_drawing(compared, fact_set, findings),
        curves=curve_drawing(lines, fact_set),
        beside_the_paper=beside,
        trust=tuple(cells),
        trust_tables=(trust_table(cells, fact_set), parts_table(cells, fact_set)) if cells else (),
        trust_charts=tuple(trust_figures(_explained(findings), fact_set)),
    )


def _explained(findings: Iterable[LMFindings]) -> list[CellTrust]:
    """Return the cells of the best prompts of each LM, which sentences and charts are about."""
    return [found.best.trust for found in findings if found.best.trust is not None]


def report_page(study: Study, name: str, made_with: str = "") -> Document:
    """Return the page of a study of the runs in a folder of that name, which a command made."""
    specs = [run.record.spec for run in study.runs if run.record.spec.control is None]
    return Document(
        title="What these runs found",
        about=(
            ("Folder", name),
            ("Runs", str(len(specs))),
            ("LMs", ", ".join(TEXTS["lms"].get(lm, lm) for lm in sorted({spec.lm for spec in specs}))),
            ("Facts", ", ".join(part.fact_set for part in study.sets)),
            ("Seeds", ", ".join(map(str, sorted({spec.seed for spec in specs})))),
        ),
        sections=tuple(study.sections),
        foot="A dash means that there was no run; runs that differ in more than relation and seed never share a cell. "
        f"Made by askwell {VERSION} with: {made_with or f'askwell report {name}'}",
    )


def report_markdown(study: Study) -> str:
    """Return the study as Markdown; it refers to the drawings in the folder figures."""
    return f"# Report\n\n{markdown_sections(study.sections)}"


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
