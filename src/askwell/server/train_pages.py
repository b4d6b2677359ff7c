"""The page Train: facts and templates are entered, checked while typing, and become runs that can be watched."""

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fastapi import APIRouter, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from pydantic import ValidationError
from starlette.datastructures import UploadFile

from askwell.data.facts import Fact, Relation
from askwell.data.readers import USUAL, Columns, parse_facts, read_head
from askwell.data.split import rule_with
from askwell.data.templates import Template, parse_template
from askwell.data.testbed import PREFIXES
from askwell.errors import BadTemplate, UsageError
from askwell.evaluation.scoring import FEW
from askwell.files import hash_json, problem_in
from askwell.lms.families import Unusable
from askwell.lms.frozen import FrozenLM
from askwell.lms.tokenisation import tokenise
from askwell.mixture.mixture import Mixture
from askwell.runs.several_runs import seeds_of
from askwell.server.ask_page import uploaded
from askwell.server.render import page
from askwell.server.schemas import TrainRequest
from askwell.server.service import Service, answered, candidates_of, relation_of, service_of
from askwell.server.settings import LONGEST_TEXT, MOST_FACTS, MOST_TEMPLATES, folder_of_new_runs
from askwell.views.document import Table, table
from askwell.views.one_run import learning_figure
from askwell.views.printable import shortened
from askwell.views.words import word_of

router = APIRouter(include_in_schema=False)
_PREVIEW = 5
"""Rows of an upload that are shown."""
_FIELDS = ("relation", "lm", "facts", "file", "templates", "candidates", "split", "shots", "seeds", "budget")
_FIELD_OF = {"pairs": "budget", "seed": "seeds"}
"""The fields of the form that fill those of an order with other names."""


@dataclass
class Entered:
    """What was entered into the form, and what is wrong with it, by field."""

    texts: dict[str, str] = field(default_factory=dict)
    facts: list[Fact] = field(default_factory=list)
    columns: list[str] = field(default_factory=list)
    """The columns of an upload, if it does not say by their names which are x and y."""
    preview: Table | None = None
    """The first rows of the upload."""
    upload_shown: str = ""
    """A hash of the rows and columns to be shown. Where the form has them already they stay as they are, since
    replacing a field takes it away from under the hand that is about to choose in it."""
    problems: dict[str, str] = field(default_factory=dict)

    def __getitem__(self, name: str) -> str:
        return self.texts.get(name, "")

    @contextmanager
    def noting(self, name: str) -> Generator[None]:
        """Note an error in the block beside a field, unless it has one already."""
        try:
            yield
        except UsageError as error:
            said = str(error)
            problem = said.partition(": ")[2] if said.startswith("`") else said  # the field says what it is about
            self.problems.setdefault(name, problem)


@router.get("/train", response_class=HTMLResponse)
def train_page(request: Request) -> HTMLResponse:
    """Show the form, and the jobs so far."""
    return _form(request, Entered())


def _form(request: Request, entered: Entered, status: int = 200) -> HTMLResponse:
    service = service_of(request)
    new_runs = folder_of_new_runs(service.settings.runs).resolve()
    known: dict[str, Any] = {"lms": service.lms(), "jobs": service.jobs.all(), "fields": _FIELDS}
    folder = new_runs if service.settings.token is None else new_runs.name
    return page(request, "train.html", status=status, entered=entered, folder=folder, oob=False, **known)


@router.post("/train/check", response_class=HTMLResponse)
async def check(request: Request) -> HTMLResponse:
    """Show how the LM reads the templates, what was uploaded, and which facts the LM could not be asked."""
    service, entered = service_of(request), await _entered(request)
    source = service.lm_source(entered["lm"])
    texts = _lines(entered["templates"])[:MOST_TEMPLATES]
    checking = service.queue.call(lambda lms: check_order(lms.get(source).lm, texts, entered.facts))
    found = await answered(request, checking)
    return page(request, "checked.html", found=found, entered=entered, fields=_FIELDS, oob=True)


@router.post("/train", response_class=HTMLResponse)
async def start(request: Request) -> Response:
    """Start a job for each seed, and show it; or say beside each field what is wrong with it."""
    service, entered = service_of(request), await _entered(request)
    is_partial = bool(request.headers.get("hx-request"))
    orders = await run_in_threadpool(_orders, service, entered)
    jobs = []
    if not entered.problems:
        with entered.noting("facts"):
            jobs = [await run_in_threadpool(service.train, order) for order in orders]
    if not jobs and is_partial:
        shown = page(request, "checked.html", found=None, entered=entered, fields=_FIELDS, oob=True)
        if "templates" not in entered.problems:
            shown.headers["hx-reswap"] = "none"  # how the LM reads the templates stays
        return shown
    if not jobs:
        return _form(request, entered, 422)
    there = f"/train/{jobs[0].id}" if len(jobs) == 1 else "/train"
    return Response(headers={"hx-redirect": there}) if is_partial else RedirectResponse(there, status_code=303)


