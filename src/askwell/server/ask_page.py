"""The page Ask: a tuned mixture beside the hard prompts it started from, and the prompts behind each answer."""

import asyncio
import csv
import io
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Annotated, Any

from fastapi import APIRouter, File, Form, Query, Request, UploadFile
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from starlette.datastructures import UploadFile as SentFile

from askwell.answers.reply import PromptReply, Reply, missing_text, unseen_in
from askwell.data.readers import SUFFIXES, read_xs
from askwell.data.testbed import PREFIX
from askwell.errors import AskwellError, BadFile, UserMistake
from askwell.server.api import service_of
from askwell.server.catalogue import HARD, RISK, Catalogue, Entry, KnownX
from askwell.server.refusals import NoSuchName, explain
from askwell.server.render import page
from askwell.server.service import Service
from askwell.server.settings import LONGEST_NAME, LONGEST_TEXT, MOST_XS

router = APIRouter(include_in_schema=False)
_SHOWN = 5
_SUGGESTED = 200
_SAMPLES = 6
QueryName = Annotated[str, Query(max_length=LONGEST_NAME)]


@dataclass(frozen=True)
class Choice:
    """A relation on an LM, to be picked: its tuned mixture and its hard prompts, if they exist."""

    title: str
    tuned: Entry | None
    hard: Entry | None

    @property
    def entry(self) -> Entry:
        """The tuned mixture, or else the hard prompts."""
        found = self.tuned or self.hard
        if found is None:
            raise RuntimeError("a choice has a mixture")
        return found

    @property
    def name(self) -> str:
        """The name of that entry."""
        return self.entry.name


def choices(catalogue: Catalogue) -> dict[str, Choice]:
    """All choices by title, those with a tuned mixture first."""
    entries = catalogue.entries()
    found: list[tuple[Entry | None, Entry | None]] = []
    for entry in entries.values():
        if entry.kind == "tuned":
            found.append((entry, entries.get(f"{entry.name}{HARD}")))
        elif not entry.name.endswith(HARD):
            found.append((None, entry))
    tuned_titles = {(tuned.relation, tuned.lm) for tuned, _ in found if tuned is not None}
    # Hard prompts of the testbed are shown beside what was tuned from them, where something was.
    kept = [
        (tuned, hard)
        for tuned, hard in found
        if tuned or (hard and (hard.run is not None or (hard.relation, hard.lm) not in tuned_titles))
    ]
    titles: dict[str, Choice] = {}
    for tuned, hard in sorted(kept, key=lambda pair: pair[0] is None):
        entry = tuned or hard
        if entry is None:
            continue
        title = f"{entry.label} · {entry.lm}"
        if tuned is not None:
            title += f" · {entry.setting}"
        elif entry.run is not None:
            title += " · not tuned"
        if title in titles:
            title += f" · {entry.name}"
        titles[title] = Choice(title, tuned, hard)
    return titles


def choose(catalogue: Catalogue, about: str) -> Choice:
    """The choice with a title or a name; without one, the first."""
    known = choices(catalogue)
    if not known:
        raise NoSuchName("there is no mixture here yet: train one")
    if not about:
        preferred = [one for one in known.values() if one.entry.relation == f"{PREFIX}capital"]
        return (preferred or list(known.values()))[0]
    if about in known:
        return known[about]
    for choice in known.values():
        if about in {one.name for one in (choice.tuned, choice.hard) if one is not None}:
            return choice
    words = about.lower().split()
    for title, choice in known.items():  # as in a search: some of its words
        if all(word in title.lower() for word in words):
            return choice
    entry = catalogue.find(about)
    return next(
        (one for one in known.values() if (one.entry.relation, one.entry.lm) == (entry.relation, entry.lm)),
        Choice(about, None, entry),
    )


@dataclass(frozen=True)
class AnswerBar:
    """An answer."""

    y: str
    probability: float
    right: bool
    prompts: tuple[tuple[PromptReply, float], ...]
    """Each prompt with the probability it gives to this answer."""


@dataclass(frozen=True)
class Told:
    """What one mixture says about an x."""

    entry: Entry
    bars: tuple[AnswerBar, ...]
    threshold: float | None
    problem: str = ""
    missing: str = ""
    """That less probable answers may be missing, in a sentence."""

    @property
    def knows(self) -> bool:
        """Whether its best answer is probable enough to be given."""
        return self.threshold is None or (bool(self.bars) and self.bars[0].probability >= self.threshold * (1 - 1e-5))


