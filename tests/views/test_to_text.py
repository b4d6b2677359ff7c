"""Tables on stdout: names stay whole, whatever the width; columns that say nothing are not shown."""

import io

import pytest
from rich.console import Console

from askwell.views.document import Table, table
from askwell.views.to_text import print_table

NAMES = ["testbed:country_of_airport", "trex_original/P1001", "x"]


def printed(shown: Table, *, width: int = 80, terminal: bool = True) -> list[str]:
    written = io.StringIO()
    print_table(shown, Console(file=written, force_terminal=terminal, width=width, color_system=None))
    return [line.rstrip() for line in written.getvalue().splitlines()]


def names_and_words() -> Table:
    rows = [(name, "an airport and the country in which it lies", "784", "") for name in NAMES]
    return table(("relation", "what it says", "facts", ""), rows, numbers=("facts",), title="Some relations")


@pytest.mark.parametrize("width", [20, 30, 40, 60, 80, 200])
def test_names_are_whole_in_terminals_of_any_width(width):
    lines = printed(names_and_words(), width=width)
    for name in NAMES:
        assert any(name in line.split() for line in lines)
    assert "…" not in "".join(lines)


@pytest.mark.parametrize("width", [42, 60, 80])
def test_what_fits_between_words_fits_the_terminal(width):
    # 26 for the longest name, 7 for "country", 5 for "facts", and 2 spaces between them
    assert max(map(len, printed(names_and_words(), width=width))) <= width


def test_where_names_do_not_fit_each_row_is_a_few_lines():
    lines = printed(names_and_words(), width=41)
    assert lines[:4] == [
        "Some relations",
        "testbed:country_of_airport",
        "  what it says  an airport and the country in which it lies",
        "  facts         784",
    ]


def test_a_pipe_gets_every_row_as_one_line():
    lines = printed(names_and_words(), width=30, terminal=False)
    assert sum("an airport and the country in which it lies" in line for line in lines) == len(NAMES)


def test_columns_that_say_nothing_are_not_shown():
    rows = [("a", "50.0", "–", ""), ("b", "40.0", "–", " ")]
    assert printed(table(("run", "P@1", "control", "note"), rows, numbers=("P@1",))) == [
        "run   P@1",
        "a    50.0",
        "b    40.0",
    ]


def test_a_table_without_rows_keeps_its_headings():
    assert printed(table(("run", "P@1"), ())) == ["run  P@1"]


def test_a_title_that_is_wider_than_the_table_is_one_line():
    title = "96 test facts, all 3942 one-token answers of testbed:bert"
    assert printed(table(("", "P@1"), [("tuned", "69.8")], title=title))[0] == title


@pytest.mark.parametrize("width", [4, 80])
@pytest.mark.parametrize("title", ["[/]", "[bold]x[/bold]", "a [X] b"])
def test_a_title_is_text_whatever_its_brackets(title, width):
    assert printed(table(("", "P@1"), [("tuned", "69.8")], title=title), width=width)[0].strip() == title
