"""The checkpoint from which a testbed LM continues its training is read only if it is complete."""

import pytest
import torch
import train_lm
from builders import tiny

from askwell.errors import DamagedFile
from askwell.files import read_tensors, write_tensors

MADE_FROM = {"text_sha256": "of a text"}
STEPS = 7


def a_step(seed: int):
    """A model whose optimiser has taken a step."""
    torch.manual_seed(seed)
    model = tiny.TINY["bert"]()[0]
    for parameter in model.parameters():
        parameter.grad = torch.randn_like(parameter)
    optimizer = torch.optim.AdamW(model.parameters())
    optimizer.step()
    return model, optimizer


def restore(folder, model, optimizer, made_from=None):
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + step))
    return train_lm._restore(folder, made_from or MADE_FROM, model, optimizer, schedule, STEPS)


def test_a_model_goes_on_where_it_was(tmp_path):
    kept, its_optimizer = a_step(0)
    train_lm._keep(tmp_path, MADE_FROM, kept, its_optimizer, 3)
    model, optimizer = a_step(1)
    assert restore(tmp_path, model, optimizer) == 3
    for one, other in zip(kept.parameters(), model.parameters(), strict=True):
        assert torch.equal(one, other)
        assert torch.equal(its_optimizer.state[one]["exp_avg"], optimizer.state[other]["exp_avg"])
    assert restore(tmp_path, model, optimizer, {"text_sha256": "of another text"}) == 0


@pytest.mark.parametrize(
    ("changes", "problem"),
    [({"epoch": -1}, "epoch"), ({"epoch": "x"}, "epoch"), ({"made_from": []}, "made_from"), ({"more": 1}, "more")],
)
def test_notes_that_are_not_its_own(tmp_path, changes, problem):
    train_lm._keep(tmp_path, MADE_FROM, *a_step(0), 3)
    path = tmp_path / train_lm._CHECKPOINT
    tensors, notes = read_tensors(path)
    write_tensors(path, tensors, notes | changes)
    with pytest.raises(DamagedFile, match=problem):
        restore(tmp_path, *a_step(1))


@pytest.mark.parametrize("change", ["missing", "NaN", "another shape"])
def test_tensors_of_another_model(tmp_path, change):
    train_lm._keep(tmp_path, MADE_FROM, *a_step(0), 3)
    path = tmp_path / train_lm._CHECKPOINT
    tensors, notes = read_tensors(path)
    name = next(name for name in tensors if name.startswith("exp_avg/"))
    tensor = tensors.pop(name)
    if change != "missing":
        tensors[name] = tensor * torch.nan if change == "NaN" else tensor[:1]
    write_tensors(path, tensors, notes)
    model, optimizer = a_step(1)
    before = [parameter.clone() for parameter in model.parameters()]
    with pytest.raises(DamagedFile, match="is not that of this LM"):
        restore(tmp_path, model, optimizer)
    assert all(torch.equal(one, other) for one, other in zip(before, model.parameters(), strict=True))
