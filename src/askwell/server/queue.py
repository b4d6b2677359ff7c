"""The LMs of a service, and the queue in front of them: questions of many clients to one LM are answered in one batch.

One thread does all the work with LMs. It takes the questions that are waiting for the LM of the oldest one, from any
client and for any mixture, as one batch.
"""

import math
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import torch

from askwell.answers.one_token import AskedTogether, AskedX
from askwell.answers.reply import Reply
from askwell.errors import LMUnavailable, UsageError
from askwell.lms.checkpoints import built_in_folder
from askwell.lms.frozen import FrozenLM
from askwell.lms.load import load_lm
from askwell.mixture.mixture import Mixture
from askwell.server.refusals import Overloaded, Refused
from askwell.server.settings import Settings

K = TypeVar("K")
T = TypeVar("T")
V = TypeVar("V")
AnswersToAll = list[list[Reply]]
_MIXTURES_OF_AN_LM = 64
_GROUPS_OF_AN_LM = 32
_LONGEST_WAIT = 60
_SECONDS_WITHOUT_ONE = 0.003


@dataclass(frozen=True)
class LMSource:
    """Where an LM can be loaded from."""

    name: str
    revision: str | None = None
    tokenizer: str | None = None


@dataclass(frozen=True)
class Askable:
    """A mixture that can be built on its LM."""

    key: tuple[str, ...]
    """Differs whenever the content differs."""
    lm: LMSource
    build: Callable[[FrozenLM], Mixture]


class LoadedLM:
    """An LM, and the mixtures that were used most recently."""

    def __init__(self, lm: FrozenLM) -> None:
        self.lm = lm
        self.bytes = sum(one.numel() * one.element_size() for one in (*lm.model.parameters(), *lm.model.buffers()))
        self._mixtures: OrderedDict[tuple[str, ...], Mixture] = OrderedDict()
        self._groups: OrderedDict[tuple[tuple[str, ...], ...], AskedTogether] = OrderedDict()

    def mixture(self, askable: Askable) -> Mixture:
        """Return the mixture, which is built if it is not in the cache."""
        if askable.key not in self._mixtures:
            self._mixtures[askable.key] = askable.build(self.lm).requires_grad_(False)
        return _recent(self._mixtures, askable.key, _MIXTURES_OF_AN_LM)

    def together(self, askables: Sequence[Askable]) -> AskedTogether:
        """Return these mixtures as a group that is asked together."""
        # A mixture that is not asked costs nothing, so a larger group that includes these can be used.
        for keys in reversed(self._groups):
            if all(one.key in keys for one in askables) and len(keys) <= 2 * len(askables):
                return _recent(self._groups, keys, _GROUPS_OF_AN_LM)
        keys = tuple(one.key for one in askables)
        self._groups[keys] = AskedTogether([self.mixture(one).answering() for one in askables])
        return _recent(self._groups, keys, _GROUPS_OF_AN_LM)


class LoadedLMs:
    """LMs that stay loaded while their weights fit into a given number of bytes; the least recently used make room.

    Only one thread at a time may use them.
    """

    def __init__(self, limit: int, load: Callable[..., FrozenLM] = load_lm) -> None:
        self._limit, self._load = limit, load
        self._lms: OrderedDict[LMSource, LoadedLM] = OrderedDict()

    def get(self, source: LMSource) -> LoadedLM:
        """Return the LM, which is loaded if it is not in the cache; others make room for it."""
        if source not in self._lms:
            self._make_room(_size_on_disk(source))
            loaded = LoadedLM(self._loaded(source))
            if loaded.bytes > self._limit:
                raise LMUnavailable(
                    f"{source.name} takes {loaded.bytes / 2**20:.0f} MiB, but LMs may take {self._limit / 2**20:.0f} "
                    "MiB here; raise the limit with: askwell serve --memory GIB"
                )
            self._make_room(loaded.bytes)
            self._lms[source] = loaded
        self._lms.move_to_end(source)
        return self._lms[source]

    def _loaded(self, source: LMSource) -> FrozenLM:
        try:
            return self._load(source.name, revision=source.revision, tokenizer=source.tokenizer)
        except LMUnavailable as error:  # clients are not told the paths of this machine
            name = Path(source.name).name if Path(source.name).is_absolute() else source.name
            raise LMUnavailable(str(error).replace(source.name, name)) from error

    @property
    def names(self) -> list[str]:
        """The names of the loaded LMs, the most recently used last."""
        return [source.name for source in list(self._lms)]

    @property
    def bytes(self) -> int:
        """Their size in memory."""
        return sum(loaded.bytes for loaded in list(self._lms.values()))

    def _make_room(self, needed: int) -> None:
        while self._lms and self.bytes + needed > self._limit:
            self._lms.popitem(last=False)


