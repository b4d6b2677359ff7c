"""How long a masked LM's answers are, p(m | r, x, t), against enumeration with the LM's own forward passes: the
entropies at m masks are read from the public model, one sentence at a time."""

import functools
import math

import pytest
import torch
from agreement import GLUED_Y, Twin, exact, moved, usable, words
from builders import tiny
from enumeration import (
    TEMPLATES,
    best_first,
    by_prompt,
    few_tokens,
    lengths_by_hand,
    mean_of,
    pieces,
    rank_among,
    spellings,
    spelt_with,
    x_ids,
)
from reference import fill_answer, log_probabilities

from askwell.answers.answer_search import AnswerSearch
from askwell.answers.search import SearchLimits
from askwell.answers.tree import candidate_log_probs
from askwell.data.facts import Fact, Relation
from askwell.evaluation.examine import evaluate_split
from askwell.lms.batches import PLACES
from askwell.mixture.mixture import Mixture
from askwell.prompts.long_answers import length_log_probs
from askwell.specs.mixture_spec import AnswerKind, MixtureSpec
from askwell.specs.training_spec import TrainingSpec
from askwell.training.loop import Objective, train
from askwell.training.optimiser import choose_tuned

COUNTS = (2, 1, 1)
LOGITS, SLOPE = (-0.3, -1.9, -0.8), 1.7
FACTS = [Fact("Paris", "Rome"), Fact("Mary Cassatt", "Rome Cassatt"), Fact("Reykjavik", "Cassatt")]
RELATION = Relation.of("r", FACTS, FACTS, FACTS)


def set_lengths(mixture: Mixture, logits=LOGITS, slope=SLOPE) -> None:
    assert mixture.lengths is not None
    with torch.no_grad():
        mixture.lengths.logits.copy_(torch.tensor(logits))
        mixture.lengths.slope.fill_(slope)


def askable(name: str = "bert", **spec) -> tuple[Mixture, Twin]:
    mixture, twin = few_tokens(name, **spec)
    mixture.answer_kind = AnswerKind(any_length=True, longest=3, log_lengths=tuple(lengths_by_hand(COUNTS)))
    set_lengths(mixture)
    return mixture, twin


@torch.no_grad()
def entropies(twin: Twin, t: int, x: str, m: int) -> float:
    """The sum of the entropies at m masks, in nats."""
    lm, template = exact(twin.name), twin.templates[t]
    masks = [lm.tokenizer.mask_token_id] * m
    written, of_x = pieces(twin.name, template), x_ids(twin.name, template, x)
    sentence, at = fill_answer(lm.model, written, twin.vectors[t], of_x, masks)
    log_probs = [row for n, row in enumerate(log_probabilities(lm.model, sentence, None)) if n in at]
    assert len(log_probs) == m
    return -sum(float((row.exp() * row).sum()) for row in log_probs)


@functools.cache
def scores_of(name: str, x: str, weighting: str = "static") -> torch.Tensor:
    """c_m + β s_m(t, x) of each prompt [T, 3]."""
    _, twin = few_tokens(name, weighting=weighting)
    return torch.tensor(
        [[c - SLOPE * entropies(twin, t, x, m) for m, c in enumerate(LOGITS, start=1)] for t in range(2)],
        dtype=torch.float64,
    )


def log_joint_of(twin: Twin, x: str, weighting: str = "static") -> torch.Tensor:
    """log p(t, m | r, x) of each prompt and length [T, 3]."""
    scores = scores_of(twin.name, x, weighting)
    with torch.no_grad():
        if weighting == "static":
            return twin.log_weights(None)[:, None] + scores.log_softmax(1)
        # By how certain each prompt is of one mask, and then of all answers.
        assert twin.log_temperature is not None
        of_one = torch.tensor([entropies(twin, t, x, 1) for t in range(2)], dtype=torch.float64)
        weights = twin.weight_logits - of_one * (-twin.log_temperature).exp()
        joint = weights[:, None] + scores
        return joint - joint.logsumexp((0, 1))


def enumerated(twin: Twin, x: str, weighting: str = "static") -> dict[str, float]:
    joint = log_joint_of(twin, x, weighting)
    with torch.no_grad():
        return best_first(
            {
                text: float((by_prompt(twin, x, spelt) + joint[:, len(spelt) - 1]).logsumexp(0))
                for text, spelt in spellings(twin.name).items()
            }
        )


