"""Which walk a model gets: one for exactly its class that agrees with the public model, or none."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from askwell.lms.batches import Batch, StreamBatch
from askwell.lms.walks import architectures as known
from askwell.lms.walks.layers import FeedForward
from askwell.lms.walks.walk import Walk

WALKS: Mapping[str, Callable[..., Walk | None]] = {
    "BertForMaskedLM": known.walk_bert,
    "RobertaForMaskedLM": known.walk_roberta,
    "XLMRobertaForMaskedLM": known.walk_roberta,
    "CamembertForMaskedLM": known.walk_roberta,
    "ElectraForMaskedLM": known.walk_electra,
    "DistilBertForMaskedLM": known.walk_distilbert,
    "AlbertForMaskedLM": known.walk_albert,
    "BartForConditionalGeneration": known.walk_bart,
    "LlamaForCausalLM": known.walk_llama,
    "MistralForCausalLM": known.walk_llama,
    "Qwen2ForCausalLM": known.walk_llama,
    "Qwen3ForCausalLM": known.walk_llama,
    "Gemma2ForCausalLM": known.walk_gemma,
    "Gemma3ForCausalLM": known.walk_gemma,
    "Olmo2ForCausalLM": known.walk_olmo2,
    "GPTNeoXForCausalLM": known.walk_gpt_neox,
    "OPTForCausalLM": known.walk_opt,
    "GPT2LMHeadModel": known.walk_gpt2,
    "ModernBertForMaskedLM": known.walk_modernbert,
}
"""By the names of transformers' classes, since importing them all would take a second."""


def walk_of(model: PreTrainedModel, block: FeedForward) -> Walk | None:
    """Return the walk for models of exactly this class; None if there is none."""
    is_public = type(model).__module__.startswith("transformers.models.")
    make = WALKS.get(type(model).__name__) if is_public else None
    if make is None or not set(_kinds_of_layers(model)) <= {"full_attention", "sliding_attention"}:
        return None
    window = window_of(model)
    if window is not None and window < max(_LENGTHS):
        return None
    return make(model, block)


def _kinds_of_layers(model: PreTrainedModel) -> Sequence[str]:
    return getattr(model.config, "layer_types", None) or ()


def window_of(model: PreTrainedModel) -> int | None:
    """Return the longest sentence that fits into the window of every layer; None if no layer has one.

    A window has an effect only on longer sentences, so no check on short ones would find it.
    """
    names = ("sliding_window", "window_size", "attention_chunk_size")
    sizes = [size for name in names if isinstance(size := getattr(model.config, name, None), int)]
    kinds = _kinds_of_layers(model)
    if not sizes or (kinds and set(kinds) <= {"full_attention"}):
        return None
    return min(sizes)


# How far two ways of computing the same thing may differ, relative to the largest number.
_TOLERANCE = {torch.float64: 1e-6, torch.float32: 2e-4}
_TOLERANCE_OF_HALF_PRECISION = 0.25
_LENGTHS = (5, 3, 5, 2)
_READ_FIRST = (3, 1, 2, 1)
"""How many tokens of each may be read beforehand."""


def agrees(lm: Any) -> bool:
    """Return whether the LM's walk agrees with its public model on short sequences, in values and gradients."""
    return _gives_the_same(lm, lambda batch, _vectors, _deltas: batch, use_walk=True)


def agrees_with_past(lm: Any) -> bool:
    """Return whether an LM without a walk gives the same results when a sentence's first tokens come from its cache."""
    cut = torch.tensor(_READ_FIRST, device=lm.device)

    def after_first(batch: Batch, vectors: Tensor, deltas: Any) -> Batch:
        return batch.after(cut, lm.kept(batch.until(cut), vectors, deltas))

    return _gives_the_same(lm, after_first, use_walk=False)


def _gives_the_same(lm: Any, change: Callable[[Batch, Tensor, Any], Batch], *, use_walk: bool) -> bool:
    """Return whether a changed batch, walked or not, gives what the public model gives for the whole batch."""
    with torch.enable_grad():
        whole = _log_probs_and_gradients(lm, lambda batch, _vectors, _deltas: batch, use_walk=False)
        try:
            found = _log_probs_and_gradients(lm, change, use_walk=use_walk)
        except (RuntimeError, TypeError, ValueError, AttributeError, IndexError, KeyError, NotImplementedError):
            # A module of another kind, e.g. a quantised one, or no cache of keys and values, e.g. in a recurrent model.
            return False
    tolerance = _TOLERANCE.get(lm.dtype, _TOLERANCE_OF_HALF_PRECISION)
    return all(
        bool((ours - theirs).abs().max() <= tolerance * theirs.abs().max())
        for ours, theirs in zip(found, whole, strict=True)
    )


def _short_sequences(stacks: Mapping[str, Any], device: torch.device) -> Batch:
    """Return four short sequences with prompt tokens in them, not sorted by length."""
    lengths = torch.tensor(_LENGTHS, device=device)
    at = torch.arange(max(_LENGTHS), device=device).expand(len(_LENGTHS), -1)
    real = at < lengths[:, None]
    ids = torch.where(real, (at + lengths[:, None]) % 3, 0)
    prompt_tokens = torch.where(real & (at % 2 == 1), at // 2, -1)
    stream = StreamBatch(ids, prompt_tokens, lengths)
    pairs = torch.tensor([0, 1, 1, 2, 3], device=device)
    return Batch(dict.fromkeys(stacks, stream), pairs, torch.tensor([4, 1, 2, 2, 1], device=device))


def _log_probs_and_gradients(lm: Any, change: Callable[[Batch, Tensor, Any], Batch], *, use_walk: bool) -> list[Tensor]:
    """Return log-probabilities of some tokens, and the gradients of their sum for vectors and deltas."""
    batch, generator = _short_sequences(lm.stacks, lm.device), torch.Generator().manual_seed(0)

    def leaf(*shape: int, scale: float) -> Tensor:
        numbers = scale * torch.randn(*shape, generator=generator)
        return numbers.to(lm.device, lm.parameter_dtype).requires_grad_()

    count = int(max(stream.prompt_tokens.max() for stream in batch.streams.values())) + 1
    usual = float(lm.word_vectors(torch.arange(4, device=lm.device)).float().std())
    vectors = leaf(count, lm.embedding_size, scale=usual)
    deltas = {name: leaf(stack.layers, count, stack.width, scale=usual) for name, stack in lm.stacks.items()}
    tokens = torch.arange(len(batch.read_pairs), device=lm.device)
    by_layer = {name: delta.unbind(0) for name, delta in deltas.items()}
    log_probs, log_totals = lm.log_probs_of(
        change(batch, vectors, by_layer), vectors, by_layer, tokens, use_walk=use_walk
    )
    log_probs.sum().backward()
    gradients = [torch.zeros_like(leaf) if leaf.grad is None else leaf.grad for leaf in (vectors, *deltas.values())]
    return [log_probs.detach(), log_totals.detach(), *gradients]
