"""The page of two LMs compared: its sentence, its tables and charts, and that it reads as it was written."""

import re
from pathlib import Path

import pytest
from builders.verdicts import judged, keep_diff

from askwell.errors import DamagedFile
from askwell.runs.diff_lms import Diff, diff_folders, read_diff
from askwell.views.diffed import diff_document, summary_sentence, write_diff
from askwell.views.document import Figure, Table
from askwell.views.to_text import plain_text


def test_a_sentence_says_what_became_of_the_facts() -> None:
    told = (
        "Of 10 facts that BERT knew, BERT (4 bits) keeps 5 by hand; 3 more are only hidden, since tuned prompts still"
    )
    assert summary_sentence(judged()) == f"{told} find them: 3 (1 to 3) beyond guessing; 2 are gone."
    kept = [("by hand", "by hand"), ("tuned only", "tuned only"), ("by hand", "not")]
    told = "Of 3 facts to forget that BERT knew, BERT (4 bits) keeps 2 (1 by hand); none is hidden; 1 is gone."
    assert summary_sentence(judged(kept), " to forget") == told
    told = "BERT knows none of the 2 facts: there was nothing to lose."
    assert summary_sentence(judged([("not", "not"), ("not", "by hand")])) == told


def test_the_page_shows_each_verdict_with_its_facts() -> None:
    document = diff_document(Diff(judged(), None, (), ("a note",)))
    tables = {block.title: block for block in document.blocks if isinstance(block, Table)}
    hidden = tables["Hidden: found by hand before, only by tuned prompts after (3)"]
    assert [row.heading for row in hidden.rows] == ["x5", "x6", "x7"]
    assert [(cell.text, cell.mark) for cell in hidden.rows[0].cells] == [
        ("y5", ""), ("y5", "right"), ("?", ""), ("?", ""), ("y5", "right"),
    ]  # fmt: skip
    assert len(tables["Gone: found before, not found after (2)"].rows) == 2
    shares = next(block for block in document.blocks if isinstance(block, Table) and block.corner == "verdict")
    assert {row.heading: (row.cells[0].text, row.cells[1].text) for row in shares.rows} == {
        "kept": ("5 of 10", "50.0"), "hidden": ("3 of 10", "30.0"), "gone": ("2 of 10", "20.0"),
        "new": ("1 of 3", "33.3"), "unknown": ("2 of 3", "66.7"),
    }  # fmt: skip
    assert shares.rows[0].note == "found as easily as before, or more easily"
    drawn = [block.drawings[0].chart for block in document.blocks if isinstance(block, Figure)]
    assert "found by hand to tuned prompts only: 3" in drawn[0].description
    assert "1 to 9: 1 kept, 0 hidden, 0 gone" in drawn[1].description
    assert "a note" in plain_text(document)


def test_many_facts_are_cut_and_counted() -> None:
    document = diff_document(Diff(judged([("by hand", "not")] * 40), None, ()))
    (gone,) = (block for block in document.blocks if isinstance(block, Table) and block.title.startswith("Gone"))
    assert (len(gone.rows), gone.more) == (15, 25)


def test_an_audit_shows_both_sets() -> None:
    document = diff_document(Diff(judged(), judged([("by hand", "by hand")] * 4), ()))
    assert document.lead.startswith("Of 10 facts to forget that BERT knew")
    told = plain_text(document)
    assert "Of 4 facts to retain that BERT knew, BERT (4 bits) keeps 4 by hand; none is hidden; 0 are gone." in told
    names = [drawing.name for block in document.blocks if isinstance(block, Figure) for drawing in block.drawings]
    assert len({*names}) == len(names)


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    found = keep_diff(tmp_path / "a", judged())
    assert read_diff(tmp_path / "a") == found
    assert diff_folders(tmp_path) == diff_folders(tmp_path / "a") == [tmp_path / "a"]
    assert diff_folders(tmp_path / "nowhere") == []
    paths = write_diff(found, tmp_path / "a")
    assert all(path.is_file() for path in paths)
    markdown = (tmp_path / "a" / "diff.md").read_text(encoding="utf-8")
    assert "keeps 5 by hand" in markdown.splitlines()[2]
    for drawing in re.findall(r"\((figures/\S+)\)", markdown):
        assert (tmp_path / "a" / drawing).is_file()
    (tmp_path / "a" / "diff.json").write_text('{"verdicts": 1}')
    with pytest.raises(DamagedFile, match="damaged"):
        read_diff(tmp_path / "a")
