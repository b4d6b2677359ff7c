"""The answers to an x, as tables."""

from collections.abc import Sequence

from askwell.answers.reply import PromptReply, Reply
from askwell.views.document import Cell, Column, ColumnGroup, Row, Table, table
from askwell.views.printable import per_cent

_BAR = 20


def reply_table(x: str, replies: Sequence[Reply], templates: Sequence[str]) -> Table:
    """Return the answers to x with bars, and the most confident prompt for each."""
    rows = []
    for reply in replies:
        most_confident = max(range(len(reply.by_prompt)), key=reply.by_prompt.__getitem__)
        bar = Cell("█" * round(_BAR * reply.probability), mark="bar")
        rows.append(Row(reply.y, (Cell(per_cent(reply.probability)), bar, Cell(templates[most_confident]))))
    columns = (
        Column("probability"),
        Column("", number=False),
        Column("most confident prompt", pale=True, number=False),
    )
    return Table("", "answer", (ColumnGroup("", columns),), tuple(rows), title=x)


def prompt_replies_table(replies: Sequence[PromptReply]) -> Table:
    """Return what each prompt answers by itself, the one with the largest weight first."""
    rows = [
        (per_cent(one.weight), one.template, Cell(one.y, strong=True), per_cent(one.probability))
        for one in sorted(replies, key=lambda one: -one.weight)
    ]
    headings = ("weight", "prompt", "answer by itself", "probability")
    return table(headings, rows, numbers=("weight", "probability"))
