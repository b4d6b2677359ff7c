"""Small files in the layouts that PopQA, EntityQuestions and LM-KBC publish."""

import contextlib
import json

import pytest

from askwell.data.facts import Fact
from askwell.data.importers import import_data
from askwell.data.names import load_prompts
from askwell.data.readers import parse_facts, parse_json
from askwell.errors import BadFile


def test_popqa(tmp_path):
    rows = [("Ann Lee", "occupation", "actor", '["actor", "actress"]', "What is Ann Lee's occupation?")]
    rows += [("Bo", "occupation", "poet", '["poet"]', "What is Bo's occupation?")]
    header = "subj\tprop\tobj\tpossible_answers\tquestion\n"

    def text(of):
        return header + "".join(
            "\t".join(f'"{field.replace(chr(34), chr(34) * 2)}"' for field in row) + "\n" for row in of
        )

    (tmp_path / "p.tsv").write_text(text(rows))
    import_data("popqa", tmp_path / "p.tsv", tmp_path / "out")
    facts = parse_facts(tmp_path / "out/facts/popqa/occupation.jsonl")
    assert facts == [Fact("Ann Lee", "actor"), Fact("Bo", "poet")]
    assert [fact.aliases for fact in facts] == [("actress",), ()]
    (template,) = load_prompts([str(tmp_path / "out/prompts/popqa/occupation.jsonl")])
    assert template.text == "What is [X]'s occupation? [Y]"
    (tmp_path / "q.tsv").write_text(text([rows[0], (*rows[1][:3], "poet", rows[1][4])]))
    with pytest.raises(BadFile, match=r"q\.tsv.*3.*possible_answers"):
        import_data("popqa", tmp_path / "q.tsv", tmp_path / "other")


@pytest.mark.parametrize("listed", ["[" * 5000, f"[{'9' * 5000}]", '["\\ud800"]', "{", "[1]"])
def test_popqa_with_answers_that_are_no_texts(listed, tmp_path):
    (tmp_path / "p.tsv").write_text(f"subj\tprop\tobj\tpossible_answers\tquestion\na\tr\tb\t{listed}\tWhere is a?\n")
    with pytest.raises(BadFile, match=r"p\.tsv, line 2: 'possible_answers' must be a JSON list of texts"):
        import_data("popqa", tmp_path / "p.tsv", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_json_of_any_depth_is_read_or_refused(tmp_path):
    """Two depths could be read, but not be looked through for halves of characters."""
    for depth in range(900, 1100):
        with contextlib.suppress(BadFile):
            parse_json(tmp_path, 1, "[" * depth + '"\\u0041"' + "]" * depth)


def test_a_blank_alias_is_none(tmp_path):
    (tmp_path / "p.tsv").write_text(
        'subj\tprop\tobj\tpossible_answers\tquestion\na\tr\tb\t["b ", " ", " c"]\tWhere is a?\n'
    )
    import_data("popqa", tmp_path / "p.tsv", tmp_path / "out")
    (fact,) = parse_facts(tmp_path / "out/facts/popqa/r.jsonl")
    assert fact.aliases == ("c",)


@pytest.mark.parametrize(
    ("text", "told"), [("\ud800", "half a character"), ("a" * 200_000, "a text of entry 1 has 200,000 characters")]
)
def test_entity_questions_with_texts_that_could_not_be_read_back(text, told, tmp_path):
    for split in ("train", "dev", "test"):
        (tmp_path / f"P17.{split}.json").write_text(json.dumps([{"question": text, "answers": ["Peru"]}]))
    with pytest.raises(BadFile, match=told):
        import_data("entity-questions", tmp_path, tmp_path / "out")


def test_entity_questions(tmp_path):
    (tmp_path / "in").mkdir()
    for split in ("train", "dev", "test"):
        entry = {"question": f"Where is {split}?", "answers": ["Peru", "Republic of Peru"]}
        (tmp_path / "in" / f"P17.{split}.json").write_text(json.dumps([entry]))
    import_data("entity-questions", tmp_path / "in", tmp_path / "out", "eq")
    (fact,) = parse_facts(tmp_path / "out/facts/eq/P17/dev.jsonl")
    assert (fact, fact.aliases) == (Fact("Where is dev?", "Peru"), ("Republic of Peru",))
    assert [one.text for one in load_prompts([str(tmp_path / "out/prompts/eq/P17.jsonl")])] == ["[X] [Y]"]
    (tmp_path / "in" / "P17.dev.json").write_text('[{"question": "Where?", "answers": []}]')
    with pytest.raises(BadFile, match=r"P17\.dev\.json.*entry 1"):
        import_data("entity-questions", tmp_path / "in", tmp_path / "other")


def test_lm_kbc(tmp_path):
    lines = [("Peru", ["Chile", ["Brazil", "Brasil"]]), ("Malta", [])]
    records = [{"SubjectEntity": x, "Relation": "borders", "ObjectEntities": ys} for x, ys in lines]
    (tmp_path / "k.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    import_data("lm-kbc", tmp_path / "k.jsonl", tmp_path / "out")
    facts = parse_facts(tmp_path / "out/facts/lm-kbc/borders.jsonl")
    assert facts == [Fact("Peru", "Chile"), Fact("Peru", "Brazil"), Fact("Malta", "None")]
    assert facts[1].aliases == ("Brasil",)
    (tmp_path / "b.jsonl").write_text('{"SubjectEntity": "Peru", "Relation": "r", "ObjectEntities": "Chile"}\n')
    with pytest.raises(BadFile, match=r"b\.jsonl.*1.*ObjectEntities"):
        import_data("lm-kbc", tmp_path / "b.jsonl", tmp_path / "other")
