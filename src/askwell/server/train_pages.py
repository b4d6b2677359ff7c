"""The page Train: facts and templates are entered, checked while typing, and become a run that can be watched."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Form, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import HTMLResponse, RedirectResponse
from pydantic import ValidationError
from starlette.datastructures import UploadFile as SentFile

from askwell.data.facts import Fact, Relation
from askwell.data.readers import parse_facts
from askwell.data.templates import Template, parse_template
from askwell.errors import BadTemplate, UsageError
from askwell.files import problem_in
from askwell.lms.families import Unusable
from askwell.lms.frozen import FrozenLM
from askwell.lms.tokenisation import tokenise
from askwell.mixture.mixture import Mixture
from askwell.server.ask_page import FormName, Sent, uploaded
from askwell.server.render import page
from askwell.server.schemas import TrainRequest
from askwell.server.service import answered, service_of
from askwell.server.settings import LONGEST_TEXT, MOST_FACTS, MOST_TEMPLATES
from askwell.views.one_run import learning_figure

router = APIRouter(include_in_schema=False)
Long = Annotated[str, Form()]


@router.get("/train", response_class=HTMLResponse)
def train_page(request: Request) -> HTMLResponse:
    """Show the form, and the jobs so far."""
    service = service_of(request)
    return page(request, "train.html", lms=service.lms(), jobs=service.jobs.all())


@router.post("/train/check", response_class=HTMLResponse)
async def check(
    request: Request, lm: FormName = "", facts: Long = "", templates: Long = "", file: Sent = None
) -> HTMLResponse:
    """Show how the LM reads the templates, and which facts it could not be asked."""
    texts, problem, pairs = _lines(templates), "", []
    try:
        pairs = await _all_pairs(facts, file)
    except UsageError as error:
        problem = str(error)
    service = service_of(request)
    source = service.lm_source(lm)
    checking = service.queue.call(lambda lms: check_order(lms.get(source).lm, texts[:MOST_TEMPLATES], pairs))
    found = await answered(request, checking)
    return page(request, "checked.html", found=found, problem=problem)


@router.post("/train", response_class=HTMLResponse)
async def start(
    request: Request,
    lm: FormName,
    relation: FormName = "",
    facts: Long = "",
    templates: Long = "",
    budget: Annotated[int | None, Form()] = None,
    deep: Annotated[bool, Form()] = False,
    file: Sent = None,
) -> RedirectResponse:
    """Start a job and show it."""
    pairs = [{"x": fact.x, "y": fact.y} for fact in await _all_pairs(facts, file)]
    given = {"lm": lm, "relation": relation.strip(), "facts": pairs, "templates": _lines(templates)}
    try:
        order = TrainRequest.model_validate({**given, "deep": deep, "pairs": budget})
    except ValidationError as error:
        raise UsageError(problem_in(error)) from None
    job = await run_in_threadpool(service_of(request).train, order)
    return RedirectResponse(f"/train/{job.id}", status_code=303)


@router.get("/train/{job}", response_class=HTMLResponse)
def job_page(request: Request, job: str) -> HTMLResponse:
    """Show the current state of a job."""
    found = service_of(request).jobs.find(job)
    points = [(float(line.pairs), line.dev_p_at_1) for line in found.history]
    return page(request, "job.html", job=found, curve=learning_figure(points) if points else None)


@router.post("/train/{job}/cancel")
def cancel(request: Request, job: str) -> RedirectResponse:
    """Cancel a job."""
    service_of(request).jobs.cancel(job)
    return RedirectResponse(f"/train/{job}", status_code=303)


def _lines(text: str) -> list[str]:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if long := next((line for line in lines if len(line) > LONGEST_TEXT), None):
        raise UsageError(f"{long[:40]!r}… has {len(long)} characters: {LONGEST_TEXT} at most")
    return lines


async def _all_pairs(text: str, file: SentFile | None) -> list[Fact]:
    """Return the pairs that were pasted and those of an uploaded file."""
    pairs = list(_pairs(text))
    if file is not None and file.filename:
        with uploaded(await file.read(), file.filename) as path:
            pairs += parse_facts(path)
    if len(pairs) > MOST_FACTS:
        raise UsageError(f"{len(pairs)} facts are too many for the page: {MOST_FACTS} at most")
    return pairs


def _pairs(text: str) -> list[Fact]:
    """Parse lines of x and y separated by a tab, a semicolon or a comma."""
    pairs = []
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        separator = next((mark for mark in ("\t", ";", ",") if mark in line), None)
        x, _, y = line.partition(separator) if separator else (line, "", "")
        if not x.strip() or not y.strip():
            raise UsageError(f"facts, line {number}: expected x and y, separated by a comma, a semicolon or a tab")
        pairs.append(Fact(x.strip(), y.strip()))
    return pairs


# ── checking what was entered ─────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class CheckedTemplate:
    """How an LM reads a template."""

    problem: str | None
    """Why it cannot be used; None if it can."""
    tokens: tuple[str, ...] = ()
    """Its tokens with the two blanks, in order."""


@dataclass(frozen=True)
class CheckedOrder:
    """What training would be done on."""

    templates: tuple[CheckedTemplate, ...]
    facts: int
    left_out: tuple[tuple[Fact, str], ...]
    """Facts that the LM cannot be asked about, and why."""


def check_order(lm: FrozenLM, texts: Sequence[str], facts: Sequence[Fact]) -> CheckedOrder:
    """Check how an LM reads templates, and which facts it could not be asked with them."""
    checked, usable = [], []
    for text in texts:
        try:
            template = parse_template(text)
            checked.append(CheckedTemplate(None, _tokens(lm, template)))
            usable.append(template)
        except (BadTemplate, Unusable) as problem:
            checked.append(CheckedTemplate(str(problem)))
    left_out: list[tuple[Fact, str]] = []
    if usable and facts:
        encoded = Mixture(lm, usable).encode_relation(Relation.of("checked", facts, facts, facts))
        left_out = [(one.fact, one.reason) for one in encoded.left_out("train")]
    return CheckedOrder(tuple(checked), len(facts), tuple(left_out))


def _tokens(lm: FrozenLM, template: Template) -> tuple[str, ...]:
    tokens = tokenise(template, lm.wording)
    lm.family.ask_y(tokens, lm.wording, lm.special)
    names = [lm.tokenizer.convert_ids_to_tokens(list(part)) for part in (tokens.before, tokens.between, tokens.after)]
    return (*names[0], template.first, *names[1], template.second, *names[2])
