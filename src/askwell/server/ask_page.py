"""The page Ask: a tuned mixture beside the hard prompts it started from, and the prompts behind each answer."""

import asyncio
import tempfile
from collections.abc import Generator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Annotated

from fastapi import APIRouter, File, Form, Query, Request, UploadFile
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from starlette.datastructures import UploadFile as SentFile

from askwell.answers.reply import PromptReply, Reply, missing_text, unseen_in
from askwell.data.readers import SUFFIXES, read_xs
from askwell.data.testbed import PREFIX
from askwell.errors import AskwellError, BadFile, UsageError
from askwell.evaluation.selective import is_enough
from askwell.runs.record import AS_WRITTEN
from askwell.server.catalogue import HARD, RISK, Catalogue, Entry, KnownX
from askwell.server.refusals import NoSuchName
from askwell.server.render import document_page, page
from askwell.server.service import Service, service_of
from askwell.server.settings import LONGEST_NAME, LONGEST_TEXT, MOST_XS
from askwell.views.document import Document, Points, Section, Table
from askwell.views.run_facts import answered_facts
from askwell.views.scores import BestAnswers, best_answers_csv, best_answers_table, prompt_replies_table

router = APIRouter(include_in_schema=False)
_SHOWN = 5
_SUGGESTED = 200
_SAMPLES = 6
_PROMPTS_BEHIND = 12
_KINDS = {"tuned": "tuned mixture", "hard": "hard prompts"}
QueryName = Annotated[str, Query(max_length=LONGEST_NAME)]
FormName = Annotated[str, Form(max_length=LONGEST_NAME)]
Sent = Annotated[UploadFile | None, File()]


@dataclass(frozen=True)
class Choice:
    """A relation on an LM that can be picked: its tuned mixture and its hard prompts, as far as they exist."""

    title: str
    entries: tuple[Entry, ...]

    @property
    def entry(self) -> Entry:
        """The tuned mixture, or else the hard prompts."""
        return self.entries[0]


def choices(catalogue: Catalogue) -> dict[str, Choice]:
    """Return all choices by title: those that were tuned first, then those with another mixture."""
    by_run: dict[str, list[Entry]] = {}
    for entry in catalogue.entries().values():
        by_run.setdefault(entry.name.removesuffix(HARD), []).append(entry)
    tuned = {(entry.relation, entry.lm) for entry, *_ in by_run.values() if entry.kind == "tuned"}
    titles: dict[str, Choice] = {}
    for entry, *others in sorted(
        by_run.values(), key=lambda entries: (not entries[0].is_tuned, entries[0].kind == "hard")
    ):
        if entry.source is None and (entry.relation, entry.lm) in tuned:
            continue  # hard prompts of the testbed from which something was tuned, beside which they are shown
        state = (
            f" · {entry.as_written or entry.setting}"
            if entry.kind == "tuned"
            else ""
            if entry.source is None
            else " · not tuned"
        )
        title = f"{entry.label} · {entry.lm}{state}"
        title += f" · {entry.name}" if title in titles else ""
        # What is as it was written, with its weights too, answers like the hard prompts, which are not shown again.
        titles[title] = Choice(title, (entry,) if entry.as_written == AS_WRITTEN or entry.is_lama else (entry, *others))
    return titles


def choose(catalogue: Catalogue, about: str) -> Choice:
    """Return the choice with this title or name; without one, the first."""
    known = choices(catalogue)
    if not known:
        raise NoSuchName("there is no mixture here yet: train one")
    if not about:
        preferred = [one for one in known.values() if one.entry.relation == f"{PREFIX}capital"]
        return (preferred or list(known.values()))[0]
    if about in known:
        return known[about]
    for choice in known.values():
        if about in {one.name for one in choice.entries}:
            return choice
    words = about.lower().split()
    for title, choice in known.items():  # as in a search: some of its words
        if all(word in title.lower() for word in words):
            return choice
    try:
        entry = catalogue.find(about)
    except NoSuchName:
        there = f"there is no mixture {about[:80]!r} here"
        raise NoSuchName(f"{there}: pick one from the list of {len(known)}, or write some words of its title") from None
    return next(
        (one for one in known.values() if (one.entry.relation, one.entry.lm) == (entry.relation, entry.lm)),
        Choice(about, (entry,)),
    )


