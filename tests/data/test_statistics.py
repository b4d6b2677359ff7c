"""The paper's tables, from the released data and from a folder small enough to count by hand."""

import json
from pathlib import Path

import pytest
from paper_statistics import prompt_statistics, relation_statistics

from askwell.errors import BadFile

# The two cells that the paper misprints, as counted by a separate script over the raw lines.
MISPRINTS = {
    ("relation_statistics", "trex_original", "avg_unique_x"): (1580, 1581),
    ("relation_statistics", "conceptnet", "avg_unique_y"): (507, 552),
}


def cells(tables: dict) -> dict[tuple[str, str, str], float]:
    return {
        (title, name, key): value
        for title in ("relation_statistics", "prompt_statistics")
        for name, row in tables[title].items()
        for key, value in row.items()
    }


def tables_of(data: Path) -> dict:
    return {"relation_statistics": relation_statistics(data), "prompt_statistics": prompt_statistics(data)}


def test_every_cell_of_the_papers_tables(shared_data):
    path = shared_data.parent / "paper_tables.json"
    if not path.exists():
        pytest.skip("the paper's tables are not here: paper_tables.json lies beside the folder data of ASKWELL_SHARED")
    printed = cells(json.loads(path.read_text()))
    for cell, (misprint, counted) in MISPRINTS.items():
        assert printed[cell] == misprint
        printed[cell] = counted
    ours = tables_of(shared_data)
    assert len(printed) == 4 * 6 + 6 * 5
    assert cells(ours) == printed


@pytest.fixture
def data(write, tmp_path):
    def facts(*pairs: str) -> list[dict[str, str]]:
        return [{"sub": pair[0], "obj": pair[1]} for pair in pairs]

    write("data/facts/google_re/born/train.jsonl", facts("aX", "bX", "bX", "cY"))
    write("data/facts/google_re/born/dev.jsonl", facts("aX"))
    write("data/facts/google_re/born/test.jsonl", facts("dZ", "dW"))
    write("data/facts/google_re/died.jsonl", facts("aX", "bY", "bY"))
    write("data/prompts/google_re_mine/born.jsonl", [{"template": "[X] was born in [Y]."}, {"template": "[Y] [X]"}])
    write("data/prompts/google_re_mine/died.jsonl", [{"template": " [X]  died\u00a0in [Y] . ", "weight": 0.5}])
    return tmp_path / "data"


def test_relations_counted_by_hand(data):
    # born: 7 lines, x in {a, b, c, d}, y in {X, Y, Z, W}; died: 3 lines, 2 x, 2 y.
    assert relation_statistics(data) == {
        "trex_original": None,
        "trex_extended": None,
        "google_re": {
            "relations": 2,
            "avg_unique_x": 3,
            "avg_unique_y": 3,
            "min_pairs": 3,
            "max_pairs": 7,
            "mean_pairs": 5,
        },
        "conceptnet": None,
    }


def test_prompts_counted_by_hand(data):
    # Pieces: [X] was born in [Y]. → 5; [Y] [X] → 2; [X] died in [Y] . → 5. Their mean is 4; that of the relations'
    # means would be 4.25.
    tables = prompt_statistics(data)
    assert tables.pop("google_re-min") == {
        "relations": 2,
        "avg_prompts": 1.5,
        "min_prompts": 1,
        "max_prompts": 2,
        "avg_tokens": 4.0,
    }
    assert set(tables.values()) == {None}
    assert set(tables) == {"trex-min", "trex-par", "google_re-sin", "google_re-par", "conceptnet"}


def test_json_has_null_for_what_is_missing(data):
    tables = json.loads(json.dumps(tables_of(data)))
    assert tables["relation_statistics"]["conceptnet"] is None
    assert tables["relation_statistics"]["google_re"]["mean_pairs"] == 5


def test_half_a_relation_is_an_error_that_names_the_file(data):
    (data / "facts/google_re/born/dev.jsonl").unlink()
    with pytest.raises(BadFile, match=r"born/dev\.jsonl"):
        relation_statistics(data)
