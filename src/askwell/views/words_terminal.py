"""Soft prompts in a terminal: columns of tuned words in blue above original words in red."""

from collections.abc import Sequence

from rich.cells import cell_len
from rich.console import Console
from rich.style import Style
from rich.text import Text

from askwell.views.words import TIE, BlankPlace, PromptToken, PromptWords, copy_of, notes_on_all, notes_on_prompt
from askwell.views.words_figure import BLUE, RED, faded, in_lines, probability_figure, weight_figure

LONGER, SHORTER = 1.1, 0.9
"""A word whose |v| / |v0| is above the first is set in bold, below the second in italics."""
_BAR_CELLS = 10
_GAP = 2


def print_words(prompts: Sequence[PromptWords], console: Console, *, numbers: bool = False) -> None:
    """Prints the prompts, each as a weight and lines of words, and a legend.

    `numbers` adds each word's probability and each vector's growth; a console without colours always gets them.
    """
    has_colours = console.color_system is not None and not console.no_color
    drawing = _Drawing(console, numbers or not has_colours)
    heaviest = max((prompt.weight for prompt in prompts), default=0.0)
    for prompt in prompts:
        drawing.block(prompt, heaviest)
    drawing.legend(prompts, has_colours)


class _Drawing:
    def __init__(self, console: Console, with_numbers: bool) -> None:
        self._console, self._with_numbers = console, with_numbers
        self._labels = ["tuned", "p", "size", "original", "p"] if with_numbers else ["tuned", "original"]
        self._indent = max(map(len, self._labels)) + _GAP

    def block(self, prompt: PromptWords, heaviest: float) -> None:
        """One prompt."""
        heading = Text(f"{weight_figure(prompt.weight)} ", "bold")
        heading.append(self._bar(prompt.weight / heaviest if heaviest else 0.0), f"not bold {faded(BLUE, 0.0)}")
        heading.append(f" {copy_of(prompt)}".rstrip(), "not bold")
        self._print(heading)
        room = self._console.width - self._indent
        for line in prompt.lines:
            for columns in in_lines(map(self._column, line), room, _width, lambda _: _GAP):
                for row, label in enumerate(self._labels):
                    if row == 0 or any(column[row].plain for column in columns):
                        self._print(self._row(label, columns, row))
        for note in notes_on_prompt(prompt):
            self._print_prose(Text(self._writable(note), "italic"))
        self._console.print()

    def legend(self, prompts: Sequence[PromptWords], has_colours: bool) -> None:
        """What colours, bold and italics mean, and what words cannot show."""
        tuned, original = Text("tuned", faded(BLUE, 1.0)), Text("original", faded(RED, 1.0))
        legend = Text.assemble(tuned, ": the word w with the highest p(w | v), above the ", original, " word w0")
        legend.append(" where the two differ. ")
        if has_colours:
            legend.append("The greyer a word, the lower its ").append("p(w | v)", faded(BLUE, 1.0))
            legend.append(" or ").append("p(w0 | v)", faded(RED, 1.0)).append(", down to chance. ")
        if self._with_numbers:
            legend.append("size: |v| / |v0|. ")
        if has_colours:
            legend.append("Bold", "bold").append(f": |v| / |v0| is above {LONGER}; ")
            legend.append("italics", "italic").append(f": below {SHORTER}. ")
        legend.append("The bars show each weight relative to the heaviest prompt's.")
        self._print_prose(legend)
        for note in notes_on_all(prompts):
            self._print_prose(Text(self._writable(note)))

    def _column(self, item: PromptToken | BlankPlace) -> list[Text]:
        """The cells of one item, from top to bottom."""
        if isinstance(item, BlankPlace):
            return [Text(self._writable(item.shown), "bold"), *[Text("")] * (len(self._labels) - 1)]
        size = Style(bold=_is_above(item.size_ratio, LONGER), italic=not _is_above(item.size_ratio, SHORTER))
        tuned = Text(self._writable(item.tuned.shown), Style(color=faded(BLUE, item.tuned.brightness)) + size)
        original = Text(self._writable(item.original.shown), Style(color=faded(RED, item.original.brightness)))
        p_of_original = Text(probability_figure(item.original.p))
        if item.is_same_word:
            original = p_of_original = Text("")
        if not self._with_numbers:
            return [tuned, original]
        growth = Text("" if item.size_ratio is None else self._writable(f"×{item.size_ratio:.2f}"))
        return [tuned, Text(probability_figure(item.tuned.p)), growth, original, p_of_original]

    def _row(self, label: str, columns: list[list[Text]], row: int) -> Text:
        text = Text(label.ljust(self._indent), "none")
        for column in columns:
            text.append_text(column[row]).append(" " * (_width(column) - column[row].cell_len + _GAP))
        text.rstrip()
        return text

    def _bar(self, share: float) -> str:
        eighths = max(1, round(share * _BAR_CELLS * 8)) if share else 0
        bar = "█" * (eighths // 8) + " ▏▎▍▌▋▊▉"[eighths % 8].strip()
        return bar if self._can_write(bar) else "#" * round(share * _BAR_CELLS)

    def _writable(self, text: str) -> str:
        """The text in characters that the console can encode."""
        if not self._can_write(text):
            text = text.replace(TIE, "##").replace("Δ", "delta").replace("×", "x")
        return text.encode(self._console.encoding, "backslashreplace").decode(self._console.encoding)

    def _can_write(self, text: str) -> bool:
        try:
            text.encode(self._console.encoding)
        except UnicodeEncodeError:
            return False
        return True

    def _print(self, text: Text) -> None:
        """Prints one line and never cuts it: a word that is wider than the console extends beyond its edge."""
        self._console.print(text, overflow="ignore", crop=False)

    def _print_prose(self, text: Text) -> None:
        """Prints lines that are broken between words only."""
        longest = max(map(cell_len, text.plain.split()), default=0)
        for line in text.wrap(self._console, max(self._console.width, longest)):
            line.rstrip()
            self._print(line)


def _is_above(ratio: float | None, line: float) -> bool:
    return (1.0 if ratio is None else ratio) > line


def _width(column: list[Text]) -> int:
    return max(cell.cell_len for cell in column)
