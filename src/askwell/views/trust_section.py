"""How far scores can be trusted, as it is shown: tables, charts, and plain sentences on what the figures mean.

A report shows cells of runs, the page of a run that run as a cell, and `askwell evaluate --trust` one mixture."""

from collections.abc import Mapping, Sequence

from askwell.evaluation.confidence import Bin, Calibration
from askwell.evaluation.knowledge import KnownShare
from askwell.evaluation.scoring import EASY, HARD, PartScores, Projection
from askwell.evaluation.significance import interval_text
from askwell.evaluation.trust import Specialty, Trust
from askwell.views.charts import reliability_chart, risk_coverage_chart
from askwell.views.document import (
    MISSING,
    Cell,
    Column,
    ColumnGroup,
    Document,
    Drawing,
    Paragraph,
    Row,
    Section,
    Table,
    headed,
    one_decimal,
    table,
)
from askwell.views.printable import NONE, counted, per_cent, visible
from askwell.views.scores import CONTROLS, control_sentences, detail_sentences
from askwell.views.study_figures import drawing_of
from askwell.views.study_rows import TEXTS, Draft, StudyTable, file_stem, ranked_among, record, span
from askwell.views.trust_figures import TOLD, WITHHELD, CellTrust

_CURVES = 4


def trust_table(cells: Sequence[CellTrust], fact_set: str) -> StudyTable:
    """Return a row for each tuned cell."""
    draft = Draft()
    for cell, begins in headed(cells, lambda cell: cell.line.lm):
        score, further = _score_figures(cell), _further_figures(cell)
        draft.records += [record(cell.line, cell.kind, name, value) for name, value in (score | further).items()]
        control = control_score = gain = MISSING
        if cell.knowledge is not None:
            found = cell.knowledge
            control, control_score = Cell(CONTROLS.get(found.control, found.control)), one_decimal(found.control_score)
            interval = interval_text(found.low, found.high, "{:.1f}".format)
            gain = Cell(f"{found.gain:+.1f}", strong=cell.knowledge.is_there, note=interval)
        row = (Cell(cell.score.text("P@1")), control, control_score, gain, *map(one_decimal, further.values()))
        draft.rows.append(Row(cell.label, row, begins))
    columns = tuple(Column(heading, note) for heading, note in TEXTS["believe"]["columns"].items())
    return draft.finished("believe", fact_set, [ColumnGroup("", columns)], _caption("believe", cells))


def _caption(name: str, cells: Sequence[CellTrust]) -> str:
    facts, left_out = span([cell.group.facts for cell in cells]), span([cell.group.left_out for cell in cells])
    what = TEXTS[name]["what"].format(facts=facts, left_out=left_out)
    return f"{what} {ranked_among(run for cell in cells for run in cell.group.runs)}"


def _score_figures(cell: CellTrust) -> dict[str, float | None]:
    """Return the score and its gain over the best control, which the table shows together."""
    found = cell.knowledge
    of_gain = [None] * 4 if found is None else [found.control_score, found.gain, found.low, found.high]
    names = ("P@1 of the best control", "gain over the best control", "gain, low", "gain, high")
    return {"P@1": cell.score.mean, **dict(zip(names, of_gain, strict=True))}


def _further_figures(cell: CellTrust) -> dict[str, float | None]:
    """Return the figures that each have a column."""
    questions, answered, wrong = cell.answered or (0, 0, 0)
    hard = cell.parts.get("control", {}).get(HARD)
    return {
        "P@1 where no control is right": None if hard is None else hard["P@1"],
        "P@1 corrected by the prior": cell.corrected,
        "expected calibration error": 100 * cell.calibration.ece,
        "answered at 10 % risk": 100 * answered / questions if questions else None,
        "wrong of the answers at 10 % risk": 100 * wrong / answered if answered else None,
        "prompts agree": None if cell.agreement is None else 100 * cell.agreement,
        "P@1 of the nearest words": cell.projected,
    }


