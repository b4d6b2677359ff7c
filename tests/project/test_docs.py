"""The pages under docs/start are run: their Python as one program, their commands as they are written. Links lead
somewhere, and the reference has every public name and every command."""

import importlib.util
import os
import re
import shlex
from pathlib import Path

import matplotlib
import pytest
from builders.commands import exit_code

import askwell
from askwell.lms.checkpoints import pulled_folder

DOCS = Path(__file__).parents[2] / "docs"
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.M | re.S)
LINK = re.compile(r"\]\(([^)#\s]*)(?:#([^)\s]+))?\)")


@pytest.mark.parametrize("page", sorted(path.name for path in (DOCS / "start").glob("*.md")))
def test_a_page_of_the_start_does_what_it_says(page, tmp_path, monkeypatch, capsys):
    if page == "smollm2.md":
        if not os.environ.get("ASKWELL_TEST_FULL"):
            pytest.skip("SmolLM2 takes minutes; set ASKWELL_TEST_FULL=1")
        monkeypatch.delenv("ASKWELL_CACHE")  # SmolLM2 is the user's own
    if page == "smollm2.md" and not (pulled_folder("smollm2") / "config.json").exists():
        pytest.skip("SmolLM2 is not here: askwell lm pull smollm2")
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


def _anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", BLOCK.sub("", page.read_text(encoding="utf-8")), re.M)
    return {re.sub(r"[\s]+", "-", re.sub(r"[^\w\s-]", "", heading.lower()).strip()) for heading in headings}


def test_links_lead_somewhere():
    root = DOCS.parent
    for page in [*DOCS.rglob("*.md"), *root.glob("*.md"), root / "studies" / "README.md"]:
        for link, anchor in LINK.findall(BLOCK.sub("", page.read_text(encoding="utf-8"))):
            if "://" in link:
                continue
            target = page.parent / link if link else page
            assert target.exists(), f"{page.relative_to(root)}: {link}"
            if anchor:
                assert anchor in _anchors(target), f"{page.relative_to(root)}: {link}#{anchor}"


def test_nothing_lies_outside_the_parts_of_the_documentation():
    assert [path.name for path in DOCS.glob("*.md")] == ["index.md"]


def test_every_page_is_in_the_table_of_contents():
    contents = (DOCS.parent / "zensical.toml").read_text(encoding="utf-8")
    for page in DOCS.rglob("*.md"):
        assert f'"{page.relative_to(DOCS).as_posix()}"' in contents


def test_the_reference_has_every_name_and_every_command():
    file = DOCS.parent / "scripts" / "build_reference.py"
    spec = importlib.util.spec_from_file_location("build_reference", file)
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    api, commands = script.api(), script.commands()
    for name in set(askwell.__all__) - {"__version__"}:
        assert f"### {name}\n" in api
    for words in ("train", "evaluate", "ask", "sweep", "serve", "lm pull", "data import", "testbed list"):
        assert f"# askwell {words}\n" in commands
    # a default and a sentence of a spec, an option that several commands share, an inherited method
    assert "| `longest_answer` | `10` | If answers can have any length, leave out facts" in api
    assert "`.to_pandas()`" in api
    assert "| `--split-ratio` | Sizes of train, dev and test when a single file" in commands
