"""The service without the web: what is served, the queue in front of the LMs, and the training jobs."""

import asyncio
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import replace
from typing import TypeVar

from fastapi import Request

from askwell.answers.reply import PromptReply, Reply
from askwell.data.testbed import PREFIXES
from askwell.errors import UsageError
from askwell.lms.available import ListedLM, list_lms
from askwell.server.catalogue import TESTBED_PROMPTS, Catalogue, Entry
from askwell.server.jobs import Job, Jobs
from askwell.server.queue import AskQueue, LMSource, LoadedLMs
from askwell.server.refusals import Explained, NoSuchName, Refused, explain
from askwell.server.schemas import TrainRequest
from askwell.server.settings import Settings
from askwell.views.words import PromptWords, nearest_words

T = TypeVar("T")


class Service:
    """Everything that requests can access."""

    def __init__(self, settings: Settings, jobs: Jobs | None = None) -> None:
        self.settings = settings
        self.catalogue = Catalogue(settings.runs)
        self.loaded = LoadedLMs(settings.memory)
        self.queue = AskQueue(self.loaded, settings)
        self.jobs = jobs or Jobs(settings.runs, settings.waiting_jobs)

    def ask(self, name: str, xs: Sequence[str], top: int = 10) -> "Future[list[list[Reply]]]":
        """Return a future of the answers of a mixture to each x."""
        return self.queue.ask(self.catalogue.find(name).askable, xs, top)

    def words(self, entry: Entry) -> "Future[list[PromptWords]]":
        """Return a future of the prompts of a mixture in words."""
        askable = entry.askable
        return self.queue.call(lambda lms: nearest_words(lms.get(askable.lm).mixture(askable)))

    def behind(self, entry: Entry, x: str) -> "Future[list[PromptReply]]":
        """Return a future of the weight of each prompt of a mixture for an x, and what it answers by itself."""
        askable = entry.askable
        return self.queue.call(lambda lms: lms.get(askable.lm).mixture(askable).answering().prompts_behind(x))

    def lms(self) -> list[ListedLM]:
        """Return the available LMs."""
        return [lm for lm in list_lms() if lm.ready]

    def lm_source(self, name: str) -> LMSource:
        """Return where the LM named in a request can be loaded from; it must be one of those available."""
        known = {lm.name for lm in self.lms()}
        if name not in known:
            raise NoSuchName(f"there is no LM {name[:80]!r} here; choose from {', '.join(sorted(known))}")
        return LMSource(name)

    def train(self, order: TrainRequest, prompts: str = "given") -> Job:
        """Start a training job; `prompts` is what its set of prompts is called."""
        if not self.settings.training:
            raise Refused(403, "training is switched off here")
        self.lm_source(order.lm)
        return self.jobs.start(order, prompts)

    def tune_testbed(self, entry: Entry) -> Job:
        """Start tuning the testbed's prompts of an entry."""
        if entry.source is not None or not entry.relation.startswith(PREFIXES):
            raise UsageError(f"{entry.name} does not belong to the testbed")
        templates = [str(template) for template in entry.templates]
        return self.train(TrainRequest(lm=entry.lm, relation=entry.relation, templates=templates), TESTBED_PROMPTS)

    def explain(self, error: Exception) -> Explained:
        """Return what a client is told about an error, without paths of this machine."""
        explained = explain(error)
        return replace(explained, sentence=self.catalogue.without_path(explained.sentence))

    def close(self) -> None:
        """Stop training, finish pending requests, and accept no more."""
        self.jobs.close()
        self.queue.close()


def service_of(request: Request) -> Service:
    """Return the service that answers a request."""
    return request.app.state.service


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
            raise Refused(499, "the client disconnected") from None
        raise
    finally:
        gone.cancel()


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
