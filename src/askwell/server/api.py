"""The API: /api/v1, and the two addresses for monitoring."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from concurrent.futures import Future
from typing import Annotated, Any, TypeVar

from fastapi import APIRouter, Query, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response, StreamingResponse
from fastapi.routing import APIRoute
from pydantic import ValidationError

from askwell.answers.reply import Reply, unseen_in
from askwell.data.templates import parse_template
from askwell.data.testbed import PREFIXES
from askwell.errors import UsageError
from askwell.runs.query import query_runs, row_of
from askwell.server import schemas
from askwell.server.catalogue import Entry
from askwell.server.jobs import Job, Order, facts_of
from askwell.server.refusals import ClientGone, explain
from askwell.server.service import Service
from askwell.server.settings import LONGEST_NAME, LONGEST_TEXT, MOST_ANSWERS
from askwell.specs.mixture_spec import MixtureSpec
from askwell.specs.training_spec import TrainingSpec
from askwell.version import VERSION
from askwell.views.printable import json_escaped

T = TypeVar("T")
_STREAMED_AT_ONCE = 32
_SECONDS_BETWEEN_LOOKS = 0.2
PROBLEMS: dict[int | str, dict[str, Any]] = {
    400: {"model": schemas.Problem, "description": "the body cannot be read"},
    403: {"model": schemas.Problem, "description": "the request comes from another site, or training is disabled"},
    404: {"model": schemas.Problem, "description": "there is nothing with that name"},
    413: {"model": schemas.Problem, "description": "the request is too large"},
    422: {"model": schemas.Problem, "description": "the request is invalid; the sentence says why"},
    429: {"model": schemas.Problem, "description": "the queue is full; Retry-After says when to try again"},
    500: {"model": schemas.Problem, "description": "the request was valid but failed, e.g. because a run is damaged"},
    503: {"model": schemas.Problem, "description": "the service is shutting down"},
}
_JSON = json.JSONEncoder(separators=(",", ":"))
_ASK_REQUEST = {"$ref": "#/components/schemas/AskRequest"}
router = APIRouter(prefix="/api/v1", responses=PROBLEMS)
machines = APIRouter()


def service_of(request: Request) -> Service:
    """Return the service that answers a request."""
    return request.app.state.service


async def _body(request: Request) -> schemas.AskRequest:
    kind = request.headers.get("content-type", "application/json").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise UsageError(f"the body is {kind[:80]!r}; send application/json")
    try:
        return schemas.AskRequest.model_validate_json(await request.body())
    except ValidationError as error:
        problems = [{**problem, "loc": ("body", *problem["loc"])} for problem in error.errors()]
        raise RequestValidationError(problems) from error


async def answered(request: Request, future: "Future[T]") -> T:
    """Await the result of a future, which is cancelled if the client disconnects first."""
    answer = asyncio.wrap_future(future)  # if this is cancelled, so is the other
    if answer.done():
        return answer.result()
    gone = asyncio.ensure_future(_gone(request))
    gone.add_done_callback(lambda _: answer.cancel())
    try:
        return await answer
    except asyncio.CancelledError:
        if gone.done() and not gone.cancelled():
            raise ClientGone("the client disconnected") from None
        raise
    finally:
        gone.cancel()


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def ask(request: Request) -> Response:
    """Return the most probable answers to each x, best first. Requests of many clients are answered in one batch."""
    body = await _body(request)
    found = await answered(request, service_of(request).ask(body.mixture, body.xs, body.top))
    return Response(_as_json(found, body.by_prompt), media_type="application/json")


class _PlainRoute(APIRoute):
    """Passes requests to its function as they are: FastAPI takes longer to check one than a small LM to answer it."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the function itself."""
        return self.endpoint


router.add_api_route(
    "/ask",
    ask,
    methods=["POST"],
    summary="Ask a mixture about one x or many",
    response_model=schemas.Answers,
    openapi_extra={"requestBody": {"required": True, "content": {"application/json": {"schema": _ASK_REQUEST}}}},
    route_class_override=_PlainRoute,
)


@router.get("/ask", summary="Ask a mixture about one x", response_model_exclude_none=True)
async def ask_one(
    request: Request,
    mixture: Annotated[str, Query(min_length=1, max_length=LONGEST_NAME, examples=["p36"])],
    x: Annotated[str, Query(min_length=1, max_length=LONGEST_TEXT, examples=["France"])],
    top: Annotated[int, Query(ge=1, le=MOST_ANSWERS)] = 10,
) -> schemas.Answers:
    """Return the same for one x, at an address that a browser can open."""
    found = await answered(request, service_of(request).ask(mixture, [x], top))
    return schemas.Answers(answers=[_answers(replies, False) for replies in found], unseen=_unseen(found))


