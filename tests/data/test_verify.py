import pytest
from tiny_sets import CONTENT, FACTS, PROMPTS, TRAIN

from askwell.data.published import condition

pytestmark = pytest.mark.usefixtures("tiny_manifest")


@pytest.fixture
def folder(write, tmp_path):
    for path, data in CONTENT.items():
        write(f"data/{path}", data)
    return tmp_path / "data"


def paths(files) -> list[str]:
    return [file.path for file in files]


def test_a_whole_set(folder):
    found = condition(FACTS, folder)
    assert (found.is_whole, found.is_absent, found.summary) == (True, False, "here")
    assert len(found.right) == 2


def test_one_bit_is_noticed(folder):
    data = bytearray(CONTENT[TRAIN])
    data[1234] ^= 1
    (folder / TRAIN).write_bytes(bytes(data))
    found = condition(FACTS, folder)
    assert (paths(found.altered), paths(found.missing), found.is_whole) == ([TRAIN], [], False)
    assert found.summary == "1 altered"
    assert condition(PROMPTS, folder).is_whole


def test_missing_and_truncated_files(folder):
    (folder / TRAIN).unlink()
    (folder / "facts/tiny/P1/test.jsonl").write_bytes(CONTENT["facts/tiny/P1/test.jsonl"][:-1])
    found = condition(FACTS, folder)
    assert (paths(found.missing), paths(found.altered)) == ([TRAIN], ["facts/tiny/P1/test.jsonl"])
    assert found.summary == "1 of 2 files missing, 1 altered"


def test_a_folder_without_the_set(tmp_path):
    found = condition(FACTS, tmp_path)
    assert (found.is_absent, found.is_whole, found.summary) == (True, False, "missing")


def test_other_files_do_not_matter(folder, write):
    write("data/facts/tiny/P2/train.jsonl", "mine")
    assert condition(FACTS, folder).is_whole
