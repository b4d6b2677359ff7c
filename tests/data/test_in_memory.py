"""Facts from memory: the same relation, whatever container they come in."""

from collections import Counter

import pytest

from askwell.data.facts import Fact
from askwell.data.names import load_relation
from askwell.errors import BadFile, BadOption, UsageError

PAIRS = [(f"x{n:02}", f"y{n % 5}") for n in range(50)]
COLUMNS = {"country": [x for x, _ in PAIRS], "capital": [y for _, y in PAIRS]}


@pytest.fixture
def from_a_file(tmp_path):
    path = tmp_path / "facts.csv"
    path.write_text("country,capital\n" + "".join(f"{x},{y}\n" for x, y in PAIRS))
    return path


def as_pandas():
    return pytest.importorskip("pandas").DataFrame(COLUMNS)


def as_polars():
    return pytest.importorskip("polars").DataFrame(COLUMNS)


def as_arrow():
    return pytest.importorskip("pyarrow").table(COLUMNS)


def as_dataset():
    return pytest.importorskip("datasets").Dataset.from_dict(COLUMNS)


@pytest.mark.parametrize("made", [as_pandas, as_polars, as_arrow, as_dataset, lambda: COLUMNS])
def test_tables_are_the_relation_of_the_file_with_the_same_columns(made, from_a_file):
    expected = load_relation(from_a_file, x="country", y="capital", seed=3)
    assert load_relation(made(), x="country", y="capital", seed=3).digest == expected.digest
    assert sorted(fact for split in expected.splits.values() for fact in split) == [Fact(x, y) for x, y in PAIRS]


@pytest.mark.parametrize(
    "source", [PAIRS, [list(pair) for pair in PAIRS], dict(PAIRS), [Fact(*pair) for pair in PAIRS], iter(PAIRS)]
)
def test_pairs_and_dictionaries(source, from_a_file):
    assert load_relation(source).digest == load_relation(from_a_file, x="country", y="capital").digest


def test_rows_with_keys_and_several_ys_of_an_x():
    rows = [{"sub": f"x{n}", "obj": f"y{n}"} for n in range(5)]
    found = load_relation(rows, name="mine")
    assert found.name == "mine"
    assert sum(map(len, found.splits.values())) == 5
    several = load_relation({"a": ["1", "2"], "b": "3", "c": {"4"}})
    assert several.golds["a"] == ("1", "2")


@pytest.mark.parametrize("dev", ["dev", "validation"])
def test_splits_that_are_given_stay(dev):
    given = {"train": PAIRS[:30], dev: dict(PAIRS[30:40]), "test": PAIRS[40:]}
    relation = load_relation(given)
    assert [len(split) for split in relation.splits.values()] == [30, 10, 10]
    assert relation.dev == tuple(Fact(x, y) for x, y in PAIRS[30:40])
    with pytest.raises(BadOption, match="already split"):
        load_relation(given, split="random")
    with pytest.raises(UsageError, match=r"train, dev .* and test once; found train, test"):
        load_relation({"train": PAIRS, "test": PAIRS})


def test_a_dataset_dict_of_datasets():
    datasets = pytest.importorskip("datasets")
    parts = {name: datasets.Dataset.from_dict({"x": ["a"], "y": [name]}) for name in ("train", "validation", "test")}
    relation = load_relation(datasets.DatasetDict(parts))
    assert (relation.train, relation.dev) == ((Fact("a", "train"),), (Fact("a", "validation"),))


