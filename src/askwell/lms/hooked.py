"""Hooks into a public model while it runs: they add to the outputs of its layers, and read single positions.

Before a model is used, its layers and its head are probed on short inputs. Nothing is taken from a config: an unknown
architecture is used if it passes, and refused otherwise.
"""

import inspect
from collections.abc import Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from transformers import DynamicCache, PreTrainedModel

from askwell.errors import LMUnavailable
from askwell.lms.batches import Batch
from askwell.lms.families import Family
from askwell.lms.walks.past import KeptRows, Past, Paths
from askwell.lms.walks.walk import Deltas


def layer_blocks(stack: nn.Module) -> list[nn.Module]:
    """Return the layers of a stack: the module list that holds the most parameters."""
    lists = [module for module in stack.modules() if isinstance(module, nn.ModuleList) and len(module)]
    if not lists:
        raise LMUnavailable(f"{type(stack).__name__} has no list of layers that askwell could hook into")
    layers = max(lists, key=lambda layers: sum(parameter.numel() for parameter in layers.parameters()))
    for module in stack.modules():
        siblings = [child for child in module.children() if isinstance(child, nn.ModuleList) and len(child) > 1]
        if layers in siblings and sum(len(sibling) == len(layers) for sibling in siblings) > 1:
            # XLM keeps attention and feed-forward parts in separate lists: the output of one is not that of a layer.
            raise LMUnavailable(
                f"{type(stack).__name__} keeps the parts of a layer in several lists, which cannot be hooked into"
            )
    return list(layers)


@contextmanager
def adding_to_layers(
    blocks: Sequence[nn.Module],
    at: tuple[Int[Tensor, " tuned"], ...],
    additions: Sequence[Float[Tensor, "tuned hidden"]],
) -> Generator[None]:
    """Have additions[l] added, inside the block, to the output of the l-th layer called, at the (pair, position)s `at`.

    Blocks are counted as they are called, since ALBERT calls one block many times.
    """
    nth_call = iter(additions)

    def add(_module: nn.Module, _inputs: Any, output: Any) -> Any:
        hidden = output[0] if isinstance(output, tuple) else output
        there = tuple(index.to(hidden.device) for index in at)  # a layer of an LM that is spread may be elsewhere
        hidden = hidden.index_put(there, next(nth_call).to(hidden), accumulate=True)
        return (hidden, *output[1:]) if isinstance(output, tuple) else hidden

    with _hooked([(block, add) for block in blocks]):
        yield


@contextmanager
def reading_at(
    base_model: nn.Module, pairs: Int[Tensor, " reads"], positions: Int[Tensor, " reads"]
) -> Generator[None]:
    """Show the head, inside the block, only the hidden states of the given positions, as one row [1, reads, hidden]."""

    def select(_module: nn.Module, _inputs: Any, output: Any) -> Any:
        hidden = output["last_hidden_state"]
        output["last_hidden_state"] = hidden[pairs.to(hidden.device), positions.to(hidden.device)].unsqueeze(0)
        return output

    with _hooked([(base_model, select)]):
        yield


@contextmanager
def counting_layers(blocks: Sequence[nn.Module]) -> Generator[list[int]]:
    """Return a list that gets the width of each block's output, in the order in which the blocks are called."""
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


# Logits of the same token, with or without padding, may differ by rounding; if by more, padding changes the answer.
_ROUNDING = 1e-2


@dataclass(frozen=True)
class Stack:
    """A sequence of layers with its own input."""

    blocks: tuple[nn.Module, ...]
    layers: int
    width: int


@torch.no_grad()
def probe(
    model: PreTrainedModel, family: Family, embedding: Any, device: torch.device | None = None
) -> tuple[dict[str, Stack], nn.Module]:
    """Return the stacks of a model, and the part of it whose output its head reads."""
    ids = torch.tensor([[0, 1, 2, 0], [1, 2, 0, 0]], device=device or model.device)
    lengths = torch.tensor([4, 2], device=device or model.device)
    try:
        parts = family.stacks(model)
        blocks = {name: tuple(layer_blocks(part)) for name, part in parts.items()}
        with ExitStack() as counting:
            widths = {name: counting.enter_context(counting_layers(blocks[name])) for name in parts}
            alone = _logits(model, family, embedding, ids[1:, :2], lengths[1:])[0, 1]
        padded = _logits(model, family, embedding, ids, lengths)[1, 1]
        before_head = _find_before_head(model, family, embedding, ids, lengths, padded)
    except (RuntimeError, IndexError, KeyError, TypeError, ValueError, AttributeError) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise LMUnavailable(f"{type(model).__name__} cannot be asked: it fails on a short input ({reason})") from error
    is_exact = model.dtype in (torch.float32, torch.float64) and alone.isfinite().all()
    if is_exact and (alone - padded).abs().max() > _ROUNDING * alone.abs().max():
        raise LMUnavailable(f"{type(model).__name__} cannot be asked: padding changes its answers")
    stacks = {name: Stack(blocks[name], len(widths[name]), widths[name][0]) for name in parts}
    return stacks, before_head