@router.post(
    "/ask/stream",
    summary="Ask about many x's, with each answer as it comes",
    response_class=StreamingResponse,
    responses={200: {"content": {"application/x-ndjson": {"schema": {"type": "string"}}}, "description": "JSON lines"}},
)
async def ask_streamed(request: Request, body: schemas.AskRequest) -> StreamingResponse:
    """Stream a line of JSON for each x, in order: `{"x": …, "answers": […]}`; a line `{"error": …}` ends it early."""
    service = service_of(request)
    first = service.ask(body.mixture, body.xs[:_STREAMED_AT_ONCE], body.top)  # an invalid request gets a status

    async def lines() -> AsyncIterator[str]:
        waiting: Future[list[list[Reply]]] = first
        try:
            for start in range(0, len(body.xs), _STREAMED_AT_ONCE):
                xs = body.xs[start : start + _STREAMED_AT_ONCE]
                if start:
                    waiting = service.ask(body.mixture, xs, body.top)
                for x, replies in zip(xs, await asyncio.wrap_future(waiting), strict=True):
                    line = schemas.StreamedAnswer(
                        x=x, answers=_answers(replies, body.by_prompt), unseen=unseen_in(replies) or None
                    )
                    yield json_escaped(line.model_dump_json(exclude_none=True)) + "\n"
        except Exception as error:
            yield json.dumps({"error": explain(error).sentence}) + "\n"
        finally:
            waiting.cancel()

    return StreamingResponse(lines(), media_type="application/x-ndjson")


@router.get("/mixtures", summary="The mixtures that can be asked")
def mixtures(request: Request) -> schemas.Mixtures:
    """List every name that can be asked, with its description."""
    return schemas.Mixtures(mixtures=[_mixture(one) for one in service_of(request).catalogue.entries().values()])


@router.get("/lms", summary="The available LMs")
def lms(request: Request) -> schemas.LMs:
    """List the LMs that can be trained on, and which of them are loaded."""
    service = service_of(request)
    loaded = service.loaded.names
    known = [
        schemas.LMInfo(name=lm.name, about=lm.about, megabytes=lm.megabytes, loaded=lm.name in loaded)
        for lm in service.lms()
    ]
    return schemas.LMs(lms=known)


@router.get("/runs", summary="The runs")
def runs(request: Request) -> schemas.RunList:
    """Return a row for each run, with the columns of `askwell runs`, and its name."""
    catalogue = service_of(request).catalogue
    named = catalogue.runs()
    names = {run.folder: name for name, run in named.items()}
    rows = [{"name": names[run.folder], **row_of(run)} for run in query_runs(list(named.values()))]
    return schemas.RunList(runs=rows, problems=catalogue.problems)


@router.get("/runs/{name}", summary="A run's record")
def run(request: Request, name: str) -> dict[str, Any]:
    """Return everything that is known about a run, except the outcomes of individual facts."""
    found = service_of(request).catalogue.run(name)
    history = [line.model_dump(mode="json", exclude_unset=True) for line in found.record.history]
    return {"name": name, **found.record.model_dump(mode="json", by_alias=True), "history": history}


@router.get("/jobs", summary="The training jobs")
def jobs(request: Request) -> schemas.JobList:
    """List all jobs since the service was started, the newest first."""
    return schemas.JobList(jobs=[job_info(job, service_of(request)) for job in service_of(request).jobs.all()])


@router.post("/jobs", summary="Train a mixture", status_code=201)
def start_job(request: Request, body: schemas.TrainRequest) -> schemas.JobInfo:
    """Start a run, which is saved in the folder of runs like any other."""
    service = service_of(request)
    service.need_training()
    if body.relation.startswith(PREFIXES) and body.facts:
        raise UsageError(f"{body.relation[:80]} has its own facts: leave out facts, or choose another name")
    if not body.relation.startswith(PREFIXES) and not body.facts:
        raise UsageError("there are no facts: give pairs of x and y")
    order = Order(
        service.lm_source(body.lm),
        body.relation,
        facts_of([(pair.x, pair.y) for pair in body.facts]),
        tuple(parse_template(text) for text in body.templates),
        MixtureSpec(deep=body.deep, seed=body.seed),
        TrainingSpec(pairs=body.pairs),
    )
    return job_info(service.train(order), service)


