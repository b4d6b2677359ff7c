"""Reaches into a public model while it runs: adds to what leaves its layers, and reads single positions."""

from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from askwell.errors import LMUnavailable


def layer_blocks(stack: nn.Module) -> list[nn.Module]:
    """The layers of a stack: the module list that holds the most parameters."""
    lists = [module for module in stack.modules() if isinstance(module, nn.ModuleList) and len(module)]
    if not lists:
        raise LMUnavailable(f"{type(stack).__name__} has no list of layers that askwell could reach into")
    layers = max(lists, key=lambda layers: sum(parameter.numel() for parameter in layers.parameters()))
    for module in stack.modules():
        siblings = [child for child in module.children() if isinstance(child, nn.ModuleList) and len(child) > 1]
        if layers in siblings and sum(len(sibling) == len(layers) for sibling in siblings) > 1:
            # XLM keeps attentions and feed-forward parts apart: what leaves one of them does not leave a layer.
            raise LMUnavailable(
                f"{type(stack).__name__} keeps the parts of a layer in several lists; it cannot be reached"
            )
    return list(layers)


@contextmanager
def adding_to_layers(
    blocks: Sequence[nn.Module],
    at: tuple[Int[Tensor, " tuned"], ...],
    additions: Sequence[Float[Tensor, "tuned hidden"]],
) -> Generator[None]:
    """While it lasts, the l-th block that is called leaves its output plus additions[l] at the (pair, position)s `at`.

    Blocks are counted as they are called, since ALBERT calls one block many times.
    """
    nth_call = iter(additions)

    def add(_module: nn.Module, _inputs: Any, output: Any) -> Any:
        hidden = output[0] if isinstance(output, tuple) else output
        hidden = hidden.index_put(at, next(nth_call).to(hidden.dtype), accumulate=True)
        return (hidden, *output[1:]) if isinstance(output, tuple) else hidden

    with _hooked([(block, add) for block in blocks]):
        yield


@contextmanager
def reading_at(
    base_model: nn.Module, pairs: Int[Tensor, " reads"], positions: Int[Tensor, " reads"]
) -> Generator[None]:
    """While it lasts, the head sees the hidden states of the given positions only, as one row [1, reads, hidden]."""

    def select(_module: nn.Module, _inputs: Any, output: Any) -> Any:
        output["last_hidden_state"] = output["last_hidden_state"][pairs, positions].unsqueeze(0)
        return output

    with _hooked([(base_model, select)]):
        yield


@contextmanager
def counting_layers(blocks: Sequence[nn.Module]) -> Generator[list[int]]:
    """A list that gets the width of each block's output, in the order in which the blocks are called."""
    widths: list[int] = []

    def note(_module: nn.Module, _inputs: Any, output: Any) -> None:
        hidden = output[0] if isinstance(output, tuple) else output
        if not isinstance(hidden, torch.Tensor) or hidden.dim() != 3:
            raise LMUnavailable(f"a layer ({type(_module).__name__}) gives no hidden states that askwell understands")
        widths.append(hidden.shape[-1])

    with _hooked([(block, note) for block in blocks]):
        yield widths


@contextmanager
def _hooked(hooks: Sequence[tuple[nn.Module, Any]]) -> Generator[None]:
    with ExitStack() as handles:
        for module, hook in hooks:
            handles.callback(module.register_forward_hook(hook).remove)
        yield
