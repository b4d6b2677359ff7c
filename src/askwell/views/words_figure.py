"""Soft prompts as a document (a chart of their words, and all figures as tables), and in a terminal.

For each prompt, both have a row of tuned words in blue above the original words in red.

A word's colour fades towards grey as its probability falls to chance. Blue, red and grey are about equally light, as
far from white as from black, so that they can be read on both.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any, NamedTuple, TypeVar

from rich.console import Console
from rich.style import Style
from rich.text import Text

from askwell.views.document import Block, Cell, Document, Drawing, Figure, Paragraph, Section, Table, table
from askwell.views.drawing import Chart, chart_style, light, new_figure, place, text_width
from askwell.views.printable import NONE, counted, visible
from askwell.views.to_text import print_blocks
from askwell.views.words import (
    NOT_AN_EXPLANATION,
    BlankPlace,
    PromptToken,
    PromptWords,
    copy_of,
    notes_on_all,
    notes_on_prompt,
)

T = TypeVar("T")
RGB = tuple[int, int, int]
BLUE: RGB = (36, 108, 255)
RED: RGB = (226, 46, 46)
GREY: RGB = (118, 118, 118)
_TINT = 0.35  # a word at chance keeps this much of its colour, so that tuned and original words remain distinct


def faded(colour: RGB, p: float) -> str:
    """Return the colour as #rrggbb: itself at p = 1, a greyish tint of it at p = 0."""
    share = _TINT + (1 - _TINT) * min(max(p, 0.0), 1.0)
    mixed = (_light(grey) * (1 - share) + _light(full) * share for grey, full in zip(GREY, colour, strict=True))
    return "#" + "".join(f"{_channel(amount):02x}" for amount in mixed)


def _light(channel: int) -> float:
    """Return the linear intensity of an sRGB channel."""
    value = channel / 255
    return value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4


def _channel(amount: float) -> int:
    value = amount * 12.92 if amount <= 0.0031308 else 1.055 * amount ** (1 / 2.4) - 0.055
    return round(value * 255)


def weight_figure(weight: float) -> str:
    """Write a prompt's weight with three decimals; one that would look like 0 is shown as small."""
    return "<0.001" if 0 < weight < 0.0005 else f"{weight:.3f}"


def probability_figure(p: float) -> str:
    """Write a probability in a few digits, which distinguish even small ones."""
    return f"{p:.2f}" if p >= 0.095 else f"{p:.1g}".replace("e-0", "e-")


_PAGE, _MARGIN, _LEFT = 960.0, 28.0, 140.0
_ROOM = _PAGE - _MARGIN - _LEFT  # a word that is wider is set smaller
_TITLE, _WEIGHT, _TUNED, _ORIGINAL, _NOTE = 20.0, 14.0, 18.0, 13.0, 12.0
_SMALLEST, _LARGEST = 0.65, 1.8  # a word's size follows |v| / |v0| between these
_GAP, _GLUED_GAP = 15.0, 3.0
_BAR, _LINE = 84.0, 17.0


def words_chart(prompts: Sequence[PromptWords], title: str, *, heading: bool = True) -> Chart:
    """Draw the prompts from top to bottom, with a legend; without a heading, the title is not drawn."""
    with chart_style():
        drawing = _Drawing()
        if heading:
            drawing.y += 20
            drawing.lines(visible(title), _MARGIN, _TITLE, "ink", step=26.0, fontweight="bold")
        drawing.text(_MARGIN, drawing.y + 4.0, "weight", _NOTE, light("pale"))
        drawing.y += 12
        heaviest = max((prompt.weight for prompt in prompts), default=0.0)
        for prompt in prompts:
            drawing.prompt(prompt, prompt.weight / heaviest if heaviest else 0.0)
        drawing.legend(prompts)
        described = "; ".join(f"weight {weight_figure(prompt.weight)}: {_in_words(prompt)}" for prompt in prompts)
        return Chart(drawing.finished(), visible(title), f"Soft prompts, tuned (original) words. {described}.")


