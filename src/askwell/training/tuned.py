"""Which parameters of a mixture are tuned, and by which optimiser."""

import torch
from jaxtyping import Float
from torch import Tensor

from askwell.errors import BadOption
from askwell.mixture import Mixture
from askwell.specs import TrainingSpec


def choose_tuned(mixture: Mixture, spec: TrainingSpec) -> None:
    """Lets gradients into the parameters that the spec tunes, and into no others."""
    is_mixture = mixture.spec.combine == "mixture"
    if not is_mixture and spec.method == "em":
        raise BadOption("EM is for mixtures; a product of experts is trained by gradient (--method gradient)")
    mixture.vectors.requires_grad_(spec.tune_vectors and is_mixture)  # a product keeps its prompts hard
    for delta in mixture.deltas.values():
        delta.requires_grad_(spec.tune_layers)
    mixture.weight_logits.requires_grad_(spec.tune_weights)
    mixture.log_temperature.requires_grad_(spec.tune_temperature and mixture.spec.data_dependent)
    if spec.l2 and not (mixture.vectors.requires_grad or any(d.requires_grad for d in mixture.deltas.values())):
        raise BadOption("--l2 holds the prompts' vectors back, and none of them is tuned here")
    if not any(parameter.requires_grad for parameter in mixture.parameters()):
        raise BadOption("nothing is tuned: let at least one of vectors, layers, weights and temperature be tuned")


def adam(mixture: Mixture, spec: TrainingSpec) -> torch.optim.Adam | None:
    """Adam over what is tuned by gradient; None where EM has a closed form for all of it."""
    weights = [mixture.log_temperature]
    if spec.method == "gradient" or mixture.spec.data_dependent:
        weights.append(mixture.weight_logits)
    rates = [
        ([mixture.vectors], spec.vectors_rate),
        (list(mixture.deltas.values()), spec.layers_rate),
        (weights, spec.weights_rate),
    ]
    groups = [
        {"params": [parameter], "lr": rate or spec.learning_rate}
        for parameters, rate in rates
        for parameter in parameters
        if parameter.requires_grad
    ]
    if not groups:
        return None
    return torch.optim.Adam(groups, lr=spec.learning_rate, betas=(spec.beta1, spec.beta2), eps=spec.epsilon)


def penalty(mixture: Mixture) -> Float[Tensor, ""]:
    """The squared length of all that is tuned and added to the prompts."""
    added = [mixture.vectors - mixture.initial_vectors, *mixture.deltas.values()]
    return torch.stack([part.square().sum() for part in added if part.requires_grad]).sum()


def moments(optimizer: torch.optim.Adam | None, mixture: Mixture) -> dict[str, Tensor]:
    """A copy of Adam's state, by the names of the parameters that it belongs to."""
    if optimizer is None:
        return {}
    return {
        f"{name}/{key}": value.clone()
        for name, parameter in mixture.named_parameters()
        for key, value in optimizer.state.get(parameter, {}).items()
    }


def restore_moments(optimizer: torch.optim.Adam | None, mixture: Mixture, state: dict[str, Tensor]) -> None:
    """Gives Adam the state that `moments` has copied."""
    if optimizer is None:
        return
    parameters = dict(mixture.named_parameters())
    for name, value in state.items():
        parameter, _, key = name.rpartition("/")
        # Adam counts its steps on the CPU, wherever the parameters are.
        optimizer.state[parameters[parameter]][key] = value.cpu() if key == "step" else value
