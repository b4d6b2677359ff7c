"""The section "Can I believe this?": the figures as a table, and what they mean in plain sentences.

The table of scores in parts: what is easy and what is hard, and where a score comes from.
"""

from collections.abc import Sequence

from askwell.evaluation.partitions import EASY, HARD, SEEN, UNSEEN
from askwell.report.charts import reliability_chart, risk_coverage_chart
from askwell.report.figures import StudyFigure
from askwell.report.page import MISSING, Block, Cell, Column, ColumnGroup, Paragraph, Points, Row, Table
from askwell.report.rows import StudyTable, file_name, record
from askwell.report.trust import TOLD, WITHHELD, Belief

_CURVES = 4


def belief_table(beliefs: Sequence[Belief]) -> Table:
    """A row for each tuned cell."""
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
    rows, seen = [], set()
    for belief in beliefs:
        rows.append(
            Row(
                f"{belief.line.label}, {belief.kind}",
                tuple(_cells(belief)),
                begins="" if belief.line.lm in seen else belief.line.lm,
            )
        )
        seen.add(belief.line.lm)
    return Table(
        caption=_caption(beliefs),
        corner="prompts",
        groups=(ColumnGroup("", columns),),
        rows=tuple(rows),
    )


def belief_study_table(beliefs: Sequence[Belief], fact_set: str) -> StudyTable:
    """The table with its figures as plain records."""
    records = []
    for belief in beliefs:
        found = belief.knowledge
        hard = belief.parts.get("control", {}).get(HARD)
        figures = {
            "P@1": belief.score.mean,
            "P@1 of the best control": None if found is None else found.gain.control_score,
            "gain over the best control": None if found is None else found.gain.gain,
            "gain, low": None if found is None else found.gain.low,
            "gain, high": None if found is None else found.gain.high,
            "P@1 where no control is right": None if hard is None else hard["P@1"],
            "P@1 corrected by the prior": belief.corrected,
            "expected calibration error": 100 * belief.calibration.ece,
            "P@1 of the nearest words": belief.projected,
        }
        records += [record(belief.line, belief.kind, name, value) for name, value in figures.items()]
    name, title = file_name("believe", fact_set), f"{fact_set}: Can I believe this?"
    return StudyTable(name, title, belief_table(beliefs), tuple(records))


def sentences_of(belief: Belief) -> list[str]:
    """What the figures say, for a reader who is no statistician."""
    spread = "" if belief.score.deviation is None else f", give or take {belief.score.deviation:.1f} from seed to seed"
    told = [
        f"{belief.score.mean:.1f} % of {belief.facts} test facts are answered right{spread}; "
        f"{belief.left_out} more could not be asked."
    ]
    told += _about_knowledge(belief)
    told += _about_parts(belief)
    sure = belief.calibration
    gap = 100 * (sure.confidence - sure.accuracy)
    how = "about as sure as it should be" if abs(gap) < 5 else "too sure of itself" if gap > 0 else "too modest"
    told.append(
        f"It is {how}: its best answers have a probability of {100 * sure.confidence:.0f} % on average, and "
        f"{100 * sure.accuracy:.0f} % of them are right (expected calibration error {100 * sure.ece:.1f})."
    )
    if belief.answered is not None:
        questions, answered, wrong = belief.answered
        kept = f"of these {100 * wrong / answered:.0f} % are wrong" if answered else "none is given"
        told.append(
            f"If it may say that it does not know, with a threshold from dev that allows one wrong answer in ten, it "
            f"answers {100 * answered / questions:.0f} % of the questions, and {kept}."
        )
    if belief.agreement is not None:
        told.append(
            f"Two of its prompts, taken alone, give the same answer in {100 * belief.agreement:.0f} % of cases."
        )
    if belief.seeds is not None:
        told.append(
            f"Tuned again with another seed it gives the same answer to {100 * belief.seeds.same:.0f} % of questions."
        )
    if belief.projected is not None:
        told.append(
            f"The words nearest to its vectors, asked as a hard prompt, score {belief.projected:.1f}: read no more "
            "into these words than that."
        )
    if belief.leaked:
        told.append(f"{belief.leaked} test facts stand in train, too, and could be learned by heart.")
    return told


