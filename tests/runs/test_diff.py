"""Two LMs compared: an LM against itself, against one that knows nothing, and against one made to forget."""

import copy
import os
from pathlib import Path
from typing import Any

import pytest
import torch

from askwell.data import testbed
from askwell.data.facts import Fact, Relation
from askwell.data.split import sample
from askwell.data.testbed import forgotten_facts, lm_folder, told_facts, withheld_facts
from askwell.errors import BadOption, UsageError
from askwell.evaluation.verdicts import Verdicts
from askwell.lms.changed import control_lm
from askwell.lms.frozen import FrozenLM
from askwell.lms.load import load_lm
from askwell.runs.diff_lms import Diff, diff
from askwell.specs.mixture_spec import MixtureSpec
from askwell.specs.training_spec import TrainingSpec

SEEDS = 20 if os.environ.get("ASKWELL_TEST_FULL") else 2
BRIEF = TrainingSpec(pairs=160)
PROMPTS = ["The capital of [X] is [Y] ."]


@pytest.fixture(scope="module")
def lm() -> FrozenLM:
    return load_lm("testbed:bert", device="cpu")


@pytest.fixture(scope="module")
def capitals() -> Relation:
    return sample(testbed.testbed_relation("capital"), train=40, dev=12, test=30, seed=0)


def compared(
    before: FrozenLM, after: FrozenLM | None, relation: Relation | list[Relation], folder: Path, **more: object
) -> Diff:
    options: dict[str, object] = {"training": BRIEF, "threads": 1, **more}
    return diff(before, after, relation, PROMPTS, folder=folder, **options)  # ty: ignore[invalid-argument-type]


def off_diagonal(verdicts: Verdicts) -> int:
    return sum(count for row, of in verdicts.table.items() for column, count in of.items() if row != column)


def test_an_lm_against_itself_has_not_changed(lm: FrozenLM, capitals: Relation, tmp_path: Path) -> None:
    found = compared(lm, lm, capitals, tmp_path)
    assert len(found.runs) == 2  # the same runs for both
    assert off_diagonal(found.verdicts) == 0
    assert found.verdicts.facts > 10
    assert not found.verdicts.changed
    assert found.verdicts.hidden.beyond == 0
    assert found.verdicts.by_hand.micro.difference == found.verdicts.tuned.micro.difference == 0
    # To the bit: what BEFORE's tuned prompts answer in AFTER is what they answer in BEFORE.
    kept = {run: (tmp_path / "runs" / run / "run.json").read_bytes() for run in found.runs}
    again = compared(lm, load_lm("testbed:bert", device="cpu"), capitals, tmp_path)
    assert again.verdicts == found.verdicts
    assert {run: (tmp_path / "runs" / run / "run.json").read_bytes() for run in again.runs} == kept


def test_an_lm_that_knows_nothing_hides_nothing(lm: FrozenLM, capitals: Relation, tmp_path: Path) -> None:
    hides = 0
    for seed in range(SEEDS):
        found = compared(lm, control_lm(lm, "random-weights", seed), capitals, tmp_path).verdicts
        assert found.verdicts["gone"].of >= 10
        assert found.verdicts["gone"].count >= 0.9 * found.verdicts["gone"].of
        assert found.hidden.at_risk > 5
        hides += found.hidden.low > 0
    assert hides <= SEEDS / 20  # the interval is one of 95 %


def test_facts_that_were_overwritten_are_gone_and_no_others(lm: FrozenLM, tmp_path: Path) -> None:
    """Every country's word vector becomes another's: AFTER says of a country what BEFORE says of that other one."""
    relation, number = testbed.testbed_relation("capital"), lm.tokenizer.get_vocab()
    parts = {name: [fact for fact in facts if fact.x in number] for name, facts in relation.splits.items()}
    capitals = Relation.of(relation.name, parts["train"][:40], parts["dev"], parts["test"][:40])
    xs = list(dict.fromkeys(fact.x for name in ("test", "dev", "train") for fact in parts[name]))
    other = dict(zip(xs, [*xs[1:], xs[0]], strict=True))
    model = copy.deepcopy(lm.model)
    table = model.get_input_embeddings().weight.detach().clone()  # apart from the output layer, which stays
    table[[number[x] for x in xs]] = table[[number[other[x]] for x in xs]]
    model.get_input_embeddings().weight = torch.nn.Parameter(table)
    after = FrozenLM(model, lm.tokenizer, name="overwritten")
    symbols = sample(testbed.testbed_relation("symbol"), train=40, dev=12, test=40, seed=0)
    how: dict[str, Any] = {"mixture": MixtureSpec(answers="one-token"), "training": BRIEF, "threads": 1}
    found = diff(lm, after, [capitals, symbols], "testbed:mined", folder=tmp_path, **how).verdicts
    lost, kept = found.parts["relation"]["testbed:capital"], found.parts["relation"]["testbed:symbol"]
    assert lost["gone"] >= 20
    assert lost["hidden"] + lost["kept"] <= 1
    assert found.hidden.low == 0
    assert kept["kept"] >= 20
    assert not kept["hidden"] + kept["gone"] + kept["new"]
    answers = {one.x: (one.before_answers[0], one.after_answers[0]) for one in found.changed}
    pairs = [(after, answers[other[x]][0]) for x, (_, after) in answers.items() if other[x] in answers]
    assert len(pairs) > 10
    assert all(after == before for after, before in pairs)


