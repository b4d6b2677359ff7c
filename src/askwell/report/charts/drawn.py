"""From a matplotlib figure to SVG text that can stand in a page: no metadata, no fonts, no name used twice."""

import io
import re
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from askwell.report.palette import PALETTE, light, variable

_FONT_FAMILY = re.compile(r"font-family:[^;]*;?")
_PIXELS_AN_INCH = 72.0  # matplotlib's SVG counts in points
_STYLE: Any = {
    "svg.fonttype": "none",
    "text.parse_math": False,
    "font.size": 12.0,
    "axes.edgecolor": light("rule"),
    "axes.labelcolor": light("pale"),
    "axes.linewidth": 1.0,
    "text.color": light("ink"),
    "xtick.color": light("rule"),
    "ytick.color": light("rule"),
    "xtick.labelcolor": light("pale"),
    "ytick.labelcolor": light("pale"),
    "grid.color": light("rule"),
    "grid.linewidth": 1.0,
    "axes.axisbelow": True,
    "axes.grid": False,
    "axes.spines.top": False,
    "axes.spines.right": False,
}


@contextmanager
def chart_style() -> Generator[None]:
    """matplotlib's settings while a chart is drawn; whatever else uses matplotlib keeps its own."""
    with matplotlib.rc_context(_STYLE):
        yield


def new_figure(width: float, height: float) -> Figure:
    """An empty figure of so many pixels. It is made without pyplot, which keeps every figure in memory."""
    return Figure(figsize=(width / _PIXELS_AN_INCH, height / _PIXELS_AN_INCH), dpi=_PIXELS_AN_INCH)


def place(figure: Figure, *, left: int, top: int, right: int, bottom: int) -> Axes:
    """Axes with so many pixels around them."""
    width, height = figure.get_size_inches() * _PIXELS_AN_INCH
    return figure.add_axes(
        (left / width, bottom / height, (width - left - right) / width, (height - top - bottom) / height)
    )


def svg_of(figure: Figure, name: str, description: str) -> str:
    """The figure as SVG, the same for the same figure.

    `name` tells its parts from those of other charts of a page; `description` is for those who cannot see it.
    """
    written = io.StringIO()
    with matplotlib.rc_context({"svg.hashsalt": name}):
        figure.savefig(written, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    svg = ElementTree.fromstring(written.getvalue())
    for element in svg.iter():
        element.tag = element.tag.rpartition("}")[2]
    for parent in list(svg.iter()):
        for child in list(parent):
            if child.tag in ("metadata", "style"):
                parent.remove(child)
    for element in svg.iter():
        _free_of_matplotlib(element, name)
    svg.attrib = {
        "xmlns": "http://www.w3.org/2000/svg",
        "viewBox": svg.attrib["viewBox"],
        "role": "img",
        "class": "chart",
        "stroke-linejoin": "round",
        "font-family": "'Helvetica Neue', Helvetica, Arial, 'DejaVu Sans', sans-serif",
    }
    title = Element("title")
    title.text = description
    svg.insert(0, title)
    return ElementTree.tostring(svg, encoding="unicode").strip() + "\n"


def _free_of_matplotlib(element: Element, name: str) -> None:
    """Takes the font, and names that nothing refers to, from an element, and makes colours those of the page."""
    link = element.attrib.pop("{http://www.w3.org/1999/xlink}href", None)
    if link is not None:
        element.set("href", f"#{name}-{link.removeprefix('#')}")
    if "id" in element.attrib:
        if element.tag in ("path", "clipPath"):
            element.set("id", f"{name}-{element.attrib['id']}")
        else:
            del element.attrib["id"]
    clip = element.attrib.get("clip-path")
    if clip is not None:
        element.set("clip-path", clip.replace("url(#", f"url(#{name}-"))
    style = element.attrib.get("style")
    if style is not None:
        element.set("style", _in_the_page_colours(_FONT_FAMILY.sub("", style)).strip())
    elif element.tag == "text":
        element.set("style", f"fill: {variable('ink')}")


def _in_the_page_colours(style: str) -> str:
    for role, colour in PALETTE.items():
        style = re.sub(rf"(fill|stroke): {colour.light}\b", rf"\1: {variable(role)}", style)
    return style
