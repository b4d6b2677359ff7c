"""The page of a demo: tables, charts, questions and prompts, and commands to try next."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from askwell.data.testbed import relations
from askwell.evaluation.metrics import units_of
from askwell.files import write_whole
from askwell.runs.plan import Plan
from askwell.runs.store import Store
from askwell.specs.sweep_spec import SweepSpec
from askwell.version import VERSION
from askwell.views.charts import Gap, Panel, gaps_chart, panels_chart
from askwell.views.demo_runs import (
    METHODS,
    RELATIONS,
    TEXTS,
    DemoRuns,
    ShownQuestion,
    demo_runs,
    demo_sweep,
    draw_questions,
)
from askwell.views.document import (
    Block,
    Cell,
    Code,
    Column,
    ColumnGroup,
    Document,
    Drawing,
    Figure,
    Key,
    Paragraph,
    Points,
    Row,
    Section,
    Table,
    headed,
    one_decimal,
)
from askwell.views.study_figures import MEASURE, TRAINED, prompt_figures
from askwell.views.study_rows import ranked_among
from askwell.views.to_html import page_html
from askwell.views.told import (
    DEEP,
    FACT_KINDS,
    MANUAL,
    MIXTURE,
    MOST_FREQUENT,
    SINGLE,
    SPELLINGS,
    Findings,
    ToldFigures,
    findings_of,
)

REPORT = "report.html"


@dataclass(frozen=True)
class Demo:
    """A demo whose runs are done and whose report is written."""

    lm: str
    seed: int
    report: Path
    runs: DemoRuns
    figures: ToldFigures
    findings: Findings
    questions: tuple[ShownQuestion, ...]
    next_steps: tuple[tuple[str, str], ...]
    """Commands to try, each with what it does."""

    def as_json(self) -> dict[str, Any]:
        """What was found and by which runs, as plain JSON."""
        return {
            "lm": self.lm,
            "seed": self.seed,
            "report": str(self.report),
            "relations": list(self.runs.relations),
            "findings": asdict(self.findings),
            "figures": {method: self.figures.as_json(method) for method in self.figures.right},
            "lengths": {method: self.figures.lengths_as_json(method) for method in self.figures.right},
            "questions": [asdict(question) for question in self.questions],
            "runs": [
                {
                    "relation": relation,
                    "method": method,
                    "folder": str(run.folder),
                    "vocabulary": run.record.test.vocabulary,
                    "left_out": run.record.test.left_out,
                    "prompts": len(run.record.prompts),
                    "effective_prompts": run.record.effective_prompts,
                    "history": [line.model_dump(mode="json", exclude_unset=True) for line in run.record.history],
                }
                for (relation, method), run in self.runs.runs.items()
            ],
        }


def write_demo(sweep: SweepSpec, plan: Plan, store: Store) -> Demo:
    """Writes the report on the demo's runs, all of which are in the store, and returns what it says."""
    lm, seed = sweep.lms[0].source, sweep.seeds[0]
    done = demo_runs(plan, store)
    figures, questions = done.figures(), tuple(draw_questions(done, seed))
    curves = {relation: run.curve for relation, run in done.of(MIXTURE).items()}
    findings, steps = findings_of(figures, curves, lm), tuple(next_steps(lm, store.folder, done, questions))
    report = store.folder / REPORT
    write_whole(report, page_html(demo_page(sweep, done, figures, findings, questions, steps)))
    return Demo(lm, seed, report, done, figures, findings, questions, steps)


def next_steps(lm: str, out: Path, done: DemoRuns, questions: Sequence[ShownQuestion]) -> list[tuple[str, str]]:
    """Commands to try after the demo, with what each does."""
    first = done.relations[0]
    here, of_first = shlex.quote(str(out)), f"relation = 'testbed:{first}'"
    mixture = f"{of_first} and setting = 'mixture'"
    deep = (f'askwell show {here} --where "{of_first} and deep"', "See how far the deep mixture moves each layer.")
    x = next((question.x for question in questions if question.relation == first), "France")
    other_lm = "testbed:causal" if lm != "testbed:causal" else "testbed:bert"
    whole = (f"askwell demo --lm {lm}", f"The whole demo: {', '.join(RELATIONS)}.")
    return [
        (f'askwell ask {here} {shlex.quote(x)} --where "{of_first}"', f"Ask the best mixture for {first} about any x."),
        (f'askwell show {here} --where "{mixture}"', "See the soft prompts of the mixture in the terminal."),
        *([deep] if any(method.name == DEEP for method in done.methods) else []),
        *([] if set(done.relations) == set(RELATIONS) else [whole]),
        (f"askwell demo --lm {other_lm} --out {other_lm.removeprefix('testbed:')}-demo", "The same with another LM."),
        ("askwell testbed", "List all relations, prompts and LMs of the testbed."),
        (
            'askwell train --lm bert-base-cased --facts facts.csv --prompts "[X] was born in [Y] ." --out mine',
            "Ask your own LM about your own facts, in columns x and y.",
        ),
    ]


