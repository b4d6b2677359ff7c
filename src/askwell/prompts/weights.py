"""How much each prompt of a mixture weighs: p(t | r), the same for every x, or p(t | r, x); and what a gate sees
of x."""

from collections.abc import Sequence
from typing import ClassVar, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from askwell.data.templates import Template
from askwell.errors import BadOption
from askwell.lms.batches import Batch, StreamBatch, Words
from askwell.lms.frozen import FrozenLM
from askwell.lms.hooked import watching_layers
from askwell.specs.mixture_spec import MixtureSpec, WeightingName

Signal = Literal["x", "question", "answers", "kind"]
"""What can speak for a prompt, given x: log p(x | t), for which the LM reads every question once more, or in a causal
LM that of x and the prompt's words between x and y; how certain the prompt is of its answer; or what kind of x it is,
f(x), for which the LM reads x alone, once."""
Evidence = Float[Tensor, "facts each *signals"]
"""What a weighting reads of each fact: a number for each prompt, several of them on a further axis, or f(x)."""


class Weighting(nn.Module):
    """A way to weigh prompts. To add one, write a subclass, a row of WEIGHTINGS and a name in `WeightingName`.

    Parameters besides `logits` control how the weights depend on x; --no-tune-temperature freezes them.
    """

    reads: ClassVar[tuple[Signal, ...]]
    """What `forward` needs to know of each prompt for each fact."""

    def __init__(self, logits: Float[Tensor, " prompts"]) -> None:
        super().__init__()
        self.logits = nn.Parameter(logits)
        """log p(t | r) up to a constant; -inf for a prompt that was dropped."""

    def forward(self, evidence: Evidence | None, count: int) -> Float[Tensor, "facts prompts"]:
        """Return the log-weight of each prompt for each of this many facts."""
        raise NotImplementedError  # abstract: each class that is used has its own

    @property
    def depends_on_x(self) -> bool:
        """Whether a prompt can weigh more for one x than for another."""
        return bool(self.reads)

    @property
    def closed_form(self) -> bool:
        """Whether the mean posterior over prompts is the best p(t | r), which EM then uses without a gradient; if not,
        EM also takes gradient steps on log p(t | r, x)."""
        return not self.depends_on_x

    @property
    def temperature(self) -> float | None:
        """T: how little the weights depend on x; None if there is no temperature."""
        return None


class StaticWeights(Weighting):
    """p(t | r) = softmax(logits), regardless of x."""

    reads = ()

    def forward(self, evidence: Evidence | None, count: int) -> Float[Tensor, "facts prompts"]:
        """Return log p(t | r), repeated for each fact."""
        del evidence
        return self.logits.log_softmax(0).expand(count, -1)


class DataDependentWeights(Weighting):
    """p(t | r, x) ∝ p(t | r) p(x | t)^(1/T): a prompt weighs more if it finds x itself probable."""

    reads = ("x",)

    def __init__(self, logits: Float[Tensor, " prompts"]) -> None:
        super().__init__(logits)
        of_signals = () if len(self.reads) == 1 else (len(self.reads),)
        self.log_temperature = nn.Parameter(torch.zeros(of_signals, device=logits.device, dtype=logits.dtype))

    def forward(self, evidence: Evidence | None, count: int) -> Float[Tensor, "facts prompts"]:
        """Return log p(t | r, x) from the log of what speaks for each prompt."""
        if evidence is None or len(evidence) != count:
            raise ValueError("weights that depend on x need to know every fact's x")
        scaled = evidence * (-self.log_temperature).exp()
        return (self.logits.log_softmax(0) + (scaled if scaled.dim() == 2 else scaled.sum(2))).log_softmax(1)

    @property
    def temperature(self) -> float | None:
        """T: how little the weights depend on x; None if there are several."""
        return float(self.log_temperature.detach().exp()) if self.log_temperature.dim() == 0 else None


class CertaintyWeights(DataDependentWeights):
    """p(t | r, x) ∝ p(t | r) exp(-H/T), H being the entropy of the prompt's own answers: one that fits x is certain.

    No gradient goes through H: prompts are tuned to be right, not to be certain.
    """

    reads = ("answers",)


class CombinedWeights(DataDependentWeights):
    """p(t | r, x) ∝ p(t | r) p(x | t)^(1/T) exp(-H/T'): a prompt weighs more if it fits x and is certain."""

    reads = ("x", "answers")


class QuestionWeights(DataDependentWeights):
    """p(t | r, x) ∝ p(t | r) p(x, q | t)^(1/T) exp(-H/T'), q being the prompt's words between x and y: a prompt weighs
    more if its words are what the LM expects after x. Only a causal LM can be asked for q; others have p(x | t)."""

    reads = ("question", "answers")


class GateWeights(Weighting):
    """p(t | r, x) ∝ p(t | r) exp(u · f(x)): each prompt has learned which x's it suits; with u = 0 it is static."""

    reads = ("kind",)

    def __init__(self, logits: Float[Tensor, " prompts"]) -> None:
        super().__init__(logits)
        self.gate = nn.Parameter(logits.new_zeros(len(logits), DIRECTIONS))

    def forward(self, evidence: Evidence | None, count: int) -> Float[Tensor, "facts prompts"]:
        """Return log p(t | r, x) from f(x)."""
        if evidence is None or len(evidence) != count:
            raise ValueError("a gate needs to know every fact's x")
        return (self.logits.log_softmax(0) + evidence.to(self.gate) @ self.gate.T).log_softmax(1)


WEIGHTINGS: dict[WeightingName, type[Weighting]] = {
    "auto": StaticWeights,  # until it is chosen
    "static": StaticWeights,
    "data-dependent": DataDependentWeights,
    "certainty": CertaintyWeights,
    "combined": CombinedWeights,
    "question": QuestionWeights,
    "gate": GateWeights,
}


def certainty_of(log_probs: Float[Tensor, "*rest answers"]) -> Float[Tensor, "*rest"]:
    """Return how certain distributions are: the negative of their entropy."""
    return -torch.special.entr(log_probs.detach().exp()).sum(-1)


def initial_weights(templates: Sequence[Template], spec: MixtureSpec) -> Float[Tensor, " prompts"]:
    """Return p(t | r) before tuning, for each copy of each template: uniform, or as given in the prompt file."""
    if spec.weights == "uniform":
        each = [1.0] * len(templates)
    else:
        without = [template.text for template in templates if template.weight is None]
        if without:
            raise BadOption(f"the weights of the prompt file are to be used, but {without[0]!r} has no weight in it")
        each = [template.weight or 0.0 for template in templates]
        if sum(each) == 0:
            raise BadOption("the weights of the prompt file are to be used, but all of them are 0")
    weights = torch.tensor([weight for weight in each for _ in range(spec.copies)], dtype=torch.float64)
    return weights / weights.sum()


# ── what a gate sees of x ─────────────────────────────────────────────────────────────────────────────────────────────

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
