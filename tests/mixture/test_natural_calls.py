"""Calls as people would write them at first."""

import inspect
import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from builders import tiny
from builders.testbed import load_testbed_lm

import askwell
from askwell.answers.kinds import EncodedRelation
from askwell.data.split import split_shares
from askwell.data.templates import parse_template
from askwell.errors import BadFile, BadOption, UsageError
from askwell.specs.training_spec import FineTuningSpec

TEMPLATE = "the capital of [X] is [Y] ."


@pytest.fixture(scope="module")
def mixture():
    return askwell.Mixture(load_testbed_lm("bert"), TEMPLATE)


def test_one_template_is_a_mixture_of_one_prompt(mixture):
    assert [prompt.template.text for prompt in mixture.prompts] == [TEMPLATE]
    assert len(askwell.Mixture(mixture.lm, parse_template(TEMPLATE)).prompts) == 1


def test_facts_that_are_no_relation_are_refused_with_a_sentence(mixture):
    unchecked = inspect.unwrap(EncodedRelation.__init__)  # types are checked in tests alone
    with pytest.raises(BadOption, match=r"a Relation is needed, not list: askwell\.load_relation makes one"):
        unchecked(object.__new__(EncodedRelation), mixture, [("France", "Paris")])


def test_the_folder_of_a_checkpoint_is_not_a_mixture(tmp_path):
    (tmp_path / "checkpoint.safetensors").touch()
    with pytest.raises(BadFile, match=r"it is a checkpoint of train: mixture\.save_pretrained\(FOLDER\)"):
        askwell.Mixture.from_pretrained(tmp_path)


def test_several_xs_are_answered_as_each_alone(mixture):
    both = mixture.ask(["France", "Italy"], top=3)
    for replies, x in zip(both, ["France", "Italy"], strict=True):
        alone = mixture.ask(x, top=3)
        assert [reply.y for reply in replies] == [reply.y for reply in alone]
        assert [reply.probability for reply in replies] == pytest.approx(
            [reply.probability for reply in alone], rel=1e-4
        )
        assert replies.x == x
    with pytest.raises(BadOption, match="top=0"):
        mixture.ask("France", top=0)


def test_candidates_as_words_labels_and_files(mixture, tmp_path):
    words = mixture.ask("France", candidates=["Paris", "Rome"])
    assert {reply.y for reply in words} == {"Paris", "Rome"}
    assert sum(reply.probability for reply in words) == pytest.approx(1, abs=1e-5)
    (tmp_path / "words.txt").write_text("Paris\nRome\n")
    for given in (str(tmp_path / "words.txt"), tmp_path / "words.txt", ("Rome", "Paris"), iter(["Paris", "Rome"])):
        assert mixture.ask("France", candidates=given) == words
    labels = mixture.ask("France", candidates={"here": ["Paris", "Berlin"], "there": "Rome"})
    by_label = {reply.y: reply.probability for reply in labels}
    every = {reply.y: reply.probability for reply in mixture.ask("France", candidates=["Paris", "Berlin", "Rome"])}
    assert by_label["here"] == pytest.approx(every["Paris"] + every["Berlin"], abs=1e-5)


@pytest.mark.parametrize(
    ("candidates", "message"),
    [
        ([], "candidates are words"),
        ({"a": []}, "has no words"),
        ({"a": ["w"], "b": ["w"]}, "cannot also be one of"),
        ({"a": ["b"], "b": ["c"]}, "is both a label and a word of 'a'"),
    ],
)
def test_candidates_that_are_none(mixture, candidates, message):
    with pytest.raises(UsageError, match=message):
        mixture.ask("France", candidates=candidates)


def test_evaluate_and_train_take_words_and_a_folder_as_text(tmp_path):
    mixture = askwell.Mixture(load_testbed_lm("bert"), TEMPLATE)
    relation = askwell.load_relation("testbed:capital")
    words = sorted({fact.y for fact in relation.dev})
    scored = askwell.evaluate(mixture, relation, split="dev", candidates=words)
    assert all(set(outcome.answers) <= set(words) for outcome in scored.outcomes)
    askwell.train(mixture, relation, askwell.TrainingSpec(pairs=8), folder=str(tmp_path / "run"))
    assert any((tmp_path / "run").iterdir())


