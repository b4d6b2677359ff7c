"""The demo's report: what was found, with all figures, as one page."""

from collections.abc import Sequence

from askwell.data.testbed import TestbedRelation, relations
from askwell.demo.findings import KINDS, PRIOR, Answer, Figures, Findings, Kind, Question
from askwell.demo.results import DEEP, DEV_FACTS, METHODS, MIXTURE, RANDOM, SINGLE, TEST_FACTS, Plan, RunResult
from askwell.report.charts import Curve, CurvePoint, Gap, curves_chart, gaps_chart
from askwell.report.page import (
    Cell,
    Code,
    Column,
    ColumnGroup,
    Drawing,
    FigureBlock,
    Key,
    Page,
    Paragraph,
    Points,
    Row,
    Section,
    Table,
    percentages,
    render_page,
)
from askwell.version import VERSION

_CURVES = (SINGLE, MIXTURE, DEEP, RANDOM)
_TOLD_AND_WITHHELD = (
    "Told facts stand in the text that the LM was trained on; withheld ones stand nowhere in it and follow from "
    "nothing in it, so a right answer to them shows what a prior can give."
)
_PRIOR_LABEL = "most frequent answer"


def document_of(
    plan: Plan,
    results: Sequence[RunResult],
    figures: Figures,
    findings: Findings,
    questions: Sequence[Question],
    next_steps: Sequence[tuple[str, str]],
) -> str:
    """The report as HTML."""
    about = {relation.name: relation for relation in relations()}
    asked = [about[name] for name in plan.relations]
    page = Page(
        title=f"What does {plan.lm} know, and how must it be asked?",
        lead=(
            "A small language model was trained on a text whose facts are known: most facts of a small world are told "
            "in it, the rest are withheld. Here hard prompts and soft ones ask it for both."
        ),
        about=(
            ("LM", plan.lm),
            ("Relations", str(len(asked))),
            ("Test facts", f"{_count(figures, 'told')} told, {_count(figures, 'withheld')} withheld"),
            ("Seed", str(plan.seed)),
        ),
        sections=(
            Section("What was found", (Points(findings.main),)),
            Section("All prompts, all relations", (_table(figures, results, asked),)),
            Section("Told against withheld", (Points(findings.elicited), _gaps(figures, results, asked))),
            Section("Learning curves", (*map(Paragraph, findings.learning), _curves(results, asked))),
            Section("Some questions", (_questions(questions, plan),)),
            Section("What the soft prompts look like", _drawings(results, asked)),
            Section("How to go on", (Code(tuple(next_steps)),)),
        ),
        foot=f"Made by askwell {VERSION} with: {command_of(plan)}",
    )
    return render_page(page)


def command_of(plan: Plan) -> str:
    """The command that makes these figures again."""
    return f"askwell demo --lm {plan.lm} --relations {' '.join(plan.relations)} --seed {plan.seed}"


def _table(figures: Figures, results: Sequence[RunResult], asked: Sequence[TestbedRelation]) -> Table:
    groups = [
        ColumnGroup(
            relation.name,
            tuple(Column(kind, f"of {len(figures.facts(relation.name, kind))}", kind == "withheld") for kind in KINDS),
            note=relation.cardinality,
        )
        for relation in asked
    ]
    if len(asked) > 1:
        columns = tuple(Column(kind, f"{len(asked)} relations", kind == "withheld") for kind in KINDS)
        groups.append(ColumnGroup("mean", columns, note="macro"))
    shares = {name: _shares(figures, name, asked) for name in (*(method.name for method in METHODS), PRIOR)}
    best = [max((row[at] or 0.0 for row in shares.values()), default=0.0) for at in range(len(shares[PRIOR]))]
    rows = []
    for number, method in enumerate(METHODS):
        begins = ""
        if number == 0 or METHODS[number - 1].tuned != method.tuned:
            begins = "Soft prompts: tuned" if method.tuned else "Hard prompts: as they stand"
        rows.append(Row(method.label, _cells(shares[method.name], best), begins=begins, note=method.note))
    rows.append(
        Row(
            _PRIOR_LABEL, percentages(shares[PRIOR], strong=[False] * len(best)), begins="No LM at all",
            note="of the training facts that can be asked", pale=True,
        )
    )  # fmt: skip
    caption = (
        f"P@1 in per cent: how often the right answer is the most probable of {_vocabulary(results)}. Other right "
        f"answers for the same x are passed over. {_TOLD_AND_WITHHELD} {_facts_asked(figures, results)} "
        f"{'The mean is that of the relations (macro). ' if len(asked) > 1 else ''}The best figure of each told column "
        "is bold. Mined prompts stand in the text word for word; the manual and paraphrased ones do not."
    )
    return Table(caption, "prompts", tuple(groups), tuple(rows))


def _shares(figures: Figures, method: str, asked: Sequence[TestbedRelation]) -> list[float | None]:
    shares = [figures.p_at_1(method, relation.name, kind) for relation in asked for kind in KINDS]
    return shares + ([figures.macro(method, kind) for kind in KINDS] if len(asked) > 1 else [])


def _cells(shares: Sequence[float | None], best: Sequence[float]) -> tuple[Cell, ...]:
    is_told = [at % len(KINDS) == 0 for at in range(len(shares))]
    strong = [told and share == most for told, share, most in zip(is_told, shares, best, strict=True)]
    return percentages(shares, strong=strong)


