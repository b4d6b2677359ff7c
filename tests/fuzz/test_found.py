"""Bugs that the fuzz test has found, each under its own name."""

import errno
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pytest
from builders.commands import exit_code
from fuzz.kinds import TEMPLATE, World, fit_hashes, resumed
from safetensors.torch import load_file, save_file

from askwell.cli.terminal import print_json


@pytest.fixture
def told(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Runs a command that fails with that code, and gives its one message."""

    def run(code: int, *arguments: object) -> str:
        capsys.readouterr()
        assert exit_code(*arguments) == code
        message = capsys.readouterr().err.rpartition("askwell: ")[2]
        assert "unexpected error (" not in message
        assert len(message) < 2000
        return message

    return run


def changed(path: Path, **changes: Any) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def query(path: Path, sql: str) -> None:
    """Writes a Parquet file anew, as a query over its rows gives it."""
    with duckdb.connect() as database:
        database.execute(f"CREATE TABLE rows AS SELECT * FROM read_parquet('{path}')")
        database.execute(f"COPY ({sql}) TO '{path}' (FORMAT parquet)")


@pytest.mark.parametrize(
    ("sql", "problem"),
    [
        ("SELECT * REPLACE (NULL::VARCHAR AS x) FROM rows", "row 1 has no x"),
        ("SELECT * REPLACE ([NULL::VARCHAR] AS golds) FROM rows", "row 1 has no golds"),
        ("SELECT * REPLACE (CAST(rank AS VARCHAR) AS rank) FROM rows", "rank VARCHAR"),
        ("SELECT * REPLACE ('nan'::DOUBLE AS rank) FROM rows", "rank below 1"),
        ("SELECT * REPLACE (0.0::DOUBLE AS raw_rank) FROM rows", "rank below 1"),
        ("SELECT * REPLACE ('inf'::DOUBLE AS log_probability) FROM rows", "log_probability above 0"),
        ("SELECT * REPLACE ([2.0::DOUBLE] AS probabilities) FROM rows", "not between 0 and 1"),
        ("SELECT 1 AS one", "expected the columns"),
    ],
)
def test_outcomes_of_other_types_or_without_values(sql, problem, world: World, tmp_path: Path, told) -> None:
    run = shutil.copytree(world.run, tmp_path / "run")
    query(run / "facts.parquet", sql)
    message = told(2, "compare", run, world.run)
    assert "facts.parquet" in message
    assert problem in message


def test_controls_of_other_types(world: World, tmp_path: Path, told) -> None:
    run = shutil.copytree(world.run, tmp_path / "run")
    query(run / "controls.parquet", "SELECT * REPLACE ([rank] AS rank) FROM rows")
    message = told(2, "report", run, "--out", tmp_path / "report", "--drawn", 0)
    assert "controls.parquet" in message


def test_the_path_of_an_lm_that_is_not_text(world: World, tmp_path: Path, told) -> None:
    mixture = shutil.copytree(world.run / "mixture", tmp_path / "mixture")
    (mixture / "lm_path.txt").write_bytes(b"\xff\xfe")
    assert "lm_path.txt, line 1: not UTF-8" in told(2, "ask", mixture, "Paris")


@pytest.mark.parametrize(
    "change",
    [
        {"right": [1, 0, 1] * 100},
        {"right": [7]},
        {"probabilities": [2.0]},
        {"probabilities": [float("nan")]},
    ],
    ids=["lengths", "neither", "above one", "nan"],
)
def test_dev_answers_that_nothing_can_be_learned_from(change, world: World, tmp_path: Path, told) -> None:
    mixture = shutil.copytree(world.run / "mixture", tmp_path / "mixture")
    config = json.loads((mixture / "config.json").read_bytes())
    saved = config["dev_answers"]
    count = len(saved["right"])
    saved |= {key: values if len(values) > 1 else values * count for key, values in change.items()}
    (mixture / "config.json").write_text(json.dumps(config))
    assert "config.json is damaged: dev_answers" in told(1, "ask", mixture, "Paris", "--risk", "0.5")


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"learned_from": 0.5}, "learned_from"),
        ({"relation": {"name": 3}}, "relation"),
        ({"relation": {"name": "r", "split_by": []}}, "split_by"),
        ({"examples": [[{"x": "a", "y": "b"}]] * 3}, "there are examples for 3 prompts, but 2 prompts"),
    ],
    ids=["relation", "name", "split", "examples"],
)
def test_a_mixture_that_says_odd_things_about_itself(change, problem, world: World, tmp_path: Path, told) -> None:
    mixture = shutil.copytree(world.run / "mixture", tmp_path / "mixture")
    config = json.loads((mixture / "config.json").read_bytes())
    (mixture / "config.json").write_text(json.dumps(config | change))
    fit_hashes(mixture)
    assert problem in told(2 if "examples" in change else 1, "show", mixture)


@pytest.mark.parametrize("place", [("partitions", "y in x"), ("test", "micro"), ("controls", "majority", "test")])
def test_a_record_without_the_scores_that_tables_are_made_of(place, world: World, tmp_path: Path, told) -> None:
    run = shutil.copytree(world.run, tmp_path / "run")
    record = json.loads((run / "run.json").read_text())
    inner = record
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = {"yes": {"facts": 1}} if place[0] == "partitions" else {"MRR": 1.0}
    (run / "run.json").write_text(json.dumps(record))
    assert "run.json is damaged: some of the scores have no P@1" in told(1, "runs", run)


@pytest.mark.parametrize("content", ["{}", "[]", '{"format": "askwell-store", "version": 1, "id": 0}'])
def test_a_store_without_an_id(content, world: World, tmp_path: Path, told) -> None:
    store = shutil.copytree(world.folder / "store", tmp_path / "store")
    (store / "store.json").write_text(content)
    assert "store.json is damaged" in told(1, "runs", store)


def test_a_failure_that_says_nothing(world: World, tmp_path: Path, told) -> None:
    store = shutil.copytree(world.folder / "store", tmp_path / "store")
    (store / "failed" / f"{'0' * 64}.json").write_text("{}")
    assert ".json is damaged: id is missing" in told(1, "runs", store)


@pytest.mark.parametrize("changed", [b'"stretches', b"parameters/vectors"])
def test_a_checkpoint_that_was_altered(changed: bytes, world: World, tmp_path: Path, told) -> None:
    begun = shutil.copytree(world.folder / "begun", tmp_path / "run")
    path = begun / "checkpoint.safetensors"
    content = path.read_bytes()
    assert changed[1:] in content
    path.write_bytes(content.replace(changed[1:], changed[1:].upper()))
    assert "altered; remove it" in told(1, "train", *resumed(world.folder, begun), "--resume")


def test_a_wordpiece_tokenizer_without_its_unknown_word(world: World, tmp_path: Path, told) -> None:
    lm = shutil.copytree(world.bert, tmp_path / "lm")
    description = json.loads((lm / "tokenizer.json").read_text())
    del description["model"]["vocab"]["[UNK]"]
    (lm / "tokenizer.json").write_text(json.dumps(description))
    assert "cannot be loaded" in told(2, "lm", "info", lm)


def test_a_folder_whose_name_holds_a_null(world: World, told) -> None:
    lama = world.folder / "files" / "lama"
    assert "null" in told(2, "data", "import", "lama", lama, "--out", "a\0b")
    options = ("--lm", world.bert, "--facts", world.facts, "--prompts", TEMPLATE)
    assert "null" in told(2, "train", *options, "--out", "a\0b")
    assert "not UTF-8" in told(2, "data", "import", "lama", lama, "--out", "\ud800")


def test_a_template_in_bytes_that_are_no_text(world: World, told) -> None:
    """As the terminal passes on what is typed in another encoding."""
    assert "not UTF-8" in told(2, "ask", "--lm", world.bert, "--prompts", "[X] \udcff [Y] .", "Paris")


@pytest.mark.parametrize("option", ["--lead-in", "--prefix-words", "--shot-separator"])
def test_an_opening_in_bytes_that_are_no_text(option, world: World, told) -> None:
    options = ("--lm", world.bert, "--facts", world.facts, "--prompts", TEMPLATE, "--shots", 2, f"{option}=a\udcff")
    assert "not UTF-8" in told(2, "ask", *options, "Paris")


def test_what_is_infinite_is_null_in_json(capsys) -> None:
    print_json({"log-loss": float("-inf"), "P@1": 0.5})
    assert json.loads(capsys.readouterr().out) == {"log-loss": None, "P@1": 0.5}


@pytest.mark.parametrize("value", [float("inf"), float("-inf")])
def test_infinite_logits_of_a_mixture(value, world: World, tmp_path: Path, told) -> None:
    mixture = shutil.copytree(world.run / "mixture", tmp_path / "mixture")
    tensors = load_file(mixture / "mixture.safetensors")
    tensors["weighting.logits"].fill_(value)
    save_file(tensors, mixture / "mixture.safetensors")
    fit_hashes(mixture)
    assert "infinite or NaN values in weighting.logits" in told(1, "show", mixture)


def test_a_history_without_its_main_score(world: World, tmp_path: Path, told) -> None:
    run = shutil.copytree(world.run, tmp_path / "run")
    history = (run / "history.jsonl").read_text()
    (run / "history.jsonl").write_text(history.replace("P@1", "P@one", 1))
    said = told(1, "export", run, "--out", tmp_path / "run.html")
    assert "history.jsonl" in said
    assert "there is no P@1" in said


def test_no_output_takes_the_place_of_a_device_or_a_pipe(world: World, tmp_path: Path, told) -> None:
    """As root, --out /dev/null would have replaced it for everyone."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    assert "a device or a pipe" in " ".join(told(1, "export", world.run, "--out", pipe).split())
    assert pipe.is_fifo()
    assert sorted(tmp_path.iterdir()) == [pipe]


@pytest.mark.parametrize("command", ["runs", "export", "report"])
def test_a_device_where_runs_should_be(command, tmp_path: Path, told) -> None:
    out = () if command == "runs" else ("--out", tmp_path / "out")
    assert "this is a file" in told(2, command, "/dev/zero", *out)


@pytest.mark.parametrize("name", ["9" * 400, "\ud800", "a\0b", "", "..", "a/b"])
def test_a_name_for_imported_sets_that_no_folder_can_have(name, world: World, tmp_path: Path, told) -> None:
    out = tmp_path / "data"
    message = told(2, "data", "import", "lama", world.folder / "files" / "lama", "--out", out, f"--name={name}")
    assert "cannot be the name of a folder" in message
    assert not out.exists()


def test_an_x_in_bytes_that_are_no_text(world: World, told) -> None:
    options = ("ask", "--lm", world.bert, "--prompts", TEMPLATE)
    assert "not UTF-8" in told(2, *options, "\udcff")
    assert "not UTF-8" in told(2, *options, "\udcff", "a\ud800")


@pytest.mark.parametrize("line", ["a" * 10_000_000, "label: France, " + "a b " * 2_500_000])
def test_a_candidate_of_ten_million_characters(line, world: World, tmp_path: Path, told) -> None:
    """It took half a minute to be spelt."""
    (tmp_path / "words.txt").write_text(f"{line}\nother: Italy\n")
    command = ("ask", "--lm", world.bert, "--prompts", TEMPLATE, "--candidates", tmp_path / "words.txt", "Paris")
    message = " ".join(told(2, *command).split())
    assert "line 1: a candidate of" in message
    assert "characters, more than 10,000" in message


def test_a_sweep_that_has_ended_leaves_no_empty_folder(world: World) -> None:
    assert not (world.folder / "store" / "unfinished").exists()


def test_classifying_without_candidates_says_how_to_name_them(world: World, tmp_path: Path, told) -> None:
    options = ("--lm", world.bert, "--prompts", TEMPLATE, "--facts", world.facts, "--out", tmp_path / "run")
    assert "--candidates, or --among train" in told(2, "train", *options, "--classify")
    assert not (tmp_path / "run").exists()


def test_a_seed_of_the_demo_with_400_digits(tmp_path: Path, told) -> None:
    assert "--seed" in told(2, "demo", "--quick", "--seed", "9" * 400, "--out", tmp_path / "demo")
    assert not (tmp_path / "demo").exists()


def test_a_host_that_cannot_be_the_name_of_one(world: World, told) -> None:
    assert "nothing can be served there" in told(
        1, "serve", world.run, "--host", "\u0133\U0001f883", "--token", "twelve characters"
    )


def test_show_draws_nothing_before_it_has_found_the_facts(world: World, tmp_path: Path, told) -> None:
    assert "no such file" in told(2, "show", world.run, "--svg", tmp_path / "words.svg", "--facts", tmp_path / "none")
    assert not (tmp_path / "words.svg").exists()


def test_a_disk_that_fills_up_leaves_the_report_that_was_there(world: World, tmp_path: Path, told, monkeypatch) -> None:
    out, fresh = tmp_path / "report", tmp_path / "fresh" / "report"
    options = ("--drawn", 0, "--format", "csv", "markdown")
    assert exit_code("report", world.run, "--out", out, *options) == 0
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    written, write = [], Path.write_bytes

    def fill_up(path: Path, data: bytes) -> int:
        written.append(path)
        if len(written) > 3:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(path, data)

    monkeypatch.setattr(Path, "write_bytes", fill_up)
    for folder in (out, fresh):
        written.clear()
        assert "No space left" in told(1, "report", world.run, "--out", folder, *options)
    assert {path: path.read_bytes() for path in out.rglob("*") if path.is_file()} == before
    assert not fresh.parent.exists()
