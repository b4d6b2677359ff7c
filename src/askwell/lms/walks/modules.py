"""The modules of public models, computed for weights that never get a gradient: linear layers and RMS norms.

Linear layers take most of the time of every walk. For the few rows of a training step, oneDNN is faster at them on a
CPU than `torch.nn.functional.linear`, which calls the BLAS: by some tenth with one thread, by a third with two, by half
over a vocabulary. Torch has no public function that takes it, so the operator that its own compiler uses is called,
where it is there and is right.
"""

import copy
from functools import cache, lru_cache
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional
from transformers.pytorch_utils import Conv1D

# ── linear layers ─────────────────────────────────────────────────────────────────────────────────────────────────────

# Weights with fewer numbers are multiplied in less time than it takes to reach the faster kernel.
_LARGE = 100_000
# The most rows that oneDNN takes, and what their number is padded to a multiple of. With more the BLAS is as good.
_FEW, _MULTIPLE = 256, 16


def linear(
    rows: Float[Tensor, "rows width"], weight: Float[Tensor, "outputs width"], bias: Tensor | None = None
) -> Float[Tensor, "rows outputs"]:
    """Return rows · weightᵀ + bias, with a gradient into the rows alone."""
    if not takes_onednn(rows, weight):
        return functional.linear(rows, weight, bias)
    if torch.is_grad_enabled() and rows.requires_grad:
        return _Linear.apply(rows, weight, bias)
    return _onednn(rows, weight, bias)


def takes_onednn(rows: Tensor, weight: Tensor) -> bool:
    """Return whether oneDNN multiplies these, which it does faster."""
    is_float = rows.dtype == weight.dtype == torch.float32
    is_on_cpu = rows.device.type == weight.device.type == "cpu"
    is_worth_it = 0 < rows.shape[0] <= _FEW and weight.numel() >= _LARGE
    return is_float and is_on_cpu and is_worth_it and _onednn_is_right()


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(weight)
        return _onednn(rows, weight, bias)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        (weight,) = ctx.saved_tensors
        return _onednn(gradients[0], weight.T, None), None, None


def _onednn(rows: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Return the operator, for one of a few numbers of rows: it keeps some megabyte of code for each that it has
    met."""
    count = rows.shape[0]
    padding = -count % _MULTIPLE
    if padding:
        rows = functional.pad(rows, (0, 0, 0, padding))
    found = torch.ops.mkldnn._linear_pointwise.default(rows, weight, bias, "none", [], "")
    return found[:count] if padding else found


@cache
def _onednn_is_right() -> bool:
    """Return whether torch has the operator, and it computes what a linear layer does: it is no part of torch's
    interface, and may change."""
    rows, weight, bias = (torch.arange(24.0).view(3, 8), torch.arange(40.0).view(5, 8).sin(), torch.arange(5.0))
    expected = functional.linear(rows, weight, bias)
    try:
        found = _onednn(rows, weight, bias), _onednn(rows, weight.T.contiguous().T, bias)
        return all(torch.allclose(part, expected, rtol=1e-5, atol=1e-4) for part in found)
    except (AttributeError, NotImplementedError, RuntimeError, TypeError):
        return False  # there is no such operator, or it takes other arguments, or this CPU has no kernel for it


class _FrozenLinear(nn.Linear):
    def forward(self, input: Tensor) -> Tensor:  # noqa: A002 - as nn.Linear calls it
        return _of_any_shape(input, self.weight, self.bias)


class _FrozenConv1D(Conv1D):
    """GPT-2's linear layer, whose weights are transposed."""

    def forward(self, x: Tensor) -> Tensor:
        return _of_any_shape(x, self.weight.T, self.bias)


def _of_any_shape(rows: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    if rows.dim() == 2:
        return linear(rows, weight, bias)
    return linear(rows.reshape(-1, rows.shape[-1]), weight, bias).view(*rows.shape[:-1], -1)


# ── RMS norms ─────────────────────────────────────────────────────────────────────────────────────────────────────────


class _RMSNorm(torch.autograd.Function):
    """x · r · weight with r = 1 / √(mean of x² + ε), and its gradient in five operators instead of some fifteen."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, epsilon: float) -> Tensor:
        r = torch.linalg.vecdot(x, x).div_(x.shape[-1]).add_(epsilon).rsqrt_().unsqueeze(-1)
        ctx.save_for_backward(x, weight, r)
        return (x * r).mul_(weight)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        x, weight, r = ctx.saved_tensors
        of_normed = gradients[0] * weight
        of_r = torch.linalg.vecdot(of_normed, x).unsqueeze(-1)
        return of_normed.mul_(r).addcmul_(x, of_r.mul_(r**3), value=-1 / x.shape[-1]), None, None


class _FrozenRMSNorm(nn.Module):
    """The norm of Llama and its relatives."""

    weight: Tensor
    variance_epsilon: float

    def forward(self, hidden_states: Tensor) -> Tensor:
        if hidden_states.dtype != torch.float32:  # the public modules compute in float32, whatever they are given
            return super().forward(hidden_states)
        return _RMSNorm.apply(hidden_states, self.weight, self.variance_epsilon)


# ── models ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def with_frozen_modules(model: Any) -> Any:
    """Return the model with modules for frozen weights. Its weights are the model's own, and the model is not
    changed."""
    own = copy.copy(model)
    own._modules = {name: module and with_frozen_modules(module) for name, module in model._modules.items()}
    own.__class__ = _frozen(type(model), hasattr(model, "variance_epsilon"))
    return own


@lru_cache
def _frozen(kind: type[nn.Module], has_epsilon: bool) -> type[nn.Module]:
    """Return the kind of module for frozen weights; the same kind if there is none."""
    if has_epsilon and kind.__name__.endswith("RMSNorm"):
        return type(f"_Frozen{kind.__name__}", (_FrozenRMSNorm, kind), {})
    return {nn.Linear: _FrozenLinear, Conv1D: _FrozenConv1D}.get(kind, kind)
