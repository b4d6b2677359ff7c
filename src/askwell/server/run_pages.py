"""The pages about runs: the list, one run, two compared; LMs compared fact by fact; prompts in words; how far a score
can be trusted."""

from urllib.parse import quote

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, Response

from askwell.errors import UsageError
from askwell.evaluation.comparison import compare
from askwell.runs.folder import Run
from askwell.runs.query import ComparedRuns, RunComparison
from askwell.server.ask_page import QueryName, choices, choose, nothing_yet
from askwell.server.catalogue import run_rows
from askwell.server.render import Link, document_page, page
from askwell.server.service import answered, service_of
from askwell.views.compared import comparison_blocks, curves_figure, gains_figure, run_table
from askwell.views.diffed import diff_document, diffs_table
from askwell.views.document import Block, Code, Document, Points, Section
from askwell.views.one_run import run_document, trust_document
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
