"""Soft prompts in a terminal: columns of tuned words in blue above original words in red, each with its figures."""

from collections.abc import Sequence

from rich.console import Console
from rich.style import Style
from rich.text import Text

from askwell.views.document import Paragraph
from askwell.views.to_text import print_blocks
from askwell.views.words import BlankPlace, PromptToken, PromptWords, copy_of, notes_on_all, notes_on_prompt
from askwell.views.words_figure import BLUE, RED, faded, in_lines, probability_figure, weight_figure

_ROWS = ("tuned", "p", "size", "original", "p")
_INDENT, _GAP, _BAR_CELLS = 10, 2, 10
_LEGEND = (
    "tuned: the word w with the highest p = p(w | v), above the original word w0 where the two differ, with p(w0 | v). "
    "size: |v| / |v0|. The bars show each weight relative to the heaviest prompt's."
)


def print_words(prompts: Sequence[PromptWords], console: Console) -> None:
    """Print the prompts, each as a weight and lines of words with their figures, and a legend; where there are colours,
    a word is the greyer, the lower its probability."""
    heaviest = max((prompt.weight for prompt in prompts), default=0.0)
    for prompt in prompts:
        _print(console, _heading(prompt, heaviest))
        for line in prompt.lines:
            for shown in in_lines(map(_column, line), console.width - _INDENT, _width, lambda _: _GAP):
                for row, label in enumerate(_ROWS):
                    if any(column[row].plain for column in shown):
                        _print(console, _row(label.ljust(_INDENT), shown, row))
        print_blocks(map(Paragraph, notes_on_prompt(prompt)), console)
        console.print()
    print_blocks(map(Paragraph, (_LEGEND, *notes_on_all(prompts))), console)


def _heading(prompt: PromptWords, heaviest: float) -> Text:
    """Return the weight, a bar as long as its share of the heaviest one, and which copy it is."""
    share = prompt.weight / heaviest if heaviest else 0.0
    eighths = max(1, round(share * _BAR_CELLS * 8)) if share else 0
    bar = "█" * (eighths // 8) + " ▏▎▍▌▋▊▉"[eighths % 8].strip()
    heading = Text(f"{weight_figure(prompt.weight)} ", "bold").append(bar, f"not bold {faded(BLUE, 0.0)}")
    return heading.append(f" {copy_of(prompt)}".rstrip(), "not bold")


def _column(item: PromptToken | BlankPlace) -> list[Text]:
    """Return the cells of one item, from top to bottom."""
    if isinstance(item, BlankPlace):
        return [Text(item.shown, "bold"), *[Text("")] * (len(_ROWS) - 1)]
    tuned, original = item.tuned, item.original
    size = Text("" if item.size_ratio is None else f"×{item.size_ratio:.2f}")
    cells = [Text(tuned.shown, Style(color=faded(BLUE, tuned.brightness))), Text(probability_figure(tuned.p)), size]
    if item.is_same_word:
        return [*cells, Text(""), Text("")]
    shown = Text(original.shown, Style(color=faded(RED, original.brightness)))
    return [*cells, shown, Text(probability_figure(original.p))]


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