def trust_sentences(cell: CellTrust) -> list[str]:
    """Return what the figures of a cell say, for readers who are not statisticians."""
    spread = "" if cell.score.deviation is None else f", give or take {cell.score.deviation:.1f} from seed to seed"
    facts = cell.group.facts
    left_out = f"; {cell.group.left_out} more could not be asked" if cell.group.left_out else ""
    said = [
        f"{cell.score.mean:.1f} % of {counted(facts, 'test fact')} {'is' if facts == 1 else 'are'} answered "
        f"correctly{spread}{left_out}.",
        *(control_sentences(cell.knowledge) or [_NO_CONTROL]),
        *detail_sentences(cell.knowledge, cell.corrected),
        *([] if cell.known is None else [known_sentence(cell.known)]),
        *_part_sentences(cell.parts),
        _TOO_FEW if cell.is_of_few else calibration_sentence(cell.calibration),
    ]
    if cell.answered is not None and not cell.is_of_few:
        said.append(abstention_sentence(*cell.answered))
    if cell.agreement is not None:
        said.append(agreement_sentence(cell.agreement))
    if cell.seeds is not None:
        same = f"{100 * cell.seeds.same:.0f} %"
        said.append(f"Tuned again with another seed, it gives the same answer to {same} of the questions.")
    if cell.projected is not None:
        said.append(nearest_words_sentence(cell.projected))
    if cell.leaked:
        said.append(f"{cell.leaked} test facts are also in train, and may simply have been memorised.")
    return said


def _part_sentences(parts: Mapping[str, Mapping[str, PartScores]]) -> list[str]:
    control, told, seen = (parts.get(name, {}) for name in ("control", "told", "seen y"))
    said = []
    if EASY in control and HARD in control:
        said.append(
            f"On the {control[HARD]['facts']} facts that no control gets right, it scores {control[HARD]['P@1']:.1f}; "
            f"on the {control[EASY]['facts']} others, {control[EASY]['P@1']:.1f}."
        )
    if TOLD in told and WITHHELD in told:
        said.append(
            f"Here the truth is known: of the {told[TOLD]['facts']} facts in the LM's training text, "
            f"{told[TOLD]['P@1']:.1f} % are answered correctly; of the {told[WITHHELD]['facts']} withheld from it, "
            f"{told[WITHHELD]['P@1']:.1f} %."
        )
    if "seen y" in seen and "unseen y" in seen:
        unseen = seen["unseen y"]
        said.append(
            f"On the {unseen['facts']} facts whose answer is never an answer in train, it scores {unseen['P@1']:.1f}; "
            f"on the others, {seen['seen y']['P@1']:.1f}."
        )
    return said


_TOO_FEW = "These are too few facts to say how far its probabilities can be trusted, or when it should decline."
_NO_CONTROL = "There is no control to compare this with, so it is not clear how much of it is knowledge."


def known_sentence(found: KnownShare) -> str:
    """Say how many x's the LM is estimated to know an answer to, and from what."""
    return (
        f"It is estimated to know an answer to {per_cent(found.known)} of the {found.questions} x's (between "
        f"{per_cent(found.low)} and {per_cent(found.high)}): at least one of its prompts answers "
        f"{per_cent(found.answered)} of them correctly, and the same answers would be right by luck for "
        f"{per_cent(found.luck)} of the others."
    )


def abstention_sentence(questions: int, answered: int, wrong: int, risk: str = "10 %") -> str:
    """Say how many questions are answered if it may decline, and how many of these answers are wrong."""
    among = f", and {per_cent(wrong / answered)} of these answers are wrong" if answered else ""
    return (
        f"If it may decline to answer, with a threshold learned on dev for a risk of {risk}, it answers "
        f"{per_cent(answered / questions)} of the {questions} questions{among}."
    )


def agreement_sentence(pairs: float) -> str:
    """Say how often two prompts agree."""
    return f"Any two of its prompts, asked alone, agree on {per_cent(pairs)} of the answers on average."


def nearest_words_sentence(score: float) -> str:
    """Say how well the nearest words alone score."""
    return (
        f"The words nearest to its vectors score {score:.1f} when asked as hard prompts: read no more into these words "
        "than that."
    )


_CALIBRATED = 0.05
"""Up to this difference between mean probability and accuracy, answers count as well calibrated."""


def calibration_sentence(found: Calibration) -> str:
    """Say how probable the best answers are, how many of them are right, and whether the one fits the other."""
    gap = found.confidence - found.accuracy
    if abs(gap) < _CALIBRATED:
        verdict = "well calibrated on average"
    else:
        verdict = "overconfident" if gap > 0 else "underconfident"
    return (
        f"It is {verdict}: its best answers have a probability of {per_cent(found.confidence)} on average, and "
        f"{per_cent(found.accuracy)} of them are right (expected calibration error {per_cent(found.ece)})."
    )


