"""What is shown of two LMs compared fact by fact: a sentence, the flow of facts, what became of parts of them, the
facts that changed; and a list of such comparisons."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from askwell.evaluation.comparison import Comparison
from askwell.evaluation.significance import p_text
from askwell.evaluation.verdicts import STATES, VERDICTS, Answered, RocArea, State, Verdict, Verdicts, verdict_of
from askwell.files import write_all
from askwell.runs.diff_lms import Diff
from askwell.views.document import (
    Block,
    Cell,
    Column,
    ColumnGroup,
    Document,
    Drawing,
    Figure,
    Paragraph,
    Points,
    Row,
    Section,
    Table,
    headed,
    table,
)
from askwell.views.printable import NONE, counted
from askwell.views.to_html import page_files
from askwell.views.verdict_charts import PartRow, flow_chart, parts_chart

_MOST = 15
"""How many facts of each verdict are shown."""
_ROLES: dict[str, str] = {"kept": "first", "hidden": "second", "gone": "bad", "new": "good", "unknown": "pale"}
_KNOWN: tuple[Verdict, ...] = ("kept", "hidden", "gone")
_MEANS: dict[Verdict, str] = {
    "kept": "found as easily as before, or more easily",
    "hidden": "found by hand before, only by tuned prompts after",
    "gone": "found before, not found after",
    "new": "not found before, found after",
    "unknown": "found neither before nor after",
}
_STATES: dict[State, str] = {"by hand": "found by hand", "tuned only": "tuned prompts only", "not": "not found"}
_PARTS = {
    "relation": "relation",
    "kind of relation": "kind of relation",
    "words of y": "words of the answer",
    "frequency of y": "train facts with that answer",
    "made to forget": "made to forget",
}
_READING = (
    "By hand: the hard prompts, as they were given, rank the right answer first. Tuned: prompts do that were tuned on "
    "that LM with train facts; the facts on this page are none of those.",
    "Tuned prompts cannot teach an LM a fact that they were not tuned on, so what they find beyond guessing is in the "
    "LM. Guesses are counted in several ways, and the largest count is subtracted.",
    "That tuned prompts do not find a fact proves less: only these prompts were tuned, for this relation, and other "
    "ways of asking may find it.",
)


def diff_document(found: Diff) -> Document:
    """Return the page of two LMs compared."""
    verdicts, retained = found.verdicts, found.retained
    heading = "From before to after" if retained is None else "The facts to forget"
    sections = [Section(heading, tuple(_blocks(verdicts, "flow")))]
    sections += _parts_section(verdicts)
    if retained is not None:
        sentence = Paragraph(summary_sentence(retained, " to retain"))
        sections.append(Section("The facts to retain", (sentence, *_blocks(retained, "flow-retained"))))
    if verdicts.changed:
        sections.append(Section("Facts that changed", tuple(_changed_tables(verdicts))))
    sections.append(Section("How to read this page", (Points((*_READING, *found.notes)),)))
    lead = summary_sentence(verdicts, "" if retained is None else " to forget")
    about = (("Before", verdicts.before), ("After", verdicts.after), ("Asked about", _asked_about(verdicts)))
    return Document(f"From {verdicts.before} to {verdicts.after}", lead, about, tuple(sections))


def diffs_table(diffs: Mapping[str, Verdicts], links: Sequence[str]) -> Table:
    """Return a row for each comparison of two LMs, whose name is a link to its page."""
    rows = []
    for (name, one), link in zip(diffs.items(), links, strict=True):
        counts = [f"{one.verdicts[verdict].count} of {one.verdicts[verdict].of}" for verdict in _KNOWN]
        cells = (one.before, one.after, counts[0], counts[1], _interval(one), counts[2])
        rows.append(Row(name, tuple(map(Cell, cells)), link=link))
    names, numbers = ("before", "after"), ("kept", "hidden", "beyond guessing", "gone")
    columns = (*(Column(name, number=False) for name in names), *map(Column, numbers))
    return Table("Of the facts that the LM knew before.", "diff", (ColumnGroup("", columns),), tuple(rows))


def summary_sentence(verdicts: Verdicts, to: str = "") -> str:
    """Say in a sentence what became of the facts that BEFORE knew, which were " to forget" or " to retain"."""
    kept, hidden, gone = (verdicts.verdicts[verdict].count for verdict in _KNOWN)
    known = verdicts.verdicts["kept"].of
    if not known:
        return f"{verdicts.before} knows none of the {counted(verdicts.facts, 'fact')}{to}: there was nothing to lose."
    by_hand = sum(verdicts.table[state]["by hand"] for state in ("by hand", "tuned only"))
    told = f"Of {counted(known, 'fact')}{to} that {verdicts.before} knew, {verdicts.after} keeps {kept}"
    told += f" ({by_hand} by hand)" if by_hand != kept else " by hand"
    if hidden:
        them = "it" if hidden == 1 else "them"
        told += f"; {hidden} more {_are(hidden)} only hidden, since tuned prompts still find {them}: "
        told += f"{_interval(verdicts)} beyond guessing"
    else:
        told += "; none is hidden"
    return f"{told}; {gone} {_are(gone)} gone."


def _interval(verdicts: Verdicts) -> str:
    hidden = verdicts.hidden
    return f"{hidden.beyond:.0f} ({hidden.low:.0f} to {hidden.high:.0f})"


def _are(count: int) -> str:
    return "is" if count == 1 else "are"


def _asked_about(verdicts: Verdicts) -> str:
    names = list(verdicts.parts["relation"])
    of = names[0] if len(names) == 1 else counted(len(names), "relation")
    told = f"{counted(verdicts.facts, 'fact')} of {of}"
    never = sum((verdicts.never_told or {}).values())
    return told if not never else f"{told}, and {counted(never, 'fact')} that neither LM was ever told"


def _blocks(verdicts: Verdicts, name: str) -> list[Block]:
    flows = {
        _STATES[row]: {_STATES[column]: count for column, count in of.items()} for row, of in verdicts.table.items()
    }
    state_of = {shown: state for state, shown in _STATES.items()}

    def became(row: str, column: str) -> str:
        return verdict_of(state_of[row], state_of[column])

    flow = flow_chart(flows, became, _ROLES, left=f"before: {verdicts.before}", right=f"after: {verdicts.after}")
    caption = (
        "Each fact goes from how it was found before to how it is found after. By hand: by hard prompts. Tuned prompts "
        "only: by prompts that were tuned on that LM with other facts."
    )
    shown: list[Block] = [Figure((Drawing(name, flow),), caption), _state_table(verdicts), _share_table(verdicts)]
    shown.append(Points(tuple(_sentences(verdicts))))
    return shown + ([_roc_table(verdicts.roc)] if verdicts.roc else [])


def _state_table(verdicts: Verdicts) -> Table:
    """Return the flow as a table: a row for each state before, a column for each state after."""
    rows = tuple(
        Row(f"{_STATES[row]} before", tuple(Cell(str(verdicts.table[row][column])) for column in STATES))
        for row in STATES
    )
    groups = (ColumnGroup("", tuple(Column(f"{_STATES[state]} after") for state in STATES)),)
    return Table("", "facts", groups, rows, folded="The flow as a table")


def _share_table(verdicts: Verdicts) -> Table:
    rows, never = [], verdicts.never_told
    for verdict in VERDICTS:
        share = verdicts.verdicts[verdict]
        percent = f"{100 * share.count / share.of:.1f}" if share.of else NONE
        interval = f"{100 * share.low:.1f} to {100 * share.high:.1f}" if share.of else NONE
        guessed = NONE if share.guessed is None else f"{100 * share.guessed:.1f}"
        aside = [] if never is None else [f"{never[verdict]} of {sum(never.values())}"]
        cells = map(Cell, (f"{share.count} of {share.of}", percent, interval, guessed, *aside))
        rows.append(Row(verdict, tuple(cells), note=_MEANS[verdict]))
    numbers = ["facts", "%", f"{100 * verdicts.confidence:.0f} % interval", "by chance, %"]
    caption = (
        "Kept, hidden and gone are of the facts that were known before, new and unknown of the others. By chance: the "
        "same, if every right answer were replaced by a wrong one of the same relation, in % of all facts."
    )
    if never is not None:
        numbers.append("never told")
        caption += " Never told: facts that neither LM was ever told; they count nowhere else."
    return Table(caption, "verdict", (ColumnGroup("", tuple(map(Column, numbers))),), tuple(rows))


def _sentences(verdicts: Verdicts) -> list[str]:
    told = [_flips("By hand", verdicts.by_hand), _flips("Tuned", verdicts.tuned)]
    hidden = verdicts.hidden
    if hidden.at_risk:
        told.append(
            f"{counted(hidden.at_risk, 'fact')} {'was' if hidden.at_risk == 1 else 'were'} found by hand before and "
            f"not after. Tuned prompts find {hidden.hidden} of them; without knowing them they would find "
            f"{hidden.guesses:.1f}, judged by {hidden.control}. Beyond guessing: {hidden.beyond:.1f} "
            f"({100 * verdicts.confidence:.0f} % interval {hidden.low:.1f} to {hidden.high:.1f})."
        )
    lost = [one for one in verdicts.changed if one.before == "by hand" and one.after != "by hand"]
    carried = [one.carried_over for one in lost if one.carried_over is not None]
    if carried:
        told.append(
            f"The prompts that were tuned on the LM before, asked of the LM after, find {sum(carried)} of them."
        )
    left = verdicts.only_before + verdicts.only_after
    told += [f"{counted(left, 'fact')} that only one of the LMs could be asked are left out."] if left else []
    return told


def _flips(what: str, comparison: Comparison) -> str:
    return (
        f"{what}: {comparison.micro.b:.1f} % of all facts before, {comparison.micro.a:.1f} % after; "
        f"{comparison.losses} right only before, {comparison.wins} only after "
        f"(permutation test p = {p_text(comparison.micro.p)})."
    )


def _roc_table(areas: Sequence[RocArea]) -> Table:
    rows = [
        (one.by, f"{one.area:.2f}", f"{one.low:.2f} to {one.high:.2f}", str(one.forgotten), str(one.never_told))
        for one in areas
    ]
    numbers = ("area", "interval", "forgotten", "never told")
    caption = (
        "The area under the ROC curve between facts that the LM was made to forget and facts that it was never told: "
        "how often one of the former has the higher score. 0.5 if the score cannot tell them apart; below 0.5, "
        "forgotten answers are avoided, which betrays them as well."
    )
    title = "Can forgotten facts be told from facts that were never told?"
    return table(("by the score", *numbers), rows, numbers=numbers, title=title, caption=caption)


def _parts_section(verdicts: Verdicts) -> list[Section]:
    """Return what became of parts of the facts that were known before, where there is more than one part."""
    parts = [
        (_PARTS[name], label, of)
        for name, found in verdicts.parts.items()
        for label, of in found.items()
        if len(found) > 1
    ]
    known = [part for part in parts if any(part[2][verdict] for verdict in _KNOWN)]
    if not known:
        return []
    bars = [
        PartRow(label.rpartition(":")[2], {verdict: of[verdict] for verdict in _KNOWN}, begins)
        for (_, label, of), begins in headed(known, lambda part: part[0])
    ]
    roles: dict[str, str] = {verdict: _ROLES[verdict] for verdict in _KNOWN}
    chart = parts_chart(bars, roles, measure="of the facts that were known before")
    caption = "What became of the facts that were known before, in parts; the numbers are facts."
    counts = tuple(
        Row(label, tuple(Cell(str(of[verdict])) for verdict in VERDICTS), begins)
        for (_, label, of), begins in headed(parts, lambda part: part[0])
    )
    groups = (ColumnGroup("", tuple(map(Column, VERDICTS))),)
    numbers = Table("", "facts", groups, counts, folded="The same as a table, with all verdicts")
    return [Section("By relation, answer and frequency", (Figure((Drawing("parts", chart),), caption), numbers))]


def _changed_tables(verdicts: Verdicts) -> list[Table]:
    """Return the facts of each verdict, with what both LMs answered; kept ones are those that came within reach."""
    several = len(verdicts.parts["relation"]) > 1
    names = ("right answer", *(["relation"] if several else []))
    groups = (
        ColumnGroup("", tuple(Column(name, number=False) for name in names)),
        *(
            ColumnGroup(side, tuple(Column(way, number=False) for way in ("by hand", "tuned")))
            for side in ("before", "after")
        ),
    )
    tables = []
    for verdict in dict.fromkeys(one.verdict for one in verdicts.changed):
        facts = [one for one in verdicts.changed if one.verdict == verdict]
        rows = tuple(_changed_row(one, several) for one in facts[:_MOST])
        what = (
            "Kept, and found by hand only after" if verdict == "kept" else f"{verdict.capitalize()}: {_MEANS[verdict]}"
        )
        tables.append(Table("", "x", groups, rows, f"{what} ({len(facts)})", more=len(facts) - len(rows)))
    return tables


def _changed_row(one: Answered, several: bool) -> Row:
    answers = (*one.before_answers, *one.after_answers)
    shown = [
        Cell(answer or NONE, mark="right" if right else "") for answer, right in zip(answers, one.right, strict=True)
    ]
    return Row(one.x, (Cell(one.y), *([Cell(one.relation)] if several else []), *shown))


def write_diff(found: Diff, folder: Path) -> list[Path]:
    """Write the page as HTML and Markdown, with its figures; return the paths."""
    contents = page_files(diff_document(found), "diff", as_png=True)
    write_all({folder / name: content for name, content in contents.items()})
    return [folder / name for name in contents]
