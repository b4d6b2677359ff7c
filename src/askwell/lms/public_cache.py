"""Kept keys and values of a public model that runs as a whole: transformers' own cache, as rows and back."""

import inspect
from typing import Any

import torch
from jaxtyping import Bool
from torch import Tensor, nn
from transformers import DynamicCache

from askwell.lms.walks.past import KeptRows, Past, Paths


def rows_of(cache: Any, is_token: Bool[Tensor, "pairs positions"]) -> Past:
    """What a model has cached of the tokens of a batch, padding left out: rows of [heads, head size]."""
    layers = tuple((_rows(layer.keys, is_token), _rows(layer.values, is_token)) for layer in cache.layers)
    lengths = is_token.sum(1)
    return Past(KeptRows(layers), Paths.consecutive(lengths.cumsum(0) - lengths, lengths))


def cached_inputs(
    model: nn.Module, past: Past, is_token: Bool[Tensor, "pairs positions"]
) -> tuple[dict[str, Any], Bool[Tensor, "pairs all_positions"]]:
    """Further arguments of a model's forward that goes on from a past, and the attention mask over both."""
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
