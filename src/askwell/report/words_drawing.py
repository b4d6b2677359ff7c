"""The colours of tuned and original words, which fade to grey as their probability falls.

All of them are about equally light: as far from white as from black, so that they can be read on either.

How weights and probabilities are written for people.

Soft prompts as a drawing: a row for each prompt, its tuned words in blue over the original words in red.
"""

import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from xml.etree import ElementTree
from xml.etree.ElementTree import Element, SubElement

from askwell.report.words import (
    TIE,
    BlankPlace,
    PromptToken,
    PromptWords,
    copy_of,
    notes_on_all,
    notes_on_prompt,
    visible,
)

RGB = tuple[int, int, int]

BLUE: RGB = (36, 108, 255)
RED: RGB = (226, 46, 46)
GREY: RGB = (118, 118, 118)


def faded(colour: RGB, p: float) -> str:
    """The colour as #rrggbb: itself at p = 1, grey at p = 0."""
    share = min(max(p, 0.0), 1.0)
    mixed = (_light(grey) * (1 - share) + _light(full) * share for grey, full in zip(GREY, colour, strict=True))
    return "#" + "".join(f"{_channel(light):02x}" for light in mixed)


def lightness(colour: str) -> float:
    """The relative luminance of a colour #rrggbb, from 0 (black) to 1 (white)."""
    red, green, blue = (_light(int(colour[at : at + 2], 16)) for at in (1, 3, 5))
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def _light(channel: int) -> float:
    """The amount of light that an sRGB channel stands for."""
    value = channel / 255
    return value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4


def _channel(light: float) -> int:
    value = light * 12.92 if light <= 0.0031308 else 1.055 * light ** (1 / 2.4) - 0.055
    return round(value * 255)


def weight_figure(weight: float) -> str:
    """A prompt's weight in three decimals; one that would look like nothing is told apart from nothing."""
    return "<0.001" if 0 < weight < 0.0005 else f"{weight:.3f}"


def probability_figure(p: float) -> str:
    """A probability in a few digits, which tell small ones apart, too."""
    return f"{p:.2f}" if p >= 0.095 else f"{p:.1g}".replace("e-0", "e-")


_PAGE, _MARGIN, _LEFT = 960.0, 28.0, 136.0
_ROOM = _PAGE - _MARGIN - _LEFT  # a word that is wider is set smaller
_TITLE, _WEIGHT, _TUNED, _ORIGINAL, _NOTE = 20.0, 15.0, 18.0, 13.0, 12.0
_SMALLEST, _LARGEST = 0.65, 1.8  # a word's size follows |v| / |v0| between these
_GAP, _GLUED_GAP = 16.0, 3.0
_TIE_SHARE = 0.6  # a tie is so much smaller than its word
_INK, _PALE, _PAPER = "#1f2328", "#656d76", "#ffffff"
_FONT = "'Helvetica Neue', Helvetica, Arial, 'DejaVu Sans', sans-serif"


def words_svg(prompts: Sequence[PromptWords], title: str, *, heading: bool = True) -> str:
    """The drawing as SVG text that needs nothing else: no fonts, no scripts, no files.

    Without a heading, the title is told but not drawn.
    """
    svg = Element("svg", {"xmlns": "http://www.w3.org/2000/svg", "role": "img", "font-family": _FONT})
    SubElement(svg, "title").text = visible(title)
    paper = SubElement(svg, "rect", {"class": "paper", "width": "100%", "height": "100%", "fill": _PAPER})
    y = _MARGIN + (20.0 if heading else 0.0)
    for line in _wrapped(visible(title), _PAGE - 2 * _MARGIN, _TITLE) if heading else ():
        _text(svg, _MARGIN, y, line, _TITLE, "ink", weight="600")
        y += 26
    _text(svg, _MARGIN, y, "weight", _NOTE, "pale")
    y += 8
    heaviest = max((prompt.weight for prompt in prompts), default=0.0)
    for prompt in prompts:
        y = _draw_prompt(svg, prompt, y, heaviest)
    height = _draw_legend(svg, prompts, y + 8) + _MARGIN - 8
    size = {"viewBox": f"0 0 {_PAGE:.0f} {height:.0f}", "width": f"{_PAGE:.0f}", "height": f"{height:.0f}"}
    svg.attrib.update(size)
    paper.attrib.update({"width": f"{_PAGE:.0f}", "height": f"{height:.0f}"})
    for child in svg:
        child.tail = "\n"
    return ElementTree.tostring(svg, encoding="unicode") + "\n"


def width_of(text: str, size: float) -> float:
    """About the width of a text in a wide sans-serif font, rather too much than too little."""
    return size * sum(map(_char_width, text))


