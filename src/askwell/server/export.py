"""A run as one self-contained HTML file, to send to a colleague or to keep."""

from collections.abc import Callable, Sequence
from pathlib import Path

from askwell.errors import AskwellError, BadOption
from askwell.evaluation.metrics import METRICS, units_of
from askwell.runs.folder import Run
from askwell.runs.query import select_runs
from askwell.runs.sources import saved_mixture
from askwell.server.run_pages import audit_lines
from askwell.version import VERSION
from askwell.views.charts import Panel, panels_chart, reliability_chart, risk_coverage_chart
from askwell.views.document import (
    Block,
    Cell,
    Column,
    ColumnGroup,
    Document,
    Drawing,
    Figure,
    Points,
    Row,
    Section,
    Table,
)
from askwell.views.study_cells import kept_runs
from askwell.views.study_rows import lines_of
from askwell.views.to_html import page_html
from askwell.views.trust_figures import trust_in
from askwell.views.trust_section import trust_sentences
from askwell.views.words import NOT_AN_EXPLANATION, PromptWords, look_at
from askwell.views.words_figure import words_chart

_ANSWERS = 12


def export_run(
    path: Path, where: str | None = None, lm: str | None = None, *, note: Callable[[str], None] = lambda _line: None
) -> str:
    """The page of the one run at a path; `lm` says where its LM is, if it is no longer where it was.

    If the LM cannot be loaded, the page has no drawing of the prompts, and `note` gets the reason.
    """
    runs = select_runs(path, where)
    if len(runs) > 1:
        raise BadOption(f"{path} has {len(runs)} runs: choose one with --where, or name its folder")
    prompts = None
    if runs[0].mixture is not None:
        try:
            prompts = look_at(saved_mixture(str(runs[0].mixture), lm, revision=None, device=None, dtype="auto"))
        except AskwellError as problem:
            note(f"the prompts are not drawn: {problem}")
    return exported(runs[0].folder.resolve().name, runs[0], prompts)


def exported(name: str, run: Run, prompts: Sequence[PromptWords] | None) -> str:
    """The page of a run; `prompts` are its soft prompts in words, if they are to be shown."""
    record, spec = run.record, run.record.spec
    about = {
        "Relation": spec.relation,
        "LM": spec.asked_lm,
        "Prompts": f"{len(record.prompts)} ({spec.prompts})",
        "Setting": spec.setting,
        "Seed": str(spec.seed),
        "Answers": record.test.vocabulary,
    }
    sections = [Section("Scores", (_scores(run),)), *_trust(run), *_learning(run), *_prompts(prompts, name)]
    sections.append(Section("Some answers", (_answers(run),)))
    page = Document(
        title=f"{spec.relation} on {spec.asked_lm}",
        lead=_lead(run),
        about=tuple(about.items()),
        sections=tuple(sections),
        foot=f"Run {record.id}, written by askwell {record.environment.askwell}; this page by askwell {VERSION}.",
    )
    return page_html(page)


def _lead(run: Run) -> str:
    score, before = run.score("P@1"), run.record.untuned
    told = f"{score:.1f} % of {run.record.test.facts} test facts are answered correctly"
    if before is not None and (untuned := before.score("P@1")) is not None:
        told += f"; with the same prompts before tuning, {untuned:.1f} %"
    return f"{told}."


def _scores(run: Run) -> Table:
    before = run.record.untuned
    rows = [("tuned" if run.record.spec.training else "untuned", [run.score(name) for name in METRICS])]
    if before is not None:
        rows.insert(0, ("before tuning", [before.score(name) for name in METRICS]))
    for name, control in run.record.controls.items():
        if control.test is not None:
            rows.append((name, [control.test.get(metric) for metric in METRICS]))
    return Table(
        caption=f"Means over test facts (micro; {units_of(list(METRICS))}). Controls need no knowledge, so their "
        "scores are no sign of it.",
        corner="",
        groups=(ColumnGroup("", tuple(Column(name) for name in METRICS)),),
        rows=tuple(
            Row(label, tuple(Cell(metric.text(score)) for metric, score in zip(METRICS.values(), scores, strict=True)))
            for label, scores in rows
        ),
    )


def _trust(run: Run) -> list[Section]:
    found = trust_in(lines_of(kept_runs([run])), {})
    audit = [] if run.record.audit is None else audit_lines(run.record.audit)
    blocks: list[Block] = []
    if found:
        cell = found[0]
        blocks.append(Points(tuple(trust_sentences(cell))))
        drawings = (
            Drawing("reliability", reliability_chart(cell.calibration.bins, ece=cell.calibration.ece)),
            Drawing("coverage", risk_coverage_chart({"by probability": cell.risk_coverage}, chosen=0.1)),
        )
        caption = "Left: how often answers are right, by their probability. Right: how many are wrong if only the most "
        blocks.append(Figure(drawings, f"{caption}confident ones are given."))
    if audit:
        blocks.append(Points(tuple(audit), heading="The facts"))
    return [Section("Can I believe this?", tuple(blocks))] if blocks else []


def _learning(run: Run) -> list[Section]:
    points = [
        (float(line.pairs), score)
        for line in run.record.history
        if line.pairs is not None and (score := line.dev["P@1"]) is not None
    ]
    if len(points) < 2:
        return []
    chart = panels_chart([Panel("dev", {"P@1": points})], ["P@1"], measure="P@1, %", trained="pairs trained on")
    caption = "Right answers to dev facts in % during tuning; the best state was kept."
    return [Section("Learning", (Figure((Drawing("learning", chart),), caption),))]


def _prompts(prompts: Sequence[PromptWords] | None, name: str) -> list[Section]:
    if not prompts:
        return []
    figure = Figure((Drawing("words", words_chart(prompts, name, heading=False)),), NOT_AN_EXPLANATION, wide=True)
    return [Section("The prompts, by weight", (figure,))]


def _answers(run: Run) -> Table:
    rows = []
    for outcome in run.test[:: max(1, len(run.test) // _ANSWERS)][:_ANSWERS]:
        best = outcome.answers[0] if outcome.answers else "–"
        probability = f"{100 * outcome.probabilities[0]:.1f} %" if outcome.probabilities else ""
        mark = "right" if best in outcome.golds else "wrong"
        rows.append(Row(outcome.x, (Cell(best, mark=mark, note=probability), Cell(", ".join(outcome.golds)))))
    columns = (Column("best answer", number=False), Column("right", number=False))
    return Table("Test facts, evenly spread over the list.", "x", (ColumnGroup("", columns),), tuple(rows))
