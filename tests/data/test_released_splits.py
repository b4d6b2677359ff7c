"""The released splits. Expected shares are the known ones, and those of a plain loop over the raw JSON lines."""

import json
from collections import Counter, defaultdict

import pytest

from askwell.data.names import read_fact_set
from askwell.data.split_audit import audit_relation, audit_set, clean_splits


@pytest.fixture(scope="module")
def document(shared_data):
    """The audit of a set as JSON, made once."""
    made = {}

    def audit(name):
        if name not in made:
            made[name] = audit_set(read_fact_set(name, data=shared_data)).as_json()
        return made[name]

    return audit


def test_conceptnet_has_these_facts_and_leaks(document):
    found = document("conceptnet")
    assert found["facts"] == {"train": 23_816, "dev": 2_973, "test": 2_985}
    assert found["distinct"] == 15_734
    assert found["leaked_pairs"] == 2_223
    assert round(found["copy_train_y"], 1) == 32.3
    assert len(found["relations"]) == 16


def test_trex_original_has_these_leaks_and_majority(document):
    found = document("trex_original")
    assert found["leaked_pairs"] == 52
    # Letters of either case: counted with case, it would be 12.7.
    assert round(found["y_in_x"], 1) == 14.0
    assert round(found["unseen_y"], 1) == 14.4
    # Among test's golds alone; with those of train and dev it is 11.6.
    assert round(found["several_golds"], 1) == 10.5
    assert round(found["details"]["several_golds_all_splits"], 1) == 11.6
    assert {name: round(score, 1) for name, score in found["majority"].items()} == {"micro": 17.8, "macro": 17.3}


def test_trex_extended_has_these_leaks_and_majority(document):
    found = document("trex_extend")
    assert found["leaked_pairs"] == 48
    assert {name: round(score, 1) for name, score in found["majority"].items()} == {"micro": 23.6, "macro": 24.1}


def test_trex_distinct_shares_no_y_with_train(document):
    found = document("trex_distinct")
    assert (found["leaked_pairs"], found["unseen_y"], found["copy_train_y"]) == (0, 100, 0)


@pytest.mark.parametrize("name", ["conceptnet", "google_re", "trex_extend"])
def test_each_relation_against_a_plain_loop(shared_data, document, name):
    for folder in sorted((shared_data / "facts" / name).iterdir()):
        train, dev, test = (
            [tuple(json.loads(line).values()) for line in (folder / f"{split}.jsonl").read_text().splitlines() if line]
            for split in ("train", "dev", "test")
        )
        found = document(name)["relations"][folder.name]
        assert found["facts"] == {"train": len(train), "dev": len(dev), "test": len(test)}
        assert found["distinct"] == len({*train, *dev, *test})
        in_train, train_ys = set(train), [y for _, y in train]
        seen = set(train_ys)
        assert found["leaked_pairs"] == sum(pair in in_train for pair in test)
        share = 100 / len(test)
        assert found["unseen_y"] == pytest.approx(share * sum(y not in seen for _, y in test))
        assert found["y_in_x"] == pytest.approx(share * sum(y.lower() in x.lower() for x, y in test))
        ys, for_x = defaultdict(set), defaultdict(list)
        for x, y in test:
            ys[x].add(y)
        for x, y in train:
            for_x[x].append(y)
        assert found["several_golds"] == pytest.approx(share * sum(len(ys[x]) > 1 for x, _ in test))
        common = max(train_ys, key=Counter(train_ys).__getitem__)  # max takes the first of equals
        assert found["majority"]["micro"] == pytest.approx(share * sum(y == common for _, y in test))
        copied = {x: max(of_x, key=of_x.count) for x, of_x in for_x.items()}
        assert found["copy_train_y"] == pytest.approx(share * sum(copied.get(x) == y for x, y in test))


@pytest.mark.parametrize("name", ["conceptnet", "trex_original", "trex_extend", "google_re"])
def test_clean_splits_have_no_leak(shared_data, name):
    for splits in read_fact_set(name, data=shared_data).relations:
        clean = clean_splits(splits)
        assert {*clean.test} == {*splits.test}
        assert {*clean.train, *clean.dev, *clean.test} == {*splits.train, *splits.dev, *splits.test}
        audit = audit_relation(clean)
        assert audit.leaked_pairs == audit.in_dev == audit.dev_in_train == audit.copy_train_y == 0
        assert sum(audit.facts.values()) == audit.distinct
