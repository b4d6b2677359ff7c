from pathlib import Path

import pytest

from askwell.data.names import data_folder, find, pulled_data_folder
from askwell.errors import BadFile, BadOption


@pytest.fixture(autouse=True)
def pulled(tmp_path, monkeypatch) -> Path:
    """Where pulled data would lie: never in the cache of the machine."""
    monkeypatch.setenv("ASKWELL_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "data"


@pytest.fixture
def data(write, tmp_path) -> Path:
    for name in (
        "facts/trex/P19/train.jsonl",
        "facts/trex/P19/dev.jsonl",
        "facts/trex/P19/test.jsonl",
        "facts/mine/born.csv",
        "facts/mine/died.tsv",
        "facts/mine/lived.jsonl",
        "prompts/trex_mine/P19.jsonl",
        "prompts/trex_mine/P20.jsonl",
    ):
        write(f"data/{name}", "")
    return tmp_path / "data"


def test_the_option_wins_over_the_environment(tmp_path, monkeypatch):
    (tmp_path / "option").mkdir()
    (tmp_path / "variable").mkdir()
    assert data_folder(None) is None
    monkeypatch.setenv("ASKWELL_DATA", str(tmp_path / "variable"))
    assert data_folder(None) == tmp_path / "variable"
    assert data_folder(tmp_path / "option") == tmp_path / "option"


def test_an_empty_variable_is_none(monkeypatch):
    monkeypatch.setenv("ASKWELL_DATA", "")
    assert data_folder(None) is None


def test_no_folder_is_an_error_that_says_where_it_was_set(write, monkeypatch):
    file = write("file", "")
    monkeypatch.setenv("ASKWELL_DATA", str(file.parent / "absent"))
    with pytest.raises(BadOption, match=r"variable ASKWELL_DATA is .*absent"):
        data_folder(None)
    with pytest.raises(BadOption, match=r"`data` is .*file, which is not a folder") as caught:
        data_folder(file)
    assert "ASKWELL_DATA" not in str(caught.value)


@pytest.mark.parametrize(
    ("source", "kind", "found"),
    [
        ("trex/P19", "facts", "facts/trex/P19"),
        ("trex/P19/", "facts", "facts/trex/P19"),
        ("mine/born", "facts", "facts/mine/born.csv"),
        ("mine/born.csv", "facts", "facts/mine/born.csv"),
        ("mine/died", "facts", "facts/mine/died.tsv"),
        ("mine/lived", "facts", "facts/mine/lived.jsonl"),
        ("trex_mine/P19", "prompts", "prompts/trex_mine/P19.jsonl"),
        ("trex_mine/P19.jsonl", "prompts", "prompts/trex_mine/P19.jsonl"),
    ],
)
def test_names_in_the_data_folder(data, source, kind, found):
    assert find(source, kind, data) == data / found


def test_a_path_on_disk_wins(data, write, tmp_path, monkeypatch):
    write("trex/P19/train.jsonl", "")
    monkeypatch.chdir(tmp_path)
    assert find("trex/P19", "facts", data) == Path("trex/P19")
    assert find(str(data / "facts/mine/born.csv"), "facts", None) == data / "facts/mine/born.csv"


def test_without_a_data_folder_the_error_says_how_to_set_it():
    with pytest.raises(BadFile, match=r"^trex/P19: there is no such.*`data` FOLDER.*ASKWELL_DATA"):
        find("trex/P19", "facts", None)


def test_the_error_says_where_it_looked(data):
    with pytest.raises(BadFile) as caught:
        find("nowhere/like-this", "facts", data)
    for place in ("like-this", "like-this.jsonl", "like-this.csv", "like-this.tsv"):
        assert str(data / "facts" / "nowhere" / place) in str(caught.value)
    assert "ASKWELL_DATA" not in str(caught.value)
    assert "Did you mean" not in str(caught.value)


@pytest.mark.parametrize(
    ("source", "kind", "meant"),
    [
        ("trxe/P19", "facts", "trex/P19"),
        ("mine/borne", "facts", "mine/born"),
        ("trex_mine/P21", "prompts", "trex_mine/P20"),
        ("P19", "facts", "trex/P19"),
        ("P19", "prompts", "trex_mine/P19"),
    ],
)
def test_close_names_are_suggested(data, source, kind, meant):
    with pytest.raises(BadFile, match=r"Did you mean (.* or )?" + meant + r"( or .*)?\?$"):
        find(source, kind, data)


def test_facts_and_prompts_are_kept_apart(data):
    with pytest.raises(BadFile):
        find("trex_mine/P19", "facts", data)
    with pytest.raises(BadFile):
        find("mine/born", "prompts", data)


def test_a_name_cannot_lead_out_of_the_data_folder(data, write):
    outside = write("outside.jsonl", "")
    for source in ("../../outside", "trex/../../../outside", str(outside.with_suffix(""))):
        with pytest.raises(BadFile):
            find(source, "facts", data)


def test_a_data_folder_without_the_kind(tmp_path):
    with pytest.raises(BadFile, match="P19"):
        find("P19", "facts", tmp_path)


def test_pulled_data_is_the_last_resort(pulled, write, tmp_path, monkeypatch):
    assert data_folder(None) is None
    write("cache/data/facts/trex/P19/train.jsonl", "")
    assert data_folder(None) == pulled == pulled_data_folder()
    assert find("trex/P19", "facts", data_folder(None)) == pulled / "facts/trex/P19"
    (tmp_path / "variable").mkdir()
    monkeypatch.setenv("ASKWELL_DATA", str(tmp_path / "variable"))
    assert data_folder(None) == tmp_path / "variable"
    assert data_folder(tmp_path) == tmp_path


def test_errors_tell_of_pulling(pulled, data):
    with pytest.raises(BadFile, match="`askwell data pull` fetches the published sets"):
        find("trex/P19", "facts", None)
    pulled.mkdir(parents=True)
    with pytest.raises(BadFile, match="`askwell data list` shows what can be pulled"):
        find("trex/P19", "facts", pulled)
    with pytest.raises(BadFile) as caught:
        find("trex/P21", "facts", data)
    assert "askwell data" not in str(caught.value)


@pytest.mark.parametrize(
    ("variables", "folder"),
    [
        ({"ASKWELL_CACHE": "/a", "XDG_CACHE_HOME": "/b"}, "/a/data"),
        ({"XDG_CACHE_HOME": "/b"}, "/b/askwell/data"),
        ({"ASKWELL_CACHE": "", "HOME": "/c"}, "/c/.cache/askwell/data"),
    ],
)
def test_where_pulled_data_lies(monkeypatch, variables, folder):
    for name in ("ASKWELL_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert pulled_data_folder() == Path(folder)
