"""A drawing of soft prompts as PDF: the same texts, bars and lines at the same places.

It knows what `look` draws with (rect, line, text, tspan), and nothing else of SVG.
"""

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.patches import Rectangle
from matplotlib.textpath import TextPath

from askwell.report.charts import chart_style, new_figure, pdf_of

_KNOWN = ("svg", "g", "title", "rect", "line", "text", "tspan")


def svg_pdf(svg: str) -> bytes:
    """The drawing as PDF."""
    with chart_style(), warnings.catch_warnings():
        # A word of a script that the PDF's font lacks is drawn as boxes; the SVG has it.
        warnings.filterwarnings("ignore", message=r"Glyph .* missing from font")
        return pdf_of(figure_of(svg))


def figure_of(svg: str) -> Figure:
    """The drawing as a matplotlib figure."""
    root = ElementTree.fromstring(svg)
    _, _, width, height = (float(number) for number in root.attrib["viewBox"].split())
    figure = new_figure(width, height)
    axes = figure.add_axes((0.0, 0.0, 1.0, 1.0))
    axes.set_axis_off()
    axes.set_xlim(0, width)
    axes.set_ylim(height, 0)  # downwards, as in SVG
    for element in root.iter():
        match _tag(element):
            case "rect":
                _rect(axes, element)
            case "line":
                ends = [float(element.attrib[name]) for name in ("x1", "x2", "y1", "y2")]
                axes.plot(ends[:2], ends[2:], color=element.attrib["stroke"], linewidth=1.0)
            case "text":
                _text(axes, element)
            case tag if tag not in _KNOWN:
                raise ValueError(f"<{tag}> cannot be drawn")
    return figure


def _tag(element: Element) -> str:
    return element.tag.rpartition("}")[2]


def _rect(axes: Axes, element: Element) -> None:
    x, y, width, height = (float(element.attrib.get(name, "0")) for name in ("x", "y", "width", "height"))
    axes.add_patch(Rectangle((x, y), width, height, facecolor=element.attrib["fill"], linewidth=0))


@dataclass(frozen=True)
class _Piece:
    text: str
    size: float
    colour: str
    weight: str

    @property
    def width(self) -> float:
        """How far the next piece stands from it."""
        if not self.text:
            return 0.0
        font = FontProperties(family="DejaVu Sans", weight=self.weight)
        # A space at the end has no outline: a dot behind it shows where it ends.
        dotted, dot = (TextPath((0, 0), text, self.size, prop=font) for text in (f"{self.text}.", "."))
        return float(dotted.get_extents().x1 - dot.get_extents().x1)


def _text(axes: Axes, element: Element) -> None:
    pieces = list(_pieces(element))
    whole = sum(piece.width for piece in pieces)
    x, y = float(element.attrib["x"]), float(element.attrib["y"])
    if element.attrib.get("text-anchor") == "middle":
        x -= whole / 2
    for piece in pieces:
        axes.text(
            x, y, piece.text, fontsize=piece.size, color=piece.colour, va="baseline", ha="left",
            fontfamily="DejaVu Sans", fontweight=piece.weight,
        )  # fmt: skip
        x += piece.width


def _pieces(element: Element) -> Iterator[_Piece]:
    own = _Piece(
        element.text or "", float(element.attrib["font-size"]), element.attrib["fill"], _weight(element)
    )  # fmt: skip
    yield own
    for inner in element:
        size, colour = float(inner.attrib.get("font-size", own.size)), inner.attrib.get("fill", own.colour)
        yield _Piece(inner.text or "", size, colour, own.weight)
        yield _Piece(inner.tail or "", own.size, own.colour, own.weight)


def _weight(element: Element) -> str:
    return "bold" if int(element.attrib.get("font-weight", "400")) >= 600 else "normal"
