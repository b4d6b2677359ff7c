import csv
import io
import json
import random
import re
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from askwell.data.facts import Fact, Relation
from askwell.data.names import load_relation
from askwell.errors import BadFile, BadOption

THREE = '{"x": "a", "y": "1"}\n{"x": "b", "y": "2"}\n{"x": "c", "y": "3"}\n'
THREE_FACTS = {Fact("a", "1"), Fact("b", "2"), Fact("c", "3")}


def facts_of(relation: Relation) -> set[Fact]:
    return {*relation.train, *relation.dev, *relation.test}


def mistake(path: Path, line: int | None = None) -> str:
    """The error of reading `path`, which has to name the file and the line."""
    with pytest.raises(BadFile) as caught:
        load_relation(path)
    message = str(caught.value)
    assert message.startswith(f"{path}: " if line is None else f"{path}, line {line}: ")
    assert caught.value.line == line
    return message


@pytest.fixture
def folder(write) -> Path:
    write("born/train.jsonl", '{"sub": "b", "obj": "2"}\n{"sub": "a", "obj": "1"}\n{"sub": "b", "obj": "2"}')
    write("born/dev.jsonl", '{"sub": "c", "obj": "3"}\n')
    return write("born/test.jsonl", '{"sub": "b", "obj": "2"}\n{"sub": "b", "obj": "0"}\n').parent


def test_a_table_may_have_semicolons_where_its_header_has_no_comma(write):
    facts = load_relation(write("born.csv", 'x;y\na;"1;5"\nb;2,5\nc;3\n'))
    assert facts_of(facts) == {Fact("a", "1;5"), Fact("b", "2,5"), Fact("c", "3")}
    facts = load_relation(write("dead.csv", "x,y;z\na,1\nb,2\nc,3\n"), y="y;z")
    assert facts_of(facts) == THREE_FACTS


# Folders of splits


def test_a_folder_is_read_as_it_is(folder):
    relation = load_relation(folder)
    assert relation.name == "born"
    assert relation.train == (Fact("a", "1"), Fact("b", "2"), Fact("b", "2"))
    assert relation.dev == (Fact("c", "3"),)
    assert relation.test == (Fact("b", "0"), Fact("b", "2"))
    assert relation.golds == {"a": ("1",), "b": ("0", "2"), "c": ("3",)}
    assert (relation.counts.read, relation.counts.duplicates_train, relation.counts.removed) == (6, 1, 0)
    assert (relation.counts.train_test, relation.counts.several_golds) == (1, 1)


@pytest.mark.parametrize("missing", ["train.jsonl", "dev.jsonl", "test.jsonl"])
def test_a_missing_split_is_named(folder, missing):
    (folder / missing).unlink()
    with pytest.raises(BadFile, match=re.escape(f"{folder / missing}: there is no such file")):
        load_relation(folder)


def test_a_folder_without_facts_says_what_is_expected(tmp_path):
    message = mistake(tmp_path)
    assert all(name in message for name in ("train.jsonl", "dev.jsonl", "test.jsonl", ".csv", ".tsv"))


def test_a_folder_of_relations_says_so(folder):
    assert "holds 1 of them: name one (born)" in mistake(folder.parent)


def test_an_error_in_a_split_names_its_file_and_line(folder):
    (folder / "dev.jsonl").write_text('{"sub": "c", "obj": "3"}\n{"sub": "c"}\n')
    with pytest.raises(BadFile, match=re.escape(f"{folder / 'dev.jsonl'}, line 2: ")):
        load_relation(folder)


def test_an_empty_split_is_an_error(folder):
    (folder / "test.jsonl").write_text("")
    with pytest.raises(BadFile, match=re.escape(f"{folder / 'test.jsonl'}: the file holds no facts")):
        load_relation(folder)


def test_a_folder_cannot_be_split_again(folder):
    with pytest.raises(BadOption, match="leave out the rule 'distinct-y'"):
        load_relation(folder, split="distinct-y")


# Names


def test_names_never_hold_a_path(folder, write, monkeypatch):
    file = write("deep/down/date.of.birth.csv", "x,y\na,1\nb,2\nc,3\n")
    assert load_relation(str(folder)).name == "born"
    assert load_relation(f"{folder}/").name == "born"
    assert load_relation(file).name == "date.of.birth"
    monkeypatch.chdir(folder)
    assert load_relation(".").name == "born"
    (folder / "below").mkdir()
    monkeypatch.chdir(folder / "below")
    assert load_relation("..").name == "born"


