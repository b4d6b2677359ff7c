"""The commands do their work on real input, and print it in the documented form."""

import json
import re
import xml.etree.ElementTree as ElementTree

import duckdb
import pytest
from builders.worlds import PAIRS, TEMPLATES, write_prompts, write_relation

from askwell import load_lm
from askwell.mixture.mixture import Mixture

PROMPTS = ("--prompts", TEMPLATES[0], "--prompts", TEMPLATES[1])
QUICK = ("--recipe", "paper", "--epochs", "2", "--threads", "1", "--learning-rate", "0.01")


def query(sql):
    with duckdb.connect() as database:
        return database.execute(sql).fetchall()


@pytest.fixture
def trained(askwell, lms, facts, tmp_path):
    done = askwell("train", "--lm", lms["bert"], "--facts", facts, *PROMPTS, "--out", tmp_path / "mixture", *QUICK)
    assert done.code == 0, done.err
    return tmp_path / "mixture"


def test_train_saves_all_that_belongs_to_a_run(trained, facts):
    files = sorted(path.relative_to(trained).as_posix() for path in trained.rglob("*") if path.is_file())
    assert files == [
        "controls.parquet",
        "dev.parquet",
        "environment.json",
        "facts.parquet",
        "history.jsonl",
        "mixture/README.md",
        "mixture/config.json",
        "mixture/facts_path.txt",
        "mixture/lm_path.txt",
        "mixture/mixture.safetensors",
        "run.json",
        "train.parquet",
        "untuned.parquet",
    ]
    history = [json.loads(line) for line in (trained / "history.jsonl").read_text().splitlines()]
    assert [record["round"] for record in history] == [0, 1, 2]
    rows = query(f"SELECT x, y, rank, answers FROM '{trained / 'facts.parquet'}'")
    pairs = {(line["sub"], line["obj"]) for line in map(json.loads, (facts / "test.jsonl").read_text().splitlines())}
    assert {(x, y) for x, y, *_ in rows} == pairs
    for _, y, rank, answers in rows:
        assert (answers.index(y) + 1 == rank) if y in answers else rank > 10
    card = (trained / "mixture" / "README.md").read_text().replace("\\", "")  # they escape brackets
    for promised in (*TEMPLATES[:2], "bert", "P@1", "capitals"):
        assert promised in card


def test_train_tells_on_stderr_how_it_goes(askwell, lms, facts, tmp_path):
    done = askwell("train", "--lm", lms["bert"], "--facts", facts, *PROMPTS, "--out", tmp_path / "m", *QUICK)
    assert re.search(r"12/24 pairs +loss +\d+\.\d+ +dev P@1 +\d+\.\d +dev log-loss \d+\.\d+ +\d+ pairs/s", done.err)
    assert "pairs" not in done.out.split("effective prompts")[0]
    assert "tuned" in done.out


def test_train_json_is_one_document(askwell, lms, facts, tmp_path):
    done = askwell(
        "train", "--lm", lms["llama"], "--facts", facts, *PROMPTS, "--prompts", "[Y] and [X]", "--out", tmp_path / "m",
        *QUICK, "--deep", "--weighting", "data-dependent", "--json",
    )  # fmt: skip
    assert done.code == 0, done.err
    assert [prompt["template"] for prompt in done.json["prompts"]] == TEMPLATES[:2]
    assert done.json["left_out_prompts"][0]["template"] == "[Y] and [X]"
    assert len(done.json["history"]) == 3
    assert done.json["spec"]["training"]["epochs"] == 2
    assert "y comes before x" in done.err


def test_evaluate_a_saved_mixture(askwell, trained, facts, tmp_path):
    done = askwell("evaluate", trained, "--facts", facts, "--per-fact", tmp_path / "rows.parquet", "--json")
    assert done.code == 0, done.err
    saved = json.loads((trained / "run.json").read_text())["test"]["micro"]
    assert done.json["facts"] == 4
    assert done.json["left_out"] == {}
    assert done.json["micro"] == done.json["macro"] == {key: saved[key] for key in ("P@1", "P@10", "MRR")}
    assert query(f"SELECT count(*) FROM '{tmp_path / 'rows.parquet'}'") == [(4,)]
    table = askwell("evaluate", trained, "--facts", facts)
    assert f"{saved['MRR']:.1f}" in table.out


