"""One pass over the facts: the same outcomes as asking separately, and no question is put to the LM twice."""

import math
from collections import Counter

import pytest
import torch
from agreement import exact, moved, usable
from builders.specs import paper_spec
from builders.worlds import CAPITALS, TEMPLATES, frozen

from askwell.answers import kinds
from askwell.answers.candidates import Candidates
from askwell.data.facts import Fact, Relation
from askwell.evaluation.examine import evaluate_split, examine
from askwell.evaluation.knowledge import MAJORITY, PRIOR, PRIOR_CORRECTED, PRIOR_MASKED_X
from askwell.evaluation.metrics import RANK_METRICS, scores_of
from askwell.evaluation.trust import trust_of
from askwell.lms.frozen import FrozenLM

# No x stands twice, so that a question that is asked twice is one too many.
DISTINCT = Relation.of(
    "r",
    train=[Fact("Berlin", "Germany"), Fact("Boston", "Egypt"), Fact("Oslo", "Norway")],
    dev=[Fact("Rome", "Italy"), Fact("Madrid", "Spain")],
    test=[Fact("Lima", "Peru"), Fact("Paris", "France"), Fact("Quito", "Italy")],
)
SPECS = {
    "mixture": paper_spec(),
    "data-dependent": paper_spec(weighting="data-dependent"),
    "product": paper_spec(combine="product"),
}
WORDS = Candidates("some", ("Peru", "Italy", "Norway", "Spain", "Egypt", "France"))


@pytest.fixture
def questions(monkeypatch) -> Counter:
    """How often each question was put to the LM: what is read from it, and the tokens and prompt tokens it reads."""
    counted: Counter = Counter()

    def count(method):
        whole = getattr(FrozenLM, method)

        def counting(self, batch, *arguments, **options):
            streams = [
                list(zip(stream.ids.tolist(), stream.prompt_tokens.tolist(), stream.lengths.tolist(), strict=True))
                for stream in batch.streams.values()
            ]
            for pair in batch.read_pairs.unique().tolist():
                read = [(ids[:length], rows[:length]) for ids, rows, length in (stream[pair] for stream in streams)]
                counted[method == "log_probs_of", str(read)] += 1
            return whole(self, batch, *arguments, **options)

        monkeypatch.setattr(FrozenLM, method, counting)

    for method in ("distributions", "logits", "log_probs_of"):
        count(method)
    return counted


@pytest.mark.parametrize("candidates", [None, WORDS])
@pytest.mark.parametrize("kind", SPECS)
def test_no_question_is_asked_twice(kind, candidates, questions):
    mixture = moved(frozen("bert"), TEMPLATES, SPECS[kind])
    questions.clear()  # a frozen LM is tried out when it is made
    found = examine(mixture, DISTINCT, candidates=candidates)
    asked = sum(len(evaluation.outcomes) for evaluation in found.evaluations.values())
    xs = asked + len(DISTINCT.train)
    of_y = Counter({key: times for key, times in questions.items() if not key[0]})
    assert of_y.total() == len(mixture.prompts) * (xs + 1)  # one for the masked x
    assert set(of_y.values()) == {1}
    of_x = Counter({key: times for key, times in questions.items() if key[0]})
    assert of_x.total() == (len(mixture.prompts) * xs if kind == "data-dependent" else 0)


def test_controls_on_dev_ask_nothing_of_dev(questions):
    mixture = moved(frozen("bert"), TEMPLATES)
    questions.clear()
    found = examine(mixture, DISTINCT, splits=("test",), prompts=False)
    assert questions.total() == len(mixture.prompts) * (len(DISTINCT.test) + len(DISTINCT.train) + 1)
    assert set(found.controls.outcomes[PRIOR]) == {"test", "dev"}
    assert set(found.controls.outcomes[PRIOR_CORRECTED]) == {"test"}
    assert found.prompt_answers is None
    figures = found.controls.figures()
    assert figures[MAJORITY].dev == scores_of(found.controls.outcomes[MAJORITY]["dev"], RANK_METRICS)
    assert figures[PRIOR_CORRECTED].dev is None


@pytest.mark.parametrize("candidates", [None, WORDS])
@pytest.mark.parametrize("kind", SPECS)
@pytest.mark.parametrize("name", ["bert", "llama"])
def test_the_outcomes_are_those_of_evaluate(name, kind, candidates):
    mixture = moved(frozen(name), TEMPLATES, SPECS[kind])
    told = []
    found = examine(mixture, CAPITALS, candidates=candidates, top=4, progress=lambda *of: told.append(of))
    for split in ("test", "dev"):
        assert found.evaluations[split] == evaluate_split(mixture, CAPITALS, split=split, candidates=candidates, top=4)
    facts = sum(len(evaluation.outcomes) for evaluation in found.evaluations.values())
    assert told[-1] == (facts, facts)
    assert found.missing == found.controls.missing == {}
    assert (PRIOR_MASKED_X in found.controls.outcomes) == (name == "bert")


def test_without_controls_only_the_facts_are_asked(questions):
    mixture = moved(frozen("bert"), TEMPLATES)
    questions.clear()
    found = examine(mixture, DISTINCT, splits=("test",), controls=False)
    assert questions.total() == len(mixture.prompts) * len(DISTINCT.test)
    assert (found.controls.outcomes, found.controls.missing) == ({}, {})


def test_the_entropy_of_weights_that_depend_on_x():
    mixture = moved(exact("bert"), usable("bert"), paper_spec(weighting="data-dependent"))
    relation = Relation.of("r", [], [], [Fact("Paris", "Rome"), Fact("Paris", "Lima"), Fact("Mary Cassatt", "Oslo")])
    facts, _ = mixture.encode(relation.test)
    with torch.no_grad():
        log_weights = mixture.weighting(mixture.log_p_x(facts.xs, torch.arange(3)), 3).tolist()
    entropies = [-sum(math.exp(w) * w for w in row) / math.log(2) for row in log_weights]
    found = examine(mixture, relation, splits=("test",), controls=False)
    assert found.mean_entropy_over_x == pytest.approx(sum(entropies) / 3)
    static = moved(exact("bert"), usable("bert"))
    assert examine(static, relation, splits=("test",), controls=False).mean_entropy_over_x is None


def test_each_split_is_encoded_once(monkeypatch):
    mixture = moved(frozen("bert"), TEMPLATES)
    shared, encoded, whole = mixture.encode_relation(CAPITALS), [], kinds.encode_facts

    def counting(of_mixture, facts, *how):
        encoded.append(tuple(facts))
        return whole(of_mixture, facts, *how)

    monkeypatch.setattr(kinds, "encode_facts", counting)
    alone = evaluate_split(mixture, CAPITALS, encoded=shared)
    found = examine(mixture, CAPITALS, encoded=shared)
    trust_of(found)
    assert found.evaluations["test"] == alone
    assert encoded == [CAPITALS.test, CAPITALS.dev]
