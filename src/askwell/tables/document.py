"""The report as one page, and as one text."""

from collections.abc import Sequence

from askwell.report.page import Drawing, FigureBlock, Page, Points, Section
from askwell.store import Store
from askwell.tables.belief_section import belief_blocks, sentences_of
from askwell.tables.figure import StudyFigure
from askwell.tables.kept import KeptRun
from askwell.tables.latex import PREAMBLE, escaped, latex_table
from askwell.tables.markdown import escaped as markdown_escaped
from askwell.tables.markdown import markdown_table
from askwell.tables.study_of import FactSetStudy, Study
from askwell.version import VERSION

_PROMPTS = "What the soft prompts look like"


def report_page(store: Store, runs: Sequence[KeptRun], study: Study, *, further: Sequence[Section] = ()) -> Page:
    """The page of a study; `further` sections stand behind its own."""
    sections = [section for part in study.sets for section in _sections(part)]
    if study.prompts:
        blocks = tuple(_figure(figure) for figure in study.prompts)
        sections.append(Section(_PROMPTS, blocks))
    if study.problems:
        sections.append(Section("What is not here", (Points(study.problems),)))
    return Page(
        title="What was asked, and what was answered",
        lead=(
            "Tables and figures of the runs of a store. A figure that is missing was not run; runs that differ in more "
            "than relation and seed never share a cell."
        ),
        about=(
            ("Store", store.folder.resolve().name),
            ("Runs", str(len(runs))),
            ("LMs", ", ".join(sorted({run.spec.lm for run in runs}))),
            ("Facts", ", ".join(part.fact_set for part in study.sets)),
            ("Seeds", ", ".join(map(str, sorted({run.spec.seed for run in runs})))),
        ),
        sections=(*sections, *further),
        foot=f"Made by askwell {VERSION} with: askwell report {store.folder.resolve().name}",
    )


def report_markdown(study: Study) -> str:
    """The study as Markdown; drawings are those in the folder figures."""
    parts = ["# Report\n"]
    for part in study.sets:
        parts += [f"## {markdown_escaped(table.title)}\n\n{markdown_table(table.table)}" for table in part.tables]
        if part.beside_the_paper:
            told = "\n".join(f"- {markdown_escaped(sentence)}" for sentence in part.beside_the_paper)
            parts.append(f"## {markdown_escaped(_beside(part))}\n\n{told}\n")
        parts += [_markdown_figure(figure, "## ") for figure in part.figures]
        if part.believe:
            believe, *further = part.believe
            parts.append(f"## {markdown_escaped(believe.title)}\n\n{markdown_table(believe.table)}")
            for belief in part.beliefs:
                told = "\n".join(f"- {markdown_escaped(sentence)}" for sentence in sentences_of(belief))
                parts.append(f"### {markdown_escaped(belief.label)}\n\n{told}\n")
            parts += [f"### {markdown_escaped(table.title)}\n\n{markdown_table(table.table)}" for table in further]
            parts += [_markdown_figure(figure, "### ") for figure in part.believe_figures]
    if study.prompts:
        parts += [f"## {_PROMPTS}\n", *(_markdown_figure(figure, "### ") for figure in study.prompts)]
    parts += [markdown_escaped(problem) + "\n" for problem in study.problems]
    return "\n".join(parts)


def report_latex(study: Study) -> str:
    """All tables of the study as a fragment of LaTeX."""
    parts = [PREAMBLE]
    for part in study.sets:
        tables = [*part.tables, *part.believe]
        parts += [f"% {table.name}\n{latex_table(table.table, table.name)}" for table in tables]
        parts += [f"\\par\\noindent {escaped(sentence)}\n" for sentence in part.beside_the_paper]
    return "\n".join(parts)


def _sections(part: FactSetStudy) -> list[Section]:
    sections = [Section(table.title, (table.table,)) for table in part.tables]
    if part.beside_the_paper:
        sections.append(Section(_beside(part), (Points(part.beside_the_paper),)))
    sections += [Section(figure.title, (_figure(figure),)) for figure in part.figures]
    if part.believe:
        believe, *further = part.believe
        drawings = tuple(Drawing(figure.svg, figure.title, figure.caption) for figure in part.believe_figures)
        figures = FigureBlock(drawings, "Sureness and rightness.")
        sections.append(Section(believe.title, (believe.table, *belief_blocks(part.beliefs), figures)))
        sections += [Section(table.title, (table.table,)) for table in further]
    return sections


def _beside(part: FactSetStudy) -> str:
    return f"{part.fact_set}: where ours differ from the paper's by definition"


def _figure(figure: StudyFigure) -> FigureBlock:
    return FigureBlock((Drawing(figure.svg),), figure.caption, wide=True)


def _markdown_figure(figure: StudyFigure, mark: str) -> str:
    title = markdown_escaped(figure.title)
    return f"{mark}{title}\n\n![{title}](figures/{figure.name}.svg)\n\n{markdown_escaped(figure.caption)}\n"