def test_a_folder_name_keeps_its_dots(folder):
    assert load_relation(folder.rename(folder.with_name("v1.born"))).name == "v1.born"


@pytest.mark.parametrize("through", ["argument", "variable"])
def test_a_name_of_the_data_folder_is_the_relation_name(write, tmp_path, monkeypatch, through):
    write("data/facts/mine/born.jsonl", THREE)
    if through == "variable":
        monkeypatch.setenv("ASKWELL_DATA", str(tmp_path / "data"))
    relation = load_relation("mine/born", data=tmp_path / "data" if through == "argument" else None)
    assert relation.name == "mine/born"
    assert facts_of(relation) == THREE_FACTS


def test_a_wrong_data_folder_is_an_error(write):
    with pytest.raises(BadOption, match="`data`"):
        load_relation(write("a.jsonl", THREE), data=Path("absent"))


# One file that is split


def test_a_file_is_split_and_its_repeated_facts_are_removed(write):
    lines = [json.dumps({"x": f"x{i}", "y": f"y{i}"}) for i in range(20)]
    relation = load_relation(write("r.jsonl", "\n".join([*lines, lines[3], lines[3], lines[7]])))
    assert (len(relation.train), len(relation.dev), len(relation.test)) == (16, 2, 2)
    assert facts_of(relation) == {Fact(f"x{i}", f"y{i}") for i in range(20)}
    assert (relation.counts.read, relation.counts.removed, relation.counts.duplicates) == (23, 3, 3)
    assert relation.counts.lines() == ["3 repeated lines removed before the split"]


def test_the_default_is_random_and_keeps_an_x_together(write):
    text = "".join(json.dumps({"x": f"x{i % 30}", "y": f"y{i % 7}"}) + "\n" for i in range(210))
    file = write("r.jsonl", text)
    relation = load_relation(file)
    assert relation == load_relation(file, split="random", seed=0)
    assert (len(relation.train), len(relation.dev), len(relation.test)) == (168, 21, 21)
    assert len({fact.x for fact in relation.test} | {fact.x for fact in relation.dev}) == 6
    assert relation.counts.several_golds == 30


def test_distinct_y_and_the_seed_reach_the_split(write):
    text = "".join(json.dumps({"x": f"x{i}", "y": f"y{i % 10}"}) + "\n" for i in range(100))
    file = write("r.jsonl", text)
    relation = load_relation(file, split="distinct-y", seed=1)
    assert [len({fact.y for fact in relation.split(name)}) for name in ("train", "dev", "test")] == [8, 1, 1]
    assert len({load_relation(file, split="distinct-y", seed=seed).digest for seed in range(6)}) > 1
    assert load_relation(file, seed=1) != load_relation(file, seed=2)


def test_too_few_facts_to_split_names_the_file(write):
    assert "at least 3 distinct x" in mistake(write("r.jsonl", THREE.rpartition('{"x": "c"')[0]))


def test_an_unknown_rule_is_a_bad_option(write):
    with pytest.raises(BadOption, match="random, distinct-y"):
        load_relation(write("r.jsonl", THREE), split="by-x")


# Files of every kind


def test_a_missing_file_is_refused(tmp_path):
    assert "no such file" in mistake(tmp_path / "absent.jsonl")


@pytest.mark.parametrize("name", ["r.jsonl", "r.csv", "r.tsv"])
@pytest.mark.parametrize("content", ["", "\n\n", "\ufeff"])
def test_a_file_without_facts_is_refused(write, name, content):
    assert "no fact" in mistake(write(name, content))


@pytest.mark.parametrize("name", ["r.txt", "r.json", "r"])
def test_unknown_suffix_lists_the_known_ones(write, name):
    assert ".jsonl, .csv, .tsv" in mistake(write(name, THREE))


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("r.jsonl", THREE),
        ("r.jsonl", THREE.rstrip("\n")),
        ("r.jsonl", "\n  \n" + THREE.replace("\n", "\n\n")),
        ("r.jsonl", THREE.replace("\n", "\r\n")),
        ("r.jsonl", "\ufeff" + THREE),
        ("r.jsonl", THREE.replace('"1"', "1")),
        ("r.jsonl", THREE.replace('"a"', '"  a\\t\\u00a0"')),
        ("r.JSONL", THREE),
        ("r.csv", "x,y\na,1\nb,2\nc,3"),
        ("r.csv", "\ufeffx,y\r\na,1\r\n\r\nb,2\r\nc,3\r\n"),
        ("r.csv", 'more, y ,x\nq,1,a\n"q\nq", 2 ,"b"\n,3,c\n'),
        ("r.tsv", "sub\tobj\na\t1\nb\t2\nc\t3\n"),
        ("r.csv", "sub_label,obj_label,sub,obj\na,1,/m/1,/m/2\nb,2,/m/3,/m/4\nc,3,/m/5,/m/6\n"),
    ],
)
def test_forms_of_the_same_facts(write, name, content):
    assert facts_of(load_relation(write(name, content))) == THREE_FACTS