def _find_before_head(
    model: PreTrainedModel, family: Family, embedding: Any, ids: Tensor, lengths: Tensor, expected: Tensor
) -> nn.Module:
    """Return the module whose output the head reads: the base model, or the decoder inside it (OPT)."""
    candidates = [model.base_model, getattr(model.base_model, "decoder", None)]
    one = torch.ones(1, dtype=torch.long, device=ids.device)
    for candidate in candidates:
        if isinstance(candidate, nn.Module):
            with reading_at(candidate, one, one):
                logits = _logits(model, family, embedding, ids, lengths)
            is_read = logits.shape[:2] == (1, 1)
            if is_read and torch.allclose(logits[0, 0], expected, rtol=1e-2, atol=1e-2, equal_nan=True):
                return candidate
    raise LMUnavailable(f"{type(model).__name__} cannot be asked: its head cannot be restricted to single positions")


def _logits(model: PreTrainedModel, family: Family, embedding: Any, ids: Tensor, lengths: Tensor) -> Tensor:
    mask = torch.arange(ids.shape[1], device=ids.device) < lengths[:, None]
    return model(**family.inputs(dict.fromkeys(family.stacks(model), (embedding(ids), mask)))).logits


@dataclass(frozen=True)
class WholeModel:
    """A public model that is read as a whole, and what was found when it was probed."""

    model: PreTrainedModel
    family: Family
    embedding: nn.Module
    stacks: Mapping[str, Stack]
    before_head: nn.Module


def run_whole(
    whole: WholeModel, batch: Batch, vectors: Float[Tensor, "prompt_tokens embedding"], deltas: Deltas, **arguments: Any
) -> Any:
    """Return the output of the public model, whose head sees only the positions that are read."""
    if batch.branches is not None:
        raise ValueError(f"{type(whole.model).__name__} is read as a whole, so it cannot read trees")
    embedded: dict[str, tuple[Tensor, Tensor]] = {}
    with ExitStack() as perturbed:
        for stack, stream in batch.streams.items():
            words = whole.embedding(stream.ids)
            at = (stream.prompt_tokens >= 0).nonzero(as_tuple=True)
            rows = stream.prompt_tokens[at]
            mask = stream.attention_mask
            if batch.past is not None:
                further, mask = _cached_inputs(whole.model, batch.past, mask)
                arguments |= further
            embedded[stack] = words.index_put(at, vectors[rows].to(words.dtype)), mask
            if deltas is not None:
                additions = [delta[rows] for delta in deltas[stack]]
                perturbed.enter_context(adding_to_layers(whole.stacks[stack].blocks, at, additions))
        perturbed.enter_context(reading_at(whole.before_head, batch.read_pairs, batch.read_positions))
        return whole.model(**{**whole.family.inputs(embedded), **arguments})


def cached_rows(cache: Any, is_token: Bool[Tensor, "pairs positions"]) -> Past:
    """Return the cached keys and values of a batch's tokens, without padding: rows of [heads, head size]."""
    layers = tuple((_rows(layer.keys, is_token), _rows(layer.values, is_token)) for layer in cache.layers)
    lengths = is_token.sum(1)
    return Past(KeptRows(layers), Paths.consecutive(lengths.cumsum(0) - lengths, lengths))


def _cached_inputs(
    model: nn.Module, past: Past, is_token: Bool[Tensor, "pairs positions"]
) -> tuple[dict[str, Any], Bool[Tensor, "pairs all_positions"]]:
    """Return further arguments of a model's forward that continues from a past, and the attention mask over both."""
    lengths, longest = past.paths.lengths, past.paths.rows.shape[1]
    at = torch.arange(longest, device=lengths.device)
    rows = past.paths.rows.clamp(max=past.kept.count - 1)
    cache = DynamicCache()
    for number, (keys, values) in enumerate(past.kept.layers):
        cache.update(_padded(keys, rows), _padded(values, rows), number)
    inputs: dict[str, Any] = {"past_key_values": cache, "use_cache": True}
    if "position_ids" in inspect.signature(model.forward).parameters:
        inputs["position_ids"] = lengths[:, None] + torch.arange(is_token.shape[1], device=lengths.device)
    return inputs, torch.cat([at < lengths[:, None], is_token], dim=1)


def _rows(by_pair: Tensor, is_token: Tensor) -> Tensor:
    return by_pair.transpose(1, 2)[is_token]


def _padded(table: Tensor, rows: Tensor) -> Tensor:
    """Return [pairs, heads, longest, head size] of rows that each pair sees."""
    return table.index_select(0, rows.flatten()).view(*rows.shape, *table.shape[1:]).transpose(1, 2)
