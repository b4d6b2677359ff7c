"""`askwell demo` from end to end."""

import os
import re
import shlex
import signal
import subprocess
import sys
import time

import pytest


def test_an_out_folder_that_cannot_be_written_is_refused_in_one_line(askwell, tmp_path):
    file = tmp_path / "file"
    file.write_text("")
    for out in (file, file / "below"):
        ran = askwell("demo", "--out", out)
        assert ran.code == 2
        assert ran.err.count("\n") == 1
        assert f"--out {out}" in ran.err
        assert ran.out == ""


def test_mistakes_are_told_before_any_work(askwell, tmp_path):
    for arguments, told in (
        (["--lm", "gpt2"], "--lm gpt2"),
        (["--lm", "testbed2:brt"], "did you mean bert"),
        (["--relations", "trad"], "did you mean trade"),
        (["--quick", "--relations", "trade"], "--quick"),
    ):
        ran = askwell("demo", "--out", tmp_path / "out", *arguments)
        assert ran.code == 2
        assert told in ran.err
        assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_a_demo_from_end_to_end(askwell, finished_demo):
    out = finished_demo
    report = (out / "report.html").read_text(encoding="utf-8")
    told = askwell("demo", "--out", out, "--relations", "mark", "--json")
    assert told.code == 0, told.err
    document = told.json
    assert document["report"] == str(out / "report.html")
    assert len(document["runs"]) == 7
    assert document["relations"] == ["mark"]
    text = re.sub(r"<[^>]+>", "", report).replace("&#39;", "'").replace("&gt;", ">").replace("&lt;", "<")
    text = text.replace("\u00a0", " ")
    assert document["findings"]
    for sentence in document["findings"]:
        assert sentence in text
    told_apart = [cell["parts"]["told"] for cell in document["believe"]]
    assert all({"told", "withheld"} == set(parts) for parts in told_apart)
    for parts in told_apart:
        for scores in parts.values():
            assert round(scores["P@1"] * scores["facts"] / 100, 6) == round(scores["P@1"] * scores["facts"] / 100)
            assert f"{scores['P@1']:.1f}" in text
    assert not re.search(r"(src|href)=[\"'](?!#|data:)", report)
    assert str(out) in report  # in the commands to try next

    again = askwell("demo", "--out", out, "--relations", "mark")
    assert again.code == 0
    assert "7 runs on testbed2:bert: testbed2:mark; all done" in again.err
    assert (out / "report.html").read_text(encoding="utf-8") == report
    for heading in ("What was found", "The report", "What to try next"):
        assert heading in again.out
    steps = [shlex.split(step) for step in re.findall(r"^ \S*askwell ((?:ask|show) .+)$", again.out, re.MULTILINE)]
    assert [step[0] for step in steps] == ["ask", "show"]
    for step in steps:
        assert askwell(*step, "--json").code == 0


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="signals are POSIX's")
def test_a_demo_that_is_told_to_end_says_that_it_can_go_on(tmp_path):
    out = tmp_path / "demo"
    of_demo = ("demo", "--out", str(out), "--relations", "mark")
    process = subprocess.Popen(
        [sys.executable, "-c", "import sys; from askwell.cli.main import main; main(sys.argv[1:])", *of_demo],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    while process.poll() is None and not list(out.glob("runs/*/run.json")):
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)  # as Ctrl-C, which a job in the background never hears of
    printed, told = process.communicate(timeout=60)
    assert process.returncode == 130, told
    assert printed == ""
    assert "the same command continues from there" in told
    assert not (out / "report.html").exists()
    assert 0 < len(list((out / "runs").iterdir())) < 7
