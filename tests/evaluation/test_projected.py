"""The projected hard prompt: its words by a loop over the vocabulary, its score by prompts typed by hand."""

import pytest
import torch
from agreement import moved, plain
from builders.specs import paper_spec
from builders.worlds import CAPITALS, FACTS

from askwell.data.facts import Relation
from askwell.errors import BadOption
from askwell.evaluation.examine import evaluate_split
from askwell.evaluation.projection import project, projection_scores
from askwell.mixture.mixture import Mixture
from askwell.views.words import nearest_words

TEMPLATES = ["[X] lies in [Y] .", "the capital of [X] is [Y]"]


@pytest.mark.parametrize("name", ["bert", "bart-scaled", "llama"])
def test_each_vector_is_that_of_its_nearest_word(name):
    lm = plain(name)
    mixture = moved(lm, TEMPLATES, paper_spec(deep=True, weighting="data-dependent"))
    projected = project(mixture)
    every = lm.word_vectors(torch.arange(lm.word_count))
    for row, vector in enumerate(mixture.vectors.detach()):
        products = [float(vector @ word) for word in every]
        assert torch.equal(projected.vectors[row], every[max(range(len(products)), key=products.__getitem__)])
    assert not projected.spec.deep
    assert not projected.deltas
    assert torch.equal(projected.weight_logits, mixture.weight_logits)
    assert projected.temperature == mixture.temperature
    shown = {prompt.template: [token.tuned.token for token in prompt.tokens] for prompt in nearest_words(mixture, 0)}
    in_order = [token for prompt in mixture.prompts for token in shown[prompt.template.text]]
    assert torch.equal(projected.vectors, lm.word_vectors(torch.tensor(in_order))), "the words that are shown"


def test_the_mixture_itself_stays():
    mixture = moved(plain("bert"), TEMPLATES, paper_spec(copies=2, noise=0.2))
    before = {name: tensor.clone() for name, tensor in mixture.state_dict().items()}
    assert len(project(mixture).prompts) == 4
    assert all(torch.equal(before[name], tensor) for name, tensor in mixture.state_dict().items())


def test_the_score_is_that_of_the_words_as_a_typed_prompt():
    lm = plain("bert")
    relation = Relation.of("capitals", CAPITALS.train, CAPITALS.dev, FACTS)
    typed = Mixture(lm, ["[X] of the [Y] city"], paper_spec())
    mixture = Mixture(lm, ["[X] lies in [Y] ."], paper_spec())
    every = lm.word_vectors(torch.arange(lm.word_count))
    with torch.no_grad():
        for row, vector in enumerate(typed.vectors):
            # A vector to which this word is nearer than any other: the solution of E v = 1 there and 0 elsewhere.
            wanted = (every == vector).all(1).double()
            mixture.vectors[row] = torch.linalg.lstsq(every.double(), wanted[:, None]).solution[:, 0].float()
            assert int((every @ mixture.vectors[row]).argmax()) == int(wanted.argmax())
    found = projection_scores(mixture, relation)
    assert found.projected == evaluate_split(typed, relation).micro
    assert found.tuned == evaluate_split(mixture, relation).micro
    assert found.tuned != found.projected
    assert (found.facts, found.left_out, found.changed) == (len(FACTS), 0, 1.0)
    assert found.vocabulary == f"all {lm.vocabulary_size} one-token answers of {lm.identity.name}"


def test_a_product_is_not_projected():
    with pytest.raises(BadOption, match="nothing to project"):
        project(Mixture(plain("bert"), TEMPLATES, paper_spec(combine="product")))
