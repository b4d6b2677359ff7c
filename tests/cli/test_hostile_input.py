"""Numbers, files and names that nobody would type: one sentence, the right exit code, nothing left behind."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from builders.commands import exit_code

from askwell.cli import main as command_line
from askwell.files import read_text

FACTS = "testbed:capital"


def told(capsys: pytest.CaptureFixture[str]) -> str:
    """The message; one of at most 2,000 characters and without a traceback."""
    message = capsys.readouterr().err
    assert "Traceback" not in message
    assert len(message) <= 2001
    return message


@pytest.mark.parametrize(
    "options",
    [
        ("--minutes", "inf"),
        ("--minutes", "nan"),
        ("--threads", "9" * 400),
        ("--threads", "0"),
        ("--seeds", "9" * 400),
        ("--seeds", f"0,{'9' * 400}"),
        ("--seeds", "1000000000"),
        ("--pairs", "9" * 400),
        ("--pairs", "9" * 5000),
        ("--seed", "9" * 400),
        ("--learning-rate", "inf"),
        ("--noise", "inf"),
    ],
    ids=lambda options: " ".join(options)[:24],
)
def test_numbers_that_are_too_large_or_not_finite(options, tmp_path, capsys):
    out = tmp_path / "out"
    arguments = ["--lm", "testbed:bert", "--facts", FACTS, "--prompts", "testbed:single", "--out", str(out), *options]
    assert exit_code("train", *arguments) == 2
    assert options[0].lstrip("-").split("-")[0] in told(capsys).lower().replace("_", "-")
    assert not out.exists()


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("deep.jsonl", "[" * 100_000, "line 1"),
        ("deep-objects.jsonl", '{"x":' * 100_000, "line 1"),
        ("half.jsonl", '{"x": "\\ud800", "y": "b"}', "half a character"),
        ("digits.jsonl", '{"x": "a", "y": ' + "9" * 5000 + "}", None),
        ("field.csv", 'x,y\n"' + "a" * 140_000 + '",b\n', None),
        ("long.jsonl", '{"x": "a", "y": "' + "b" * 140_000 + '"}', "line 1: 'y' has 140,000 characters"),
        ("null.csv", "x,y\na\x00,b\n", None),
    ],
)
def test_facts_that_no_one_would_write(name, content, expected, tmp_path, capsys):
    path = tmp_path / name
    path.write_text(content, encoding="utf-8")
    assert exit_code("audit", str(path)) in (0, 2)
    message = told(capsys)
    assert expected is None or expected in message


@pytest.mark.parametrize("name", ["prompts.txt", "prompts.jsonl"])
def test_a_template_that_would_take_all_memory(name, tmp_path, capsys):
    text = f"[X] {'b' * 140_000} [Y] ."
    (tmp_path / name).write_text(f'{{"template": "{text}"}}' if name.endswith("jsonl") else text, encoding="utf-8")
    arguments = ["--lm", "testbed:bert", "--prompts", str(tmp_path / name)]
    assert exit_code("ask", *arguments, "Peru") == 2
    assert f"{name}, line 1" in told(capsys)


def test_an_x_that_would_take_all_memory(tmp_path, capsys):
    (tmp_path / "xs.txt").write_text("Peru\n" + "b" * 140_000, encoding="utf-8")
    prompts = ["--lm", "testbed:bert", "--prompts", "[X] is in [Y] ."]
    assert exit_code("ask", *prompts, "--file", str(tmp_path / "xs.txt")) == 2
    assert "xs.txt, line 2: this line has 140,000 characters" in told(capsys)


def test_thousands_of_digits(tmp_path, capsys):
    (tmp_path / "prompts.jsonl").write_text(f'{{"template": "[X] [Y]", "weight": {"9" * 5000}}}', encoding="utf-8")
    assert exit_code("ask", "--lm", "testbed:bert", "--prompts", str(tmp_path / "prompts.jsonl"), "Peru") == 2
    assert "line 1: broken JSON: Exceeds the limit" in told(capsys)


NOT_UTF8 = os.fsdecode(b"a\xff")
posix = pytest.mark.skipif(os.name != "posix", reason="names are bytes on POSIX alone")


@posix
@pytest.mark.parametrize(
    "options",
    [
        ("train", "--facts", FACTS, "--prompts", "[X] [Y]", "--out", NOT_UTF8),
        ("train", "--facts", f"{NOT_UTF8}.csv", "--prompts", "[X] [Y]", "--out", "out"),
        ("train", "--facts", FACTS, "--prompts", f"{NOT_UTF8}.txt", "--out", "out"),
        ("ask", "--prompts", "[X] [Y]", "--candidates", f"{NOT_UTF8}.txt", "Peru"),
        ("evaluate", "--facts", FACTS, "--prompts", "[X] [Y]", "--per-fact", f"{NOT_UTF8}.parquet"),
    ],
    ids=["out", "facts", "prompts", "candidates", "per-fact"],
)
def test_names_that_are_not_utf8(options, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path(f"{NOT_UTF8}.csv").write_text("x,y\n" + "".join(f"a{n},b{n}\n" for n in range(9)), encoding="utf-8")
    Path(f"{NOT_UTF8}.txt").write_text("[X] [Y]\n", encoding="utf-8")
    before = sorted(tmp_path.rglob("*"))
    assert exit_code(options[0], "--lm", "testbed:bert", *options[1:]) == 2
    assert "is not UTF-8" in told(capsys)
    assert sorted(tmp_path.rglob("*")) == before


@posix
def test_an_lm_whose_name_is_not_utf8(tmp_path, capsys):
    folder = tmp_path / NOT_UTF8
    folder.mkdir()
    (folder / "config.json").write_text("{}", encoding="utf-8")
    assert exit_code("ask", "--lm", str(folder), "--prompts", "[X] [Y]", "Peru") == 2
    assert "its name is not UTF-8" in told(capsys)


def test_half_a_character_in_a_prompt_file(tmp_path, capsys):
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text('{"template": "[X] is in [Y] \\ud800"}\n', encoding="utf-8")
    arguments = ["--lm", "testbed:bert", "--facts", FACTS, "--prompts", str(prompts), "--out", str(tmp_path / "out")]
    assert exit_code("train", *arguments) == 2
    assert "line 1" in told(capsys)


@pytest.mark.parametrize(
    "content",
    ["a = " + "[" * 5000, "a = " + "9" * 5000, "a = {" * 400, '"\\ud800" = 1'],
    ids=["brackets", "digits", "tables", "half"],
)
def test_sweeps_that_no_one_would_write(content, tmp_path, capsys):
    sweep = tmp_path / "sweep.toml"
    sweep.write_text(content, encoding="utf-8")
    assert exit_code("sweep", str(sweep), "--store", str(tmp_path / "store")) == 2
    assert str(sweep) in told(capsys).replace("\n", "")
    assert not (tmp_path / "store").exists()


NAMES = [f"n{number}" for number in range(1000)]


@pytest.mark.parametrize(
    ("grid", "runs"),
    [
        ({"seeds": list(range(200_000))}, "200,000 runs"),
        ({"seeds": [0] * 200_000}, "0 is given twice"),
        ({"seeds": list(range(1000)), "prompts": NAMES, "settings": NAMES}, "1,000,000,000 runs"),
        ({"seeds": list(range(10_000)), "facts": ["testbed"]}, "runs, and a sweep has at most 100,000"),
    ],
    ids=["seeds", "equal seeds", "a billion", "a set of relations"],
)
def test_sweeps_without_end(grid, runs, tmp_path, capsys):
    sweep = tmp_path / "sweep.toml"
    prompts = "".join(f'{name} = ["[X] is [Y]"]\n' for name in grid.get("prompts", ["one"]))
    settings = "".join(f"{name} = {{}}\n" for name in grid.get("settings", ["one"]))
    seeds = "".join(f"{seed},\n" for seed in grid["seeds"])
    sweep.write_text(
        f'lms = ["testbed:bert"]\nfacts = {grid.get("facts", [FACTS])}\nseeds = [{seeds}]\n'
        f"[prompts]\n{prompts}[settings]\n{settings}"
    )
    assert exit_code("sweep", str(sweep), "--store", str(tmp_path / "store")) == 2
    assert runs in told(capsys).replace("\n", " ")
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize("path", ["/dev/zero", "/dev/tty", "/", "\0", "a" * 300, "x/" * 3000])
def test_paths_that_are_no_files(path, capsys):
    if path.startswith("/") and not Path(path).exists():
        pytest.skip(f"there is no {path} here")
    assert exit_code("audit", path) == 2
    assert told(capsys)


def test_a_pipe_is_read_like_a_file():
    reading, writing = os.pipe()
    with os.fdopen(writing, "w") as file:
        file.write("x,y\n")
    try:
        assert read_text(Path(f"/dev/fd/{reading}")) == "x,y\n"
    finally:
        os.close(reading)


def test_what_was_not_foreseen_is_one_sentence_and_a_file(monkeypatch, capsys, tmp_path):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)

    def fail(*_arguments: object, **_options: object) -> None:
        raise ZeroDivisionError("a bug\nof two lines")

    monkeypatch.setattr(
        command_line, "app", type("App", (), {"__call__": fail, "parse_commands": command_line.app.parse_commands})()
    )
    assert exit_code("lm", "list") == 1
    message = told(capsys)
    (written,) = tmp_path.glob("askwell-*.txt")
    assert str(written) in message
    assert "ZeroDivisionError: a bug" in message
    assert "Traceback" in written.read_text(encoding="utf-8")
    with pytest.raises(ZeroDivisionError):
        command_line.main(["lm", "list", "--debug"])


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full here")
def test_a_full_disk_behind_stdout(monkeypatch, capsys):
    with open("/dev/full", "w") as full:  # noqa: PTH123
        monkeypatch.setattr("sys.stdout", full)
        assert exit_code("lm", "list", "--json") == 1
    assert "No space left on device" in told(capsys)


def test_memory_that_torch_does_not_get(monkeypatch, capsys):
    def fail(*_arguments: object, **_options: object) -> None:
        raise RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes.")

    monkeypatch.setattr(
        command_line, "app", type("App", (), {"__call__": fail, "parse_commands": command_line.app.parse_commands})()
    )
    assert exit_code("lm", "list") == 1
    assert told(capsys) == "askwell: there is not enough memory\n"


def test_without_a_home_the_cache_has_to_be_named(monkeypatch, capsys, tmp_path):
    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("ASKWELL_CACHE", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", no_home)
    assert exit_code("audit", str(tmp_path / "none")) == 2
    assert "ASKWELL_CACHE" in told(capsys)


@posix
@pytest.mark.parametrize(
    ("shell", "environment"),
    [("{} >&-", {}), ("{}", {"PYTHONIOENCODING": "ascii"}), ("{} 2>&-", {})],
    ids=["closed", "ascii", "no-stderr"],
)
def test_streams_that_are_closed_or_take_ascii_alone(shell, environment, tmp_path):
    (tmp_path / "\xe9.csv").write_text("x,y\n" + "".join(f"a{n},b{n}\n" for n in range(9)), encoding="utf-8")
    command = shell.format(f"{shlex.quote(sys.executable)} -m askwell audit '{tmp_path}/\xe9.csv'")
    done = subprocess.run(command, shell=True, capture_output=True, env=os.environ | environment, timeout=240)
    assert (done.returncode, done.stderr) == (0, b"")
