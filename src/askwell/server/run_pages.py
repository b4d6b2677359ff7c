"""The pages about runs: the list, one run, two compared; prompts in words; how far a score can be trusted."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, Response
from markupsafe import Markup

from askwell.data.split_audit import RelationAudit
from askwell.errors import AskwellError, UserMistake
from askwell.evaluation.comparison import Comparison, compare_outcomes
from askwell.evaluation.metrics import METRICS, units_of
from askwell.evaluation.significance import SIGNIFICANT, interval_text
from askwell.runs.folder import Run
from askwell.runs.query import query_runs
from askwell.server.api import answered, service_of
from askwell.server.ask_page import QueryName, choices, choose
from askwell.server.catalogue import Catalogue
from askwell.server.render import drawn, page
from askwell.views.charts import Gap, Panel, gaps_chart, panels_chart, reliability_chart, risk_coverage_chart
from askwell.views.drawing import Chart
from askwell.views.study_cells import kept_runs
from askwell.views.study_rows import lines_of
from askwell.views.trust_figures import CellTrust, control_runs, trust_in
from askwell.views.trust_section import trust_sentences
from askwell.views.words import PromptToken, PromptWords
from askwell.views.words_figure import probability_figure, words_chart

router = APIRouter(include_in_schema=False)
COLUMNS = ("relation", "lm", "prompts", "setting", "seed", "P@1", "MRR", "facts")
_CHANGED = 20
_CURVES = 6


@router.get("/runs", response_class=HTMLResponse)
def runs_page(request: Request, sort: QueryName = "", find: QueryName = "") -> HTMLResponse:
    """All runs, filtered and sorted, with gains and learning curves."""
    catalogue = service_of(request).catalogue
    named = catalogue.runs()
    names = {run.folder: name for name, run in named.items()}
    sort = sort if sort in COLUMNS else ""
    table = query_runs(list(named.values()), sort=sort or None)
    rows = [{"name": names[run.folder], **row} for run, row in zip(table.runs, table.as_json(), strict=True)]
    words = find.lower().split()
    shown = [row for row in rows if all(word in " ".join(map(str, row.values())).lower() for word in words)]
    kept = {row["name"]: named[row["name"]] for row in shown}
    part = "runs_table.html" if request.headers.get("hx-target") == "runs" else "runs.html"
    figures = {"gains": gains(kept), "curves": curves(kept)}
    filling: dict[str, Any] = {
        "rows": shown,
        "all": len(rows),
        "columns": COLUMNS,
        "problems": catalogue.problems,
        **figures,
    }
    return page(request, part, sort=sort, find=find, numbers=("seed", "P@1", "MRR", "facts"), **filling)


@dataclass(frozen=True)
class ShownFigure:
    """Drawings, and a sentence on what they mean."""

    panels: tuple[Markup, ...]
    sentence: str

    @property
    def svg(self) -> Markup:
        """The drawing, if there is only one."""
        (only,) = self.panels
        return only


def gains(runs: Mapping[str, Run]) -> ShownFigure | None:
    """P@1 before and after tuning, by relation and LM."""
    scored = [
        (f"{run.record.spec.relation} · {run.record.spec.lm}", run.record.untuned.score("P@1"), run.score("P@1"))
        for run in runs.values()
        if run.record.untuned is not None
    ]
    by_label: dict[str, list[tuple[float, float]]] = {}
    for label, before, after in scored:
        if before is not None and after is not None:
            by_label.setdefault(label, []).append((after, before))
    if not by_label:
        return None
    best = {label: max(pairs) for label, pairs in by_label.items()}
    gaps = [Gap(_shortened(label), after, before) for label, (after, before) in sorted(best.items())][:40]
    better = sum(after > before for after, before in best.values())
    mean = sum(after - before for after, before in best.values()) / len(best)
    sentence = (
        f"Full dots: right answers in % after tuning; hollow diamonds: with the same prompts before it. Tuning helps "
        f"in {better} of {len(best)} cases, by {signed(mean)} points on average (of several runs, the best is shown)."
    )
    return ShownFigure(
        (drawn(lambda: gaps_chart(gaps, first="tuned", second="hard prompts", measure="P@1 on test facts"), "gains"),),
        sentence,
    )


def signed(figure: float) -> str:
    """A difference with its sign."""
    return f"{figure:+.1f}".replace("-", "−")


def _shortened(label: str) -> str:
    relation, _, lm = label.rpartition(" · ")
    short = relation.removeprefix("testbed:")
    return f"{short[:16]} · {lm.removeprefix('testbed:')[:8]}"


def curves(runs: Mapping[str, Run]) -> ShownFigure | None:
    """Dev P@1 while tuning, of the first few runs."""
    panels = []
    for name, run in runs.items():
        line = [(line.pairs, line.dev["P@1"]) for line in run.record.history if line.pairs is not None]
        points = [(float(pairs), score) for pairs, score in line if score is not None]
        if len(points) > 1:
            panels.append(Panel(name if len(name) <= 30 else f"{name[:29]}…", {"dev P@1": points}))
    if not panels:
        return None
    few = panels[:_CURVES]
    more = f" The first {_CURVES} of {len(panels)} runs." if len(panels) > _CURVES else ""
    sentence = f"Right answers to dev facts in % during tuning: where a curve is flat, nothing more is learned.{more}"
    return ShownFigure(
        tuple(
            drawn(
                partial(panels_chart, [panel], ["dev P@1"], measure="dev P@1, %", trained="pairs trained on"),
                f"curve-{number}",
            )
            for number, panel in enumerate(few)
        ),
        sentence,
    )


@router.get("/runs/compare", response_class=HTMLResponse)
def compare_page(request: Request, a: QueryName = "", b: QueryName = "") -> HTMLResponse:
    """Two runs on the facts that both answered."""
    catalogue = service_of(request).catalogue
    if not a or not b or a == b:
        raise UserMistake("choose two different runs to compare, one as A and one as B")
    first, second = catalogue.run(a), catalogue.run(b)
    found = compare_outcomes(first.test, second.test)
    return page(
        request, "compare.html", a=a, b=b, runs=(first, second), found=found, sentences=compared(found),
        changed=found.changed[:_CHANGED],
    )  # fmt: skip


def compared(found: Comparison) -> list[str]:
    """What a comparison says, in plain sentences."""
    difference, unpaired = found.micro, found.only_a + found.only_b
    verdict = "which is unlikely to be chance" if difference.p < SIGNIFICANT else "which may be chance"
    p = f"{difference.p:.3f}" if difference.p >= 0.001 else "below 0.001"
    who = (
        "A is better" if difference.difference > 0 else "B is better" if difference.difference < 0 else "They are equal"
    )
    return [
        f"{who}: A answers {difference.a:.1f} % of {found.facts} facts correctly, B {difference.b:.1f} %.",
        f"The difference is {signed(difference.difference)} points ({100 * found.confidence:.0f} % interval "
        f"{interval_text(difference.low, difference.high, signed)}), {verdict} (permutation test p = {p}).",
        f"Only A is right about {_facts(found.wins)}, only B about {_facts(found.losses)}."
        + (f" {_facts(unpaired)} were asked of only one of them and do not count." if unpaired else ""),
    ]


def _facts(count: int) -> str:
    return "1 fact" if count == 1 else f"{count or 'no'} facts"


@router.get("/runs/{name}", response_class=HTMLResponse)
def run_page(request: Request, name: str) -> HTMLResponse:
    """One run."""
    run = service_of(request).catalogue.run(name)
    return page(
        request, "run.html", name=name, run=run, record=run.record, curve=curves({name: run}), metrics=METRICS,
        units=units_of(list(METRICS)),
    )  # fmt: skip


@router.get("/runs/{name}/export")
async def export_run(request: Request, name: str) -> Response:
    """The run as one HTML file."""
    from askwell.server.export import exported

    service = service_of(request)
    run = service.catalogue.run(name)
    prompts = None
    if run.mixture is not None:
        prompts = await answered(request, service.words(service.catalogue.find(name)))
    content = exported(name, run, prompts)
    headers = {"content-disposition": 'attachment; filename="run.html"'}
    return Response(content, media_type="text/html; charset=utf-8", headers=headers)


# ── prompts ───────────────────────────────────────────────────────────────────────────────────────────────────────


@router.get("/prompts", response_class=HTMLResponse)
async def prompts_page(request: Request, about: QueryName = "") -> HTMLResponse:
    """The paper's figure, live."""
    service = service_of(request)
    known = choices(service.catalogue)
    if not known:
        return page(request, "empty.html", titles=[])
    choice = choose(service.catalogue, about)
    entry = choice.entry
    words = await answered(request, service.words(entry))
    title = f"{entry.label} on {entry.lm}"
    figure = drawn(lambda: with_nearest(words_chart(words, title, heading=False), words), "words")
    run = entry.run
    projection = None if run is None or run.record.trust is None else run.record.trust.projection
    filling: dict[str, Any] = {
        "choice": choice,
        "titles": list(known),
        "prompts": words,
        "figure": figure,
        "projection": projection,
    }
    return page(request, "prompts.html", **filling)


