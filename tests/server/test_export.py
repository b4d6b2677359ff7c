"""`askwell export`: a run as one file."""

import re
from html.parser import HTMLParser

from builders.commands import exit_code

from askwell.runs.folder import read_run


class _Text(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.text: list[str] = []

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def test_a_run_becomes_one_file_that_needs_nothing_else(made_runs, tmp_path, capsys):
    out = tmp_path / "soft.html"
    assert exit_code("export", made_runs / "soft", "--out", out) == 0
    page = out.read_text(encoding="utf-8")
    assert not re.search(r"""(?:src|href)=["'](?!#|data:)""", page)
    assert "<script" not in page
    assert str(made_runs) not in page
    parser = _Text()
    parser.feed(page)
    text = " ".join(" ".join(parser.text).split())
    run = read_run(made_runs / "soft")
    right = sum(outcome.rank <= 1 for outcome in run.test)
    assert f"{100 * right / len(run.test):.1f} % of {len(run.test)} test facts are answered correctly" in text
    assert "Can I believe this?" in text
    assert run.record.id in text
    for prompt in run.record.prompts:
        assert f"{prompt.weight:.3f}" in text


def test_several_runs_are_refused(made_runs, tmp_path, capsys):
    assert exit_code("export", made_runs, "--out", tmp_path / "x.html") == 2
    assert "choose one with --where" in capsys.readouterr().err
    assert exit_code("export", tmp_path, "--out", tmp_path / "x.html") == 2