def demo_page(
    sweep: SweepSpec,
    done: DemoRuns,
    figures: ToldFigures,
    findings: Findings,
    questions: Sequence[ShownQuestion],
    next_steps: Sequence[tuple[str, str]],
) -> Document:
    """The page of a demo."""
    lm, seed = sweep.lms[0].source, sweep.seeds[0]
    asked = _asked(sweep, figures, done)
    is_quick = sweep == demo_sweep(lm, seed=seed, quick=True)
    counts = ", ".join(f"{len(figures.facts(kind))} {kind}" for kind in FACT_KINDS)
    return Document(
        title=TEXTS["title"].format(lm=lm),
        lead=TEXTS["lead"],
        about=(("LM", lm), ("Relations", str(len(done.relations))), ("Test facts", counts), ("Seed", str(seed))),
        sections=(
            Section("What was found", (Points(findings.main),)),
            Section("All prompts, all relations", (_table(figures, asked), *lengths_tables(figures, asked))),
            Section("Told and withheld facts", (Points(findings.elicited), _gaps(figures, asked))),
            Section("Learning curves", (*map(Paragraph, findings.learning), _curves(done))),
            Section("Some questions", (_questions(questions, seed),)),
            Section("What the soft prompts look like", _prompts(done)),
            Section("What to try next", (Code(tuple(next_steps)),)),
        ),
        foot=f"Made by askwell {VERSION} with: askwell demo --lm {lm} "
        f"{'--quick' if is_quick else '--relations ' + ' '.join(done.relations)} --seed {seed}",
    )


def _table(figures: ToldFigures, asked: str) -> Table:
    cardinality = {relation.name: relation.cardinality for relation in relations()}
    several = len(figures.relations) > 1

    def columns(notes: Sequence[str]) -> tuple[Column, ...]:
        return tuple(Column(kind, note, kind == "withheld") for kind, note in zip(FACT_KINDS, notes, strict=True))

    groups = [
        ColumnGroup(name, columns([f"of {len(figures.facts(kind, name))}" for kind in FACT_KINDS]), cardinality[name])
        for name in figures.relations
    ]
    shares = {
        method: [figures.p_at_1(method, name, kind) for name in figures.relations for kind in FACT_KINDS]
        for method in figures.right
    }
    if several:
        groups.append(ColumnGroup("mean", columns([f"{len(figures.relations)} relations"] * 2), "macro"))
        for method, of_method in shares.items():
            of_method += [figures.macro(method, kind) for kind in FACT_KINDS]
    best = [max(share or 0.0 for share in of_all) for of_all in zip(*shares.values(), strict=True)]
    cells = {method: [one_decimal(share) for share in of_method] for method, of_method in shares.items()}
    for method in cells.keys() - {MOST_FREQUENT}:
        for at in range(0, len(best), len(FACT_KINDS)):  # the columns of told facts
            cells[method][at] = replace(cells[method][at], strong=shares[method][at] == best[at])
    rows = _rows(cells)
    caption = TEXTS["table"].format(asked=asked, macro=TEXTS["macro"] if several else "")
    return Table(caption, "prompts", tuple(groups), rows)


def _rows(cells: Mapping[str, Sequence[Cell]]) -> tuple[Row, ...]:
    """A row for each method, and for the most frequent answer."""
    begins = {MANUAL: "Hard prompts, untuned", SINGLE: "Soft prompts, tuned"}
    rows = [
        Row(method.label, tuple(cells[method.name]), begins.get(method.name, ""), method.note)
        for method in METHODS
        if method.name in cells
    ]
    most_frequent = tuple(cells[MOST_FREQUENT])
    rows.append(Row("most frequent answer", most_frequent, "No LM at all", "of the training facts", pale=True))
    return tuple(rows)