@dataclass(frozen=True)
class Answered:
    """What one mixture answers about an x, and the prompts behind it; or why it cannot be asked."""

    entry: Entry
    replies: Sequence[Reply] = ()
    threshold: float | None = None
    behind: Sequence[PromptReply] = ()
    problem: str = ""
    missing: str = ""
    """A sentence saying that less probable answers may be missing."""

    @property
    def knows(self) -> bool:
        """Whether its best answer is probable enough to be given."""
        return is_enough(self.replies[0].probability, self.threshold) if self.replies else False

    def prompts(self, reply: Reply) -> Table:
        """Return the prompts behind an answer."""
        return prompt_replies_table(self.behind, reply, _PROMPTS_BEHIND)


def nothing_yet(request: Request) -> HTMLResponse:
    """Say that there is no run to show."""
    lead = "There is no run to show in this folder. Train a first one, or start the service with another folder."
    problems = tuple(f"{name}: {problem}" for name, problem in service_of(request).catalogue.problems.items())
    sections = (Section("Folders that cannot be read", (Points(problems),)),) if problems else ()
    return document_page(request, Document("Nothing here yet", lead, sections=sections), links=[("/train", "Train")])


@router.get("/", response_class=HTMLResponse)
async def ask_page(
    request: Request, about: QueryName = "", x: Annotated[str, Query(max_length=LONGEST_TEXT)] = "", wait: bool = False
) -> HTMLResponse:
    """Show the whole page, with answers; or, unless told to wait, that their LM is being loaded."""
    service = service_of(request)
    known = choices(service.catalogue)
    if not known:
        return nothing_yet(request)
    choice = choose(service.catalogue, about)
    facts = choice.entry.facts
    to_try = samples(choice.entry)
    x = x.strip() or next(iter(to_try), "")
    loading = "" if wait else not_loaded(service, choice.entry)
    found = await _both(service, choice, x) if x and not loading else ()
    return page(
        request, "ask.html", choice=choice, loading=loading, titles=list(known), x=x, answered=found,
        known=facts.get(x), meant=_meant(facts, x), risk=RISK, suggested=_suggested(facts), samples=to_try,
    )  # fmt: skip


@router.get("/xs", response_class=HTMLResponse)
def xs_to_try(request: Request, about: QueryName = "") -> HTMLResponse:
    """Show some x's to try for the relation that was picked; none if there is no such relation."""
    try:
        choice = choose(service_of(request).catalogue, about)
    except NoSuchName:  # asking says so
        return HTMLResponse("")
    suggested, to_try = _suggested(choice.entry.facts), samples(choice.entry)
    return page(request, "ask.html", part="to_try", x="", choice=choice, suggested=suggested, samples=to_try)


def not_loaded(service: Service, entry: Entry) -> str:
    """Return the name of a mixture's LM if it has to be loaded first, which takes a while; or nothing."""
    try:
        name = entry.askable.lm.name
    except AskwellError:  # asking says so
        return ""
    return "" if name in service.loaded.names else entry.lm


async def _both(service: Service, choice: Choice, x: str) -> tuple[Answered, ...]:
    return tuple(await asyncio.gather(*(_answered(service, entry, x) for entry in choice.entries)))


async def _answered(service: Service, entry: Entry, x: str) -> Answered:
    """Return what a mixture answers, or why it cannot."""
    try:
        waiting = asyncio.wrap_future(service.ask(entry.name, [x])), asyncio.wrap_future(service.behind(entry, x))
        (replies,), behind = await asyncio.gather(*waiting)
    except AskwellError as error:
        return Answered(entry, problem=service.explain(error).sentence)
    unseen = unseen_in(replies)
    missing = missing_text(unseen) if unseen else ""
    return Answered(entry, replies[:_SHOWN], entry.threshold, behind, missing=missing)


def _meant(known: Mapping[str, KnownX], x: str) -> str | None:
    """Return a known x that differs only in case."""
    return None if x in known else next((one for one in known if one.lower() == x.lower()), None)


def samples(entry: Entry) -> list[str]:
    """Return some x's to try: first one that tuning gained, then test facts, alternately told and withheld where that
    is known; France first of those."""
    facts = entry.facts
    test = sorted((x for x, known in facts.items() if known.split == "test"), key=lambda x: (x != "France", x))
    told = [x for x in test if any(facts[x].told.values())]
    withheld = [x for x in test if facts[x].told and x not in told]
    mixed = [x for pair in zip(told, withheld, strict=False) for x in pair] or test
    gained = [] if entry.source is None or entry.kind == "hard" else answered_facts(entry.source, "changed")
    sure = max((fact for fact in gained if fact.is_right), key=lambda fact: fact.after.probabilities[0], default=None)
    return [*dict.fromkeys([*([] if sure is None else [sure.after.x]), *mixed])][:_SAMPLES]