@dataclass(frozen=True)
class _Column:
    item: PromptToken | BlankPlace
    size: float
    """Of the upper word's letters."""
    size_below: float
    width: float

    @property
    def gap(self) -> float:
        """The space before it."""
        item = self.item
        glued = item.glued if isinstance(item, BlankPlace) else item.original.glued and item.tuned.glued
        return _GLUED_GAP if glued else _GAP


def _draw_prompt(svg: Element, prompt: PromptWords, top: float, heaviest: float) -> float:
    """Draws one prompt below `top` and returns where it ends."""
    row = SubElement(svg, "g", {"class": "prompt"})
    SubElement(row, "title").text = visible(prompt.template)
    _line(row, top)
    y = top + 12
    for number, columns in enumerate(_lines([_column(item) for item in prompt.items])):
        baseline = y + max(column.size for column in columns)
        if number == 0:
            _draw_weight(row, prompt, baseline, heaviest)
        x = _LEFT - columns[0].gap
        for column in columns:
            _draw_column(row, column, x + column.gap + column.width / 2, baseline)
            x += column.gap + column.width
        y = baseline + (_ORIGINAL + 14 if any(_has_original(column.item) for column in columns) else 14)
    y = max(y, top + 60 if prompt.copy is not None else top)
    for note in notes_on_prompt(prompt):
        for line in _wrapped(note, _ROOM, _NOTE):
            _text(row, _LEFT, y + _NOTE, line, _NOTE, "pale")
            y += 17
    return y + 8


def _draw_weight(row: Element, prompt: PromptWords, baseline: float, heaviest: float) -> None:
    _text(row, _MARGIN, baseline, weight_figure(prompt.weight), _WEIGHT, "ink", weight="600")
    if prompt.copy is not None:
        _text(row, _MARGIN, baseline + 26, copy_of(prompt), _NOTE, "pale")
    full = _LEFT - _MARGIN - 28
    share = prompt.weight / heaviest if heaviest else 0.0
    bar = {"x": f"{_MARGIN:.0f}", "y": f"{baseline + 7:.1f}", "height": "5", "rx": "2.5"}
    SubElement(row, "rect", bar | {"class": "track", "width": f"{full:.0f}", "fill": "#e6e8eb"})
    if share:
        SubElement(row, "rect", bar | {"class": "bar", "width": f"{max(2.0, full * share):.1f}", "fill": _PALE})


def _draw_column(row: Element, column: _Column, middle: float, baseline: float) -> None:
    item = column.item
    if isinstance(item, BlankPlace):
        _text(row, middle, baseline, item.shown, column.size, "ink", weight="700", anchor="middle")
        return
    group = SubElement(row, "g")
    SubElement(group, "title").text = _told(item)
    tuned = faded(BLUE, item.tuned.brightness)
    _text(group, middle, baseline, item.tuned.shown, column.size, "tuned", fill=tuned, anchor="middle")
    if _has_original(item):
        original = faded(RED, item.original.brightness)
        below = baseline + _ORIGINAL + 6
        _text(group, middle, below, item.original.shown, column.size_below, "original", fill=original, anchor="middle")


def _has_original(item: PromptToken | BlankPlace) -> bool:
    return isinstance(item, PromptToken) and not item.is_same_word


def _told(token: PromptToken) -> str:
    """What a pointer on the word tells."""
    size = "" if token.size_ratio is None else f", |v| / |v0| = {token.size_ratio:.2f}"
    return (
        f"{token.tuned.shown}: p(w | v) = {probability_figure(token.tuned.p)}{size}; "
        f"original word {token.original.shown}: p(w0 | v) = {probability_figure(token.original.p)}"
    )


