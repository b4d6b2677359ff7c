"""Modules of frozen LMs give what torch's own give, by whichever kernel, and leave the LM as it is."""

from typing import Any

import pytest
import torch
from builders import tiny
from torch import Tensor, nn
from torch.nn import functional
from transformers.models.llama.modeling_llama import LlamaRMSNorm
from transformers.pytorch_utils import Conv1D

from askwell.lms.walks import modules
from askwell.lms.walks.modules import linear, takes_onednn, with_frozen_modules

LARGE = (512, 320)


@pytest.fixture(autouse=True)
def _tried_anew() -> Any:
    modules._onednn_is_right.cache_clear()
    yield
    modules._onednn_is_right.cache_clear()


def numbers(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(len(shape) + shape[0]), dtype=dtype)


@pytest.mark.parametrize("rows", [1, 3, 70])
@pytest.mark.parametrize("has_bias", [True, False])
@pytest.mark.parametrize("layout", ["rows", "columns", "part of columns"])
def test_values_and_gradients_are_those_of_exact_products(rows: int, has_bias: bool, layout: str) -> None:
    weight, bias = numbers(*LARGE), numbers(LARGE[0]) if has_bias else None
    if layout == "columns":
        weight = weight.T.contiguous().T
    elif layout == "part of columns":
        weight = numbers(LARGE[1], 3 * LARGE[0])[:, LARGE[0] : 2 * LARGE[0]].T
    x = numbers(rows, LARGE[1]).requires_grad_()
    assert takes_onednn(x, weight)
    found, upstream = linear(x, weight, bias), numbers(rows, LARGE[0])
    found.backward(upstream)
    exact = x.detach().double() @ weight.double().T + (0 if bias is None else bias.double())
    torch.testing.assert_close(found.double(), exact, atol=1e-4, rtol=0)
    assert x.grad is not None
    torch.testing.assert_close(x.grad.double(), upstream.double() @ weight.double(), atol=1e-4, rtol=0)
    with torch.no_grad():
        torch.testing.assert_close(linear(x, weight, bias), found, atol=0, rtol=0)


def test_what_onednn_does_not_take_goes_to_torchs_own() -> None:
    x, weight = numbers(3, LARGE[1]), numbers(*LARGE)
    assert not takes_onednn(x.double(), weight.double()), "another precision"
    assert not takes_onednn(x, weight[:16]), "small weights"
    assert not takes_onednn(x[:0], weight), "no rows"
    assert not takes_onednn(numbers(257, LARGE[1]), weight), "many rows"
    torch.testing.assert_close(linear(x.double(), weight.double()), x.double() @ weight.double().T, atol=1e-12, rtol=0)
    assert linear(x[:0], weight).shape == (0, LARGE[0])


def test_no_more_than_sixteen_numbers_of_rows_reach_onednn(monkeypatch: pytest.MonkeyPatch) -> None:
    """It keeps code for each that it meets, in a process that may serve for months."""
    assert modules._onednn_is_right()
    met, operator = set(), torch.ops.mkldnn._linear_pointwise

    class Counted:
        @staticmethod
        def default(rows: Tensor, *rest: Any) -> Tensor:
            met.add(rows.shape[0])
            return operator.default(rows, *rest)

    monkeypatch.setattr(torch.ops.mkldnn, "_linear_pointwise", Counted)
    weight = numbers(*LARGE)
    for rows in range(1, 300, 7):
        assert linear(numbers(rows, LARGE[1]), weight).shape == (rows, LARGE[0])
    assert 10 < len(met) <= 16


@pytest.mark.parametrize("fault", ["missing", "refuses", "wrong"])
def test_an_operator_that_is_gone_or_wrong_is_not_used(monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    def operator(rows: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        if fault == "missing":
            raise AttributeError("'_OpNamespace' 'mkldnn' object has no attribute '_linear_pointwise'")
        if fault == "refuses":
            raise RuntimeError("mkldnn::_linear_pointwise() is missing value for argument 'attr'")
        return functional.linear(rows, weight, bias).roll(1, 1)

    monkeypatch.setattr(modules, "_onednn", operator)
    x, weight = numbers(3, LARGE[1]), numbers(*LARGE)
    assert not takes_onednn(x, weight)
    torch.testing.assert_close(linear(x, weight), x @ weight.T, atol=0, rtol=0)


@pytest.mark.parametrize("shape", [(7, 24), (5, 3, 8)])
def test_rms_norms_are_those_of_the_public_class(shape: tuple[int, ...]) -> None:
    public = LlamaRMSNorm(shape[-1], eps=1e-3)
    public.weight.data.copy_(numbers(shape[-1]))
    found = []
    for norm in (with_frozen_modules(public.requires_grad_(False)), public):
        x = (3 * numbers(*shape)).requires_grad_()
        normed = norm(x)
        normed.backward(numbers(*shape).roll(1, -1))
        assert x.grad is not None
        found.append((normed.detach(), x.grad))
    assert type(public) is LlamaRMSNorm
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("name", ["bert", "gpt2", "llama"])
def test_the_model_itself_is_not_changed(name: str) -> None:
    model, _ = tiny.TINY[name]()
    before = {path: type(part) for path, part in model.named_modules()}
    own = with_frozen_modules(model)
    assert {path: type(part) for path, part in model.named_modules()} == before
    replaced = {path: part for path, part in own.named_modules() if before[path] in (nn.Linear, Conv1D)}
    assert replaced
    assert all(type(part) is not before[path] and isinstance(part, before[path]) for path, part in replaced.items())
    for path, weight in own.named_parameters():
        assert weight is model.get_parameter(path), "no weight is copied"
