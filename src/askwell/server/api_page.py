"""The page API: every address of the API with what is sent and what comes back, from its OpenAPI document."""

import json
import re
import shlex
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote, urlencode

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse

from askwell.server.ask_page import choices, samples
from askwell.server.render import document_page
from askwell.server.service import Service, service_of
from askwell.views.document import Block, Code, Document, Paragraph, Section, Table, table
from askwell.views.printable import NONE

router = APIRouter(include_in_schema=False)
_TOKEN = "$ASKWELL_TOKEN"


@router.get("/api", response_class=HTMLResponse)
def api_page(request: Request) -> HTMLResponse:
    """Show what programs can ask."""
    service = service_of(request)
    has_token, address = service.settings.token is not None, str(request.base_url).rstrip("/")
    document = api_document(request.app.openapi(), address, _known(service), with_token=has_token)
    return document_page(request, document, links=[("/api/v1/openapi.json", "The same for programs: openapi.json")])


def _known(service: Service) -> dict[str, Any]:
    """Return what examples can name, since it is there: a mixture with some of its x's, a run and a job."""
    known: dict[str, Any] = {}
    entry = next((choice.entry for choice in choices(service.catalogue).values()), None)
    if entry is not None:
        xs = samples(entry)[:2] or ["x"]
        known |= {"mixture": entry.name, "xs": xs, "x": xs[0], **({"name": entry.run} if entry.run else {})}
    if jobs := service.jobs.all():
        known["job"] = jobs[0].id
    return known


def api_document(
    openapi: Mapping[str, Any], address: str, known: Mapping[str, Any], *, with_token: bool = False
) -> Document:
    """Return the operations of an OpenAPI document, with an example of each at an address; the examples have the values
    of fields and parameters that are `known`."""
    sections = []
    for path, methods in openapi["paths"].items():
        for method, operation in methods.items():
            blocks: list[Block] = [Paragraph((operation.get("description") or operation["summary"]).replace("`", ""))]
            sent, body = [*_parameters(operation)], _content(operation.get("requestBody", {}))
            sent += _fields(openapi, body)
            blocks.append(Code(((_curl(openapi, address, path, method, operation, known, with_token), ""),)))
            if sent:
                blocks.append(_table("What is sent", sent))
            answer = next((one for status, one in operation["responses"].items() if status.startswith("2")), {})
            if came := [*_fields(openapi, _content(answer))]:
                blocks.append(_table("What comes back", came))
            sections.append(Section(f"{method.upper()} {path}", tuple(blocks)))
    lead = (
        'What programs can ask of this service. An error is {"error": "a sentence"} with a fitting status; 429 says '
        "in Retry-After when to try again. In Python, askwell.Client asks for you."
    )
    return Document("API", lead, sections=tuple(sections))


def _table(title: str, fields: list[tuple[str, str, str]]) -> Table:
    return table(("name", "type", "meaning"), fields, title=title)


def _curl(
    openapi: Mapping[str, Any],
    address: str,
    path: str,
    method: str,
    operation: Any,
    known: Mapping[str, Any],
    with_token: bool,
) -> str:
    query = {one["name"]: known.get(one["name"], one["schema"].get("examples", [""])[0])
             for one in operation.get("parameters", ()) if one["in"] == "query" and one.get("required")}  # fmt: skip
    path = re.sub(r"{(\w+)}", lambda name: quote(known.get(name[1], name[1]), safe=""), path)
    asked = f"{address}{path}" + (f"?{urlencode(query)}" if query else "")
    words = ["curl", "-s", *(["-X", method.upper()] if method not in ("get", "post") else []), asked]
    example = next(iter(_schema(openapi, _content(operation.get("requestBody", {}))).get("examples", ())), None)
    if example is not None:
        example = {name: known.get(name, value) for name, value in example.items()}
        words += ["-H", "content-type: application/json", "-d", json.dumps(example)]
    return shlex.join(words) + (f' -H "authorization: Bearer {_TOKEN}"' if with_token else "")


def _content(of: Mapping[str, Any]) -> Mapping[str, Any]:
    return of.get("content", {}).get("application/json", {}).get("schema", {})


def _schema(openapi: Mapping[str, Any], schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a schema, looked up if it is a reference."""
    name = schema.get("$ref", "").rpartition("/")[2]
    return openapi["components"]["schemas"][name] if name else schema


def _parameters(operation: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    for one in operation.get("parameters", ()):
        yield _field(one["name"], one["schema"], one.get("required", False))


def _fields(openapi: Mapping[str, Any], schema: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, str, str]]:
    """Yield the fields of a schema, and below a field those of the objects in it."""
    found = _schema(openapi, schema)
    for name, one in found.get("properties", {}).items():
        yield _field(f"{before}{name}", one, name in found.get("required", ()))
        inner = one
        while "items" in inner:
            inner = inner["items"]
        if "$ref" in inner:
            yield from _fields(openapi, inner, f"{before}{name}.")


def _field(name: str, schema: Mapping[str, Any], required: bool) -> tuple[str, str, str]:
    default = (
        "" if required or schema.get("default") in (None, [], "") else f"Default: {json.dumps(schema['default'])}."
    )
    meaning = " ".join(filter(None, (schema.get("description", ""), default)))
    return name, _type(schema), meaning or NONE


def _type(schema: Mapping[str, Any]) -> str:
    """Return the type of a value in words."""
    if "anyOf" in schema:
        return " or ".join(_type(one) for one in schema["anyOf"])
    if "$ref" in schema:
        return schema["$ref"].rpartition("/")[2]
    if "enum" in schema:
        return ", ".join(schema["enum"])
    kind = schema.get("type", "object")
    return f"list of {_type(schema['items'])}" if "items" in schema else "nothing" if kind == "null" else kind
