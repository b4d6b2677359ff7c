"""A report is one file that needs nothing else, escapes all text, and is the same for the same content."""

import re
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from askwell.views.charts import Gap, gaps_chart
from askwell.views.document import (
    Cell,
    Code,
    Column,
    ColumnGroup,
    Document,
    Drawing,
    Figure,
    Paragraph,
    Points,
    Row,
    Section,
    Table,
)
from askwell.views.to_html import page_html

VOID = {"meta", "br", "img", "link", "input"}
HOSTILE = "<script>alert('x')</script> & \"quoted\" </style> ]]> {{ 7 * 7 }}"


class Read(HTMLParser):
    """Reads a page; fails where an element is not closed."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.feed(page)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)

    def tags(self) -> list[str]:
        return [tag for tag, _ in self.elements]


def page_with(text: str) -> Document:
    chart = gaps_chart([Gap(text, 90.0, 10.0)], first=text, second=text, measure=text)
    table = Table(
        text,
        text,
        (ColumnGroup(text, (Column(text, text), Column(text, pale=True)), note=text),),
        (
            Row(text, (Cell(text, strong=True), Cell(text, mark="right", note=text)), begins=text, note=text),
            Row(text, (Cell(text), Cell(text, mark="wrong")), pale=True),
        ),
    )
    figure = Figure((Drawing("gaps", chart, text, text),), text)
    wide = Figure((Drawing("other", chart),), text, wide=True)
    folded = Table(text, text, (), (Row(text, ()),), folded=text)
    blocks = (
        Paragraph(text),
        Points((text,)),
        Points((text,), text),
        Code(((text, text),)),
        table,
        figure,
        wide,
        folded,
    )
    return Document(text, text, ((text, text),), (Section(text, blocks),), foot=text)


def test_the_page_needs_no_other_file():
    page = page_html(page_with("plain"))
    read = Read(page)
    assert {"script", "link", "iframe", "object"}.isdisjoint(read.tags())
    for _, attributes in read.elements:
        for name, value in attributes.items():
            if name in ("src", "href", "srcset", "xlink:href", "action"):
                assert (value or "").startswith(("#", "data:image/svg+xml;base64,")), f"{name}={value}"
            assert name != "style"  # the service's pages forbid it
    assert "@import" not in page
    assert "@font-face" not in page
    assert not re.search(r"https?://", page)


def test_names_are_used_once_and_links_lead_somewhere():
    read = Read(page_html(page_with("plain")))
    names = [attributes["id"] for _, attributes in read.elements if "id" in attributes]
    assert len(names) == len(set(names)) > 0
    for _, attributes in read.elements:
        for value in attributes.values():
            for target in re.findall(r"^#(\S+)$|url\(#([^)]+)\)", value or ""):
                assert ("".join(target)) in names
        if "aria-labelledby" in attributes:
            assert attributes["aria-labelledby"] in names


def test_hostile_text_stays_text():
    plain, hostile = Read(page_html(page_with("plain"))), Read(page_html(page_with(HOSTILE)))
    assert hostile.tags() == plain.tags()
    assert "script" not in hostile.tags()
    assert sum(HOSTILE in text for text in hostile.text) > 20
    assert not any("49" in text for text in hostile.text)


def small_page(text: str) -> Document:
    return Document(text, text, ((text, text),), (Section(text, (Paragraph(text), Points((text,)))),), foot=text)


@given(st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), min_size=1, max_size=40))
def test_any_text_stays_text(text):
    assert Read(page_html(small_page(text))).tags() == Read(page_html(small_page("plain"))).tags()


def test_no_line_ends_between_a_figure_and_its_sign():
    text = Read(page_html(small_page("it is 12.5 % of x (p < 0.001) or p = 0.04 and map = 3"))).text
    assert "it is 12.5\u00a0% of x (p\u00a0<\u00a00.001) or p\u00a0=\u00a00.04 and map =\u00a03" in text


def test_the_same_page_is_the_same_text():
    assert page_html(page_with("same")) == page_html(page_with("same"))


def test_dark_paper_is_for_screens_alone():
    page = page_html(page_with("plain"))
    assert "@media screen and (prefers-color-scheme: dark)" in page
    assert "@media print" in page


def test_a_right_answer_is_told_by_more_than_its_colour():
    read = Read(page_html(page_with("plain")))
    marks = [attributes.get("aria-label") for tag, attributes in read.elements if attributes.get("class") == "mark"]
    assert marks == ["right", "wrong"]
    assert "✓" in read.text
    assert "✗" in read.text


def test_a_row_with_too_few_cells_is_refused():
    with pytest.raises(ValueError, match=r"'short' has 1 cells for 2 columns"):
        Table("", "", (ColumnGroup("", (Column("a"), Column("b"))),), (Row("short", (Cell("1"),)),))


def test_contents_name_each_chapter_once_and_lead_to_what_they_name():
    parts = [("a", "one"), ("a", "two"), ("b", "one"), ("b", "two"), ("", "end")]
    sections = tuple(Section(heading, (Paragraph("text"),), within) for within, heading in parts)
    page = page_html(Document("title", sections=sections))
    expected = [("section-1", "a"), ("section-3", "b"), ("section-5", "end")]
    assert re.findall(r'<li><a href="#(\S+)">(.*?)</a>', page) == expected
    assert re.findall(r'<h2.* id="(\S+)">(.*?)</h2>', page) == expected
    assert re.findall(r"<h3.*>(.*?)</h3>", page) == ["one", "two", "one", "two"]
    ids = [attributes["id"] for _, attributes in Read(page).elements if "id" in attributes]
    assert len(ids) == len({*ids})
