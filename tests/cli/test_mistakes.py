"""Wrong input: one clear error, exit code 2, nothing written, no traceback."""

import io
import json
import re
import sys
from pathlib import Path

import pytest
from builders.commands import refused
from builders.worlds import TEMPLATES

from askwell.cli.main import main


@pytest.fixture
def train(askwell, lms, facts, tmp_path):
    """Runs `askwell train` with some options replaced, and checks that nothing is left behind."""

    def run(**changed):
        options = {"lm": lms["bert"], "facts": facts, "prompts": TEMPLATES[0], "out": tmp_path / "out", "epochs": 1}
        words = [word for name, value in (options | changed).items() for word in (f"--{name.replace('_', '-')}", value)]
        done = askwell("train", *words)
        assert "Traceback" not in done.err
        assert done.out == ""
        if done.code == 2:
            assert not (tmp_path / "out").exists() or not any((tmp_path / "out").iterdir())
        return done

    return run


def test_facts_that_do_not_exist_are_refused(train, tmp_path):
    refused(train(facts=tmp_path / "nowhere"), "nowhere")


@pytest.mark.parametrize(("option", "kind"), [("pairs", "a whole number"), ("learning_rate", "a number")])
def test_words_in_place_of_a_number_are_refused(train, option, kind):
    refused(train(**{option: "many"}), f"--{option.replace('_', '-')} many: must be {kind}")


def test_an_empty_file_of_facts_is_refused(train, tmp_path):
    (tmp_path / "empty.csv").write_text("")
    refused(train(facts=tmp_path / "empty.csv"), "empty.csv")


def test_broken_json_at_a_line(train, facts):
    (facts / "dev.jsonl").write_text('{"sub": "Paris", "obj": "France"}\n{"sub": "Rome", "obj"\n')
    refused(train(), "dev.jsonl, line 2", "JSON")


@pytest.mark.parametrize(
    ("template", "problem"),
    [("the capital is [Y]", "no [X]"), ("[X] and [X] in [Y]", "[X]"), ("[x] in [Y]", "write [X] instead of [x]")],
)
def test_a_template_without_one_x_and_one_y_is_refused(train, template, problem):
    refused(train(prompts=template), problem)


def test_template_in_a_file(train, tmp_path):
    (tmp_path / "prompts.txt").write_text("[X] in [Y]\n\n[X] only\n")
    refused(train(prompts=tmp_path / "prompts.txt"), "prompts.txt, line 3", "[Y]")


def test_missing_prompts_file(train):
    refused(train(prompts="nowhere.txt"), "nowhere.txt")


def test_an_unknown_option_is_refused_with_one_like_it(askwell):
    done = askwell("train", "--lm", "a", "--facts", "b", "--prompts", "[X] [Y]", "--out", "c", "--learnign-rate", "1")
    refused(done, "--learnign-rate", "--learning-rate")


def test_an_option_that_is_missing_is_named_with_what_it_is(askwell):
    done = askwell("train", "--facts", "b", "--prompts", "[X] [Y]", "--out", "c")
    refused(done, "train needs --lm. The frozen LM: testbed:bert")
    refused(askwell("train", "--lm"), "--lm requires an argument")  # it was given, without a value
    refused(askwell("compare", "a"), "compare needs B.")


def test_an_unknown_command_is_refused_with_one_like_it(askwell):
    refused(askwell("trian"), "trian", "train")


@pytest.mark.parametrize(
    ("option", "value"), [("epochs", "-1"), ("learning_rate", "0"), ("method", "magic"), ("batch_facts", "many")]
)
def test_option_out_of_range(train, option, value):
    refused(train(**{option: value}), f"--{option.replace('_', '-')}", value)


def test_copies_without_noise(train):
    refused(train(copies=3), "copies", "noise")


