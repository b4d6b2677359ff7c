"""Frequent templates of marked sentences, counted by hand."""

import json

import pytest
from sentence_templates import frequent_templates, write_templates

from askwell.data.names import load_prompts
from askwell.errors import BadFile, NothingLeft


def find(a: str, b: str) -> dict:
    return {"sentence": f"You are likely to find a {a} in a {b}.", "x": a, "y": b, "relation": "AtLocation"}


def has(a: str, b: str) -> dict:
    return {"sentence": f"A {b} has  {a} .", "x": b, "y": a, "relation": "HasA"}


def test_more_than_ten_means_eleven(write):
    ten = [has(f"a{n}", f"b{n}") for n in range(10)]
    eleven = [find(f"a{n}", f"b{n}") for n in range(11)]
    found = frequent_templates(write("s.jsonl", eleven + ten))
    assert found.templates == {"AtLocation": [{"template": "You are likely to find a [X] in a [Y].", "count": 11}]}
    assert (found.read, found.distinct, dict(found.left_out)) == (21, 2, {})


def test_templates_come_by_count_then_by_text(write):
    sentences = [find("cup", "den"), find("hat", "box")]
    sentences += [{"sentence": f"{word} a b", "x": "a", "y": "b", "relation": "AtLocation"} for word in ("Zoo", "Ant")]
    found = frequent_templates(write("s.jsonl", sentences), least=1)
    assert [one["template"] for one in found.templates["AtLocation"]] == [
        "You are likely to find a [X] in a [Y].",
        "Ant [X] [Y]",
        "Zoo [X] [Y]",
    ]


def test_templates_of_one_relation_come_from_its_own_and_unnamed_sentences(write):
    unnamed = {"sentence": "A cat has fur .", "x": "cat", "y": "fur"}
    path = write("s.jsonl", [find("cup", "den"), has("fur", "dog"), unnamed])
    found = frequent_templates(path, least=1, relation="HasA")
    assert found.templates == {"HasA": [{"template": "A [X] has [Y] .", "count": 2}]}
    assert found.read == 2
    with pytest.raises(BadFile, match=r"s\.jsonl, line 3: 'relation' is missing"):
        frequent_templates(path, least=1)


@pytest.mark.parametrize(
    ("sentence", "x", "y", "template"),
    [
        ("A library has a book.", "book", "library", "A [Y] has a [X]."),
        ("A bookcase holds a book.", "book", "bookcase", "A [Y] holds a [X]."),
        ("book shelf holds book", "book shelf", "book", "[X] holds [Y]"),
        ("You can (dance).", "You", "dance", "[X] can ([Y])."),
        ("Ein Bär mag Honig!", "Bär", "Honig", "Ein [X] mag [Y]!"),
        ("a cat is a cat", [2, 5], [11, 14], "a [X] is a [Y]"),
        ("a+b equals c", "a+b", "c", "[X] equals [Y]"),
    ],
)
def test_where_the_blanks_go(write, sentence, x, y, template):
    path = write("s.jsonl", [{"sentence": sentence, "x": x, "y": y, "relation": "r"}])
    assert frequent_templates(path, least=1).templates == {"r": [{"template": template, "count": 1}]}


