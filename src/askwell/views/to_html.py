"""Documents as HTML: whole pages that need no other file, script or font, and fragments for notebooks.

All text is escaped; only drawings are markup.
"""

import re
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape
from markupsafe import Markup

from askwell.views.document import Document
from askwell.views.drawing import css_variables, variable
from askwell.views.printable import listed, printable, visible


def page_html(document: Document, template: str = "page.html.jinja", **filling: Any) -> str:
    """Return the document as a page, the same for the same document; `filling` is what other templates need."""
    colours = {"light": css_variables(dark=False), "dark": css_variables(dark=True)}
    return _templates().get_template(template).render(page=document, notebook=False, **colours, **filling)


def notebook_html(document: Document) -> str:
    """Return the document as a part of a notebook, without a style sheet."""
    return _templates().get_template("notebook.html.jinja").render(page=document, notebook=True)


def sentences(template: str, **filling: Any) -> list[str]:
    """The lines of a text whose template chooses what to say about some figures."""
    text = _templates().get_template(template).render(**filling)
    return [line for line in text.splitlines() if line.strip()]


@cache
def _templates() -> Environment:
    environment = Environment(
        loader=PackageLoader("askwell.views"),
        autoescape=select_autoescape(("html.jinja",)),
        undefined=StrictUndefined,
        finalize=printable_text,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {
        "drawn": lambda drawing: Markup(drawing.chart.svg_in_page(drawing.name)),  # its text is escaped already
        "listed": listed,
        "one": lambda figure: f"{figure:.1f}",
        "p_value": lambda p: "p < 0.001" if p < 0.001 else f"p = {p:.3f}" if p < 0.1 else f"p = {p:.2f}",
        "percent": lambda share: f"{100 * share:.0f} %",
        "unbroken": _unbroken,
        "variable": variable,
        "visible": visible,
    }
    return environment


def printable_text(value: Any) -> Any:
    """Return what a template prints; texts come from files that others wrote."""
    return printable(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _unbroken(text: str) -> str:
    """The text with non-breaking spaces between figures and their signs."""
    return re.sub(r" (?=%)|(?<=\bp) (?=[<=])|(?<=[<=]) (?=\d)", "\u00a0", text)
