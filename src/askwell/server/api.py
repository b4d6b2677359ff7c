"""The API: /api/v1, and the two addresses for monitoring."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import Response, StreamingResponse

from askwell.answers.reply import Reply, unseen_in
from askwell.server import schemas
from askwell.server.catalogue import run_rows
from askwell.server.refusals import PlainJSON
from askwell.server.service import answered, service_of
from askwell.server.settings import LONGEST_NAME, LONGEST_TEXT, MOST_ANSWERS
from askwell.version import VERSION
from askwell.views.printable import json_escaped

_STREAMED_AT_ONCE = 32
_SECONDS_BETWEEN_LOOKS = 0.2
_PROBLEMS = {
    400: "the body cannot be read",
    403: "the request comes from another site, or training is disabled",
    404: "there is nothing with that name",
    413: "the request is too large",
    422: "the request is invalid; the sentence says why",
    429: "the queue is full; Retry-After says when to try again",
    500: "the request was valid but failed, e.g. because a run is damaged",
    503: "the service is shutting down",
}
router = APIRouter(
    prefix="/api/v1",
    responses={status: {"model": schemas.Problem, "description": about} for status, about in _PROBLEMS.items()},
)
machines = APIRouter()


@router.post("/ask", summary="Ask a mixture about one x or many", response_model=schemas.Answers)
async def ask(request: Request, body: schemas.AskRequest) -> Response:
    """Return the most probable answers to each x, best first. Requests of many clients are answered in one batch."""
    found = await answered(request, service_of(request).ask(body.mixture, body.xs, body.top))
    unseen = [unseen_in(replies) for replies in found]
    answers = {"answers": [_answers(replies, body.by_prompt) for replies in found]}
    return PlainJSON(answers | ({"unseen": unseen} if any(unseen) else {}))


@router.get("/ask", summary="Ask a mixture about one x", response_model=schemas.Answers)
async def ask_one(
    request: Request,
    mixture: Annotated[str, Query(min_length=1, max_length=LONGEST_NAME, examples=["p36"])],
    x: Annotated[str, Query(min_length=1, max_length=LONGEST_TEXT, examples=["France"])],
    top: Annotated[int, Query(ge=1, le=MOST_ANSWERS)] = 10,
) -> Response:
    """Return the same for one x, at an address that a browser can open."""
    return await ask(request, schemas.AskRequest(mixture=mixture, xs=[x], top=top))


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
        waiting = first
        try:
            for start in range(0, len(body.xs), _STREAMED_AT_ONCE):
                xs = body.xs[start : start + _STREAMED_AT_ONCE]
                if start:
                    waiting = service.ask(body.mixture, xs, body.top)
                for x, replies in zip(xs, await asyncio.wrap_future(waiting), strict=True):
                    unseen = unseen_in(replies)
                    line = {"x": x, "answers": _answers(replies, body.by_prompt)}
                    yield json.dumps(line | ({"unseen": unseen} if unseen else {})) + "\n"
        except Exception as error:
            yield json.dumps({"error": service.explain(error).sentence}) + "\n"
        finally:
            waiting.cancel()

    return StreamingResponse(lines(), media_type="application/x-ndjson")


def _answers(replies: Sequence[Reply], by_prompt: bool) -> list[dict[str, Any]]:
    return [
        {"y": reply.y, "probability": reply.probability} | ({"by_prompt": reply.by_prompt} if by_prompt else {})
        for reply in replies
    ]


@router.get("/mixtures", summary="The mixtures that can be asked")
def mixtures(request: Request) -> schemas.Mixtures:
    """List every name that can be asked, with its description."""
    return schemas.Mixtures(mixtures=list(service_of(request).catalogue.entries().values()))


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
    return schemas.RunList(runs=run_rows(catalogue.runs()), problems=catalogue.problems)


@router.get("/runs/{name}", summary="A run's record")
def run(request: Request, name: str) -> dict[str, Any]:
    """Return everything that is known about a run, except the outcomes of individual facts."""
    found = service_of(request).catalogue.run(name)
    history = [line.model_dump(mode="json", exclude_unset=True) for line in found.record.history]
    return {"name": name, **found.record.model_dump(mode="json", by_alias=True), "history": history}


@router.get("/jobs", summary="The training jobs")
def jobs(request: Request) -> schemas.JobList:
    """List all jobs since the service was started, the newest first."""
    return schemas.JobList(jobs=list(service_of(request).jobs.all()))


@router.post("/jobs", summary="Train a mixture", status_code=201)
def start_job(request: Request, body: schemas.TrainRequest) -> schemas.JobInfo:
    """Start a run, which is saved in the folder of runs like any other."""
    return service_of(request).train(body)


@router.get("/jobs/{job}", summary="A training job")
def one_job(request: Request, job: str) -> schemas.JobInfo:
    """Return the state and progress of a job."""
    return service_of(request).jobs.find(job)


@router.delete("/jobs/{job}", summary="Cancel a training job")
def cancel_job(request: Request, job: str) -> schemas.JobInfo:
    """Stop a job; its best state so far is kept, and starting the same job again continues from there."""
    return service_of(request).jobs.cancel(job)


@router.get(
    "/jobs/{job}/events",
    summary="The progress of a training job",
    response_class=StreamingResponse,
    responses={200: {"content": {"text/event-stream": {"schema": {"type": "string"}}}, "description": "events"}},
)
async def job_events(request: Request, job: str) -> StreamingResponse:
    """Stream server-sent events: the job whenever it changes, and for the last time when it is over."""
    find = service_of(request).jobs.find
    first = await run_in_threadpool(find, job)

    async def events() -> AsyncIterator[str]:
        found, version = first, -1
        while True:
            if found.version != version:
                version, is_over = found.version, found.is_over
                yield f"data: {json_escaped(found.model_dump_json())}\n\n"
                if is_over:
                    return
            if await request.is_disconnected() or request.app.state.is_closing():
                return
            await asyncio.sleep(_SECONDS_BETWEEN_LOOKS)
            found = await run_in_threadpool(find, job)

    return StreamingResponse(events(), media_type="text/event-stream", headers={"cache-control": "no-cache"})


@machines.get("/healthz", summary="Whether the service is up", tags=["machines"])
def health() -> schemas.Health:
    """Return the version of the service, as a sign that it is up."""
    return schemas.Health(status="ok", version=VERSION)


@machines.get("/metrics", summary="Figures for Prometheus", tags=["machines"], response_class=Response)
def metrics(request: Request) -> Response:
    """Return counters and gauges in Prometheus' text format."""
    return Response(request.app.state.metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")
