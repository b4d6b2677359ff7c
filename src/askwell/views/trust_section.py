"""The section "Can I believe this?": the figures as tables, charts, and plain sentences on what they mean."""

from collections.abc import Mapping, Sequence

from askwell.evaluation.calibration import Calibration
from askwell.evaluation.partitions import EASY, HARD
from askwell.evaluation.significance import interval_text
from askwell.views.charts import reliability_chart, risk_coverage_chart
from askwell.views.document import MISSING, Cell, Column, ColumnGroup, Drawing, Row, headed, one_decimal
from askwell.views.printable import counted, per_cent
from askwell.views.scores import CONTROLS
from askwell.views.study_figures import drawing_of
from askwell.views.study_rows import TEXTS, Draft, StudyTable, file_stem, ranked_among, record, span
from askwell.views.trust_figures import TOLD, WITHHELD, CellTrust, PartScores

_CURVES = 4


def trust_table(cells: Sequence[CellTrust], fact_set: str) -> StudyTable:
    """One row per tuned cell."""
    draft = Draft()
    for cell, begins in headed(cells, lambda cell: cell.line.lm):
        score, further = _score_figures(cell), _further_figures(cell)
        draft.records += [record(cell.line, cell.kind, name, value) for name, value in (score | further).items()]
        control = control_score = gain = MISSING
        if cell.knowledge is not None:
            found = cell.knowledge.gain
            control, control_score = Cell(found.control), one_decimal(found.control_score)
            interval = interval_text(found.low, found.high, "{:.1f}".format)
            gain = Cell(f"{found.gain:+.1f}", strong=cell.knowledge.is_there, note=interval)
        row = (Cell(cell.score.text), control, control_score, gain, *map(one_decimal, further.values()))
        draft.rows.append(Row(f"{cell.line.label}, {cell.kind}", row, begins))
    columns = tuple(Column(heading, note) for heading, note in TEXTS["believe"]["columns"].items())
    return draft.finished("believe", fact_set, [ColumnGroup("", columns)], _caption("believe", cells))


def _caption(name: str, cells: Sequence[CellTrust]) -> tuple[str, ...]:
    facts, left_out = span([cell.group.facts for cell in cells]), span([cell.group.left_out for cell in cells])
    what = TEXTS[name]["what"].format(facts=facts, left_out=left_out)
    return what, ranked_among(run for cell in cells for run in cell.group.runs)


def _score_figures(cell: CellTrust) -> dict[str, float | None]:
    """The score and its gain over the best control, which the table shows together."""
    gain = None if cell.knowledge is None else cell.knowledge.gain
    return {
        "P@1": cell.score.mean,
        "P@1 of the best control": None if gain is None else gain.control_score,
        "gain over the best control": None if gain is None else gain.gain,
        "gain, low": None if gain is None else gain.low,
        "gain, high": None if gain is None else gain.high,
    }


def _further_figures(cell: CellTrust) -> dict[str, float | None]:
    """The figures that each have a column."""
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
    said = [
        f"{cell.score.mean:.1f} % of {cell.group.facts} test facts are answered correctly{spread}; "
        f"{cell.group.left_out} more could not be asked.",
        *_knowledge_sentences(cell),
        *_part_sentences(cell.parts),
        calibration_sentence(cell.calibration),
    ]
    if cell.answered is not None:
        questions, answered, wrong = cell.answered
        among = f", and {100 * wrong / answered:.0f} % of these answers are wrong" if answered else ""
        said.append(
            "If it may decline to answer, with a threshold learned on dev that allows one wrong answer in ten, it "
            f"answers {100 * answered / questions:.0f} % of the questions{among}."
        )
    if cell.agreement is not None:
        agree = f"{100 * cell.agreement:.0f} %"
        said.append(f"Any two of its prompts, asked alone, agree on {agree} of the answers on average.")
    if cell.seeds is not None:
        same = f"{100 * cell.seeds.same:.0f} %"
        said.append(f"Tuned again with another seed, it gives the same answer to {same} of the questions.")
    if cell.projected is not None:
        said.append(
            f"The words nearest to its vectors score {cell.projected:.1f} when asked as hard prompts: read no more "
            "into these words than that."
        )
    if cell.leaked:
        said.append(f"{cell.leaked} test facts are also in train, and may simply have been memorised.")
    return said


