"""The demo's sweep, and what to try after it."""

import re
import shlex
from pathlib import Path

import pytest
from builders.stores import keep, new_store

from askwell.errors import UsageError
from askwell.views.demo_report import ELSEWHERE, QUICK_RELATIONS, RELATIONS, demo_sweep, next_steps
from askwell.views.document import Document
from askwell.views.to_text import plain_text


def test_the_sweep_of_a_demo():
    whole, quick = demo_sweep("testbed2:bert"), demo_sweep("testbed2:bert", quick=True, seed=3)
    assert [*whole.facts] == [f"testbed2:{name}" for name in RELATIONS]
    assert [*quick.facts] == [f"testbed2:{name}" for name in QUICK_RELATIONS]
    assert [*quick.seeds] == [3]
    assert quick.facts_seed == 3
    assert set(quick.settings) < set(whole.settings)
    named = demo_sweep("testbed2:bert", ["testbed2:mark", "trade"])
    assert [*named.facts] == ["testbed2:mark", "testbed2:trade"]


@pytest.mark.parametrize(
    ("choices", "told"),
    [
        ({"lm": "gpt2"}, "--lm gpt2"),
        ({"lm": "testbed2:bert", "names": ["trade", "testbed2:trade"]}, "trade twice"),
        ({"lm": "testbed2:bert", "names": ["trad"]}, "trade"),
        ({"lm": "testbed2:bert", "names": ["trade"], "quick": True}, "--quick"),
    ],
)
def test_choices_that_are_refused(choices, told):
    with pytest.raises(UsageError) as refused:
        demo_sweep(**choices)
    assert told in refused.value.for_command_line()


def test_what_is_said_of_the_first_testbed_is_what_was_measured_there():
    page = Path(__file__).parents[2].joinpath("docs/findings/testbed.md").read_text(encoding="utf-8")
    table = page.split("<!-- begin testbed:bert -->")[1].split("<!-- end")[0]
    told = dict(re.findall(r"^\| ([^|]+?) \| ([\d.]+) \|", table, re.MULTILINE))
    asked = ("mined, hard (in the text)", "manual + paraphrased, hard", "manual + paraphrased, soft", "manual, hard",
             "manual, soft")  # fmt: skip
    said = plain_text(Document("", sections=(ELSEWHERE,)))
    assert re.findall(r"\d+\.\d", said) == [told[prompts] for prompts in asked]


def test_commands_to_try_next(tmp_path):
    store = new_store(tmp_path)
    keep(store, [1], "testbed2:mark", setting="mixture")
    plain = next_steps("testbed2:bert", tmp_path / "my demo", store.runs())
    commands = [shlex.split(command) for command, _ in plain]
    assert commands[0][:3] == ["askwell", "ask", str(tmp_path / "my demo")]
    assert ["askwell", "demo", "--lm", "testbed2:bert"] in commands
