"""Pages as HTML: templates in which all text is escaped, around documents that `askwell.views` renders.

The content security policy allows no styles in a page, so that nothing injected into it can hide or move things.
"""

from collections.abc import Sequence
from functools import cache
from typing import Any

from fastapi import Request
from fastapi.responses import HTMLResponse
from jinja2 import Environment
from markupsafe import escape

from askwell.version import VERSION
from askwell.views.document import Document
from askwell.views.printable import visible
from askwell.views.to_html import blocks_html, document_html, new_environment

PAGES = {"/": "Ask", "/prompts": "Prompts", "/runs": "Runs", "/diffs": "Diffs", "/trust": "Trust", "/train": "Train"}
Link = tuple[str, str]
"""An address and its title."""


def page(
    request: Request, template: str, *, status: int = 200, part: str | None = None, **filling: Any
) -> HTMLResponse:
    """Return a page; or only a part of it, the block of its template that has the name of htmx's target."""
    known = {"pages": PAGES, "service": request.app.state.service, "version": VERSION}
    known["here"] = "/" + request.url.path.split("/")[1]
    found = _templates().get_template(template)
    part = part or request.headers.get("hx-target", "").replace("-", "_")
    if part in found.blocks:
        text = "".join(found.blocks[part](found.new_context(known | filling)))
    else:
        text = found.render(known | filling)
    return HTMLResponse(text, status, {"cache-control": "no-store"})


def document_page(
    request: Request, document: Document, *, back: str = "", links: Sequence[Link] = (), **filling: Any
) -> HTMLResponse:
    """Return a page that shows a document, under a link back to one of the pages and above links to others."""
    return page(request, "document.html", document=document, back=back, links=links, **filling)


@cache
def _templates() -> Environment:
    environment = new_environment("askwell.server")
    environment.filters |= {
        "percent": percent,
        "as_sent": escape,  # in fields of forms, whose text comes back as a name or an x
        "bar": lambda share: f"{100 * min(max(share, 0.0), 1.0):.2f}",
        "sentence": lambda text: text[:1].upper() + text[1:],
        "visible": visible,
        "document": document_html,
        "block": blocks_html,
    }
    return environment


def percent(share: float) -> str:
    """Return a probability as people read it; a small one is not shown as 0."""
    if share < 0.0005:
        return "< 0.1 %"
    return f"{100 * share:.1f} %" if share < 0.9995 else "100 %"
