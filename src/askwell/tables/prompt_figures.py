"""The soft-prompt figure: some tuned mixtures in words."""

from collections.abc import Sequence
from itertools import zip_longest

from askwell.errors import AskwellError
from askwell.lms import FrozenLM
from askwell.look import look_at, words_svg
from askwell.mixture.save import load_mixture
from askwell.store.folder import MIXTURE
from askwell.tables.figure import StudyFigure
from askwell.tables.kept import KeptRun
from askwell.tables.kinds import SOFT
from askwell.tables.lines import Line
from askwell.tables.study import file_name
from askwell.tables.svg_pdf import svg_pdf

_HEAVIEST = 6
"""How many prompts of a mixture are drawn."""


def chosen_runs(lines: Sequence[Line], count: int) -> list[KeptRun]:
    """The runs to draw: plain soft mixtures with most prompts, first seeds, the LMs in turn."""
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
    return -run.metrics["prompts"], run.spec.seed, run.spec.prompts


def prompt_figures(runs: Sequence[KeptRun]) -> tuple[list[StudyFigure], list[str]]:
    """The drawings, and why some could not be made: nearest words need the LM itself."""
    figures: list[StudyFigure] = []
    problems: list[str] = []
    loaded: dict[str, FrozenLM] = {}
    for run in runs:
        spec = run.spec
        title = f"{spec.relation} on {spec.lm}: {spec.prompts}, {spec.setting}"
        try:
            mixture = load_mixture(run.folder / MIXTURE, loaded.get(spec.lm_sha256))
        except AskwellError as error:
            problems.append(f"{title} is not drawn: {error}")
            continue
        loaded = {spec.lm_sha256: mixture.lm}  # one at a time: two may not fit
        words = look_at(mixture)
        svg = words_svg(words[:_HEAVIEST], title)
        shown = f"the {_HEAVIEST} heaviest of {len(words)} prompts" if len(words) > _HEAVIEST else "all prompts"
        caption = f"{title}, seed {spec.seed}; {shown}. P@1 on test: {run.score('P@1'):.1f} % of {run.facts} facts."
        name = file_name("prompts", spec.lm, spec.relation, spec.prompts, spec.setting)
        figures.append(StudyFigure(name, title, caption, svg, svg_pdf(svg)))
    return figures, problems