class _Word(NamedTuple):
    """A word as it is drawn: a blank, a tuned word, or an original one."""

    kind: str
    text: str
    size: float
    colour: str
    width: float
    font_weight: str


def _word(kind: str, text: str, size: float, colour: str, font_weight: str = "normal") -> _Word:
    width = text_width(text, size, font_weight)
    return _Word(kind, text, size / max(1.0, width / _ROOM), colour, min(width, _ROOM), font_weight)


class _Column(NamedTuple):
    """A blank, or a tuned word over its original one unless that is the same."""

    words: list[_Word]
    gap: float
    """The space before it."""

    @property
    def width(self) -> float:
        """How wide it is, in pixels."""
        return max(word.width for word in self.words)


def _column(item: PromptToken | BlankPlace) -> _Column:
    if isinstance(item, BlankPlace):
        words, glued = [_word("blank", item.shown, _TUNED, light("ink"), "bold")], item.glued
    else:
        size = _TUNED * min(max(1.0 if item.size_ratio is None else item.size_ratio, _SMALLEST), _LARGEST)
        words, glued = [_word("tuned", item.tuned.shown, size, faded(BLUE, item.tuned.brightness))], item.tuned.glued
        if not item.is_same_word:
            words.append(_word("original", item.original.shown, _ORIGINAL, faded(RED, item.original.brightness)))
            glued = glued and item.original.glued
    return _Column(words, _GLUED_GAP if glued else _GAP)