def belief_figures(beliefs: Sequence[Belief], fact_set: str) -> list[StudyFigure]:
    """The reliability diagram of the first of the beliefs of each LM, and their risk–coverage curves together."""
    firsts = list({belief.line.lm: belief for belief in reversed(beliefs)}.values())[::-1]
    figures = [
        StudyFigure(
            file_name("reliability", fact_set, belief.line.lm),
            f"{belief.label}: is it as sure as it is right?",
            f"{belief.label}, {belief.calibration.questions} questions: the share of right answers by the "
            f"probability of the best answer; expected calibration error {100 * belief.calibration.ece:.1f}.",
            reliability_chart(belief.calibration),
        )
        for belief in firsts[:_CURVES]
    ]
    curves = {belief.line.lm: belief.risk_coverage for belief in firsts[:_CURVES]}
    figures.append(
        StudyFigure(
            file_name("risk_coverage", fact_set),
            f"{fact_set}: how many answers are wrong if only the surest are given",
            "The share of wrong answers against the share of questions that are answered, the surest first: "
            + "; ".join(f"{belief.label}: area {100 * belief.risk_coverage.area:.1f}" for belief in firsts[:_CURVES])
            + ".",
            risk_coverage_chart(curves, chosen=0.1),
        )
    )
    return figures


def belief_blocks(beliefs: Sequence[Belief]) -> list[Block]:
    """The sentences of every row."""
    blocks: list[Block] = []
    for belief in beliefs:
        blocks += [Paragraph(belief.label), Points(tuple(sentences_of(belief)))]
    return blocks


def _about_knowledge(belief: Belief) -> list[str]:
    if belief.knowledge is None:
        return ["There is no control beside it, so how much of that is knowledge cannot be said."]
    gain = belief.knowledge.gain
    told = [
        f"Of all that needs no knowledge of the LM, {_named(gain.control)} is best on dev; it scores "
        f"{gain.control_score:.1f}."
    ]
    if belief.knowledge.is_there:
        told.append(
            f"So the LM knows something: {gain.gain:.1f} points of the score ({gain.low:.1f} to {gain.high:.1f}) are "
            "above what can be had without knowledge."
        )
    else:
        told.append(
            f"That is no sign of knowledge: the gain of {gain.gain:.1f} points ({gain.low:.1f} to {gain.high:.1f}) may "
            "be chance."
        )
    if belief.corrected is not None:
        told.append(f"With the prompts' own preference for some answers taken away it scores {belief.corrected:.1f}.")
    return told