def lengths_tables(figures: ToldFigures, asked: str) -> tuple[Table, ...]:
    """Told facts whose y is one token of the LM, and apart from them those whose y has several, if there are any."""
    names = figures.with_several_tokens
    if not names:
        return ()
    groups = tuple(
        ColumnGroup(
            name,
            tuple(Column(spelling, f"of {len(figures.spelt(name, 'told', spelling))}") for spelling in SPELLINGS),
        )
        for name in names
    )
    cells = {
        method: [
            one_decimal(figures.p_at_1_spelt(method, name, "told", spelling))
            for name in names
            for spelling in SPELLINGS
        ]
        for method in figures.right
    }
    return (Table(TEXTS["lengths"].format(asked=asked), "prompts", groups, _rows(cells)),)


def _gaps(figures: ToldFigures, asked: str) -> Figure:
    labels = {
        method.name: f"soft {method.label}" if method.tuned else method.label
        for method in METHODS
        if method.name in figures.right
    }
    labels[MOST_FREQUENT] = "most frequent answer"
    notes = {relation.name: f"{relation.label} · {relation.cardinality}" for relation in relations()}
    drawings = []
    for name in figures.relations:
        gaps = [
            Gap(label, *(figures.p_at_1(method, name, kind) for kind in FACT_KINDS), aside=method == MOST_FREQUENT)
            for method, label in labels.items()
        ]
        chart = gaps_chart(gaps, first="told", second="withheld", measure=f"P@1 {units_of(['P@1'])}")
        drawings.append(Drawing(f"gaps-{name}", chart, name, notes[name]))
    keys = (Key("told in the text", "first", "dot"), Key("withheld from it", "second", "diamond"))
    return Figure(tuple(drawings), TEXTS["gaps"].format(asked=asked), keys)


def _curves(done: DemoRuns) -> Figure:
    soft = {method.label: method.name for method in done.methods if method.tuned}
    panels = [
        Panel(relation, {label: done.runs[relation, name].curve for label, name in soft.items()})
        for relation in done.relations
    ]
    chart = panels_chart(panels, list(soft), measure=MEASURE, trained=TRAINED)
    return Figure((Drawing("curves", chart),), TEXTS["curves"], wide=True)


def _questions(questions: Sequence[ShownQuestion], seed: int) -> Table:
    rows: list[Row] = []
    for question, begins in headed(questions, lambda question: question.relation):
        answers = [
            Cell(answer.text, mark="right" if answer.right else "wrong", note=f"{100 * answer.probability:.1f} %")
            for answer in (question.hard, question.soft)
        ]
        rows.append(Row(question.x, (Cell(", ".join(question.golds)), Cell(question.kind), *answers), begins))
    names = ("right answer", "in the text", "hand-written prompt", "tuned mixture")
    columns = tuple(Column(name, number=False) for name in names)
    caption = TEXTS["questions"].format(seed=seed)
    return Table(caption, "x", (ColumnGroup("", columns),), tuple(rows))


def _prompts(done: DemoRuns) -> tuple[Block, ...]:
    drawn, problems = prompt_figures(list(done.of(MIXTURE).values()))
    blocks: list[Block] = [Paragraph(TEXTS["prompts"])]
    for number, figure in enumerate(drawn):
        drawing = Drawing(f"prompts-{number}", figure.chart)
        blocks.append(Figure((drawing,), figure.caption, wide=True, folded=figure.title if number else ""))
    return (*blocks, *([Points(tuple(problems))] if problems else []))


def _asked(sweep: SweepSpec, figures: ToldFigures, done: DemoRuns) -> str:
    """Which test facts are counted, among which answers, and why others are not."""
    drawn = TEXTS["drawn"].format(test_facts=sweep.test_facts, dev_facts=sweep.dev_facts)
    text = f"{ranked_among(done.runs.values())} {drawn}"
    if unsettled := max(run.record.test.unsettled for run in done.runs.values()):
        text += (
            f" The search for answers was cut for up to {unsettled} facts of a run, which count with their ranks among "
            "what was found."
        )
    asked = {name: sum(len(figures.facts(kind, name)) for kind in FACT_KINDS) for name in figures.relations}
    given = {name: run.facts + run.left_out for name, run in done.of(MIXTURE).items()}
    counts = ", ".join(f"{given[name] - count} of {name}" for name, count in asked.items() if given[name] > count)
    if not counts:
        return f"{text} None is left out."
    reasons = "; ".join(sorted({reason for run in done.runs.values() for reason in run.record.test.left_out}))
    return f"{text} Left out: {counts} ({reasons})."
