"""`askwell data …` as a shell runs it."""

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import pytest

from askwell.data import published as catalogue

BORN = [{"sub": x, "obj": y} for x, y in (("Ada", "London"), ("Bo", "Oslo"), ("Cy", "Rome"), ("Di", "London"))]
FILES = {
    "facts/google_re/place_of_birth/train.jsonl": BORN[:2],
    "facts/google_re/place_of_birth/dev.jsonl": BORN[2:3],
    "facts/google_re/place_of_birth/test.jsonl": BORN[3:],
    "prompts/google_re/place_of_birth.jsonl": [{"template": "[X] was born in [Y] ."}],
    "meta/lama_relations.jsonl": [{"relation": "P19", "label": "place of birth", "type": "N-1"}],
}


@pytest.fixture(autouse=True)
def cache(monkeypatch, tmp_path) -> Path:
    monkeypatch.setenv("ASKWELL_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("ASKWELL_DATA_MIRROR", raising=False)
    return tmp_path / "cache" / "data"


@pytest.fixture
def copy(monkeypatch, tmp_path) -> Path:
    """A small copy of the published sets, and their hashes in place of the real ones."""
    manifest = {}
    for name, records in FILES.items():
        path = tmp_path / "copy" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join(map(json.dumps, records)))
        data = path.read_bytes()
        digest = hashlib.sha256(data).hexdigest()
        manifest[name] = {"bytes": len(data), "lines": len(records), "sha256": digest}
    monkeypatch.setattr(catalogue, "_manifest", lambda: manifest)
    held = {name.rpartition("/")[0].removesuffix("/place_of_birth") for name in FILES}
    sets = [replace(data_set) for data_set in catalogue.SETS if data_set.name in held]  # anew, without known files
    monkeypatch.setattr(catalogue, "SETS", tuple(sets))
    return tmp_path / "copy"


def test_names_work_without_a_data_folder_after_a_pull(askwell, copy, cache, lms):
    ask = [
        "evaluate",
        "--lm",
        lms["bert"],
        "--facts",
        "google_re/place_of_birth",
        "--prompts",
        "google_re/place_of_birth",
    ]
    before = askwell(*ask)
    assert before.code == 2
    assert "`askwell data pull` fetches the published sets" in before.err
    pulled = askwell("data", "pull", "--from", copy, "--json")
    assert pulled.code == 0, pulled.err
    assert pulled.json == {
        "folder": str(cache),
        "sets": ["facts/google_re", "prompts/google_re", "meta"],
        "fetched": 5,
        "replaced": 0,
        "already_here": 0,
    }
    after = askwell(*ask)
    # The facts and the prompt are found; that a tiny LM knows none of the words is another matter.
    assert "there is no such file" not in after.err


def test_list_shows_what_is_here_and_what_is_missing(askwell, copy, cache):
    before = askwell("data", "list", "--json").json
    assert before["folder"] == str(cache)
    assert {one["name"]: one["state"] for one in before["sets"]} == {
        "facts/google_re": "missing",
        "prompts/google_re": "missing",
        "meta": "missing",
    }
    facts = before["sets"][0]
    assert (facts["relations"], facts["facts"], facts["files"], facts["licence"]) == (1, 4, 3, "Apache-2.0")
    assert facts["from"] == "hiaoxui/soft-prompts@eb9047e134de25dd9442dc2a809652814a005b4d"
    assert facts["missing"] == [name for name in FILES if name.startswith("facts/")]
    askwell("data", "pull", "prompts", "--from", copy)
    table = askwell("data", "list").out
    assert "1 of 3 sets here" in table
    assert "askwell data pull" in table
    assert "(MIT)" in table
    # A copy that lies elsewhere can be listed, too.
    assert "3 of 3 sets here" in askwell("data", "list", "--data", copy).out


