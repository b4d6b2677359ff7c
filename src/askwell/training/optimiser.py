"""How large an LM's vectors are: what step sizes can follow.

Step sizes: the paper's constant, or such as follow the LM's own scale.

Which parameters of a mixture are tuned, and the optimiser that steps on them.
"""

from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from askwell.errors import BadOption
from askwell.lms.batches import Batch
from askwell.mixture.encode import EncodedFacts
from askwell.mixture.mixture import Mixture
from askwell.specs.training import TrainingSpec

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


OF_WORDS = 0.2
"""A step on the vectors at layer 0, in standard deviations of the word vectors."""
OF_HIDDEN = 0.02
"""A step on a deeper layer's perturbation, in standard deviations of what leaves that layer."""
OF_WEIGHTS = 0.1
"""A step on the weights' logits and log T, which have no scale of their own."""
_PAPER = 1e-3
_SAMPLED_PAIRS = 64


@dataclass(frozen=True)
class Rates:
    """Adam's step size for each part of a mixture."""

    vectors: float
    layers: dict[str, list[float]]
    """For each stack, layer by layer."""
    weights: float

    def as_json(self) -> dict[str, Any]:
        """As plain data."""
        return {"vectors": self.vectors, "layers": self.layers, "weights": self.weights}


def rates_of(mixture: Mixture, facts: EncodedFacts, spec: TrainingSpec) -> Rates:
    """The step sizes of a run: those that the spec gives, and for the rest the recipe's."""
    everything = spec.learning_rate or (_PAPER if spec.recipe == "paper" else None)
    vectors, layers = spec.vectors_rate or everything, spec.layers_rate or everything
    weights = spec.weights_rate or everything or OF_WEIGHTS
    if vectors is None:
        vectors = OF_WORDS * word_scale(mixture.lm)
    if layers is None and mixture.deltas:
        scales = hidden_scales(mixture.lm, mixture.sample(facts.xs, _SAMPLED_PAIRS), mixture.vectors.detach())
        by_layer = {stack: [OF_HIDDEN * scale for scale in of_stack] for stack, of_stack in scales.items()}
    else:
        by_layer = {stack: [layers or 0.0] * len(delta) for stack, delta in mixture.deltas.items()}
    return Rates(vectors, by_layer, weights)


def choose_tuned(mixture: Mixture, spec: TrainingSpec) -> None:
    """Lets gradients into the parameters that the spec tunes, and into no others."""
    is_mixture = mixture.spec.combine == "mixture"
    if not is_mixture and spec.method == "em":
        raise BadOption("EM is for mixtures; a product of experts is trained by gradient (--method gradient)")
    mixture.vectors.requires_grad_(spec.tune_vectors and is_mixture)  # a product keeps its prompts hard
    for delta in mixture.deltas.values():
        delta.requires_grad_(spec.tune_layers)
    for name, parameter in mixture.weighting.named_parameters():
        parameter.requires_grad_(spec.tune_temperature if name == "log_temperature" else spec.tune_weights)
    if spec.drop_below and (not is_mixture or mixture.weighting.reads_x or not spec.tune_weights):
        raise BadOption("--drop-below is for mixtures whose weights are tuned and do not depend on x")
    if spec.l2 and not (mixture.vectors.requires_grad or any(d.requires_grad for d in mixture.deltas.values())):
        raise BadOption("--l2 holds the prompts' vectors back, and none of them is tuned here")
    if not any(parameter.requires_grad for parameter in mixture.parameters()):
        raise BadOption("nothing is tuned: let at least one of vectors, layers, weights and temperature be tuned")


def penalty(mixture: Mixture) -> Float[Tensor, ""]:
    """The squared length of all that is tuned and added to the prompts."""
    added = [mixture.vectors - mixture.initial_vectors, *mixture.deltas.values()]
    return torch.stack([part.square().sum() for part in added if part.requires_grad]).sum()


class Optimizer:
    """Adam over all that is tuned by gradient, with a step size for each part and for each layer.

    It may have nothing to do, where EM has a closed form for all that is tuned.
    """

    def __init__(self, mixture: Mixture, spec: TrainingSpec, rates: Rates) -> None:
        self._parts: dict[str, tuple[nn.Parameter, Tensor, int | None]] = {}
        groups = []

        def add(name: str, parameter: nn.Parameter, rate: float, layer: int | None = None) -> None:
            # A layer's rows share their memory with the parameter, so that a step on them is one on it.
            stepped = parameter if layer is None else parameter.data[layer]
            self._parts[name] = parameter, stepped, layer
            groups.append({"params": [stepped], "lr": rate, "peak": rate})

        if mixture.vectors.requires_grad:
            add("vectors", mixture.vectors, rates.vectors)
        for stack, delta in mixture.deltas.items():
            if isinstance(delta, nn.Parameter) and delta.requires_grad:
                for layer, rate in enumerate(rates.layers[stack]):
                    add(f"deltas.{stack}.{layer}", delta, rate, layer)
        if spec.method == "gradient" or not mixture.weighting.closed_form:
            for name, parameter in mixture.weighting.named_parameters(prefix="weighting"):
                if parameter.requires_grad:
                    add(name, parameter, rates.weights)
        betas, lr = (spec.beta1, spec.beta2), rates.weights
        self._adam = torch.optim.Adam(groups, lr=lr, betas=betas, eps=spec.epsilon) if groups else None

    @property
    def has_work(self) -> bool:
        """Whether anything is tuned by gradient."""
        return self._adam is not None

    def zero_grad(self) -> None:
        """Forgets the gradients."""
        for parameter, _, _ in self._parts.values():
            parameter.grad = None

    def step(self, share: float = 1.0) -> None:
        """A step of that share of the step sizes."""
        if self._adam is None:
            return
        for parameter, stepped, layer in self._parts.values():
            if layer is not None:
                stepped.grad = None if parameter.grad is None else parameter.grad[layer]
        for group in self._adam.param_groups:
            group["lr"] = share * group["peak"]
        self._adam.step()

    def moments(self) -> dict[str, Tensor]:
        """A copy of Adam's state, by the names of the parts that it belongs to."""
        if self._adam is None:
            return {}
        return {
            f"{name}/{key}": value.clone()
            for name, (_, stepped, _) in self._parts.items()
            for key, value in self._adam.state.get(stepped, {}).items()
        }

    def restore(self, moments: dict[str, Tensor]) -> None:
        """Gives Adam the state that `moments` has copied."""
        if self._adam is None:
            return
        for name, value in moments.items():
            part, _, key = name.rpartition("/")
            # Adam counts its steps on the CPU, wherever the parameters are.
            self._adam.state[self._parts[part][1]][key] = value.cpu() if key == "step" else value
