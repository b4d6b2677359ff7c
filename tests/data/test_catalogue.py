"""The manifest agrees with what is published. The expected counts come from separate scripts over the raw lines."""

import hashlib
import re

import pytest

from askwell.data.published import SETS, address, chosen_sets
from askwell.errors import BadOption

NAMES = [data_set.name for data_set in SETS]
BY_NAME = {data_set.name: data_set for data_set in SETS}


def test_the_sets_are_these():
    assert NAMES == [
        "facts/trex_original",
        "facts/trex_extend",
        "facts/trex_distinct",
        "facts/google_re",
        "facts/conceptnet",
        "prompts/trex",
        "prompts/trex_mine",
        "prompts/trex_paraphrase",
        "prompts/google_re",
        "prompts/google_re_mine",
        "prompts/google_re_paraphrase",
        "prompts/conceptnet",
        "prompts/autoprompt",
        "meta",
        "vocab",
    ]


@pytest.mark.parametrize(
    ("name", "relations", "lines", "files"),
    [
        ("facts/trex_original", 41, 70_323, 123),
        ("facts/trex_extend", 41, 36_292, 123),
        ("facts/trex_distinct", 41, 34_039, 123),
        ("facts/google_re", 3, 5_528, 9),
        ("facts/conceptnet", 16, 29_774, 48),
        ("prompts/trex", 46, 46, 46),
        ("prompts/trex_mine", 41, 1_166, 41),
        ("prompts/trex_paraphrase", 41, 1_073, 41),
        ("prompts/google_re_mine", 3, 98, 3),
        ("prompts/conceptnet", 16, 149, 16),
        ("prompts/autoprompt", None, 82, 2),
        ("meta", None, 46, 1),
        ("vocab", None, 21_018 + 17_230, 2),
    ],
)
def test_the_catalogue_counts_relations_lines_and_files(name, relations, lines, files):
    data_set = BY_NAME[name]
    assert (data_set.relations, data_set.lines, len(data_set.files)) == (relations, lines, files)


def test_every_released_file_has_its_hash(shared_data):
    there = {
        path.relative_to(shared_data).as_posix(): (path.stat().st_size, hashlib.sha256(path.read_bytes()).hexdigest())
        for path in shared_data.rglob("*")
        if path.is_file() and path.name != "SOURCES.md"
    }
    listed = [file for data_set in SETS for file in data_set.files]
    assert {file.path: (file.bytes, file.sha256) for file in listed} == there
    assert len(listed) == len(there) == 584


def test_every_file_can_be_addressed():
    addresses = [address("https://host", file.origin) for data_set in SETS for file in data_set.files]
    assert len(set(addresses)) == len(addresses) == 584
    for one in addresses:
        assert re.fullmatch(r"https://host/[\w-]+/[\w-]+/[0-9a-f]{40}/[\w/-]+\.(jsonl|txt)", one)


@pytest.mark.parametrize(
    ("path", "origin"),
    [
        (
            "facts/trex_original/P19/train.jsonl",
            "hiaoxui/soft-prompts/eb9047e134de25dd9442dc2a809652814a005b4d/db/trex_original/P19/train.jsonl",
        ),
        (
            "prompts/conceptnet/IsA.jsonl",
            "hiaoxui/soft-prompts/eb9047e134de25dd9442dc2a809652814a005b4d/prompts/conceptnet/IsA.jsonl",
        ),
        (
            "prompts/autoprompt/bert.jsonl",
            "ucinlp/autoprompt/00b81068a099a56d453c7349e1a6508b38a0de75/prompts/fact_retrieval_bert_prompts.jsonl",
        ),
        (
            "prompts/autoprompt/roberta.jsonl",
            "ucinlp/autoprompt/ec3edf3cfc6392ad51a9ca6de4fafd1f270ef773/prompts/fact_retrieval_roberta_prompts.jsonl",
        ),
        (
            "meta/lama_relations.jsonl",
            "princeton-nlp/OptiPrompt/4e15a9df613022052021f78e661ade5e3d42aba0/relation_metainfo/LAMA_relations.jsonl",
        ),
        (
            "vocab/common_vocab_cased.txt",
            "princeton-nlp/OptiPrompt/4e15a9df613022052021f78e661ade5e3d42aba0/common_vocabs/common_vocab_cased.txt",
        ),
    ],
)
def test_where_files_come_from(path, origin):
    (file,) = [file for data_set in SETS for file in data_set.files if file.path == path]
    assert address("", file.origin) == f"/{origin}"


@pytest.mark.parametrize(
    ("names", "chosen"),
    [
        ([], NAMES),
        (["facts/conceptnet"], ["facts/conceptnet"]),
        (["conceptnet"], ["facts/conceptnet", "prompts/conceptnet"]),
        (["prompts/"], [name for name in NAMES if name.startswith("prompts/")]),
        (["vocab", "trex", "vocab"], ["prompts/trex", "vocab"]),
    ],
)
def test_sets_by_name(names, chosen):
    assert [data_set.name for data_set in chosen_sets(names)] == chosen


@pytest.mark.parametrize("name", ["trex_orginal", "facts/trex", "", "/"])
def test_a_name_that_is_none(name):
    with pytest.raises(BadOption, match=r"there is no data set .*; (did you mean|choose from) "):
        chosen_sets([name])
    with pytest.raises(BadOption, match=r"did you mean trex_original"):
        chosen_sets(["vocab", "trex_orginal"])
