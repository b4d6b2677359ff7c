"""What all charts share: colours by role, matplotlib's settings, axes, and writing a chart as SVG, PDF or PNG.

A chart is drawn in the light colours. Its SVG says which dark colour stands for each of them.
"""

import io
import re
import threading
import warnings
from base64 import b64encode
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, NamedTuple
from xml.sax.saxutils import escape

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.textpath import text_to_path

from askwell.views.printable import printable


class Colour(NamedTuple):
    """The colour of a role, as #rrggbb."""

    light: str
    dark: str


PALETTE = {
    "paper": Colour("#ffffff", "#0b0d10"),
    "panel": Colour("#f6f7f9", "#15181d"),
    "ink": Colour("#1f2328", "#e6edf3"),
    "pale": Colour("#5d656e", "#9aa4af"),
    "rule": Colour("#e3e6ea", "#2b3037"),
    "first": Colour("#1d5fd6", "#6ba2ff"),
    "second": Colour("#b25400", "#f2a04a"),
    "good": Colour("#12703b", "#56c98a"),
    "bad": Colour("#b3261e", "#ff8a80"),
    "series-1": Colour("#0b7a6b", "#45c4b1"),
    "series-2": Colour("#4b3fd1", "#a59cff"),
    "series-3": Colour("#b0206b", "#f77fbe"),
    "series-4": Colour("#7f6300", "#d9b84a"),
}

# Lines and markers distinguish curves even without colours.
LINES = ("-", (0, (6, 2)), (0, (2, 1.5)), (0, (7, 2, 1.5, 2)))
MARKERS = ("o", "s", "^", "D")

FONT = "DejaVu Sans"
"""It comes with matplotlib, so charts are the same on every machine."""
_FONTS_OF_SVG = "'Helvetica Neue', Helvetica, Arial, 'DejaVu Sans', sans-serif"
_PIXELS_AN_INCH = 72.0  # matplotlib's SVG counts in points
_STYLE: Any = {
    "svg.fonttype": "none",
    "pdf.fonttype": 42,  # letters stay text that can be searched and copied
    "text.parse_math": False,
    "text.hinting": "none",  # letters as wide in PNG as in PDF
    "font.family": FONT,
    "font.size": 12.0,
    "text.color": PALETTE["ink"].light,
    **dict.fromkeys(("axes.labelcolor", "xtick.labelcolor", "ytick.labelcolor"), PALETTE["pale"].light),
    **dict.fromkeys(("axes.edgecolor", "grid.color", "xtick.color", "ytick.color"), PALETTE["rule"].light),
    "axes.linewidth": 1.0,
    "grid.linewidth": 1.0,
    "axes.axisbelow": True,
    "axes.grid": False,
    "axes.spines.top": False,
    "axes.spines.right": False,
}


def light(role: str) -> str:
    """Return the colour in which a chart draws a role."""
    return PALETTE[role].light


def css_variables(*, dark: bool) -> str:
    """Return the roles as CSS declarations."""
    return " ".join(f"--{role}: {colour.dark if dark else colour.light};" for role, colour in PALETTE.items())


_DRAWING = threading.RLock()


@contextmanager
def chart_style() -> Generator[None]:
    """Set our matplotlib settings while a chart is drawn or written; other users of matplotlib keep theirs.

    They are global to all threads, so only one thread draws at a time.
    """
    with _DRAWING, matplotlib.rc_context(_STYLE), warnings.catch_warnings():
        # Scripts that the font lacks become boxes in PDF and PNG; SVG viewers have other fonts.
        warnings.filterwarnings("ignore", message=r"Glyph .* missing from font")
        warnings.filterwarnings("ignore", message=r"Matplotlib currently does not support")
        yield


def new_figure(width: int | float, height: int | float) -> Figure:
    """Return an empty figure of this size in pixels, made without pyplot, which keeps every figure in memory."""
    return Figure(figsize=(width / _PIXELS_AN_INCH, height / _PIXELS_AN_INCH), dpi=_PIXELS_AN_INCH)


