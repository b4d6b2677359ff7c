"""Answers to many x's are printed while the others are still being asked."""

import io
import json
import sys
from functools import partial

import pytest
from builders.testbed import load_testbed_lm

from askwell.answers import one_token
from askwell.cli.replies import print_answers
from askwell.evaluation.selective import ask_all
from askwell.mixture.mixture import Mixture
from askwell.prompts.prompt_set import PromptSet

XS = ["France", "Italy", "Peru", "Japan", "Kenya"]


@pytest.mark.parametrize("form", ["json", "lines"])
def test_the_first_answer_is_flushed_before_the_next_x_is_asked(form, monkeypatch):
    """What happened is recorded in order, so nothing depends on time."""
    happened: list[tuple[str, str]] = []
    words_of = PromptSet.words_of

    def recorded(prompts, xs):
        happened.extend(("asked", x) for x in xs)
        return words_of(prompts, xs)

    class Pipe(io.StringIO):
        seen = 0

        def flush(self):
            new = self.getvalue()[self.seen :]
            self.seen += len(new)
            happened.extend(("printed", x) for x in XS if x in new)

    monkeypatch.setattr(PromptSet, "words_of", recorded)
    monkeypatch.setattr(one_token, "_NUMBERS_OF_ANSWERS", 1)  # one x at a time, as with a large LM
    out = Pipe()
    monkeypatch.setattr(sys, "stdout", out)
    mixture = Mixture(load_testbed_lm("bert"), "the code of [X] is [Y] .")
    print_answers(partial(ask_all, mixture, top=1), XS, json=form == "json", in_lines=form == "lines")
    assert happened[: 2 * len(XS)] == [(what, x) for x in XS for what in ("asked", "printed")]
    printed = out.getvalue()
    xs = (
        [one["x"] for one in json.loads(printed)] if form == "json" else [x.split("\t")[0] for x in printed.split("\n")]
    )
    assert xs[: len(XS)] == XS
