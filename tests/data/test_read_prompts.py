"""Prompts from text, files and the data folder."""

import json
from pathlib import Path

import pytest

from askwell.data.names import load_prompts
from askwell.data.templates import parse_template, read_templates
from askwell.errors import BadFile, BadTemplate


@pytest.fixture(autouse=True)
def no_data_folder_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ASKWELL_DATA", raising=False)


def lines(path: Path, *records: object) -> str:
    path.write_text("".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records), encoding="utf-8")
    return str(path)


def test_text_as_it_is_typed() -> None:
    assert load_prompts("[X] is [Y]") == [parse_template("[X] is [Y]")]
    assert [t.text for t in load_prompts(["[Y] : [X]", "[X] is [Y]"])] == ["[Y] : [X]", "[X] is [Y]"]
    with pytest.raises(BadTemplate, match=r"has no \[Y\]"):
        load_prompts("[X] is")


def test_templates_and_weights_are_read_from_json_lines(tmp_path: Path) -> None:
    source = lines(
        tmp_path / "p.jsonl",
        {"template": "[X] is in [Y] .", "weight": 0.25, "relation": "P19"},
        {"template": "[Y] : [X]", "weight": 0},
        {"template": "Ö [X] — [Y]", "weight": None},
        {"template": "[X] [Y]"},
    )
    templates = load_prompts(source)
    assert [t.text for t in templates] == ["[X] is in [Y] .", "[Y] : [X]", "Ö [X] — [Y]", "[X] [Y]"]
    assert [t.weight for t in templates] == [0.25, 0, None, None]


def test_plain_text_with_blank_lines_and_windows_ends(tmp_path: Path) -> None:
    path = tmp_path / "p.txt"
    path.write_bytes("\ufeff[X] is [Y] .\r\n\r\n  [Y], [X]  \n".encode())
    assert [t.text for t in load_prompts(str(path))] == ["[X] is [Y] .", "[Y], [X]"]


def test_several_sources_in_their_order(tmp_path: Path) -> None:
    one, two = tmp_path / "one.txt", tmp_path / "two.txt"
    one.write_text("[X] one [Y]\n")
    two.write_text("[X] two [Y]\n")
    templates = load_prompts([str(two), "[X] three [Y]", str(one)])
    assert [t.text for t in templates] == ["[X] two [Y]", "[X] three [Y]", "[X] one [Y]"]


def test_a_name_in_the_data_folder(tmp_path: Path) -> None:
    folder = tmp_path / "prompts" / "trex"
    folder.mkdir(parents=True)
    lines(folder / "P19.jsonl", {"template": "[X] is [Y]"})
    assert [t.text for t in load_prompts("trex/P19", data=tmp_path)] == ["[X] is [Y]"]
    with pytest.raises(BadFile, match=r"Did you mean trex/P19\?"):
        load_prompts("P19", data=tmp_path)


GOOD_LINE = '{"template": "[X] is [Y]"}\n'
BROKEN = {
    "no JSON": (GOOD_LINE + "\n{oops\n", 3, "broken JSON"),
    "a list": ('["[X] is [Y]"]\n', 1, "but this is a list"),
    "no template": (GOOD_LINE * 2 + '{"text": "[X] is [Y]"}\n', 3, "'template' must be text"),
    "a template that is no text": ('{"template": 7}', 1, "'template' must be text"),
    "a template without y": (GOOD_LINE + '{"template": "[X] is"}', 2, r"has no \[Y\]"),
    "a negative weight": ('{"template": "[X] [Y]", "weight": -0.5}', 1, "'weight' is -0.5"),
    "a weight in words": (GOOD_LINE + '{"template": "[X] [Y]", "weight": "0.5"}', 2, "'weight' is '0.5'"),
    "a weight that is true": ('{"template": "[X] [Y]", "weight": true}', 1, "'weight' is True"),
    "a weight that is NaN": ('{"template": "[X] [Y]", "weight": NaN}', 1, "'weight' is nan"),
    "an infinite weight": ('{"template": "[X] [Y]", "weight": 1e999}', 1, "'weight' is inf"),
    "a weight beyond floats": ('{"template": "[X] [Y]", "weight": 1' + "0" * 400 + "}", 1, "'weight' is"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_broken_jsonl_names_its_line(case: str, tmp_path: Path) -> None:
    content, line, problem = BROKEN[case]
    path = tmp_path / "broken.jsonl"
    path.write_text(content)
    with pytest.raises(BadFile, match=problem) as refusal:
        load_prompts(str(path))
    assert refusal.value.line == line
    assert f"broken.jsonl, line {line}: " in str(refusal.value)


def test_broken_plain_text_names_its_line(tmp_path: Path) -> None:
    path = tmp_path / "broken.txt"
    path.write_text("[X] is [Y]\n\n[X] is\n")
    with pytest.raises(BadFile, match=r"broken\.txt, line 3: .*has no \[Y\]"):
        load_prompts(str(path))


@pytest.mark.parametrize("content", ["", "\n \n"])
def test_a_file_without_templates_is_refused(content: str, tmp_path: Path) -> None:
    for name in ("empty.txt", "empty.jsonl"):
        (tmp_path / name).write_text(content)
        with pytest.raises(BadFile, match="holds no templates"):
            load_prompts(str(tmp_path / name))


def test_what_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(BadFile, match="no such file"):
        load_prompts(str(tmp_path / "missing.jsonl"))
    with pytest.raises(BadFile, match="is a folder"):
        load_prompts(str(tmp_path))


def test_a_file_that_is_not_utf8(tmp_path: Path) -> None:
    path = tmp_path / "latin.txt"
    path.write_bytes("[X] is [Y]\n[X] l\xe4uft [Y]\n".encode("latin-1"))
    with pytest.raises(BadFile, match="not UTF-8"):
        load_prompts(str(path))


def test_lines_that_begin_with_a_hash_are_comments(tmp_path):
    path = tmp_path / "prompts.txt"
    path.write_text("# capitals\n[X] is ruled from [Y] .\n  # more\n[X] # [Y]\n", encoding="utf-8")
    assert [template.text for template in read_templates(path)] == ["[X] is ruled from [Y] .", "[X] # [Y]"]


def test_all_lines_that_are_no_templates_are_named(tmp_path):
    path = tmp_path / "prompts.txt"
    path.write_text("[X] is\n[X] is [Y]\n[Y] is\n", encoding="utf-8")
    with pytest.raises(BadFile) as mistake:
        read_templates(path)
    assert "2 lines" in str(mistake.value)
    assert "line 1" in str(mistake.value)
    assert "line 3" in str(mistake.value)
    path.write_text("nothing\n" * 25, encoding="utf-8")
    with pytest.raises(BadFile, match="and 15 more"):
        read_templates(path)
