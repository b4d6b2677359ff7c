"""A public model that is read as a whole: hooks add to the outputs of its layers, and show its head single positions.

Before a model is used, its layers and its head are probed on short inputs. Nothing is taken from a config: an unknown
architecture is used if it passes, and refused otherwise. LMs that are spread over devices, offloaded or quantised are
always read in this way; nothing moves, casts or walks through their layers.
"""

import inspect
import logging
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
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

_log = logging.getLogger("askwell")
# Logits of the same token, with or without padding, may differ by rounding; if by more, padding changes the answer.
_ROUNDING = 1e-2


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
def watching_layers(blocks: Sequence[nn.Module], change: Callable[[Tensor], Tensor | None]) -> Generator[None]:
    """Call a function, inside the block, with the output of each layer that is called, and replace the output by what
    it returns, if anything.

    ALBERT calls one block many times, and its hook is then called as often.
    """

    def hook(module: nn.Module, _inputs: Any, output: Any) -> Any:
        hidden = output[0] if isinstance(output, tuple) else output
        if not isinstance(hidden, torch.Tensor) or hidden.dim() != 3:
            raise LMUnavailable(f"a layer ({type(module).__name__}) gives no hidden states that askwell understands")
        changed = change(hidden)
        if changed is None:
            return None
        return (changed, *output[1:]) if isinstance(output, tuple) else changed

    with ExitStack() as handles:
        for block in blocks:
            handles.callback(block.register_forward_hook(hook).remove)
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

    handle = base_model.register_forward_hook(select)
    try:
        yield
    finally:
        handle.remove()


@dataclass(frozen=True)
class Stack:
    """A sequence of layers with its own input."""

    blocks: tuple[nn.Module, ...]
    layers: int
    width: int


@dataclass(frozen=True)
class WholeModel:
    """A public model that is read as a whole, and what was found when it was probed."""

    model: PreTrainedModel
    family: Family
    stacks: Mapping[str, Stack]
    before_head: nn.Module
    """The part of the model whose output its head reads."""

    def run(
        self, batch: Batch, vectors: Float[Tensor, "prompt_tokens embedding"], deltas: Deltas, **arguments: Any
    ) -> Any:
        """Return the output of the public model, whose head sees only the positions that are read."""
        if batch.branches is not None:
            raise ValueError(f"{type(self.model).__name__} is read as a whole, so it cannot read trees")
        embedding: Any = self.model.get_input_embeddings()
        embedded: dict[str, tuple[Tensor, Tensor]] = {}
        with ExitStack() as hooks:
            for stack, stream in batch.streams.items():
                words = embedding(stream.ids)
                at = (stream.prompt_tokens >= 0).nonzero(as_tuple=True)
                rows, mask = stream.prompt_tokens[at], stream.attention_mask
                if batch.past is not None:
                    further, mask = _cached_inputs(self.model, batch.past, mask)
                    arguments |= further
                embedded[stack] = words.index_put(at, vectors[rows].to(words.dtype)), mask
                if deltas is not None:
                    add = _adder(at, [delta[rows] for delta in deltas[stack]])
                    hooks.enter_context(watching_layers(self.stacks[stack].blocks, add))
            hooks.enter_context(reading_at(self.before_head, batch.read_pairs, batch.read_positions))
            return self.model(**{**self.family.inputs(embedded), **arguments})


def _adder(
    at: tuple[Int[Tensor, " tuned"], ...], additions: Sequence[Float[Tensor, "tuned hidden"]]
) -> Callable[[Tensor], Tensor]:
    """Return what adds additions[l] to the output of the l-th layer called, at the (pair, position)s `at`."""
    nth_call = iter(additions)

    def add(hidden: Tensor) -> Tensor:
        there = tuple(index.to(hidden.device) for index in at)  # a layer of an LM that is spread may be elsewhere
        return hidden.index_put(there, next(nth_call).to(hidden), accumulate=True)

    return add


# ── probing ───────────────────────────────────────────────────────────────────────────────────────────────────────


