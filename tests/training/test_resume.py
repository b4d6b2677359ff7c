"""Runs that are interrupted, resumed and repeated give the same numbers, bit for bit."""

import functools
import os
from itertools import product
from typing import Any

import pytest
import torch
from builders.specs import paper_spec
from builders.worlds import CAPITALS, TEMPLATES, frozen

from askwell.errors import BadOption, DamagedFile
from askwell.mixture.mixture import Mixture
from askwell.specs.training_spec import TrainingSpec
from askwell.training.checkpoint import CHECKPOINT
from askwell.training.history import Interrupted
from askwell.training.loop import train

FULL = bool(os.environ.get("ASKWELL_TEST_FULL"))
PAPER: dict[str, Any] = {"recipe": "paper", "epochs": 6, "patience": 6, "learning_rate": 0.01, "batch_facts": 4}
SETTINGS = {
    "gradient": TrainingSpec(**PAPER, threads=1),
    "em": TrainingSpec(method="em", **PAPER, threads=1),
    "cycle": TrainingSpec(pairs=600, threads=1),
    "cycle, em": TrainingSpec(method="em", pairs=300, batch_facts=3, threads=1),
    "annealed": TrainingSpec(anneal=0.2, pairs=300, batch_facts=3, threads=1),
    "annealed, em": TrainingSpec(method="em", anneal=0.2, pairs=300, batch_facts=3, threads=1),
    "plateau": TrainingSpec(recipe="plateau", batch_facts=3, patience=2, pairs=300, threads=1),
    "plateau, em": TrainingSpec(method="em", recipe="plateau", batch_facts=3, patience=3, pairs=300, threads=1),
}


def new_mixture(**spec):
    return Mixture(frozen("bert"), TEMPLATES, paper_spec(deep=True, copies=2, noise=0.3, seed=5, **spec))


def same(one, other):
    first, second = one.state_dict(), other.state_dict()
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


@functools.cache
def whole_run(method):
    """A run that nothing interrupts, and its mixture. No test may change them."""
    mixture = new_mixture()
    return train(mixture, CAPITALS, SETTINGS[method]), mixture


@pytest.mark.parametrize("method", list(SETTINGS))
def test_the_same_seed_gives_the_same_numbers(method):
    result, whole = whole_run(method)
    mixture = new_mixture()
    assert train(mixture, CAPITALS, SETTINGS[method]).history == result.history
    assert same(mixture, whole)


def test_another_seed_gives_other_numbers():
    mixtures = [new_mixture(), Mixture(frozen("bert"), TEMPLATES, paper_spec(deep=True, copies=2, noise=0.3, seed=6))]
    assert not same(*mixtures)


STOPS = [0, 1, 4, 7, 11, 17]
# Each setting at an early and at a late stop, and each stop with two settings.
INTERRUPTED = [(method, STOPS[(n + late) % 6]) for n, method in enumerate(SETTINGS) for late in (0, 3)]


@pytest.mark.parametrize(("method", "stop_at"), list(product(SETTINGS, STOPS)) if FULL else INTERRUPTED)
def test_an_interrupted_run_that_is_resumed_equals_one_that_was_not(tmp_path, method, stop_at):
    expected, whole = whole_run(method)

    calls = []

    def interrupt(progress):
        calls.append(progress)
        if len(calls) > stop_at:
            raise KeyboardInterrupt

    first = new_mixture()
    with pytest.raises(KeyboardInterrupt):
        train(first, CAPITALS, SETTINGS[method], folder=tmp_path, progress=interrupt)
    second = new_mixture()
    result = train(second, CAPITALS, SETTINGS[method], folder=tmp_path, resume=True)
    assert result.history == expected.history
    assert same(second, whole)
    assert result.learned_from == expected.learned_from


def test_an_interrupted_run_is_left_in_its_best_state(tmp_path):
    def interrupt(progress):
        if progress.record and progress.record.round == 3:
            raise KeyboardInterrupt

    mixture = new_mixture()
    with pytest.raises(Interrupted) as interrupted:
        train(mixture, CAPITALS, SETTINGS["gradient"], folder=tmp_path, progress=interrupt)
    three_epochs = new_mixture()
    train(three_epochs, CAPITALS, SETTINGS["gradient"].model_copy(update={"epochs": 3}))
    assert same(mixture, three_epochs)
    result = interrupted.value.result
    assert result.pairs == 3 * len(CAPITALS.train) * len(mixture.prompts)
    assert len(result.history) == 4
    assert not result.finished


def interrupted(folder):
    def interrupt(progress):
        if progress.record and progress.record.round == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(new_mixture(), CAPITALS, SETTINGS["gradient"], folder=folder, progress=interrupt)


def test_a_checkpoint_of_another_run_is_refused(tmp_path):
    interrupted(tmp_path)
    with pytest.raises(BadOption, match="a different LM, facts, prompts, settings or version"):
        train(new_mixture(weighting="data-dependent"), CAPITALS, SETTINGS["gradient"], folder=tmp_path, resume=True)
    with pytest.raises(BadOption, match="a different LM, facts"):
        train(new_mixture(), CAPITALS, SETTINGS["em"], folder=tmp_path, resume=True)


@pytest.mark.parametrize("damage", ["truncate", "flip"])
def test_a_damaged_checkpoint_is_detected(tmp_path, damage):
    interrupted(tmp_path)
    path = tmp_path / CHECKPOINT
    data = bytearray(path.read_bytes())
    if damage == "truncate":
        data = data[: len(data) // 2]
    else:
        data[-5] ^= 0xFF
    path.write_bytes(data)
    with pytest.raises(DamagedFile, match="altered"):
        train(new_mixture(), CAPITALS, SETTINGS["gradient"], folder=tmp_path, resume=True)
