"""Pages of findings: studies fill marked places and leave the prose alone."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "studies"))
import pages

PAGE = """# Title

Found in <!-- begin count -->3<!-- end count --> runs.

<!-- begin rows -->
<!-- end rows -->

The end.
"""


def test_a_place_is_filled_again_and_again(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(PAGE)
    for count in ("4", "5"):
        pages.fill(page, {"count": count, "rows": pages.table(["", "P@1"], [["soft", "50.0"]])})
    assert page.read_text() == PAGE.replace("3", "5").replace(
        "<!-- begin rows -->\n",
        "<!-- begin rows -->\n\n|  | P@1 |\n|---|---:|\n| soft | 50.0 |\n\n",
    )


def test_a_place_that_is_missing_is_refused(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(PAGE)
    with pytest.raises(ValueError, match="one place"):
        pages.fill(page, {"other": "1"})


def test_every_place_of_a_page_is_named_once_and_filled():
    for page in pages.FINDINGS.glob("*.md"):
        text = page.read_text(encoding="utf-8")
        for name in pages.places_of(text):
            assert text.count(f"<!-- begin {name} -->") == text.count(f"<!-- end {name} -->") == 1
            content = text.partition(f"<!-- begin {name} -->")[2].partition(f"<!-- end {name} -->")[0]
            assert content.strip(), f"{page.name}: {name} is empty"
