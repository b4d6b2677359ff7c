"""Answers to many x's are printed while the others are still being asked."""

import io
import json
import sys

import pytest
from builders.testbed import load_testbed_lm

from askwell.cli.answers import print_answers
from askwell.mixture import ask
from askwell.mixture.mixture import Mixture

XS = ["France", "Italy", "Peru", "Japan", "Kenya"]


@pytest.mark.parametrize("form", ["json", "lines"])
def test_the_first_answer_is_flushed_before_the_next_x_is_asked(form, monkeypatch):
    """What happened is recorded in order, so nothing depends on time."""
    happened: list[tuple[str, str]] = []
    ask_some = ask._ask_some

    def recorded(mixture, xs, *rest):
        happened.extend(("asked", x) for x in xs)
        yield from ask_some(mixture, xs, *rest)

    class Pipe(io.StringIO):
        seen = 0

        def flush(self):
            new = self.getvalue()[self.seen :]
            self.seen += len(new)
            happened.extend(("printed", x) for x in XS if x in new)

    monkeypatch.setattr(ask, "_ask_some", recorded)
    monkeypatch.setattr(ask, "_NUMBERS_AT_ONCE", 1)  # one x at a time, as with a large LM
    out = Pipe()
    monkeypatch.setattr(sys, "stdout", out)
    mixture = Mixture(load_testbed_lm("bert"), "the code of [X] is [Y] .")
    print_answers(mixture, XS, form=form, several=True, dev=None, limits=None, top=1)
    assert happened[: 2 * len(XS)] == [(what, x) for x in XS for what in ("asked", "printed")]
    printed = out.getvalue()
    xs = (
        [one["x"] for one in json.loads(printed)] if form == "json" else [x.split("\t")[0] for x in printed.split("\n")]
    )
    assert xs[: len(XS)] == XS
