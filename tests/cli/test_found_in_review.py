"""Behaviour that was once wrong on the command line."""

import json

from worlds import PAIRS, TEMPLATES


def write_csv(path, pairs):
    path.write_text("x,y\n" + "".join(f"{x},{y}\n" for x, y in pairs))
    return path


def test_the_rule_of_the_split_is_kept_with_the_mixture(askwell, lms, tmp_path):
    facts = write_csv(tmp_path / "facts.csv", PAIRS)
    start = ("--lm", lms["bert"], "--facts", facts, "--prompts", TEMPLATES[0], "--epochs", "0")
    assert askwell("train", *start, "--split-by", "distinct-y", "--out", tmp_path / "m").code == 0
    done = askwell("evaluate", tmp_path / "m", "--facts", facts, "--json")
    assert done.code == 0, done.err
    assert "not the split" not in done.err
    assert "WARNING" in askwell("evaluate", tmp_path / "m", "--facts", facts, "--split-by", "random").err


def test_a_penalty_on_what_is_not_tuned_is_refused(askwell, lms, facts, tmp_path):
    start = ("train", "--lm", lms["bert"], "--facts", facts, "--prompts", TEMPLATES[0], "--out", tmp_path / "m")
    done = askwell(*start, "--no-tune-vectors", "--l2", "0.1")
    assert done.code == 2
    assert "--l2" in done.err


def test_one_x_that_cannot_be_asked_does_not_stop_the_others(askwell, lms, tmp_path):
    (tmp_path / "xs.txt").write_text("Paris\n" + "Rome " * 90 + "\nOslo\n")
    done = askwell("ask", "--lm", lms["bert"], "--prompts", TEMPLATES[0], "--file", tmp_path / "xs.txt", "--json")
    assert done.code == 0, done.err
    assert [question["x"] for question in done.json] == ["Paris", "Oslo"]
    assert "longer than the LM's context" in done.err
    (tmp_path / "xs.txt").write_text("Rome " * 90)
    assert askwell("ask", "--lm", lms["bert"], "--prompts", TEMPLATES[0], "--file", tmp_path / "xs.txt").code == 2


def test_one_relation_without_facts_does_not_stop_the_others(askwell, lms, tmp_path):
    for name, y in {"A": "France", "B": "Reykjavik"}.items():
        folder = tmp_path / "facts" / "world" / name
        folder.mkdir(parents=True)
        for split in ("train", "dev", "test"):
            (folder / f"{split}.jsonl").write_text(json.dumps({"x": "Paris", "y": y}))
        (tmp_path / "prompts" / "hand").mkdir(parents=True, exist_ok=True)
        (tmp_path / "prompts" / "hand" / f"{name}.jsonl").write_text(json.dumps({"template": TEMPLATES[0]}))
    done = askwell(
        "evaluate", "--lm", lms["bert"], "--prompts", "hand", "--facts", "world", "--data", tmp_path, "--json"
    )
    assert done.code == 0, done.err
    assert list(done.json["relations"]) == ["world/A"]
    assert list(done.json["relations_left_out"]) == ["world/B"]
    assert done.json["counts"]["world/A"]["test_in_train"] == 1


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


def test_a_prompt_that_weighs_nothing_is_left_out(askwell, lms, facts, tmp_path):
    lines = [{"template": TEMPLATES[0], "weight": 1.0}, {"template": TEMPLATES[1], "weight": 0}]
    (tmp_path / "p.jsonl").write_text("\n".join(map(json.dumps, lines)))
    start = ("train", "--lm", lms["bert"], "--facts", facts, "--prompts", tmp_path / "p.jsonl", "--epochs", "1")
    done = askwell(*start, "--weights", "file", "--out", tmp_path / "m", "--json")
    assert done.code == 0, done.err
    assert [prompt["template"] for prompt in done.json["prompts"]] == [TEMPLATES[0]]
    assert done.json["left_out_prompts"][0]["reason"] == "its weight in the file is 0"


def test_files_that_cannot_be_written_are_refused_before_the_work(askwell, lms, facts):
    start = ("evaluate", "--lm", lms["bert"], "--prompts", TEMPLATES[0], "--facts", facts)
    done = askwell(*start, "--per-fact", "/proc/nowhere/rows.parquet")
    assert done.code == 2
    assert "--per-fact" in done.err
