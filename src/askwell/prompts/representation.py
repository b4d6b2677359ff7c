"""A frozen representation of x, by which a gate weighs prompts: f(x), a few numbers that the LM's own layers give."""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from askwell.lms.batches import Batch, StreamBatch, Words
from askwell.lms.frozen import FrozenLM
from askwell.lms.hooked import watching_layers

DIRECTIONS = 16
"""How many principal directions f(x) has; those that the train x's do not have are 0."""
_DEPTH = 2 / 3
"""How deep in the LM the layer is whose hidden states are taken."""
_KEPT_NUMBERS = 2**24
"""The most numbers that are kept of x's that were read before."""


class Representation(nn.Module):
    """f(x): the mean over x's tokens of the hidden states of one layer, for x alone between the LM's special tokens,
    standardised over train's x's and projected to their first principal directions. Before `fit`, it is 0."""

    centre: Tensor
    spread: Tensor
    directions: Tensor

    def __init__(self, lm: FrozenLM) -> None:
        super().__init__()
        self._lm = (lm,)  # in a tuple, so that the LM is not a submodule
        self._stack, stack = next(iter(lm.stacks.items()))  # an encoder, if there is one
        self._layer = max(1, round(_DEPTH * stack.layers))
        nothing = torch.zeros(stack.width, dtype=lm.parameter_dtype, device=lm.device)
        self.register_buffer("centre", nothing)
        self.register_buffer("spread", torch.ones_like(nothing))
        self.register_buffer("directions", nothing.new_zeros(stack.width, DIRECTIONS))
        self._kept: dict[tuple[int, ...], Tensor] = {}

    @property
    def is_fitted(self) -> bool:
        """Whether there are directions."""
        return bool(self.directions.any())

    def forward(self, xs: Words, rows: Int[Tensor, " facts"]) -> Float[Tensor, "facts directions"]:
        """Return f(x) of the x's in these rows."""
        if not self.is_fitted:
            return self.directions.new_zeros(len(rows), DIRECTIONS)
        return (self.mean_states(xs, rows).to(self.centre) - self.centre) / self.spread @ self.directions

    @torch.no_grad()
    def fit(self, xs: Words) -> None:
        """Standardise the distinct of these x's, and take their first principal directions."""
        tokens = _tokens_of(xs, torch.arange(xs.lengths.shape[1], device=xs.lengths.device))
        first = {of_x: row for row, of_x in reversed([*enumerate(tokens)])}
        states = self.mean_states(xs, torch.tensor(sorted(first.values()), device=xs.lengths.device)).cpu().double()
        centre, spread = states.mean(0), states.std(0, correction=0)
        spread[spread == 0] = 1  # a coordinate that is the same for all x's says nothing
        standardised = (states - centre) / spread
        _, sizes, axes = torch.linalg.svd(standardised, full_matrices=False)
        found = axes[sizes > 1e-6 * sizes.max().clamp(min=1e-12)][:DIRECTIONS]
        # The sign of an axis is arbitrary; its largest coordinate is made positive.
        found = found * found.gather(1, found.abs().argmax(1, keepdim=True)).sign()
        self.centre.copy_(centre)
        self.spread.copy_(spread)
        self.directions.zero_()
        self.directions[:, : len(found)] = found.T.to(self.directions)

    @torch.no_grad()
    def mean_states(self, xs: Words, rows: Int[Tensor, " facts"]) -> Float[Tensor, "facts width"]:
        """Return the mean hidden state of each x, which the LM reads once and for all."""
        tokens = _tokens_of(xs, rows)
        found = {of_x: self._kept[of_x] if of_x in self._kept else self._read(of_x) for of_x in dict.fromkeys(tokens)}
        room = _KEPT_NUMBERS // len(self.centre)
        self._kept.update(item for item in found.items() if len(self._kept) < room)
        return torch.stack([found[of_x] for of_x in tokens])

    def _read(self, tokens: tuple[int, ...]) -> Float[Tensor, " width"]:
        """Return the mean hidden state of an x. It is read by itself: in a batch, rounding would depend on the others,
        and a run that is resumed reads them in other batches."""
        (lm,) = self._lm
        # A causal LM's first position is special: x is not to stand there.
        before, after = lm.wording.prefix or [lm.special.text_start], lm.wording.suffix
        ids = torch.tensor([[*before, *tokens, *after]], device=lm.device)
        stream = StreamBatch(ids, torch.full_like(ids, -1), torch.tensor([ids.shape[1]], device=lm.device))
        at = torch.zeros(1, dtype=torch.long, device=lm.device)
        no_vectors = torch.empty(0, lm.embedding_size, dtype=lm.parameter_dtype, device=lm.device)
        layers: list[Tensor] = []
        with watching_layers(lm.stacks[self._stack].blocks, layers.append):
            lm.whole.run(Batch(dict.fromkeys(lm.stacks, stream), at, at), no_vectors, None)
        of_x = layers[self._layer - 1][0, len(before) : len(before) + len(tokens)]
        return of_x.mean(0).to(lm.device, lm.parameter_dtype)


def _tokens_of(xs: Words, rows: Int[Tensor, " facts"]) -> list[tuple[int, ...]]:
    """Return the tokens of each x after a space."""
    return [
        tuple(ids[:length]) for ids, length in zip(xs.ids[0][rows].tolist(), xs.lengths[0][rows].tolist(), strict=True)
    ]
