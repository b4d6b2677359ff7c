"""Small folders in the layouts that LAMA, LPAQA, AutoPrompt, OptiPrompt and BEAR publish."""

import json
from pathlib import Path

import pytest

from askwell.answers.candidates import load_candidates
from askwell.data.facts import Fact
from askwell.data.importers import READERS, Imported, ImportFormat, import_data
from askwell.data.names import load_prompts, load_relation
from askwell.errors import BadFile, BadOption, NothingLeft, UsageError


def bring(form: ImportFormat, source: Path, out: Path, name: str | None = None) -> dict:
    return import_data(form, source, out, name).as_json(out)


def tree(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def lines(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def trex(x: str, y: str) -> dict:
    return {
        "uuid": "5", "obj_uri": "Q1", "obj_label": y, "sub_uri": "Q2", "sub_label": x, "predicate_id": "P19",
        "evidences": [{"sub_surface": x, "obj_surface": y, "masked_sentence": f"{x} was born in [MASK] ."}],
    }  # fmt: skip


# --- LAMA


@pytest.fixture
def lama(write, tmp_path) -> Path:
    write("lama/TREx/P19.jsonl", [trex("Ada", "London"), trex(" Bo ", "Oslo"), trex("Ada", "London"), trex("", "Rome")])
    write("lama/TREx/P20.jsonl", [trex("Ada", "London")])
    write(
        "lama/Google_RE/date_of_birth_test.jsonl",
        [{"pred": "/people/person/date_of_birth", "sub": "/m/09gb0bw", "obj": "1941", "sub_w": None,
          "sub_label": "Peter F. Martin", "obj_label": "1941", "masked_sentences": ["… (born [MASK])."]}],
    )  # fmt: skip
    write(
        "lama/ConceptNet/test.jsonl",
        [
            {"sub": "alive", "obj": "think", "pred": "HasSubevent", "obj_label": "think",
             "masked_sentences": ["One of the things you do when you are alive is [MASK]."], "uuid": "d4"},
            {"sub": "book", "obj": "library", "pred": "AtLocation", "obj_label": "library", "masked_sentences": []},
            {"masked_sentences": ["[MASK] is grey."], "obj_label": "it"},
        ],
    )  # fmt: skip
    write(
        "lama/Squad/test.jsonl", [{"masked_sentences": ["The [MASK] Sea."], "obj_label": "Red", "sub_label": "Squad"}]
    )
    write(
        "lama/relations.jsonl",
        [
            {"relation": "P19", "template": "[X] was born in [Y] .", "label": "place of birth", "type": "N-1"},
            {"relation": "P20", "template": "[X] died in [Y] .", "label": "place of death", "type": "N-1"},
            {"relation": "P0", "template": "[X] and [Y] and [Y] .", "label": "two blanks for y"},
        ],
    )
    return tmp_path / "lama"


def test_lama_is_imported_as_facts_and_prompts(lama, tmp_path):
    out = tmp_path / "out"
    counts = bring("lama", lama, out)
    assert tree(out) == [
        "facts/lama_conceptnet/AtLocation.jsonl",
        "facts/lama_conceptnet/HasSubevent.jsonl",
        "facts/lama_google_re/date_of_birth.jsonl",
        "facts/lama_trex/P19.jsonl",
        "facts/lama_trex/P20.jsonl",
        "prompts/lama_trex/P19.jsonl",
        "prompts/lama_trex/P20.jsonl",
    ]
    assert lines(out / "facts/lama_trex/P19.jsonl") == [
        {"sub": "Ada", "obj": "London"},
        {"sub": "Bo", "obj": "Oslo"},
        {"sub": "Ada", "obj": "London"},
    ]
    assert lines(out / "facts/lama_google_re/date_of_birth.jsonl") == [{"sub": "Peter F. Martin", "obj": "1941"}]
    assert lines(out / "facts/lama_conceptnet/HasSubevent.jsonl") == [{"sub": "alive", "obj": "think"}]
    assert lines(out / "prompts/lama_trex/P20.jsonl") == [{"template": "[X] died in [Y] ."}]
    assert counts["files"] == 5
    assert counts["lines"] == 4 + 1 + 1 + 3 + 3
    assert counts["facts"]["lama_trex"] == {"relations": 2, "facts": 4}
    assert sum(counts["left_out"].values()) == 3
    assert counts["left_out"]["x or y is empty"] == 1
    assert any("2 times [Y]" in reason for reason in counts["left_out"])
    assert list(counts["skipped"]) == [str(lama / "Squad")]


def test_lama_from_the_folder_above_under_another_name(lama, tmp_path):
    (tmp_path / "repository").mkdir()
    lama.rename(tmp_path / "repository" / "data")
    bring("lama", tmp_path / "repository", tmp_path / "out", "mine")
    assert (tmp_path / "out/facts/mine_trex/P19.jsonl").exists()


# --- LPAQA


def test_lpaqa_is_imported_as_prompts_with_weights(write, tmp_path):
    write(
        "lpaqa/prompt/mine/P19.jsonl",
        [{"template": "[X] was born in [Y] .", "weight": 0.003614419372752309}, {"template": "[Y] native [X] ."}],
    )
    write("lpaqa/prompt/paraphrase/P19.jsonl", [{"template": "[X] is born in [Y].", "weight": 1}])
    write("lpaqa/prompt/manual_paraphrase/P19.txt", "[X] was born in [Y] .\n[X] is from [Y].\n\n[X] was born.\n")
    out = tmp_path / "out"
    counts = bring("lpaqa", tmp_path / "lpaqa", out)
    assert tree(out) == [
        "prompts/lpaqa_manual_paraphrase/P19.jsonl",
        "prompts/lpaqa_mine/P19.jsonl",
        "prompts/lpaqa_paraphrase/P19.jsonl",
    ]
    weights = [template.weight for template in load_prompts("lpaqa_mine/P19", data=out)]
    assert weights == [0.003614419372752309, None]
    assert [template.text for template in load_prompts("lpaqa_manual_paraphrase/P19", data=out)] == [
        "[X] was born in [Y] .",
        "[X] is from [Y].",
    ]
    assert (counts["files"], counts["lines"], sum(counts["left_out"].values())) == (3, 6, 1)


@pytest.mark.parametrize("weight", [-1, "much", True, float("inf"), float("nan")])
def test_lpaqa_weights_must_be_numbers(write, tmp_path, weight):
    write("lpaqa/mine/P19.jsonl", [{"template": "[X] [Y]", "weight": 1}, {"template": "[Y] [X]", "weight": weight}])
    with pytest.raises(BadFile, match=r"P19\.jsonl, line 2: 'weight'"):
        READERS["lpaqa"](Imported(), tmp_path / "lpaqa", "lpaqa")


# --- AutoPrompt


def test_autoprompt_is_imported_as_splits_and_prompts(write, tmp_path):
    fact = {"sub_uri": "Q2", "obj_uri": "Q4", "sub_label": "Al-Juwayni", "obj_label": "Fiqh"}
    for split in ("train", "dev", "test"):
        write(f"ap/original/P101/{split}.jsonl", [fact | {"sub_label": split}])
    write("ap/original/P101/P101.jsonl", [fact])
    for split in ("train", "dev"):
        write(f"ap/original/P1001/{split}.jsonl", [fact])
    write(
        "ap/prompts/fact_retrieval_roberta_prompts.jsonl",
        [
            {"relation": "P101", "template": " [X] 1830 dissertation applying mathsucci [Y] ."},
            {"relation": "P103", "template": "<s> {sub_label} speaks only <mask> . </s>"},
            {"relation": "P106", "template": "[CLS] {sub_label} [T] [T] [P] . [SEP]"},
            {"relation": "P108", "template": "[CLS] {sub_label} works at [P]. [SEP]"},
        ],
    )
    write("ap/notes.jsonl", [{"seed": 1}])
    out = tmp_path / "out"
    counts = bring("autoprompt", tmp_path / "ap", out)
    assert tree(out) == [
        "facts/autoprompt_original/P101/dev.jsonl",
        "facts/autoprompt_original/P101/test.jsonl",
        "facts/autoprompt_original/P101/train.jsonl",
        "prompts/autoprompt_fact_retrieval_roberta/P101.jsonl",
        "prompts/autoprompt_fact_retrieval_roberta/P103.jsonl",
        "prompts/autoprompt_fact_retrieval_roberta/P108.jsonl",
    ]
    relation = load_relation("autoprompt_original/P101", data=out)
    assert (relation.train, relation.dev, relation.test) == (
        (Fact("train", "Fiqh"),),
        (Fact("dev", "Fiqh"),),
        (Fact("test", "Fiqh"),),
    )
    texts = {
        name: load_prompts(f"autoprompt_fact_retrieval_roberta/{name}", data=out)[0].text
        for name in ("P101", "P103", "P108")
    }
    assert texts == {
        "P101": "[X] 1830 dissertation applying mathsucci [Y] .",
        "P103": "[X] speaks only [Y] .",
        "P108": "[X] works at [Y].",
    }
    assert counts["left_out"] == {"its trigger tokens or its context are not filled in": 1}
    skipped = {Path(path).name: reason for path, reason in counts["skipped"].items()}
    assert set(skipped) == {"P101.jsonl", "P1001", "notes.jsonl"}
    assert skipped["P1001"] == "has no facts in test"


def test_autoprompts_published_file_alone(shared_data, tmp_path):
    counts = bring("autoprompt", shared_data / "prompts" / "autoprompt" / "bert.jsonl", tmp_path / "out")
    assert counts["prompts"] == {"autoprompt_bert": {"relations": 41, "prompts": 41}}


# --- OptiPrompt


def test_optiprompt_is_imported_as_splits_prompts_and_vocabulary(write, tmp_path):
    for split in ("train", "dev", "test"):
        write(f"op/data/autoprompt_data/P17/{split}.jsonl", [{"sub_label": split, "obj_label": "Italy"}])
    write("op/data/LAMA-TREx/P17.jsonl", [trex("Rome", "Italy")])
    write("op/data/LAMA-TREx-easy-hard/Easy/P17.jsonl", [trex("Rome", "Italy")])
    write("op/relation_metainfo/LAMA_relations.jsonl", [{"relation": "P17", "template": "[X] is located in [Y] ."}])
    write("op/relation_metainfo/AutoPrompt_relations.jsonl", [{"relation": "P17", "template": "[X] is led [Y]."}])
    write("op/common_vocabs/common_vocab_cased.txt", "#\n%\nParis\n  Café\nParis\n")
    write("op/requirements.txt", "torch\n")
    out = tmp_path / "out"
    counts = bring("optiprompt", tmp_path / "op", out)
    assert tree(out) == [
        "facts/optiprompt_autoprompt_data/P17/dev.jsonl",
        "facts/optiprompt_autoprompt_data/P17/test.jsonl",
        "facts/optiprompt_autoprompt_data/P17/train.jsonl",
        "facts/optiprompt_lama-trex-easy-hard_easy/P17.jsonl",
        "facts/optiprompt_lama-trex/P17.jsonl",
        "prompts/optiprompt_autoprompt/P17.jsonl",
        "prompts/optiprompt_lama/P17.jsonl",
        "vocab/optiprompt/common_vocab_cased.txt",
    ]
    assert load_candidates(out / "vocab/optiprompt/common_vocab_cased.txt").words == ("#", "%", "Paris", "Café")
    assert counts["words"] == {"optiprompt": {"lists": 1, "words": 4}}
    assert counts["skipped"] == {}


def test_optiprompts_data_folder_alone(write, tmp_path):
    for split in ("train", "dev", "test"):
        write(f"autoprompt_data/P17/{split}.jsonl", [{"sub_label": split, "obj_label": "Italy"}])
    bring("optiprompt", tmp_path / "autoprompt_data", tmp_path / "out")
    assert len(tree(tmp_path / "out/facts/optiprompt/P17")) == 3


# --- BEAR


@pytest.fixture
def bear(write, tmp_path) -> Path:
    about = {
        "P30": {
            "templates": ["[X] is located in [Y].", "[Y] holds [X]."],
            "answer_space_labels": ["Africa", "Antarctica", "Asia"],
            "answer_space_ids": ["Q15", "Q51", "Q48"],
        },
        "P36": {"name": "capital", "templates": ["The capital of [X] is [Y]."], "answer_space": ["Rabat", "Juba"]},
        "P37": {"templates": []},
    }
    write("BEAR/metadata_relations.json", json.dumps(about))
    write(
        "BEAR/P30.jsonl",
        [
            {"sub_id": "Q31", "sub_label": "Lavoisier Island", "sub_aliases": [], "obj_id": "Q51",
             "obj_label": "Antarctica", "answer_idx": 1},
            {"sub_id": "Q114", "sub_label": "Kenya", "obj_id": "Q15"},
            {"sub_id": "Q17", "sub_label": "Japan", "answer_idx": 2},
        ],
    )  # fmt: skip
    write("BEAR/P36.jsonl", [{"sub_id": "Q1028", "sub_label": "Morocco", "obj_id": "Q3551", "obj_label": "Rabat"}])
    write("BEAR/P99.jsonl", [{"sub_label": "a", "obj_label": "b"}])
    write("relation_info.json", json.dumps({"P30": {"domains": ["Geographic"]}}))
    return tmp_path / "BEAR"


def test_bear_is_imported_as_facts_prompts_and_vocabularies(bear, tmp_path):
    out = tmp_path / "out"
    counts = bring("bear", bear, out)
    assert tree(out) == [
        "facts/bear/P30.jsonl",
        "facts/bear/P36.jsonl",
        "prompts/bear/P30.jsonl",
        "prompts/bear/P36.jsonl",
        "vocab/bear/P30.txt",
        "vocab/bear/P36.txt",
    ]
    assert lines(out / "facts/bear/P30.jsonl") == [
        {"sub": "Lavoisier Island", "obj": "Antarctica"},
        {"sub": "Kenya", "obj": "Africa"},
        {"sub": "Japan", "obj": "Asia"},
    ]
    assert [template.text for template in load_prompts("bear/P30", data=out)] == [
        "[X] is located in [Y].",
        "[Y] holds [X].",
    ]
    assert load_candidates(out / "vocab/bear/P30.txt").words == ("Africa", "Antarctica", "Asia")
    assert {Path(path).name for path in counts["skipped"]} == {"P37.jsonl", "P99.jsonl"}


def test_bear_from_the_folder_above(bear, tmp_path):
    bear.rename(tmp_path / "BEAR-big")
    bring("bear", tmp_path, tmp_path / "out")
    assert (tmp_path / "out/facts/bear-big/P30.jsonl").exists()


def test_bear_without_metadata(tmp_path):
    with pytest.raises(BadFile, match=r"metadata_relations\.json: there is no such file"):
        READERS["bear"](Imported(), tmp_path, "bear")


def test_bear_metadata_of_another_form(write, tmp_path):
    path = write("b/metadata_relations.json", '{"P30": {"templates": "[X] [Y]"}}')
    with pytest.raises(BadFile, match="'templates' of 'P30' must be a list"):
        READERS["bear"](Imported(), path.parent, "bear")
    path.write_text('{\n"P30": \n}')
    with pytest.raises(BadFile, match=r"metadata_relations\.json, line 3: broken JSON"):
        READERS["bear"](Imported(), path.parent, "bear")


# --- all


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("TREx/P19.jsonl", '{"sub_label": "a", "obj_label": "b"}\n{oops', r"P19\.jsonl, line 2: broken JSON"),
        ("TREx/P19.jsonl", '{"sub_label": "a", "obj_label": "b"}\n\n[1]', r"P19\.jsonl, line 3: expected an obj"),
        ("TREx/P19.jsonl", '{"sub": "a", "obj": "b"}', r"P19\.jsonl, line 1: 'sub_label' must be text"),
        ("TREx/P19.jsonl", '{"sub_label": "a", "obj_label": 3}', r"P19\.jsonl, line 1: 'obj_label' must be text"),
        ("TREx/P19.jsonl", '{"sub_label": "\\ud800", "obj_label": "b"}', r"P19\.jsonl, line 1: .*half a character"),
        ("TREx/P19.jsonl", b'{"sub_label": "\xff"}', r"P19\.jsonl, line 1: not UTF-8"),
        ("relations.jsonl", '{"template": "[X] [Y]"}', r"relations\.jsonl, line 1: 'relation' must be text"),
        (
            "relations.jsonl",
            '{"relation": "../P1", "template": "[X] [Y]"}',
            r"relations\.jsonl, line 1: '\.\./P1' cannot",
        ),
        (
            "ConceptNet/test.jsonl",
            '{"sub": "a", "pred": "a/b", "obj_label": "b"}',
            r"test\.jsonl, line 1: 'a/b' cannot",
        ),
    ],
)
def test_errors_name_file_and_line(write, tmp_path, name, content, message):
    write(f"lama/{name}", content)
    with pytest.raises(BadFile, match=message):
        READERS["lama"](Imported(), tmp_path / "lama", "lama")


@pytest.mark.parametrize("form", list(READERS))
def test_a_source_that_is_no_folder(write, tmp_path, form):
    with pytest.raises(BadFile, match="there is no such file or folder"):
        READERS[form](Imported(), tmp_path / "absent", form)
    with pytest.raises(BadFile, match=r"is a file; name the folder.*unpack it first"):
        READERS[form](Imported(), write("data.tar.gz", b"x"), form)


@pytest.mark.parametrize("form", [form for form in READERS if form != "bear"])
def test_a_folder_with_nothing_in_it(tmp_path, form):
    (tmp_path / "empty").mkdir()
    with pytest.raises(NothingLeft):
        bring(form, tmp_path / "empty", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_nothing_is_overwritten_and_nothing_half_written(lama, tmp_path):
    out = tmp_path / "out"
    (out / "prompts" / "lama_trex").mkdir(parents=True)
    with pytest.raises(BadOption, match=r"`out` already has .*prompts/lama_trex; .*`name`"):
        bring("lama", lama, out)
    assert tree(out) == []
    with pytest.raises(UsageError, match="is a file"):
        bring("lama", lama, lama / "relations.jsonl")
