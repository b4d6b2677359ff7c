"""Built-in names, names in a data folder and paths are all resolved."""

import json

import pytest

from askwell.data.names import (
    load_prompts,
    load_relation,
    read_fact_set,
    relation_label,
    relations_of,
    short_name,
)
from askwell.errors import BadFile, BadOption, LMUnavailable
from askwell.lms.load import load_lm


def test_a_relation_of_the_testbed():
    capitals = load_relation("testbed:capital")
    assert capitals.name == "testbed:capital"
    assert any(fact.x == "France" and fact.y == "Paris" for fact in (*capitals.train, *capitals.dev, *capitals.test))
    with pytest.raises(BadOption, match="did you mean capital"):
        load_relation("testbed:capitol")
    with pytest.raises(BadOption, match="already split"):
        load_relation("testbed:capital", split="random")


def test_prompts_of_the_testbed_know_their_relation():
    capitals = load_relation("testbed:capital")
    single = load_prompts("testbed:single", relation=capitals)
    assert len(single) == 1
    assert load_prompts("testbed:single/capital") == single
    assert load_prompts(["testbed:single", "[X] [Y]"], relation="testbed:capital")[0] == single[0]
    mined = load_prompts("testbed:mined", relation=capitals)
    assert len(mined) >= 12
    assert all(template.weight is not None for template in mined)
    for relation in (None, "trex/P36"):
        with pytest.raises(BadOption, match="testbed:single/capital"):
            load_prompts("testbed:single", relation=relation)
    with pytest.raises(BadOption, match="paraphrased"):
        load_prompts("testbed:paraphrase", relation=capitals)


def test_files_are_still_found(tmp_path):
    (tmp_path / "p.jsonl").write_text(json.dumps({"template": "[X] in [Y]"}))
    assert load_prompts(str(tmp_path / "p.jsonl"))[0].text == "[X] in [Y]"


def test_a_set_is_a_folder_of_folders_or_of_files(tmp_path):
    data = tmp_path / "data" / "facts" / "quiz"
    (tmp_path / "own" / "a.b").mkdir(parents=True)
    data.mkdir(parents=True)
    lines = "x,y\n" + "".join(f"x{number},y{number}\n" for number in range(20))
    for file in (data / "P36.csv", data / "P30.csv", tmp_path / "own" / "a.b" / "train.jsonl"):
        file.write_text(lines)
    (data / "README.md").write_text("Two relations.")
    assert relations_of("quiz", tmp_path / "data") == ["quiz/P30", "quiz/P36"]
    assert relations_of("quiz/P36", tmp_path / "data") == ["quiz/P36"]
    assert relations_of(str(data), None) == [f"{data}/P30.csv", f"{data}/P36.csv"]
    assert relations_of(str(tmp_path / "own"), None) == [f"{tmp_path}/own/a.b"]
    assert [short_name(name) for name in ("quiz/P36", f"{data}/P36.csv", "own/a.b", "testbed:capital")] == [
        "P36", "P36", "a.b", "testbed:capital",
    ]  # fmt: skip
    assert load_relation("quiz/P36", data=tmp_path / "data").name == "quiz/P36"
    assert [read.name for read in read_fact_set(str(data)).relations] == ["P30", "P36"]
    assert all(read.train and read.test for read in read_fact_set(str(data)).relations)
    with pytest.raises(BadFile, match=r"holds 2 of them: name one \(P30\.csv, P36\.csv\)"):
        load_relation("quiz", data=tmp_path / "data")
    (data / "test.csv").write_text(lines)  # the splits of one relation, which have to be .jsonl
    assert relations_of("quiz", tmp_path / "data") == ["quiz"]


def test_names_of_the_second_testbed():
    realms = load_relation("testbed2:realm")
    assert realms.name == "testbed2:realm"
    mined = load_prompts("testbed2:mined", relation=realms)
    assert mined == load_prompts("testbed2:mined/realm")
    assert len(mined) >= 12
    with pytest.raises(BadOption, match="testbed:mined/capital"):
        load_prompts("testbed:mined", relation=realms)
    with pytest.raises(BadOption, match="testbed2:mined/berth"):
        load_prompts("testbed2:mined", relation="testbed:capital")
    with pytest.raises(BadOption, match="no relation 'realms' in the testbed; did you mean realm"):
        load_relation("testbed2:realms")
    assert len(relations_of("testbed2:", None)) == 11
    assert relation_label("testbed2:birthplace") == "birthplace"


def test_an_lm_that_the_testbed_lacks():
    with pytest.raises(LMUnavailable, match="did you mean roberta"):
        load_lm("testbed:robert")


def test_an_lm_that_was_not_pulled(tmp_path, monkeypatch):
    monkeypatch.setenv("ASKWELL_CACHE", str(tmp_path))
    with pytest.raises(LMUnavailable, match="askwell lm pull smollm2"):
        load_lm("smollm2")
