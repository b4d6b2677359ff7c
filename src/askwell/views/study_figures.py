"""The figures of a report: learning curves, scores with intervals, and tuned mixtures in words."""

from collections.abc import Sequence
from itertools import zip_longest

import numpy as np

from askwell.errors import AskwellError
from askwell.evaluation.metrics import units_of
from askwell.evaluation.significance import wilson_interval
from askwell.runs.run_group import KeptRun, RunGroup
from askwell.views.charts import Curve, IntervalRow, intervals_chart, panels_chart
from askwell.views.document import Drawing, headed
from askwell.views.drawing import Chart
from askwell.views.findings import MOST_FREQUENT, LMFindings
from askwell.views.study_cells import ARROWS, DEEP, INIT, SOFT, VECTORS, WEIGHTS, in_words
from askwell.views.study_rows import TEXTS, Line, caption_of, file_stem
from askwell.views.words import nearest_words
from askwell.views.words_figure import words_chart

_KINDS = (SOFT, DEEP, WEIGHTS, VECTORS)
_P1 = f"P@1 {units_of(['P@1'])}"
_PART = "tuned in part"
"""The mark of whatever is neither untuned nor tuned as a whole."""
_HEAVIEST = 6
"""How many prompts of a mixture are drawn."""


def drawing_of(name: str, fact_set: str, caption: str, chart: Chart) -> Drawing:
    """Return the figure of that name for a set of facts."""
    return Drawing(file_stem(name, fact_set), chart, TEXTS[name]["title"], caption)


def curve_drawing(lines: Sequence[Line], fact_set: str) -> Drawing | None:
    """Return a panel for each LM and source; None if no run has a history."""
    panels = {}
    for line in lines:
        groups = {in_words(kind): line.groups[kind] for kind in _KINDS if kind in line.groups}
        curves = {kind: curve for kind, group in groups.items() if (curve := mean_curve(group))}
        if curves:
            panels[f"{line.lm} · {line.label}"] = curves
    if not panels:
        return None
    chart = panels_chart(panels, measure=f"dev {_P1}", trained="(fact, prompt) pairs trained on")
    return drawing_of("curves", fact_set, TEXTS["curves"]["what"], chart)


def mean_curve(group: RunGroup) -> Curve:
    """Return the mean of the runs' dev P@1 wherever any of them was scored, interpolated linearly for the others."""
    parts = (part for run in group.runs for part in run.parts)
    curves = [curve for part in parts if (curve := part.record.learning_curve)]
    if not curves:
        return []
    places = sorted({pairs for curve in curves for pairs, _ in curve})
    heights = [np.interp(places, *np.transpose(curve)) for curve in curves]
    return [*zip(places, np.mean(heights, axis=0).tolist(), strict=True)]


def score_drawing(lines: Sequence[Line], fact_set: str, findings: Sequence[LMFindings] = ()) -> Drawing:
    """Return a row for each LM and source, with its untuned and tuned scores in it; below those of an LM, what needs
    no LM, where the findings on it have that."""
    controls = {found.lm: found.control for found in findings}
    rows: list[IntervalRow] = []
    for number, (line, begins) in enumerate(headed(lines, lambda line: line.lm)):
        marks = {in_words(kind): interval(group) for kind in ARROWS if (group := line.group(kind)) is not None}
        rows.append(IntervalRow(line.label, marks, begins))
        rows += [
            IntervalRow(f"{line.label}, {in_words(kind, group)}", {_PART: interval(group)})
            for kind, group in line.groups.items()
            if kind not in ARROWS
        ]
        is_last = all(other.lm != line.lm for other in lines[number + 1 :])
        if is_last and (control := controls.get(line.lm)) is not None:
            rows.append(IntervalRow(MOST_FREQUENT, {"": _with_wilson(*control)}, aside=True))
    kinds = [kind for kind in (*map(in_words, ARROWS), _PART) if any(kind in row.marks for row in rows)]
    groups = [group for line in lines for kind in {INIT, *line.groups} if (group := line.group(kind)) is not None]
    caption = caption_of("scores", groups, spread=False)
    return drawing_of("scores", fact_set, caption, intervals_chart(rows, kinds, measure=_P1))


def interval(group: RunGroup) -> tuple[float, float, float]:
    """Return the micro P@1 of a group, and the ends of its Wilson interval as of one draw of its facts.

    The score is a mean over seeds, so the number of right answers is rounded to a whole one for the interval.
    """
    return _with_wilson(group.score("P@1").mean, group.facts)


def _with_wilson(score: float, fact_count: int) -> tuple[float, float, float]:
    low, high = wilson_interval(round(score / 100 * fact_count), fact_count)
    return score, 100 * low, 100 * high


def chosen_runs(lines: Sequence[Line], count: int) -> list[KeptRun]:
    """Return the runs to draw: plain soft mixtures with the most prompts, of the first seed, taking LMs in turn."""
    by_lm: dict[str, dict[str, KeptRun]] = {}
    for line in lines:
        runs = line.groups[SOFT].runs if SOFT in line.groups and not line.extras else ()
        for run in (run.parts[0] for run in runs):
            relations = by_lm.setdefault(line.lm, {})
            best = relations.setdefault(run.spec.relation, run)
            relations[run.spec.relation] = min(best, run, key=_preference)
    columns = ([runs[name] for name in sorted(runs)] for runs in by_lm.values())
    in_turn = [run for row in zip_longest(*columns) for run in row if run is not None]
    return sorted(in_turn[:count], key=lambda run: (run.spec.lm, run.spec.relation))


def _preference(run: KeptRun) -> tuple[int, int, str]:
    return -len(run.record.prompts), run.spec.seed, run.spec.prompts


def prompt_drawings(runs: Sequence[KeptRun]) -> tuple[list[Drawing], list[str]]:
    """Return the drawings, and why some could not be made, since nearest words need the LM itself."""
    if not runs:
        return [], []
    from askwell.lms.frozen import FrozenLM
    from askwell.mixture.mixture import Mixture

    drawings: list[Drawing] = []
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
        caption = f"{title}, seed {spec.seed}; {shown}. P@1 on test: {run.score('P@1'):.1f} % of {run.facts} facts."
        name = file_stem("prompts", spec.lm, spec.relation, spec.prompts, spec.setting)
        drawings.append(Drawing(name, words_chart(words[:_HEAVIEST], title), title, caption))
    return drawings, problems
