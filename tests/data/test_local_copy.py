import pytest
from tiny_sets import BERT, CONTENT, FACTS, PROMPTS, TINY, TRAIN

from askwell.data.published import pull_sets
from askwell.errors import BadFile, BadOption, DamagedFile

pytestmark = pytest.mark.usefixtures("tiny_manifest")


@pytest.fixture
def copy(write, tmp_path):
    for path, data in CONTENT.items():
        write(f"copy/{path}", data)
    return tmp_path / "copy"


def taken(cache) -> dict[str, bytes]:
    found = {path.relative_to(cache).as_posix(): path.read_bytes() for path in cache.rglob("*") if path.is_file()}
    found.pop(".lock", None)
    return found


def test_a_data_folder_is_copied(copy, cache):
    pulled = pull_sets(TINY, copy=copy)
    assert taken(cache) == CONTENT
    assert (pulled.fetched, pulled.already_here) == (4, 0)
    assert pull_sets(TINY, copy=copy).already_here == 4


def test_a_checkout_of_the_publisher_will_do(write, tmp_path, cache):
    write("checkout/prompts/of bert.jsonl", CONTENT[BERT])
    write("checkout/prompts/roberta.jsonl", CONTENT["prompts/tiny/roberta.jsonl"])
    pull_sets([PROMPTS], copy=tmp_path / "checkout")
    assert set(taken(cache)) == {BERT, "prompts/tiny/roberta.jsonl"}


def test_of_a_copy_that_lacks_a_file_nothing_is_taken(copy, cache):
    (copy / TRAIN).unlink()
    with pytest.raises(BadFile, match=r"P1/train\.jsonl: there is no such file; 1 of 4 files"):
        pull_sets(TINY, copy=copy)
    assert taken(cache) == {}
    pull_sets([PROMPTS], copy=copy)
    assert len(taken(cache)) == 2


def test_of_a_copy_that_was_altered_nothing_is_taken(copy, cache):
    (copy / TRAIN).write_bytes(CONTENT[TRAIN].replace(b"Paris", b"Lyon!"))
    with pytest.raises(
        DamagedFile, match=r"P1/train\.jsonl differs from the published file: its SHA-256 .*nothing was copied"
    ):
        pull_sets(TINY, copy=copy)
    assert taken(cache) == {}


def test_altered_files_in_the_cache_are_replaced(copy, cache):
    pull_sets(TINY, copy=copy)
    (cache / TRAIN).write_bytes(b"rubbish")
    assert pull_sets([FACTS], copy=copy).replaced == 1
    assert taken(cache) == CONTENT


def test_a_copy_that_is_no_folder_is_refused(write):
    with pytest.raises(BadOption, match=r"`copy` .* is not a folder"):
        pull_sets(TINY, copy=write("file", "x"))