def _gaps(figures: Figures, results: Sequence[RunResult], asked: Sequence[TestbedRelation]) -> FigureBlock:
    drawings = []
    for relation in asked:
        gaps = [
            Gap(method.label if not method.tuned else f"soft {method.label}", *_pair(figures, method.name, relation))
            for method in METHODS
        ]
        gaps.append(Gap(_PRIOR_LABEL, *_pair(figures, PRIOR, relation), aside=True))
        chart = gaps_chart(gaps, first="told", second="withheld", measure="P@1 in per cent")
        note = f"{relation.label} · {relation.cardinality}"
        drawings.append(Drawing(f"gaps-{relation.name}", chart, relation.name, note))
    caption = (
        f"P@1 on told and on withheld test facts, among {_vocabulary(results)}; the line between the two is what the "
        f"prompts owe to the text. {_facts_asked(figures, results)}"
    )
    keys = (Key("told in the text", "first", "dot"), Key("withheld from it", "second", "diamond"))
    return FigureBlock(tuple(drawings), caption, keys)


def _pair(figures: Figures, method: str, relation: TestbedRelation) -> tuple[float | None, float | None]:
    told, withheld = (figures.p_at_1(method, relation.name, kind) for kind in KINDS)
    return told, withheld


def _curves(results: Sequence[RunResult], asked: Sequence[TestbedRelation]) -> FigureBlock:
    by_run = {(result.run.relation, result.run.method.name): result for result in results}
    drawings, counts = [], []
    for relation in asked:
        curves = []
        for method in _CURVES:
            result = by_run[relation.name, method.name]
            points = tuple(
                CurvePoint(record["pairs"], record["dev"]["P@1"], record["dev"]["log_loss"])
                for record in result.history
            )
            curves.append(Curve(method.label, points, result.best_round or 0))
        counts.append(f"{relation.name} {by_run[relation.name, MIXTURE.name].history[0]['dev']['facts']}")
        chart = curves_chart(
            curves, score="dev P@1 in per cent", loss="dev log-loss in nats",
            trained="(fact, prompt) pairs trained on",
        )  # fmt: skip
        drawings.append(Drawing(f"curves-{relation.name}", chart, relation.name))
    caption = (
        "How well held-out dev facts are answered while the prompts are tuned; told and withheld facts are mixed, so "
        "no curve need reach 100. The mark is the state that was kept: the best P@1 on dev, then the lowest log-loss. "
        f"Means over the dev facts that the LM can be asked ({', '.join(counts)}; at most {DEV_FACTS} are drawn where "
        f"no x has several answers), among {_vocabulary(results)}."
    )
    keys = tuple(Key.of_curve(method.label, number) for number, method in enumerate(_CURVES))
    return FigureBlock(tuple(drawings), caption, keys)


def _questions(questions: Sequence[Question], plan: Plan) -> Table:
    rows, relation = [], None
    for question in questions:
        rows.append(
            Row(
                question.x,
                (
                    Cell(", ".join(question.golds)),
                    Cell(question.kind),
                    _answered(question.hard),
                    _answered(question.soft),
                ),
                begins="" if question.relation == relation else question.relation,
            )
        )
        relation = question.relation
    caption = (
        f"The most probable answer and its probability. The questions were drawn by lot (seed {plan.seed}) from the "
        "test facts, not by how they were answered, among x's whose right answers are all told or all withheld."
    )
    columns = ("right answer", "in the text", "hand-written prompt", "tuned mixture")
    return Table(caption, "x", (ColumnGroup("", tuple(map(Column, columns))),), tuple(rows), numeric=False)


def _answered(answer: Answer) -> Cell:
    return Cell(answer.text, mark="right" if answer.right else "wrong", note=f"{100 * answer.probability:.1f} %")


def _drawings(results: Sequence[RunResult], asked: Sequence[TestbedRelation]) -> tuple[Paragraph | FigureBlock, ...]:
    blocks: list[Paragraph | FigureBlock] = [
        Paragraph(
            "Each row is one soft prompt of the tuned mixture, heaviest first: the word nearest to each tuned vector "
            "stands over the word that it began as, where that is another. Nearest words are not an explanation."
        )
    ]
    by_run = {(result.run.relation, result.run.method.name): result for result in results}
    for number, relation in enumerate(asked):
        result = by_run[relation.name, MIXTURE.name]
        caption = (
            f"The mixture for {relation.name} ({relation.label}): {result.effective_prompts:.1f} of {result.prompts} "
            "prompts in effect (2 to the entropy of the weights, in bits)."
        )
        folded = "" if number == 0 else f"The mixture for {relation.name}"
        drawing = Drawing(f"prompts-{relation.name}", result.drawing)
        blocks.append(FigureBlock((drawing,), caption, wide=True, folded=folded))
    return tuple(blocks)


def _vocabulary(results: Sequence[RunResult]) -> str:
    return "; ".join(dict.fromkeys(result.vocabulary for result in results))


def _facts_asked(figures: Figures, results: Sequence[RunResult]) -> str:
    """Which test facts are counted, and why others are not."""
    drawn = f"At most {TEST_FACTS} test facts of a relation are drawn by lot where no x has several right answers."
    if not any(figures.left_out.values()):
        return f"{drawn} None is left out."
    reasons = "; ".join(sorted({reason for result in results for reason in result.left_out}))
    counts = ", ".join(f"{count} of {relation}" for relation, count in figures.left_out.items() if count)
    return f"{drawn} Left out: {counts} ({reasons})."


def _count(figures: Figures, kind: Kind) -> int:
    return sum(len(figures.facts(relation, kind)) for relation in figures.relations)