def test_an_lm_from_memory_answers_as_the_public_model_does():
    model, tokenizer = tiny.TINY["bert"]()
    lm = askwell.load_lm(model, tokenizer)
    mixture = askwell.Mixture(lm, "[X] lies in [Y] .", askwell.MixtureSpec(answers="one-token"))
    ids = tokenizer("Paris lies in [MASK] .", return_tensors="pt")
    with torch.no_grad():
        logits = model(**ids).logits[0]
    at = int((ids["input_ids"][0] == tokenizer.mask_token_id).nonzero())
    best = logits[at].softmax(0).max()
    assert mixture.ask("Paris")[0].probability == pytest.approx(float(best), rel=1e-4)
    assert not any(parameter.requires_grad for parameter in model.parameters())


def test_what_a_model_in_memory_needs():
    model, tokenizer = tiny.TINY["bert"]()
    with pytest.raises(BadOption, match=r"load_lm\(model, tokenizer\)"):
        askwell.load_lm(model)
    with pytest.raises(BadOption, match="already in memory"):
        askwell.load_lm(model, tokenizer, revision="main")
    with pytest.raises(BadOption, match="goes with a model in memory"):
        askwell.load_lm("testbed:bert", tokenizer)


def test_precision_and_device_as_torch_names_them():
    lm = askwell.load_lm("testbed:bert", device=torch.device("cpu"), dtype=torch.bfloat16)
    assert (lm.dtype, lm.device.type) == (torch.bfloat16, "cpu")
    assert askwell.load_lm("testbed:bert", dtype="float64", device="cpu").dtype == torch.float64
    model, tokenizer = tiny.TINY["bert"]()
    assert askwell.load_lm(model, tokenizer, dtype=torch.float64).dtype == torch.float64
    with pytest.raises(BadOption, match="int8: an LM runs in one of float32"):
        askwell.load_lm("testbed:bert", dtype=torch.int8)
    with pytest.raises(BadOption, match="cuda:1 cannot be used here"):
        askwell.load_lm("testbed:bert", device="cuda:1")


def test_paths_as_text_and_as_paths(tmp_path):
    (tmp_path / "prompts.txt").write_text(f"{TEMPLATE}\n")
    (tmp_path / "facts.csv").write_text("x,y\na,1\nb,2\nc,3\n")
    for kind in (str, Path):
        assert askwell.load_prompts(kind(tmp_path / "prompts.txt"))[0].text == TEMPLATE
        assert askwell.load_relation(kind(tmp_path / "facts.csv"), data=kind(tmp_path)).name == "facts"


def test_options_of_training_and_of_a_mixture_by_name(mixture):
    lm, relation = mixture.lm, askwell.load_relation("testbed:capital")
    by_name, by_spec = askwell.Mixture(lm, TEMPLATE, deep=True, seed=3), askwell.Mixture(lm, TEMPLATE, seed=3)
    assert (by_name.spec.deep, by_name.spec.seed, by_spec.spec.deep) == (True, 3, False)
    named = askwell.train(askwell.Mixture(lm, TEMPLATE), relation, pairs=8, threads=1)
    given = askwell.train(askwell.Mixture(lm, TEMPLATE), relation, askwell.TrainingSpec(pairs=8, threads=1))
    assert (named.spec.pairs, named.spec.recipe) == (8, "cycle")
    assert named == given
    assert askwell.Mixture(lm, TEMPLATE, weighting="data-dependent").spec.weighting == "data-dependent"