@torch.no_grad()
def probe(model: PreTrainedModel, family: Family, device: torch.device) -> WholeModel:
    """Return a model with its stacks and the part of it whose output its head reads."""
    ids = torch.tensor([[0, 1, 2, 0], [1, 2, 0, 0]], device=device)
    lengths = torch.tensor([4, 2], device=device)
    try:
        blocks = {name: tuple(layer_blocks(part)) for name, part in family.stacks(model).items()}
        widths: dict[str, list[int]] = {name: [] for name in blocks}
        with ExitStack() as counting:
            for name, of_stack in blocks.items():
                noted = widths[name]
                counting.enter_context(watching_layers(of_stack, lambda hidden, to=noted: to.append(hidden.shape[-1])))
            alone = _logits(model, family, ids[1:, :2], lengths[1:])[0, 1]
        padded = _logits(model, family, ids, lengths)[1, 1]
        before_head = _find_before_head(model, family, ids, lengths, padded)
    except (RuntimeError, IndexError, KeyError, TypeError, ValueError, AttributeError) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise LMUnavailable(f"{type(model).__name__} cannot be asked: it fails on a short input ({reason})") from error
    is_exact = model.dtype in (torch.float32, torch.float64) and alone.isfinite().all()
    if is_exact and (alone - padded).abs().max() > _ROUNDING * alone.abs().max():
        raise LMUnavailable(f"{type(model).__name__} cannot be asked: padding changes its answers")
    stacks = {name: Stack(blocks[name], len(found), found[0]) for name, found in widths.items()}
    return WholeModel(model, family, stacks, before_head)


def _find_before_head(
    model: PreTrainedModel, family: Family, ids: Tensor, lengths: Tensor, expected: Tensor
) -> nn.Module:
    """Return the module whose output the head reads: the base model, or the decoder inside it (OPT)."""
    candidates = [model.base_model, getattr(model.base_model, "decoder", None)]
    one = torch.ones(1, dtype=torch.long, device=ids.device)
    for candidate in candidates:
        if isinstance(candidate, nn.Module):
            with reading_at(candidate, one, one):
                logits = _logits(model, family, ids, lengths)
            is_read = logits.shape[:2] == (1, 1)
            if is_read and torch.allclose(logits[0, 0], expected, rtol=1e-2, atol=1e-2, equal_nan=True):
                return candidate
    raise LMUnavailable(f"{type(model).__name__} cannot be asked: its head cannot be restricted to single positions")


def _logits(model: PreTrainedModel, family: Family, ids: Tensor, lengths: Tensor) -> Tensor:
    embedding: Any = model.get_input_embeddings()
    mask = torch.arange(ids.shape[1], device=ids.device) < lengths[:, None]
    return model(**family.inputs(dict.fromkeys(family.stacks(model), (embedding(ids), mask)))).logits


# ── caches of keys and values ─────────────────────────────────────────────────────────────────────────────────────


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


# ── LMs that cannot be moved or cast ──────────────────────────────────────────────────────────────────────────────


def why_it_stays(model: PreTrainedModel) -> str | None:
    """Return why a model cannot be moved or cast (offloaded, spread or quantised); None for an ordinary one."""
    if getattr(model, "is_quantized", False) or getattr(model, "hf_quantizer", None) is not None:
        method = getattr(getattr(model.config, "quantization_config", None), "quant_method", None)
        if str(getattr(method, "value", method)) != "gguf":  # what is loaded from GGUF has ordinary weights
            return "quantised"
    if any(tensor.device.type == "meta" for tensor in model.parameters()):
        return "offloaded to CPU or disk"
    if len(set((getattr(model, "hf_device_map", None) or {}).values())) > 1:
        return "spread over several devices"
    return None


@cache
def tell_once(name: str, why: str) -> None:
    """Log once for each LM that the fast walk through its layers is not used."""
    _log.warning("%s is %s: it is not moved, and is read as a whole, without the fast walk", name, why)


def keep_differentiable(model: nn.Module) -> None:
    """Keep bitsandbytes' four-bit layers from repacking their weights for inference, and unpacks those that are.

    On CPUs with AVX512-BF16 they do so when they are first called without gradients, and from then on no gradient
    passes through them, without an error.
    """
    for module in model.modules():
        if getattr(module, "support_avx512bf16_for_cpu", False):
            module.state_dict()  # unpacks what is packed
            vars(module)["support_avx512bf16_for_cpu"] = False


def input_device(model: PreTrainedModel) -> torch.device:
    """Return the device on which such a model takes its inputs."""
    embedding: Any = model.get_input_embeddings()
    running = getattr(getattr(embedding, "_hf_hook", None), "execution_device", None)
    if running is not None:
        return torch.device(running)
    return embedding.weight.device
