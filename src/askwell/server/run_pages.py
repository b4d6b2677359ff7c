"""The pages about runs: the list, one run with its facts, name and note, two compared; LMs compared fact by fact;
prompts in words; and how far a score can be trusted."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated
from urllib.parse import quote

from fastapi import APIRouter, Form, Query, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from askwell.errors import UsageError
from askwell.evaluation.comparison import compare
from askwell.runs.folder import Run, delete_run, write_remarks
from askwell.runs.query import ComparedRuns, RunComparison
from askwell.server.ask_page import FormName, QueryName, choices, choose, not_loaded, nothing_yet
from askwell.server.catalogue import run_rows
from askwell.server.refusals import Refused
from askwell.server.render import Link, document_page, page
from askwell.server.service import answered, service_of
from askwell.views.compared import comparison_blocks, curves_figure, gains_figure, run_table, who_is_better
from askwell.views.diffed import diff_document, diffs_table
from askwell.views.document import Block, Code, Document, Points, Section
from askwell.views.one_run import run_document, trust_document
from askwell.views.printable import duration_text
from askwell.views.run_facts import PARTS, answered_facts, changes_figure, facts_table, parts_of
from askwell.views.study_rows import prompts_text
from askwell.views.to_html import page_html
from askwell.views.trust_section import projection_sentence
from askwell.views.words_figure import words_document

router = APIRouter(include_in_schema=False)
PageNumber = Annotated[int, Query(alias="page", ge=1, le=10**6)]
COLUMNS = ("untuned_P@1", "P@1", "MRR", "relation", "lm", "prompts", "setting", "seed", "facts")
_MADE = ("made", "took")
"""Further columns, by which the latest and the longest come first."""
_CHANGED = 20
_FACTS = 50
"""Facts on a page."""
_FACTS_PUT_BACK = 8
"""Dev facts that are asked again with each vector put back to its start."""
_DIFF = "askwell diff testbed:causal testbed:causal-unlearned --facts testbed:country_of_airport --out"


@router.get("/runs", response_class=HTMLResponse)
def runs_page(request: Request, sort: QueryName = "", find: QueryName = "", a: QueryName = "") -> HTMLResponse:
    """Show all runs, filtered and sorted, with gains and learning curves."""
    named = service_of(request).catalogue.runs()
    sort = sort if sort in (*COLUMNS, *_MADE) else ""
    rows = run_rows(named, sort if sort in COLUMNS else None)
    if sort in _MADE:
        rows.sort(key=lambda row: _made(named[row["name"]])[sort], reverse=True)
    words, kept, shown = find.lower().split(), {}, []
    for name, row in ((row["name"], row) for row in rows):
        made, called = named[name].record.environment, named[name].remarks
        text = " ".join(map(str, (*row.values(), called.name, called.note))).lower()
        if all(word in text for word in words):
            kept[name] = named[name]
            date = None if made.began is None else f"{made.began:%Y-%m-%d %H:%M}"
            took = None if made.seconds is None else duration_text(made.seconds)
            record = named[name].record
            said = {"prompts": prompts_text(record.spec), "setting": record.as_written or row["setting"]}
            shown.append({**row, **said, "run": called.name or name, "made": date, "took": took})
    notes = [name if run.remarks.name else "" for name, run in kept.items()]
    table = run_table(shown, ("run", *COLUMNS, *_MADE), links=[_address(name) for name in kept], notes=notes)
    drawn = {"Gains by relation": gains_figure(list(kept.values())), "Learning curves": curves_figure(kept)}
    sections = (Section(heading, (figure,)) for heading, figure in drawn.items() if figure is not None)
    partners = _partners(named)
    a = a if a in partners else next((name for name in kept if name in partners), next(iter(partners), ""))
    called = {name: f"{run.remarks.name} ({name})" if run.remarks.name else name for name, run in named.items()}
    return page(
        request, "runs.html", kept=kept, all=len(rows), table=table, figures=Document("", sections=tuple(sections)),
        columns=(*COLUMNS, *_MADE), sort=sort, find=find, partners=partners, a=a, called=called,
    )  # fmt: skip


def _made(run: Run) -> dict[str, float]:
    made = run.record.environment
    return {"made": 0.0 if made.began is None else made.began.timestamp(), "took": made.seconds or 0.0}


def _partners(runs: Mapping[str, Run]) -> dict[str, list[str]]:
    """Return for each run those that it can be compared with, since they have the same facts; runs without are left
    out."""
    alike: dict[tuple[str, str], list[str]] = {}
    for name, run in runs.items():
        alike.setdefault((run.record.spec.relation, run.record.spec.facts_sha256), []).append(name)
    return {
        name: others
        for names in alike.values()
        for name in names
        if (others := [other for other in names if other != name])
    }


def _address(name: str) -> str:
    return f"/runs/{quote(name, safe='')}"


@router.get("/compare", response_class=HTMLResponse)
def compare_page(request: Request, a: QueryName = "", b: QueryName = "") -> HTMLResponse:
    """Compare two runs on the facts that both answered, as `askwell compare` does."""
    catalogue = service_of(request).catalogue
    if not a or not b or a == b:
        raise UsageError("choose two different runs to compare, one as A and one as B")
    runs = {name: catalogue.run(name) for name in (a, b)}
    if b not in _partners(catalogue.runs()).get(a, ()):
        raise UsageError(f"{a} and {b} were run on different facts, so there is nothing to compare")
    sides = [ComparedRuns(name, run.test, run.record.test.vocabulary) for name, run in runs.items()]
    found = RunComparison(*sides, compare(sides[0].outcomes, sides[1].outcomes))
    both = (changes_figure(runs[a].test, runs[b].test, (f"A: {a}", f"B: {b}")), *comparison_blocks(found, _CHANGED))
    document = Document(
        "Two runs compared",
        who_is_better(found.found),
        about=tuple(zip("AB", (f"{name}: {run.record.spec.label}" for name, run in runs.items()), strict=True)),
        sections=(Section("On the facts that both answered", both),),
    )
    return document_page(request, document, back="/runs", links=[(_address(name), f"See {name}") for name in runs])


@router.get("/runs/{name}", response_class=HTMLResponse)
def run_page(request: Request, name: str) -> HTMLResponse:
    """Show one run."""
    catalogue = service_of(request).catalogue
    run = catalogue.run(name)
    about = quote(name, safe="")
    asked: list[Link] = [(f"/?about={about}", "Ask it"), (f"/prompts?about={about}", "See its prompts in words")]
    links = [*(asked if run.mixture is not None else []), (f"{_address(name)}/facts", "See all its answers")]
    links.append((f"{_address(name)}/export", "Save as one HTML file"))
    document = run_document(name, run, list(catalogue.runs().values()), facts=f"{_address(name)}/facts")
    return document_page(request, document, back="/runs", links=links, run=run, address=_address(name))


@router.get("/runs/{name}/facts", response_class=HTMLResponse)
def facts_page(
    request: Request, name: str, part: QueryName = "all", find: QueryName = "", page_: PageNumber = 1
) -> Response:
    """Show the test facts of a run, or a part of them, a page at a time."""
    run = service_of(request).catalogue.run(name)
    counts = parts_of(run)
    part = part if part in counts else "all"
    found = answered_facts(run, part, find)
    last = max(1, math.ceil(len(found) / _FACTS))
    at = min(page_, last)
    table = facts_table(found[(at - 1) * _FACTS : at * _FACTS])
    parts = [(one, f"{PARTS[one][0]} ({count:,})") for one, count in counts.items()]
    return page(
        request, "facts.html", name=name, run=run, address=_address(name), parts=parts, shown=part, find=find,
        table=table, found=len(found), at=at, last=last,
    )  # fmt: skip


@router.post("/runs/{name}/about")
def describe(
    request: Request, name: str, title: FormName = "", note: Annotated[str, Form(max_length=10_000)] = ""
) -> RedirectResponse:
    """Name a run, and note something about it."""
    write_remarks(_changeable(request, name), name=title, note=note.replace("\r\n", "\n"))
    return RedirectResponse(_address(name), status_code=303)


@router.post("/runs/{name}/delete")
def delete(request: Request, name: str) -> RedirectResponse:
    """Delete a run."""
    delete_run(_changeable(request, name))
    return RedirectResponse("/runs", status_code=303)


def _changeable(request: Request, name: str) -> Path:
    """Return the folder of a run that may be changed."""
    service = service_of(request)
    if not service.settings.training:
        raise Refused(403, "runs cannot be changed here, since training is switched off")
    return service.catalogue.run(name).folder


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
        shown.append(
            Code(
                (
                    (
                        f"{_DIFF} {catalogue.path.resolve().name}/unlearned",
                        "Makes a comparison, which this page then lists.",
                    ),
                )
            )
        )
    lead = "Two LMs compared fact by fact, before a change and after it: what is kept, what is hidden, what is gone."
    return document_page(request, Document("Diffs", lead, sections=(Section("", tuple(shown)),)))


@router.get("/diffs/{name}", response_class=HTMLResponse)
def diff_page(request: Request, name: str) -> HTMLResponse:
    """Show one comparison of two LMs, as `askwell diff` does."""
    return document_page(request, diff_document(service_of(request).catalogue.diff(name)), back="/diffs")


@router.get("/prompts", response_class=HTMLResponse)
async def prompts_page(
    request: Request, about: QueryName = "", wait: bool = False, put_back: bool = False
) -> HTMLResponse:
    """Show the prompts of a mixture in words, if asked with what is lost when a vector is put back to its start; or,
    unless told to wait, that their LM is being loaded."""
    service = service_of(request)
    known = choices(service.catalogue)
    if not known:
        return nothing_yet(request)
    choice = choose(service.catalogue, about)
    entry = choice.entry
    title = f"{entry.label} on {entry.lm}"
    loading = "" if wait or entry.kind == "hard" else not_loaded(service, entry)
    address, links = f"/prompts?about={quote(choice.title)}", list[Link]()
    if loading:
        document = Document(title)
    elif entry.kind == "hard":
        lead = "Nothing was tuned here, so these prompts are still words."
        document = Document(title, lead, sections=(Section("", (Points(tuple(map(str, entry.templates))),)),))
    else:
        words = await answered(request, service.words(entry, _FACTS_PUT_BACK if put_back else 0))
        if entry.is_tuned and service.settings.training and not put_back:  # it keeps a large LM busy for long
            links = [(f"{address}&put_back=true", "See what is lost without each vector")]
        trust = None if entry.source is None else entry.source.record.trust
        score = None if trust is None or trust.projection is None else projection_sentence(trust.projection)
        document = words_document(words, title, lm=entry.lm, relation=entry.relation, score=score)
    waiting = (loading, f"{address}&wait=true{'&put_back=true' if put_back else ''}") if loading else None
    return document_page(
        request, document, titles=list(known), chosen=choice.title, choose="/prompts", waiting=waiting, links=links
    )


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
