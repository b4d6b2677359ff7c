"""The queue in front of the LMs: questions of many clients to the same LM are answered in one batch.

One thread does all the work with LMs. It takes the x's that are waiting for the LM of the oldest request, from any
client and for any mixture, as one batch.
"""

import math
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch

from askwell.answers.asking import AskedX
from askwell.answers.reply import Reply
from askwell.errors import AskwellError, UsageError
from askwell.server.loaded import Askable, LoadedLM, LoadedLMs
from askwell.server.refusals import Closing, Overloaded
from askwell.server.settings import Settings

T = TypeVar("T")
AnswersToAll = list[list[Reply]]
_LONGEST_WAIT = 60
_SECONDS_WITHOUT_ONE = 0.003


@dataclass(eq=False)
class _Request:
    """One client's request: x's for one mixture, each with its answers once they are known."""

    askable: Askable
    xs: Sequence[str]
    top: int
    future: Future[AnswersToAll]
    found: dict[int, list[Reply]] = field(default_factory=dict)
    waiting: list[int] = field(default_factory=list)
    """The indices of the x's that are still to be asked, the next one last."""


@dataclass(eq=False)
class _Call:
    """Other work that needs LMs."""

    work: Callable[[LoadedLMs], Any]
    future: Future[Any]
    waiting: list[int] = field(default_factory=lambda: [0])


@dataclass
class QueueCounts:
    """What the queue has done."""

    asked: int = 0
    """x's that went through an LM."""
    from_cache: int = 0
    batches: int = 0
    refused: int = 0
    cancelled: int = 0
    """Requests whose clients disconnected before they were answered."""


