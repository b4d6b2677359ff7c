"""The section "Can I believe this?": the figures as tables, charts, and plain sentences on what they mean."""

from collections.abc import Sequence

from askwell.evaluation.partitions import EASY, HARD, SEEN, UNSEEN
from askwell.report.charts import reliability_chart, risk_coverage_chart
from askwell.report.figures import StudyFigure
from askwell.report.page import MISSING, Block, Cell, Column, ColumnGroup, Paragraph, Points, Row, Table
from askwell.report.rows import StudyTable, file_name, headed, record, span
from askwell.report.trust import TOLD, WITHHELD, CellTrust

_CURVES = 4


def trust_table(cells: Sequence[CellTrust], fact_set: str) -> StudyTable:
    """One row per tuned cell."""
    columns = (
        Column("P@1"),
        Column("best control", "chosen on dev"),
        Column("its P@1"),
        Column("gain", "95 % interval"),
        Column("hard", "no control is right"),
        Column("corrected", "by the prior"),
        Column("ECE"),
        Column("answered", "at 10 % risk"),
        Column("wrong", "of these"),
        Column("prompts agree"),
        Column("nearest words"),
    )
    rows = [
        Row(f"{cell.line.label}, {cell.kind}", tuple(_figures(cell)), begins=begins)
        for cell, begins in headed(cells, lambda cell: cell.line.lm)
    ]
    records = []
    for cell in cells:
        found, hard = cell.knowledge, cell.parts.get("control", {}).get(HARD)
        figures = {
            "P@1": cell.score.mean,
            "P@1 of the best control": None if found is None else found.gain.control_score,
            "gain over the best control": None if found is None else found.gain.gain,
            "gain, low": None if found is None else found.gain.low,
            "gain, high": None if found is None else found.gain.high,
            "P@1 where no control is right": None if hard is None else hard["P@1"],
            "P@1 corrected by the prior": cell.corrected,
            "expected calibration error": 100 * cell.calibration.ece,
            "P@1 of the nearest words": cell.projected,
        }
        records += [record(cell.line, cell.kind, name, value) for name, value in figures.items()]
    return StudyTable(
        file_name("believe", fact_set),
        f"{fact_set}: Can I believe this?",
        Table(_caption(cells), "prompts", (ColumnGroup("", columns),), tuple(rows)),
        tuple(records),
    )


def sentences_of(cell: CellTrust) -> list[str]:
    """What the figures say, for readers who are not statisticians."""
    spread = "" if cell.score.deviation is None else f", give or take {cell.score.deviation:.1f} from seed to seed"
    told = [
        f"{cell.score.mean:.1f} % of {cell.facts} test facts are answered correctly{spread}; "
        f"{cell.left_out} more could not be asked."
    ]
    told += _about_knowledge(cell)
    told += _about_parts(cell)
    sure = cell.calibration
    gap = 100 * (sure.confidence - sure.accuracy)
    how = "well calibrated" if abs(gap) < 5 else "overconfident" if gap > 0 else "underconfident"
    told.append(
        f"It is {how}: its best answers have a probability of {100 * sure.confidence:.0f} % on average, and "
        f"{100 * sure.accuracy:.0f} % of them are right (expected calibration error {100 * sure.ece:.1f})."
    )
    if cell.answered is not None:
        questions, answered, wrong = cell.answered
        kept = f"{100 * wrong / answered:.0f} % of these answers are wrong" if answered else "so makes no mistake"
        told.append(
            f"If it may say that it does not know, with a threshold from dev that allows one wrong answer in ten, it "
            f"answers {100 * answered / questions:.0f} % of the questions, and {kept}."
        )
    if cell.agreement is not None:
        told.append(f"Two of its prompts, taken alone, give the same answer in {100 * cell.agreement:.0f} % of cases.")
    if cell.seeds is not None:
        told.append(
            f"Tuned again with another seed, it gives the same answer to {100 * cell.seeds.same:.0f} % of questions."
        )
    if cell.projected is not None:
        told.append(
            f"The words nearest to its vectors, asked as a hard prompt, score {cell.projected:.1f}: read no more "
            "into these words than that."
        )
    if cell.leaked:
        told.append(f"{cell.leaked} test facts also appear in train and could be learned by heart.")
    return told