def _size_on_disk(source: LMSource) -> int:
    """Return the size of an LM's weights in a local folder; 0 if it is unknown."""
    folder = built_in_folder(source.name) or Path(source.name)
    return sum(file.stat().st_size for file in folder.glob("*.safetensors")) if folder.is_dir() else 0


def _recent(kept: OrderedDict[K, V], key: K, most: int) -> V:
    """Return an item of a cache as the one used last; the least recently used go if there are too many."""
    kept.move_to_end(key)
    while len(kept) > most:
        kept.popitem(last=False)
    return kept[key]


# ── the queue ─────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(eq=False)
class _Request:
    """One client's request: x's for one mixture, each with its answers once they are known."""

    askable: Askable
    xs: Sequence[str]
    top: int
    found: dict[str, list[Reply]] = field(default_factory=dict)
    future: Future[AnswersToAll] = field(default_factory=Future)

    def finish_if_answered(self) -> None:
        """Set the result once every x has its answers."""
        if len(self.found) == len(set(self.xs)) and self.future.set_running_or_notify_cancel():
            self.future.set_result([self.found[x] for x in self.xs])


_Question = tuple[_Request, str]
"""One x of a request."""


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
    """A bounded queue of questions, and the thread that asks them."""

    def __init__(self, loaded: LoadedLMs, settings: Settings) -> None:
        self._loaded, self._settings = loaded, settings
        self._changed = threading.Condition()
        self._questions: list[_Question] = []
        self._kept: OrderedDict[tuple[Any, ...], list[Reply]] = OrderedDict()
        self._wanted = 1  # how many questions wake the thread
        self._last_batch = 1
        self._seconds_of_one = 0.01
        self.counts = QueueCounts()
        threads = settings.threads or torch.get_num_threads()
        self._thread = ThreadPoolExecutor(1, "askwell-lms", torch.set_num_threads, (threads,))

    @property
    def waiting(self) -> int:
        """How many questions are waiting."""
        return len(self._questions)

    def ask(self, askable: Askable, xs: Sequence[str], top: int = 10) -> "Future[AnswersToAll]":
        """Queue x's and return a future of their answers; refuse them if the queue has no room for all of them.

        Cancelling the future frees the places of x's that are not yet being asked.
        """
        request = _Request(askable, xs, top)
        with self._changed:
            for x in dict.fromkeys(xs):
                key = (askable.key, x, top)
                if key in self._kept:
                    request.found[x] = _recent(self._kept, key, self._settings.kept_answers)
            new = [(request, x) for x in dict.fromkeys(xs) if x not in request.found]
            waiting = len(self._questions)
            if new and waiting + len(new) > self._settings.places:
                self.counts.refused += 1
                seconds = min(_LONGEST_WAIT, max(1, math.ceil(waiting * self._seconds_of_one)))
                raise Overloaded(f"{waiting} questions are waiting, of {self._settings.places} at most", seconds)
            for _ in range(0, len(new), self._settings.batch):  # each takes a whole batch, or all that there is
                self._submit(self._answer_batch)
            self._questions += new
            self.counts.from_cache += len(request.found)
            if len(self._questions) >= self._wanted:
                self._changed.notify()
        request.future.add_done_callback(lambda future: self._leave(request) if future.cancelled() else None)
        if not new:
            request.finish_if_answered()
        return request.future

    def call(self, work: Callable[[LoadedLMs], T]) -> "Future[T]":
        """Return a future of the result of `work`, which may use the LMs while it runs."""
        return self._submit(work, self._loaded)

    def close(self) -> None:
        """Accept nothing new, finish what is waiting, and stop the thread."""
        self._thread.shutdown()

    def _submit(self, work: Callable[..., T], *arguments: Any) -> "Future[T]":
        try:
            return self._thread.submit(work, *arguments)
        except RuntimeError:
            raise Refused(503, "the service is shutting down") from None

    def _leave(self, request: _Request) -> None:
        self.counts.cancelled += 1
        self._forget(request)

    def _forget(self, request: _Request) -> None:
        with self._changed:
            self._questions = [question for question in self._questions if question[0] is not request]

    # ── in the thread ─────────────────────────────────────────────────────────────────────────────────────────────

    def _answer_batch(self) -> None:
        batch = self._next_batch()
        if not batch:
            return
        began = time.perf_counter()
        try:
            loaded = self._loaded.get(batch[0][0].askable.lm)
        except Exception as error:  # the LM is not available: each of its clients is told
            self._fail(batch, error)
            return
        good = self._only_askable(loaded, batch)
        try:
            self._ask(loaded, good)
        except Exception:  # one mixture may be broken: then each request is asked alone
            for request in dict.fromkeys(request for request, _ in good):
                own = [question for question in good if question[0] is request]
                try:
                    self._ask(loaded, own)
                except Exception as error:
                    self._fail(own, error)
        self.counts.asked += len(batch)
        self.counts.batches += 1
        took = (time.perf_counter() - began) / len(batch)
        self._seconds_of_one += 0.2 * (took - self._seconds_of_one)

    def _next_batch(self) -> list[_Question]:
        """Take the questions of the next batch, all of them to one LM."""
        with self._changed:
            self._gather()
            lms = [request.askable.lm for request, _ in self._questions]
            batch = [question for question, lm in zip(self._questions, lms, strict=True) if lm == lms[0]]
            batch = batch[: self._settings.batch]
            taken = set(batch)
            self._questions = [question for question in self._questions if question not in taken]
            self._last_batch = len(batch)
            return batch

    def _gather(self) -> None:
        """Wait for as many questions as the last batch had, while they keep coming: clients that were answered ask
        again, and a small batch takes the LM nearly as long as a large one."""
        self._wanted = min(self._last_batch, self._settings.batch, self._settings.places)
        before = 0
        while before < len(self._questions) < self._wanted:
            before = len(self._questions)
            self._changed.wait(_SECONDS_WITHOUT_ONE)
        self._wanted = 1

    def _only_askable(self, loaded: LoadedLM, batch: list[_Question]) -> list[_Question]:
        """Keep the questions whose mixtures can be built and whose x's can be asked; fail the other requests."""
        by_mixture: dict[tuple[str, ...], list[_Question]] = {}
        for question in batch:
            by_mixture.setdefault(question[0].askable.key, []).append(question)
        for questions in by_mixture.values():
            try:
                answers = loaded.mixture(questions[0][0].askable).answering()
                reasons = answers.why_unaskable([x for _, x in questions])
            except Exception as error:
                self._fail(questions, error)
                continue
            for question, reason in zip(questions, reasons, strict=True):
                if reason is not None:
                    self._fail([question], UsageError(f"{question[1][:60]!r} cannot be asked: {reason}"))
        return [question for question in batch if not question[0].future.done()]

    def _ask(self, loaded: LoadedLM, batch: list[_Question]) -> None:
        if not batch:
            return
        askables = list({request.askable.key: request.askable for request, _ in batch}.values())
        asked = [AskedX(loaded.mixture(request.askable).answering(), x, request.top) for request, x in batch]
        answers = loaded.together(askables).ask(asked)
        with self._changed:
            for (request, x), replies in zip(batch, answers, strict=True):
                key = (request.askable.key, x, request.top)
                self._kept[key] = replies
                request.found[x] = _recent(self._kept, key, self._settings.kept_answers)
        for request in dict.fromkeys(request for request, _ in batch):
            request.finish_if_answered()

    def _fail(self, questions: list[_Question], error: Exception) -> None:
        """Give up the requests of some questions."""
        for request in dict.fromkeys(request for request, _ in questions):
            self._forget(request)
            if not request.future.done() and request.future.set_running_or_notify_cancel():
                request.future.set_exception(error)
