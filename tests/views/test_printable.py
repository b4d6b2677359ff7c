"""Text from outside is shown, never acted on."""

import csv
import io
import json
import unicodedata

import pytest
from builders.commands import exit_code
from hypothesis import given
from hypothesis import strategies as st

from askwell.views.printable import clipped, for_csv, json_escaped, printable

ESCAPES = "\x1b]0;owned\x07\x1b[2J"


def acts(character: str) -> bool:
    """By Unicode's own categories: controls, halves, and the marks that turn or hide text."""
    is_turning = unicodedata.bidirectional(character) in {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}
    return (unicodedata.category(character) in {"Cc", "Cs", "Zl", "Zp"} and character not in "\n\t") or is_turning


@given(st.text(st.characters(), max_size=40))
def test_nothing_that_acts_is_left_and_nothing_else_changes(text):
    shown = printable(text)
    assert not any(acts(character) for character in shown)
    if not any(acts(character) or unicodedata.category(character) == "Cf" for character in text):
        assert shown == text
    assert printable(shown) == shown


def test_escapes_are_written_out():
    assert printable("a\x1b[31mb\u202ec\ud800d") == "a\\x1b[31mb\\u202ec\\ud800d"
    assert printable("Zürich, 東京, شیراز‌ها\n\tx") == "Zürich, 東京, شیراز‌ها\n\tx", "joiners are part of some scripts"


@given(st.text(st.characters(), max_size=40))
def test_json_holds_the_same_texts(text):
    document = json_escaped(json.dumps({"x": text}, ensure_ascii=False))
    assert json.loads(document) == {"x": text}
    assert not any(acts(character) for character in document)
    document.encode()


@pytest.mark.parametrize("formula", ["=cmd|' /C calc'!A0", "+1", "-2+3", "@SUM(A1)", "\t=1"])
def test_a_spreadsheet_takes_no_text_for_a_formula(formula):
    written = io.StringIO()
    csv.writer(written).writerow([for_csv(formula), for_csv(-1.5), for_csv("Paris")])
    first, number, name = next(csv.reader(io.StringIO(written.getvalue())))
    assert first == f"'{formula}"
    assert (number, name) == ("-1.5", "Paris")


def test_long_messages_are_cut_in_the_middle():
    assert clipped("short") == "short"
    cut = clipped("a" * 5000 + "b" * 5000, 100)
    assert len(cut) <= 100
    assert cut.startswith("aaa")
    assert cut.endswith("bbb")


def test_a_message_shows_the_escapes_of_a_file_name(tmp_path, capsys):
    assert exit_code("audit", str(tmp_path / f"{ESCAPES}.csv")) == 2
    told = capsys.readouterr().err
    assert "\x1b" not in told
    assert "\\x1b]0;owned" in told


def test_a_table_shows_the_escapes_of_a_text(tmp_path, capsys):
    facts = tmp_path / "facts.csv"
    rows = [f"x{n}{ESCAPES},y{n % 2}" for n in range(40)]
    facts.write_text("x,y\n" + "\n".join([*rows, rows[0]]) + "\n", encoding="utf-8")
    assert exit_code("audit", str(facts)) == 0
    shown = capsys.readouterr()
    assert "\x1b" not in shown.out + shown.err