def test_a_relation_may_be_a_name_or_pairs(mixture):
    name, lm = "testbed:capital", mixture.lm
    relation = askwell.load_relation(name)
    pairs = {split: [(fact.x, fact.y) for fact in facts] for split, facts in relation.splits.items()}
    results = [
        askwell.train(askwell.Mixture(lm, TEMPLATE, relation=given), given, pairs=8, threads=1)
        for given in (relation, name, pairs)
    ]
    assert results[0] == results[1] == results[2]
    with pytest.raises(UsageError, match="no_such_facts"):
        askwell.train(mixture, "no_such_facts")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"pair": 100}, r"there is no option 'pair'; did you mean pairs\?"),
        ({"candidate": ["Paris"]}, r"there is no option 'candidate'; did you mean candidates\?"),
        ({"seed": 1}, "seed is not chosen here: give it to Mixture"),
        ({"pairs": 0}, "pairs=0: Input should be greater than or equal to 1"),
        ({"pairs": 1, "epochs": 1}, "pairs and epochs all set the budget"),
        ({"spec": askwell.TrainingSpec(), "pairs": 8}, r"a spec and pairs are given: give TrainingSpec\(…\), or its"),
    ],
)
def test_options_that_train_does_not_have(mixture, options, message):
    with pytest.raises(BadOption, match=message):
        askwell.train(mixture, askwell.load_relation("testbed:capital"), **options)


def test_options_that_a_mixture_does_not_have(mixture):
    with pytest.raises(BadOption, match="pairs is not chosen here: give it to train"):
        askwell.Mixture(mixture.lm, TEMPLATE, pairs=100)
    with pytest.raises(BadOption, match=r"there is no option 'example'; did you mean examples\?"):
        askwell.Mixture(mixture.lm, TEMPLATE, example=[])


def test_a_split_by_its_place_and_candidates_in_every_call(mixture):
    relation = askwell.load_relation("testbed:capital")
    words = sorted({fact.y for fact in (*relation.dev, *relation.test)})
    dev = askwell.evaluate(mixture, relation, "dev", candidates=words, progress=False)
    assert dev.split == "dev"
    assert (dev.controls, dev.trust) == (None, None)
    whole = askwell.evaluate(mixture, relation, candidates=words, controls=True, trust=True)
    assert whole.trust is not None
    assert whole.trust.facts == len(whole.outcomes) == len(relation.test)
    assert whole.controls is not None
    assert "prior" in whole.controls.controls
    assert whole.outcomes == askwell.evaluate(mixture, relation, candidates=words).outcomes
    with pytest.raises(BadOption, match="trust is measured on test"):
        askwell.evaluate(mixture, relation, "dev", trust=True)
    same = askwell.compare(dev, dev.outcomes)
    assert (same.micro.difference, same.facts) == (0, len(relation.dev))


def test_the_spec_of_a_run_takes_templates_as_text(mixture):
    relation = askwell.load_relation("testbed:capital")
    specs = [
        askwell.build_run_spec(mixture.lm, relation, given)
        for given in (TEMPLATE, [TEMPLATE], [parse_template(TEMPLATE)])
    ]
    assert [one.template for one in specs[0].templates] == [TEMPLATE]
    assert specs[0] == specs[1] == specs[2]


def test_a_ratio_or_rule_that_is_one_number_is_refused_with_a_sentence():
    pairs = [("a", "1"), ("b", "2"), ("c", "3")]
    unchecked = inspect.unwrap(split_shares)  # types are checked in tests alone
    with pytest.raises(BadOption, match=r"`ratio` 0\.2: write three numbers"):
        unchecked(0.2)
    with pytest.raises(BadOption, match=r"there is no split rule '0\.2': choose one of random"):
        askwell.load_relation(pairs, split="0.2")


def test_how_many_answers_may_follow_x_without_a_name(mixture):
    three = mixture.ask("France", top=3)
    assert mixture.ask("France", 3) == three


def test_columns_may_follow_the_file_without_names(tmp_path):
    (tmp_path / "cities.csv").write_text("country,city\na,1\nb,2\nc,3\n")
    named = askwell.load_relation(tmp_path / "cities.csv", x="country", y="city")
    assert askwell.load_relation(tmp_path / "cities.csv", "country", "city") == named
    assert askwell.load_relation(
        [{"country": x, "city": y} for x, y in zip("abc", "123", strict=True)], "country", "city"
    )


def test_prompts_of_a_relation_and_templates_that_are_parsed_already():
    relation = askwell.load_relation("testbed:capital")
    assert askwell.load_prompts("testbed:mined", relation) == askwell.load_prompts("testbed:mined", relation=relation)
    parsed = parse_template(TEMPLATE)
    assert askwell.load_prompts(parsed) == askwell.load_prompts([parsed]) == [parsed]