def test_evaluate_untuned_prompts_as_a_uniform_mixture(askwell, lms, facts):
    done = askwell("evaluate", "--lm", lms["roberta"], *PROMPTS, "--facts", facts, "--split", "train", "--json")
    assert done.code == 0, done.err
    assert done.json["facts"] == 6
    assert set(done.json["micro"]) == {"P@1", "P@10", "MRR"}


def test_evaluate_many_relations_gives_micro_and_macro(askwell, lms, tmp_path):
    for name, pairs in {
        "A": [("Paris", "France"), ("Rome", "Italy"), ("Oslo", "Norway")],
        "B": [("Lima", "Peru")],
    }.items():
        write_relation(tmp_path / "facts" / "world" / name, train=pairs, dev=pairs, test=pairs)
        write_prompts(tmp_path / "prompts" / "hand" / f"{name}.jsonl", TEMPLATES[:1])
    arguments = ("evaluate", "--lm", lms["bert"], "--prompts", "hand", "--facts", "world", "--data", tmp_path, "--json")
    done = askwell(*arguments)
    assert done.code == 0, done.err
    of_a, of_b = done.json["relations"]["world/A"]["MRR"], done.json["relations"]["world/B"]["MRR"]
    assert of_a != of_b
    assert done.json["micro"]["MRR"] == pytest.approx((3 * of_a + of_b) / 4)
    assert done.json["macro"]["MRR"] == pytest.approx((of_a + of_b) / 2)


def test_evaluate_among_candidates(askwell, lms, facts, tmp_path):
    (tmp_path / "words.txt").write_text("Spain\nEgypt\nNorway\nReykjavik\n\nSpain\n")
    done = askwell(
        "evaluate", "--lm", lms["bert"], *PROMPTS, "--facts", facts, "--candidates", tmp_path / "words.txt", "--json"
    )
    assert done.code == 0, done.err
    assert done.json["facts"] == 3
    assert done.json["left_out"] == {"y is not among the candidates": 1}
    assert done.json["candidates_left_out"] == 1
    assert done.json["micro"]["P@10"] == 100.0


def test_evaluate_a_product_with_the_weights_of_the_file(askwell, lms, facts, tmp_path):
    lines = [{"template": TEMPLATES[0], "weight": 3.0}, {"template": TEMPLATES[1], "weight": 1.0}]
    (tmp_path / "p.jsonl").write_text("\n".join(map(json.dumps, lines)))
    arguments = ("evaluate", "--lm", lms["bert"], "--prompts", tmp_path / "p.jsonl", "--facts", facts, "--json")
    done = askwell(*arguments, "--combine", "product", "--weights", "file")
    assert done.code == 0, done.err
    assert done.json["log_loss"] != askwell(*arguments, "--combine", "product").json["log_loss"]


def test_ask_a_saved_mixture(askwell, trained, lms, facts):
    train = {json.loads(line)["sub"] for line in (facts / "train.jsonl").read_text().splitlines()}
    done = askwell("ask", trained, min(train), "--json")
    assert f"{min(train)}: seen in training" in done.err
    done = askwell("ask", trained, "Quito", "--top", "3", "--json")
    assert done.code == 0, done.err
    assert ("Quito: seen in training" in done.err) == ("Quito" in train)
    (tested, *_) = (json.loads(line)["sub"] for line in (facts / "test.jsonl").read_text().splitlines())
    strange = askwell("ask", trained, min(train).upper(), "Atlantis", tested, "--json")
    assert f"{tested}: not an x" not in strange.err
    assert f"{min(train).upper()}: not an x of the run's facts, which have {min(train)}\n" in strange.err
    assert "Atlantis: not an x of the run's facts\n" in strange.err
    ((x, answers),) = [(one["x"], one["answers"]) for one in done.json]
    assert x == "Quito"
    assert [set(answer) for answer in answers] == [{"y", "probability", "by_prompt"}] * 3
    probabilities = [answer["probability"] for answer in answers]
    assert probabilities == sorted(probabilities, reverse=True)
    replies = Mixture.from_pretrained(trained, lm=load_lm(lms["bert"])).ask("Quito", top=3)
    assert [reply.y for reply in replies] == [answer["y"] for answer in answers]
    assert len(answers[0]["by_prompt"]) == 2


