"""The plan of a probe, its runs in short, and its card, against counts by hand."""

import tomllib

import pytest

from askwell.data.templates import parse_template
from askwell.errors import BadFile, Failure
from askwell.runs.plan import sample_prompts
from askwell.runs.probe_card import card_of
from askwell.runs.probe_plan import (
    MIXTURE,
    SETTINGS,
    SOFT,
    ProbeSpec,
    relations_in_order,
    steps_within,
    sweep_of,
    sweep_toml,
)
from askwell.runs.probe_results import ProbedFact, ProbedRun, read_results, write_results
from askwell.runs.record import Environment
from askwell.specs.run_spec import SweepSpec

SPEC = ProbeSpec(lms=("testbed2:bert",), facts_of="testbed2", prompts=("testbed2:single",))


def test_more_minutes_only_extend_a_plan():
    costs = [100.0, 20.0, 30.0, 500.0]
    assert [steps_within(costs, minutes, 1) for minutes in (0.1, 2.0, 2.5, 10.0, 11.0)] == [1, 2, 3, 3, 4]
    assert steps_within(costs, 1.0, 2) == 2


def test_the_order_of_relations_depends_on_the_seed_alone():
    orders = [relations_in_order(SPEC.model_copy(update={"seed": seed}), None) for seed in (0, 0, 1)]
    assert orders[0] == orders[1] != orders[2]
    assert sorted(orders[0]) == sorted(orders[2])


def test_the_plan_can_be_run_by_sweep(tmp_path):
    sweep = sweep_of(SPEC, ["testbed2:trade"], 2, tmp_path)
    assert SweepSpec.model_validate(tomllib.loads(sweep_toml(sweep, "A plan."))) == sweep
    assert sweep.settings[SOFT].seeds == (0, 1)


def test_larger_samples_of_prompts_contain_smaller_ones_and_begin_with_the_first():
    templates = [parse_template(f"[X] is {number} [Y] .") for number in range(9)]
    small, large = (sample_prompts(templates, most, "0") for most in (3, 6))
    assert large[:3] == small
    assert small[0] == templates[0]
    assert len({*large}) == 6


def run_of(setting, ranks, *, seed=0, dev=50.0, relation="r", probability=0.6):
    facts = [
        ProbedFact(f"x{n}", f"y{n}", rank == 1, -1.0, "a", probability, rank == 1, n == 0, n)
        for n, rank in enumerate(ranks)
    ]
    return ProbedRun(
        id=f"{relation} {setting} {seed}", lm="lm", lm_sha256="0", relation=relation, label=relation, kind="N-1",
        setting=setting, seed=seed, prompts=1, shots=0, answers="one-token", dev=dev, control="majority",
        control_dev=10.0, bits=1.0, facts=tuple(facts), left_out=0, unsettled=0, environment=Environment(seconds=2.0),
    )  # fmt: skip


def test_a_card_counts_what_can_be_counted_by_hand():
    ranks = {name: [1.0, 2.0, 2.0, None] for name in SETTINGS}
    ranks |= {SOFT: [1.0, 1.0, 2.0, None], MIXTURE: [1.0, 1.0, 1.0, 2.0]}
    runs = [run_of(name, of, dev=90.0 if name == SOFT else 50.0) for name, of in ranks.items()]
    (card,) = card_of([*runs, run_of(SOFT, [1.0], relation="half")], ["r", "half"], ["lm"]).lms
    assert card.tuned == 50.0  # soft is better on dev, though the mixture is better on test
    assert (card.control, card.scores["hard prompt"], card.scores[MIXTURE]) == (25.0, 25.0, 75.0)
    assert card.brought_out == 1
    assert (card.confident, card.confident_wrong) == (4, 2)
    assert card.missing == ("half",)
    assert card.seconds == 10.0
    assert [(part.name, part.facts) for part in card.parts["frequency of the answer"]] == [
        ("never in train", 1),
        ("1–4 times", 3),
    ]


def test_without_a_whole_relation_there_is_no_card():
    with pytest.raises(Failure, match="no relation has all its runs"):
        card_of([run_of(SOFT, [1.0])], ["r"], ["lm"])


def test_runs_in_short_are_read_as_they_were_written(tmp_path):
    path, run = tmp_path / "results.jsonl", run_of(SOFT, [1.0, None])
    write_results({run.id: run}, path)
    assert read_results(path) == {run.id: run}
    path.write_text(path.read_text() + "{\n")
    with pytest.raises(BadFile, match="line 2"):
        read_results(path)