def test_an_lm_that_is_not_there_is_refused_with_where_it_was_looked_for(train, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    refused(train(lm="no-such/model"), "no-such/model", "HF_HUB_OFFLINE", "HF_HOME")
    refused(train(lm="./no-such-folder"), "./no-such-folder", "no such folder")


def test_device_that_is_not_there(train):
    refused(train(device="cuda:7"), "--device cuda:7")
    refused(train(device="toaster"), "--device toaster")


def test_no_y_can_be_spelled(train, tmp_path):
    (tmp_path / "f.csv").write_text("x,y\n" + "".join(f"{x},東京\n" for x in ("Paris", "Rome", "Lima", "Oslo")))
    refused(train(facts=tmp_path / "f.csv"), "y has a character that the LM's tokenizer does not know")


def test_no_prompt_can_be_used(train, lms):
    refused(train(lm=lms["llama"], prompts="[Y] holds [X]"), "no prompts left", "y comes before x")


def test_read_only_output_folder(train):
    refused(train(out="/proc/askwell"), "--out /proc/askwell", "cannot be written")


def test_output_that_is_a_file(train, tmp_path):
    (tmp_path / "file").write_text("mine")
    refused(train(out=tmp_path / "file"), "is a file")
    assert (tmp_path / "file").read_text() == "mine"


def test_output_that_holds_a_mixture(askwell, lms, facts, tmp_path):
    arguments = ("train", "--lm", lms["bert"], "--facts", facts, "--prompts", TEMPLATES[0], "--out", tmp_path / "m")
    assert askwell(*arguments, "--epochs", "1").code == 0
    before = {path: path.read_bytes() for path in (tmp_path / "m").rglob("*") if path.is_file()}
    refused(askwell(*arguments), "already holds a run", "--overwrite")
    refused(askwell(*arguments, "--resume"), "finished")
    assert {path: path.read_bytes() for path in (tmp_path / "m").rglob("*") if path.is_file()} == before
    assert askwell(*arguments, "--overwrite", "--epochs", "0").code == 0


def test_a_mixture_of_another_lm(askwell, lms, facts, tmp_path):
    arguments = ("train", "--lm", lms["bert"], "--facts", facts, "--prompts", TEMPLATES[0], "--out", tmp_path / "m")
    assert askwell(*arguments, "--epochs", "0").code == 0
    refused(askwell("ask", tmp_path / "m", "Paris", "--lm", lms["roberta"]), "learned on the LM bert", "weights")


def test_a_damaged_mixture_is_a_failure(askwell, lms, facts, tmp_path):
    arguments = ("train", "--lm", lms["bert"], "--facts", facts, "--prompts", TEMPLATES[0], "--out", tmp_path / "m")
    assert askwell(*arguments, "--epochs", "0").code == 0
    tensors = tmp_path / "m" / "mixture" / "mixture.safetensors"
    tensors.write_bytes(tensors.read_bytes()[:-3])
    done = askwell("ask", tmp_path / "m", "Paris")
    assert done.code == 1
    assert "truncated" in done.err
    config = tmp_path / "m" / "mixture" / "config.json"
    config.write_text(config.read_text().replace(TEMPLATES[0], "[X] stands in [Y] ."))
    done = askwell("show", tmp_path / "m")
    assert done.code == 1
    assert "altered" in done.err


def test_ask_without_anything_to_ask(askwell, lms, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.StringIO("\n"))
    refused(askwell("ask"), "--prompts")
    refused(askwell("ask", "--lm", lms["bert"], "--prompts", TEMPLATES[0]), "nothing to ask")
    refused(askwell("ask", tmp_path / "nowhere", "Paris"), "nowhere")
    refused(askwell("ask", "--lm", lms["bert"], "--prompts", TEMPLATES[0], "Paris", "--top", "0"), "--top")
    too_long = "Paris " * 80
    refused(askwell("ask", "--lm", lms["bert"], "--prompts", TEMPLATES[0], too_long), "longer than the LM's context")


def test_files_to_ask_about(askwell, lms, tmp_path):
    start = ("ask", "--lm", lms["bert"], "--prompts", TEMPLATES[0], "--file")
    (tmp_path / "a.jsonl").write_text('{"x": "Paris"}\n{"y": "Rome"}\n')
    refused(askwell(*start, tmp_path / "a.jsonl"), "a.jsonl, line 2", "--column")
    (tmp_path / "b.csv").write_text("x\nParis\n")
    refused(askwell(*start, tmp_path / "b.csv", "--column", "name"), "no column 'name'", "there are: x")
    (tmp_path / "c.txt").write_text("\n")
    refused(askwell(*start, tmp_path / "c.txt"), "c.txt", "nothing to ask")


def test_candidates_that_cannot_be_used_are_refused(askwell, lms, facts, tmp_path):
    start = ("evaluate", "--lm", lms["bert"], "--prompts", TEMPLATES[0], "--facts", facts, "--candidates")
    refused(askwell(*start, tmp_path / "nowhere.txt"), "nowhere.txt")
    (tmp_path / "none.txt").write_text("Reykjavik\nMassachusetts\n")
    refused(askwell(*start, tmp_path / "none.txt"), "no candidates left", "2 ×")
    (tmp_path / "other.txt").write_text("Rome\n")
    refused(askwell(*start, tmp_path / "other.txt"), "no test facts", "y is not among the candidates")


def test_evaluate_needs_one_of_two(askwell, tmp_path, lms):
    refused(askwell("evaluate"), "either")
    refused(askwell("evaluate", "--lm", lms["bert"], "--prompts", TEMPLATES[0]), "--facts")


def test_an_lm_that_gives_nan_is_a_failure(askwell, facts, tmp_path):
    import torch
    from builders import tiny

    model, tokenizer = tiny.TINY["bert"]()
    with torch.no_grad():
        model.get_parameter("bert.encoder.layer.0.output.dense.bias")[0] = torch.nan
    tiny.save(model, tokenizer, tmp_path / "broken")
    done = askwell(
        "train", "--lm", tmp_path / "broken", "--facts", facts, "--prompts", TEMPLATES[0], "--out", tmp_path / "o"
    )
    assert done.code == 1
    assert "not finite" in done.err
    assert not (tmp_path / "o" / "run.json").exists()


def test_the_traceback_of_a_bug_is_written_to_a_file_and_shown_with_debug(monkeypatch, askwell, facts, tmp_path):

    def broken(_path):
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr("askwell.data.readers.read_text", broken)
    arguments = ["train", "--lm", "x", "--facts", str(facts), "--prompts", "[X] [Y]", "--out", str(tmp_path / "o")]
    told = askwell(*arguments)
    assert told.code == 1
    assert "unexpected error (ZeroDivisionError: a bug)" in told.err
    (written,) = map(Path, re.findall(r"(\S+/askwell-\S+\.txt);", told.err))
    assert 'raise ZeroDivisionError("a bug")' in written.read_text()
    written.unlink()
    with pytest.raises(ZeroDivisionError):
        main([*arguments, "--debug"])


def test_json_documents_have_no_nan(askwell, lms, tmp_path):
    (tmp_path / "p.jsonl").write_text(
        json.dumps({"template": "([Y]) [X]"}) + "\n" + json.dumps({"template": "[X] [Y]"})
    )
    done = askwell("ask", "--lm", lms["roberta"], "--prompts", tmp_path / "p.jsonl", "Paris", "--json")
    assert done.code == 0, done.err
    assert "NaN" not in done.out


def test_a_penalty_on_what_is_not_tuned_is_refused(askwell, lms, facts, tmp_path):
    start = ("train", "--lm", lms["bert"], "--facts", facts, "--prompts", TEMPLATES[0], "--out", tmp_path / "m")
    done = askwell(*start, "--no-tune-vectors", "--l2", "0.1")
    assert done.code == 2
    assert "--l2" in done.err


def test_options_that_cannot_act_on_a_saved_mixture_are_refused(askwell, lms, facts, tmp_path):
    start = ("train", "--lm", lms["bert"], "--facts", facts, "--prompts", TEMPLATES[0], "--out", tmp_path / "m")
    assert askwell(*start, "--epochs", "0").code == 0
    assert askwell("ask", tmp_path / "m", "Paris", "--deep").code == 2
    assert askwell("evaluate", tmp_path / "m", "--facts", facts, "--copies", "2", "--noise", "1").code == 2
    assert askwell("evaluate", tmp_path / "m", "--facts", facts, "--threads", "-3").code == 2


def test_a_wrong_lm_leaves_the_disk_as_it_was(askwell, lms, facts, tmp_path):
    out = tmp_path / "m"
    out.mkdir()
    (out / "checkpoint.safetensors").write_text("of an unfinished run")
    start = ("train", "--lm", "./nowhere", "--facts", facts, "--prompts", TEMPLATES[0])
    assert askwell(*start, "--out", out, "--overwrite").code == 2
    assert (out / "checkpoint.safetensors").read_text() == "of an unfinished run"
    assert askwell(*start, "--out", tmp_path / "new" / "folder").code == 2
    assert not (tmp_path / "new").exists()


def test_files_that_cannot_be_written_are_refused_before_the_work(askwell, lms, facts):
    start = ("evaluate", "--lm", lms["bert"], "--prompts", TEMPLATES[0], "--facts", facts)
    done = askwell(*start, "--per-fact", "/proc/nowhere/rows.parquet")
    assert done.code == 2
    assert "--per-fact" in done.err