def test_key_styles_may_change_from_line_to_line_and_further_keys_are_ignored(write):
    lines = [
        {"x": "a", "y": "1", "sub": "no", "obj": "no"},
        {"sub": "b", "obj": "2", "evidences": [{"sub": None}], "judgments": [1, 2.5]},
        {"uuid": "u", "obj_uri": "Q1", "obj_label": "3", "sub_uri": "Q2", "sub_label": "c", "predicate_id": "P1"},
        {"pred": "/p", "sub": "/m/0", "obj": "/m/1", "sub_label": "d", "obj_label": "4"},  # as LAMA's Google-RE
        {"sub": "e", "obj": "5", "obj_label": "5"},  # as LAMA's ConceptNet, which has no sub_label
    ]
    relation = load_relation(write("r.jsonl", "\n".join(map(json.dumps, lines))))
    assert facts_of(relation) == THREE_FACTS | {Fact("d", "4"), Fact("e", "5")}


def test_numbers_stay_as_they_are_written(write):
    text = '{"x": "a", "y": 1.50}\n{"x": -7, "y": 1e400}\n{"x": "c", "y": ' + "9" * 5000 + "}"
    expected = {Fact("a", "1.50"), Fact("-7", "1e400"), Fact("c", "9" * 5000)}
    assert facts_of(load_relation(write("r.jsonl", text))) == expected


def test_a_unicode_line_separator_inside_of_a_string_ends_no_line(write):
    text = THREE.replace('"a"', '"a\u2028\x85a"')
    assert Fact("a\u2028\x85a", "1") in facts_of(load_relation(write("r.jsonl", text)))
    assert Fact("a\u2028a", "1") in facts_of(load_relation(write("r.csv", "x,y\na\u2028a,1\nb,2\nc,3\n")))


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ('{"x": "a", "y": "1"', "broken JSON: .* at column"),
        ('{"x": "a", "y": "1"} {"x": "b", "y": "2"}', "broken JSON: Extra data at column 22"),
        ("[" * 100_000, "broken JSON"),
        ('{"x": "a", "y": NaN}', "NaN is not a JSON number"),
        ('["a", "1"]', "a list"),
        ("null", "null"),
        ('{"subject": "a", "y": "1"}', r"expected 'x' and 'y'.*'sub' and 'obj'.*found 'subject', 'y'\."),
        ("{}", "'sub_label' and 'obj_label'.*found none"),
        ('{"x": null, "y": "1"}', "'x' must be text, but is null"),
        ('{"x": "a", "y": [["1"]]}', "'y' must be text, but is a list"),
        ('{"sub": "a", "obj": {"b": 1}}', "'obj' must be text, but is an object"),
        ('{"x": "a", "y": true}', "'y' must be text, but is true"),
        ('{"x": "", "y": "1"}', "'x' is empty"),
        ('{"x": "a", "y": " \\t "}', "'y' is empty"),
        ('{"x": "a\\ud800", "y": "1"}', "half a character"),
    ],
)
def test_a_bad_line_is_named(write, line, problem):
    assert re.search(problem, mistake(write("r.jsonl", f"{THREE}\n{line}\n{THREE}"), line=5))


def test_an_escaped_surrogate_pair_is_one_character(write):
    text = THREE.replace('"a"', r'"\ud83d\ude00"')
    assert Fact("😀", "1") in facts_of(load_relation(write("r.jsonl", text)))


@pytest.mark.parametrize("name", ["r.jsonl", "r.csv"])
def test_not_utf_8(write, name):
    content = THREE if name == "r.jsonl" else "x,y\na,1\nb,2\n"
    latin = b"\xef\xbb\xbf" + content.encode() + '{"x": "é", "y": "1"}\n'.encode("latin-1")
    assert "UTF-8" in mistake(write(name, latin), line=4)


# Tables


