"""The figures of a report: learning curves, scores with intervals, and tuned mixtures in words."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest

import numpy as np
from scipy.stats import binomtest

from askwell.errors import AskwellError
from askwell.evaluation.metrics import units_of
from askwell.lms.frozen import FrozenLM
from askwell.mixture.mixture import Mixture
from askwell.views.charts import Interval, IntervalRow, Panel, intervals_chart, panels_chart
from askwell.views.document import headed
from askwell.views.drawing import Chart
from askwell.views.study_cells import ARROWS, DEEP, SOFT, VECTORS, WEIGHTS, KeptRun, RunGroup
from askwell.views.study_rows import TEXTS, Line, caption_of, file_stem, groups_of
from askwell.views.words import nearest_words
from askwell.views.words_figure import words_chart


@dataclass(frozen=True)
class StudyFigure:
    """A figure, its names in file names and in headings, and the sentences of its caption."""

    name: str
    title: str
    caption: tuple[str, ...]
    chart: Chart


def figure_of_set(name: str, fact_set: str, caption: tuple[str, ...], chart: Chart) -> StudyFigure:
    """The figure of that name for a set of facts."""
    return StudyFigure(file_stem(name, fact_set), f"{fact_set}: {TEXTS[name]['title']}", caption, chart)


_KINDS = (SOFT, DEEP, WEIGHTS, VECTORS)
MEASURE, TRAINED = f"dev P@1 {units_of(['P@1'])}", "(fact, prompt) pairs trained on"
Curve = list[tuple[float, float]]


def curve_figure(lines: Sequence[Line], fact_set: str) -> StudyFigure | None:
    """A panel for each LM and source; None if no run has a history."""
    panels = []
    for line in lines:
        curves = {kind: curve for kind in _KINDS if kind in line.groups and (curve := mean_curve(line.groups[kind]))}
        if curves:
            panels.append(Panel(f"{line.lm} · {line.label}", curves))
    if not panels:
        return None
    kinds = [kind for kind in _KINDS if any(kind in panel.lines for panel in panels)]
    chart = panels_chart(panels, kinds, measure=MEASURE, trained=TRAINED)
    return figure_of_set("curves", fact_set, (TEXTS["curves"]["what"],), chart)


def mean_curve(group: RunGroup) -> Curve:
    """The mean of the runs' dev P@1 wherever any of them was scored, interpolated linearly for the others."""
    curves = [curve for run in group.runs if (curve := run.record.learning_curve)]
    places = sorted({pairs for curve in curves for pairs, _ in curve})
    heights = [np.interp(places, [pairs for pairs, _ in curve], [score for _, score in curve]) for curve in curves]
    return [(float(x), float(y)) for x, y in zip(places, np.mean(heights, axis=0), strict=True)] if curves else []


def score_figure(lines: Sequence[Line], fact_set: str) -> StudyFigure:
    """A row for each LM and source, with init, soft and deep in it."""
    rows, kinds = [], [kind for kind in ARROWS if groups_of(lines, [kind])]
    for line, begins in headed(lines, lambda line: line.lm):
        marks = {kind: interval(group) for kind in ARROWS if (group := line.group(kind)) is not None}
        rows.append(IntervalRow(line.label, marks, begins))
    caption = caption_of("scores", groups_of(lines, ARROWS), spread=False)
    return figure_of_set("scores", fact_set, caption, intervals_chart(rows, kinds, measure=f"P@1 {units_of(['P@1'])}"))


def interval(group: RunGroup) -> Interval:
    """The micro P@1 of a group and its Wilson interval, as of one draw of its facts.

    The score is a mean over seeds, so the number of right answers is rounded to a whole one for the interval.
    """
    score = group.score("P@1").mean
    found = binomtest(round(score / 100 * group.facts), group.facts).proportion_ci(0.95, method="wilson")
    return Interval(score, 100 * float(found.low), 100 * float(found.high))


_HEAVIEST = 6
"""How many prompts of a mixture are drawn."""


def chosen_runs(lines: Sequence[Line], count: int) -> list[KeptRun]:
    """The runs to draw: plain soft mixtures with the most prompts, of the first seed, taking LMs in turn."""
    by_lm: dict[str, dict[str, KeptRun]] = {}
    for line in sorted(lines, key=lambda line: line.extras):
        for run in line.groups[SOFT].runs if SOFT in line.groups and not line.extras else ():
            relations = by_lm.setdefault(line.lm, {})
            best = relations.get(run.spec.relation)
            if best is None or _preferred(run) < _preferred(best):
                relations[run.spec.relation] = run
    columns = ([runs[name] for name in sorted(runs)] for runs in by_lm.values())
    in_turn = [run for row in zip_longest(*columns) for run in row if run is not None]
    return sorted(in_turn[:count], key=lambda run: (run.spec.lm, run.spec.relation))


def _preferred(run: KeptRun) -> tuple[int, int, str]:
    return -len(run.record.prompts), run.spec.seed, run.spec.prompts


def prompt_figures(runs: Sequence[KeptRun]) -> tuple[list[StudyFigure], list[str]]:
    """The drawings, and why some could not be made, since nearest words need the LM itself."""
    figures: list[StudyFigure] = []
    problems: list[str] = []
    loaded: dict[str, FrozenLM] = {}
    for run in runs:
        spec = run.spec
        title = f"{spec.relation} on {spec.lm}: {spec.prompts}, {spec.setting}"
        try:
            mixture = Mixture.from_pretrained(run.mixture or run.folder, loaded.get(spec.lm_sha256))
        except AskwellError as error:
            problems.append(f"{title} is not drawn: {error}")
            continue
        loaded = {spec.lm_sha256: mixture.lm}  # one at a time: two may not fit
        words = nearest_words(mixture)
        shown = f"the {_HEAVIEST} heaviest of {len(words)} prompts" if len(words) > _HEAVIEST else "all prompts"
        caption = (
            f"{title}, seed {spec.seed}; {shown}.",
            f"P@1 on test: {run.score('P@1'):.1f} % of {run.facts} facts.",
        )
        name = file_stem("prompts", spec.lm, spec.relation, spec.prompts, spec.setting)
        figures.append(StudyFigure(name, title, caption, words_chart(words[:_HEAVIEST], title)))
    return figures, problems