def with_nearest(chart: Chart, prompts: Sequence[PromptWords]) -> Chart:
    """The chart of soft prompts with more in its tooltips: the next nearest words, and Δ by layer."""
    tokens = [(prompt, item) for prompt in prompts for item in prompt.items if isinstance(item, PromptToken)]
    hints = {}
    for (name, hint), (prompt, token) in zip(chart.hints.items(), tokens, strict=True):
        nearest = ", ".join(f"{word.shown} {probability_figure(word.p)}" for word in token.next_nearest)
        deep = "; ".join(
            f"mean |Δ| {' '.join(f'{norm:.2g}' for norm in norms)}" for norms in prompt.deep_norms.values()
        )
        hints[name] = "; ".join(part for part in (hint, f"next nearest: {nearest}" if nearest else "", deep) if part)
    return replace(chart, hints=hints)


# ── trust ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class TrustShown:
    """How far a run's score can be trusted: sentences, and figures with theirs."""

    sentences: list[str]
    figures: list[ShownFigure]
    controls: list[tuple[str, str, float | None]]
    """Name, what it is, and its P@1 on test."""
    audit: list[str]


@router.get("/trust", response_class=HTMLResponse)
def trust_page(request: Request, run: QueryName = "") -> HTMLResponse:
    """What the report says about trust, for one run."""
    catalogue = service_of(request).catalogue
    named = {name: one for name, one in catalogue.runs().items() if one.record.spec.control is None}
    if not named:
        return page(request, "empty.html", titles=[])
    name = run or next((name for name, one in named.items() if one.mixture is not None), next(iter(named)))
    chosen = catalogue.run(name)
    return page(
        request, "trust.html", names=list(named), name=name, record=chosen.record, shown=trust_of_run(catalogue, chosen)
    )


