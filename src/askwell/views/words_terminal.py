"""Soft prompts in a terminal: columns of tuned words in blue above original words in red."""

from collections.abc import Sequence

from rich.cells import cell_len
from rich.console import Console
from rich.style import Style
from rich.text import Text

from askwell.views.words import BlankPlace, PromptToken, PromptWords, copy_of, notes_on_all, notes_on_prompt
from askwell.views.words_figure import BLUE, RED, faded, in_lines, probability_figure, weight_figure

LONGER, SHORTER = 1.1, 0.9
"""A word whose |v| / |v0| is above the first is set in bold, below the second in italics."""
_BAR_CELLS = 10
_GAP = 2


def print_words(prompts: Sequence[PromptWords], console: Console) -> None:
    """Print the prompts, each as a weight and lines of words, and a legend.

    Without colours, each word's probability and each vector's growth are written out.
    """
    has_colours = console.color_system is not None and not console.no_color
    labels = ["tuned", "original"] if has_colours else ["tuned", "p", "size", "original", "p"]
    indent = max(map(len, labels)) + _GAP
    heaviest = max((prompt.weight for prompt in prompts), default=0.0)
    for prompt in prompts:
        _print(console, _heading(prompt, heaviest))
        for line in prompt.lines:
            columns = (_column(item, has_colours=has_colours) for item in line)
            for shown in in_lines(columns, console.width - indent, _width, lambda _: _GAP):
                for row, label in enumerate(labels):
                    if row == 0 or any(column[row].plain for column in shown):
                        _print(console, _row(label.ljust(indent), shown, row))
        for note in notes_on_prompt(prompt):
            _print_prose(console, Text(note, "italic"))
        console.print()
    for note in (_legend(has_colours=has_colours), *map(Text, notes_on_all(prompts))):
        _print_prose(console, note)


def _heading(prompt: PromptWords, heaviest: float) -> Text:
    """Return the weight, a bar as long as its share of the heaviest one, and which copy it is."""
    share = prompt.weight / heaviest if heaviest else 0.0
    eighths = max(1, round(share * _BAR_CELLS * 8)) if share else 0
    bar = "█" * (eighths // 8) + " ▏▎▍▌▋▊▉"[eighths % 8].strip()
    heading = Text(f"{weight_figure(prompt.weight)} ", "bold").append(bar, f"not bold {faded(BLUE, 0.0)}")
    return heading.append(f" {copy_of(prompt)}".rstrip(), "not bold")


def _legend(*, has_colours: bool) -> Text:
    """Explain colours, bold and italics."""
    tuned, original = Text("tuned", faded(BLUE, 1.0)), Text("original", faded(RED, 1.0))
    legend = Text.assemble(tuned, ": the word w with the highest p(w | v), above the ", original, " word w0")
    legend.append(" where the two differ. ")
    if has_colours:
        legend.append("The greyer a word, the lower its ").append("p(w | v)", faded(BLUE, 1.0))
        legend.append(" or ").append("p(w0 | v)", faded(RED, 1.0)).append(", down to chance. ")
        legend.append("Bold", "bold").append(f": |v| / |v0| is above {LONGER}; ")
        legend.append("italics", "italic").append(f": below {SHORTER}. ")
    else:
        legend.append("size: |v| / |v0|. ")
    return legend.append("The bars show each weight relative to the heaviest prompt's.")


def _column(item: PromptToken | BlankPlace, *, has_colours: bool) -> list[Text]:
    """Return the cells of one item, from top to bottom."""
    if isinstance(item, BlankPlace):
        return [Text(item.shown, "bold"), *[Text("")] * (1 if has_colours else 4)]
    ratio = 1.0 if item.size_ratio is None else item.size_ratio
    colour = Style(color=faded(BLUE, item.tuned.brightness))
    tuned = Text(item.tuned.shown, colour + Style(bold=ratio > LONGER, italic=ratio <= SHORTER))
    original = Text(item.original.shown, Style(color=faded(RED, item.original.brightness)))
    p_of_original = Text(probability_figure(item.original.p))
    if item.is_same_word:
        original = p_of_original = Text("")
    growth = Text("" if item.size_ratio is None else f"×{item.size_ratio:.2f}")
    if has_colours:
        return [tuned, original]
    return [tuned, Text(probability_figure(item.tuned.p)), growth, original, p_of_original]


def _width(column: list[Text]) -> int:
    return max(cell.cell_len for cell in column)


def _row(label: str, columns: list[list[Text]], row: int) -> Text:
    text = Text(label, "none")
    for column in columns:
        text.append_text(column[row]).append(" " * (_width(column) - column[row].cell_len + _GAP))
    text.rstrip()
    return text


def _print(console: Console, text: Text) -> None:
    """Print one line and never cut it: a word that is wider than the console extends beyond its edge."""
    console.print(text, overflow="ignore", crop=False)


def _print_prose(console: Console, text: Text) -> None:
    """Print lines that are broken between words only."""
    longest = max(map(cell_len, text.plain.split()), default=0)
    for line in text.wrap(console, max(console.width, longest)):
        line.rstrip()
        _print(console, line)
