"""Counts of the released facts. The expected numbers come from a separate script over the raw JSON lines."""

from collections import Counter

import pytest

from askwell.data.facts import Counts, Relation
from askwell.data.names import find, load_relation


def total(data, dataset: str) -> tuple[dict[str, int], list[Relation]]:
    names = sorted(folder.name for folder in (data / "facts" / dataset).iterdir())
    relations = [load_relation(f"{dataset}/{name}", data=data) for name in names]
    jsons = [relation.counts.as_json() for relation in relations]
    return {key: sum(json[key] for json in jsons) for key in jsons[0]}, relations


@pytest.mark.parametrize(
    ("dataset", "relations", "lines", "test_lines", "test_in_train", "train_test", "duplicates"),
    [
        # The known 52 and 48 count lines of test, not distinct facts and not lines of train.
        ("trex_original", 41, 70_323, 34_039, 52, 45, 142),
        ("trex_extend", 41, 36_292, 7_266, 48, 41, 81),
        ("trex_distinct", 41, 34_039, 2_952, 0, 0, 22),
        # Here lines and distinct facts agree: no fact of train stands twice in test.
        ("conceptnet", 16, 29_774, 2_985, 2_223, 2_223, 9_301),
        ("google_re", 3, 5_528, 556, 0, 0, 1),
    ],
)
def test_the_released_facts_have_the_published_counts(
    shared_data, dataset, relations, lines, test_lines, test_in_train, train_test, duplicates
):
    counts, read = total(shared_data, dataset)
    assert len(read) == relations
    assert counts["read"] == lines
    assert sum(len(relation.test) for relation in read) == test_lines
    assert counts["test_in_train"] == test_in_train
    assert counts["train_test"] == train_test
    assert counts["duplicates"] == duplicates


def test_conceptnet_has_15734_distinct_facts(shared_data):
    _, relations = total(shared_data, "conceptnet")
    assert sum(len(ys) for relation in relations for ys in relation.golds.values()) == 15_734


def test_how_many_trex_test_facts_have_an_x_with_several_golds(shared_data):
    _, relations = total(shared_data, "trex_original")
    tests = [(relation, fact) for relation in relations for fact in relation.test]
    assert sum(len(relation.golds[fact.x]) > 1 for relation, fact in tests) == 3_947  # 11.6 %
    # The known 10.5 % counts the golds that stand in test only; we filter with those of all splits.
    in_test = {(relation.name, fact) for relation, fact in tests}
    ys_in_test = Counter((name, fact.x) for name, fact in in_test)
    several = sum(ys_in_test[relation.name, fact.x] > 1 for relation, fact in tests)
    assert round(100 * several / len(tests), 1) == 10.5


def test_trex_distinct_shares_no_y(shared_data):
    for relation in total(shared_data, "trex_distinct")[1]:
        train, dev, test = ({fact.y for fact in split} for split in (relation.train, relation.dev, relation.test))
        assert not train & dev | train & test | dev & test


def test_names_are_found(shared_data):
    relation = load_relation("trex_original/P19", data=shared_data)
    assert relation.name == "trex_original/P19"
    assert isinstance(relation.counts, Counts)
    assert find("trex_mine/P19", "prompts", shared_data) == shared_data / "prompts" / "trex_mine" / "P19.jsonl"
