"""`askwell baseline`: the files that it writes, interruptions, and wrong input."""

import json
import os
import signal
from pathlib import Path

import pytest
from builders.commands import refused, signalled
from builders.sweeps import files_in
from builders.worlds import TEMPLATES

from askwell.evaluation.outcomes import read_golds, read_outcomes
from askwell.lms.machine import Memory

FULL = bool(os.environ.get("ASKWELL_TEST_FULL"))
SEARCH = ("--triggers", "2", "--iterations", "3", "--candidates", "2", "--threads", "1")


@pytest.fixture
def run(askwell, lms, facts, tmp_path):
    """Runs a baseline on the tiny BERT; a wrong call leaves nothing behind."""

    def run(name, *more, prompts=(), lm="bert", out="out"):
        words = [word for prompt in prompts for word in ("--prompts", prompt)]
        done = askwell("baseline", name, "--lm", lms[lm], "--facts", facts, "--out", tmp_path / out, *words, *more)
        assert "Traceback" not in done.err
        if done.code == 2 and out == "out":
            assert done.out == ""
            assert not (tmp_path / out).exists()
        return done

    return run


@pytest.mark.parametrize(
    ("name", "prompts", "more"),
    [
        ("lama", TEMPLATES[:1], ()),
        ("few-shot", TEMPLATES[:1], ("--shots", "2", "--shot-draws", "2")),
        ("lpaqa-top1", TEMPLATES, ()),
        ("lpaqa-uniform", TEMPLATES, ()),
        ("lpaqa-product", TEMPLATES, ("--pairs", "12")),
        ("optiprompt-manual", TEMPLATES[:1], ("--epochs", "1")),
        ("optiprompt-random", (), ("--epochs", "1")),
        ("autoprompt", (), SEARCH),
        ("fine-tuning", TEMPLATES[:1], ("--fine-tuning.epochs", "1")),
    ],
)
def test_each_baseline_leaves_a_run_behind(run, askwell, tmp_path, name, prompts, more):
    done = run(name, *more, "--json", prompts=prompts)
    assert done.code == 0, done.err
    out = tmp_path / "out"
    outcomes = read_outcomes(out / "facts.parquet")
    p_at_1 = 100 * sum(outcome.rank <= 1 for outcome in outcomes) / len(outcomes)
    record = json.loads((out / "run.json").read_text())
    assert record["spec"]["baseline"] == done.json["baseline"] == name
    assert record["test"]["micro"]["P@1"] == done.json["test"]["micro"]["P@1"] == pytest.approx(p_at_1)
    assert not (out / "checkpoint.safetensors").exists()
    learns = name not in ("lama", "few-shot", "lpaqa-top1", "lpaqa-uniform")
    assert (out / "history.jsonl").exists() == learns
    again = askwell("evaluate", out, "--json")
    if again.code == 2:  # the facts are a folder of this test, which a saved mixture does not name
        again = askwell("evaluate", out, "--facts", tmp_path / "capitals", "--json")
    assert again.code == 0, again.err
    assert again.json["micro"] == record["test"]["micro"]
    train = sorted(read_golds(out / "train.parquet"))
    assert ("seen in training" in askwell("ask", out, train[0]).err) == learns
    compared = askwell("compare", out, out, "--json")
    assert compared.code == 0, compared.err


def test_published_weights_come_from_the_prompt_file(run, tmp_path):
    lines = [
        json.dumps({"template": text, "weight": weight}) for text, weight in zip(TEMPLATES, (3, 1, 0), strict=True)
    ]
    (tmp_path / "p.jsonl").write_text("\n".join(lines))
    done = run("lpaqa-weights", "--json", prompts=[tmp_path / "p.jsonl"])
    assert done.code == 0, done.err
    assert [prompt["weight"] for prompt in done.json["prompts"]] == pytest.approx([0.75, 0.25])


def test_what_it_found_is_printed(run):
    done = run("autoprompt", *SEARCH)
    assert done.code == 0, done.err
    assert "prompt found: [X]" in done.out
    assert "dev P@1" in done.err


def test_prompts_that_do_not_fit(run):
    refused(run("lama"), "lama takes one manual prompt, but 0 were given", "--prompts")
    refused(run("lama", prompts=TEMPLATES), "3 were given")
    refused(run("lpaqa-top1", prompts=TEMPLATES[:1]), "several prompts", "lama")
    refused(run("lpaqa-weights", prompts=TEMPLATES[:2]), "has no weight in it")
    refused(run("optiprompt-random", prompts=TEMPLATES[:1]), "leave --prompts out")


