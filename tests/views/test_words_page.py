from html.parser import HTMLParser

from hypothesis import given, settings
from hypothesis import strategies as st
from looked_at import ANY_TEXT, prompt

from askwell.views.to_html import page_html
from askwell.views.words import nearest_words
from askwell.views.words_figure import probability_figure, words_document

WITHOUT_END = {"img", "meta"}


class Page(HTMLParser):
    """Reads a page, and fails where an element is not closed."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.text: list[str] = []
        self.feed(page)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):  # noqa: ARG002
        self.tags.append(tag)
        if tag not in WITHOUT_END:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):  # noqa: ARG002
        self.tags.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


def words_html(*what, **more) -> str:
    return page_html(words_document(*what, **more))


def test_the_page_tells_what_it_is_of(bert):
    prompts = nearest_words(bert)
    page = words_html(prompts, "Soft prompts", lm="tiny-bert", relation="place-of-birth")
    text = Page(page).text
    for expected in ("Soft prompts", "tiny-bert", "place-of-birth"):
        assert expected in text
    assert "Nearest words are not an explanation of a soft prompt." in text
    assert "prefers-color-scheme: dark" in page
    assert Page(page).tags.count("img") == 1
    assert Page(page).tags.count("details") == sum(bool(one.tokens) for one in prompts)
    for one in prompts:
        assert one.template in text
        for token in one.tokens:
            assert {one.shown for one in token.words} <= set(text)
            nearest = ", ".join(f"{word.shown} {probability_figure(word.p)}" for word in token.next_nearest)
            assert nearest in text
            assert f"{token.size_ratio:.2f}" in text


def test_an_lm_or_relation_without_a_name_is_left_out():
    text = Page(words_html([prompt()], "t")).text
    assert "LM" not in text
    assert "Relation" not in text


def test_nothing_outside_is_needed(gpt2):
    page = words_html(nearest_words(gpt2), "t", lm="m").replace('src="data:', "")
    for outside in ("http", "href", "src=", "url(", "@import", "<script"):
        assert outside not in page


def test_words_are_never_markup():
    nasty = "<script>alert(1)</script>"
    page = words_html([prompt((nasty, nasty), cut_text=nasty)], nasty, lm=nasty, relation=nasty)
    assert "<script" not in page
    assert nasty in Page(page).text


def test_a_dollar_in_a_word_is_just_a_dollar():
    assert "$title" in Page(words_html([prompt(("$title", "${rows}"))], "$drawing")).text


@settings(max_examples=50)
@given(ANY_TEXT, st.lists(st.tuples(ANY_TEXT, ANY_TEXT), max_size=4))
def test_the_page_stands_whatever_the_words(title, words):
    plain = Page(words_html([prompt(*[("a", "b")] * len(words))], "t")).tags
    page = words_html([prompt(*words)], title, lm=title or None)
    page.encode()
    extra = ["div", "dt", "dd"] if title else []
    assert sorted(tag for tag in Page(page).tags if tag not in ("text", "tspan")) == sorted(
        [tag for tag in plain if tag not in ("text", "tspan")] + extra
    )
