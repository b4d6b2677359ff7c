"""LPAQA's ensembles against the single prompts' log-probabilities, combined by hand."""

import pytest
import torch
from builders import tiny
from builders.specs import paper_spec
from builders.worlds import FACTS, REPEATED, TEMPLATES, frozen

from askwell.answers.one_token import OneTokenAnswers
from askwell.baselines.run_baseline import run_baseline
from askwell.data.facts import Fact, Relation
from askwell.data.templates import parse_template
from askwell.errors import BadOption
from askwell.evaluation.examine import evaluate_split
from askwell.mixture.mixture import Mixture
from askwell.specs.training_spec import TrainingSpec

PROMPTS = [parse_template(text, weight) for text, weight in zip(TEMPLATES, (0.5, 0.2, 0.1), strict=True)]


def all_log_probs(lm, template) -> torch.Tensor:
    """log p(y | t, x) of all facts and tokens with one prompt alone, by a mixture of it alone."""
    mixture = Mixture(lm, [template], paper_spec())
    facts, _ = mixture.encode(FACTS)
    return OneTokenAnswers(mixture).log_probs(facts.xs, torch.arange(len(facts)))


def golds(mixture) -> torch.Tensor:
    facts, _ = mixture.encode(FACTS)
    return facts.answers


def product_by_hand(lm, weights) -> torch.Tensor:
    each = torch.stack([all_log_probs(lm, prompt) for prompt in PROMPTS]).double()
    powers = torch.einsum("t,tfy->fy", torch.tensor(weights, dtype=torch.float64), each).exp()
    return (powers / powers.sum(1, keepdim=True)).log()


@pytest.mark.parametrize("name", ["bert", "llama"])
@pytest.mark.parametrize(
    ("baseline", "weights"), [("lpaqa-uniform", [1 / 3] * 3), ("lpaqa-weights", [0.625, 0.25, 0.125])]
)
def test_uniform_and_published_weights_are_products(name, baseline, weights):
    lm = frozen(name)
    run = run_baseline(baseline, lm, PROMPTS, REPEATED, asked=paper_spec(begin=next(iter(lm.beginnings))))
    expected = product_by_hand(lm, weights).gather(1, golds(run.mixture)[:, None])[:, 0]
    found = [outcome.log_probability for outcome in evaluate_split(run.mixture, REPEATED).outcomes]
    by_fact = dict(zip(REPEATED.test, found, strict=True))
    assert [by_fact[fact] for fact in FACTS] == pytest.approx(expected.tolist(), abs=1e-4)


def test_top_1_is_the_prompt_that_answers_most_train_facts():
    lm = frozen("bert")
    right, losses = [], []
    for prompt in PROMPTS:
        log_probs = all_log_probs(lm, prompt)
        gold = golds(Mixture(lm, [prompt], paper_spec()))
        right.append(int((log_probs.argmax(1) == gold).sum()))
        losses.append(-float(log_probs.gather(1, gold[:, None]).mean()))
    best = min(range(3), key=lambda number: (-right[number], losses[number]))
    run = run_baseline("lpaqa-top1", lm, PROMPTS, REPEATED)
    assert [prompt.template for prompt in run.mixture.prompts] == [PROMPTS[best]]
    scored = run.learned_from.prompts_on_train
    assert [of["template"] for of in scored] == TEMPLATES
    assert [of["P@1"] for of in scored] == pytest.approx([100 * count / len(FACTS) for count in right])
    assert [of["log_loss"] for of in scored] == pytest.approx(losses, abs=1e-4)


def test_top_1_counts_facts_that_a_prompt_cannot_ask_as_wrong():
    """Glued to a bracket, Italy is not one token of RoBERTa."""
    lm = frozen("roberta")
    prompts = [parse_template("[X] lies in ([Y]"), parse_template("[X] lies in [Y] .")]
    glued = Mixture(lm, prompts[:1], paper_spec())
    answered = [Fact(x, glued.ask(x, top=1)[0].y) for x in tiny.BOTH + tiny.SPACED_NAMES]
    right = [fact for fact in answered if len(glued.encode([fact])[0]) and is_answered(glued, fact)]
    facts = [right[0], Fact("Rome", "Italy"), Fact("Oslo", "Italy"), Fact("Lima", "Italy")]
    relation = Relation.of("r", facts, facts, facts)
    scored = run_baseline("lpaqa-top1", lm, prompts, relation, asked=paper_spec()).learned_from.prompts_on_train
    assert scored[0]["facts"] == 1
    assert scored[0]["P@1"] == pytest.approx(25)


def is_answered(mixture, fact) -> bool:
    return evaluate_split(mixture, Relation.of("one", [fact], [fact], [fact])).outcomes[0].rank == 1


def test_the_learned_product_starts_uniform_tunes_weights_alone_and_gets_better():
    lm = frozen("bert")
    settings = TrainingSpec(recipe="paper", epochs=15, patience=15, learning_rate=0.1, threads=1)
    run = run_baseline("lpaqa-product", lm, PROMPTS, REPEATED, training=settings)
    mixture = run.mixture
    assert torch.equal(mixture.vectors, mixture.initial_vectors)
    weights = mixture.weights.detach().tolist()
    assert weights != pytest.approx([1 / 3] * 3, abs=1e-3)
    gold = golds(mixture)[:, None]
    before, after = (float(product_by_hand(lm, w).gather(1, gold).mean()) for w in ([1 / 3] * 3, weights))
    assert after > before
    assert evaluate_split(mixture, REPEATED).log_loss == pytest.approx(-after, abs=1e-4)


@pytest.mark.parametrize("baseline", ["lpaqa-top1", "lpaqa-uniform", "lpaqa-weights", "lpaqa-product"])
def test_an_ensemble_needs_several_prompts_that_can_be_used(baseline):
    with pytest.raises(BadOption, match=f"{baseline} chooses among several prompts"):
        run_baseline(baseline, frozen("bert"), PROMPTS[:1], REPEATED)
    unusable = parse_template("[Y] holds [X]", 0.5)
    with pytest.raises(BadOption, match=f"{baseline} chooses among several prompts"):
        run_baseline(baseline, frozen("llama"), [PROMPTS[0], unusable], REPEATED)


def test_published_weights_must_be_in_the_file():
    with pytest.raises(BadOption, match="has no weight in it"):
        run_baseline("lpaqa-weights", frozen("bert"), [parse_template(text) for text in TEMPLATES], REPEATED)
