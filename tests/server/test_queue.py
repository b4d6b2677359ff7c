"""The queue in front of the LMs: batches, limits, cancelling and caching."""

import threading
from concurrent.futures import CancelledError
from typing import Any

import pytest
from builders.worlds import TEMPLATES, frozen

from askwell.errors import LMUnavailable, NotFinite, UsageError
from askwell.mixture.mixture import Mixture
from askwell.server.queue import Askable, AskQueue, LMSource, LoadedLMs
from askwell.server.refusals import Overloaded, Refused
from askwell.server.settings import Settings

XS = ["Paris", "Oslo", "Lima", "Rome"]


def askable(name: str, templates: int = 1, lm: str = "bert", build: Any = None) -> Askable:
    return Askable((name,), LMSource(lm), build or (lambda loaded: Mixture(loaded, TEMPLATES[:templates])))


class Held:
    """Keeps the queue's thread busy until it is released, so that requests wait."""

    def __init__(self, queue: AskQueue) -> None:
        self._release, began = threading.Event(), threading.Event()

        def wait(_lms: LoadedLMs) -> None:
            began.set()
            assert self._release.wait(600)

        self._call = queue.call(wait)
        assert began.wait(600)

    def release(self) -> None:
        self._release.set()
        self._call.result(600)


@pytest.fixture
def queue():
    made = AskQueue(LoadedLMs(2**30, load=lambda name, **_: frozen(name)), Settings(places=8, batch=6))
    yield made
    made.close()


def test_answers_are_those_of_the_mixture_asked_alone(queue):
    one, three = askable("one"), askable("three", 3)
    futures = [queue.ask(which, XS[:2], top) for which in (one, three) for top in (1, 4)]
    lm = frozen("bert")
    for future, (templates, top) in zip(futures, ((1, 1), (1, 4), (3, 1), (3, 4)), strict=True):
        mixture = Mixture(lm, TEMPLATES[:templates])
        for x, found in zip(XS, future.result(600), strict=False):
            alone = mixture.ask(x, top=top)
            assert [reply.y for reply in found] == [reply.y for reply in alone]
            assert [reply.probability for reply in found] == pytest.approx([one.probability for one in alone], rel=1e-4)


def test_what_waits_for_an_lm_is_one_batch_across_clients_and_mixtures(queue):
    held = Held(queue)
    futures = [queue.ask(askable("one"), ["Paris"]), queue.ask(askable("two", 2), ["Oslo", "Lima"])]
    other = queue.ask(askable("other", lm="roberta"), ["Paris"])
    futures.append(queue.ask(askable("one"), ["Rome"]))
    before = queue.counts.batches
    held.release()
    for future in (*futures, other):
        future.result(600)
    assert queue.counts.batches - before == 2  # bert's four x's, then roberta's one
    assert queue.counts.asked == 5


def test_a_batch_is_bounded_and_a_long_request_takes_several(queue):
    held = Held(queue)
    future = queue.ask(askable("one"), [*XS, "Quito", "Vienna", "Berlin", "Peru"])
    held.release()
    assert len(future.result(600)) == 8
    assert queue.counts.batches == 2


def test_a_full_queue_refuses_and_says_when_to_come_back(queue):
    held = Held(queue)
    waiting = queue.ask(askable("one"), [*XS, "Quito", "Vienna", "Berlin"])
    with pytest.raises(Overloaded, match="7 questions are waiting, of 8 at most; try again in") as refused:
        queue.ask(askable("one"), ["Italy", "Peru"])
    assert 1 <= refused.value.seconds <= 60
    fits = queue.ask(askable("one"), ["Italy"])
    held.release()
    assert len(waiting.result(600)) == 7
    assert len(fits.result(600)) == 1
    assert queue.counts.refused == 1


def test_a_client_that_goes_away_frees_its_places(queue):
    held = Held(queue)
    gone = queue.ask(askable("one"), [*XS, "Quito", "Vienna", "Berlin", "Peru"])
    assert queue.waiting == 8
    assert gone.cancel()
    assert queue.waiting == 0
    later = queue.ask(askable("one"), XS)
    held.release()
    assert len(later.result(600)) == 4
    with pytest.raises(CancelledError):
        gone.result(0)
    assert queue.counts.asked == 4
    assert queue.counts.cancelled == 1


def test_an_x_is_asked_once_and_then_known(queue):
    first = queue.ask(askable("one"), ["Paris", "Oslo", "Paris"]).result(600)
    assert first[0] == first[2]
    assert queue.counts.asked == 2
    held = Held(queue)
    again = queue.ask(askable("one"), ["Oslo", "Paris"])
    assert again.done()  # although the thread is busy
    assert again.result(0) == [first[1], first[0]]
    assert queue.counts.from_cache == 2
    assert not queue.ask(askable("one"), ["Paris"], 3).done()
    assert not queue.ask(askable("another"), ["Paris"]).done()
    held.release()


def test_a_mixture_that_cannot_be_built_or_read_harms_no_other(queue):
    def damaged(_lm: object) -> Mixture:
        raise UsageError("its file is damaged")

    def not_a_number(lm: Any) -> Mixture:
        mixture = Mixture(lm, TEMPLATES[:1])
        mixture.vectors.data.fill_(float("nan"))
        return mixture

    held = Held(queue)
    good = queue.ask(askable("good"), ["Paris"])
    bad = queue.ask(askable("bad", build=damaged), ["Paris"])
    nan = queue.ask(askable("nan", build=not_a_number), ["Paris"])
    empty = queue.ask(askable("good"), [""])
    held.release()
    assert good.result(600)[0]
    with pytest.raises(UsageError, match="its file is damaged"):
        bad.result(600)
    with pytest.raises(NotFinite):
        nan.result(600)
    with pytest.raises(UsageError, match="'' cannot be asked: x has no token"):
        empty.result(600)


def test_an_lm_that_cannot_be_loaded_is_told_and_the_next_is_served(queue):
    with pytest.raises(KeyError):
        queue.ask(askable("one", lm="no such LM"), ["Paris"]).result(600)
    assert queue.ask(askable("one"), ["Paris"]).result(600)


def test_closing_finishes_what_waits_and_takes_nothing_more():
    queue = AskQueue(LoadedLMs(2**30, load=lambda name, **_: frozen(name)), Settings())
    held = Held(queue)
    waiting = [queue.ask(askable("one"), [x]) for x in XS]
    closing = threading.Thread(target=queue.close)
    closing.start()
    while not queue._thread._shutdown:
        pass
    with pytest.raises(Refused, match="shutting down"):
        queue.ask(askable("one"), ["Peru"])
    held.release()
    closing.join(600)
    assert all(future.done() and future.result() for future in waiting)


def test_lms_make_room_for_each_other_by_least_recent_use():
    loaded: list[str] = []

    def load(name: str, **_: object):
        loaded.append(name)
        return frozen(name)

    probe = LoadedLMs(2**40, load=load)
    size = {name: probe.get(LMSource(name)).bytes for name in ("bert", "roberta", "bart")}
    loaded.clear()
    lms = LoadedLMs(size["bert"] + size["roberta"] + size["bart"] - 1, load=load)
    for name in ("bert", "roberta", "bert"):
        lms.get(LMSource(name))
    assert loaded == ["bert", "roberta"]
    lms.get(LMSource("bart"))
    assert lms.names == ["bert", "bart"]  # roberta was used least recently
    assert lms.bytes == size["bert"] + size["bart"]
    small = LoadedLMs(size["bert"] - 1, load=load)
    with pytest.raises(LMUnavailable, match="askwell serve --memory GIB"):
        small.get(LMSource("bert"))
