"""A run without a budget ends by itself, its result is the mean over its last steps, and the state that is kept is the
one that the rule names."""

import random
from dataclasses import replace
from itertools import cycle, pairwise
from statistics import stdev
from typing import Any

import pytest
import torch
from builders.specs import paper_spec
from builders.worlds import CAPITALS, TEMPLATES, frozen
from hypothesis import given
from hypothesis import strategies as st

from askwell.answers.likelihood import likelihood
from askwell.answers.one_token import OneTokenAnswers
from askwell.data.facts import Fact, Relation
from askwell.mixture.learned_from import NOTHING_FOUND
from askwell.mixture.mixture import Mixture
from askwell.specs.training_spec import TrainingSpec
from askwell.training.history import HistoryLine, TrainingResult, best_of, may_be_kept, standard_error
from askwell.training.loop import train
from askwell.training.schedule import (
    PLATEAU_FALL,
    PLATEAU_LEAST,
    PLATEAU_MEAN,
    default_pairs,
    fall_of_second_half,
    schedule_of,
    scored_dev_facts,
    scores_since_fall,
)

PLATEAU = TrainingSpec()


def plan(spec=PLATEAU, *, facts=100, dev_facts=20, prompts=4, **more):
    return schedule_of(spec, fact_count=facts, dev_facts=dev_facts, prompts=prompts, seed=0, **more)


def lines(*scores, facts=50):
    return [
        HistoryLine(n, 10 * n, None, {"P@1": score, "log_loss": loss, "facts": facts}, 1.0)
        for n, (score, loss) in enumerate(scores)
    ]


def of_losses(*losses):
    return lines(*[(10.0, loss) for loss in losses])


# ── which recipe ──────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("choices", "recipe"),
    [
        ({}, "plateau"),
        ({"method": "em"}, "plateau"),
        ({"patience": 3}, "plateau"),
        ({"pairs": 100}, "cycle"),
        ({"minutes": 0.5}, "cycle"),
        ({"epochs": 0}, "cycle"),
        ({"drop_below": 0.1}, "cycle"),
        ({"pairs": None}, "plateau"),
        ({"pairs": 100, "recipe": "plateau"}, "plateau"),
        ({"epochs": 3, "recipe": "paper"}, "paper"),
        ({"recipe": "cycle"}, "cycle"),
    ],
)
def test_a_budget_is_for_a_cycle_unless_a_recipe_is_named(choices, recipe):
    assert TrainingSpec(**choices).recipe == recipe
    assert TrainingSpec.model_validate(TrainingSpec(**choices).model_dump()).recipe == recipe


def test_each_recipe_keeps_its_own_state():
    assert [TrainingSpec(recipe=name).kept_by for name in ("plateau", "cycle", "paper")] == ["near-best", "P@1", "P@1"]


# ── the schedule ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_step_size_grows_for_four_steps_and_then_stays():
    schedule = plan()  # 8 facts, 32 pairs a step
    steps = [fraction for stretch in range(len(schedule.ends)) for _, fraction in schedule.batches(stretch)]
    assert steps[:4] == [0.25, 0.5, 0.75, 1.0]
    assert set(steps[4:]) == {1.0}


@pytest.mark.parametrize(("facts", "prompts"), [(31, 1), (300, 1), (300, 16), (57, 3), (5, 40)])
def test_it_takes_no_more_pairs_than_it_may(facts, prompts):
    schedule = plan(facts=facts, prompts=prompts)
    assert schedule.pairs == pytest.approx(default_pairs(prompts), abs=100)
    assert schedule.pairs <= plan(TrainingSpec(recipe="cycle"), facts=facts, prompts=prompts).pairs
    assert list(schedule.ends) == sorted(set(schedule.ends))
    assert plan(TrainingSpec(recipe="plateau", pairs=640)).pairs == plan(TrainingSpec(pairs=640)).pairs
    assert plan(TrainingSpec(recipe="plateau", epochs=2)).pairs == 800
    assert [default_pairs(count) for count in (1, 2, 4, 16)] == [2800, 2800, 2200, 1750]
    assert [default_pairs(count, "cycle") for count in (1, 2, 16)] == [4000, 3000, 2125]