@pytest.mark.parametrize(
    ("sentence", "x", "y", "reason"),
    [
        ("A library has books.", "book", "library", "x is not in the sentence"),
        ("A book has pages.", "book", "library", "y is not in the sentence"),
        ("a cat is a cat", "cat", "cat", "x or y occurs more than once; give its position"),
        ("a cat and a cat like milk", "cat", "milk", "x or y occurs more than once; give its position"),
        ("a book shelf", "book shelf", "shelf", "x and y overlap"),
        ("[X] is a cat of Tom", "cat", "Tom", "the sentence already holds [X] or [Y]"),
    ],
)
def test_what_is_left_out_is_counted(write, sentence, x, y, reason):
    path = write("s.jsonl", [{"sentence": sentence, "x": x, "y": y, "relation": "r"}, find("cup", "den")])
    found = frequent_templates(path, least=1)
    assert dict(found.left_out) == {reason: 1}
    assert list(found.templates) == ["AtLocation"]


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({"x": "a", "y": "b", "relation": "r"}, "'sentence' must be text"),
        ({"sentence": "a b", "y": "b", "relation": "r"}, "'x' must be text"),
        ({"sentence": "a b", "x": "a", "y": " ", "relation": "r"}, "'y' is empty"),
        ({"sentence": "a b", "x": [0, 9], "y": "b", "relation": "r"}, r"'x' is \[0, 9\], which is not a position"),
        ({"sentence": "a b", "x": [1, 1], "y": "b", "relation": "r"}, "which is not a position"),
        ({"sentence": "a b", "x": [True, 2], "y": "b", "relation": "r"}, "which is not a position"),
        ({"sentence": "a b", "x": "a", "y": "b", "relation": 3}, "'relation' must be text"),
        ({"sentence": "a b", "x": "a", "y": "b", "relation": "../r"}, "must be usable as a file name"),
    ],
)
def test_errors_name_the_line(write, record, message):
    with pytest.raises(BadFile, match=rf"s\.jsonl, line 2: .*{message}"):
        frequent_templates(write("s.jsonl", [find("cup", "den"), record]), least=1)


@pytest.mark.parametrize(
    ("name", "fits"), [("a" * 200, True), ("a" * 201, False), ("é" * 100, True), ("é" * 101, False)]
)
def test_a_relation_that_no_file_can_be_named_after_is_refused_before_anything_is_written(write, name, fits):
    path = write("s.jsonl", [find("cup", "den") | {"relation": name}])
    if fits:
        write_templates(frequent_templates(path, least=1), path.parent / "out", one_file=False)
        assert [file.name for file in (path.parent / "out").iterdir()] == [f"{name}.jsonl"]
    else:
        with pytest.raises(BadFile, match=r"s\.jsonl, line 1: .*at most 200 bytes"):
            frequent_templates(path, least=1)


def test_sentences_without_a_frequent_template_are_refused(write):
    with pytest.raises(NothingLeft, match="no templates left: 1 × template occurs in fewer than 11 sentences"):
        frequent_templates(write("s.jsonl", [find("cup", "den")] * 10))


def test_what_is_written_is_a_prompt_file(write):
    alike = {"sentence": "Tee ähnelt Chai.", "x": "Tee", "y": "Chai", "relation": "r"}
    reverse = {"sentence": "Chai Tee", "x": "Tee", "y": "Chai", "relation": "r"}
    path = write("s.jsonl", [alike] * 12 + [reverse] * 11)
    write_templates(frequent_templates(path), path.parent / "p.jsonl", one_file=True)
    write_templates(frequent_templates(path), path.parent / "all", one_file=False)
    for written in (path.parent / "p.jsonl", path.parent / "all" / "r.jsonl"):
        text = written.read_text(encoding="utf-8")
        assert text == '{"template": "[X] ähnelt [Y].", "count": 12}\n{"template": "[Y] [X]", "count": 11}\n'
        assert [one.text for one in load_prompts(str(written))] == ["[X] ähnelt [Y].", "[Y] [X]"]


def test_a_sentence_in_which_x_and_y_stand_ten_thousand_times(tmp_path):
    """A hundred million pairs of places, of which two are enough to see that it is not clear which is meant."""
    lines = [{"sentence": "Paris France " * 10_000, "x": "Paris", "y": "France", "relation": "in"}]
    lines += [{"sentence": "Paris is in France", "x": "Paris", "y": "France", "relation": "in"}]
    path = tmp_path / "sentences.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    found = frequent_templates(path, 1)
    assert found.templates == {"in": [{"template": "[X] is in [Y]", "count": 1}]}
    assert found.left_out == {"x or y occurs more than once; give its position": 1}