def trust_figures(cells: Sequence[CellTrust], fact_set: str) -> list[Drawing]:
    """Draw the reliability diagram of each LM's cell, and the risk–coverage curves of these cells together; nothing of
    a cell with few facts."""
    drawn = [cell for cell in cells if not cell.is_of_few][:_CURVES]
    if not drawn:
        return []
    title, what = TEXTS["reliability"]["title"], TEXTS["reliability"]["what"]
    figures = [
        Drawing(
            file_stem("reliability", fact_set, cell.line.lm),
            reliability_chart(cell.calibration.bins, ece=cell.calibration.ece),
            title.format(cell=cell.title),
            what.format(cell=cell.title, questions=cell.calibration.questions, ece=100 * cell.calibration.ece),
        )
        for cell in drawn
    ]
    areas = "; ".join(f"{cell.title}: area {100 * cell.risk_coverage.area:.1f}" for cell in drawn)
    caption = TEXTS["risk_coverage"]["what"].format(areas=areas)
    chart = risk_coverage_chart({cell.line.lm: cell.risk_coverage for cell in drawn}, chosen=0.1)
    return [*figures, drawing_of("risk_coverage", fact_set, caption, chart)]


def parts_table(cells: Sequence[CellTrust], fact_set: str) -> StudyTable:
    """Return P@1 on parts of the facts, easy and hard, with their numbers; trivial partitions are omitted."""
    groups: list[ColumnGroup] = []
    rows: list[list[Cell]] = [[] for _ in cells]
    for partition, heading in TEXTS["parts"]["columns"].items():
        of_cells = [cell.parts.get(partition, {}) for cell in cells]
        # In the order of the cell that has most of them.
        parts = dict.fromkeys(part for of_cell in sorted(of_cells, key=len, reverse=True) for part in of_cell)
        if len(parts) < 2:
            continue
        columns = []
        for part in parts:
            counts = {of_cell[part]["facts"] for of_cell in of_cells if part in of_cell}
            columns.append(Column(part, counted(int(min(counts)), "fact") if len(counts) == 1 else ""))
            for row, scores in zip(rows, (of_cell.get(part) for of_cell in of_cells), strict=True):
                note = "" if scores is None or len(counts) == 1 else str(scores["facts"])
                row.append(MISSING if scores is None else Cell(f"{scores['P@1']:.1f}", note=note))
        groups.append(ColumnGroup(heading, tuple(columns)))
    draft = Draft()
    for (cell, begins), row in zip(headed(cells, lambda cell: cell.line.lm), rows, strict=True):
        draft.rows.append(Row(cell.label, tuple(row), begins))
        draft.records += [
            record(cell.line, cell.kind, f"P@1, {partition}: {part}", scores["P@1"])
            for partition in TEXTS["parts"]["columns"]
            for part, scores in cell.parts.get(partition, {}).items()
        ]
    return draft.finished("parts", fact_set, groups, _caption("parts", cells))


_BAR = 20
_SIGNALS = {
    "probability": "the answer's probability",
    "agreement": "the weight of the prompts that agree",
    "divergence": "the divergence of the prompts",
}


def trust_of_mixture(trust: Trust) -> Document:
    """Return all measures of trust: calibration, abstention, answer sets, consistency, nearest words."""
    asked = (
        f"{trust.facts} test facts about {trust.questions} x's, {sum(trust.left_out.values())} left out; ranked among "
        f"{trust.vocabulary}; thresholds from {trust.dev_facts} dev facts, {sum(trust.dev_left_out.values())} left "
        "out. Means over x's."
    )
    bins = table(
        ("probability", "", "right"),
        [_bin_row(one) for one in trust.calibration.bins],
        caption="█ fraction that is right, │ mean probability",
    )
    signals = trust.signals
    areas = table(
        ("area", "by"),
        [(f"{100 * area:.1f}", _SIGNALS[name]) for name, area in signals.areas.items()],
        numbers=("area",),
        title="The area under the risk–coverage curve, in per cent (lower is better; "
        f"{100 * signals.best_possible:.1f} at best, {100 * signals.no_signal:.1f} without a signal)",
    )
    no_words = f"Not scored; {trust.missing.get('projection')}."
    words = no_words if trust.projection is None else projection_sentence(trust.projection)
    return Document(
        "",
        sections=(
            Section(f"How far {trust.relation} on {trust.lm} can be trusted", (Paragraph(asked),)),
            *([] if trust.known is None else [Section("Knowledge", (Paragraph(known_sentence(trust.known)),))]),
            Section("Calibration", (Paragraph(calibration_sentence(trust.calibration)), bins)),
            Section("Abstention", (areas, Paragraph(_at_risk(trust)))),
            Section("Answer sets", (Paragraph(_answer_sets(trust)),)),
            Section("Consistency", _consistency(trust)),
            *([Section("Prompts", tuple(specialty_blocks(trust.specialties)))] if trust.specialties else []),
            Section("Nearest words", (Paragraph(words),)),
        ),
    )