def trust_figures(cells: Sequence[CellTrust], fact_set: str) -> list[StudyFigure]:
    """The reliability diagram of each LM's first cell, and the risk–coverage curves of these cells together."""
    firsts = list({cell.line.lm: cell for cell in reversed(cells)}.values())[::-1]
    figures = [
        StudyFigure(
            file_name("reliability", fact_set, cell.line.lm),
            f"{cell.label}: is its confidence justified?",
            f"{cell.label}, {cell.calibration.questions} questions: the fraction of right answers by the "
            f"probability of the best answer; expected calibration error {100 * cell.calibration.ece:.1f}.",
            reliability_chart(cell.calibration),
        )
        for cell in firsts[:_CURVES]
    ]
    curves = {cell.line.lm: cell.risk_coverage for cell in firsts[:_CURVES]}
    figures.append(
        StudyFigure(
            file_name("risk_coverage", fact_set),
            f"{fact_set}: how many answers are wrong if only the most confident are given",
            "The fraction of wrong answers against coverage, the fraction of questions answered, most confident first: "
            + "; ".join(f"{cell.label}: area {100 * cell.risk_coverage.area:.1f}" for cell in firsts[:_CURVES])
            + ".",
            risk_coverage_chart(curves, chosen=0.1),
        )
    )
    return figures


def trust_blocks(cells: Sequence[CellTrust]) -> list[Block]:
    """The sentences for every row."""
    blocks: list[Block] = []
    for cell in cells:
        blocks += [Paragraph(cell.label), Points(tuple(sentences_of(cell)))]
    return blocks


def _about_knowledge(cell: CellTrust) -> list[str]:
    if cell.knowledge is None:
        return ["There is no control to compare it with, so it cannot be said how much of that is knowledge."]
    gain = cell.knowledge.gain
    told = [
        f"Of the controls, which need no knowledge of the LM, {_named(gain.control)} is best on dev; on test it scores "
        f"{gain.control_score:.1f}."
    ]
    if cell.knowledge.is_there:
        told.append(
            f"So the LM knows something: {gain.gain:.1f} points of the score ({gain.low:.1f} to {gain.high:.1f}) are "
            "above what can be reached without knowledge."
        )
    else:
        told.append(
            f"That is no sign of knowledge: the gain of {gain.gain:.1f} points ({gain.low:.1f} to {gain.high:.1f}) may "
            "be chance."
        )
    if cell.corrected is not None:
        told.append(f"With the prompts' own preference for some answers removed, it scores {cell.corrected:.1f}.")
    return told


def _about_parts(cell: CellTrust) -> list[str]:
    told = []
    control = cell.parts.get("control", {})
    if EASY in control and HARD in control:
        told.append(
            f"On the {control[HARD]['facts']:.0f} facts that no control answers, it scores {control[HARD]['P@1']:.1f}, "
            f"on the {control[EASY]['facts']:.0f} easy ones {control[EASY]['P@1']:.1f}."
        )
    told_parts = cell.parts.get("told", {})
    if TOLD in told_parts and WITHHELD in told_parts:
        told.append(
            f"Here the truth is known: of the {told_parts[TOLD]['facts']:.0f} facts that the LM's text tells, it "
            f"answers {told_parts[TOLD]['P@1']:.1f} % correctly, of the {told_parts[WITHHELD]['facts']:.0f} that it "
            f"withholds, {told_parts[WITHHELD]['P@1']:.1f} %."
        )
    seen = cell.parts.get("seen y", {})
    if SEEN in seen and UNSEEN in seen:
        told.append(
            f"Where the answer was never an answer in train ({seen[UNSEEN]['facts']:.0f} facts), it scores "
            f"{seen[UNSEEN]['P@1']:.1f}, elsewhere {seen[SEEN]['P@1']:.1f}."
        )
    return told


def _named(control: str) -> str:
    return {
        "majority": "always giving the most frequent answers of train",
        "prior": "the prompts' average answer, whatever x is,",
        "prior-masked-x": "the prompts' answer to a masked x",
        "random-weights": "the same tuning on an LM with random weights",
        "random-embeddings": "the same tuning on the LM with random word vectors",
    }.get(control, control)


def _figures(cell: CellTrust) -> list[Cell]:
    found, hard = cell.knowledge, cell.parts.get("control", {}).get(HARD)
    known = [MISSING] * 3
    if found is not None:
        gain = found.gain
        known = [
            Cell(gain.control),
            Cell(f"{gain.control_score:.1f}"),
            Cell(f"{gain.gain:+.1f}", strong=found.is_there, note=f"{gain.low:.1f} to {gain.high:.1f}"),
        ]
    share = wrong = MISSING
    if cell.answered is not None:
        questions, answered, errors = cell.answered
        share = Cell(f"{100 * answered / questions:.1f}")
        wrong = Cell(f"{100 * errors / answered:.1f}") if answered else MISSING
    return [
        Cell(cell.score.text),
        *known,
        MISSING if hard is None else Cell(f"{hard['P@1']:.1f}"),
        _one(cell.corrected),
        Cell(f"{100 * cell.calibration.ece:.1f}"),
        share,
        wrong,
        _one(None if cell.agreement is None else 100 * cell.agreement),
        _one(cell.projected),
    ]


