"""A frozen LM: a public model that is asked, and never changed."""

from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional
from transformers import PretrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

from askwell.errors import LMUnavailable
from askwell.lms.assemble import Batch
from askwell.lms.families import FAMILIES, Family
from askwell.lms.identity import LMIdentity, identify
from askwell.lms.perturb import adding_to_layers, reading_at
from askwell.lms.probe import probe
from askwell.lms.special import SpecialTokens
from askwell.lms.wording import Wording


class FrozenLM:
    """A public model and its tokenizer. No weight of it ever gets a gradient or changes."""

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        *,
        identity: LMIdentity | None = None,
        name: str | None = None,
        source: str | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        self.family = family_of(model.config)
        self.identity = identity or identify(
            model, tokenizer, name=name or type(model).__name__, family=self.family.name, folder=None
        )
        self.source = source
        """What `load_lm` was called with; None for a model in memory."""
        self.device = torch.device(device) if device is not None else model.device
        self.model = model.to(device=self.device, dtype=dtype or model.dtype).eval().requires_grad_(False)
        self.tokenizer = tokenizer
        self.wording = Wording(tokenizer)
        self._embedding: Any = model.get_input_embeddings()
        self.special = SpecialTokens(tokenizer, model.config)
        self.stacks, self._before_head = probe(self.model, self.family, self._embedding)

    @property
    def is_from_hub(self) -> bool:
        """Whether the LM's name is a name on the hub."""
        return self.identity.revision is not None

    @property
    def dtype(self) -> torch.dtype:
        """The precision in which the LM runs."""
        return self.model.dtype

    @property
    def parameter_dtype(self) -> torch.dtype:
        """The precision of tuned parameters and of probabilities: never less than float32."""
        return torch.promote_types(self.dtype, torch.float32)

    @property
    def embedding_size(self) -> int:
        """The size of a word vector."""
        return self.word_vectors(torch.zeros(1, dtype=torch.long, device=self.device)).shape[-1]

    @property
    def word_count(self) -> int:
        """The number of word vectors."""
        return self._embedding.weight.shape[0]

    @property
    def vocabulary_size(self) -> int:
        """The number of tokens over which the LM's distributions range."""
        return self.model.get_output_embeddings().weight.shape[0]

    @property
    def context(self) -> int | None:
        """The most tokens that the LM can read, None where there is no limit."""
        limit = getattr(self.model.config, "max_position_embeddings", None)
        if limit is None:
            return None
        for module in self.model.base_model.modules():
            positions = getattr(module, "position_embeddings", None)
            if isinstance(positions, nn.Embedding) and positions.padding_idx is not None:
                return limit - positions.padding_idx - 1  # RoBERTa counts positions from behind its padding token
        return limit

    def word_vectors(self, ids: Int[Tensor, " *tokens"]) -> Float[Tensor, " *tokens embedding"]:
        """The LM's word embeddings, as they are before positions and normalisation."""
        return self._embedding(ids)

    def logits(
        self,
        batch: Batch,
        vectors: Float[Tensor, "prompt_tokens embedding"],
        deltas: Mapping[str, Float[Tensor, "layers prompt_tokens hidden"]] | None = None,
    ) -> Float[Tensor, "reads vocabulary"]:
        """The LM's logits at the places that the batch reads, in the precision of probabilities.

        The tuned vectors stand at the prompt tokens, and deltas[stack][l] is added as they leave layer l + 1.
        """
        embedded: dict[str, tuple[Tensor, Tensor]] = {}
        with ExitStack() as perturbed:
            for stack, stream in batch.streams.items():
                at_prompt = (stream.prompt_tokens >= 0).unsqueeze(-1)
                words = self.word_vectors(stream.ids)
                rows = stream.prompt_tokens
                soft = _rows_or_zero(vectors, rows).to(words.dtype)
                embedded[stack] = torch.where(at_prompt, soft, words), stream.attention_mask
                if deltas is not None:
                    additions = [_rows_or_zero(delta, rows).to(words.dtype) for delta in deltas[stack]]
                    perturbed.enter_context(adding_to_layers(self.stacks[stack].blocks, additions))
            perturbed.enter_context(reading_at(self._before_head, batch.read_pairs, batch.read_positions))
            logits = self.model(**self.family.inputs(embedded)).logits
        return logits[0].to(self.parameter_dtype)


def family_of(config: PretrainedConfig) -> Family:
    """The family of LMs to which a config belongs."""
    for family in FAMILIES:
        if family.fits(config):
            return family
    known = ", ".join(family.name for family in FAMILIES)
    raise LMUnavailable(
        f"an LM of type {config.model_type!r} belongs to none of the families that can be asked: {known}"
    )


def _rows_or_zero(
    table: Float[Tensor, "rows width"], rows: Int[Tensor, "pairs positions"]
) -> Float[Tensor, "pairs positions width"]:
    """table[rows], and zero where a row is -1."""
    return functional.embedding(rows + 1, functional.pad(table, (0, 0, 1, 0)))
