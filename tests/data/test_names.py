"""Built-in names, names in a data folder and paths are all resolved."""

import json

import pytest

from askwell.data.names import load_prompts, load_relation, relation_label, relations_of
from askwell.errors import BadOption, LMUnavailable
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