class _Drawing:
    """A figure that is drawn from top to bottom, in pixels, down to `y` so far."""

    def __init__(self) -> None:
        self._figure = new_figure(_PAGE, 100.0)
        self._axes = place(self._figure, left=0, top=0, right=0, bottom=0)
        self._axes.set_axis_off()
        self._axes.set_xlim(0, _PAGE)
        self.y = _MARGIN

    def finished(self) -> Any:
        """Return the figure, as high as what was drawn."""
        height = self.y + _MARGIN - 8
        self._figure.set_figheight(height / self._figure.dpi)
        self._axes.set_ylim(height, 0)
        return self._figure

    def text(self, x: float, y: float, text: str, size: float, colour: str, **how: Any) -> None:
        """Write a text that begins at x, on the baseline y."""
        self._axes.text(x, y, text, fontsize=size, color=colour, va="baseline", **how)

    def lines(self, text: str, x: float, size: float, role: str, step: float = _LINE, **how: Any) -> None:
        """Write a text in lines that fit the page."""
        weight = how.get("fontweight", "normal")
        words, space = text.split(), text_width("n n", size, weight) - text_width("nn", size, weight)
        room = _PAGE - _MARGIN - x
        for line in in_lines(words, room, lambda word: text_width(word, size, weight), lambda _: space):
            self.text(x, self.y, " ".join(line), size, light(role), **how)
            self.y += step

    def prompt(self, prompt: PromptWords, share: float) -> None:
        """Draw one prompt; `share` is its weight as a share of the heaviest one's."""
        self._rule()
        top = self.y
        self.y += 14
        lines = (
            in_lines(map(_column, line), _ROOM, lambda column: column.width, lambda column: column.gap)
            for line in prompt.lines
        )
        for number, columns in enumerate(chain.from_iterable(lines)):
            baseline = self.y + max(column.words[0].size for column in columns)
            if number == 0:
                self._weight(prompt, baseline, share)
            x = _LEFT - columns[0].gap
            for column in columns:
                middle = x + column.gap + column.width / 2
                for word, y in zip(column.words, (baseline, baseline + _ORIGINAL + 6), strict=False):
                    how: Any = {"ha": "center", "gid": word.kind, "fontweight": word.font_weight}
                    self.text(middle, y, word.text, word.size, word.colour, **how)
                x += column.gap + column.width
            self.y = baseline + (_ORIGINAL + 16 if any(len(column.words) > 1 for column in columns) else 14)
        self.y = max(self.y, top + (70 if prompt.copy is not None else 46))
        for note in notes_on_prompt(prompt):
            self.y += _NOTE
            self.lines(note, _LEFT, _NOTE, "pale")
            self.y -= _NOTE
        self.y += 6

    def _weight(self, prompt: PromptWords, baseline: float, share: float) -> None:
        self.text(_MARGIN, baseline, weight_figure(prompt.weight), _WEIGHT, light("ink"), fontweight="bold")
        for length, role in ((1.0, "rule"), (share, "pale")):
            if length:
                ends = [_MARGIN + 2.5, _MARGIN + 2.5 + max(0.1, (_BAR - 5) * length)]
                self._stroke(ends, baseline + 11, light(role), linewidth=5, solid_capstyle="round")
        if prompt.copy is not None:
            self.text(_MARGIN, baseline + 30, copy_of(prompt), _NOTE, light("pale"))

    def legend(self, prompts: Sequence[PromptWords]) -> None:
        """Explain colours, sizes and bars, and what words cannot show."""
        self._rule()
        self.y += 26
        self._run(
            ("tuned", 15.0, faded(BLUE, 1.0)), ("word w with the highest p(w | v), above the", _NOTE, light("pale")),
            ("original", _ORIGINAL, faded(RED, 1.0)), ("word w0 where the two differ", _NOTE, light("pale")),
        )  # fmt: skip
        self.y += 34
        x = _MARGIN
        for name, colour in (("p(w | v)", BLUE), ("p(w0 | v)", RED)):
            x = self._run((f"{name}   1/V", _NOTE, light("pale")), x=x)
            for step in range(11):
                ends = [x + 9 * step, x + 9 * (step + 1)]
                self._stroke(ends, self.y - 4.5, faded(colour, step / 10), linewidth=11, solid_capstyle="butt")
            x = self._run(("1", _NOTE, light("pale")), x=x + 99 + 6) + 26
        blue = faded(BLUE, 1.0)
        self._run(
            ("|v| / |v0|", _NOTE, light("pale")), (f"≤ {_SMALLEST}", _TUNED * _SMALLEST, blue), ("1", _TUNED, blue),
            (f"≥ {_LARGEST}", _TUNED * _LARGEST, blue), x=x,
        )  # fmt: skip
        self.y += 26
        bars = "The bars show each weight relative to the heaviest prompt's."
        colours = "Colours follow log p, from chance (1/V for the V words of the LM) to 1."
        for note in (f"{colours} {bars}", *notes_on_all(prompts)):
            self.lines(note, _MARGIN, _NOTE, "pale")

    def _run(self, *pieces: tuple[str, float, str], x: float = _MARGIN) -> float:
        """Write pieces of text one after the other on one baseline, and return where the next would begin."""
        for text, size, colour in pieces:
            self.text(x, self.y, text, size, colour)
            x += text_width(text, size) + 7
        return x

    def _rule(self) -> None:
        self._stroke([_MARGIN, _PAGE - _MARGIN], self.y, light("rule"), linewidth=1)

    def _stroke(self, xs: Sequence[float], y: float, colour: str, **how: Any) -> None:
        self._axes.plot(xs, [y, y], color=colour, clip_on=False, **how)


def _in_words(prompt: PromptWords) -> str:
    """Return the sentence, for those who cannot see it."""
    return " ".join(
        item.shown
        if isinstance(item, BlankPlace)
        else item.tuned.shown + ("" if item.is_same_word else f" ({item.original.shown})")
        for item in prompt.items
    )


def in_lines(
    items: Iterable[T], room: int | float, width: Callable[[T], int | float], gap: Callable[[T], int | float]
) -> Iterator[list[T]]:
    """Yield lines of items that fit the room, with a gap before each but the first; one that is too wide is alone."""
    line, used = [], 0.0
    for item in items:
        if line and used + gap(item) + width(item) > room:
            yield line
            line, used = [], 0.0
        used += width(item) + (gap(item) if line else 0.0)
        line.append(item)
    yield line


def words_document(
    prompts: Sequence[PromptWords],
    title: str,
    *,
    lm: str | None = None,
    relation: str | None = None,
    score: str | None = None,
) -> Document:
    """Return the prompts of a mixture in words; `score` says what the nearest words score as hard prompts."""
    about = {"LM": lm, "Relation": relation, "Prompts": str(len(prompts))}
    return Document(
        visible(title),
        about=tuple((name, visible(value)) for name, value in about.items() if value),
        sections=(
            Section("", (words_figure(prompts, title, score),)),
            Section("All figures", tuple(_tables(prompts))),
        ),
    )