def place(figure: Figure, *, left: int, top: int, right: int, bottom: int) -> Axes:
    """Return axes with these margins in pixels, without tick marks."""
    width, height = figure.get_size_inches() * _PIXELS_AN_INCH
    axes = figure.add_axes(
        (left / width, bottom / height, (width - left - right) / width, (height - top - bottom) / height)
    )
    axes.tick_params(length=0)
    return axes


def heading(axes: Axes, text: str, *, size: float = 12.0) -> None:
    """Put a title above the axes, flush with the labels to their left."""
    axes.set_title(text, loc="left", fontsize=size, color=light("ink"), x=-40 / axes.bbox.width, pad=9)


def percent_axis(axes: Axes, which: Literal["x", "y"], *, sign: bool = False) -> None:
    """Set the ticks of an axis from 0 to 100; `sign` puts % behind the last."""
    labels = ["0", "25", "50", "75", "100 %" if sign else "100"]
    (axes.set_xticks if which == "x" else axes.set_yticks)([0, 25, 50, 75, 100], labels)


@cache
def text_width(text: str, size: float, weight: str = "normal") -> float:
    """Return the width of a text in pixels, in the font of PDF and PNG; the fonts of most SVG viewers are narrower."""
    with chart_style():
        font = FontProperties(family=FONT, size=size, weight=weight)
        return text_to_path.get_text_width_height_descent(text, font, ismath=False)[0]


@dataclass(frozen=True)
class Chart:
    """A figure, with a title and a description for those who cannot see it."""

    figure: Figure
    title: str
    description: str

    def _repr_svg_(self) -> str:
        return self.svg()

    @property
    def size(self) -> tuple[int, int]:
        """Its width and height in pixels."""
        width, height = self.figure.get_size_inches() * _PIXELS_AN_INCH
        return round(width), round(height)

    def svg(self) -> str:
        """Return the chart as SVG, whose text is text and which follows its reader into dark mode."""
        with chart_style(), matplotlib.rc_context({"svg.hashsalt": "askwell"}):
            written = self._saved("svg", metadata=dict.fromkeys(("Creator", "Date", "Format", "Type")))
        drawn = printable(written.decode())  # XML has no place for control characters
        head, _, body = drawn[drawn.index("<svg") :].partition(">")
        width, height = self.size
        head = re.sub(r' width="\S+" height="\S+"', f' width="{width}" height="{height}"', head)
        title, description = (escape(printable(text)) for text in (self.title, self.description))
        return f"{head}><title>{title}</title><desc>{description}</desc><style>{_look()}</style>{body}"

    def data_uri(self) -> str:
        """Return the SVG as an address that holds it, for pages that may have no styles of their own in them."""
        return f"data:image/svg+xml;base64,{b64encode(self.svg().encode()).decode()}"

    def pdf(self) -> bytes:
        """Return the chart as PDF without dates, the same for the same chart."""
        return self._saved("pdf", metadata={"Creator": None, "Producer": None, "CreationDate": None})

    def png(self) -> bytes:
        """Return the chart as PNG, twice as many pixels across as the SVG."""
        return self._saved("png", metadata={"Software": None}, dpi=2 * _PIXELS_AN_INCH)

    def _saved(self, suffix: str, **options: Any) -> bytes:
        written = io.BytesIO()
        with chart_style():
            self.figure.savefig(written, format=suffix, **options)
        return written.getvalue()


@cache
def _look() -> str:
    """Return the fonts of an SVG, and for each colour that it is drawn in, the one to show in dark mode."""
    dark = "".join(
        f'[style*="{part}: {colour.light}"]{{{part}:{colour.dark}!important}}'
        for colour in PALETTE.values()
        for part in ("fill", "stroke")
    )
    return f"text{{font-family:{_FONTS_OF_SVG}!important}}@media screen and (prefers-color-scheme:dark){{{dark}}}"
