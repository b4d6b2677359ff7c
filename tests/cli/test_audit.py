"""`askwell audit` on a small set of two relations."""

import json

import pytest


@pytest.fixture
def data(tmp_path):
    """A data folder with a set of two relations; the first leaks one of two test facts."""
    lines = {
        "P1": {"train": ["a>1", "b>1"], "dev": ["c>1"], "test": ["a>1", "d>2"]},
        "P2": {"train": ["a>1"], "dev": ["b>1"], "test": ["c>1"]},
    }
    for name, splits in lines.items():
        folder = tmp_path / "data" / "facts" / "small" / name
        folder.mkdir(parents=True)
        for split, pairs in splits.items():
            rows = [json.dumps(dict(zip(("sub", "obj"), pair.split(">"), strict=True))) for pair in pairs]
            (folder / f"{split}.jsonl").write_text("\n".join(rows))
    return tmp_path / "data"


def test_a_whole_set(askwell, data):
    document = askwell("audit", "small", "--data", data, "--json").json
    assert document["facts"] == {"train": 3, "dev": 2, "test": 3}
    assert document["leaked_pairs"] == 1
    assert document["unseen_y"] == pytest.approx(100 / 3)
    assert document["majority"] == pytest.approx({"micro": 200 / 3, "macro": 75})
    assert document["relations"]["P1"]["copy_train_y"] == 50


def test_one_relation_of_a_set_is_audited_alone(askwell, data):
    document = askwell("audit", "small/P2", "--data", data, "--json").json
    assert document["facts"]["test"] == 1
    assert list(document["relations"]) == ["P2"]


def test_the_audit_is_printed_as_a_table_and_sentences(askwell, data):
    done = askwell("audit", "small", "--data", data)
    assert done.code == 0
    assert "1 of 3 test facts (33.3 %) are also in train" in done.out
    rows = [line.split() for line in done.out.splitlines()]
    assert ["P1", "2", "1", "50.0", "0.0", "0.0", "50.0", "50.0", "0.0"] in rows
    assert ["all", "3", "1", "33.3", "0.0", "0.0", "66.7", "33.3", "0.0"] in rows


def test_clean_writes_a_split_without_leaks(askwell, data, tmp_path):
    document = askwell("audit", "small", "--data", data, "--clean", "--out", tmp_path / "clean", "--json").json
    assert document["leaked_pairs"] == 1
    assert document["clean"]["leaks_removed"] == {"train": 1, "dev": 0, "test": 0}
    assert document["clean"]["audit"]["leaked_pairs"] == 0
    again = askwell("audit", tmp_path / "clean", "--json").json
    assert again == document["clean"]["audit"]
    one = askwell("audit", "small/P1", "--data", data, "--clean", "--out", tmp_path / "one")
    assert one.code == 0
    assert "1 fact of train, 0 facts of dev and 0 repeated lines are left out" in one.err
    assert (tmp_path / "one" / "train.jsonl").read_text() == '{"sub": "b", "obj": "1"}\n'


def test_the_testbed_is_audited_and_split_anew_by_its_name(askwell, tmp_path):
    assert askwell("audit", "testbed:capital", "--json").json["leaked_pairs"] == 0
    every = askwell("audit", "testbed:", "--clean", "--out", tmp_path / "clean", "--json").json
    assert "capital" in every["relations"]
    assert (tmp_path / "clean" / "capital" / "test.jsonl").is_file()


def test_wrong_options_and_folders_are_refused(askwell, data, tmp_path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine").write_text("mine")
    for arguments, told in {
        ("nothing",): "nothing",
        ("small/P3", "--data", data): "small/P3",
        ("small", "--data", data, "--clean"): "--out",
        ("small", "--data", data, "--out", tmp_path / "out"): "--clean",
        ("small", "--data", data, "--clean", "--out", tmp_path / "full"): "not empty",
        ("small", "--data", data, "--split-by", "random"): "random",
        ("testbed:capital", "--split-by", "random"): "random",
    }.items():
        done = askwell("audit", *arguments)
        assert done.code == 2
        assert told in done.err
        assert "Traceback" not in done.err
    assert not (tmp_path / "out").exists()
