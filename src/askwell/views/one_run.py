"""One run as a document: what was found, its scores, how far they can be trusted, its prompts, facts and settings.

The page of a run and `askwell export` show it; the page Trust shows its middle part."""

import shlex
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from askwell.data.split_audit import SetAudit, audit_sentences
from askwell.errors import AskwellError, BadOption
from askwell.evaluation.knowledge import PRIOR_CORRECTED
from askwell.evaluation.metrics import METRICS, units_of
from askwell.runs.folder import Run
from askwell.runs.query import select_runs
from askwell.runs.record import RunRecord
from askwell.runs.run_group import control_runs, kept_runs
from askwell.specs.run_spec import TYPED
from askwell.version import VERSION
from askwell.views.charts import panels_chart
from askwell.views.document import (
    Block,
    Cell,
    Code,
    Document,
    Drawing,
    Figure,
    Paragraph,
    Points,
    Row,
    Section,
    table,
)
from askwell.views.printable import NONE, counted, date_text, duration_text, visible
from askwell.views.run_facts import facts_section
from askwell.views.scores import CONTROLS, candidate_blocks
from askwell.views.study_rows import lines_of, prompts_text
from askwell.views.to_html import page_html
from askwell.views.trust_figures import trust_in
from askwell.views.trust_section import specialty_blocks, trust_figures, trust_sentences
from askwell.views.words import PromptWords, nearest_words
from askwell.views.words_figure import prompt_table, words_figure

_FACTS_PUT_BACK = 8
"""How many dev facts are asked again with each vector put back to its start."""


def run_document(
    name: str, run: Run, others: Sequence[Run] = (), words: Sequence[PromptWords] = (), facts: str = ""
) -> Document:
    """Return everything there is to see of a run; `others` may hold its controls, `words` are its prompts in words, and
    `facts` is the address of a page of all its facts."""
    record, spec, made = run.record, run.record.spec, run.record.environment
    about = {
        "Run": name,
        **({"Made": date_text(made.began)} if made.began is not None else {}),
        **({"Took": duration_text(made.seconds)} if made.seconds is not None else {}),
        "Relation": spec.relation,
        "LM": spec.asked_lm,
        "Prompts": prompts_text(spec) if spec.prompts == TYPED else f"{len(record.prompts)} ({spec.prompts})",
        "Setting": spec.setting,
        "Seed": str(spec.seed),
        "Answers": record.test.vocabulary,
    }
    sections = (
        _scores(run),
        facts_section(run, facts),
        *_learning(record),
        *trust_sections(run, others),
        _prompts(record, name, words),
        Section("How it was made", tuple(_making(record))),
    )
    if run.remarks.note:
        sections = (
            Section("Note", tuple(Paragraph(line) for line in run.remarks.note.splitlines() if line)),
            *sections,
        )
    return Document(
        run.remarks.name or f"{spec.relation} on {spec.asked_lm}",
        lead=_found(run),
        about=tuple(about.items()),
        sections=sections,
        foot=f"Run {record.id}, made by askwell {record.environment.askwell}; shown by askwell {VERSION}.",
    )


def export_run(
    path: Path,
    where: str | None = None,
    lm: str | None = None,
    *,
    drawn: bool = True,
    note: Callable[[str], None] = lambda _line: None,
) -> str:
    """Return the one run at a path as a page that needs no other file; `lm` says where its LM is, if it has moved.

    The LM draws the prompts as words. If it cannot be loaded, they are not drawn, and `note` gets the reason.
    """
    runs = select_runs(path, where)
    if len(runs) > 1:
        raise BadOption(f"{path} has {len(runs)} runs: choose one with --where, or name its folder")
    words: list[PromptWords] = []
    if drawn and runs[0].mixture is not None:
        from askwell.runs.sources import dev_facts_of, saved_mixture  # here, since they import torch

        folder = str(runs[0].mixture)
        try:
            mixture = saved_mixture(folder, lm, revision=None, device=None, dtype="auto")
            words = nearest_words(mixture, facts=dev_facts_of(folder, _FACTS_PUT_BACK))
        except AskwellError as problem:
            note(f"the prompts are not drawn: {problem}")
    return page_html(run_document(runs[0].folder.resolve().name, runs[0], words=words))


