"""How objects show themselves: a few lines of text where they are printed, a small table in a notebook."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

_MOST_ROWS = 10
_CELL = "padding: 0.15em 0.8em; text-align: {}; vertical-align: top"


@dataclass(frozen=True)
class Summary:
    """The summary of an object: what to see at a glance."""

    heading: str
    columns: tuple[str, ...] = ()
    rows: Sequence[tuple[str, ...]] = ()
    numbers: tuple[str, ...] = ()
    """Columns that hold numbers: they are flush right."""
    notes: tuple[str, ...] = ()
    rows_left_out: int = 0
    """How many more rows there are than are given."""

    def text(self) -> str:
        """Return it as lines of text, columns aligned."""
        table = [self.columns, *self._shown] if self.rows else []
        widths = [max(len(row[column]) for row in table) for column in range(len(self.columns))] if table else []
        is_number = [name in self.numbers for name in self.columns]
        lines = [
            "  "
            + "  ".join(
                cell.rjust(width) if right else cell.ljust(width)
                for cell, width, right in zip(row, widths, is_number, strict=True)
            ).rstrip()
            for row in table
        ]
        more = [f"  … and {self._hidden} more"] if self._hidden else []
        return "\n".join([self.heading, *lines, *more, *(f"  {note}" for note in self.notes)])

    def html(self) -> str:
        """Return it as HTML for a notebook; all text is escaped."""
        aligned = ["right" if name in self.numbers else "left" for name in self.columns]

        def row(cells: Sequence[str], tag: str) -> str:
            inside = (
                f'<{tag} style="{_CELL.format(align)}">{escape(cell)}</{tag}>'
                for cell, align in zip(cells, aligned, strict=True)
            )
            return f"<tr>{''.join(inside)}</tr>"

        parts = [f"<p><strong>{escape(self.heading)}</strong></p>"]
        if self.rows:
            body = "".join(row(cells, "td") for cells in self._shown)
            parts.append(f"<table><thead>{row(self.columns, 'th')}</thead><tbody>{body}</tbody></table>")
        more = [f"… and {self._hidden} more"] if self._hidden else []
        parts += [f"<p><small>{escape(note)}</small></p>" for note in (*more, *self.notes)]
        return f"<div>{''.join(parts)}</div>"

    @property
    def _shown(self) -> Sequence[tuple[str, ...]]:
        return self.rows[:_MOST_ROWS]

    @property
    def _hidden(self) -> int:
        return len(self.rows) - len(self._shown) + self.rows_left_out


class ShowsItself:
    """Prints as its summary, and shows it as a table in a notebook."""

    def summary(self) -> Summary:
        """Return what is worth seeing at a glance."""
        raise NotImplementedError  # abstract: each class that is used has its own

    def __repr__(self) -> str:
        return self.summary().text()

    def _repr_html_(self) -> str:
        return self.summary().html()


def per_cent(share: float) -> str:
    """Return a probability or fraction as a percentage."""
    return f"{100 * share:.1f} %"


def counted(count: int, word: str) -> str:
    """Return a number with its noun."""
    return f"{count:,} {word}" if count == 1 else f"{count:,} {word}s"
