"""What is shown of two LMs compared fact by fact: a sentence, the flow of facts, tables, and the facts that changed."""

from collections.abc import Mapping
from pathlib import Path

from askwell.evaluation.comparison import Comparison
from askwell.evaluation.verdicts import STATES, VERDICTS, Answered, Verdict, Verdicts
from askwell.files import write_all
from askwell.runs.diff import Diff
from askwell.views.charts import Gap, gaps_chart
from askwell.views.document import Block, Cell, Document, Drawing, Figure, Paragraph, Section, Table, table
from askwell.views.flow_chart import flow_chart
from askwell.views.printable import NONE, counted
from askwell.views.to_files import markdown_escaped, markdown_section
from askwell.views.to_html import page_html

_MOST = 40
_PROVES = (
    "A fact that tuned prompts find is still in the LM. That they do not find one proves less: only these prompts were "
    "tuned, for this relation, and other ways of asking may find it."
)


def diff_document(found: Diff) -> Document:
    """Return the page of two LMs compared."""
    verdicts = found.verdicts
    heading = "The facts to forget" if found.retained is not None else "What became of the facts"
    sections = [Section(heading, tuple(_blocks(verdicts, "flow")))]
    if found.retained is not None:
        sections.append(Section("The facts to retain", tuple(_blocks(found.retained, "flow-retained"))))
    if verdicts.changed:
        sections.append(Section("Facts that changed", (_changed_table(verdicts),)))
    sections.append(Section("What this shows", tuple(map(Paragraph, (_PROVES, *found.notes)))))
    title = f"{verdicts.before} against {verdicts.after}"
    return Document(title, sections=tuple(sections))


def summary_sentence(verdicts: Verdicts) -> str:
    """Say in a sentence what became of the facts that BEFORE knew."""
    kept, hidden, gone = (verdicts.verdicts[one].count for one in ("kept", "hidden", "gone"))
    known = verdicts.verdicts["kept"].of
    if not known:
        return f"{verdicts.before} knows none of the {counted(verdicts.facts, 'fact')}, so there was nothing to lose."
    by_hand = sum(verdicts.table[state]["by hand"] for state in ("by hand", "tuned only"))
    beyond = verdicts.hidden
    told = f"Of {counted(known, 'fact')} that {verdicts.before} knew, {verdicts.after} keeps {kept}"
    told += f" ({by_hand} by hand)" if by_hand != kept else " by hand"
    interval = f"{beyond.beyond:.0f} beyond guessing ({beyond.low:.0f} to {beyond.high:.0f})"
    return f"{told}; {hidden} more are only hidden: {interval}; {gone} are gone."


def _blocks(verdicts: Verdicts, name: str) -> list[Block]:
    flow = flow_chart({row: {**of} for row, of in verdicts.table.items()}, left=verdicts.before, right=verdicts.after)
    caption = "By hand: found by hard prompts. Tuned only: found only by prompts tuned on that LM with other facts."
    shown: list[Block] = [Paragraph(summary_sentence(verdicts)), Figure((Drawing(name, flow),), caption)]
    shown += [_state_table(verdicts), _share_table(verdicts)]
    shown += map(Paragraph, _sentences(verdicts))
    for what, parts in verdicts.parts.items():
        if len(parts) > 1:
            shown.append(_part_table(what, parts))
    if len(relations := verdicts.parts["relation"]) > 1:
        gaps = [
            Gap(relation.rpartition(":")[2][:40], _of(of, ("kept",)), _of(of, ("kept", "hidden")))
            for relation, of in relations.items()
        ]
        chart = gaps_chart(gaps, first="kept", second="kept or hidden", measure="facts that BEFORE knew")
        shown.append(Figure((Drawing(f"{name}-relations", chart),), "By relation, in % of the facts that BEFORE knew."))
    return shown


def _of(counts: Mapping[Verdict, int], wanted: tuple[Verdict, ...]) -> float | None:
    known = sum(counts[one] for one in ("kept", "hidden", "gone"))
    return 100 * sum(counts[one] for one in wanted) / known if known else None


def _state_table(verdicts: Verdicts) -> Table:
    rows = [(f"{row} before", *(str(verdicts.table[row][column]) for column in STATES)) for row in STATES]
    headings = [f"{state} after" for state in STATES]
    return table(("facts", *headings), rows, numbers=headings)


