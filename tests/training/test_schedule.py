"""The schedule of a run takes the facts, the budget and the step sizes that it promises."""

import pytest
import torch
from pydantic import ValidationError

from askwell.specs.training_spec import TrainingSpec
from askwell.training.schedule import default_pairs, schedule_of, scored_dev_facts, warm_up_and_decay

PAPER = TrainingSpec(recipe="paper")


def plan(spec, *, facts=100, dev_facts=20, prompts=4, seed=0, **more):
    return schedule_of(spec, fact_count=facts, dev_facts=dev_facts, prompts=prompts, seed=seed, **more)


def steps_of(plan):
    return [step for stretch in range(len(plan.ends)) for step in plan.batches(stretch)]


def test_the_papers_recipe_is_sixteen_epochs_of_64_facts_at_a_constant_size():
    paper = plan(PAPER)
    steps = steps_of(paper)
    assert [len(batch) for batch, _ in steps] == [64, 36] * 16
    assert {share for _, share in steps} == {1.0}
    assert paper.pairs == 16 * 100 * 4
    assert paper.patience == 4
    assert all(paper.scores_dev(epoch) for epoch in range(1, 17))


def test_an_epoch_takes_every_fact_once_in_an_order_of_its_own():
    steps = steps_of(plan(PAPER))
    epochs = [torch.cat([batch for batch, _ in steps[start : start + 2]]) for start in (0, 2)]
    assert all(sorted(epoch.tolist()) == list(range(100)) for epoch in epochs)
    assert not torch.equal(*epochs)
    other_seed = next(iter(plan(PAPER, seed=1).batches(0)))[0]
    assert not torch.equal(other_seed, steps[0][0])


@pytest.mark.parametrize(("prompts", "facts_of_step"), [(1, 32), (4, 8), (30, 1), (100, 1)])
def test_a_step_takes_about_32_pairs_and_in_a_run_that_ends_by_itself_16_facts_at_most(prompts, facts_of_step):
    assert plan(TrainingSpec(recipe="cycle"), prompts=prompts).batch == facts_of_step
    assert plan(TrainingSpec(), prompts=prompts).batch == min(16, facts_of_step)


@pytest.mark.parametrize("pairs", [40, 1000, 4000, 12_345])
def test_a_cycle_keeps_to_its_budget_within_a_step(pairs):
    cycle = plan(TrainingSpec(pairs=pairs), facts=57, prompts=3)
    asked = sum(len(batch) for batch, _ in steps_of(cycle)) * 3
    assert cycle.pairs == asked
    assert abs(asked - pairs) <= 2 * 32 + 0.02 * pairs  # a last step of an epoch is smaller than the others


def test_pairs_are_counted_stretch_by_stretch():
    cycle = plan(TrainingSpec(pairs=1000), facts=57, prompts=3)
    asked = 0
    for stretch in range(len(cycle.ends)):
        asked += sum(len(batch) for batch, _ in cycle.batches(stretch)) * 3
        assert cycle.pairs_after(stretch + 1) == asked


def test_a_cycle_goes_up_for_a_tenth_and_down_to_the_end():
    shares = [share for _, share in steps_of(plan(TrainingSpec(pairs=3200), facts=800))]
    assert len(shares) == 100
    assert shares[:10] == pytest.approx([n / 10 for n in range(1, 11)])
    assert shares[10:] == pytest.approx([n / 90 for n in range(90, 0, -1)])


def test_dev_scores_cost_no_more_pairs_than_the_training():
    for facts, dev_facts, prompts, pairs in [(300, 50, 1, 4000), (300, 100, 30, 4000), (50, 500, 9, 1000)]:
        cycle = plan(TrainingSpec(pairs=pairs), facts=facts, dev_facts=dev_facts, prompts=prompts)
        scores = sum(cycle.scores_dev(done) for done in range(1, len(cycle.ends) + 1))
        assert scores == 1 or scores * dev_facts * prompts <= pairs
        assert cycle.scores_dev(len(cycle.ends))


def test_a_dev_score_costs_no_more_than_a_sixth_of_the_stretch_or_a_twelfth_of_the_run():
    def scored(spec, **sizes):
        return scored_dev_facts(spec, **{"fact_count": 300, "dev_facts": 1000, "prompts": 1, **sizes})

    assert scored(TrainingSpec()) == 64, "64 / 3 is 128 / 6"
    assert scored(TrainingSpec(), dev_facts=60) == 60
    assert scored(TrainingSpec(patience=3, pairs=10, recipe="plateau")) == 64
    assert scored(TrainingSpec(), prompts=3) == 32, "a score of fewer facts says too little"
    assert scored(TrainingSpec(recipe="plateau", pairs=800)) == 200, "one cycle: 200 / 3 is 800 / 12"
    assert scored(TrainingSpec(recipe="plateau", epochs=6)) == 450
    assert scored(TrainingSpec(recipe="plateau", epochs=8)) == 64, "so many pairs are followed"
    assert scored(TrainingSpec(pairs=800)) == 1000, "a cycle asks them all"
    assert scored(TrainingSpec(), prompts=10, dev_facts=100) == int(default_pairs(10) * 3 / 12 / 10) == 46
    assert scored(TrainingSpec(), prompts=100, dev_facts=100) == 32
    assert scored(TrainingSpec(), prompts=100, dev_facts=20) == 20
    assert scored(PAPER, prompts=100) == 1000


@pytest.mark.parametrize("prompts", [1, 2, 3])
def test_dev_is_a_seventh_of_a_run_that_ends_by_itself_or_a_fifth_of_a_few_prompts(prompts):
    """A question costs a third of a pair that is trained on."""
    asked = scored_dev_facts(TrainingSpec(), fact_count=320, dev_facts=1000, prompts=prompts)
    schedule = plan(TrainingSpec(), facts=320, dev_facts=asked, prompts=prompts)
    assert schedule.ends_by_itself
    scores = sum(schedule.scores_dev(n) for n in range(1, len(schedule.ends) + 1))
    assert scores * asked * prompts / 3 <= schedule.pairs / (6 if prompts < 3 else 4) + 32


def test_few_steps_make_few_stretches():
    assert plan(TrainingSpec(pairs=1)).ends == (1,)
    assert [share for _, share in steps_of(plan(TrainingSpec(pairs=1)))] == [1.0]
    assert plan(TrainingSpec(epochs=0)).ends == ()
    assert plan(TrainingSpec(epochs=0)).pairs == 0
    assert plan(TrainingSpec(epochs=3)).pairs == 3 * 100 * 4


def test_a_budget_that_was_measured_replaces_minutes():
    assert plan(TrainingSpec(minutes=1.0), pairs=800).pairs == 800


@pytest.mark.parametrize(
    "choices",
    [
        {"pairs": 10, "epochs": 3},
        {"pairs": 10, "minutes": 1.0},
        {"recipe": "paper", "pairs": 10},
        {"recipe": "paper", "minutes": 1.0},
        {"patience": 3, "pairs": 10},
        {"recipe": "plateau", "drop_below": 0.1},
    ],
)
def test_budgets_that_exclude_each_other_are_refused(choices):
    with pytest.raises(ValidationError, match=r"budget|patience|drop_below"):
        TrainingSpec(**choices)


def test_warm_up_and_decay_by_hand():
    steps = [warm_up_and_decay(step, 10, peak=2) for step in range(10)]
    assert steps == [0.5, 1.0, 1.0, 7 / 8, 6 / 8, 5 / 8, 4 / 8, 3 / 8, 2 / 8, 1 / 8]
    assert warm_up_and_decay(0, 1, peak=1) == 1.0, "one step has no time to decay"
