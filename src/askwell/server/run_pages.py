"""The pages about runs: the list, one run, two compared; LMs compared fact by fact; prompts in words; how far a score
can be trusted; and Train, where facts and templates are entered, checked while typing, and become a run that can be
watched."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated
from urllib.parse import quote

from fastapi import APIRouter, Form, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from pydantic import ValidationError
from starlette.datastructures import UploadFile as SentFile

from askwell.data.facts import Fact, Relation
from askwell.data.readers import parse_facts
from askwell.data.templates import Template, parse_template
from askwell.errors import BadTemplate, UsageError
from askwell.evaluation.comparison import compare
from askwell.files import problem_in
from askwell.lms.families import Unusable
from askwell.lms.frozen import FrozenLM
from askwell.lms.tokenisation import tokenise
from askwell.mixture.mixture import Mixture
from askwell.runs.folder import Run
from askwell.runs.query import ComparedRuns, RunComparison
from askwell.server.ask_page import FormName, QueryName, Sent, choices, choose, nothing_yet, uploaded
from askwell.server.catalogue import run_rows
from askwell.server.render import Link, document_page, page
from askwell.server.schemas import TrainRequest
from askwell.server.service import answered, service_of
from askwell.server.settings import LONGEST_TEXT, MOST_FACTS, MOST_TEMPLATES
from askwell.views.compared import comparison_blocks, curves_figure, gains_figure, run_table
from askwell.views.diffed import diff_document, diffs_table
from askwell.views.document import Block, Code, Document, Points, Section
from askwell.views.one_run import learning_figure, run_document, trust_document
from askwell.views.to_html import page_html
from askwell.views.trust_section import projection_sentence
from askwell.views.words_figure import words_document

router = APIRouter(include_in_schema=False)
COLUMNS = ("P@1", "MRR", "relation", "lm", "prompts", "setting", "seed", "facts")
_CHANGED = 20
_DIFF = "askwell diff testbed:causal testbed:causal-unlearned --facts testbed:country_of_airport --out"


@router.get("/runs", response_class=HTMLResponse)
def runs_page(request: Request, sort: QueryName = "", find: QueryName = "") -> HTMLResponse:
    """Show all runs, filtered and sorted, with gains and learning curves."""
    named = service_of(request).catalogue.runs()
    sort = sort if sort in COLUMNS else ""
    rows = [{"run": row["name"], **row} for row in run_rows(named, sort or None)]
    words = find.lower().split()
    shown = [row for row in rows if all(word in " ".join(map(str, row.values())).lower() for word in words)]
    kept = {row["run"]: named[row["run"]] for row in shown}
    table = run_table(shown, ("run", *COLUMNS), links=[_address(name) for name in kept])
    drawn = {"Gains by relation": gains_figure(list(kept.values())), "Learning curves": curves_figure(kept)}
    sections = (Section(heading, (figure,)) for heading, figure in drawn.items() if figure is not None)
    figures = Document("", sections=tuple(sections))
    return page(
        request, "runs.html", names=list(kept), all=len(rows), table=table, figures=figures, columns=COLUMNS,
        sort=sort, find=find, pair=_alike(kept),
    )  # fmt: skip


def _alike(runs: dict[str, Run]) -> tuple[str, str]:
    """Return the first two runs that can be compared because they share their facts; empty names if there are none."""
    first_of: dict[str, str] = {}
    for name, run in runs.items():
        other = first_of.setdefault(run.record.spec.facts_sha256, name)
        if other != name:
            return other, name
    return "", ""


def _address(name: str) -> str:
    return f"/runs/{quote(name, safe='')}"


@router.get("/runs/compare", response_class=HTMLResponse)
def compare_page(request: Request, a: QueryName = "", b: QueryName = "") -> HTMLResponse:
    """Compare two runs on the facts that both answered, as `askwell compare` does."""
    catalogue = service_of(request).catalogue
    if not a or not b or a == b:
        raise UsageError("choose two different runs to compare, one as A and one as B")
    runs = {name: catalogue.run(name) for name in (a, b)}
    sides = [ComparedRuns(name, run.test, run.record.test.vocabulary) for name, run in runs.items()]
    found = RunComparison(*sides, compare(sides[0].outcomes, sides[1].outcomes))
    document = Document(
        "Two runs compared",
        about=tuple(zip("AB", (f"{name}: {run.record.spec.label}" for name, run in runs.items()), strict=True)),
        sections=(Section("On the facts that both answered", tuple(comparison_blocks(found, _CHANGED))),),
    )
    return document_page(request, document, back="/runs", links=[(_address(name), f"See {name}") for name in runs])


@router.get("/runs/{name}", response_class=HTMLResponse)
def run_page(request: Request, name: str) -> HTMLResponse:
    """Show one run."""
    catalogue = service_of(request).catalogue
    run = catalogue.run(name)
    about = quote(name, safe="")
    asked: list[Link] = [(f"/?about={about}", "Ask it"), (f"/prompts?about={about}", "See its prompts in words")]
    links = [*(asked if run.mixture is not None else []), (f"{_address(name)}/export", "Save as one HTML file")]
    document = run_document(name, run, list(catalogue.runs().values()))
    return document_page(request, document, back="/runs", links=links)


@router.get("/runs/{name}/export")
async def export_page(request: Request, name: str) -> Response:
    """Return the run as one HTML file."""
    service = service_of(request)
    run, others = service.catalogue.run(name), list(service.catalogue.runs().values())
    words = await answered(request, service.words(service.catalogue.find(name))) if run.mixture is not None else []
    headers = {"content-disposition": 'attachment; filename="run.html"'}
    content = page_html(run_document(name, run, others, words))
    return Response(content, media_type="text/html; charset=utf-8", headers=headers)


@router.get("/diffs", response_class=HTMLResponse)
def diffs_page(request: Request) -> HTMLResponse:
    """List the comparisons of two LMs that `askwell diff` has written."""
    catalogue = service_of(request).catalogue
    found, problems = catalogue.diffs()
    shown: list[Block] = []
    if problems:
        shown.append(Points(tuple(f"{name} cannot be read: {problem}" for name, problem in problems.items())))
    if found:
        links = [f"/diffs/{quote(name, safe='')}" for name in found]
        shown.append(diffs_table({name: one.verdicts for name, one in found.items()}, links))
    else:
        shown.append(Code(((f"{_DIFF} {catalogue.path.resolve().name}/unlearned", "is listed here when it is done"),)))
    lead = "Two LMs compared fact by fact, before a change and after it: what is kept, what is hidden, what is gone."
    return document_page(request, Document("LMs compared", lead, sections=(Section("", tuple(shown)),)))


@router.get("/diffs/{name}", response_class=HTMLResponse)
def diff_page(request: Request, name: str) -> HTMLResponse:
    """Show one comparison of two LMs, as `askwell diff` does."""
    return document_page(request, diff_document(service_of(request).catalogue.diff(name)), back="/diffs")


@router.get("/prompts", response_class=HTMLResponse)
async def prompts_page(request: Request, about: QueryName = "") -> HTMLResponse:
    """Show the prompts of a mixture in words."""
    service = service_of(request)
    known = choices(service.catalogue)
    if not known:
        return nothing_yet(request)
    choice = choose(service.catalogue, about)
    entry = choice.entry
    title = f"{entry.label} on {entry.lm}"
    if entry.kind == "hard":
        lead = "Nothing was tuned here, so these prompts are still words."
        document = Document(title, lead, sections=(Section("", (Points(tuple(map(str, entry.templates))),)),))
    else:
        words = await answered(request, service.words(entry))
        trust = None if entry.source is None else entry.source.record.trust
        score = None if trust is None or trust.projection is None else projection_sentence(trust.projection)
        document = words_document(words, title, lm=entry.lm, relation=entry.relation, score=score)
    return document_page(request, document, titles=list(known), chosen=choice.title, choose="/prompts")


@router.get("/trust", response_class=HTMLResponse)
def trust_page(request: Request, run: QueryName = "") -> HTMLResponse:
    """Show how far the score of a run can be trusted."""
    catalogue = service_of(request).catalogue
    named = {name: one for name, one in catalogue.runs().items() if one.record.spec.control is None}
    if not named:
        return nothing_yet(request)
    name = run or next((name for name, one in named.items() if one.mixture is not None), next(iter(named)))
    document = trust_document(catalogue.run(name), list(catalogue.runs().values()))
    return document_page(request, document, runs=list(named), chosen=name, choose="/trust")


# ── Train ─────────────────────────────────────────────────────────────────────────────────────────────────────────

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