def _one(value: float | None) -> Cell:
    return MISSING if value is None else Cell(f"{value:.1f}")


def _caption(cells: Sequence[CellTrust]) -> str:
    return (
        "How far the scores can be trusted, in per cent, means over test facts (micro). Controls need no knowledge of "
        "the LM; the best of them is chosen on dev, and the gain over it is bold where its 95 % interval (bootstrap "
        "over ys) is above 0. ECE is the expected calibration error over questions; thresholds for a risk of 10 % are "
        "learned on dev; nearest words are asked as hard prompts in place of the tuned vectors. "
        f"{span([cell.facts for cell in cells])} test facts per row, {span([cell.left_out for cell in cells])} left "
        f"out. Vocabulary: {_vocabularies(cells)}."
    )


def _vocabularies(cells: Sequence[CellTrust]) -> str:
    return "; ".join(sorted({vocabulary for cell in cells for vocabulary in cell.vocabularies}))


# How facts are partitioned, with a heading for the table, in its order.
_PARTITIONS = {
    "control": "by controls",
    "told": "in the LM's text",
    "seen y": "y in train",
    "y in x": "y inside x",
    "cardinality": "kind of relation",
    "frequency of y": "occurrences of y in train",
    "length of x": "words in x",
}


def parts_table(cells: Sequence[CellTrust], fact_set: str) -> StudyTable:
    """What is easy and what is hard: P@1 on parts of the facts, with their numbers; trivial partitions are omitted."""
    groups, columns = [], []
    for partition, heading in _PARTITIONS.items():
        parts = _parts(cells, partition)
        if len(parts) > 1:
            groups.append(ColumnGroup(heading, tuple(_column(cells, partition, part) for part in parts)))
            columns += [(partition, part) for part in parts]
    rows = [
        Row(f"{cell.line.label}, {cell.kind}", tuple(_cell(cell, cells, *at) for at in columns), begins=begins)
        for cell, begins in headed(cells, lambda cell: cell.line.lm)
    ]
    records = [
        record(cell.line, cell.kind, f"P@1, {partition}: {part}", scores["P@1"])
        for cell in cells
        for partition in _PARTITIONS
        for part, scores in cell.parts.get(partition, {}).items()
    ]
    caption = (
        "P@1 on parts of the test facts, in per cent, means over facts (micro). The number of facts is given in the "
        "column's heading if it is the same in all rows, otherwise beside each score. Easy facts are those that "
        f"some control gets right. Vocabulary: {_vocabularies(cells)}."
    )
    return StudyTable(
        file_name("parts", fact_set),
        f"{fact_set}: scores in parts",
        Table(caption, "prompts", tuple(groups), tuple(rows)),
        tuple(records),
    )


def _parts(cells: Sequence[CellTrust], partition: str) -> list[str]:
    """The parts of a partition that some cell has, in the order of the first cell that has most of them."""
    of_cells = sorted((list(cell.parts.get(partition, {})) for cell in cells), key=len, reverse=True)
    return list(dict.fromkeys(part for parts in of_cells for part in parts))


def _common_count(cells: Sequence[CellTrust], partition: str, part: str) -> str:
    """How many facts the part has, if that is the same in all rows that have it."""
    parts = [cell.parts.get(partition, {}).get(part) for cell in cells]
    counts = {f"{scores['facts']:.0f}" for scores in parts if scores is not None}
    return counts.pop() if len(counts) == 1 else ""


def _column(cells: Sequence[CellTrust], partition: str, part: str) -> Column:
    count = _common_count(cells, partition, part)
    return Column(part, f"{count} facts" if count else "")


def _cell(cell: CellTrust, cells: Sequence[CellTrust], partition: str, part: str) -> Cell:
    scores = cell.parts.get(partition, {}).get(part)
    if scores is None:
        return MISSING
    is_common = bool(_common_count(cells, partition, part))
    return Cell(f"{scores['P@1']:.1f}", note="" if is_common else f"{scores['facts']:.0f}")
