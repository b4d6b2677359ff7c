"""Soft prompts as a document (a chart, and all figures as tables), and in a terminal.

The chart has the word that each vector is near in blue above its original word in red, and below them how far the
vector has moved and what is lost without it.

A word's colour fades towards grey as its probability falls to chance. Blue, red and grey are about equally light, as
far from white as from black, so that they can be read on both.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any, NamedTuple, TypeVar

from askwell.views.document import Block, Cell, Document, Drawing, Figure, Paragraph, Section, Table, table
from askwell.views.drawing import Chart, chart_style, light, new_figure, place, text_width
from askwell.views.printable import NONE, counted, visible
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


_PAGE, _MARGIN, _LEFT = 960.0, 28.0, 182.0
_ROOM = _PAGE - _MARGIN - _LEFT  # a word that is wider is set smaller
_TITLE, _WEIGHT, _TUNED, _ORIGINAL, _NOTE = 20.0, 14.0, 18.0, 13.0, 12.0
_SMALLEST, _LARGEST = 0.65, 1.8  # a word's size follows |v| / |v0| between these
_GAP, _GLUED_GAP = 15.0, 3.0
_LABELS = {"moved": "moved", "change": "put back"}
_BARS = "The bars show each weight relative to the heaviest prompt's."
_BELOW = (
    "moved: how far the vector v is from its start v0; 1 is the spread of the LM's word vectors.",
    "put back: how the mean of log p(y | x, r) changes when this vector alone is where it started.",
)
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
        drawing.legend(prompts, [note for note in notes_on_all(prompts) if heading or note != NOT_AN_EXPLANATION])
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
        return _Column([_word("blank", item.shown, _TUNED, light("ink"), "bold")], _GLUED_GAP if item.glued else _GAP)
    words = []
    if item.is_near:
        size = _TUNED * min(max(1.0 if item.size_ratio is None else item.size_ratio, _SMALLEST), _LARGEST)
        words.append(_word("tuned", item.tuned.shown, size, faded(BLUE, item.tuned.brightness)))
    if not (item.is_near and item.is_same_word):
        words.append(_word("original", item.original.shown, _ORIGINAL, faded(RED, item.original.brightness)))
    words.append(_word("moved", _moved(item), _NOTE, light("pale")))
    if item.change is not None:
        words.append(_word("change", _change(item.change), _NOTE, light("ink")))
    return _Column(words, _GLUED_GAP if all(word.glued for word in item.words) else _GAP)


def _moved(token: PromptToken) -> str:
    return f"{token.moved:.1f}"


def _change(change: float) -> str:
    """Write what log p(y) changes by, with a sign unless it is 0."""
    shown = f"{change:+.2f}".replace("-", "−")
    return "0" if shown.strip("+−") == "0.00" else shown


def _depths(columns: Sequence[_Column]) -> dict[str, float]:
    """Return how far below the first baseline each kind of word of a line stands."""
    kinds = {word.kind for column in columns for word in column.words}
    depths, depth = {"blank": 0.0, "tuned": 0.0}, 0.0
    for kind, step in (("original", _ORIGINAL + 6), ("moved", _NOTE + 5), ("change", _NOTE + 3)):
        if kind in kinds:
            depth += 0.0 if kind == "original" and "tuned" not in kinds else step
            depths[kind] = depth
    return depths


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
            depths = _depths(columns)
            if number == 0:
                self._weight(prompt, baseline, share)
            for kind, label in _LABELS.items():
                if kind in depths:
                    at = _LEFT - 12 - text_width(label, _NOTE)
                    self.text(at, baseline + depths[kind], label, _NOTE, light("pale"))
            x = _LEFT - columns[0].gap
            for column in columns:
                middle = x + column.gap + column.width / 2
                for word in column.words:
                    how: Any = {"ha": "center", "gid": word.kind, "fontweight": word.font_weight}
                    self.text(middle, baseline + depths[word.kind], word.text, word.size, word.colour, **how)
                x += column.gap + column.width
            self.y = baseline + max(depths.values()) + 14
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

    def legend(self, prompts: Sequence[PromptWords], notes: Sequence[str]) -> None:
        """Explain colours, sizes and bars, and what words cannot show."""
        self._rule()
        self.y += 26
        tokens = [token for prompt in prompts for token in prompt.tokens]
        is_any_near = any(token.is_near for token in tokens)
        near = [("near", 15.0, faded(BLUE, 1.0)), ("word w with the highest p(w | v), above the", _NOTE, light("pale"))]
        original = "word w0 where the two differ" if is_any_near else "word w0; no word is near any vector"
        self._run(
            *(near if is_any_near else []),
            ("original", _ORIGINAL, faded(RED, 1.0)), (original, _NOTE, light("pale")),
        )  # fmt: skip
        self.y += 20
        for note in _BELOW[: 2 if any(token.change is not None for token in tokens) else 1]:
            self.lines(note, _MARGIN, _NOTE, "pale")
        self.y += 10
        if is_any_near:
            self._scales()
        for note in (_BARS, *notes):
            self.lines(note, _MARGIN, _NOTE, "pale")

    def _scales(self) -> None:
        """Explain colours and sizes of words."""
        self.y += 4
        x = _MARGIN
        for name, colour in (("p(w | v)", BLUE), ("p(w0 | v)", RED)):
            x = self._run((f"{name}   1/V", _NOTE, light("pale")), x=x)
            for step in range(11):
                ends = [x + 9 * step, x + 9 * (step + 1)]
                self._stroke(ends, self.y - 4.5, faded(colour, step / 10), linewidth=11, solid_capstyle="butt")
            x = self._run(("1", _NOTE, light("pale")), x=x + 99 + 6) + 26
        blue = faded(BLUE, 1.0)
        self._run(
            ("|v| / |v0|", _NOTE, light("pale")), (f"≤ {_SMALLEST}", _NOTE * _SMALLEST, blue), ("1", _NOTE, blue),
            (f"≥ {_LARGEST}", _NOTE * _LARGEST, blue), x=x,
        )  # fmt: skip
        self.y += 26
        self.lines("Colours follow log p, from chance (1/V for the V words of the LM) to 1.", _MARGIN, _NOTE, "pale")

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
    return " ".join(item.shown if isinstance(item, BlankPlace) else _both(item) for item in prompt.items)


def _both(token: PromptToken) -> str:
    if not token.is_near:
        return f"({token.original.shown})"
    return token.tuned.shown + ("" if token.is_same_word else f" ({token.original.shown})")


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
    """Return all figures of a prompt's vectors, folded."""
    stacks = [(stack, layer) for stack, norms in prompt.moved_layers.items() for layer in range(len(norms))]
    deep = [f"{'layer' if stack == 'layers' else stack} {layer + 1}" for stack, layer in stacks]
    headings = ("#", "original, p(w0 | v)", _NEAR_HEADING, "moved", *deep, "put back", "|v| / |v0|", _NEXT)
    rows: list[tuple[str | Cell, ...]] = []
    for number, token in enumerate(prompt.tokens, 1):
        nearest = ", ".join(f"{word.shown} {probability_figure(word.p)}" for word in token.next_nearest)
        by_layer = [f"{token.layers[stack][layer]:.1f}" for stack, layer in stacks]
        original = Cell(token.original.shown, strong=True, note=probability_figure(token.original.p))
        ends = NONE if token.change is None else _change(token.change), _ratio(token), nearest or NONE
        rows.append((str(number), original, _near(token), _moved(token), *by_layer, *ends))
    folded = f"{visible(prompt.template)}: {counted(len(prompt.tokens), 'vector')}"
    numbers = ("#", "moved", *deep, "put back", "|v| / |v0|")
    return replace(table(headings, rows, numbers=numbers), folded=folded)