def _suggested(known: Mapping[str, KnownX]) -> list[str]:
    return sorted(known, key=lambda x: (known[x].split != "test", x))[:_SUGGESTED]


# ── many x's ──────────────────────────────────────────────────────────────────────────────────────────────────────


@router.post("/many", response_class=HTMLResponse)
async def ask_many(
    request: Request, about: FormName = "", xs: Annotated[str, Form()] = "", file: Sent = None
) -> HTMLResponse:
    """Show a table of answers to a column of x's."""
    choice, rows = await _many(request, about, xs, file)
    table = best_answers_table(rows, [_KINDS[entry.kind] for entry in choice.entries], RISK)
    return page(request, "many.html", choice=choice, table=table, xs="\n".join(row.x for row in rows))


@router.post("/many.csv")
async def many_as_csv(
    request: Request, about: FormName = "", xs: Annotated[str, Form()] = "", file: Sent = None
) -> Response:
    """Return the same table as a CSV file."""
    choice, rows = await _many(request, about, xs, file)
    content = best_answers_csv(rows, [entry.kind for entry in choice.entries])
    headers = {"content-disposition": 'attachment; filename="answers.csv"'}
    return Response(content, media_type="text/csv; charset=utf-8", headers=headers)


async def _many(request: Request, about: str, text: str, file: SentFile | None) -> tuple[Choice, list[BestAnswers]]:
    service = service_of(request)
    choice = choose(service.catalogue, about)
    xs = [line.strip() for line in text.splitlines() if line.strip()]
    if file is not None and file.filename:
        with uploaded(await file.read(), file.filename) as path:
            xs += read_xs(path, None)
    if not xs:
        raise UsageError("there is nothing to ask: paste one x per line, or choose a file")
    if len(xs) > MOST_XS:
        raise UsageError(f"{len(xs)} x's are too many at once: {MOST_XS} at most; the API takes more, in parts")
    if long := next((x for x in xs if len(x) > LONGEST_TEXT), None):
        raise UsageError(f"{long[:40]!r}… has {len(long)} characters: {LONGEST_TEXT} at most")
    facts, threshold = choice.entry.facts, choice.entry.threshold
    # Each x in its own request, so that one that cannot be asked does not affect the others; the queue batches them.
    asked = {(entry.name, x): service.ask(entry.name, [x], 1) for entry in choice.entries for x in dict.fromkeys(xs)}
    found = await asyncio.gather(*map(_one_answer, asked.values()))
    each = dict(zip(asked, found, strict=True))
    rows = []
    for x in xs:
        outcomes = [each[entry.name, x] for entry in choice.entries]
        problems = [service.explain(one).sentence for one in outcomes if isinstance(one, AskwellError)]
        replies = tuple(None if isinstance(one, AskwellError) else one for one in outcomes)
        knows = replies[0] is not None and is_enough(replies[0].probability, threshold)
        golds = facts[x].golds if x in facts else ()
        trained = choice.entry.learned and x in facts and facts[x].split == "train"
        rows.append(BestAnswers(x, replies, knows, golds, problems[0] if problems else "", trained))
    return choice, rows


async def _one_answer(future: "Future[list[list[Reply]]]") -> Reply | AskwellError:
    try:
        return (await asyncio.wrap_future(future))[0][0]
    except AskwellError as error:
        return error


@contextmanager
def uploaded(content: bytes, name: str) -> Generator[Path]:
    """Keep an uploaded file as a local one inside the block; errors name it as the sender does.

    Only the ending of its name matters.
    """
    name = PurePath(name.replace("\\", "/")).name[:80]
    suffix = PurePath(name).suffix.lower()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"sent{suffix if suffix in SUFFIXES else '.txt'}"
        path.write_bytes(content)
        try:
            yield path
        except BadFile as error:
            raise BadFile(name, error.problem, error.line) from error


@router.post("/tune")
def tune(request: Request, about: FormName) -> RedirectResponse:
    """Start tuning the testbed's prompts, and show the progress."""
    service = service_of(request)
    job = service.tune_testbed(choose(service.catalogue, about).entries[-1])
    return RedirectResponse(f"/train/{job.id}", status_code=303)