async def _entered(request: Request) -> Entered:
    """Read the form: its texts, and the facts that were pasted and uploaded."""
    async with request.form() as form:
        entered = Entered({name: text for name, text in form.items() if isinstance(text, str)})
        with entered.noting("facts"):
            entered.facts += _pairs(entered["facts"])
        file = form.get("file")
        if isinstance(file, UploadFile) and file.filename:
            with entered.noting("file"), uploaded(await file.read(), file.filename) as path:
                _read_upload(entered, path, file.filename)
    if len(entered.facts) > MOST_FACTS:
        entered.problems["facts"] = f"{len(entered.facts)} facts are too many for the page: {MOST_FACTS} at most"
    for name in ("templates", "candidates"):
        with entered.noting(name):
            _lines(entered[name])
    return entered


def _read_upload(entered: Entered, path: Path, name: str) -> None:
    """Read the facts of an upload; if its columns have other names, those that were chosen, or else ask for them."""
    names, rows = read_head(path, _PREVIEW)
    chosen = Columns(entered["x"] or None, entered["y"] or None)
    try:
        USUAL.found(names)
    except UsageError:
        entered.columns = names
    entered.preview = table(tuple(names) or ("",), rows, caption=f"The first rows of {shortened(name, 60)}.")
    entered.upload_shown = hash_json(repr((name, names, rows, entered.columns)))
    if entered.columns and not ({chosen.x, chosen.y} <= {*names} and chosen.x != chosen.y):
        raise UsageError(f"choose which of the {len(names)} columns of {shortened(name, 60)} is x, and which is y")
    entered.facts += parse_facts(path, chosen if entered.columns else USUAL)


def _orders(service: Service, entered: Entered) -> list[TrainRequest]:
    """Return an order for each seed, and note what is wrong."""
    for name, missing in (("relation", "give the relation a name"), ("templates", "give at least one template")):
        if not entered[name].strip():
            entered.problems.setdefault(name, missing)
    relation = entered["relation"].strip()
    if not entered.facts and not relation.startswith(PREFIXES) and not {"facts", "file"} & {*entered.problems}:
        entered.problems["facts"] = "give pairs of x and y, or choose a file"
    with entered.noting("lm"):
        service.lm_source(entered["lm"])
    with entered.noting("templates"):
        templates = _lines(entered["templates"])
        for text in templates:
            parse_template(text)
    seeds = [0]
    with entered.noting("seeds"):
        seeds = seeds_of(entered["seeds"]) if entered["seeds"].strip() else [0]
        if len(seeds) > (most := service.settings.waiting_jobs):
            raise UsageError(f"{len(seeds)} seeds are too many for the page: {most} at most")
    with entered.noting("split"):
        rule_with("random", entered["split"].strip() or None)
    for name in ("shots", "budget"):
        if entered[name].strip() and not entered[name].strip().isdecimal():
            entered.problems[name] = "give a whole number"
    if entered.problems:
        return []
    given: dict[str, Any] = {
        "lm": entered["lm"],
        "relation": relation,
        "facts": [{"x": fact.x, "y": fact.y, "aliases": fact.aliases} for fact in entered.facts],
        "templates": templates,
        "candidates": _lines(entered["candidates"]),
        "split": entered["split"].strip() or None,
        "shots": entered["shots"].strip() or None,
        "pairs": entered["budget"].strip() or None,
        "deep": entered["deep"] == "true",
        "split_seed": seeds[0],
    }
    try:
        orders = [TrainRequest.model_validate({**given, "seed": seed}) for seed in seeds]
    except ValidationError as error:
        place = str(error.errors()[0]["loc"][0])
        entered.problems[_FIELD_OF.get(place, place)] = problem_in(error)
        return []
    with entered.noting("split" if given["split"] else "facts"):
        relation_of(orders[0])
    with entered.noting("candidates"):
        candidates_of(orders[0])
    return orders


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
    """Its tokens as words, with the two blanks, in order."""


@dataclass(frozen=True)
class CheckedOrder:
    """What training would be done on."""

    templates: tuple[CheckedTemplate, ...]
    facts: int
    """How many were checked; none without a usable template."""
    left_out: tuple[tuple[Fact, str], ...]
    """Facts that the LM cannot be asked about, and why."""

    @property
    def is_of_few(self) -> bool:
        """Whether a tenth of the facts, the usual share of test, is too few for a score that says much."""
        return 0 < self.facts < 10 * FEW


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
    return CheckedOrder(tuple(checked), len(facts) if usable else 0, tuple(left_out))


def _tokens(lm: FrozenLM, template: Template) -> tuple[str, ...]:
    tokens = tokenise(template, lm.wording)
    lm.family.ask_y(tokens, lm.wording, lm.special)
    parts = (tokens.before, tokens.between, tokens.after)
    words = [[word_of(lm, token).shown for token in part] for part in parts]
    return (*words[0], template.first, *words[1], template.second, *words[2])
