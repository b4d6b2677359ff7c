"""Messages use their reader's words: options on the command line, arguments in Python."""

import pickle
import re

import pytest

import askwell as library
from askwell.answers.reply import TOO_MANY_TOKENS, LeftOutFact
from askwell.cli.terminal import note_left_out_facts
from askwell.data.facts import Fact
from askwell.errors import BadFile, BadOption, LMUnavailable
from askwell.prompts.prompt_set import TOO_LONG


@pytest.mark.parametrize(
    ("error", "called", "typed"),
    [
        (BadOption("`ratio` 70: three", ratio="--split-ratio"), "`ratio` 70: three", "--split-ratio 70: three"),
        (
            BadOption("name it with `relation`, leave `y` out", relation="--facts", y="--y"),
            "name it with `relation`, leave `y` out",
            "name it with --facts, leave --y out",
        ),
        (LMUnavailable("`lm` ./bert: no such folder"), "./bert: no such folder", "--lm ./bert: no such folder"),
        (
            LMUnavailable("`askwell lm list` shows LMs; `lm` smollm2 needs no hub"),
            "`askwell lm list` shows LMs; smollm2 needs no hub",
            "`askwell lm list` shows LMs; --lm smollm2 needs no hub",
        ),
        (
            BadFile("a.csv", "`x` town: no such column", 3, x="--x"),
            "a.csv, line 3: `x` town: no such column",
            "a.csv, line 3: --x town: no such column",
        ),
    ],
)
def test_arguments_are_options_on_the_command_line(error, called, typed):
    for each in (error, pickle.loads(pickle.dumps(error))):
        assert str(each) == called
        assert each.for_command_line() == typed


def test_a_hint_on_columns_can_be_pasted_in_both_places(askwell, tmp_path):
    (tmp_path / "a.csv").write_text("the country,capital\nPeru,Lima\n")
    with pytest.raises(library.UsageError) as python:
        library.load_relation(tmp_path / "a.csv")
    _, call, _ = str(python.value).rsplit("`", 2)
    assert call == "x='the country', y='capital'"
    assert "--x 'the country' --y capital, or the other way round" in askwell("audit", tmp_path / "a.csv").err
    with pytest.raises(library.UsageError, match=re.escape(f"`{call}`")):
        library.load_relation([{"the country": "Peru", "capital": "Lima"}])


def test_the_same_mistake_in_both_places(askwell, tmp_path):
    (tmp_path / "a.csv").write_text("country,capital\nPeru,Lima\n")
    with pytest.raises(library.UsageError, match="`x` town: there is no such column"):
        library.load_relation(tmp_path / "a.csv", x="town", y="capital")
    done = askwell("audit", tmp_path / "a.csv", "--x", "town", "--y", "capital")
    assert done.code == 2
    assert "--x town: there is no such column" in done.err
    with pytest.raises(library.UsageError, match="`ratio` 7: write three numbers"):
        library.load_relation(tmp_path / "a.csv", x="country", y="capital", ratio="7")


def test_an_unknown_lm_says_where_others_are(askwell, tmp_path):
    for name in (f"{tmp_path}/nowhere", f"{tmp_path}/nowhere.gguf"):
        with pytest.raises(library.UsageError, match=r"nowhere.*`askwell lm list`.*testbed:bert.*smollm2") as caught:
            library.load_lm(name)
        assert "--lm" not in str(caught.value)
        done = askwell("lm", "info", name)
        assert done.code == 2
        assert "--lm smollm2" in done.err
    assert "`askwell lm list`" in askwell("lm", "info", "testbed:brt").err
    assert "`askwell lm list`" in askwell("lm", "pull", "gpt5").err


def test_a_mistake_in_a_command_names_its_own_help(askwell):
    assert "Try 'askwell lm info --help'." in askwell("lm", "info").err
    assert "Try 'askwell --help'." in askwell("--nothing").err


def test_facts_with_too_long_a_y_are_named_with_what_to_do(capsys):
    note_left_out_facts(
        "test",
        [
            LeftOutFact(Fact("Kenya" * 9, "1963"), TOO_LONG),
            LeftOutFact(Fact("Kenya", "12 December 1963"), TOO_MANY_TOKENS),
        ],
    )
    long_x, long_y = (" ".join(line.split()) for line in capsys.readouterr().err.split("left out of ")[1:])
    assert "--longest-answer" not in long_x
    assert long_y.endswith("(Kenya → 12 December 1963); `askwell train --longest-answer N` allows for more")
