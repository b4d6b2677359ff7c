"""Help, its examples, and completion in the shell."""

import os
import shlex
import shutil
import subprocess

import pytest
from builders.worlds import PAIRS
from rich.console import Console

from askwell.cli.commands import COMMANDS, GROUPS
from askwell.cli.main import app
from askwell.mixture.learned_from import NOTHING_FOUND

ALL = {(command.name,): command for command in COMMANDS} | {
    (group, command.name): command for group, (_help, commands) in GROUPS.items() for command in commands
}
EXAMPLES = [(words, example) for words, command in ALL.items() for example in command.examples]


def test_every_command_has_an_example():
    names = {name for name in app if not name.startswith("-")}
    assert {words[0] for words in ALL} == names
    assert all(command.examples for command in ALL.values())


@pytest.mark.parametrize(("words", "example"), EXAMPLES, ids=[example for _words, example in EXAMPLES])
def test_an_example_is_one_of_its_command_and_can_be_parsed(words, example):
    program, *given = shlex.split(example)
    assert program == "askwell"
    assert tuple(given[: len(words)]) == words
    app.parse_args(given, exit_on_error=False, print_error=False)  # raises at an option that is not there


@pytest.mark.parametrize("words", ALL, ids=" ".join)
def test_help_ends_with_the_examples(words, askwell, monkeypatch):
    monkeypatch.setattr(app, "_console", Console(width=200))  # the app keeps the width of the first one in a process
    done = askwell(*words, "--help")
    assert done.code == 0
    ends = [line.strip() for line in done.out.splitlines()][-len(ALL[words].examples) :]
    assert ends == list(ALL[words].examples)


def test_a_default_that_goes_without_saying_is_not_shown(askwell, monkeypatch):
    monkeypatch.setattr(app, "_console", Console(width=400))
    text = askwell("train", "--help-all").out
    assert "default: None" not in text
    assert "default: False" not in text
    assert r"written as \n. [default: \n]" in text


@pytest.mark.parametrize("command", ["train", "baseline", "ask"])
def test_help_fits_two_screens_and_leaves_the_rest_to_help_all(command, askwell, monkeypatch):
    monkeypatch.setattr(app, "_console", Console(width=80))
    short, long = (askwell(command, flag).out for flag in ("--help", "--help-all"))
    assert len(short.splitlines()) <= 70
    assert f"askwell {command} --help-all" in short
    assert "--lead-in" not in short
    assert "--lead-in" in long
    common = next(one.common for one in COMMANDS if one.name == command)
    assert [name for name in common if f"--{name}" not in short] == []


def test_commands_are_listed_in_the_order_of_their_use(askwell, monkeypatch):
    monkeypatch.setattr(app, "_console", Console(width=120))
    text = askwell("--help").out
    headings = [
        text.index(heading) for heading in ("Learn and ask", "train", "Look at runs", "Facts and LMs", "Options")
    ]
    assert headings == sorted(headings)
    assert text.index("Options") < text.index("--version")
    assert "─ Commands" not in text


def test_words_that_are_left_over_and_templates_without_blanks(askwell, lms, facts, tmp_path):
    done = askwell("testbed", "list", "testbed:capital")
    assert done.code == 2
    assert "'testbed:capital'" in done.err
    assert "after its option" in done.err
    start = ("train", "--lm", lms["bert"], "--facts", facts, "--out", tmp_path / "m")
    assert "[X] and [Y]" in askwell(*start, "--prompts", "X is Y .").err
    assert "--prompts" in askwell(*start).err
    both = askwell(*start, "--prompts", "[X] is [Y] .", "[X] was [Y] .", "--pairs", "2", "--no-controls", "--json")
    assert [prompt["template"] for prompt in both.json["prompts"]] == ["[X] is [Y] .", "[X] was [Y] ."]


def test_a_score_on_few_facts_comes_with_its_interval(askwell, lms, tmp_path):
    (tmp_path / "f.csv").write_text("x,y\n" + "".join(f"{x},{y}\n" for x, y in PAIRS))
    facts = (tmp_path / "f.csv", "--split-ratio", "50-10-40")
    start = ("train", "--lm", lms["bert"], "--prompts", "[X] is [Y] .", "--pairs", "2", "--facts", *facts)
    done = askwell(*start, "--no-controls", "--out", tmp_path / "m")
    record = askwell(*start, "--no-controls", "--out", tmp_path / "n", "--json").json["test"]
    n, p, z = record["facts"], record["micro"]["P@1"] / 100, 1.959964
    middle, half = p + z * z / (2 * n), z * (p * (1 - p) / n + z * z / (4 * n * n)) ** 0.5
    low, high = (100 * max(0.0, (middle + side * half) / (1 + z * z / n)) for side in (-1, 1))
    assert f"between {low:.1f} and {high:.1f} (95 % interval)" in done.err
    assert "--folds 5 scores every fact of the file once" in done.err
    assert "WARNING" in askwell("evaluate", tmp_path / "m", "--no-controls").err
    (tmp_path / "three.csv").write_text("x,y\n" + "".join(f"{x},{y}\n" for x, y in PAIRS[:3]))
    of_three = [*start[:-3], tmp_path / "three.csv", "--no-controls", "--out"]
    assert "; --folds 3 scores every fact" in askwell(*of_three, tmp_path / "three").err
    assert "; --folds 3 scores every fact" in askwell(*of_three, tmp_path / "seeds", "--seeds", "2").err
    assert askwell(*of_three, tmp_path / "folds", "--folds", "3").code == 0


def test_a_run_in_which_tuning_only_did_harm_says_so(askwell, lms, facts, tmp_path):
    start = ("train", "--lm", lms["bert"], "--prompts", "[X] is [Y] .", "--facts", facts, "--no-controls")
    done = askwell(*start, "--epochs", "2", "--learning-rate", "1000", "--out", tmp_path / "m")
    assert "the state after 0 of" in done.out
    assert NOTHING_FOUND in done.out
    assert NOTHING_FOUND in askwell("show", tmp_path / "m").out
    done = askwell(*start, "--epochs", "2", "--out", tmp_path / "n")
    assert (NOTHING_FOUND in done.out) == ("the state after 0 of" in done.out)


@pytest.mark.parametrize(("typed", "wanted"), [("tr", "train"), ("lm pu", "pull"), ("train --prom", "--prompts")])
def test_bash_completes_commands_and_options(typed, wanted, askwell, tmp_path, monkeypatch):
    if shutil.which("bash") is None:
        pytest.skip("bash is not here")
    monkeypatch.setenv("HOME", str(tmp_path))
    script = tmp_path / "askwell.bash"
    assert askwell("--install-completion", "--shell", "bash", "--output", script).code == 0
    words = ["askwell", *typed.split()]
    asked = (
        f"source {script}; COMP_WORDS=({shlex.join(words)}); COMP_CWORD={len(words) - 1}; _askwell; "
        'echo "${COMPREPLY[@]}"'
    )
    done = subprocess.run(["bash", "-c", asked], capture_output=True, text=True, check=True, env=dict(os.environ))
    assert wanted in done.stdout.split()
