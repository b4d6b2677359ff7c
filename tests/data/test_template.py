"""Templates: what is one, what is not, and the messages about the latter."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from askwell.data.templates import Template, parse_template
from askwell.errors import BadTemplate

GOOD = {
    "[X] was born in [Y] .": Template("", "[X]", " was born in ", "[Y]", " ."),
    "[Y] is the capital of [X]": Template("", "[Y]", " is the capital of ", "[X]", ""),
    "[X][Y]": Template("", "[X]", "", "[Y]", ""),
    "  ([X])\n[Y].\t": Template("(", "[X]", ")\n", "[Y]", "."),
    "[X]vik lies in [Z] [Y]land": Template("", "[X]", "vik lies in [Z] ", "[Y]", "land"),
    "[[X]] [Y]": Template("[", "[X]", "] ", "[Y]", ""),
}


@pytest.mark.parametrize("text", GOOD)
def test_a_template_with_both_blanks_reads_back_as_its_text(text: str) -> None:
    assert parse_template(text) == GOOD[text]
    assert parse_template(text).x_first == (GOOD[text].first == "[X]")
    assert parse_template(text).text == text.strip()


BAD = {
    "": r"has no \[X\]",
    "was born in": r"has no \[X\]",
    "[X] was born in": r"has no \[Y\]",
    "[Y]": r"has no \[X\]",
    "[X] and [X] : [Y]": r"has 2 times \[X\]",
    "[X] [Y] [Y] [Y]": r"has 3 times \[Y\]",
    "[x] was born in [Y]": r"has no \[X\]; write \[X\] instead of \[x\]",
    "[X] was born in [ y ]": r"has no \[Y\]; write \[Y\] instead of \[ y \]",
    "[X] was born in [Z]": r"has no \[Y\]; each blank appears exactly once",
}


@pytest.mark.parametrize("text", BAD)
def test_a_template_without_exactly_one_of_each_blank_is_refused(text: str) -> None:
    with pytest.raises(BadTemplate, match=BAD[text]) as refusal:
        parse_template(text)
    assert repr(text.strip()) in str(refusal.value)


STRETCH = st.text(max_size=12).filter(lambda text: "[X]" not in text and "[Y]" not in text)


@given(before=STRETCH, between=STRETCH, after=STRETCH, x_first=st.booleans())
def test_every_text_with_both_blanks_comes_apart_and_together(
    before: str, between: str, after: str, x_first: bool
) -> None:
    first, second = ("[X]", "[Y]") if x_first else ("[Y]", "[X]")
    template = parse_template(f"{before}{first}{between}{second}{after}", 0.5)
    assert (template.before, template.between, template.after) == (before.lstrip(), between, after.rstrip())
    assert (template.first, template.second, template.weight) == (first, second, 0.5)
    assert parse_template(template.text, 0.5) == template


@given(st.lists(st.one_of(st.sampled_from(["[X]", "[Y]"]), STRETCH), max_size=6).map(" ".join))
def test_a_text_is_a_template_or_refused(text: str) -> None:
    if text.count("[X]") == text.count("[Y]") == 1:
        assert parse_template(text).text == text.strip()
    else:
        with pytest.raises(BadTemplate):
            parse_template(text)


@pytest.mark.parametrize(
    ("tokenised", "joined"),
    [
        ("[X] is produced by [Y] .", "[X] is produced by [Y]."),
        ("[X] , born in [Y] , died .", "[X], born in [Y], died."),
        ("[X] ( born in [Y] ) left", "[X] (born in [Y]) left"),
        ("[X] 's capital is [Y] !", "[X]'s capital is [Y]!"),
        ("[Y] 'shaped [X] - or so", "[Y] 'shaped [X] - or so"),
    ],
)
def test_punctuation_is_joined_to_its_word(tokenised, joined):
    assert parse_template(tokenised, 0.5).joined == parse_template(joined, 0.5)
