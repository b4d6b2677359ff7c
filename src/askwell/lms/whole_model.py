"""Runs a public model as a whole, with hooks, and continues from transformers' cache of keys and values."""

import inspect
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from transformers import DynamicCache

from askwell.lms.batches import Batch
from askwell.lms.hooks import adding_to_layers, reading_at
from askwell.lms.walks.past import KeptRows, Past, Paths
from askwell.lms.walks.walk import Deltas

if TYPE_CHECKING:
    from askwell.lms.frozen import FrozenLM


def run_whole(
    lm: "FrozenLM", batch: Batch, vectors: Float[Tensor, "prompt_tokens embedding"], deltas: Deltas, **arguments: Any
) -> Any:
    """The output of the public model, whose head sees only the positions that are read."""
    if batch.branches is not None:
        raise ValueError(f"{type(lm.model).__name__} is read as a whole, so it cannot read trees")
    embedded: dict[str, tuple[Tensor, Tensor]] = {}
    with ExitStack() as perturbed:
        for stack, stream in batch.streams.items():
            words = lm.word_vectors(stream.ids)
            at = (stream.prompt_tokens >= 0).nonzero(as_tuple=True)
            rows = stream.prompt_tokens[at]
            mask = stream.attention_mask
            if batch.past is not None:
                further, mask = _cached_inputs(lm.model, batch.past, mask)
                arguments |= further
            embedded[stack] = words.index_put(at, vectors[rows].to(words.dtype)), mask
            if deltas is not None:
                additions = [delta[rows] for delta in deltas[stack]]
                perturbed.enter_context(adding_to_layers(lm.stacks[stack].blocks, at, additions))
        perturbed.enter_context(reading_at(lm.before_head, batch.read_pairs, batch.read_positions))
        return lm.model(**{**lm.family.inputs(embedded), **arguments})


def cached_rows(cache: Any, is_token: Bool[Tensor, "pairs positions"]) -> Past:
    """The cached keys and values of a batch's tokens, without padding: rows of [heads, head size]."""
    layers = tuple((_rows(layer.keys, is_token), _rows(layer.values, is_token)) for layer in cache.layers)
    lengths = is_token.sum(1)
    return Past(KeptRows(layers), Paths.consecutive(lengths.cumsum(0) - lengths, lengths))


def _cached_inputs(
    model: nn.Module, past: Past, is_token: Bool[Tensor, "pairs positions"]
) -> tuple[dict[str, Any], Bool[Tensor, "pairs all_positions"]]:
    """Further arguments of a model's forward that continues from a past, and the attention mask over both."""
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
    """[pairs, heads, longest, head size] of rows that each pair sees."""
    return table.index_select(0, rows.flatten()).view(*rows.shape, *table.shape[1:]).transpose(1, 2)