_NEAR_HEADING, _NEXT = "near, p(w | v)", "next, p(w | v)"


def _near(token: PromptToken) -> Cell:
    """Return the word that a vector is near, or that there is none, with the highest p(w | v). A vector that has not
    moved is its word, and p says nothing more."""
    if token.is_same_word and not token.moved:
        return Cell(token.tuned.shown, note="unmoved")
    p = probability_figure(token.tuned.p)
    return Cell(token.tuned.shown, strong=True, note=p) if token.is_near else Cell("no word", note=f"at most {p}")


def _ratio(token: PromptToken) -> str:
    return NONE if token.size_ratio is None else f"{token.size_ratio:.2f}"


# ── in a terminal ─────────────────────────────────────────────────────────────────────────────────────────────────

_LISTED_PROMPTS, _LISTED_VECTORS, _BAR_CELLS = 3, 6, 10


def words_listed(prompts: Sequence[PromptWords]) -> list[Block]:
    """Return the heaviest prompts with the vectors that matter most, short enough for a terminal."""
    heaviest = max((prompt.weight for prompt in prompts), default=0.0)
    blocks: list[Block] = []
    for prompt in prompts[:_LISTED_PROMPTS]:
        share = prompt.weight / heaviest if heaviest else 0.0
        eighths = max(1, round(share * _BAR_CELLS * 8)) if share else 0
        bar = "█" * (eighths // 8) + " ▏▎▍▌▋▊▉"[eighths % 8].strip()
        parts = (weight_figure(prompt.weight), bar, visible(prompt.template), copy_of(prompt))
        blocks.append(Paragraph(" ".join(filter(None, parts))))
        blocks += _strongest(prompt)
        blocks += [Paragraph(f"{note[0].upper()}{note[1:]}.") for note in notes_on_prompt(prompt)]
        blocks.append(Paragraph(""))
    if others := prompts[_LISTED_PROMPTS:]:
        weight = weight_figure(sum(prompt.weight for prompt in others))
        blocks.append(Paragraph(f"{counted(len(others), 'lighter prompt')} of weight {weight} in all: see --html."))
    tokens = [token for prompt in prompts[:_LISTED_PROMPTS] for token in prompt.tokens]
    below = _BELOW[: 2 if any(token.change is not None for token in tokens) else 1] if tokens else ()
    return [*blocks, *map(Paragraph, (*below, *notes_on_all(prompts[:_LISTED_PROMPTS])))]


def _strongest(prompt: PromptWords) -> list[Block]:
    """Return a table of the vectors that change most when they are put back or, if nobody asked, that moved most."""
    tokens = prompt.tokens
    by_strength = sorted(range(len(tokens)), key=lambda at: (-abs(tokens[at].change or 0.0), -tokens[at].moved))
    rows = [
        (token.original.shown, _near(token) if any(one.is_near for one in tokens) else Cell(""), _moved(token),
         "" if token.change is None else _change(token.change), _ratio(token))
        for token in (tokens[at] for at in sorted(by_strength[:_LISTED_VECTORS]))
    ]  # fmt: skip
    if not rows:
        return []
    more = max(0, len(tokens) - len(rows))
    headings = ("original", _NEAR_HEADING, "moved", "put back", "|v| / |v0|")
    return [table(headings, rows, numbers=headings[2:], more=more)]