def _share_table(verdicts: Verdicts) -> Table:
    rows = []
    for verdict in VERDICTS:
        share = verdicts.verdicts[verdict]
        never = verdicts.never_told
        aside = NONE if never is None else f"{never[verdict]} of {sum(never.values())}"
        percent = f"{100 * share.count / share.of:.1f}" if share.of else NONE
        interval = f"{100 * share.low:.1f} to {100 * share.high:.1f}" if share.of else NONE
        guessed = NONE if share.guessed is None else f"{100 * share.guessed:.1f}"
        rows.append((verdict, f"{share.count} of {share.of}", percent, interval, guessed, aside))
    headings = ("facts", "%", f"{100 * verdicts.confidence:.0f} % interval", "wrong ys, %", "never told")
    caption = (
        "Shares of kept, hidden and gone are of the facts that BEFORE knew, of new and unknown of the others. Wrong "
        "ys: the same verdict for wrong ys of the relation, in % of all x's. Never told: neither LM was told them."
    )
    return table(("verdict", *headings), rows, numbers=headings, caption=caption)


def _sentences(verdicts: Verdicts) -> list[str]:
    hidden = verdicts.hidden
    told = [
        f"Of {counted(hidden.at_risk, 'fact')} found by hand before and not after, tuned prompts find {hidden.hidden}; "
        f"guessing would find {hidden.guesses:.1f}, by {hidden.control}. Beyond guessing: {hidden.beyond:.1f} "
        f"({hidden.low:.1f} to {hidden.high:.1f})."
    ]
    told += [_flips("Hard prompts", verdicts.by_hand), _flips("Tuned prompts", verdicts.tuned)]
    carried = [one for one in verdicts.changed if one.carried_over is not None and one.before == "by hand"]
    if carried:
        found = sum(one.carried_over is True for one in carried)
        told.append(f"Of the changed facts that were found by hand, BEFORE's own tuned prompts find {found} in AFTER.")
    for area in verdicts.roc:
        told.append(
            f"ROC area between {area.forgotten} forgotten and {area.never_told} never told facts, by "
            f"{area.by}: {area.area:.2f} ({area.low:.2f} to {area.high:.2f}); 0.5 if they cannot be told apart."
        )
    left = verdicts.only_before + verdicts.only_after
    told += [f"{counted(left, 'fact')} that only one of the LMs could be asked are left out."] if left else []
    return told


def _flips(what: str, comparison: Comparison) -> str:
    p = comparison.micro.p
    return (
        f"{what}: P@1 {comparison.micro.b:.1f} before, {comparison.micro.a:.1f} after; {comparison.losses} right only "
        f"before, {comparison.wins} only after (permutation test p = {f'{p:.3f}' if p >= 0.001 else f'{p:.1g}'})."
    )


def _part_table(what: str, parts: Mapping[str, Mapping[Verdict, int]]) -> Table:
    rows = [(name, *(str(of[verdict]) for verdict in VERDICTS)) for name, of in parts.items()]
    return table((what, *VERDICTS), rows, numbers=VERDICTS)


def _changed_table(verdicts: Verdicts) -> Table:
    several = len(verdicts.parts["relation"]) > 1
    rows = [_changed_row(one, several) for one in verdicts.changed[:_MOST]]
    names = ("x", "y", *(["relation"] if several else []), "verdict")
    names += ("before, by hand", "before, tuned", "after, by hand", "after, tuned")
    title = f"{len(rows)} of {counted(len(verdicts.changed), 'fact')}"
    return table(names, rows, title=title, more=len(verdicts.changed) - len(rows))


def _changed_row(one: Answered, several: bool) -> tuple[str | Cell, ...]:
    by_hand = [answer for pair in (one.before_answers, one.after_answers) for answer in pair]
    cells = (Cell(answer or NONE, mark="right" if answer == one.y else "") for answer in by_hand)
    return (one.x, one.y, *([one.relation] if several else []), one.verdict, *cells)


def write_diff(found: Diff, folder: Path) -> list[Path]:
    """Write the page as HTML and Markdown, with its figures; return the paths."""
    document = diff_document(found)
    title = f"# {markdown_escaped(document.title)}\n"
    contents: dict[str, str | bytes] = {
        "diff.html": page_html(document),
        "diff.md": "\n".join([title, *map(markdown_section, document.sections)]),
    }
    for block in document.blocks:
        for drawing in block.drawings if isinstance(block, Figure) else ():
            contents[f"figures/{drawing.name}.svg"] = drawing.chart.svg()
            contents[f"figures/{drawing.name}.png"] = drawing.chart.png()
    write_all({folder / name: content for name, content in contents.items()})
    return [folder / name for name in contents]
