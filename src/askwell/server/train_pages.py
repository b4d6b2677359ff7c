"""The page Train: facts and templates are entered, checked while typing, and become a run that can be watched."""

from typing import Annotated, Any

from fastapi import APIRouter, File, Form, Request, UploadFile
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import HTMLResponse, RedirectResponse
from starlette.datastructures import UploadFile as SentFile

from askwell.data.facts import Fact
from askwell.data.readers import parse_facts
from askwell.data.templates import parse_template
from askwell.data.testbed import PREFIXES
from askwell.errors import UsageError
from askwell.server.api import answered, job_info, service_of
from askwell.server.ask_page import uploaded
from askwell.server.jobs import Order, facts_of
from askwell.server.render import page
from askwell.server.settings import LONGEST_NAME, LONGEST_TEXT, MOST_FACTS, MOST_TEMPLATES
from askwell.specs.mixture_spec import MixtureSpec
from askwell.specs.training_spec import TrainingSpec
from askwell.views.one_run import learning_figure

router = APIRouter(include_in_schema=False)
_EXAMPLE_FACTS = "France, Paris\nPeru, Lima\nNorway, Oslo"
_EXAMPLE_TEMPLATES = "the capital of [X] is [Y] .\n[X] is ruled from [Y] ."
LM = Annotated[str, Form(max_length=LONGEST_NAME)]
Long = Annotated[str, Form()]


@router.get("/train", response_class=HTMLResponse)
def train_page(request: Request) -> HTMLResponse:
    """Show the form, and the jobs so far."""
    service = service_of(request)
    jobs = [job_info(job, service) for job in service.jobs.all()]
    filling: dict[str, Any] = {"example_facts": _EXAMPLE_FACTS, "example_templates": _EXAMPLE_TEMPLATES, "jobs": jobs}
    return page(request, "train.html", lms=service.lms(), allowed=service.settings.training, **filling)


@router.post("/train/check", response_class=HTMLResponse)
async def check(
    request: Request,
    lm: LM = "",
    facts: Long = "",
    templates: Long = "",
    file: Annotated[UploadFile | None, File()] = None,
) -> HTMLResponse:
    """Show how the LM reads the templates, and which facts it could not be asked."""
    texts, problem, pairs = _lines(templates), "", []
    try:
        pairs = await _all_pairs(facts, file)
    except UsageError as error:
        problem = str(error)
    found = await answered(request, service_of(request).check(lm, texts[:MOST_TEMPLATES], pairs))
    return page(request, "checked.html", found=found, problem=problem)


@router.post("/train", response_class=HTMLResponse)
async def start(
    request: Request,
    lm: LM,
    relation: Annotated[str, Form(max_length=LONGEST_NAME)] = "",
    facts: Long = "",
    templates: Long = "",
    budget: Annotated[str, Form(max_length=12)] = "",
    deep: Annotated[bool, Form()] = False,
    file: Annotated[UploadFile | None, File()] = None,
) -> RedirectResponse:
    """Start a job and show it."""
    service = service_of(request)
    pairs = await _all_pairs(facts, file)
    name = relation.strip()
    if not name or name.startswith(PREFIXES):
        raise UsageError(f"the relation needs another name, which does not begin with {' or '.join(PREFIXES)}")
    if budget and not (budget.isdecimal() and 0 < int(budget) <= 1_000_000):
        raise UsageError("the budget is a number of pairs, such as 2000")
    parsed = tuple(parse_template(text) for text in _lines(templates))
    if not parsed:
        raise UsageError("there is no template: write at least one, such as [X] was born in [Y] .")
    order = Order(
        service.lm_source(lm), name, facts_of([(fact.x, fact.y) for fact in pairs]), parsed, MixtureSpec(deep=deep),
        TrainingSpec(pairs=int(budget) if budget else None),
    )  # fmt: skip
    job = await run_in_threadpool(service.train, order)
    return RedirectResponse(f"/train/{job.id}", status_code=303)


@router.get("/train/{job}", response_class=HTMLResponse)
def job_page(request: Request, job: str) -> HTMLResponse:
    """Show the current state of a job."""
    service = service_of(request)
    found = job_info(service.jobs.find(job), service)
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
        if max(len(x), len(y)) > LONGEST_TEXT:
            raise UsageError(f"facts, line {number}: an x or a y may have at most {LONGEST_TEXT} characters")
        pairs.append(Fact(x.strip(), y.strip()))
    return pairs