def trust_document(run: Run, others: Sequence[Run] = ()) -> Document:
    """Return how far the score of a run can be trusted."""
    lead = (
        "A score is not knowledge. Tuned prompts also learn from their training pairs; this shows how far the score "
        "of a run can be trusted."
    )
    return Document(
        "Can I believe this?", lead, sections=(*trust_sections(run, others, "What its score means"), _scores(run))
    )


def _found(run: Run) -> str:
    record = run.record
    score, facts = run.score("P@1"), record.test.facts
    answered = f"{counted(facts, 'test fact')} {'is' if facts == 1 else 'are'} answered correctly"
    said = f"{METRICS['P@1'].text(score)} % of {answered}"
    untuned = None if record.untuned is None else record.untuned.score("P@1")
    if record.as_written:
        said += (
            f", by prompts that were kept {record.as_written}: no step of tuning their vectors was better on dev facts"
        )
    elif untuned is not None:
        said += f"; with the same prompts before tuning, {untuned:.1f} %"
    if (found := record.knowledge) is not None:
        sure = "more than" if found.is_there else "not clearly more than"
        said += f". That is {sure} answers reach that do not look at x ({found.control_score:.1f} %)"
    return " ".join(filter(None, (f"{said}.", record.test.doubt_text)))


def _scores(run: Run) -> Section:
    """Return the scores beside those before tuning and those of answers that need no knowledge, and of each label."""
    record = run.record
    untuned = [] if record.untuned is None else [("untuned", record.untuned.score)]
    few = record.test.labels is not None and len(record.test.labels.labels) <= 10  # all are among the first ten
    shown = [name for name in METRICS if not (few and name == "P@10")]
    rows = [_score_row(name, shown, score) for name, score in (*untuned, (record.state, run.score))]
    for name, control in record.controls.items():
        if control.test is not None:
            row = _score_row(CONTROLS.get(name, name), shown, control.test.get, control.description)
            rows.append(replace(row, pale=name != PRIOR_CORRECTED))
    left_out = f"; {record.test.left_out_count} more could not be asked" if record.test.left_out_count else ""
    caption = (
        f"Means over {counted(record.test.facts, 'test fact')} ({units_of(shown)}), ranked among "
        f"{record.test.vocabulary}{left_out}. Pale rows need no knowledge of x: only what a score is above them can be "
        "knowledge."
    )
    bounds = [Paragraph(f"{record.test.bounds_text}.")] if record.test.bounds_text else []
    scores = replace(table(("", *shown), (), numbers=shown, caption=caption), rows=tuple(rows))
    return Section("Scores", (scores, *bounds, *candidate_blocks(record.test)))


def _score_row(name: str, metrics: Sequence[str], score: Callable[[str], float | None], what: str = "") -> Row:
    cells = tuple(Cell(METRICS[metric].text(score(metric))) for metric in metrics)
    return Row(name, cells, note=what)


def _learning(record: RunRecord) -> list[Section]:
    points = record.learning_curve
    if len(points) < 2:
        return []
    kept = None if record.training is None else record.training.best_pairs
    note = "" if kept is None else f" The state after {kept} pairs was kept."
    if record.as_written:
        note = f" No state after the first was better, so the prompts were kept {record.as_written}."
    return [Section("Learning curve", (learning_figure(points, note),))]


def learning_figure(points: Sequence[tuple[float, float]], note: str = "") -> Figure:
    """Return a curve of dev P@1 against pairs, of a run that is done or under way."""
    chart = panels_chart({"dev": {"P@1": points}}, measure="P@1, %", trained="pairs trained on")
    caption = (
        f"Right answers to dev facts in %: {points[0][1]:.1f} at first, {points[-1][1]:.1f} after {points[-1][0]:.0f} "
        f"pairs, {max(score for _, score in points):.1f} at best."
    )
    return Figure((Drawing("learning", chart),), caption + note)