@router.get("/", response_class=HTMLResponse)
async def ask_page(
    request: Request, about: QueryName = "", x: Annotated[str, Query(max_length=LONGEST_TEXT)] = ""
) -> HTMLResponse:
    """The whole page, with answers."""
    service = service_of(request)
    known = choices(service.catalogue)
    if not known:
        return page(request, "empty.html", titles=[])
    choice = choose(service.catalogue, about)
    facts = service.catalogue.facts(choice.entry)
    samples = _samples(facts)
    x = x.strip() or (("France" if "France" in facts else samples[0]) if samples else "")
    found = await _both(service, choice, x) if x else ()
    filling: dict[str, Any] = {
        "choice": choice,
        "titles": list(known),
        "x": x,
        "told": found,
        "known": facts.get(x),
        "meant": _meant(facts, x),
        "risk": RISK,
    }
    part = "answers.html" if request.headers.get("hx-target") == "answers" else "ask.html"
    return page(request, part, suggested=_suggested(facts), samples=samples, facts=facts, **filling)


@router.get("/xs", response_class=HTMLResponse)
def xs_to_try(request: Request, about: QueryName = "") -> HTMLResponse:
    """Some x's to try for the relation that was picked."""
    catalogue = service_of(request).catalogue
    choice = choose(catalogue, about)
    facts = catalogue.facts(choice.entry)
    return page(request, "to_try.html", choice=choice, suggested=_suggested(facts), samples=_samples(facts), x="")


async def _both(service: Service, choice: Choice, x: str) -> tuple[Told, ...]:
    entries = [entry for entry in (choice.tuned, choice.hard) if entry is not None]
    return tuple(await asyncio.gather(*(_told(service, entry, x) for entry in entries)))


async def _told(service: Service, entry: Entry, x: str) -> Told:
    """What a mixture answers, or why it cannot."""
    try:
        waiting = asyncio.wrap_future(service.ask(entry.name, [x])), asyncio.wrap_future(service.behind(entry, x))
        (replies,), behind = await asyncio.gather(*waiting)
        threshold = service.catalogue.threshold(entry)
    except AskwellError as error:
        return Told(entry, (), None, explain(error).sentence)
    known = service.catalogue.facts(entry).get(x)
    golds = () if known is None else known.golds
    bars = tuple(_bar(reply, golds, behind) for reply in replies[:_SHOWN])
    unseen = unseen_in(replies)
    return Told(entry, bars, threshold, missing=missing_text(unseen) if unseen else "")


def _bar(reply: Reply, golds: Sequence[str], behind: Sequence[PromptReply]) -> AnswerBar:
    return AnswerBar(
        reply.y, reply.probability, reply.y in golds, tuple((one, reply.by_prompt[one.number]) for one in behind)
    )


def _meant(facts: Mapping[str, KnownX], x: str) -> str | None:
    """A known x that differs only in its capitals."""
    return None if x in facts else next((one for one in facts if one.lower() == x.lower()), None)


def _samples(facts: Mapping[str, KnownX]) -> list[str]:
    """Some x's to try: test facts, alternately told and withheld where that is known."""
    test = sorted(x for x, known in facts.items() if known.split == "test")
    told = [x for x in test if any(facts[x].told.values())]
    withheld = [x for x in test if facts[x].told and x not in told]
    mixed = [x for pair in zip(told, withheld, strict=False) for x in pair] or test
    return mixed[:_SAMPLES]


def _suggested(facts: Mapping[str, KnownX]) -> list[str]:
    return sorted(facts, key=lambda x: (facts[x].split != "test", x))[:_SUGGESTED]


# ── many x's ──────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class ManyRow:
    """An x, the best answers to it, and what is known."""

    x: str
    answers: tuple[Reply | None, ...]
    """Of the tuned mixture and of the hard prompts, if they exist; None if x cannot be asked."""
    knows: bool
    golds: tuple[str, ...]
    problem: str


@router.post("/many", response_class=HTMLResponse)
async def ask_many(
    request: Request,
    about: Annotated[str, Form(max_length=LONGEST_NAME)] = "",
    xs: Annotated[str, Form()] = "",
    file: Annotated[UploadFile | None, File()] = None,
) -> HTMLResponse:
    """A table of answers to a column of x's."""
    choice, rows = await _many(request, about, xs, file)
    return page(request, "many.html", choice=choice, rows=rows, xs="\n".join(row.x for row in rows), risk=RISK)