@pytest.mark.parametrize(("name", "weighting"), [("bert", "static"), ("roberta", "static"), ("bert", "certainty")])
def test_whole_answers_have_the_probabilities_of_enumeration(name, weighting):
    mixture, twin = askable(name, weighting=weighting)
    expected = enumerated(twin, "Paris", weighting)
    replies = mixture.ask("Paris", top=8)
    assert [reply.y for reply in replies] == list(expected)[:8]
    assert [reply.probability for reply in replies] == pytest.approx([math.exp(p) for p in expected.values()][:8])
    lengths, others = (scores_of(name, x, weighting).log_softmax(1) for x in ("Paris", "Reykjavik"))
    assert (lengths - others).abs().max() > 1e-3, "lengths that do not depend on x would test nothing"
    weights = log_joint_of(twin, "Paris", weighting).logsumexp(1)
    assert {each.number: each.weight for each in mixture.answering().prompts_behind("Paris")} == pytest.approx(
        dict(enumerate(weights.exp().tolist()))
    )
    for reply in replies[:3]:
        spelt = spellings(name)[reply.y]
        with torch.no_grad():
            each = by_prompt(twin, "Paris", spelt) + lengths[:, len(spelt) - 1]
        assert reply.by_prompt == pytest.approx(each.exp().tolist())


@pytest.mark.parametrize("weighting", ["static", "certainty"])
def test_likelihood_and_ranks_are_those_of_enumeration(weighting):
    mixture, twin = askable(weighting=weighting)
    encoded = mixture.encode(FACTS)[0]
    every = {fact.x: enumerated(twin, fact.x, weighting) for fact in FACTS}
    found = mixture([fact.x for fact in FACTS], [fact.y for fact in FACTS])
    assert found.tolist() == pytest.approx([every[fact.x][fact.y] for fact in encoded.facts])
    for outcome in evaluate_split(mixture, RELATION).outcomes:
        assert outcome.rank == rank_among(every[outcome.x], outcome.y)
        assert outcome.log_probability == pytest.approx(every[outcome.x][outcome.y])


def test_candidates_have_the_probabilities_of_enumeration():
    mixture, twin = askable()
    every = {"Paris": enumerated(twin, "Paris")}
    among = ["Rome", "Cassatt", "Rome Cassatt"]
    chosen = mixture.ask("Paris", candidates=among)
    total = math.log(sum(math.exp(every["Paris"][text]) for text in among))
    expected = {text: math.exp(every["Paris"][text] - total) for text in among}
    assert {reply.y: reply.probability for reply in chosen} == pytest.approx(expected)


def test_the_prior_is_the_mean_over_xs():
    mixture, twin = askable()
    expected = mean_of([enumerated(twin, fact.x) for fact in FACTS])
    prior = mixture.answering().mean_prior(RELATION)
    best = prior.rank([FACTS[0]], {FACTS[0].x: [FACTS[0].y]}, 5)[0]
    assert list(best.answers) == list(expected)[:5]
    assert list(best.probabilities) == pytest.approx([math.exp(p) for p in expected.values()][:5])


@pytest.mark.parametrize("forms", [1, 2])
def test_answers_of_one_form_and_of_two_are_scored_alike(forms):
    """Searching form by form finds what the candidates' tree gives for the same strings, with its own lengths."""
    lm, log_lengths = exact("roberta"), length_log_probs([1, 1, 2])
    mixture = moved(lm, [usable("roberta")[0], GLUED_Y if forms == 2 else usable("roberta")[1]])
    assert len({prompt.tokens.y_place for prompt in mixture.prompts}) == forms
    spelt_with(mixture, sorted({lm.wording.encode(word, place)[0] for word in tiny.BOTH for place in PLACES}))
    mixture.answer_kind = kind = AnswerKind(any_length=True, longest=2, log_lengths=tuple(log_lengths.tolist()))
    set_lengths(mixture, LOGITS[:2])
    xs, rows = words(lm, ["Paris", "Rome"])
    found = AnswerSearch(mixture, SearchLimits(answers=5, opened=1000, tokens=2), kind).best(xs, rows)
    assert mixture.lengths is not None
    certainty = mixture.long_answers.certainty_of_blanks(mixture.tuned, xs, rows, 2)
    lengths = mixture.lengths(certainty).log_softmax(-1)
    for row, of_x in enumerate(found):
        ys, _ = words(lm, [answer.text for answer in of_x.answers])
        with torch.no_grad():
            by_one = candidate_log_probs(mixture.long_answers, mixture.tuned, xs, rows, ys)
            # The tree without lengths, and each string's own number of tokens after each prompt.
            counts = ys.lengths[mixture.pairs.y_places]
            own = torch.stack([lengths[row, t, (counts[t] - 1).clamp(max=1)] for t in range(2)])
            own = own.masked_fill(counts > 2, -torch.inf)
            expected = (by_one[row] + own + mixture.weights.log()[:, None]).logsumexp(0)
        assert [answer.log_probability for answer in of_x.answers] == pytest.approx(expected.tolist())