def _knowledge_sentences(cell: CellTrust) -> list[str]:
    if cell.knowledge is None:
        return ["There is no control to compare this with, so it is not clear how much of it is knowledge."]
    gain = cell.knowledge.gain
    said = [
        "Controls show what can be scored without any knowledge. The best of them on dev, "
        f"{CONTROLS.get(gain.control, gain.control)}, scores {gain.control_score:.1f} on test."
    ]
    interval = "" if gain.low is None or gain.high is None else f" ({gain.low:.1f} to {gain.high:.1f})"
    if cell.knowledge.is_there:
        said.append(
            f"So the LM knows something: its score is {gain.gain:.1f} points{interval} above what can be reached "
            "without knowledge."
        )
    else:
        said.append(
            f"This is not a sign of knowledge: the gain of {gain.gain:.1f} points{interval} over the control may be "
            "chance."
        )
    if cell.corrected is not None:
        said.append(f"With the prompts' own preference for some answers removed, it scores {cell.corrected:.1f}.")
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


_CALIBRATED = 0.05
"""Up to this difference between mean probability and accuracy, answers count as well calibrated."""


def calibration_verdict(found: Calibration) -> str:
    """Return whether the answers' probabilities are right on average."""
    gap = found.confidence - found.accuracy
    return "well calibrated on average" if abs(gap) < _CALIBRATED else "overconfident" if gap > 0 else "underconfident"


def calibration_sentence(found: Calibration) -> str:
    """Return how probable the best answers are, and how many of them are right."""
    return (
        f"It is {calibration_verdict(found)}: its best answers have a probability of {per_cent(found.confidence)} on "
        f"average, and {per_cent(found.accuracy)} of them are right (expected calibration error {per_cent(found.ece)})."
    )


def trust_figures(cells: Sequence[CellTrust], fact_set: str) -> list[Drawing]:
    """The reliability diagram of each LM's first cell, and the risk–coverage curves of these cells together."""
    firsts = [cell for cell, lm in headed(cells, lambda cell: cell.line.lm) if lm][:_CURVES]
    title, what = TEXTS["reliability"]["title"], TEXTS["reliability"]["what"]
    figures = [
        Drawing(
            file_stem("reliability", fact_set, cell.line.lm),
            reliability_chart(cell.calibration.bins, ece=cell.calibration.ece),
            title.format(cell=cell.label),
            what.format(cell=cell.label, questions=cell.calibration.questions, ece=100 * cell.calibration.ece),
        )
        for cell in firsts
    ]
    areas = "; ".join(f"{cell.label}: area {100 * cell.risk_coverage.area:.1f}" for cell in firsts)
    caption = TEXTS["risk_coverage"]["what"].format(areas=areas)
    chart = risk_coverage_chart({cell.line.lm: cell.risk_coverage for cell in firsts}, chosen=0.1)
    return [*figures, drawing_of("risk_coverage", fact_set, caption, chart)]


def parts_table(cells: Sequence[CellTrust], fact_set: str) -> StudyTable:
    """What is easy and what is hard: P@1 on parts of the facts, with their numbers; trivial partitions are omitted."""
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
            columns.append(Column(part, counted(int(counts.pop()), "fact") if len(counts) == 1 else ""))
            for row, of_cell in zip(rows, of_cells, strict=True):
                row.append(_part_cell(of_cell.get(part), with_facts=not columns[-1].note))
        groups.append(ColumnGroup(heading, tuple(columns)))
    draft = Draft()
    for (cell, begins), row in zip(headed(cells, lambda cell: cell.line.lm), rows, strict=True):
        draft.rows.append(Row(f"{cell.line.label}, {cell.kind}", tuple(row), begins))
        draft.records += [
            record(cell.line, cell.kind, f"P@1, {partition}: {part}", scores["P@1"])
            for partition in TEXTS["parts"]["columns"]
            for part, scores in cell.parts.get(partition, {}).items()
        ]
    return draft.finished("parts", fact_set, groups, _caption("parts", cells))


def _part_cell(scores: dict[str, int | float] | None, *, with_facts: bool) -> Cell:
    if scores is None:
        return MISSING
    return Cell(f"{scores['P@1']:.1f}", note=f"{scores['facts']}" if with_facts else "")
