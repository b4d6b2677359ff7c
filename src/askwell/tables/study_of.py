"""All tables and figures that can be made of some runs."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from askwell.store import Store
from askwell.tables.ablation import ablated, ablation_table
from askwell.tables.baselines_table import baselines, baselines_table
from askwell.tables.belief import Belief, beliefs_of
from askwell.tables.belief_section import belief_figures, belief_study_table
from askwell.tables.curve_figure import curve_figure
from askwell.tables.dependence import dependence_table, dependent
from askwell.tables.differences import differences
from askwell.tables.effective import effective_table, with_several_prompts
from askwell.tables.fact_sets import is_distinct_y
from askwell.tables.figure import StudyFigure
from askwell.tables.kept import KeptRun
from askwell.tables.lines import Line, lines_of
from askwell.tables.other_table import other_table, unusual
from askwell.tables.paper import Paper
from askwell.tables.parts_table import parts_study_table
from askwell.tables.prompt_figures import chosen_runs, prompt_figures
from askwell.tables.score_figure import score_figure
from askwell.tables.scores_table import arrows_table, main_table, no_paper, with_arrows
from askwell.tables.study import StudyTable


@dataclass(frozen=True)
class FactSetStudy:
    """The tables and figures of one set of facts, in the order in which they are read."""

    fact_set: str
    tables: tuple[StudyTable, ...]
    figures: tuple[StudyFigure, ...]
    beside_the_paper: tuple[str, ...]
    """Where ours differ from the paper's by definition; empty if the paper has no figure beside ours."""
    beliefs: tuple[Belief, ...] = ()
    """How far the score of every tuned cell can be believed."""
    believe: tuple[StudyTable, ...] = ()
    """The table of these, and their scores in parts."""
    believe_figures: tuple[StudyFigure, ...] = ()


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
        return [table for part in self.sets for table in (*part.tables, *part.believe)]

    @property
    def figures(self) -> list[StudyFigure]:
        """All figures."""
        of_sets = (figure for part in self.sets for figure in (*part.figures, *part.believe_figures))
        return [*of_sets, *self.prompts]

    def as_json(self) -> dict[str, Any]:
        """All figures of all tables."""
        return {
            "tables": {table.name: table.as_json() for table in self.tables},
            "believe": [belief.as_json() for part in self.sets for belief in part.beliefs],
            "beside_the_paper": {part.fact_set: list(part.beside_the_paper) for part in self.sets},
            "problems": list(self.problems),
        }


def study_of(
    runs: Sequence[KeptRun], paper: Paper | None = None, *, drawn: int = 4, store: Store | None = None
) -> Study:
    """The tables and figures of runs; `drawn` is how many tuned mixtures are drawn, for which LMs are loaded.

    With the store that they are of, also how far their scores can be believed: controls are read from there.
    """
    lines = lines_of(runs)
    sets = list(dict.fromkeys(line.fact_set for line in lines))
    figures, problems = prompt_figures(chosen_runs(lines, drawn)) if drawn else ([], [])
    studies = [_of_set(fact_set, [line for line in lines if line.fact_set == fact_set], paper) for fact_set in sets]
    if store is not None:
        studies = [_believed(part, beliefs_of(store, [line for line in lines if line.fact_set == part.fact_set]))
                   for part in studies]  # fmt: skip
    return Study(tuple(studies), tuple(figures), tuple(problems))


def _believed(part: FactSetStudy, beliefs: Sequence[Belief]) -> FactSetStudy:
    if not beliefs:
        return part
    return replace(
        part,
        beliefs=tuple(beliefs),
        believe=(belief_study_table(beliefs, part.fact_set), parts_study_table(beliefs, part.fact_set)),
        believe_figures=tuple(belief_figures(beliefs, part.fact_set)),
    )


def _of_set(fact_set: str, lines: Sequence[Line], paper: Paper | None) -> FactSetStudy:
    distinct = is_distinct_y(fact_set)
    scores = no_paper if paper is None else paper.distinct_y if distinct else paper.score
    tables: list[StudyTable] = []
    figures: list[StudyFigure] = []
    if arrows := with_arrows(lines):
        tables.append(main_table(arrows, fact_set, "micro", scores, name="distinct_y" if distinct else "main"))
        tables.append(arrows_table(arrows, fact_set, scores))
        if any(len(group.relations) > 1 for line in arrows for group in line.groups.values()):
            tables.append(main_table(arrows, fact_set, "macro", name="distinct_y" if distinct else "main"))
        figures.append(score_figure(arrows, fact_set))
    if found := baselines(lines):
        tables.append(baselines_table(found, fact_set, scores))
    if found := ablated(lines):
        tables.append(ablation_table(found, fact_set, no_paper if paper is None else paper.ablation))
    if found := with_several_prompts(lines):
        tables.append(effective_table(found, fact_set, paper))
    if dependent(lines):
        tables.append(dependence_table(lines, fact_set))
    if found := unusual(lines):
        tables.append(other_table(found, fact_set))
    curves = curve_figure(lines, fact_set)
    figures += [curves] if curves is not None else []
    beside = any(record["paper"] is not None for table in tables for record in table.records)
    runs = [run for line in lines for group in line.groups.values() for run in group.runs]
    once = list({run.spec.id: run for run in runs}.values())
    return FactSetStudy(
        fact_set, tuple(tables), tuple(figures), differences(once, paper) if paper is not None and beside else ()
    )