@pytest.mark.parametrize(
    ("content", "line", "problem"),
    [
        ("a,1\nb,2\nc,3\n", 1, "expected 'x' and 'y'.* in the header; found 'a', '1'"),
        ("x,y,x\na,1,b\n", 1, "'x' more than once"),
        ("x,y\na,1\nb\n", 3, "the header has 2 fields, this row has 1$"),
        ("x,y\na,1\nParis, France,2\n", 3, "this row has 3; put a field .* in quotes"),
        ("x,y\na,1\n\nb,  \n", 4, "'y' is empty"),
        ('x,y\n"a\na\r\na",1\n"b\nb",2\n,3\n', 7, "'x' is empty"),
        ('x,y\na,1\n\n"b\nb\nb\n', 4, "broken row: unexpected end of data"),
        ('x,y\n"a\na",1\n"b" b,2\n', 4, "broken row"),
    ],
)
@pytest.mark.parametrize("suffix", ["csv", "tsv"])
def test_a_bad_row_is_named_by_the_line_it_begins_on(write, suffix, content, line, problem):
    if suffix == "tsv":
        content = content.replace(",", "\t")
    assert re.search(problem, mistake(write(f"r.{suffix}", content), line=line))


def test_a_header_alone_is_no_fact(write):
    assert "no fact" in mistake(write("r.csv", "x,y\n"))


def test_quoted_fields_keep_separators_quotes_and_line_breaks(write):
    text = 'x,y\n"Paris, France","the ""city"""\n"b\nb",2\nc,3\n'
    expected = {Fact("Paris, France", 'the "city"'), Fact("b\nb", "2"), Fact("c", "3")}
    assert facts_of(load_relation(write("r.csv", text))) == expected


# Order and work

TEXT = st.text(st.characters(codec="utf-8"), min_size=1, max_size=6).filter(str.strip)
PAIRS = st.lists(st.tuples(TEXT, TEXT), min_size=3, max_size=30).filter(lambda ps: len({x.strip() for x, _ in ps}) >= 3)


def as_jsonl(pairs: list[tuple[str, str]]) -> str:
    return "".join(json.dumps({"sub": x, "obj": y}, ensure_ascii=False) + "\n" for x, y in pairs)


def as_csv(pairs: list[tuple[str, str]]) -> str:
    table = io.StringIO()
    csv.writer(table, quoting=csv.QUOTE_ALL).writerows([("x", "y"), *pairs])
    return table.getvalue()


@settings(deadline=None)
@given(PAIRS, st.randoms(), st.integers(0, 3))
def test_the_order_of_lines_and_the_form_of_the_file_make_no_difference(pairs, shuffler, seed):
    shuffled = pairs.copy()
    shuffler.shuffle(shuffled)
    with TemporaryDirectory() as name:
        relations = []
        for place, text in (
            ("1/r.jsonl", as_jsonl(pairs)),
            ("2/r.jsonl", as_jsonl(shuffled)),
            ("r.csv", as_csv(pairs)),
        ):
            path = Path(name, place)
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(text.encode())
            relations.append(load_relation(path, seed=seed))
    assert relations[0] == relations[1] == relations[2]
    assert len({relation.digest for relation in relations}) == 1
    assert facts_of(relations[0]) == {Fact(x.strip(), y.strip()) for x, y in pairs}


@settings(deadline=None)
@given(PAIRS, st.randoms())
def test_the_order_of_lines_makes_no_difference_to_given_splits(pairs, shuffler):
    with TemporaryDirectory() as name:
        relations = []
        for _ in range(2):
            for split in ("train", "dev", "test"):
                Path(name, f"{split}.jsonl").write_bytes(as_jsonl(pairs).encode())
            relations.append(load_relation(name))
            shuffler.shuffle(pairs)
    assert relations[0] == relations[1]
    assert relations[0].digest == relations[1].digest
    assert len(relations[0].train) == len(pairs)


def calls_of(action: Callable[[], object]) -> int:
    """How many functions are called, those of C included: the work, without the clock."""
    calls = 0

    def count(_frame: object, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        action()
    finally:
        sys.setprofile(before)
    return calls


@pytest.mark.parametrize("rule", ["random", "distinct-y"])
def test_work_grows_with_the_lines_and_not_with_their_square(write, rule):
    draw, calls = random.Random(0), []
    for lines in (1_000, 10_000):
        pairs = [(f"x{draw.randrange(lines)}", f"y{int(draw.paretovariate(0.6))}") for _ in range(lines)]
        file = write("r.jsonl", as_jsonl(pairs))

        def read(file: Path = file) -> None:
            relation = load_relation(file, split=rule)
            assert relation.golds
            assert relation.digest

        calls.append(calls_of(read))
    assert calls[1] / calls[0] < 20  # ten times the lines; a square would be a hundred
