"""How a study writes its page: the prose is in docs/findings, and the study fills the marked places with its figures.

A place is anything between `<!-- begin NAME -->` and `<!-- end NAME -->`: a table on lines of its own, or a number
within a sentence. Whatever was there is replaced, so that a page is edited by hand everywhere else.
"""

import argparse
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from askwell.views.charts import Gap, gaps_chart

FINDINGS = Path(__file__).parents[1] / "docs" / "findings"


def run_and_write(about: str, run: Callable[[], None], write_page: Callable[[], None]) -> None:
    """Do the missing runs of a study, unless its command says `--page`, then write its page."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--page", action="store_true", help="only write the page")
    if not parser.parse_args().page:
        run()
    write_page()


def fill(page: Path, places: Mapping[str, str]) -> None:
    """Put each text into the place of its name; a name that the page does not have exactly once is an error."""
    text = page.read_text(encoding="utf-8")
    for name, content in places.items():
        begin, end = f"<!-- begin {name} -->", f"<!-- end {name} -->"
        if (text.count(begin), text.count(end)) != (1, 1):
            raise ValueError(f"{page}: there must be one place {begin} … {end}")
        head, _, rest = text.partition(begin)
        old, _, tail = rest.partition(end)
        is_block = "\n" in old or "\n" in content
        text = head + begin + (f"\n\n{content.strip()}\n\n" if is_block else content) + end + tail
    page.write_text(text, encoding="utf-8")


def places_of(text: str) -> list[str]:
    """Return the names of all places of a page."""
    return re.findall(r"<!-- begin (.+?) -->", text)


def draw_gaps(page: Path, gaps: Sequence[Gap], *, first: str, second: str, measure: str) -> None:
    """Draw the chart with which a page begins: two percentages in each row, as an SVG file beside the page."""
    chart = gaps_chart(gaps, first=first, second=second, measure=measure)
    page.with_suffix(".svg").write_text(chart.svg(), encoding="utf-8")


def table(header: Sequence[str], rows: Sequence[Sequence[Any]], names: int = 1) -> str:
    """Return a table in Markdown, with numbers aligned to the right after the first columns, which hold names."""
    lines = [f"| {' | '.join(header)} |", "|" + "---|" * names + "---:|" * (len(header) - names)]
    return "\n".join([*lines, *(f"| {' | '.join(map(str, row))} |" for row in rows)])
