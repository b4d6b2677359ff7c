"""How objects are shown in a terminal and in a notebook."""

import re
from html.parser import HTMLParser

import pytest
import torch
from builders.stores import keep, new_store
from builders.testbed import load_testbed_lm
from builders.worlds import CAPITALS, frozen

import askwell
from askwell.answers.candidates import Candidates
from askwell.answers.reply import Reply
from askwell.evaluation.labels import figures_of
from askwell.runs.folder import load_runs
from askwell.training.history import HistoryLine, TrainingResult
from askwell.views.document import Cell, Column, ColumnGroup, Document, Row, Section, Table, overview
from askwell.views.scores import reply_table
from askwell.views.to_html import notebook_html
from askwell.views.to_text import plain_text


class Balanced(HTMLParser):
    """Collects text, and fails if tags are not closed."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.words = ""
        self.feed(html)
        assert not self.open

    def handle_starttag(self, tag, attrs):  # noqa: ARG002
        self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words += f"{data}\n"


@pytest.fixture(scope="module")
def mixture():
    return askwell.Mixture(load_testbed_lm("bert"), ["the capital of [X] is [Y] .", "[X] <b>&[Y]"])


def test_a_mixture_shows_its_prompts_by_weight(mixture):
    shown = str(mixture).splitlines()
    assert shown[0] == "Mixture of 2 prompts over testbed:bert, untuned"
    assert shown[1].split() == ["weight", "prompt"]
    assert shown[2].split() == "0.500 the capital of [X] is [Y] .".split()  # noqa: SIM905 - as it is read
    assert repr(mixture) == str(mixture)
    html = mixture._repr_html_()
    assert "&lt;b&gt;&amp;[Y]" in html
    assert "[X] <b>&[Y]" in Balanced(html).words


def test_an_lm_shows_its_size_and_where_it_runs():
    lm = load_testbed_lm("bert")
    parameters = sum(parameter.numel() for parameter in lm.model.parameters())
    assert str(lm).splitlines() == [
        "FrozenLM testbed:bert (BertForMaskedLM, masked)",
        f"  {parameters / 1e6:.1f} million parameters, {lm.model.config.num_hidden_layers} layers × "
        f"{lm.model.config.hidden_size}, {lm.model.config.vocab_size:,} tokens; on cpu in float32",
    ]
    assert "encoder 2 layers" in str(frozen("bart"))
    assert "decoder 3 layers" in Balanced(frozen("bart")._repr_html_()).words


def test_a_relation_shows_its_splits():
    shown = str(CAPITALS).splitlines()
    assert shown[0] == "Relation capitals: 13 facts, 9 different ys"
    assert shown[2].split() == ["train", "10", "Berlin", "→", "Germany"]
    assert "1 fact is in both train and dev" in str(CAPITALS)
    assert "Lima → Peru" in Balanced(CAPITALS._repr_html_()).words


def test_answers_to_several_questions(mixture):
    both = mixture.ask(["France", "Italy"], top=3)
    shown = str(both).splitlines()
    assert shown[0] == "Answers to 2 questions"
    assert shown[1].split() == ["x", "probability", "answer", "next"]
    for line, replies in zip(shown[2:], both, strict=True):
        first, *others = (f"{100 * reply.probability:.1f} %" for reply in replies)
        assert line.startswith(f"  {replies.x}")
        assert f"{first}  {replies[0].y}" in line
        assert all(f"{reply.y} ({one})" in line for reply, one in zip(replies[1:], others, strict=True))
    assert "Italy" in Balanced(both._repr_html_()).words
    frame = both.to_pandas()
    assert frame["x"].tolist() == ["France"] * 3 + ["Italy"] * 3
    assert frame["rank"].tolist() == [1, 2, 3] * 2
    assert frame["y"].tolist() == [reply.y for x in ("France", "Italy") for reply in mixture.ask(x, top=3)]
    assert both[0].to_arrow().column_names == ["x", "rank", "y", "probability"]


def test_candidates_labels_and_embeddings(mixture):
    labels = Candidates("worlds", ("Asia", "Europe", "Oceania"), ("old", "old", "pacific"))
    assert str(labels).splitlines() == [
        "Candidates worlds: 2 labels",
        "  label    words",
        "  old      Asia, Europe",
        "  pacific  Oceania",
    ]
    assert "Candidates words: 1 word" in str(Candidates("words", ("Asia",)))
    assert [line.split() for line in str(figures_of(["a", "b"], [[3, 1], [0, 2]])).splitlines()] == [
        "Macro F1 82.9 over 2 labels".split(),  # noqa: SIM905 - F1 of a: 2·1·¾ / 1¾ = 6/7, of b: 2·⅔·1 / 1⅔ = 4/5
        "facts precision recall F1 → a → b".split(),  # noqa: SIM905
        ["a", "4", "100.0", "75.0", "85.7", "3", "1"],
        ["b", "2", "66.7", "100.0", "80.0", "0", "2"],
    ]
    embedded = str(askwell.Mixture(mixture.lm, "[X] lies in [Y] .").embed("France"))
    width = mixture.lm.model.config.hidden_size
    assert re.search(rf"inputs_embeds +\[1, \d+, {width}\]", embedded)
    assert len(embedded) < 200


def test_answers_show_themselves_with_their_probabilities(mixture):
    replies = mixture.ask("France", top=2)
    shown = str(replies).splitlines()
    assert shown[0] == "France"
    assert shown[2].split()[0] == f"{100 * replies[0].probability:.1f}"
    assert str(replies[0]) == f"{replies[0].y} ({100 * replies[0].probability:.1f} %)"
    assert replies[0].y in Balanced(replies._repr_html_()).words
    assert isinstance(replies, list)


def test_an_evaluation_shows_its_scores(mixture):
    relation = askwell.load_relation("testbed:capital")
    evaluation = askwell.evaluate(mixture, relation, split="dev")
    shown = str(evaluation).splitlines()
    asked = len(evaluation.outcomes)
    assert shown[0].startswith(f"Evaluation of {asked} dev facts, among all ")
    right = sum(outcome.rank <= 1 for outcome in evaluation.outcomes)
    assert shown[2].split()[:2] == ["micro", f"{100 * right / asked:.1f}"]
    assert "P@10" in Balanced(evaluation._repr_html_()).words
    assert len(str(evaluation)) < 800


def test_training_scores_test_on_request(mixture):
    pairs = [(fact.x, fact.y) for fact in askwell.load_relation("testbed:capital")["train"][:10]]
    relation = askwell.load_relation(pairs)
    tuned = askwell.Mixture(mixture.lm, "[X] lies in [Y] .")
    result = askwell.train(tuned, relation, pairs=8, threads=1, test=True)
    assert result.test is not None
    assert result.test.outcomes == askwell.evaluate(tuned, relation).outcomes
    assert "on 1 test fact: P@1 " in str(result)
    assert "1 test fact: P@1 on more of them may lie anywhere between " in str(result.test)
    assert len(result.history) > 1


def test_a_training_result():
    dev = [{"P@1": p, "log_loss": None if p == 5 else p / 10, "facts": 900} for p in (5.0, 20.0, 10.0)]
    history = tuple(HistoryLine(n, 10 * n, float(n) or None, scores, 1.0) for n, scores in enumerate(dev))
    result = TrainingResult(
        spec=askwell.TrainingSpec(), history=history, left_out={}, train_facts=100, dev_facts=900, pairs=20,
        planned_pairs=20, step_sizes={}, finished=True, vocabulary="",
    )  # fmt: skip
    shown = [line.split() for line in str(result).splitlines()]
    assert " ".join(shown[0]) == "Trained on 100 facts, scored on 900 dev facts"
    assert shown[2:] == [
        ["0", "5.0", "∞"],
        ["10", "1.000", "20.0", "2.000", "←", "kept"],
        ["20", "2.000", "10.0", "1.000"],
    ]


def test_runs_and_their_table(tmp_path):
    store = new_store(tmp_path)
    keep(store, (1, 20), setting="soft", seed=1, controls={"majority": (1, 1)})
    keep(store, (1, 1), setting="soft", seed=2)
    runs = load_runs(tmp_path)
    assert isinstance(runs, list)
    shown = str(runs).splitlines()
    assert shown[0] == "2 runs"
    assert "50.0" in shown[2]
    assert "100.0" in shown[3]
    one = next(run for run in runs if run.record.spec.seed == 1)
    assert "seed 1" in str(one)
    assert str(tmp_path) in str(one)
    assert [line.split()[:2] for line in str(one).splitlines() if line.strip().startswith("tuned ")] == [
        ["tuned", "50.0"]
    ]
    for shows in (runs, one, one.record):
        assert "50.0" in Balanced(shows._repr_html_()).words


def test_runs_come_in_the_order_in_which_they_are_shown(tmp_path):
    store = new_store(tmp_path)
    for seed in (3, 1, 2):
        keep(store, (1,), setting="soft", seed=seed)
    keep(store, (9,), setting="soft", seed=1, control="random-weights")
    runs = load_runs(tmp_path)
    assert [(run.record.spec.seed, run.record.spec.control) for run in runs] == [
        (1, None), (2, None), (3, None), (1, "random-weights"),
    ]  # fmt: skip
    shown = [line.split() for line in str(runs).splitlines()[1:]]
    assert shown[0][-1] == "control"
    assert [line[0] for line in shown[1:]] == [run.record.id[:8] for run in runs]
    assert [line[-1] for line in shown[1:]] == ["–", "–", "–", "random-weights"]


def test_a_table_of_a_report():
    groups = (ColumnGroup("", (Column("P@1"),)),)
    table = Table("all <facts>", "LM", groups, (Row("bert", (Cell("50.0"),)),))
    html = notebook_html(Document("", sections=(Section("", (table,)),)))
    assert {"50.0", "bert", "all <facts>"} <= set(Balanced(html).words.splitlines())


def test_only_so_many_rows_are_shown():
    document = overview("many", ("n",), [(str(n),) for n in range(107)], ("n",))
    assert len(plain_text(document).splitlines()) == 13
    assert plain_text(document).endswith("… and 97 more")
    assert "and 97 more" in Balanced(notebook_html(document)).words


def test_a_tuned_mixture_says_so():
    mixture = askwell.Mixture(load_testbed_lm("bert"), "the capital of [X] is [Y] .")
    askwell.train(
        mixture,
        askwell.load_relation("testbed:continent"),
        askwell.TrainingSpec(pairs=8),
        candidates=["Africa", "Europe", "Asia"],
    )
    assert str(mixture).splitlines()[0] == "Mixture of 1 prompt over testbed:bert, tuned"
    assert "chooses among 3: Africa, Europe, Asia" in str(mixture)
    assert torch.equal(mixture.weights, torch.ones(1))


def test_the_most_confident_prompt_is_named_once_where_it_is_the_same_for_all_answers():
    replies = [Reply("Lima", 0.6, by_prompt=(0.7, 0.5)), Reply("Cusco", 0.2, by_prompt=(0.3, 0.1))]
    table = reply_table("Peru", replies, ["one [X] [Y]", "two [X] [Y]"])
    assert (table.caption, len(table.columns)) == ("Most confident prompt: one [X] [Y]", 2)
    table = reply_table("Peru", [*replies, Reply("Ica", 0.1, by_prompt=(0.0, 0.2))], ["one [X] [Y]", "two [X] [Y]"])
    assert table.caption == ""
    assert [row.cells[-1].text for row in table.rows] == ["one [X] [Y]", "one [X] [Y]", "two [X] [Y]"]