class AskQueue:
    """A bounded queue of x's, and the thread that asks them."""

    def __init__(self, loaded: LoadedLMs, settings: Settings) -> None:
        self._loaded, self._settings = loaded, settings
        self._changed = threading.Condition()
        self._requests: list[_Request | _Call] = []
        self._kept: OrderedDict[tuple[Any, ...], list[Reply]] = OrderedDict()
        self._closing = False
        self._places_taken = 0
        self._wanted = 1  # how many x's wake the thread
        self._last_batch = 1
        self._seconds_of_one = 0.01
        self.counts = QueueCounts()
        self._thread = threading.Thread(target=self._work, name="askwell-lms", daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        """How many x's are waiting."""
        with self._changed:
            return self._places_taken

    def ask(self, askable: Askable, xs: Sequence[str], top: int = 10) -> "Future[AnswersToAll]":
        """Queue x's and return a future of their answers; refuse them if the queue has no room for all of them.

        Cancelling the future frees the places of x's that are not yet being asked.
        """
        request = _Request(askable, xs, top, Future())
        with self._changed:
            places: dict[str, int] = {}
            for place, x in enumerate(xs):
                kept = self._kept.get((askable.key, x, top))
                if kept is not None:
                    self._kept.move_to_end((askable.key, x, top))
                    request.found[place] = kept
                elif x not in places:
                    places[x] = place
            request.waiting = list(reversed(places.values()))
            self.counts.from_cache += len(request.found)
            if request.waiting:
                self._enter(request)
        if not request.waiting:
            _finish(request)
        return request.future

    def call(self, work: Callable[[LoadedLMs], T]) -> "Future[T]":
        """Return a future of the result of `work`, which may use the LMs while it runs."""
        call = _Call(work, Future())
        with self._changed:
            self._enter(call)
        return call.future

    def close(self) -> None:
        """Accept nothing new, finish what is waiting, and stop the thread."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join()

    def _enter(self, request: _Request | _Call) -> None:
        if self._closing:
            raise Closing("the service is shutting down")
        taken = self._places_taken
        if taken + len(request.waiting) > self._settings.places:
            self.counts.refused += 1
            seconds = min(_LONGEST_WAIT, max(1, math.ceil(taken * self._seconds_of_one)))
            raise Overloaded(f"{taken} questions are waiting, of {self._settings.places} at most", seconds)
        self._requests.append(request)
        self._places_taken += len(request.waiting)
        request.future.add_done_callback(lambda future: self._leave(request) if future.cancelled() else None)
        if self._places_taken >= self._wanted:
            self._changed.notify()

    def _leave(self, request: _Request | _Call) -> None:
        with self._changed:
            self.counts.cancelled += 1
            self._forget(request)

    def _forget(self, request: _Request | _Call) -> None:
        self._places_taken -= len(request.waiting)
        request.waiting.clear()
        if request in self._requests:
            self._requests.remove(request)

    # ── in the thread ─────────────────────────────────────────────────────────────────────────────────────────────

    def _work(self) -> None:
        if self._settings.threads is not None:
            torch.set_num_threads(self._settings.threads)
        while True:
            with self._changed:
                while not self._requests and not self._closing:
                    self._changed.wait()
                self._gather()
                if not self._requests:
                    if self._closing:
                        return
                    continue
                first = self._requests[0]
                batch = [] if isinstance(first, _Call) else self._next_batch(first)
                if isinstance(first, _Call):
                    self._forget(first)
            if isinstance(first, _Call):
                self._do(first)
            else:
                self._answer(batch)

    def _gather(self) -> None:
        """Wait for as many x's as the last batch had, while they keep coming: clients that were answered ask again.

        A small batch takes the LM nearly as long as a large one.
        """
        self._wanted = min(self._last_batch, self._settings.batch, self._settings.places)
        before = 0
        while not self._closing and before < self._places_taken < self._wanted:
            before = self._places_taken
            self._changed.wait(_SECONDS_WITHOUT_ONE)
        self._wanted = 1

    def _do(self, call: _Call) -> None:
        if call.future.set_running_or_notify_cancel():
            try:
                call.future.set_result(call.work(self._loaded))
            except BaseException as error:  # goes to whoever waits for the future
                call.future.set_exception(error)

    def _next_batch(self, first: _Request) -> list[tuple[_Request, list[int]]]:
        """Take the x's of the next batch, from each request for the first one's LM."""
        room = self._settings.batch
        batch = []
        for request in list(self._requests):
            if isinstance(request, _Call) or request.askable.lm != first.askable.lm:
                continue
            taken = [request.waiting.pop() for _ in range(min(room, len(request.waiting)))]
            room -= len(taken)
            self._places_taken -= len(taken)
            batch.append((request, taken))
            if not request.waiting:
                self._requests.remove(request)
            if not room:
                break
        self._last_batch = sum(len(taken) for _, taken in batch)
        return batch

    def _answer(self, batch: list[tuple[_Request, list[int]]]) -> None:
        began = time.perf_counter()
        try:
            loaded = self._loaded.get(batch[0][0].askable.lm)
        except Exception as error:  # the LM is not available: each of its clients is told
            for request, _ in batch:
                self._fail(request, error)
            return
        good = self._only_askable(loaded, batch)
        try:
            self._ask(loaded, good)
        except Exception as error:  # one mixture may be broken: then each is asked alone
            for request, taken in good:
                try:
                    self._ask(loaded, [(request, taken)])
                except Exception as own:
                    self._fail(request, own)
            if not isinstance(error, AskwellError) and len(good) > 1:
                raise_later(error)
        asked = sum(len(taken) for _, taken in batch)
        self.counts.asked += asked
        self.counts.batches += 1
        took = (time.perf_counter() - began) / asked
        self._seconds_of_one += 0.2 * (took - self._seconds_of_one)

    def _only_askable(
        self, loaded: LoadedLM, batch: list[tuple[_Request, list[int]]]
    ) -> list[tuple[_Request, list[int]]]:
        """Keep the requests whose mixtures can be built and whose x's can be asked; fail the others."""
        by_mixture: dict[tuple[str, ...], list[tuple[_Request, list[int]]]] = {}
        for request, taken in batch:
            by_mixture.setdefault(request.askable.key, []).append((request, taken))
        good = []
        for requests in by_mixture.values():
            try:
                mixture = loaded.mixture(requests[0][0].askable)
                xs = list({request.xs[place] for request, taken in requests for place in taken})
                reasons = dict(zip(xs, mixture.answering().why_unaskable(xs), strict=True))
            except Exception as error:
                for request, _ in requests:
                    self._fail(request, error)
                continue
            for request, taken in requests:
                bad = [request.xs[place] for place in taken if reasons[request.xs[place]] is not None]
                if bad:
                    self._fail(request, UsageError(f"{bad[0][:60]!r} cannot be asked: {reasons[bad[0]]}"))
                else:
                    good.append((request, taken))
        return good

    def _ask(self, loaded: LoadedLM, batch: list[tuple[_Request, list[int]]]) -> None:
        if not batch:
            return
        askables = list({request.askable.key: request.askable for request, _ in batch}.values())
        questions = [
            AskedX(loaded.mixture(request.askable).answering(), request.xs[place], request.top)
            for request, taken in batch
            for place in taken
        ]
        answers = iter(loaded.together(askables).ask(questions))
        finished = []
        with self._changed:
            for request, taken in batch:
                for place in taken:
                    request.found[place] = self._keep(request, place, next(answers))
                if not request.waiting and not request.future.cancelled():
                    finished.append(request)
        for request in finished:
            _finish(request)

    def _keep(self, request: _Request, place: int, replies: list[Reply]) -> list[Reply]:
        key = (request.askable.key, request.xs[place], request.top)
        self._kept[key] = replies
        self._kept.move_to_end(key)
        while len(self._kept) > self._settings.kept_answers:
            self._kept.popitem(last=False)
        return replies

    def _fail(self, request: _Request, error: Exception) -> None:
        with self._changed:
            self._forget(request)
        if request.future.set_running_or_notify_cancel():
            request.future.set_exception(error)


def _finish(request: _Request) -> None:
    """Set the answers of all x's; a repeated x was asked once."""
    by_x = {request.xs[place]: replies for place, replies in request.found.items()}
    if request.future.set_running_or_notify_cancel():
        request.future.set_result([by_x[x] for x in request.xs])


def raise_later(error: Exception) -> None:
    """Show a bug on stderr, as threading does, while the service keeps running."""
    threading.excepthook(
        threading.ExceptHookArgs((type(error), error, error.__traceback__, threading.current_thread()))
    )
