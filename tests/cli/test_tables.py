"""Tables on stdout: names stay whole, whatever the width; columns that say nothing are not shown."""

import io

import pytest
from rich.console import Console
from rich.table import Table
from rich.text import Text

from askwell.cli.tables import plain_table, print_table

NAMES = ["testbed:country_of_airport", "trex_original/P1001", "x"]


def printed(table: Table, *, width: int = 80, terminal: bool = True) -> list[str]:
    written = io.StringIO()
    print_table(table, Console(file=written, force_terminal=terminal, width=width, color_system=None))
    return [line.rstrip() for line in written.getvalue().splitlines()]


def names_and_words() -> Table:
    table = Table("relation", "what it says", "facts", "", title="Some relations")
    for name in NAMES:
        table.add_row(name, "an airport and the country in which it lies", "784", "")
    return table


@pytest.mark.parametrize("width", [20, 30, 40, 60, 80, 200])
def test_names_are_whole_in_terminals_of_any_width(width):
    lines = printed(names_and_words(), width=width)
    for name in NAMES:
        assert any(name in line.replace("│", " ").split() for line in lines)
    assert "…" not in "".join(lines)


@pytest.mark.parametrize("width", [48, 60, 80])
def test_what_fits_between_words_fits_the_terminal(width):
    # 26 for the longest name, 7 for "country", 5 for "facts"; 2 for the spaces around each, 4 for lines
    assert max(map(len, printed(names_and_words(), width=width))) <= width


def test_where_names_do_not_fit_each_row_is_a_few_lines():
    lines = printed(names_and_words(), width=47)
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
    table = plain_table("run", "P@1", "control", "note", numbers=("P@1",))
    table.add_row("a", "50.0", "–", "")
    table.add_row("b", "40.0", "–", Text(""))
    assert printed(table) == ["run   P@1", "a    50.0", "b    40.0"]


def test_a_table_without_rows_keeps_its_headings():
    assert printed(plain_table("run", "P@1")) == ["run  P@1"]


def test_a_title_that_is_wider_than_the_table_is_one_line():
    table = Table("", "P@1", title="96 test facts, all 3942 one-token answers of testbed:bert")
    table.add_row("tuned", "69.8")
    assert printed(table)[0] == "96 test facts, all 3942 one-token answers of testbed:bert"


@pytest.mark.parametrize("width", [4, 80])
@pytest.mark.parametrize("title", ["[/]", "[bold]x[/bold]", "a [X] b"])
def test_a_title_is_text_whatever_its_brackets(title, width):
    for shown in (title, Text(title)):
        table = Table("", "P@1", title=shown, box=None)
        table.add_row("tuned", "69.8")
        assert printed(table, width=width)[0].strip() == title