def test_ask_untuned_prompts_about_several(askwell, lms):
    done = askwell("ask", "--lm", lms["bart"], *PROMPTS, "Paris", "Mary Cassatt", "--json")
    assert done.code == 0, done.err
    assert [question["x"] for question in done.json] == ["Paris", "Mary Cassatt"]
    shown = askwell("ask", "--lm", lms["bart"], *PROMPTS, "Paris")
    assert done.json[0]["answers"][0]["y"] in shown.out


def test_ask_among_the_ys_of_train_and_each_prompt_by_itself(askwell, lms, tmp_path):
    pairs = [("Paris", "Mary Cassatt"), ("Rome", "Quito"), ("Quito", "Rome")]
    facts = write_relation(tmp_path / "friends", train=pairs, dev=pairs, test=pairs)
    start = ("ask", "--lm", lms["bert"], "--prompts", TEMPLATES[0], "--prompts", TEMPLATES[1], "Paris")
    done = askwell(*start, "--facts", facts, "--among", "train", "--each-prompt", "--json")
    assert done.code == 0, done.err
    (answered,) = done.json
    assert {answer["y"] for answer in answered["answers"]} == {"Mary Cassatt", "Quito", "Rome"}
    assert sum(answer["probability"] for answer in answered["answers"]) == pytest.approx(1, abs=1e-5)
    assert [prompt["prompt"] for prompt in answered["prompts"]] == TEMPLATES[:2]
    for number, prompt in enumerate(answered["prompts"]):
        by_prompt = {answer["y"]: answer["by_prompt"][number] for answer in answered["answers"]}
        assert prompt["y"] == max(by_prompt, key=by_prompt.__getitem__)
        assert prompt["probability"] == pytest.approx(by_prompt[prompt["y"]])
    # The facts alone also decide how long answers are: Mary Cassatt is not one token of a masked LM.
    assert askwell(*start, "--answers", "any-length").code == 2
    shown = askwell(*start, "--facts", facts, "--answers", "any-length", "--each-prompt")
    assert shown.code == 0, shown.err
    assert "answer by itself" in shown.out
    no_facts = askwell(*start, "--among", "train")
    assert no_facts.code == 2
    assert "--facts" in no_facts.err


@pytest.mark.parametrize(
    ("name", "content", "options"),
    [
        ("xs.txt", "Paris\n\nRome\n", ()),
        ("xs.csv", 'x,y\nParis,France\n"Rome",Italy\n', ()),
        ("xs.tsv", "name\tyear\nParis\t1\nRome\t2\n", ("--column", "name")),
        ("xs.jsonl", '{"sub": "Paris"}\n{"sub": "Rome", "obj": "Italy"}', ()),
    ],
)
def test_ask_a_file(askwell, lms, tmp_path, name, content, options):
    (tmp_path / name).write_text(content)
    arguments = ("ask", "--lm", lms["bert"], *PROMPTS, "--file", tmp_path / name, *options)
    assert [question["x"] for question in askwell(*arguments, "--json").json] == ["Paris", "Rome"]
    lines = askwell(*arguments, "--top", "2").out.splitlines()
    assert [line.split("\t")[0] for line in lines] == ["Paris", "Paris", "Rome", "Rome"]


def test_show_in_the_terminal_and_as_pictures(askwell, trained, tmp_path):
    done = askwell("show", trained, "--svg", tmp_path / "p.svg", "--html", tmp_path / "p.html")
    assert done.code == 0, done.err
    for word in ("lies", "capital", "[X]", "[Y]"):
        assert word in done.out
    ElementTree.parse(tmp_path / "p.svg")
    assert "lies" in (tmp_path / "p.html").read_text()
    assert "put back: how the mean" in done.out
    assert "put back" in (tmp_path / "p.svg").read_text()
    document = askwell("show", trained, "--json", "--put-back", 1).json
    assert [prompt["facts"] for prompt in document] == [1, 1]
    assert all(prompt["change"] is None for prompt in askwell("show", trained, "--json", "--put-back", 0).json)
    assert "--put-back -1" in askwell("show", trained, "--put-back", "-1").err