def words_figure(prompts: Sequence[PromptWords], title: str, score: str | None = None) -> Figure:
    """Return the chart of the prompts, with what can be read into it."""
    caption = NOT_AN_EXPLANATION if score is None else f"{NOT_AN_EXPLANATION} {visible(score)}"
    return Figure((Drawing("words", words_chart(prompts, title, heading=False)),), caption, wide=True)


def _tables(prompts: Sequence[PromptWords]) -> list[Block]:
    """Return the prompts with their weights, and for each of them a folded table of its vectors."""
    notes = [
        "; ".join(visible(note) for note in (copy_of(prompt), *notes_on_prompt(prompt)) if note) for prompt in prompts
    ]
    listed = prompt_table([(prompt.weight, prompt.template) for prompt in prompts], notes)
    explained = Paragraph(
        "Each word w is shown with its probability p(w | v), the softmax over the vocabulary of the LM’s word "
        "embeddings times the tuned vector v; w0 is the word in its place in the template, v0 the vector it began with."
    )
    return [listed, explained, *(_vectors(prompt) for prompt in prompts if prompt.tokens)]


def prompt_table(prompts: Sequence[tuple[float, str]], notes: Sequence[str] = ()) -> Table:
    """Return weights and templates, with notes on them."""
    rows = [
        (weight_figure(weight), Cell(visible(template), note=note))
        for (weight, template), note in zip(prompts, notes or [""] * len(prompts), strict=True)
    ]
    return table(("weight", "template"), rows, numbers=("weight",))


def _vectors(prompt: PromptWords) -> Table:
    headings = ("#", "tuned, p(w | v)", "original, p(w0 | v)", "|v| / |v0|", "next nearest, p(w | v)")
    rows = []
    for number, token in enumerate(prompt.tokens, 1):
        ratio = NONE if token.size_ratio is None else f"{token.size_ratio:.2f}"
        nearest = ", ".join(f"{word.shown} {probability_figure(word.p)}" for word in token.next_nearest)
        both = (Cell(one.shown, strong=True, note=probability_figure(one.p)) for one in (token.tuned, token.original))
        rows.append((str(number), *both, ratio, nearest or NONE))
    folded = f"{visible(prompt.template)}: {counted(len(prompt.tokens), 'vector')}"
    return replace(table(headings, rows, numbers=("#", "|v| / |v0|")), folded=folded)


# ── in a terminal ─────────────────────────────────────────────────────────────────────────────────────────────────

_ROWS = ("tuned", "p", "size", "original", "p")
_INDENT, _SPACE, _BAR_CELLS = 10, 2, 10
_LEGEND = (
    "tuned: the word w with the highest p = p(w | v), above the original word w0 where the two differ, with p(w0 | v). "
    "size: |v| / |v0|. The bars show each weight relative to the heaviest prompt's."
)


def print_words(prompts: Sequence[PromptWords], console: Console) -> None:
    """Print the prompts, each as a weight and lines of words with their figures, and a legend; where there are colours,
    a word is the greyer, the lower its probability."""
    heaviest = max((prompt.weight for prompt in prompts), default=0.0)
    unbroken: Any = {"overflow": "ignore", "crop": False}  # a word wider than the console extends beyond its edge
    for prompt in prompts:
        console.print(_heading(prompt, heaviest), **unbroken)
        for line in prompt.lines:
            for shown in in_lines(map(_cells, line), console.width - _INDENT, _width, lambda _: _SPACE):
                for row, label in enumerate(_ROWS):
                    if any(column[row].plain for column in shown):
                        console.print(_row(label.ljust(_INDENT), shown, row), **unbroken)
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


def _cells(item: PromptToken | BlankPlace) -> list[Text]:
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
        text.append_text(column[row]).append(" " * (_width(column) - column[row].cell_len + _SPACE))
    text.rstrip()
    return text