def trust_of_run(catalogue: Catalogue | None, run: Run) -> TrustShown:
    """Sentences and figures of a run, compared with control runs of the same folder."""
    others = [] if catalogue is None else list(catalogue.runs().values())
    try:
        cells = trust_in(lines_of(kept_runs([run])), control_runs(others))
    except AskwellError:
        cells = []
    record = run.record
    controls = [
        (name, one.description, None if one.test is None else one.test["P@1"]) for name, one in record.controls.items()
    ]
    audit = [] if record.audit is None else audit_lines(record.audit)
    if not cells:
        return TrustShown(_untuned_sentences(run), [], controls, audit)
    cell = cells[0]
    return TrustShown(trust_sentences(cell), _trust_figures(cell), controls, audit)


def _untuned_sentences(run: Run) -> list[str]:
    score = run.score("P@1")
    shown = "" if score is None else f" {score:.1f} % of {run.record.test.facts} test facts are answered correctly."
    return [f"Nothing was tuned in this run, so nothing could be learned from train facts.{shown}"]


def _trust_figures(cell: CellTrust) -> list[ShownFigure]:
    gap = cell.calibration.confidence - cell.calibration.accuracy
    how = "about right" if abs(gap) < 0.05 else "too high" if gap > 0 else "too low"
    return [
        ShownFigure(
            (drawn(lambda: reliability_chart(cell.calibration.bins, ece=cell.calibration.ece), "reliability"),),
            f"Its probabilities are {how} on average. Where a bar ends below its dot, answers are right less often "
            "than their probabilities say.",
        ),
        ShownFigure(
            (drawn(lambda: risk_coverage_chart({"by probability": cell.risk_coverage}, chosen=0.1), "coverage"),),
            "How many answers are wrong if only the most confident are given. The dashed line is one in ten.",
        ),
    ]


def audit_lines(audit: RelationAudit) -> list[str]:
    """What is worth knowing about the splits, as sentences."""
    test = audit.facts["test"]
    told = [
        f"There are {audit.facts['train']} train, {audit.facts['dev']} dev and {test} test facts.",
        f"{audit.leaked_pairs} of the test facts are also in train."
        if audit.leaked_pairs
        else "No test fact is in train.",
        f"Always giving train's most common answer would be right for {audit.majority} of {test} test facts.",
    ]
    if audit.unseen_y:
        told.append(f"{_of_facts(audit.unseen_y, test).capitalize()}: the answer never occurs in train.")
    if audit.y_in_x:
        told.append(f"{_of_facts(audit.y_in_x, test).capitalize()}: the answer is part of x itself.")
    return told


def _of_facts(count: int, total: int) -> str:
    return "every test fact" if count == total else f"{count} of {total} test facts"