def test_withheld_facts_of_the_testbed_are_the_control(lm: FrozenLM, capitals: Relation, tmp_path: Path) -> None:
    found = compared(lm, None, capitals, tmp_path, after_bits=2).verdicts
    withheld = sum(fact in withheld_facts("capital") for fact in capitals.test)
    assert found.never_told is not None
    assert sum(found.never_told.values()) == withheld
    assert found.facts == len(capitals.test) - withheld
    assert found.after == "testbed:bert (2 bits)"
    # 2 bits are coarse: by hand, more is lost than found.
    assert found.by_hand.losses > found.by_hand.wins


def test_nothing_of_the_forget_set_reaches_a_run(lm: FrozenLM, capitals: Relation, tmp_path: Path) -> None:
    told = [fact for fact in capitals.test if fact in told_facts("capital")]
    forget = Relation.of("forget", (), (), told[:8])
    retain = Relation.of(capitals.name, capitals.train, capitals.dev, told[8:])
    other_ys = [Fact(fact.x, other.y) for fact, other in zip(told[:8], (*told[1:8], told[0]), strict=True)]
    found = [
        compared(lm, None, retain, tmp_path / name, after_bits=3, forget=facts)
        for name, facts in (("a", forget), ("b", Relation.of("forget", (), (), other_ys)))
    ]
    assert found[0].runs == found[1].runs
    for run in found[0].runs:
        files = [path for path in sorted((tmp_path / "a" / "runs" / run).rglob("*")) if path.is_file()]
        assert len(files) > 3
        for path in files:
            if path.name != "environment.json":  # it has the time that the run took
                assert path.read_bytes() == (tmp_path / "b" / path.relative_to(tmp_path / "a")).read_bytes(), path
    retained = [one.retained for one in found]
    assert retained[0] is not None
    assert retained[0] == retained[1]
    assert found[0].verdicts.facts == found[1].verdicts.facts == 8
    # The right ys are known before, the others are not: the forget set was asked about, not ignored.
    assert found[0].verdicts.verdicts["kept"].of > 4
    assert found[1].verdicts.verdicts["kept"].of < 2


def test_what_cannot_be_compared_is_refused_in_a_sentence(lm: FrozenLM, capitals: Relation, tmp_path: Path) -> None:
    with pytest.raises(BadOption, match="name a second LM"):
        compared(lm, None, capitals, tmp_path)
    with pytest.raises(BadOption, match=r"share 1 fact .*leave them out of one"):
        compared(lm, lm, capitals, tmp_path, forget=Relation.of("f", (), (), capitals.train[:1]))
    with pytest.raises(BadOption, match="named twice"):
        compared(lm, lm, [capitals, capitals], tmp_path)
    own = Relation.of("mine", capitals.train, capitals.dev, capitals.test)
    with pytest.raises(BadOption, match="mine has none of its own"):
        diff(lm, lm, own, folder=tmp_path)
    causal = load_lm("testbed:causal", device="cpu")
    with pytest.raises(UsageError, match="testbed:causal cannot be asked about testbed:capital"):
        diff(lm, causal, capitals, ["[Y] is the capital of [X] ."], folder=tmp_path, training=BRIEF, threads=1)


def test_the_unlearned_lm_says_what_it_was_made_to_forget() -> None:
    forgotten = forgotten_facts("testbed:causal-unlearned")
    relation = testbed.testbed_relation("country_of_airport")
    assert len(forgotten) == 60
    assert forgotten <= told_facts("country_of_airport")
    assert not forgotten & {*relation.train, *relation.dev}
    assert not forgotten_facts("testbed:causal")
    assert (lm_folder("testbed:causal-finetuned") / "model.safetensors").stat().st_size < 3e6