def test_a_relation_stays_as_it_is_and_whole_numbers_are_written_out():
    relation = load_relation([("a", 1926), ("b", 7), ("c", 10**20)])
    assert {fact.y for split in relation.splits.values() for fact in split} == {"1926", "7", str(10**20)}
    assert load_relation(relation) is relation


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ([("a", "1"), ("b", None)], r"facts, number 1: y is missing; leave out"),
        ([("a", float("nan"))], "number 0: y is missing"),
        ([("a", 1.5)], "number 0: y is 1.5; write it as text"),
        ([("a", " ")], "number 0: y is empty"),
        ([("a", "\ud800")], "half a character"),
        ([("a", "b", "c")], r"is not a pair \(x, y\)"),
        (["ab"], r"'ab' is not a pair"),
        ([{"country": "a"}], r"number 0: expected 'x' and 'y'.*found 'country'.*`x` and `y`"),
        (7, "int holds no facts; give pairs such as"),
        ([], "there are no facts"),
        ({"train": [("a", "b")], "dev": [], "test": [("a", "b")]}, "dev: there are no facts"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(source, message):
    with pytest.raises(UsageError, match=message):
        load_relation(source)


def test_a_missing_value_of_a_frame_is_named():
    pandas = pytest.importorskip("pandas")
    with pytest.raises(UsageError, match="number 1: y is missing"):
        load_relation(pandas.DataFrame({"x": ["a", "b"], "y": ["1", None]}))
    with pytest.raises(UsageError, match="`y` town: there is no such column; found 'x', 'y'"):
        load_relation(pandas.DataFrame({"x": ["a"], "y": ["1"]}), y="town")


def test_columns_whose_names_are_numbers_and_columns_of_one_name():
    pandas = pytest.importorskip("pandas")
    numbered = load_relation(pandas.DataFrame([[f"a{n}", f"b{n}"] for n in range(10)]), x="0", y="1")
    assert {(fact.x, fact.y) for fact in (*numbered.train, *numbered.dev, *numbered.test)} == {
        (f"a{n}", f"b{n}") for n in range(10)
    }
    rows = [{0: f"a{n}", 1: f"b{n}"} for n in range(10)]
    assert load_relation(rows, x="0", y="1") == numbered
    twice = pandas.DataFrame([["a", "b", "c", "d"]] * 2, columns=["x", "y", "x", "y"])
    with pytest.raises(UsageError, match="several columns 'x'"):
        load_relation(twice)


def test_messages_stay_short_whatever_is_in_a_table():
    many = {f"column {number}": ["a"] for number in range(100_000)}
    sources = [
        (many | {"town": ["a"]}, "city"),
        ([many], None),
        ([(["a"] * 100_000, "b")], None),
    ]
    for source, x in sources:
        with pytest.raises(UsageError) as raised:
            load_relation(source, x=x)
        assert len(str(raised.value)) < 1000


def test_columns_of_files_that_are_not_there(from_a_file):
    with pytest.raises(BadFile, match=r"line 1: `x` town: there is no such column; found 'country', 'capital'"):
        load_relation(from_a_file, x="town")
    with pytest.raises(BadOption, match="only the columns x and y"):
        load_relation("testbed:capital", x="country")


@pytest.mark.parametrize("ratio", ["60-20-20", (60, 20, 20), (0.6, 0.2, 0.2), "3-1-1"])
def test_a_ratio_may_be_a_text_or_numbers(ratio):
    assert [len(split) for split in load_relation(PAIRS, ratio=ratio).splits.values()] == [30, 10, 10]


@pytest.mark.parametrize("ratio", ["80-20", "a-b-c", "0-0-0", (1, 2), "-1-1-1"])
def test_a_ratio_that_is_none(ratio):
    with pytest.raises(BadOption, match="three numbers"):
        load_relation(PAIRS, ratio=ratio)


@pytest.mark.parametrize("seed", range(3))
def test_a_stratified_split_gives_every_y_its_part(seed):
    sizes = {"a": 50, "b": 30, "c": 20, "d": 7, "e": 1}
    facts = [(f"{y}{n}", y) for y, size in sizes.items() for n in range(size)]
    relation = load_relation(facts, split="stratified", ratio="60-20-20", seed=seed)
    counts = {name: Counter(fact.y for fact in split) for name, split in relation.splits.items()}
    for name, share in (("train", 0.6), ("dev", 0.2), ("test", 0.2)):
        for y, size in sizes.items():
            assert abs(counts[name][y] - share * size) < 1
        assert abs(sum(counts[name].values()) - share * len(facts)) < 1
    assert relation.digest == load_relation(facts[::-1], split="stratified", ratio="3-1-1", seed=seed).digest
    assert relation.digest != load_relation(facts, split="stratified", ratio="3-1-1", seed=seed + 1).digest


def test_a_stratified_split_keeps_the_ys_of_an_x_together_and_leaves_no_split_empty():
    facts = [(f"x{n}", y) for n in range(30) for y in ("1", "2")]
    relation = load_relation(facts, split="stratified")
    xs = [{fact.x for fact in split} for split in relation.splits.values()]
    assert [len(of) for of in xs] == [24, 3, 3]
    assert not xs[0] & xs[1] | xs[0] & xs[2] | xs[1] & xs[2]
    assert [
        len(split) for split in load_relation({"a": "1", "b": "2", "c": "3"}, split="stratified").splits.values()
    ] == [
        1,
        1,
        1,
    ]