def _about_parts(belief: Belief) -> list[str]:
    told = []
    control = belief.parts.get("control", {})
    if EASY in control and HARD in control:
        told.append(
            f"On the {control[HARD]['facts']:.0f} facts that no control answers it scores {control[HARD]['P@1']:.1f}, "
            f"on the {control[EASY]['facts']:.0f} easy ones {control[EASY]['P@1']:.1f}."
        )
    told_parts = belief.parts.get("told", {})
    if TOLD in told_parts and WITHHELD in told_parts:
        told.append(
            f"Here the truth is known: of the {told_parts[TOLD]['facts']:.0f} facts that the LM's text tells it "
            f"answers {told_parts[TOLD]['P@1']:.1f} %, of the {told_parts[WITHHELD]['facts']:.0f} that it withholds "
            f"{told_parts[WITHHELD]['P@1']:.1f} %."
        )
    seen = belief.parts.get("seen y", {})
    if SEEN in seen and UNSEEN in seen:
        told.append(
            f"Where the answer was never an answer in train ({seen[UNSEEN]['facts']:.0f} facts) it scores "
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


def _cells(belief: Belief) -> list[Cell]:
    found, hard = belief.knowledge, belief.parts.get("control", {}).get(HARD)
    known = [MISSING] * 3
    if found is not None:
        gain = found.gain
        known = [
            Cell(gain.control),
            Cell(f"{gain.control_score:.1f}"),
            Cell(f"{gain.gain:+.1f}", strong=found.is_there, note=f"{gain.low:.1f} to {gain.high:.1f}"),
        ]
    share = wrong = MISSING
    if belief.answered is not None:
        questions, answered, errors = belief.answered
        share = Cell(f"{100 * answered / questions:.1f}")
        wrong = Cell(f"{100 * errors / answered:.1f}") if answered else MISSING
    return [
        Cell(belief.score.text),
        *known,
        MISSING if hard is None else Cell(f"{hard['P@1']:.1f}"),
        _one(belief.corrected),
        Cell(f"{100 * belief.calibration.ece:.1f}"),
        share,
        wrong,
        _one(None if belief.agreement is None else 100 * belief.agreement),
        _one(belief.projected),
    ]


def _one(value: float | None) -> Cell:
    return MISSING if value is None else Cell(f"{value:.1f}")


def _caption(beliefs: Sequence[Belief]) -> str:
    facts = {belief.facts for belief in beliefs}
    asked = f"{min(facts)}" if len(facts) == 1 else f"{min(facts)} to {max(facts)}"
    left = {belief.left_out for belief in beliefs}
    out = f"{min(left)}" if len(left) == 1 else f"{min(left)} to {max(left)}"
    words = "; ".join(sorted({vocabulary for belief in beliefs for vocabulary in belief.vocabularies}))
    return (
        "How far the scores can be believed, in per cent, means over test facts (micro). Controls need no knowledge of "
        "the LM; the best of them is chosen on dev, and the gain over it is bold where its 95 % interval (bootstrap "
        "over ys) is above 0. ECE is the expected calibration error over questions; thresholds for a risk of 10 % are "
        "learned on dev; nearest words are asked as hard prompts in place of the tuned vectors. "
        f"{asked} test facts a row, {out} left out. Vocabulary: {words}."
    )


# By what facts are told apart, with a heading for the table, in its order.
_PARTITIONS = {
    "control": "by controls",
    "told": "in the LM's text",
    "seen y": "y in train",
    "y in x": "y inside x",
    "cardinality": "kind of relation",
    "frequency of y": "times that y stands in train",
    "length of x": "words of x",
}


def parts_table(beliefs: Sequence[Belief]) -> Table:
    """A row for each tuned cell, P@1 of each part with its number of facts; partitions of one part are left out."""
    groups, columns = [], []
    for partition, heading in _PARTITIONS.items():
        parts = _parts(beliefs, partition)
        if len(parts) > 1:
            groups.append(ColumnGroup(heading, tuple(_column(beliefs, partition, part) for part in parts)))
            columns += [(partition, part) for part in parts]
    rows, seen = [], set()
    for belief in beliefs:
        begins = "" if belief.line.lm in seen else belief.line.lm
        seen.add(belief.line.lm)
        rows.append(
            Row(
                f"{belief.line.label}, {belief.kind}",
                tuple(_cell(belief, beliefs, *at) for at in columns),
                begins=begins,
            )
        )
    words = "; ".join(sorted({vocabulary for belief in beliefs for vocabulary in belief.vocabularies}))
    return Table(
        caption=(
            "P@1 in parts of the test facts, in per cent, means over facts (micro), with the number of facts: of a "
            "column, where it is the same in all rows, else beside each score. Easy is what some control gets right. "
            f"Vocabulary: {words}."
        ),
        corner="prompts",
        groups=tuple(groups),
        rows=tuple(rows),
    )


def parts_study_table(beliefs: Sequence[Belief], fact_set: str) -> StudyTable:
    """The table with its figures as plain records."""
    records = [
        record(belief.line, belief.kind, f"P@1, {partition}: {part}", scores["P@1"])
        for belief in beliefs
        for partition in _PARTITIONS
        for part, scores in belief.parts.get(partition, {}).items()
    ]
    return StudyTable(
        file_name("parts", fact_set), f"{fact_set}: scores in parts", parts_table(beliefs), tuple(records)
    )


def _parts(beliefs: Sequence[Belief], partition: str) -> list[str]:
    """The parts of a partition that some cell has, in the order of the first that has most of them."""
    of_cells = sorted((list(belief.parts.get(partition, {})) for belief in beliefs), key=len, reverse=True)
    return list(dict.fromkeys(part for parts in of_cells for part in parts))


def _common_count(beliefs: Sequence[Belief], partition: str, part: str) -> str:
    """How many facts the part has, if that is the same in all rows that have it."""
    parts = [belief.parts.get(partition, {}).get(part) for belief in beliefs]
    counts = {f"{scores['facts']:.0f}" for scores in parts if scores is not None}
    return counts.pop() if len(counts) == 1 else ""


def _column(beliefs: Sequence[Belief], partition: str, part: str) -> Column:
    count = _common_count(beliefs, partition, part)
    return Column(part, f"{count} facts" if count else "")


def _cell(belief: Belief, beliefs: Sequence[Belief], partition: str, part: str) -> Cell:
    scores = belief.parts.get(partition, {}).get(part)
    if scores is None:
        return MISSING
    is_common = bool(_common_count(beliefs, partition, part))
    return Cell(f"{scores['P@1']:.1f}", note="" if is_common else f"{scores['facts']:.0f}")
