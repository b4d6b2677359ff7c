"""The demo's sweep, and what to try after it."""

import shlex

import pytest
from builders.stores import keep, new_store

from askwell.errors import UsageError
from askwell.views.demo_report import QUICK_RELATIONS, RELATIONS, demo_sweep, next_steps


def test_the_sweep_of_a_demo():
    whole, quick = demo_sweep("testbed:bert"), demo_sweep("testbed:bert", quick=True, seed=3)
    assert [*whole.facts] == [f"testbed:{name}" for name in RELATIONS]
    assert [*quick.facts] == [f"testbed:{name}" for name in QUICK_RELATIONS]
    assert [*quick.seeds] == [3]
    assert quick.facts_seed == 3
    assert set(quick.settings) < set(whole.settings)
    assert quick.test_facts is not None
    assert whole.test_facts is not None
    assert quick.test_facts < whole.test_facts
    named = demo_sweep("testbed:bert", ["testbed:symbol", "capital"])
    assert [*named.facts] == ["testbed:symbol", "testbed:capital"]


@pytest.mark.parametrize(
    ("choices", "told"),
    [
        ({"lm": "gpt2"}, "--lm gpt2"),
        ({"lm": "testbed:bert", "names": ["capital", "testbed:capital"]}, "capital twice"),
        ({"lm": "testbed:bert", "names": ["capitol"]}, "capital"),
        ({"lm": "testbed:bert", "names": ["capital"], "quick": True}, "--quick"),
    ],
)
def test_choices_that_are_refused(choices, told):
    with pytest.raises(UsageError) as refused:
        demo_sweep(**choices)
    assert told in refused.value.for_command_line()


def test_commands_to_try_next(tmp_path):
    store = new_store(tmp_path)
    keep(store, [1], "testbed:symbol", setting="mixture")
    plain = next_steps("testbed:bert", tmp_path / "my demo", store.runs())
    commands = [shlex.split(command) for command, _ in plain]
    assert commands[0][:3] == ["askwell", "ask", str(tmp_path / "my demo")]
    assert ["askwell", "demo", "--lm", "testbed:bert"] in commands
    assert not any("deep" in command for command, _ in plain)
    keep(store, [1], "testbed:symbol", setting="deep", mixture={"deep": True})
    assert any("and deep" in command for command, _ in next_steps("testbed:bert", tmp_path, store.runs()))