def _draw_legend(svg: Element, prompts: Sequence[PromptWords], y: float) -> float:
    legend = SubElement(svg, "g", {"class": "legend"})
    _line(legend, y - 8)
    y += 18
    line = _text(legend, _MARGIN, y, "", _NOTE, "pale")
    SubElement(line, "tspan", {"class": "tuned", "font-size": "15", "fill": faded(BLUE, 1.0)}).text = "tuned"
    line[-1].tail = " word w with the highest p(w | v), over the "
    SubElement(line, "tspan", {"class": "original", "fill": faded(RED, 1.0)}).text = "original"
    line[-1].tail = " word w0, where that is another"
    y += 26
    x = _MARGIN
    for name, colour in (("p(w | v)", BLUE), ("p(w0 | v)", RED)):
        _text(legend, x, y, f"{name}: 1/V", _NOTE, "pale")
        x = float(round(x + width_of(f"{name}: 1/V", _NOTE)))
        for step in range(11):
            place = {"x": f"{x:.0f}", "y": f"{y - 10:.0f}", "width": "9", "height": "11"}
            SubElement(legend, "rect", place | {"fill": faded(colour, step / 10), "shape-rendering": "crispEdges"})
            x += 9
        _text(legend, x + 5, y, "1", _NOTE, "pale")
        x += 36
    _text(legend, x, y, "|v| / |v0|:", _NOTE, "pale")
    x += width_of("|v| / |v0|:", _NOTE)
    for ratio, label in ((_SMALLEST, f"≤ {_SMALLEST}"), (1.0, "1"), (_LARGEST, f"≥ {_LARGEST}")):
        _text(legend, x, y, label, _TUNED * ratio, "tuned", fill=faded(BLUE, 1.0))
        x += width_of(label, _TUNED * ratio) + 8
    y += 22
    bars = "Bars: the weight as a share of the heaviest prompt's."
    colours = "Colours follow log p, from chance (one in all V words of the LM) to 1."
    for note in (f"{colours} {bars}", *notes_on_all(prompts)):
        for line in _wrapped(note, _PAGE - 2 * _MARGIN, _NOTE):
            _text(legend, _MARGIN, y, line, _NOTE, "pale")
            y += 17
    return y


def _column(item: PromptToken | BlankPlace) -> _Column:
    if isinstance(item, BlankPlace):
        return _Column(item, _TUNED, 0.0, 1.1 * width_of(item.shown, _TUNED))
    ratio = 1.0 if item.size_ratio is None else item.size_ratio
    size = _TUNED * min(max(ratio, _SMALLEST), _LARGEST)
    tuned, original = width_of(item.tuned.shown, size), width_of(item.original.shown, _ORIGINAL)
    if item.is_same_word:
        original = 0.0
    shrink_tuned, shrink_original = max(1.0, tuned / _ROOM), max(1.0, original / _ROOM)
    return _Column(item, size / shrink_tuned, _ORIGINAL / shrink_original, min(max(tuned, original), _ROOM))


def _lines(columns: list[_Column]) -> Iterator[list[_Column]]:
    """The columns in lines that fit the page."""
    line, used = [], 0.0
    for column in columns:
        if line and used + column.gap + column.width > _ROOM:
            yield line
            line, used = [], 0.0
        used += column.width + (column.gap if line else 0.0)
        line.append(column)
    yield line


def _text(
    parent: Element,
    x: float,
    y: float,
    text: str,
    size: float,
    kind: str,
    *,
    fill: str | None = None,
    weight: str | None = None,
    anchor: str | None = None,
) -> Element:
    fill = fill or {"ink": _INK, "pale": _PALE}[kind]
    attributes = {"class": kind, "x": f"{x:.1f}", "y": f"{y:.1f}", "font-size": f"{size:.1f}", "fill": fill}
    attributes |= {"font-weight": weight} if weight else {}
    attributes |= {"text-anchor": anchor} if anchor else {}
    element = SubElement(parent, "text", attributes)
    element.text = text
    if anchor and text.startswith(TIE):
        element.text = None
        SubElement(
            element, "tspan", {"class": "pale", "font-size": f"{_TIE_SHARE * size:.1f}", "fill": _PALE}
        ).text = TIE
        element[0].tail = text.removeprefix(TIE)
    return element


def _line(parent: Element, y: float) -> None:
    ends = {"x1": f"{_MARGIN:.0f}", "x2": f"{_PAGE - _MARGIN:.0f}", "y1": f"{y:.1f}", "y2": f"{y:.1f}"}
    SubElement(parent, "line", ends | {"class": "rule", "stroke": "#e6e8eb"})


def _wrapped(text: str, room: float, size: float) -> Iterator[str]:
    line = ""
    for word in text.split():
        longer = f"{line} {word}".strip()
        if line and width_of(longer, size) > room:
            yield line
            longer = word
        line = longer
    yield line


def _char_width(char: str) -> float:
    """In units of the font size."""
    if char == TIE:
        return 0.9 * _TIE_SHARE
    if unicodedata.east_asian_width(char) in "WF":
        return 1.3 if unicodedata.category(char) == "So" else 1.05  # emoji are wider than ideographs
    if unicodedata.category(char) in ("Mn", "Me"):
        return 0.0
    if char in "MWmw@%—…":
        return 1.0
    if char in "fijlrtI .,;:'!|()[]/":
        return 0.42
    if char.islower() or char.isdigit():
        return 0.65 if char.isascii() else 0.85
    return 0.86