@router.post("/many.csv")
async def many_as_csv(
    request: Request,
    about: Annotated[str, Form(max_length=LONGEST_NAME)] = "",
    xs: Annotated[str, Form()] = "",
    file: Annotated[UploadFile | None, File()] = None,
) -> Response:
    """The same as a CSV file."""
    choice, rows = await _many(request, about, xs, file)
    written = io.StringIO()
    writer = csv.writer(written, lineterminator="\n")
    names = [one.kind for one in (choice.tuned, choice.hard) if one is not None]
    columns = [column for name in names for column in (name, f"{name}_probability")]
    writer.writerow(["x", *columns, "known", "gold", "problem"])
    for row in rows:
        cells = [
            cell for one in row.answers for cell in (("", "") if one is None else (one.y, f"{one.probability:.6f}"))
        ]
        writer.writerow([row.x, *cells, "yes" if row.knows else "no", "; ".join(row.golds), row.problem])
    headers = {"content-disposition": 'attachment; filename="answers.csv"'}
    return Response(written.getvalue(), media_type="text/csv; charset=utf-8", headers=headers)


async def _many(request: Request, about: str, text: str, file: SentFile | None) -> tuple[Choice, list[ManyRow]]:
    service = service_of(request)
    choice = choose(service.catalogue, about)
    xs = [line.strip() for line in text.splitlines() if line.strip()]
    if file is not None and file.filename:
        xs += read_uploaded(await file.read(), file.filename)
    if not xs:
        raise UserMistake("there is nothing to ask: paste one x per line, or choose a file")
    if len(xs) > MOST_XS:
        raise UserMistake(f"{len(xs)} x's are too many at once: {MOST_XS} at most; the API takes more, in parts")
    if long := next((x for x in xs if len(x) > LONGEST_TEXT), None):
        raise UserMistake(f"{long[:40]!r}… has {len(long)} characters: {LONGEST_TEXT} at most")
    entries = [entry for entry in (choice.tuned, choice.hard) if entry is not None]
    facts, threshold = service.catalogue.facts(choice.entry), service.catalogue.threshold(choice.entry)
    distinct = list(dict.fromkeys(xs))
    # Each x in its own request, so that one that cannot be asked does not affect the others; the queue batches them.
    asked = {entry.name: [asyncio.wrap_future(service.ask(entry.name, [x], 1)) for x in distinct] for entry in entries}
    found: dict[str, dict[str, Reply | AskwellError]] = {x: {} for x in distinct}
    for name, futures in asked.items():
        for x, outcome in zip(distinct, await asyncio.gather(*futures, return_exceptions=True), strict=True):
            if isinstance(outcome, AskwellError):
                found[x][name] = outcome
            elif isinstance(outcome, BaseException):
                raise outcome
            else:
                found[x][name] = outcome[0][0]
    return choice, [_row(x, [found[x][entry.name] for entry in entries], threshold, facts.get(x)) for x in xs]


def _row(x: str, found: Sequence[Reply | AskwellError], threshold: float | None, known: KnownX | None) -> ManyRow:
    replies = tuple(None if isinstance(one, AskwellError) else one for one in found)
    problem = next((explain(one).sentence for one in found if isinstance(one, AskwellError)), "")
    best = replies[0]
    knows = best is not None and (threshold is None or best.probability >= threshold * (1 - 1e-5))
    return ManyRow(x, replies, knows, () if known is None else known.golds, problem)


def read_uploaded(content: bytes, name: str) -> list[str]:
    """The x's of an uploaded file; only the ending of its name matters."""
    with uploaded(content, name, SUFFIXES) as path:
        return read_xs(path, None)


class uploaded:  # noqa: N801 - used as a function
    """An uploaded file as a local file inside the block; errors name it as the sender does."""

    def __init__(self, content: bytes, name: str, suffixes: Sequence[str]) -> None:
        self._name = PurePath(name.replace("\\", "/")).name[:80]
        suffix = PurePath(self._name).suffix.lower()
        self._suffix = suffix if suffix in suffixes else ".txt"
        self._content = content
        self._folder = tempfile.TemporaryDirectory()

    def __enter__(self) -> Path:
        path = Path(self._folder.name) / f"sent{self._suffix}"
        path.write_bytes(self._content)
        return path

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        self._folder.cleanup()
        if isinstance(error, BadFile):
            raise BadFile(self._name, error.problem, error.line) from error


@router.post("/tune")
def tune(request: Request, about: Annotated[str, Form(max_length=LONGEST_NAME)]) -> RedirectResponse:
    """Starts tuning the testbed's prompts, and shows the progress."""
    service = service_of(request)
    choice = choose(service.catalogue, about)
    if choice.hard is None:
        raise UserMistake("there are no hard prompts to tune")
    return RedirectResponse(f"/train/{service.tune_testbed(choice.hard).id}", status_code=303)