def test_verify_tells_what_is_missing_or_altered(askwell, copy, cache):
    nothing = askwell("data", "verify")
    assert (nothing.code, "askwell data pull" in nothing.err) == (2, True)
    askwell("data", "pull", "facts", "meta", "--from", copy)
    fine = askwell("data", "verify", "--json")
    assert (fine.code, [one["state"] for one in fine.json["sets"]]) == (0, ["here", "missing", "here"])
    assert askwell("data", "verify", "prompts").code == 1
    path = cache / "facts/google_re/place_of_birth/dev.jsonl"
    path.write_bytes(path.read_bytes().replace(b"Rome", b"Pisa"))
    broken = askwell("data", "verify")
    assert broken.code == 1
    assert "facts/google_re: 1 altered" in broken.out
    assert "facts/google_re/place_of_birth/dev.jsonl" in broken.err
    assert "askwell data pull facts/google_re" in broken.err
    assert "(1 in place of altered ones)" in askwell("data", "pull", "facts", "--from", copy).err
    assert askwell("data", "verify").code == 0


def test_pull_says_when_another_folder_is_in_use(askwell, copy, tmp_path, monkeypatch):
    monkeypatch.setenv("ASKWELL_DATA", str(tmp_path))
    assert f"ASKWELL_DATA is set to {tmp_path}" in askwell("data", "pull", "--from", copy).err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["pull", "trex_orginal"], "there is no data set 'trex_orginal'"),
        (["pull", "--from", "/nowhere"], "--from /nowhere is not a folder"),
        (["verify", "nothing"], "there is no data set 'nothing'"),
        (["list", "--data", "/nowhere"], "--data is /nowhere, which is not a folder"),
        (["import", "lama", "/nowhere", "--out", "out"], "/nowhere: there is no such file or folder"),
        (["import", "latin", ".", "--out", "out"], "latin"),
        (["import", "lama", ".", "--out", "out", "--name", "a/b"], "--name 'a/b'"),
    ],
)
def test_mistakes_are_told_in_one_line(askwell, tmp_path, monkeypatch, arguments, said):
    monkeypatch.chdir(tmp_path)
    finished = askwell("data", *arguments)
    assert finished.code == 2
    assert said in finished.err
    assert "Traceback" not in finished.err


def test_a_mirror_that_is_none(askwell, monkeypatch):
    monkeypatch.setenv("ASKWELL_DATA_MIRROR", "somewhere")
    finished = askwell("data", "pull", "meta")
    assert (finished.code, "ASKWELL_DATA_MIRROR" in finished.err) == (2, True)


def test_a_pull_without_a_network(askwell, monkeypatch):
    monkeypatch.setenv("ASKWELL_DATA_MIRROR", "http://127.0.0.1:9")
    monkeypatch.setattr("askwell.data.published._PAUSE", 0.0)
    finished = askwell("data", "pull", "meta")
    assert finished.code == 1
    assert "meta/lama_relations.jsonl could not be fetched" in finished.err
    assert "Connection refused" in finished.err
    assert "Traceback" not in finished.err


def test_import_writes_what_other_commands_read(askwell, tmp_path):
    folder = tmp_path / "BEAR"
    folder.mkdir()
    metadata = {
        "P36": {"templates": ["The capital of [X] is [Y].", "[X] has none."], "answer_space": ["Rabat", "Juba"]}
    }
    (folder / "metadata_relations.json").write_text(json.dumps(metadata))
    (folder / "P36.jsonl").write_text('{"sub_label": "Morocco", "obj_label": "Rabat"}')
    finished = askwell("data", "import", "bear", folder, "--out", tmp_path / "out", "--json")
    assert finished.code == 0, finished.err
    assert finished.json["facts"] == {"bear": {"relations": 1, "facts": 1}}
    assert finished.json["prompts"] == {"bear": {"relations": 1, "prompts": 1}}
    assert sum(finished.json["left_out"].values()) == 1
    assert "3 lines of 2 files read" in finished.err
    assert "left out: 1 × template '[X] has none.' has no [Y]" in finished.err
    assert (tmp_path / "out/facts/bear/P36.jsonl").read_text() == '{"sub": "Morocco", "obj": "Rabat"}\n'
    again = askwell("data", "import", "bear", folder, "--out", tmp_path / "out")
    assert (again.code, "already" in again.err) == (2, True)
