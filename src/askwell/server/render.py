"""Pages and charts as HTML: templates in which all text is escaped, and charts without style attributes.

The content security policy allows no style attributes, so that nothing injected into a page can hide or move things.
"""

import re
from collections.abc import Callable
from functools import cache
from importlib.resources import files
from typing import Any
from xml.etree import ElementTree

from fastapi import Request
from fastapi.responses import HTMLResponse
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from askwell.data.testbed import PREFIX
from askwell.version import VERSION
from askwell.views.drawing import Chart, css_variables
from askwell.views.printable import visible
from askwell.views.to_html import printable_text
from askwell.views.words_figure import probability_figure, weight_figure

PAGES = {"/": "Ask", "/prompts": "Prompts", "/runs": "Runs", "/trust": "Trust", "/train": "Train"}
_DECLARATION = re.compile(r"\s*([\w-]+)\s*:\s*([^;]+?)\s*(?:;|$)")


def page(request: Request, template: str, *, status: int = 200, **filling: Any) -> HTMLResponse:
    """A page, or only a part of it if the request wants that."""
    here = "/" + request.url.path.split("/")[1]
    known = {"pages": PAGES, "here": here, "service": request.app.state.service, "version": VERSION}
    return HTMLResponse(html(template, **known, **filling), status, {"cache-control": "no-store"})


def html(template: str, **filling: Any) -> str:
    """A template, filled in."""
    return _templates().get_template(template).render(**filling)


def drawn(make: Callable[[], Chart], name: str) -> Markup:
    """A chart as SVG in the colours of the page, which can have no other chart of this name."""
    return Markup(without_styles(make().svg_in_page(name)))  # its text was escaped when it was written


def without_styles(svg: str) -> str:
    """The SVG with its styles as attributes."""
    root = ElementTree.fromstring(svg.replace(' xmlns="http://www.w3.org/2000/svg"', "", 1))
    for element in root.iter():
        for name, value in _DECLARATION.findall(element.attrib.pop("style", "")):
            if name == "font":
                _set_font(element, value)
            else:
                element.set(name, value)
    root.set("xmlns", "http://www.w3.org/2000/svg")
    return ElementTree.tostring(root, encoding="unicode")


def _set_font(element: ElementTree.Element, font: str) -> None:
    for word in font.split():
        if word.endswith("px"):
            element.set("font-size", word)
        elif word == "bold" or word.isdecimal():
            element.set("font-weight", word)
        elif word in ("italic", "oblique"):
            element.set("font-style", word)


@cache
def colours() -> str:
    """The palette of all charts and pages as CSS, light and dark."""
    dark = f"@media screen and (prefers-color-scheme: dark) {{ :root {{ {css_variables(dark=True)} }} }}"
    return f":root {{ color-scheme: light dark; {css_variables(dark=False)} }}\n{dark}\n"


@cache
def static(name: str) -> str:
    """A file of the folder static, by its name."""
    return files("askwell.server").joinpath("static", name).read_text(encoding="utf-8")


@cache
def _templates() -> Environment:
    environment = Environment(
        loader=PackageLoader("askwell.server"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=printable_text,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "percent": percent,
        "as_sent": escape,  # in fields of forms, whose text comes back as a name or an x
        "bar": lambda share: f"{100 * min(max(share, 0.0), 1.0):.2f}",
        "one": lambda figure: "–" if figure is None else f"{figure:.1f}",
        "short": lambda name: name.removeprefix(PREFIX).replace("_", " ") if name.startswith(PREFIX) else name,
        "visible": visible,
        "weight": weight_figure,
        "probability": probability_figure,
    }
    return environment


def percent(share: float) -> str:
    """A probability as people read it; a small one is not shown as 0."""
    if share < 0.0005:
        return "< 0.1 %"
    return f"{100 * share:.1f} %" if share < 0.9995 else "100 %"