@pytest.mark.parametrize(("dev_facts", "prompts"), [(10, 1), (100, 1), (1000, 1), (100, 16), (5000, 1), (300, 30)])
def test_dev_is_scored_as_often_as_it_costs_about_what_the_training_does(dev_facts, prompts):
    schedule = plan(facts=300, dev_facts=dev_facts, prompts=prompts)
    done = [n for n in range(1, len(schedule.ends) + 1) if schedule.scores_dev(n)]
    assert done[-1] == len(schedule.ends)
    between = schedule.pairs_after(min(schedule.score_every, len(schedule.ends)))
    if schedule.ends_by_itself and schedule.score_every > 1:
        assert between == pytest.approx(dev_facts * prompts / 3, rel=0.5)


def test_it_ends_when_its_second_half_has_brought_next_to_nothing():
    history = [HistoryLine(n, 128 * n, None, {"P@1": 10.0, "log_loss": loss, "facts": 50}, 1.0)
               for n, loss in enumerate([4.0, 3.0, 3.5, 2.0, 1.95, 1.9])]  # fmt: skip
    falls = [fall_of_second_half(history[:n]) for n in range(1, 7)]
    # By hand: pairs 0; 128 against 0; 256 against 128; 384 against 128; 512 against 256; 640 against 256.
    assert falls == pytest.approx([0.0, 1.0, -0.5, 1.0, 1.55, 1.6])
    assert fall_of_second_half(of_losses(None, None, None)) == 0
    assert fall_of_second_half(of_losses(None, None, 9.0)) == float("inf")
    schedule = plan(facts=320, prompts=1)
    least = PLATEAU_LEAST * schedule.batch

    def over(*losses, pairs):
        made = [HistoryLine(n, at, None, {"P@1": 10.0, "log_loss": loss, "facts": 50}, 1.0)
                for n, (at, loss) in enumerate(zip(pairs, losses, strict=True))]  # fmt: skip
        return schedule.is_over(len(made), made)

    assert over(3.0, 2.0, 2.0, pairs=(0, least // 2, least))
    assert not over(3.0, 2.0, 2.0, pairs=(0, least // 2, least - 1)), "too soon to tell"
    assert over(3.0, 2.0, 2.01 - PLATEAU_FALL, pairs=(0, least, 2 * least))
    assert not over(3.0, 2.0, 1.99 - PLATEAU_FALL, pairs=(0, least, 2 * least))
    assert not over(3.0, 2.0, 1.9, 1.9, pairs=(0, least, 2 * least, 3 * least)), "it has fallen since half of the pairs"
    assert not schedule.is_over(2, of_losses(3.0)), "dev has not been scored since"
    assert schedule.is_over(len(schedule.ends), of_losses(3.0, 2.0))
    assert not plan(TrainingSpec(recipe="cycle")).is_over(3, of_losses(*[3.0] * 9))


def test_with_patience_it_ends_after_so_many_scores_that_are_not_lower():
    assert scores_since_fall(of_losses(3.0, 2.0, 1.5)) == 0
    assert scores_since_fall(of_losses(3.0, 2.0, 2.1, 2.0)) == 0, "it has risen, and falls again"
    assert scores_since_fall(of_losses(3.0, 2.0, 2.1, 2.1, 2.5)) == 3
    assert scores_since_fall(of_losses(None, None)) == 2
    assert scores_since_fall(of_losses(None, None, 9.0)) == 0
    schedule = plan(TrainingSpec(patience=2))
    assert not schedule.is_over(3, of_losses(3.0, 2.0, 2.0))
    assert schedule.is_over(3, of_losses(3.0, 2.0, 2.0, 2.0))
    assert schedule.is_over(len(schedule.ends), of_losses(3.0, 2.0))


@pytest.mark.parametrize(("dev_facts", "prompts", "between"), [(20, 1, 128), (20, 4, 128), (700, 1, 1280)])
def test_dev_is_scored_after_as_many_pairs(dev_facts, prompts, between):
    schedule = plan(TrainingSpec(patience=2), facts=320, dev_facts=dev_facts, prompts=prompts)
    assert schedule.pairs_after(schedule.score_every) == between


def test_where_dev_can_be_scored_a_few_times_only_it_is_one_cycle():
    assert not plan(facts=320, dev_facts=100, prompts=16).ends_by_itself
    by_itself, by_budget = (
        plan(spec, facts=320, dev_facts=32, prompts=16)
        for spec in (TrainingSpec(), TrainingSpec(pairs=default_pairs(16)))
    )
    assert replace(by_itself, score_every=by_budget.score_every) == by_budget
    assert plan(facts=320, dev_facts=32, prompts=3).ends_by_itself
    assert plan(TrainingSpec(patience=2), facts=320, dev_facts=100, prompts=16).ends_by_itself, "it was asked for"


@pytest.mark.parametrize(("prompts", "dev_facts"), [(12, 10), (16, 20), (16, 100), (40, 300), (11, 60)])
def test_dev_scores_cost_little_of_a_run_of_many_prompts(prompts, dev_facts):
    """A score costs a third of the training on as many facts: all of them together at most an eighth, or there is one,
    which is a twelfth, or 32 facts."""
    spec = TrainingSpec()
    asked = scored_dev_facts(spec, fact_count=320, dev_facts=dev_facts, prompts=prompts)
    schedule = plan(spec, facts=320, dev_facts=asked, prompts=prompts)
    scores = sum(schedule.scores_dev(n) for n in range(1, len(schedule.ends) + 1))
    trained = schedule.pairs / prompts
    assert not schedule.ends_by_itself
    assert scores == 1 or scores * asked / 3 <= trained / 8
    assert asked == min(dev_facts, 32) or asked / 3 <= trained / 12


# ── the run ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def new_mixture(**spec):
    return Mixture(frozen("bert", "float64"), TEMPLATES, paper_spec(seed=5, **spec))


def test_the_result_is_the_mean_over_the_last_steps():
    """Against a loop that stores the parameters after every step and sums them with their weights at the end."""
    choices: dict[str, Any] = {"pairs": 200, "batch_facts": 3, "patience": 10_000, "keep": "log-loss", "threads": 1}
    spec = TrainingSpec(recipe="plateau", fit_weights=False, **choices)
    mixture, plain = new_mixture(), new_mixture()
    result = train(mixture, CAPITALS, spec)
    facts, _ = plain.encode(CAPITALS.train)
    schedule = schedule_of(spec, fact_count=len(facts), dev_facts=len(CAPITALS.dev), prompts=len(TEMPLATES), seed=5)
    scale = float(plain.lm.word_vectors(torch.arange(plain.lm.word_count)).std(0).mean())
    groups: list[dict[str, Any]] = [
        {"params": [plain.vectors], "lr": 0.2 * scale},
        {"params": [plain.weight_logits], "lr": 0.1},
    ]
    adam, after = torch.optim.Adam(groups, betas=(0.7, 0.999)), []
    peaks = [group["lr"] for group in adam.param_groups]
    for stretch in range(len(schedule.ends)):
        for batch, fraction in schedule.batches(stretch):
            adam.zero_grad()
            (-likelihood(plain, facts, batch).total.sum() / len(batch)).backward()
            for group, peak in zip(adam.param_groups, peaks, strict=True):
                group["lr"] = peak * fraction
            adam.step()
            after.append((plain.vectors.detach().clone(), plain.weight_logits.detach().clone()))
    best = min(result.history, key=lambda line: line.dev["log_loss"])
    assert best.round > 0
    done = next(n for n in range(len(schedule.ends) + 1) if schedule.pairs_after(n) == best.pairs)
    steps = schedule.ends[done - 1]
    # The weights that the running mean comes to: each step's own, times what all later ones leave of it.
    own = [(PLATEAU_MEAN + 1) / (PLATEAU_MEAN + step + 1) for step in range(steps)]
    weights = [own[n] * torch.tensor([1 - later for later in own[n + 1 :]]).prod().item() for n in range(steps)]
    assert sum(weights) == pytest.approx(1)
    assert weights == sorted(weights)
    for place, tuned in enumerate((mixture.vectors, mixture.weight_logits)):
        mean = sum(weight * parameters[place] for weight, parameters in zip(weights, after, strict=False))
        torch.testing.assert_close(tuned.detach(), mean, rtol=1e-6, atol=1e-7)


def test_a_run_ends_by_itself_and_says_so():
    spec = TrainingSpec(batch_facts=4, patience=1, threads=1)
    seen = []
    mixture = new_mixture()
    result = train(mixture, CAPITALS, spec, progress=seen.append)
    assert result.finished
    assert 0 < result.pairs < result.planned_pairs
    assert result.pairs == result.history[-1].pairs == seen[-1].pairs_done
    losses = [line.dev["log_loss"] for line in result.history]
    falls = [before - after for before, after in pairwise(losses)]
    assert falls[-1] <= 0
    assert all(fall > 0 for fall in falls[:-1])
    assert {state.ends_by_itself for state in seen} == {True}
    for state in seen:
        assert state.best == best_of(state.history, "near-best")


def test_dev_is_scored_as_the_state_that_is_kept():
    mixture = new_mixture(deep=True)
    result = train(mixture, CAPITALS, TrainingSpec(batch_facts=4, patience=2, threads=1))
    encoded, _ = mixture.encode(CAPITALS.dev)
    log_probs = OneTokenAnswers(mixture).log_probs(encoded.xs, torch.arange(len(encoded)))
    loss = -float(log_probs.gather(1, encoded.answers[:, None]).mean())
    assert loss == pytest.approx(result.best.dev["log_loss"], abs=1e-9)


def test_a_large_dev_set_is_scored_on_facts_at_even_distances():
    """A run of 8 pairs is not worth asking all of 50 dev facts: 32 are asked, at even distances."""
    some = [Fact(f"x{n}", fact.y) for n, fact in zip(range(50), cycle(CAPITALS.dev))]
    relation = Relation.of("many", CAPITALS.train, some, CAPITALS.test)
    mixture, told = new_mixture(), []
    spec = TrainingSpec(recipe="plateau", pairs=8, keep="log-loss", threads=1)
    result = train(mixture, relation, spec, progress=lambda at: told.append(at.dev_scored))
    assert {*told} == {"each score on dev asks 32 of its 50 facts"}
    asked = [relation.dev[n * 50 // 32] for n in range(32)]
    encoded, _ = mixture.encode(asked)
    log_probs = OneTokenAnswers(mixture).log_probs(encoded.xs, torch.arange(32))
    loss = -float(log_probs.gather(1, encoded.answers[:, None]).mean())
    assert result.dev_facts == 32
    assert loss == pytest.approx(result.best.dev["log_loss"], abs=1e-9)


def test_a_prompt_that_was_dropped_stays_dropped():
    mixture = new_mixture()
    mixture.weight_logits.data[1] = -torch.inf
    train(mixture, CAPITALS, TrainingSpec(recipe="plateau", pairs=120, patience=9, keep="log-loss", threads=1))
    assert mixture.weights.tolist()[1] == 0
    assert bool(mixture.weights.isfinite().all())


# ── the state that is kept ────────────────────────────────────────────────────────────────────────────────────────────


def test_within_half_a_standard_error_the_log_loss_decides():
    history = lines((80.0, 1.9), (78.0, 1.2), (76.0, 1.0))
    assert best_of(history, "near-best") is history[1], "78 is within 2.8 of 80, and 76 is not"
    assert best_of(history, "P@1") is history[0]
    assert best_of(history, "log-loss") is history[2]
    assert best_of(lines((80.0, 1.9), (78.0, 1.2), facts=2000), "near-best").round == 0
    assert best_of(lines((0.0, None), (0.0, 9.0), (0.0, 9.0)), "near-best").round == 1
    # Fitted lengths are kept where P@1 is near the highest, whatever the log-loss.
    for p_at_1, kept in ((78.0, True), (76.0, False)):
        history = lines((80.0, 1.5), (p_at_1, 9.0))
        history[1] = replace(history[1], fits_lengths=True)
        assert [best_of(history, by) is history[1] for by in ("near-best", "P@1")] == [kept, kept]
        assert best_of(history, "log-loss") is history[0]


def test_one_dev_fact_never_decides():
    """One of 24 facts is 4.2 per cent, more than half a standard error of 3.9."""
    one_more = lines((100 * 20 / 24, 1.8), (100 * 19 / 24, 1.0), facts=24)
    assert best_of(one_more, "near-best").round == 1
    assert best_of(lines((100 * 20 / 24, 1.8), (100 * 18 / 24, 1.0), facts=24), "near-best").round == 0


def test_the_standard_error_by_hand():
    answers = [1.0] * 41 + [0.0] * 11  # 40 of 50 right, and one of each
    assert standard_error(80.0, 50) == pytest.approx(100 * stdev(answers) * (51 / 52) ** 0.5 / 52**0.5)
    assert standard_error(100.0, 5) > 0


SCORES = st.lists(
    st.tuples(st.sampled_from([0.0, 40.0, 46.0, 50.0, 52.0, 60.0]), st.sampled_from([None, 0.5, 1.0, 1.5, 2.0])),
    min_size=1,
    max_size=12,
)


@given(SCORES, st.sampled_from(["P@1", "near-best", "log-loss"]))
def test_what_is_kept_as_states_come_is_what_is_best_of_all(scores, kept_by):
    history = lines(*scores)
    kept: set[int] = set()
    for n in range(1, len(history) + 1):
        wanted = {line.round for line in may_be_kept(history[:n], kept_by)}
        assert wanted <= kept | {n - 1}, "a state that was let go cannot come back"
        kept = wanted
        assert best_of(history[:n], kept_by).round in kept
    if kept_by == "near-best":
        highest = max(score for score, _ in scores)
        enough = highest - max(100 / 50, standard_error(highest, 50) / 2) - 1e-9
        losses = [float("inf") if loss is None else loss for score, loss in scores if score >= enough]
        found = best_of(history, kept_by).dev
        assert found["P@1"] >= enough
        assert (float("inf") if found["log_loss"] is None else found["log_loss"]) == min(losses)


@pytest.mark.parametrize(("after", "best_pairs"), [(10.0, 0), (90.0, 100)])
def test_what_is_fitted_at_the_end_belongs_to_the_vectors_that_it_was_fitted_to(after, best_pairs):
    """Lengths are fitted after the last step, to the best vectors so far, and make them better."""
    untuned, tuned = lines((50.0, 2.0), (after, 3.0))
    fitted = replace(untuned if after < 50 else tuned, round=2, pairs=100, train_loss=None, fits_lengths=True)
    history = (replace(untuned, pairs=0), replace(tuned, pairs=100, train_loss=1.0), fitted)
    none: Any = {"left_out": {}, "step_sizes": {}, "finished": True, "vocabulary": "words"}
    result = TrainingResult(
        spec=PLATEAU, history=history, train_facts=9, dev_facts=50, pairs=100, planned_pairs=100, **none
    )
    assert result.best is fitted
    assert result.learned_from.best_pairs == best_pairs
    assert (NOTHING_FOUND in str(result)) == (best_pairs == 0)


def test_a_state_that_was_not_the_best_can_become_it(monkeypatch):
    """Dev scores by hand; the kept parameters are compared with those that the mixture had when it was scored."""
    # With 80 facts, half a standard error is 2.5: the third state is within it of the fourth, the second is not.
    scores = iter([(40.0, 3.0), (69.0, 1.0), (70.5, 1.1), (72.5, 1.3), (72.5, 1.4), (50.0, 1.5)])
    states = []

    def scored(answers, *_more):
        states.append({name: tensor.detach().clone() for name, tensor in answers.prompts.state_dict().items()})
        score, loss = next(scores)
        return {"P@1": score, "log_loss": loss, "facts": 80}, []

    monkeypatch.setattr("askwell.training.loop.score_each", scored)
    mixture = new_mixture()
    best = []
    spec = TrainingSpec(batch_facts=4, patience=4, fit_weights=False, threads=1)
    result = train(mixture, CAPITALS, spec, progress=lambda state: best.append(state.best.round))
    assert result.best.round == 2
    assert list(dict.fromkeys(best)) == [0, 1, 2]
    assert all(torch.equal(tensor, states[2][name]) for name, tensor in mixture.state_dict().items())


def test_the_order_of_lines_does_not_matter_to_what_may_be_kept():
    history = lines((50.0, 2.0), (52.0, 1.5), (60.0, 3.0), (46.0, 1.0), (60.0, 2.5))
    shuffled = random.Random(0).sample(history, len(history))
    assert may_be_kept(history, "near-best") == may_be_kept(shuffled, "near-best")
