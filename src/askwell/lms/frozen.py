"""A frozen LM: a public model that is asked, and never changed."""

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from askwell.errors import BadOption, checked_or
from askwell.lms.batches import Batch, StreamBatch
from askwell.lms.families import family_of
from askwell.lms.hooked import (
    Stack,
    WholeModel,
    cached_rows,
    input_device,
    keep_differentiable,
    layer_blocks,
    probe,
    tell_once,
    why_it_stays,
)
from askwell.lms.identity import LMIdentity, identify, key_of_checks, recall, remember
from askwell.lms.tokenisation import Beginning, SpecialTokens, Wording
from askwell.lms.walks.known_models import agrees, agrees_with_past, walk_of, window_of
from askwell.lms.walks.layers import FeedForward
from askwell.lms.walks.output import Head
from askwell.lms.walks.past import Past
from askwell.lms.walks.walk import Deltas, Walk, insert_prompt_vectors, pack, rows_at
from askwell.specs.mixture_spec import Begin
from askwell.views.document import Document, overview
from askwell.views.to_text import ShowsItself

# Probabilities that are held at once: few compared with what evaluation sums them into.
_PROBABILITIES_AT_ONCE = 2**21
_LARGE = {1e9: "billion", 1e6: "million"}


class FrozenLM(ShowsItself):
    """A public model and its tokenizer. None of its weights ever gets a gradient or changes."""

    @checked_or("a FrozenLM is loaded by askwell.load_lm('testbed:bert'), or askwell.load_lm(model, tokenizer)")
    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        *,
        identity: LMIdentity | None = None,
        name: str | None = None,
        source: str | None = None,
        tokenizer_source: str | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        compiled: bool = False,
        as_stored: bool = False,
    ) -> None:
        """Prepare a model. `as_stored` says that the model equals its files, so that earlier findings still hold."""
        self.family = family_of(model.config)
        self.identity = identity or identify(
            model, tokenizer, name=name or type(model).__name__, family=self.family.name, folder=None
        )
        self.source = source
        """What `load_lm` was called with; None for a model in memory."""
        self.tokenizer_source = tokenizer_source
        """The tokenizer that `load_lm` was called with; None for the one stored with the weights."""
        self.stays = why_it_stays(model)
        """Why the model is neither moved nor walked: it is quantised, offloaded or spread; otherwise None."""
        if self.stays is not None:
            tell_once(self.identity.name, self.stays)
            keep_differentiable(model)
            as_stored, self.device = False, input_device(model)
        else:
            self.device = torch.device(device) if device is not None else model.device
            model = model.to(device=self.device, dtype=dtype or model.dtype)
        self.model = model.eval().requires_grad_(False)
        self.tokenizer = tokenizer
        self.wording = Wording(tokenizer)
        self._embedding: Any = model.get_input_embeddings()
        self.special = SpecialTokens(tokenizer, model.config)
        self.window = window_of(self.model)
        """The longest sentence that fits into every window; longer ones go through the public model as a whole."""
        self.walk = None if self.stays else walk_of(self.model, FeedForward())
        """The fast way through the model's layers; None if the public model runs as a whole, with hooks."""
        if not (as_stored and self._recall()):
            self.whole = probe(self.model, self.family, self.device)
            if self.walk is not None and not agrees(self):
                self.walk = None
            if as_stored:
                self._remember()
        self.may_share_prefixes = self.family.shares_prefixes
        """Whether common beginnings of sentences may be read once; False reads every sentence as a whole."""
        self.is_compiled = compiled and self.walk is not None
        """Whether parts of its layers are compiled; not possible for an LM that runs as a whole."""
        if self.is_compiled:
            self.walk = walk_of(self.model, FeedForward(compiled=True))
            if not agrees(self):
                raise BadOption(
                    f"`compiled` cannot be used here: torch.compile fails for {type(model).__name__} on {self.device}, "
                    "or changes its results; leave it out (TORCH_LOGS=dynamo shows torch's messages)",
                    compiled="--compiled",
                )

    def _recall(self) -> bool:
        """Use what an earlier start found out about the LM; False if there is nothing."""
        known = recall("checked", key_of_checks(self.identity, self.device, self.dtype))
        if known is None:
            return False
        stacks = {
            name: Stack(tuple(layer_blocks(part)), *known["stacks"][name])
            for name, part in self.family.stacks(self.model).items()
        }
        self.whole = WholeModel(self.model, self.family, stacks, self.model.get_submodule(known["before_head"]))
        if not known["walk_agrees"]:
            self.walk = None
        return True

    def _remember(self) -> None:
        found = {
            "stacks": {name: (stack.layers, stack.width) for name, stack in self.stacks.items()},
            "before_head": next(name for name, part in self.model.named_modules() if part is self.whole.before_head),
            "walk_agrees": self.walk is not None,
        }
        remember("checked", key_of_checks(self.identity, self.device, self.dtype), found)

    @property
    def stacks(self) -> Mapping[str, Stack]:
        """Return its sequences of layers, each with its own input."""
        return self.whole.stacks

    def summary(self) -> Document:
        """Return its name, family, size, and how it runs."""
        layers = ", ".join(
            f"{'' if len(self.stacks) == 1 else name + ' '}{stack.layers} layers × {stack.width}"
            for name, stack in self.stacks.items()
        )
        parameters = sum(parameter.numel() for parameter in self.model.parameters())
        size = next(
            (f"{parameters / n:.1f} {name}" for n, name in _LARGE.items() if parameters >= n), f"{parameters:,}"
        )
        heading = f"FrozenLM {self.identity.name} ({self.identity.architecture}, {self.family.name})"
        way = (f"{self.stays}: read as a whole",) if self.stays else ()
        where = f"{self.device} in {str(self.dtype).removeprefix('torch.')}"
        return overview(
            heading, notes=(f"{size} parameters, {layers}, {self.vocabulary_size:,} tokens; on {where}", *way)
        )

    @property
    def shares_prefixes(self) -> bool:
        """Return whether common beginnings of sentences are read once."""
        return self.may_share_prefixes and (self.walk is not None or self._caches)

    @cached_property
    def _caches(self) -> bool:
        """Return whether the public model, run as a whole, gives the same results when it continues from its cache."""
        return agrees_with_past(self)

    @cached_property
    def dtype(self) -> torch.dtype:
        """Return the precision in which the LM runs."""
        return self.model.dtype

    @cached_property
    def parameter_dtype(self) -> torch.dtype:
        """Return the precision of tuned parameters and of probabilities: never less than float32."""
        return torch.promote_types(self.dtype, torch.float32)

    @property
    def embedding_size(self) -> int:
        """Return the size of a word vector."""
        return self.word_vectors(torch.zeros(1, dtype=torch.long, device=self.device)).shape[-1]

    @property
    def word_count(self) -> int:
        """Return the number of word vectors."""
        return self._embedding.weight.shape[0]

    @cached_property
    def vocabulary_size(self) -> int:
        """Return the number of tokens over which the LM's distributions range."""
        return self.model.get_output_embeddings().weight.shape[0]

    @property
    def context(self) -> int | None:
        """Return the most tokens that the LM can read; None if there is no limit."""
        limit = getattr(self.model.config, "max_position_embeddings", None)
        if limit is None:
            return None
        for module in self.model.base_model.modules():
            positions = getattr(module, "position_embeddings", None)
            if isinstance(positions, nn.Embedding) and positions.padding_idx is not None:
                return limit - positions.padding_idx - 1  # RoBERTa's positions begin after its padding token
        return limit

    @cached_property
    def beginnings(self) -> Mapping[Begin, Beginning]:
        """Return what a sentence can begin with; the first is the default."""
        return self.family.beginnings(self.wording, self.special)

    def beginning(self, name: Begin) -> Beginning:
        """Return the beginning of that name; one that the LM does not have is refused."""
        if name in self.beginnings:
            return self.beginnings[name]
        if len(self.beginnings) == 1:
            raise BadOption(
                f"`begin` {name} is for causal LMs, but {self.identity.name} is a {self.family.name} one; leave it out",
                begin="--begin",
            )
        missing = {"line-break": "line break that is one token", "bos": "BOS token", "eos": "EOS token"}[name]
        raise BadOption(
            f"`begin` {name}: {self.identity.name} has no {missing}; choose from {', '.join(self.beginnings)}",
            begin="--begin",
        )

    def word_vectors(self, ids: Int[Tensor, " *tokens"]) -> Float[Tensor, " *tokens embedding"]:
        """Return the LM's word embeddings, before positions and normalisation."""
        return self._embedding(ids)

    def logits(
        self, batch: Batch, vectors: Float[Tensor, "prompt_tokens embedding"], deltas: Deltas = None
    ) -> Float[Tensor, "reads vocabulary"]:
        """Return the LM's logits at the positions that the batch reads, in the precision of probabilities, without
        gradients.

        The tuned vectors are put at the prompt tokens, and deltas[stack][l] is added as they leave layer l + 1.
        """
        with torch.no_grad():
            walk = self._walk_of(batch)
            if walk is None:
                return self._whole_logits(batch, vectors, deltas)
            return walk.head.logits(self._walked(walk, batch, vectors, deltas)[0])

    @torch.no_grad()
    def distributions(
        self, batch: Batch, vectors: Float[Tensor, "prompt_tokens embedding"], deltas: Deltas = None
    ) -> Iterator[tuple[slice, Float[Tensor, "some vocabulary"], Float[Tensor, " some"]]]:
        """Yield the LM's probabilities at the positions that the batch reads, a few positions at a time, and the
        log-normalisers, as a check that they are finite; without gradients."""
        at_once = max(1, _PROBABILITIES_AT_ONCE // self.vocabulary_size)
        slices = [slice(start, start + at_once) for start in range(0, len(batch.read_pairs), at_once)]
        walk = self._walk_of(batch)
        if walk is None:
            logits = self._whole_logits(batch, vectors, deltas)
            for some in slices:
                yield some, logits[some].softmax(1), logits[some].logsumexp(1)
        else:
            hidden, _ = self._walked(walk, batch, vectors, deltas)
            for some in slices:
                yield some, *walk.head.distributions(hidden[some])

    def log_probs_of(
        self,
        batch: Batch,
        vectors: Float[Tensor, "prompt_tokens embedding"],
        deltas: Deltas,
        tokens: Int[Tensor, " reads"],
        *,
        use_walk: bool = True,
    ) -> tuple[Float[Tensor, " reads"], Float[Tensor, " reads"]]:
        """Return the log-probability of one token at each position that the batch reads, with gradients into the tuned
        vectors and deltas, and the log-normaliser over all tokens, as a check that probabilities are finite."""
        walk = self._walk_of(batch)
        if walk is None or not use_walk:
            logits = self._whole_logits(batch, vectors, deltas)
            log_totals = logits.logsumexp(1)
            return logits.gather(1, tokens[:, None])[:, 0] - log_totals, log_totals.detach()
        return walk.head.log_probs_of(self._walked(walk, batch, vectors, deltas)[0], tokens)

    def several_log_probs_of(
        self,
        batch: Batch,
        vectors: Float[Tensor, "prompt_tokens embedding"],
        deltas: Deltas,
        reads: Int[Tensor, " targets"],
        tokens: Int[Tensor, " targets"],
    ) -> tuple[Float[Tensor, " targets"], Float[Tensor, " reads"]]:
        """Return the log-probability of tokens[i] at the batch's read reads[i], any number of them for each read, with
        gradients, and the log-normaliser over all tokens at each read."""
        walk = self._walk_of(batch)
        if walk is None:
            logits = self._whole_logits(batch, vectors, deltas)
            log_totals = logits.logsumexp(1)
            return logits[reads, tokens] - log_totals[reads], log_totals.detach()
        return walk.head.several_log_probs_of(self._walked(walk, batch, vectors, deltas)[0], reads, tokens)

    def hidden_and_kept(
        self,
        batch: Batch,
        vectors: Float[Tensor, "prompt_tokens embedding"],
        deltas: Deltas = None,
        *,
        keeps: bool = True,
    ) -> tuple[Float[Tensor, "reads width"], Past | None]:
        """Return what `head` reads at the positions that the batch reads, and, if requested, the keys and values of the
        batch's own tokens; both with gradients. For LMs with a walk."""
        walk = self._walk_of(batch)
        if walk is None:
            raise ValueError(f"sentences of more than {self.window} tokens cannot be walked")
        return self._walked(walk, batch, vectors, deltas, keeps=keeps)

    @property
    def head(self) -> Head:
        """Return what turns the hidden states of `hidden_and_kept` into probabilities."""
        if self.walk is None:
            raise ValueError(f"{type(self.model).__name__} is read as a whole, head included")
        return self.walk.head

    def kept(self, batch: Batch, vectors: Float[Tensor, "prompt_tokens embedding"], deltas: Deltas = None) -> Past:
        """Return the kept keys and values of the batch's own tokens, with gradients."""
        if self.walk is not None:
            past = self.hidden_and_kept(batch, vectors, deltas)[1]
            assert past is not None
            return past
        ((_, stream),) = batch.streams.items()
        cache = self.whole.run(batch, vectors, deltas, use_cache=True).past_key_values
        return cached_rows(cache, stream.attention_mask)

    @cached_property
    def bytes_of_kept_row(self) -> int:
        """Return the memory that the kept keys and values of one token take."""
        one = torch.ones(1, dtype=torch.long, device=self.device)
        stream = StreamBatch(torch.zeros_like(one)[:, None], -one[:, None], one)
        nothing = torch.empty(0, self.embedding_size, dtype=self.parameter_dtype, device=self.device)
        with torch.no_grad():
            past = self.kept(Batch(dict.fromkeys(self.stacks, stream), one - 1, one - 1), nothing)
        return sum(part.numel() * part.element_size() for layer in past.kept.layers for part in layer)

    def can_keep(self, longest: int) -> bool:
        """Return whether sentences of up to this many tokens, cached ones included, can continue from the keys and
        values that a walk caches: there must be a walk, and no attention window that would hide one of these tokens
        from another."""
        return self.walk is not None and self._fits(longest)

    def can_share(self, longest: int) -> bool:
        """Return whether common beginnings of sentences of up to this many tokens are read once."""
        return self.shares_prefixes and self._fits(longest)

    def _fits(self, longest: int) -> bool:
        return self.window is None or longest <= self.window

    def _walk_of(self, batch: Batch) -> Walk | None:
        """Return the walk for a batch; None if its sentences are too long and go through the whole model."""
        if self.walk is None or self.window is None:
            return self.walk
        longest = max(int(stream.lengths.max()) for stream in batch.streams.values())
        if batch.branches is not None:
            longest = int(batch.branches.sum(2).max())
        if self._fits(longest if batch.past is None else longest + int(batch.past.paths.lengths.max())):
            return self.walk
        if batch.past is not None:
            raise ValueError(f"sentences of more than {self.window} tokens cannot continue from cached keys and values")
        return None

    def _walked(
        self, walk: Walk, batch: Batch, vectors: Tensor, deltas: Deltas, *, keeps: bool = False
    ) -> tuple[Float[Tensor, "reads width"], Past | None]:
        packed = pack(batch, keeps=keeps)
        embedded = {
            name: insert_prompt_vectors(self.word_vectors(rows.ids), rows, vectors)
            for name, rows in packed.streams.items()
        }
        hidden = rows_at(walk.hidden(packed, embedded, deltas), packed.unsort)
        return hidden, packed.kept() if keeps else None

    def _whole_logits(self, batch: Batch, vectors: Tensor, deltas: Deltas) -> Float[Tensor, "reads vocabulary"]:
        return self.whole.run(batch, vectors, deltas).logits[0].to(self.parameter_dtype)