def _bin_row(one: Bin) -> tuple[str | Cell, ...]:
    """Return a bar as long as the fraction that is right, with a mark at the mean probability."""
    bar = list("█" * round(_BAR * one.accuracy) + "·" * (_BAR - round(_BAR * one.accuracy)))
    bar.insert(round(_BAR * min(one.confidence, 1.0)), "│")
    share = f"{100 * one.accuracy:5.1f} % of {one.count} right"
    return f"{100 * one.low:3.0f}–{100 * one.high:3.0f} %", Cell("".join(bar), mark="bar"), share


def _at_risk(trust: Trust) -> str:
    at_risk = trust.at_risk
    if at_risk is None:
        return f"No threshold: {trust.missing['at_risk']}."
    sure = "" if at_risk.confidence is None else f" (with a confidence of {100 * at_risk.confidence:g} %)"
    if at_risk.threshold is None:
        return f"No threshold keeps a risk of {100 * at_risk.risk:g} %{sure} on dev: nothing is answered."
    said = abstention_sentence(at_risk.questions, at_risk.answered, at_risk.wrong, f"{100 * at_risk.risk:g} %{sure}")
    return (
        f"{said} The threshold is a probability of {per_cent(at_risk.threshold)}; of the dev questions, "
        f"{per_cent(at_risk.dev_coverage)} are answered, {per_cent(at_risk.dev_risk)} of them wrongly."
    )


def _answer_sets(trust: Trust) -> str:
    sets = trust.answer_sets
    if sets is None:
        return f"None; {trust.missing['answer_sets']}."
    cut = f" {sets.cut} x's may have more answers than were kept." if sets.cut else ""
    return (
        f"All answers of {per_cent(sets.threshold)} or more (the best F1 on dev) have precision "
        f"{100 * sets.precision:.1f}, recall {100 * sets.recall:.1f} and F1 {per_cent(sets.f1)} over all answers, "
        f"F1 {per_cent(sets.mean_f1)} as a mean over x's, of which {trust.several_ys} have several y's.{cut}"
    )


def _consistency(trust: Trust) -> tuple[Paragraph | Table, ...]:
    found = trust.consistency
    if found is None:
        return (Paragraph(f"None; {trust.missing['consistency']}."),)
    rows = [
        (
            name,
            str(agreement.questions),
            per_cent(agreement.pairs),
            NONE if agreement.weighted is None else per_cent(agreement.weighted),
            per_cent(agreement.all_agree),
            per_cent(agreement.with_mixture),
        )
        for name, agreement in (("all", found.all), ("answered correctly", found.right))
        if agreement is not None
    ]
    headings = ("", "x's", "pairs agree", "by weight", "all agree", "weight with the mixture")
    how_often = table(headings, rows, numbers=headings[1:], title=f"How often its {found.prompts} prompts agree")
    return Paragraph(agreement_sentence(found.all.pairs)), how_often


def specialty_blocks(found: Sequence[Specialty]) -> list[Paragraph | Table]:
    """Show which x's each prompt of a mixture takes; nothing if its weights do not depend on x."""
    if not found:
        return []
    leading = [one for one in found if one.leads]
    rows = [
        (
            visible(one.template),
            per_cent(one.weight),
            str(one.leads),
            str(one.right),
            ", ".join(f"{x} ({per_cent(weight)})" for x, weight in one.xs.items()),
        )
        for one in leading
    ]
    said = (
        f"The weights depend on x: {len(leading)} of {counted(len(found), 'prompt')} have more weight than any other "
        "for some test x."
    )
    headings = ("prompt", "mean weight", "x's it leads", "of these right", "for example, with its weight")
    return [Paragraph(said), table(headings, rows, numbers=headings[1:4], title="What each prompt is for")]


def projection_sentence(found: Projection) -> str:
    """Return how well the nearest words alone score, beside the tuned vectors."""
    return (
        f"{nearest_words_sentence(found.projected['P@1'])} The vectors themselves score P@1 {found.tuned['P@1']:.1f}; "
        f"{100 * found.changed:.0f} % of the nearest words differ from the hard prompt ({found.facts} {found.split} "
        f"facts, {found.left_out} left out; among {found.vocabulary})."
    )