def test_names_in_a_data_folder(askwell, lms, facts, tmp_path, monkeypatch):
    (tmp_path / "data" / "prompts" / "mine").mkdir(parents=True)
    (tmp_path / "data" / "facts" / "mine").mkdir(parents=True)
    facts.rename(tmp_path / "data" / "facts" / "mine" / "P1")
    (tmp_path / "data" / "prompts" / "mine" / "P1.jsonl").write_text(json.dumps({"template": TEMPLATES[0]}))
    arguments = ("train", "--lm", lms["bert"], "--facts", "mine/P1", "--prompts", "mine/P1", *QUICK)
    done = askwell(*arguments, "--data", tmp_path / "data", "--out", tmp_path / "a")
    assert done.code == 0, done.err
    monkeypatch.setenv("ASKWELL_DATA", str(tmp_path / "data"))
    done = askwell(*arguments, "--out", tmp_path / "b")
    assert done.code == 0, done.err
    again = askwell("evaluate", tmp_path / "a", tmp_path / "b", "--json")
    assert again.code == 0, again.err
    assert again.json["facts"] == 8, "the relation is found again by its name"


def test_several_golds_and_leaks_are_reported(askwell, lms, facts, tmp_path):
    with (facts / "train.jsonl").open("a") as train:
        train.write('\n{"sub": "Paris", "obj": "France"}\n{"sub": "Reykjavik", "obj": "Spain"}')
    done = askwell("train", "--lm", lms["bert"], "--facts", facts, *PROMPTS, "--out", tmp_path / "m", *QUICK)
    assert done.code == 0, done.err
    assert "1 line repeats a fact" in done.err
    assert "is in both train and test" in done.err


def test_the_rule_of_the_split_is_kept_with_the_mixture(askwell, lms, tmp_path):
    facts = tmp_path / "facts.csv"
    facts.write_text("x,y\n" + "".join(f"{x},{y}\n" for x, y in PAIRS))
    start = ("--lm", lms["bert"], "--facts", facts, "--prompts", TEMPLATES[0], "--epochs", "0")
    assert askwell("train", *start, "--split-by", "distinct-y", "--out", tmp_path / "m").code == 0
    done = askwell("evaluate", tmp_path / "m", "--facts", facts, "--json")
    assert done.code == 0, done.err
    assert "not the split" not in done.err
    assert "WARNING" in askwell("evaluate", tmp_path / "m", "--facts", facts, "--split-by", "random").err


def test_one_x_that_cannot_be_asked_does_not_stop_the_others(askwell, lms, tmp_path):
    (tmp_path / "xs.txt").write_text("Paris\n" + "Rome " * 90 + "\nOslo\n")
    done = askwell("ask", "--lm", lms["bert"], "--prompts", TEMPLATES[0], "--file", tmp_path / "xs.txt", "--json")
    assert done.code == 0, done.err
    assert [question["x"] for question in done.json] == ["Paris", "Oslo"]
    assert "longer than the LM's context" in done.err
    (tmp_path / "xs.txt").write_text("Rome " * 90)
    assert askwell("ask", "--lm", lms["bert"], "--prompts", TEMPLATES[0], "--file", tmp_path / "xs.txt").code == 2


def test_one_relation_without_facts_does_not_stop_the_others(askwell, lms, tmp_path):
    for name, y in {"A": "France", "B": "東京"}.items():
        pairs = [("Paris", y)]
        write_relation(tmp_path / "facts" / "world" / name, train=pairs, dev=pairs, test=pairs)
        write_prompts(tmp_path / "prompts" / "hand" / f"{name}.jsonl", TEMPLATES[:1])
    done = askwell(
        "evaluate", "--lm", lms["bert"], "--prompts", "hand", "--facts", "world", "--data", tmp_path, "--json"
    )
    assert done.code == 0, done.err
    assert list(done.json["relations"]) == ["world/A"]
    assert list(done.json["relations_left_out"]) == ["world/B"]
    assert done.json["counts"]["world/A"]["test_in_train"] == 1


def test_a_prompt_that_weighs_nothing_is_left_out(askwell, lms, facts, tmp_path):
    lines = [{"template": TEMPLATES[0], "weight": 1.0}, {"template": TEMPLATES[1], "weight": 0}]
    (tmp_path / "p.jsonl").write_text("\n".join(map(json.dumps, lines)))
    start = ("train", "--lm", lms["bert"], "--facts", facts, "--prompts", tmp_path / "p.jsonl", "--epochs", "1")
    done = askwell(*start, "--weights", "file", "--out", tmp_path / "m", "--json")
    assert done.code == 0, done.err
    assert [prompt["template"] for prompt in done.json["prompts"]] == [TEMPLATES[0]]
    assert done.json["left_out_prompts"][0]["reason"] == "its weight in the file is 0"