@pytest.mark.parametrize("method", ["gradient", "em"])
def test_gradients_are_finite_differences(method):
    mixture, _ = askable()
    encoded, _ = mixture.encode(FACTS)
    choose_tuned(mixture, TrainingSpec(method=method))
    assert mixture.lengths is not None
    mixture.lengths.requires_grad_(True)
    objective = Objective(mixture.answering(), encoded, "gradient")
    Objective(mixture.answering(), encoded, method).loss(encoded.rows).to_minimise.backward()
    for parameter in (mixture.lengths.logits, mixture.lengths.slope):
        flat, step = parameter.data.view(-1), 1e-5
        assert parameter.grad is not None
        for at, ours in enumerate(parameter.grad.view(-1).tolist()):
            values = []
            for change in (step, -2 * step):
                flat[at] += change
                values.append(objective.loss(encoded.rows).negative_log_likelihood)
            flat[at] += step
            # The gradient of EM's bound is that of the likelihood where the posteriors were computed.
            assert ours == pytest.approx((values[0] - values[1]) / (2 * step), abs=1e-6)
            assert abs(ours) > 1e-4


@pytest.mark.parametrize("weighting", ["static", "certainty"])
def test_a_slope_of_zero_gives_the_fixed_lengths_to_the_bit(monkeypatch, weighting):
    mixture, _ = few_tokens("bert", weighting=weighting)
    kind = AnswerKind(any_length=True, longest=3, log_lengths=tuple(lengths_by_hand(COUNTS)))
    before = list(mixture.answering(kind=kind).ask(["Paris", "Rome"]))
    assert mixture.lengths is None
    mixture.answer_kind = kind
    assert mixture.lengths is not None
    assert set(mixture.state_dict()) >= {"lengths.logits", "lengths.slope"}
    monkeypatch.setattr(type(mixture.long_answers), "certainty_of_blanks", None)  # nothing more is read
    with torch.no_grad():
        assert list(mixture.answering().ask(["Paris", "Rome"])) == before
    spec = TrainingSpec(recipe="paper", epochs=1, learning_rate=0.01, tune_lengths=False, threads=1)
    train(mixture, RELATION, spec)
    assert mixture.lengths.are_fixed


def test_one_token_answers_and_products_have_no_lengths_of_their_own():
    mixture, _ = few_tokens("bert")
    mixture.answer_kind = AnswerKind(any_length=True, longest=3, log_lengths=(0.0,))
    assert mixture.lengths is None
    product, _ = few_tokens("bert", combine="product")
    product.answer_kind = AnswerKind(any_length=True, longest=3, log_lengths=tuple(lengths_by_hand(COUNTS)))
    assert product.lengths is None


@pytest.mark.parametrize("method", ["gradient", "em"])
def test_training_moves_them_and_they_come_back(tmp_path, method):
    mixture = Mixture(exact("bert"), TEMPLATES, MixtureSpec())
    facts = [Fact("Paris", "Rome Cassatt")]  # whose length alone is fitted, so that the fitted state is kept
    train(
        mixture,
        Relation.of("r", facts, facts, facts),
        TrainingSpec(recipe="cycle", pairs=16, method=method, keep="log-loss", tune_lengths=True, threads=1),
    )
    assert mixture.lengths is not None
    assert not mixture.lengths.are_fixed
    set_lengths(mixture)
    mixture.save_pretrained(tmp_path)
    back = Mixture.from_pretrained(tmp_path, exact("bert"))
    assert back.lengths is not None
    assert float(back.lengths.slope.detach()) == pytest.approx(SLOPE)
    assert back.ask("Paris") == mixture.ask("Paris")
    carried = mixture.transfer(exact("bert"))
    assert carried.ask("Paris") == mixture.ask("Paris")
    assert "β = 1.70" in str(mixture.summary())
