"""Documents as HTML: whole pages that need no other file, script or font, and parts of other pages and of notebooks.

All text is escaped. Nothing but a whole page's style sheet is a style, so that pages may forbid all others.
"""

import re
from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from askwell.views.document import Block, Document, Figure
from askwell.views.drawing import css_variables
from askwell.views.printable import printable
from askwell.views.to_files import markdown_escaped, markdown_section

_NOTHING = Markup()


def page_html(document: Document) -> str:
    """Return the document as a page, the same for the same document."""
    return _rendered("page.html.jinja", document, below="", style=Markup(style_sheet()))  # our own file


def page_files(document: Document, name: str, *, as_png: bool = False) -> dict[str, str | bytes]:
    """Return a page as HTML and Markdown of that name, and its drawings in the folder figures, perhaps also as PNG."""
    drawings = [drawing for block in document.blocks if isinstance(block, Figure) for drawing in block.drawings]
    text = [f"# {markdown_escaped(document.title)}\n", f"{markdown_escaped(document.lead)}\n"]
    text += [markdown_section(section).removeprefix("## \n\n") for section in document.sections]
    text += [f"{markdown_escaped(document.foot)}\n"] if document.foot else []
    contents: dict[str, str | bytes] = {f"{name}.html": page_html(document), f"{name}.md": "\n".join(text)}
    contents |= {f"figures/{drawing.name}.svg": drawing.chart.svg() for drawing in drawings}
    return contents | {f"figures/{drawing.name}.png": drawing.chart.png() for drawing in drawings if as_png}


def document_html(document: Document, below: Markup = _NOTHING) -> Markup:
    """Return the document as a part of a page that has the style sheet, with something of the page's own below its
    title."""
    return Markup(_rendered("document.html.jinja", document, below=below))  # escaped by its template


def blocks_html(*blocks: Block) -> Markup:
    """Return blocks as a part of a page that has the style sheet."""
    macros = _templates().get_template("blocks.html.jinja").module
    return Markup("".join(getattr(macros, type(block).__name__)(block) for block in blocks))


def notebook_html(document: Document) -> str:
    """Return the document as a part of a notebook, without a style sheet."""
    return _rendered("notebook.html.jinja", document, notebook=True)


@cache
def style_sheet() -> str:
    """Return the style sheet of pages and reports, with the colours of charts, light and dark."""
    return (
        f":root {{ color-scheme: light dark; {css_variables(dark=False)} }}\n"
        f"@media screen and (prefers-color-scheme: dark) {{ :root {{ {css_variables(dark=True)} }} }}\n"
        + files("askwell.views").joinpath("templates", "page.css").read_text(encoding="utf-8")
    )


def _rendered(template: str, document: Document, **filling: Any) -> str:
    return _templates().get_template(template).render(page=document, **filling)


@cache
def _templates() -> Environment:
    environment = new_environment("askwell.views")
    environment.filters["unbroken"] = _unbroken
    return environment


def new_environment(package: str) -> Environment:
    """Return the templates of a package, in which all text is escaped and nothing may be missing."""
    return Environment(
        loader=PackageLoader(package),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_printable,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )


def _printable(value: Any) -> Any:
    """Return what a template prints; texts come from files that others wrote."""
    return printable(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _unbroken(text: str) -> str:
    """Return the text with non-breaking spaces between figures and their signs."""
    return re.sub(r" (?=%)|(?<=\bp) (?=[<=])|(?<=[<=]) (?=\d)", "\u00a0", text)
