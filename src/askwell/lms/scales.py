"""How large an LM's vectors are: what step sizes can follow."""

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from askwell.lms.assemble import Batch

if TYPE_CHECKING:
    from askwell.lms.frozen import FrozenLM


@torch.no_grad()
def word_scale(lm: "FrozenLM") -> float:
    """The standard deviation of the word vectors, coordinate by coordinate, as a mean over coordinates."""
    words = lm.word_vectors(torch.arange(lm.word_count, device=lm.device))
    return float(words.to(lm.parameter_dtype).std(0).mean())


@torch.no_grad()
def hidden_scales(lm: "FrozenLM", batch: Batch, vectors: Tensor) -> dict[str, list[float]]:
    """For each stack the same of what leaves each of its layers, over all tokens of a batch.

    The median over coordinates is taken, not the mean: in many LMs a few coordinates are a hundred times larger than
    all others.
    """
    scales: dict[str, list[float]] = {name: [] for name in lm.stacks}

    def hook(stack: str) -> Any:
        is_token = batch.streams[stack].attention_mask

        def note(_module: nn.Module, _inputs: Any, output: Any) -> None:
            hidden = output[0] if isinstance(output, tuple) else output
            scales[stack].append(float(hidden[is_token].to(lm.parameter_dtype).std(0).median()))

        return note

    embedded = {}
    for stack, stream in batch.streams.items():
        words = lm.word_vectors(stream.ids)
        at_prompt = stream.prompt_tokens >= 0
        words = words.masked_scatter(at_prompt[..., None], vectors[stream.prompt_tokens[at_prompt]].to(words.dtype))
        embedded[stack] = words, stream.attention_mask
    with ExitStack() as hooks:
        for stack, part in lm.stacks.items():
            for block in dict.fromkeys(part.blocks):
                hooks.callback(block.register_forward_hook(hook(stack)).remove)
        lm.model(**lm.family.inputs(embedded))
    return scales