@router.get("/jobs/{job}", summary="A training job")
def one_job(request: Request, job: str) -> schemas.JobInfo:
    """Return the state and progress of a job."""
    service = service_of(request)
    return job_info(service.jobs.find(job), service)


@router.delete("/jobs/{job}", summary="Cancel a training job")
def cancel_job(request: Request, job: str) -> schemas.JobInfo:
    """Stop a job; its best state so far is kept, and starting the same job again continues from there."""
    service = service_of(request)
    return job_info(service.jobs.cancel(job), service)


@router.get(
    "/jobs/{job}/events",
    summary="The progress of a training job",
    response_class=StreamingResponse,
    responses={200: {"content": {"text/event-stream": {"schema": {"type": "string"}}}, "description": "events"}},
)
async def job_events(request: Request, job: str) -> StreamingResponse:
    """Stream server-sent events: the job whenever it changes, and for the last time when it is over."""
    service = service_of(request)
    first = await run_in_threadpool(service.jobs.find, job)

    async def events() -> AsyncIterator[str]:
        found, version = first, -1
        while True:
            if found.version != version:
                version, is_over = found.version, found.is_over
                info = await run_in_threadpool(job_info, found, service)
                yield f"data: {json_escaped(info.model_dump_json())}\n\n"
                if is_over:
                    return
            if await request.is_disconnected() or request.app.state.closing:
                return
            await asyncio.sleep(_SECONDS_BETWEEN_LOOKS)
            found = await run_in_threadpool(service.jobs.find, job)

    return StreamingResponse(events(), media_type="text/event-stream", headers={"cache-control": "no-cache"})


@machines.get("/healthz", summary="Whether the service is up", tags=["machines"])
def health() -> schemas.Health:
    """Return the version of the service, as a sign that it is up."""
    return schemas.Health(status="ok", version=VERSION)


@machines.get("/metrics", summary="Figures for Prometheus", tags=["machines"], response_class=Response)
def metrics(request: Request) -> Response:
    """Return counters and gauges in Prometheus' text format."""
    return Response(request.app.state.metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")


def _answers(replies: Sequence[Reply], by_prompt: bool) -> list[schemas.Answer]:
    return [
        schemas.Answer(y=reply.y, probability=reply.probability, by_prompt=list(reply.by_prompt) if by_prompt else None)
        for reply in replies
    ]


def _as_json(found: Sequence[Sequence[Reply]], by_prompt: bool) -> str:
    """Encode answers as an `Answers` document in JSON."""
    answers: list[list[dict[str, Any]]] = [
        [{"y": reply.y, "probability": reply.probability} for reply in replies] for replies in found
    ]
    if by_prompt:
        for documents, replies in zip(answers, found, strict=True):
            for document, reply in zip(documents, replies, strict=True):
                document["by_prompt"] = reply.by_prompt
    unseen = _unseen(found)
    return _JSON.encode({"answers": answers} if unseen is None else {"answers": answers, "unseen": unseen})


def _unseen(found: Sequence[Sequence[Reply]]) -> list[float] | None:
    """Return the probability for each x below which answers may be missing; None if none are missing."""
    each = [unseen_in(replies) for replies in found]
    return each if any(each) else None


def _mixture(entry: Entry) -> schemas.MixtureInfo:
    known = {name: getattr(entry, name) for name in ("name", "kind", "lm", "relation", "label", "prompts", "setting")}
    return schemas.MixtureInfo(**known, run=None if entry.run is None else entry.name.removesuffix(":hard"))


def job_info(job: Job, service: Service) -> schemas.JobInfo:
    """Return a job as the API shows it."""
    mixture = None
    if job.state == "done" and job.folder is not None:
        mixture = next((name for name, run in service.catalogue.runs().items() if run.folder == job.folder), None)
    history = [
        schemas.HistoryPoint(
            pairs=line["pairs"], train_loss=line["train_loss"], dev_p_at_1=line["P@1"], dev_mrr=line["MRR"]
        )
        for line in job.history
    ]
    return schemas.JobInfo(
        id=job.id, state=job.state, lm=job.order.lm.name, relation=job.order.relation, phase=job.phase, done=job.done,
        total=job.total, history=history, message=job.message, mixture=mixture,
    )  # fmt: skip