def test_a_score_by_its_name_and_a_metric_without_one(mixture):
    relation = askwell.load_relation("testbed:capital")
    dev = askwell.evaluate(mixture, relation, "dev", candidates=[fact.y for fact in relation.dev], progress=False)
    assert dev.score("P@1") == 100 * sum(outcome.rank == 1 for outcome in dev.outcomes) / len(dev.outcomes)
    with pytest.raises(BadOption, match=r"there is no metric 'P@7': choose one of P@1"):
        dev.score("P@7")
    assert askwell.compare(dev, dev, "MRR").metric == "MRR"


def test_the_spec_of_a_run_takes_settings_by_name(mixture):
    lm, relation = mixture.lm, askwell.load_relation("testbed:capital")
    by_name = askwell.build_run_spec(lm, relation, TEMPLATE, deep=True, seed=3, pairs=8)
    assert by_name == askwell.build_run_spec(
        lm,
        relation,
        TEMPLATE,
        mixture=askwell.MixtureSpec(deep=True, seed=3),
        training=askwell.TrainingSpec(pairs=8),
    )
    assert askwell.build_run_spec(lm, relation, TEMPLATE, deep=True).training is None
    assert askwell.build_run_spec(lm, relation, TEMPLATE, noise=0.5).mixture.noise == 0.5
    tuned_whole = askwell.build_run_spec(lm, relation, TEMPLATE, baseline="fine-tuning", epochs=3)
    assert (tuned_whole.training, tuned_whole.fine_tuning) == (None, FineTuningSpec(epochs=3))
    with pytest.raises(BadOption, match=r"there is no option 'depp'; did you mean deep\?"):
        askwell.build_run_spec(lm, relation, TEMPLATE, depp=True)
    with pytest.raises(BadOption, match="a spec and pairs are given"):
        askwell.build_run_spec(lm, relation, TEMPLATE, training=askwell.TrainingSpec(), pairs=8)


def test_a_run_on_other_facts_than_those_of_its_spec_is_refused(mixture, tmp_path):
    spec = askwell.build_run_spec(mixture.lm, askwell.load_relation("testbed:capital"), TEMPLATE)
    with pytest.raises(BadOption, match=r"run on testbed:capital, but these are different facts \(testbed:language\)"):
        askwell.run(spec, mixture.lm, askwell.load_relation("testbed:language"), tmp_path / "run")
    assert not (tmp_path / "run").exists()