def test_names_and_options_that_do_not_fit(run, askwell, facts, tmp_path):
    refused(run("autopromt"), "autopromt", "autoprompt")
    refused(run("optiprompt-manual", "--shots", "2", prompts=TEMPLATES[:1]), "--shots is not a setting of optiprompt")
    refused(run("few-shot", "--shots", "0", prompts=TEMPLATES[:1]), "--shots 0", "lama")
    refused(run("autoprompt", "--lead-in", "So :"), "--lead-in: autoprompt")
    refused(run("lama", "--lead-in", "So [X] :", prompts=TEMPLATES[:1]), "the text has a blank")
    refused(askwell("baseline", "lama", "--facts", facts, "--out", tmp_path / "o"), "--lm")
    refused(
        run("lama", "--triggers", "3", prompts=TEMPLATES[:1]),
        "--triggers is not a setting of lama",
        "it learns nothing",
    )
    refused(run("autoprompt", "--epochs", "3"), "--epochs is not a setting of autoprompt", "--iterations")
    refused(run("optiprompt-random", "--fine-tuning.epochs", "3"), "--fine-tuning.epochs is not a setting", "--epochs")
    refused(run("autoprompt", "--iterations", "2"), "cannot replace all 5 masks")
    refused(run("optiprompt-random", "--patience", "2"), "patience")
    refused(run("lama", "--seed", "-1", prompts=TEMPLATES[:1]), "for --seed. Must be >= 0")


def test_autoprompt_on_an_lm_without_a_mask(run):
    refused(run("autoprompt", lm="llama"), "no mask token", "--start random")
    assert run("autoprompt", "--start", "random", *SEARCH, lm="llama").code == 0


def test_fine_tuning_that_does_not_fit_in_memory(run, monkeypatch):
    monkeypatch.setattr("askwell.baselines.fine_tuning.memory_of", lambda _device: Memory(1000, 1000))
    refused(run("fine-tuning", prompts=TEMPLATES[:1]), "16 bytes for each", "use a smaller LM")


def test_a_folder_that_holds_a_run(run, tmp_path):
    assert run("lama", prompts=TEMPLATES[:1], out="m").code == 0
    before = {path: path.read_bytes() for path in (tmp_path / "m").rglob("*") if path.is_file()}
    refused(run("lama", prompts=TEMPLATES[:1], out="m"), "already holds a run", "--overwrite")
    refused(run("lama", "--resume", prompts=TEMPLATES[:1], out="m"), "cannot be resumed")
    refused(run("autoprompt", "--resume", out="m"), "finished")
    refused(run("autoprompt", "--resume", "--overwrite", out="m"), "cannot be combined")
    assert {path: path.read_bytes() for path in (tmp_path / "m").rglob("*") if path.is_file()} == before
    assert run("lama", "--overwrite", prompts=TEMPLATES[1:2], out="m").code == 0


@pytest.mark.slow
@pytest.mark.parametrize("with_signal", [signal.SIGKILL, signal.SIGINT] if FULL else [signal.SIGKILL])
def test_a_search_that_was_stopped_goes_on_and_ends_as_one_that_was_not(askwell, lms, facts, tmp_path, with_signal):
    def command(out, *more):
        return [
            "baseline", "autoprompt", "--lm", lms["bert"], "--facts", facts, "--out", tmp_path / out,
            "--triggers", 3, "--iterations", 20, "--candidates", 4, "--sampled-facts", 4, "--threads", 1, *more,
        ]  # fmt: skip

    done = askwell(*command("whole"))
    assert done.code == 0, done.err
    stopped = signalled(with_signal, *command("cut"), before="checkpoint.safetensors", times=5)
    if with_signal == signal.SIGINT:
        assert stopped.code == 130
        assert "--resume continues" in stopped.err
        assert "Traceback" not in stopped.err
    else:
        assert stopped.code == -with_signal
    asked = askwell("ask", tmp_path / "cut", "Paris", "--json")
    assert asked.code == 0, asked.err
    resumed = askwell(*command("cut", "--resume"))
    assert resumed.code == 0, resumed.err
    whole, cut = (files_in(tmp_path / out) for out in ("whole", "cut"))
    assert {name: content for name, content in cut.items() if not Path(name).name.startswith(".")} == whole


def test_autoprompt_has_no_longest_answer(askwell, tmp_path):
    asked = ("--lm", "testbed:bert", "--facts", "testbed:capital", "--longest-answer", "4", "--out", tmp_path / "run")
    refused(askwell("baseline", "autoprompt", *asked), "--longest-answer: autoprompt only searches with answers")
