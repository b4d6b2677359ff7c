"""`askwell export`: a run as one file."""

import re
import shlex
from html.parser import HTMLParser
from itertools import pairwise

from builders.commands import exit_code

from askwell.runs.folder import read_run
from askwell.views.document import Code, Table
from askwell.views.one_run import run_document


class _Text(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.text: list[str] = []

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def test_a_run_becomes_one_file_that_needs_nothing_else(made_runs, tmp_path, capsys):
    out = tmp_path / "soft.html"
    assert exit_code("export", made_runs / "soft", "--drawn", "--out", out) == 0
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
    assert {outcome.x for outcome in run.test} <= {piece.strip() for piece in parser.text}


def test_several_runs_are_refused(made_runs, tmp_path, capsys):
    assert exit_code("export", made_runs, "--out", tmp_path / "x.html") == 2
    assert "choose one with --where" in capsys.readouterr().err
    assert exit_code("export", tmp_path, "--out", tmp_path / "x.html") == 2


def test_a_run_is_told_with_its_scores_settings_and_command(made_runs):
    run = read_run(made_runs / "deep")
    document = run_document("deep", run)
    headings = [section.heading for section in document.sections]
    assert headings == [
        "Scores", "Answers", "Learning curve", "Can I believe this?", "The facts", "Prompts", "How it was made",
    ]  # fmt: skip
    scores = document.sections[0].blocks[0]
    assert isinstance(scores, Table)
    rows = {row.heading: row.cells[0].text for row in scores.rows}
    # Of these few pairs none was better on dev, whose log-loss is lowest at first.
    losses = [line.dev["log_loss"] or 0.0 for line in run.record.history]
    assert losses.index(min(losses)) == 0
    assert rows["kept as written"] == f"{100 * sum(outcome.rank <= 1 for outcome in run.test) / len(run.test):.1f}"
    assert run.record.untuned is not None
    assert rows["untuned"] == f"{run.record.untuned.micro['P@1']:.1f}"
    assert {"the most frequent y's of train", "the prompts' prior"} <= set(rows)
    assert not {*run.record.controls} & {*rows}
    command, settings, _ = document.sections[-1].blocks
    assert isinstance(command, Code)
    words = shlex.split(command.lines[0][0])
    templates = [word for before, word in pairwise(words) if before == "--prompts"]
    assert templates == [prompt.template for prompt in run.record.spec.templates]
    assert {"--deep", "--seed=1", "--pairs=120"} <= set(words)
    assert isinstance(settings, Table)
    chosen = {row.heading for row in settings.rows if not row.pale}
    assert {"deep", "seed", "pairs"} <= chosen
    assert "copies" not in chosen