WRONG_CALLS = {
    "askwell.load_lm()": "load_lm needs `name`",
    "askwell.load_lm('testbed:bert', torch_dtype='auto')": "load_lm has no option 'torch_dtype'; did you mean dtype?",
    "askwell.load_lm(lm)": "`name` must be a string or a path or a PreTrainedModel, not a FrozenLM",
    "askwell.load_relation('f.csv', x_column='a')": "load_relation has no option 'x_column'; did you mean x?",
    "askwell.load_relation('f.csv', 0, 1)": "load_relation: `x` must be a string, not 0",
    "askwell.load_prompts(None)": "NoneType holds no prompts",
    "askwell.Template('[X] is [Y] .')": "templates can be given as they are written",
    "askwell.Relation('capitals', [('France', 'Paris')])": "a Relation is made by askwell.load_relation",
    "askwell.Relation.of('r', [('a', 'b')], [], [])": "Relation.of takes Fact(x, y) objects",
    "askwell.Candidates(['Paris', 'Rome'])": "candidates can be given as they are",
    "askwell.FrozenLM('testbed:bert')": "a FrozenLM is loaded by askwell.load_lm",
    "askwell.Mixture('testbed:bert', t)": "`lm` must be a FrozenLM: write askwell.load_lm('testbed:bert')",
    "askwell.Mixture(lm)": "Mixture needs `templates`: write Mixture(lm, templates)",
    "askwell.Mixture(t, lm)": "`lm` must be a FrozenLM, not a str; the order is Mixture(lm, templates)",
    "askwell.Mixture(lm, prompts=[t])": "Mixture has no option 'prompts'; did you mean templates?",
    "askwell.Mixture(lm, 5)": "int is not a template",
    "askwell.Mixture(lm, 'testbed:mined')": "'testbed:mined' is not a template",
    "askwell.Mixture(lm, t, {'deep': True})": "`spec` must be a MixtureSpec, not a dict; its fields can also",
    "askwell.Mixture(lm, t, askwell.TrainingSpec())": "`spec` must be a MixtureSpec, not a TrainingSpec; its fields",
    "askwell.evaluate(lm, relation)": "evaluate: `mixture` must be a Mixture, not a FrozenLM",
    "askwell.evaluate('saved', relation)": "write askwell.Mixture.from_pretrained('saved')",
    "mixture.ask(5)": "x must be a string, or a list of strings, not int",
    "mixture.ask(['France', None])": "x must be a string, or a list of strings, not NoneType",
    "mixture.ask('France', k=3)": "Mixture.ask has no option 'k'; did you mean top?",
    "mixture.ask('France', '3')": "Mixture.ask: `top` must be a whole number, not '3'",
    "mixture.ask('France', candidates=5)": "candidates are words",
    "mixture.ask('France', candidates={'a': [5]})": "the words of the label 'a' must be strings, not int",
    "mixture(['France'])": "Mixture.forward needs `ys`",
    "mixture.train(relation, pairs=8)": "askwell.train(mixture, relation) tunes a mixture",
    "askwell.train(mixture)": "train needs `relation`: write train(mixture, relation); askwell.load_relation makes one",
    "askwell.train(mixture, pairs=8)": "train needs `relation`: write train(mixture, relation)",
    "askwell.train(relation, mixture)": "the order is train(mixture, relation)",
    "askwell.train(mixture, relation, lr=0.1)": "there is no option 'lr'; did you mean learning_rate?",
    "askwell.evaluate(mixture, relation, 'validation')": "there is no split 'validation'; did you mean dev?",
    "askwell.evaluate(mixture, relation, 'test', 5)": "evaluate takes only mixture, relation, split by position",
    "askwell.evaluate(relation, mixture)": "the order is evaluate(mixture, relation)",
    "askwell.compare(mixture, mixture)": "Mixture has no outcomes; compare evaluations, runs",
    "askwell.compare({'P@1': 5.0}, [])": "a dictionary has a list of outcomes for each seed",
    "askwell.compare([1], [2])": "int is not an Outcome; compare evaluations, runs",
    "askwell.nearest_words(mixture, k=5)": "nearest_words has no option 'k'; did you mean nearest?",
    "askwell.load_candidates(['Paris'])": "`path` must be a path or a string, not a list",
    "askwell.load_runs(['a', 'b'])": "`path` must be a path or a string, not a list",
    "askwell.build_run_spec('testbed:bert', relation, t)": "write askwell.load_lm('testbed:bert')",
    "askwell.build_run_spec(lm, relation, t, baseline='lamma')": "baseline='lamma': Input should be 'lama'",
    "askwell.run(lm, relation, t, 'out')": "`spec` must be a RunSpec, not a FrozenLM: askwell.build_run_spec makes one",
    "askwell.Client()": "Client needs `address`",
    "askwell.Client('http://h', 'm').ask(['France'])": "Client.ask: `x` must be a string, not a list",
}
USER = """
import json, sys
import askwell
lm, relation, t = askwell.load_lm("testbed:bert"), askwell.load_relation("testbed:capital"), "[X] is in [Y] ."
mixture, said = askwell.Mixture(lm, t), {}
for call in json.load(sys.stdin):
    try:
        eval(call)
    except askwell.UsageError as error:
        said[call] = str(error)
    except Exception as error:
        said[call] = repr(error)
print(json.dumps(said))
"""


def test_calls_that_do_not_fit_are_refused_with_a_sentence():
    # In a process of its own, where types are not checked as they are in all other tests.
    calls = json.dumps([*WRONG_CALLS])
    ended = subprocess.run([sys.executable, "-c", USER], input=calls, capture_output=True, text=True, check=True)
    said = json.loads(ended.stdout)
    assert {call: said.get(call) for call, message in WRONG_CALLS.items() if message not in said.get(call, "")} == {}