def trust_sections(run: Run, others: Sequence[Run], heading: str = "Can I believe this?") -> list[Section]:
    """Return sentences and charts on how far a run's score can be trusted, and what is to be known of its facts."""
    try:
        cells = trust_in(lines_of(kept_runs([run])), control_runs(others))
    except AskwellError:
        cells = []
    if cells:
        drawn = tuple(trust_figures(cells[:1], run.record.spec.relation))
        charts = [Figure(drawn, "The red line is one in ten.")] if drawn else []
        blocks: list[Block] = [Points(tuple(trust_sentences(cells[0]))), *charts]
    else:
        blocks = [Paragraph("Nothing was tuned in this run, so nothing could be learned from train facts.")]
    sections = [Section(heading, tuple(blocks))]
    if run.record.audit is not None:
        said = audit_sentences(SetAudit(run.record.relation.name, (run.record.audit,)))
        sections.append(Section("The facts", (Points(tuple(said)),)))
    return sections


def _prompts(record: RunRecord, name: str, words: Sequence[PromptWords]) -> Section:
    by_weight = sorted(record.prompts, key=lambda prompt: -prompt.weight)
    listed = prompt_table([(prompt.weight, prompt.template) for prompt in by_weight])
    drawn = [words_figure(words, name)] if words else []
    said = [f"The weights are spread as over {record.effective_prompts:.1f} equally weighted prompts."]
    said += [f"Left out: {visible(one.template)}, since {one.reason}." for one in record.left_out_prompts]
    taken = () if record.trust is None else record.trust.specialties
    return Section("Prompts", (*drawn, listed, *map(Paragraph, said), *specialty_blocks(taken)))


def _making(record: RunRecord) -> list[Block]:
    """Return the command, the settings that were chosen, and what the run was made with."""
    spec, environment = record.spec, record.environment
    blocks: list[Block] = []
    if spec.baseline is None and spec.control is None and spec.training is not None:
        meaning = "Makes such a run again; write the paths of facts, prompts or candidates of your own for their names."
        blocks.append(Code(((_command(record), meaning),)))
    parts = {"mixture": record.mixture, "training": spec.training, "search": spec.search, "tuning": spec.fine_tuning}
    rows = [
        Row(name, (Cell(visible(str(value)) if value is not None else NONE),), begins=begins, pale=not chosen)
        for part, of in parts.items()
        if of is not None
        for begins, (name, (value, chosen)) in zip((part, *[""] * 99), _settings(of).items(), strict=False)
    ]
    settings = table(("setting", "value"), (), caption="Settings that are not pale differ from the defaults.")
    blocks.append(replace(settings, rows=tuple(rows), folded="All settings of this run"))
    made = {
        "threads": counted(spec.threads, "thread"),
        "device": f"{spec.device}, {spec.dtype}",
        **{name: getattr(environment, name) and f"{name} {getattr(environment, name)}" for name in
           ("askwell", "git", "python", "torch", "transformers")},
    }  # fmt: skip
    return [*blocks, Paragraph(f"{', '.join(filter(None, made.values()))}; {environment.platform or NONE}.")]


def _settings(spec: BaseModel) -> dict[str, tuple[Any, bool]]:
    """Return each setting with whether it differs from its default."""
    plain = {name: field for name, field in type(spec).model_fields.items() if not name.endswith("_scores")}
    return {name: (getattr(spec, name), getattr(spec, name) != field.default) for name, field in plain.items()}


_IMPLIED = {"classify", "threads"}
"""Set by candidates, and by the run."""
_WRITTEN_OUT = 3
"""Up to this many templates are part of the command."""


def _command(record: RunRecord) -> str:
    spec = record.spec
    words = ["askwell", "train", "--lm", spec.lm, "--facts", spec.relation]
    by_name = ":" in spec.prompts or len(spec.templates) > _WRITTEN_OUT
    for prompts in [spec.prompts] if by_name else [one.template for one in spec.templates]:
        words += ["--prompts", prompts]
    if spec.candidates is not None:
        words += ["--candidates", spec.candidates]
    for part in (spec.mixture, spec.training):
        for name, (value, chosen) in ({} if part is None else _settings(part)).items():
            if chosen and name not in _IMPLIED:
                flag = name.replace("_", "-")
                words += [f"--{flag}" if value is True else f"--no-{flag}" if value is False else f"--{flag}={value}"]
    return shlex.join([*words, "--out", "FOLDER"])
