"""Clean splits: no fact twice, test whole, the same layout."""

import json

import pytest

from askwell.data.facts import Fact, SplitLines
from askwell.data.names import FactSet, load_relation, read_fact_set
from askwell.data.split_audit import audit_relation, clean_splits, write_clean
from askwell.errors import BadFile, BadOption, NothingLeft


def facts(*pairs: str) -> tuple[Fact, ...]:
    return tuple(Fact(*pair.split(">")) for pair in pairs)


LEAKY = SplitLines(
    "leaky",
    train=facts("t>1", "a>1", "b>2", "a>1", "d>4", "e>5", "a>9"),
    dev=facts("d>4", "b>2", "f>6", "f>6"),
    test=facts("a>1", "b>2", "c>3", "c>3"),
)


def test_a_clean_split_has_every_fact_once():
    clean = clean_splits(LEAKY)
    assert clean.test == facts("a>1", "b>2", "c>3")
    assert clean.dev == facts("d>4", "f>6")
    # a>1 and b>2 stand in test, d>4 in dev; a>9 is another fact of a.
    assert clean.train == facts("t>1", "e>5", "a>9")
    audit = audit_relation(clean)
    assert (audit.leaked_pairs, audit.in_dev, audit.dev_in_train, audit.copy_train_y) == (0, 0, 0, 0)
    assert set(audit.duplicates.values()) == {0}
    assert clean_splits(clean) == clean


def test_a_split_that_is_all_leaks():
    with pytest.raises(NothingLeft, match="train facts of r left: 2 × the fact is also in a later split"):
        clean_splits(SplitLines("r", facts("a>1", "a>1"), facts("b>1"), facts("a>1")))
    with pytest.raises(NothingLeft, match="dev facts"):
        clean_splits(SplitLines("r", facts("a>1"), facts("b>1"), facts("b>1")))


def test_what_is_written_can_be_read(tmp_path):
    document = write_clean(FactSet("leaky", (LEAKY,), is_single=True), tmp_path / "one")
    assert read_fact_set(str(tmp_path / "one")).relations[0].train == clean_splits(LEAKY).train
    assert load_relation(tmp_path / "one").counts.in_two_splits == 0
    assert json.loads((tmp_path / "one" / "audit.json").read_text()) == document
    assert document["leaks_removed"] == {"train": 3, "dev": 1, "test": 0}
    assert document["repeated_removed"] == {"train": 1, "dev": 1, "test": 1}
    other = SplitLines("other", facts("é\u2028b>1"), facts("b>1"), facts("c>1"))
    (tmp_path / "two").mkdir()  # an empty folder is as good as none
    write_clean(FactSet("set", (LEAKY, other), is_single=False), tmp_path / "two")
    assert [splits.name for splits in read_fact_set(str(tmp_path / "two")).relations] == ["leaky", "other"]
    assert read_fact_set(str(tmp_path / "two" / "other")).relations == (other,)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one", "two"]  # nothing is left aside


def test_nothing_is_overwritten(tmp_path):
    (tmp_path / "mine").write_text("mine")
    with pytest.raises(BadOption, match="not empty"):
        write_clean(FactSet("leaky", (LEAKY,), is_single=True), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_lines_keep_their_order(tmp_path):
    folder = tmp_path / "set" / "r"
    folder.mkdir(parents=True)
    for name in ("train", "dev", "test"):
        (folder / f"{name}.jsonl").write_text('{"sub": "b", "obj": "2"}\n{"sub": "a", "obj": "1"}\n')
    for source in (folder, folder.parent):
        assert read_fact_set(str(source)).relations[0].train == facts("b>2", "a>1")  # load_relation would sort


def test_a_folder_without_a_split(tmp_path):
    folder = tmp_path / "set" / "r"
    folder.mkdir(parents=True)
    (folder / "dev.jsonl").write_text('{"sub": "b", "obj": "2"}\n')
    for source in (folder, tmp_path / "set"):
        with pytest.raises(BadFile, match=r"train\.jsonl: there is no such file"):
            read_fact_set(str(source))
    with pytest.raises(BadFile, match="no facts here"):
        read_fact_set(str(tmp_path))


def test_one_file_is_split(tmp_path):
    rows = "".join(f"x{n},y{n % 3}\n" for n in range(20))
    (tmp_path / "facts.csv").write_text(f"x,y\n{rows}x0,y0\n")
    (splits,) = read_fact_set(str(tmp_path / "facts.csv")).relations
    assert (len(splits.train), len(splits.dev), len(splits.test)) == (16, 2, 2)
    (tmp_path / "r").mkdir()
    with pytest.raises(BadOption, match="already split"):
        read_fact_set(str(tmp_path / "r"), split="random")
