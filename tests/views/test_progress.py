"""Progress bars only where somebody sees them, and what is logged before training."""

import io
import logging

from builders.testbed import load_testbed_lm
from rich.console import Console

import askwell
from askwell.views import to_text


def test_a_bar_shows_in_a_terminal_once_it_takes_long(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(to_text.time, "monotonic", lambda: now[0])
    for terminal, wanted, shows in ((True, None, True), (True, False, False), (False, None, False)):
        written = io.StringIO()
        console = Console(file=written, force_terminal=terminal, width=80)
        now[0] = 0.0
        with to_text.Bar("facts", wanted, console) as advance:
            advance(1, 40)
            assert written.getvalue() == ""
            now[0] = 2.5
            advance(20, 40)
        assert ("facts" in written.getvalue()) == shows
        assert ("20/40" in written.getvalue()) == shows


def test_nothing_is_drawn_in_a_pipe(capsys):
    mixture = askwell.Mixture(load_testbed_lm("bert"), "[X] lies in [Y] .")
    mixture.ask(["France", "Italy"], progress=True)
    relation = askwell.load_relation("testbed:continent")
    askwell.evaluate(mixture, relation, split="dev", progress=False)
    told = []
    askwell.evaluate(mixture, relation, split="dev", progress=lambda done, total: told.append((done, total)))
    assert told[-1][0] == told[-1][1]
    assert capsys.readouterr() == ("", "")


def test_facts_that_are_left_out_are_logged_once_before_training(caplog):
    mixture = askwell.Mixture(load_testbed_lm("bert"), "[X] lies in [Y] .", askwell.MixtureSpec(answers="one-token"))
    relation = askwell.load_relation("testbed:capital")
    with caplog.at_level(logging.WARNING, "askwell"):
        result = askwell.train(mixture, relation, askwell.TrainingSpec(pairs=8), progress=False)
    left_out = len(relation.train) - result.train_facts
    assert left_out > 0
    assert [record.message for record in caplog.records][:1] == [
        f"testbed:capital: {left_out} of {len(relation.train)} train facts left out: y is not one token of the LM"
    ]
    assert len(caplog.records) == 2  # of train and of dev
