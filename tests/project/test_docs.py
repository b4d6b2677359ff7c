"""The pages under docs/start are run: their Python as one program, their commands as they are written."""

import re
import shlex
from pathlib import Path

import matplotlib
import pytest
from builders.commands import exit_code

DOCS = Path(__file__).parents[2] / "docs"
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.M | re.S)
LINK = re.compile(r"\]\(([^)#\s]+\.md)(?:#[^)]*)?\)")


@pytest.mark.parametrize("page", sorted(path.name for path in (DOCS / "start").glob("*.md")))
def test_a_page_of_the_start_does_what_it_says(page, tmp_path, monkeypatch, capsys):
    matplotlib.use("agg")
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    run = 0
    for kind, text in BLOCK.findall((DOCS / "start" / page).read_text(encoding="utf-8")):
        if kind == "python":
            exec(compile(text, page, "exec"), names)
            run += 1
        for line in text.splitlines() if kind == "console" else ():
            if line.startswith("$ askwell "):
                assert exit_code(*shlex.split(line)[2:]) == 0, capsys.readouterr().err
                run += 1
    assert run > 0


def test_links_between_pages_lead_somewhere():
    for page in DOCS.rglob("*.md"):
        for link in LINK.findall(page.read_text(encoding="utf-8")):
            if "://" not in link:
                assert (page.parent / link).exists(), f"{page.relative_to(DOCS)}: {link}"
