"""The parameters of a mixture that are tuned: their step sizes, Adam over them, and L-BFGS for the few that are fitted.

Step sizes are the paper's constant, or follow the scale of the LM: how large its word vectors and hidden states are.
"""

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from askwell.answers.encode import EncodedFacts
from askwell.answers.likelihood import ReadOnce
from askwell.answers.strategy import Answers, sum_dtype
from askwell.errors import BadOption
from askwell.lms.batches import Batch
from askwell.lms.frozen import FrozenLM
from askwell.lms.hooked import watching_layers
from askwell.mixture.mixture import Mixture
from askwell.specs.mixture_spec import WeightingName
from askwell.specs.training_spec import PAPER_BETA1, TrainingSpec
from askwell.training.history import CLEARLY

OF_WORDS = 0.2
"""A step on the vectors at layer 0, in standard deviations of the word vectors."""
OF_HIDDEN = 0.02
"""A step on a deeper layer's perturbation, in standard deviations of that layer's output."""
OF_WEIGHTS = 0.1
"""A step on the weights' logits and log T, which do not depend on the LM's scale."""
BETA1, BETA1_OF_SEVERAL = 0.9, 0.7
"""Adam's β1 for one prompt and for several: their steps take few facts, and there are only some fifty of them, too few
for a long memory."""
GATE_DECAY = 0.005
"""The weight decay of a gate: that of the prior with which it is fitted, at a hundred facts."""
_PAPER = 1e-3
_SAMPLED_PAIRS = 64


@dataclass(frozen=True)
class Rates:
    """Adam's step size for each part of a mixture."""

    vectors: float
    layers: dict[str, list[float]]
    """For each stack, layer by layer."""
    weights: float


def rates_of(mixture: Mixture, encoded: EncodedFacts, spec: TrainingSpec) -> Rates:
    """Return the step sizes of a run: those that the spec gives, and the recipe's for the rest."""
    everything = spec.learning_rate or (_PAPER if spec.recipe == "paper" else None)
    vectors, layers = spec.vectors_rate or everything, spec.layers_rate or everything
    weights = spec.weights_rate or everything or OF_WEIGHTS
    if vectors is None:
        vectors = OF_WORDS * word_scale(mixture.lm)
    if layers is None and mixture.deltas:
        scales = hidden_scales(
            mixture.lm, mixture.pairs.sample(mixture.tuned, encoded.xs, _SAMPLED_PAIRS), mixture.vectors.detach()
        )
        by_layer = {stack: [OF_HIDDEN * scale for scale in of_stack] for stack, of_stack in scales.items()}
    else:
        by_layer = {stack: [layers or 0.0] * len(of_stack) for stack, of_stack in mixture.layer_deltas.items()}
    return Rates(vectors, by_layer, weights)


@torch.no_grad()
def word_scale(lm: FrozenLM) -> float:
    """Compute the standard deviation of the word vectors in each coordinate, averaged over coordinates."""
    words = lm.word_vectors(torch.arange(lm.word_count, device=lm.device))
    return float(words.to(lm.parameter_dtype).std(0).mean())


@torch.no_grad()
def hidden_scales(lm: FrozenLM, batch: Batch, vectors: Tensor) -> dict[str, list[float]]:
    """Measure the standard deviation of the output of each layer of each stack, over all tokens of a batch.

    The median over coordinates is taken, not the mean: in many LMs a few coordinates are a hundred times larger than
    all others.
    """
    scales: dict[str, list[float]] = {name: [] for name in lm.stacks}

    def note(stack: str, hidden: Tensor) -> None:
        of_tokens = hidden[batch.streams[stack].attention_mask].to(lm.parameter_dtype)
        scales[stack].append(float(of_tokens.std(0).median()))

    with ExitStack() as hooks:
        for name, stack in lm.stacks.items():
            hooks.enter_context(watching_layers(stack.blocks, partial(note, name)))
        lm.whole.run(batch, vectors, None)
    return scales


def choose_tuned(mixture: Mixture, spec: TrainingSpec) -> None:
    """Enable gradients for the parameters that the spec tunes, and for no others."""
    if mixture.is_product and spec.method == "em":
        raise BadOption(
            "EM is for mixtures; a product of experts is trained by gradient (`method` gradient)", method="--method"
        )
    mixture.vectors.requires_grad_(spec.tune_vectors and not mixture.spec.keeps_words)
    for delta in mixture.deltas.parameters():
        delta.requires_grad_(spec.tune_layers)
    for name, parameter in mixture.weighting.named_parameters():
        # All parameters of a weighting besides p(t | r) control how the weights depend on x, as a temperature does.
        parameter.requires_grad_(spec.tune_weights if name == "logits" else spec.tune_temperature)
    if spec.drop_below and (mixture.is_product or mixture.weighting.depends_on_x or not spec.tune_weights):
        raise BadOption(
            "`drop_below` is for mixtures whose weights are tuned and do not depend on x", drop_below="--drop-below"
        )
    if spec.anneal < 1 and (mixture.is_product or len(mixture.prompts) == 1):
        raise BadOption("`anneal` is for mixtures of several prompts, such as copies of one", anneal="--anneal")
    if spec.l2 and not (mixture.vectors.requires_grad or any(d.requires_grad for d in mixture.deltas.parameters())):
        raise BadOption("`l2` penalises the prompts' vectors, but none of them is tuned here", l2="--l2")
    fits_lengths = spec.tune_lengths and mixture.lengths is not None
    if not fits_lengths and not any(parameter.requires_grad for parameter in mixture.parameters()):
        raise BadOption("nothing is tuned: tune at least one of vectors, layers, weights, temperature and lengths")


def penalty(mixture: Mixture) -> Float[Tensor, ""]:
    """Compute the squared norm of everything that is tuned and added to the prompts."""
    added = [mixture.vectors - mixture.initial_vectors, *mixture.deltas.parameters()]
    return torch.stack([part.square().sum() for part in added if part.requires_grad]).sum()


def optimizer_of(mixture: Mixture, spec: TrainingSpec, rates: Rates) -> torch.optim.Adam | None:
    """Create Adam over everything that is tuned by gradient, in groups with their own step sizes, also kept as "peak".

    None if nothing is tuned by gradient, since EM has a closed form for all of it.
    """
    groups: list[dict[str, Any]] = [{"params": [mixture.vectors], "lr": rates.vectors}]
    for stack, layers in mixture.layer_deltas.items():
        groups += [{"params": [delta], "lr": rate} for delta, rate in zip(layers, rates.layers[stack], strict=True)]
    if spec.method == "gradient" or not mixture.weighting.closed_form:
        own = dict(mixture.weighting.named_parameters())
        decayed = [own.pop(name) for name in ("gate",) if name in own]
        groups.append({"params": list(own.values()), "lr": rates.weights})
        groups.append({"params": decayed, "lr": rates.weights, "weight_decay": GATE_DECAY})
    tuned = []
    for group in groups:
        parameters = [parameter for parameter in group["params"] if parameter.requires_grad]
        for parameter in parameters:
            # Adam would skip a parameter without a gradient; where no fact of a step reaches a layer's delta, its
            # momentum still moves it.
            parameter.grad = torch.zeros_like(parameter)
        if parameters:
            tuned.append({**group, "params": parameters, "peak": group["lr"]})
    if not tuned:
        return None
    usual = PAPER_BETA1 if spec.recipe == "paper" else BETA1 if len(mixture.prompts) == 1 else BETA1_OF_SEVERAL
    beta1 = usual if spec.beta1 is None else spec.beta1
    return torch.optim.Adam(tuned, betas=(beta1, spec.beta2), eps=spec.epsilon, fused=True)


def step(optimizer: torch.optim.Optimizer, fraction: float) -> None:
    """Take a step with that fraction of the peak step sizes; afterwards all gradients are zero."""
    for group in optimizer.param_groups:
        group["lr"] = fraction * group["peak"]
    optimizer.step()
    optimizer.zero_grad(set_to_none=False)


def moments_of(optimizer: torch.optim.Optimizer | None) -> dict[str, Tensor]:
    """Copy Adam's moments and step counts, named by the parameter's number and the kind of value."""
    state = {} if optimizer is None else optimizer.state_dict()["state"]
    return {f"{number}/{name}": value.clone() for number, each in state.items() for name, value in each.items()}


def restore_moments(optimizer: torch.optim.Optimizer, moments: Mapping[str, Tensor]) -> None:
    """Restore the moments that `moments_of` copied."""
    state: dict[int, dict[str, Tensor]] = {}
    for key, value in moments.items():
        number, _, name = key.partition("/")
        # Adam counts its steps on the CPU, wherever the parameters are.
        state.setdefault(int(number), {})[name] = value.cpu() if name == "step" else value
    optimizer.load_state_dict({**optimizer.state_dict(), "state": state})


def tuned_by(optimizer: torch.optim.Optimizer | None, mixture: Mixture) -> dict[str, nn.Parameter]:
    """Return the parameters of the mixture that the optimiser moves, by name."""
    groups = [] if optimizer is None else optimizer.param_groups
    moved = {id(parameter) for group in groups for parameter in group["params"]}
    return {name: parameter for name, parameter in mixture.named_parameters() if id(parameter) in moved}


@torch.no_grad()
def add_to_means(means: dict[str, Tensor], tuned: Mapping[str, nn.Parameter], weight: float) -> None:
    """Move the means of all tuned parameters towards the current values by that weight; they start at these values."""
    for name, parameter in tuned.items():
        now = parameter.detach()
        mean = means.get(name, now)
        # The logit of a dropped prompt is -inf, and stays so.
        means[name] = torch.where(mean == now, now, mean + weight * (now - mean))


# ── the few numbers that are fitted to convergence ────────────────────────────────────────────────────────────────────

# The LM reads some train facts once, with the prompts as they are. Given what it says, the weights of the prompts and
# their temperatures, or the lengths of answers, are fitted by L-BFGS, which takes a fraction of a second. The gradient
# steps of a run are too few to take these numbers to where they belong. Weights are fitted before the prompts are
# tuned, so that fewer prompts have to be; lengths are fitted afterwards, since reading how certain the LM is of every
# length at every step would cost more than all the rest.

FITTED_PAIRS = 3200
"""The most (fact, prompt) pairs that are read; without gradients, they cost about a third as much as in training."""
LEAST_FACTS = 32
_PRIOR = 0.5
"""How strongly the weights are held at their start: half the squared change counts as the loss of this many facts.
Without it, sixteen weights fitted to a hundred facts are worse on others than equal ones."""
_PRIOR_OF_LENGTHS = 0.01
LIGHT = 0.25
"""Prompts that weigh less than this fraction of an equal share are dropped after the fit. On a real LM two of seventeen
mined prompts can be all that a mixture needs, and the others would cost eight times as much as these."""
_STEPS = 100
CHOSEN_PAIRS, FOLDS = (800, 1600), 5
"""The most pairs that are read to choose a weighting, at first and where these leave it open; and how often weights are
fitted for it, each time without one fifth of the facts. Each pair is read three times: for y, for the question and for
how certain the prompt is."""
HARDLY = 1.0
"""Weights that depend on x are chosen if the log-loss of facts that they were not fitted to is CLEARLY lower. If it is
not lower by this many standard errors, more facts will hardly show that it is lower by twice as many."""


def facts_to_fit(prompts: int, pairs: int = FITTED_PAIRS) -> int:
    """Return how many train facts are read, at most."""
    return max(LEAST_FACTS, pairs // prompts)


def fits_weights(answers: Answers, spec: TrainingSpec) -> bool:
    """Tell whether weights are fitted before the prompts are tuned."""
    tuned = any(parameter.requires_grad for parameter in answers.prompts.weighting.parameters())
    several = len(answers.prompts.prompts) > 1
    may_be = spec.recipe != "paper" and spec.anneal == 1  # copies that are annealed are to begin together
    return spec.fit_weights and may_be and tuned and several and answers.can_read_once


def choose_weighting(mixture: Mixture, answers: Answers, encoded: EncodedFacts, spec: TrainingSpec) -> bool:
    """Weigh a mixture's prompts by x if facts that weights were not fitted to say so, and by p(t | r) alone if not, or
    if they are fewer than LEAST_FACTS. Nothing is fitted afterwards. Return whether more facts might change that."""
    chosen: WeightingName = "static"
    is_open, start = False, mixture.weight_logits.detach().clone()
    losses: dict[WeightingName, Float[Tensor, " facts"]] = {}
    if len(encoded) >= LEAST_FACTS and fits_weights(answers, spec):
        by_x: WeightingName = "question" if mixture.lm.family.reads_questions else "combined"
        _begin_anew(mixture, start, by_x)
        known = answers.read_once(encoded)
        for weighting in (by_x, chosen):
            _begin_anew(mixture, start, weighting)
            losses[weighting] = held_out_losses(mixture, answers, encoded, known, spec)
        gain = losses[chosen] - losses[by_x]
        gain = gain[gain.isfinite()]  # no weights make a y possible that no prompt can answer
        if len(gain) > 1:
            in_errors = float(gain.mean()) / max(float(gain.std()) / len(gain) ** 0.5, 1e-12)
            chosen = by_x if in_errors > CLEARLY else chosen
            is_open = HARDLY < in_errors <= CLEARLY
    _begin_anew(mixture, start, chosen)
    choose_tuned(mixture, spec)
    scores = {name: float(of_facts[of_facts.isfinite()].mean()) for name, of_facts in losses.items()}
    mixture.spec = mixture.spec.model_copy(update={"weighting_scores": scores})
    return is_open


def held_out_losses(
    mixture: Mixture, answers: Answers, encoded: EncodedFacts, known: ReadOnce | None, spec: TrainingSpec
) -> Float[Tensor, " facts"]:
    """Return -log p(y | x, r) of each fact under the mixture's weighting, fitted to the facts of the other folds. What
    the LM says of the facts is known; what was tuned of the weights is lost."""
    assert known is not None
    known = known if mixture.weighting.depends_on_x else replace(known, evidence=None)
    start = mixture.weight_logits.detach().clone()
    losses = known.gold.new_zeros(len(encoded), dtype=sum_dtype(mixture.lm))
    for fold in range(FOLDS):
        is_held_out = encoded.rows % FOLDS == fold
        others, held_out = encoded.rows[~is_held_out], encoded.rows[is_held_out]
        _begin_anew(mixture, start, mixture.spec.weighting)
        choose_tuned(mixture, spec)
        _fit(answers, encoded, others, known, mixture.weighting, _PRIOR)
        with torch.no_grad():
            total = answers.likelihood(encoded, held_out, known.of(held_out)).total
        losses[held_out] = -total.to(losses)
    _begin_anew(mixture, start, mixture.spec.weighting)
    return losses


def _begin_anew(mixture: Mixture, logits: Float[Tensor, " prompts"], weighting: WeightingName) -> None:
    """Weigh prompts in this way, beginning with these logits: a prompt that was dropped stays dropped."""
    mixture.weigh_by(weighting)
    mixture.weight_logits.data.copy_(logits)


def fit_weights(answers: Answers, encoded: EncodedFacts) -> float:
    """Fit the weights of the prompts and their temperatures to facts, as far as they are tuned, and drop prompts that
    weigh next to nothing for any x; return the facts' mean -log p(y | x, r)."""
    prompts = answers.prompts
    reached = _fit(answers, encoded, encoded.rows, answers.read_once(encoded), prompts.weighting, _PRIOR)
    if prompts.weight_logits.requires_grad and not prompts.weighting.depends_on_x:
        prompts.drop_prompts(LIGHT / len(prompts.prompts))
    return reached


def fits_lengths(answers: Answers, spec: TrainingSpec) -> bool:
    """Tell whether the lengths of answers are fitted after the prompts were tuned."""
    return (
        spec.tune_lengths and spec.recipe != "paper" and answers.prompts.lengths is not None and answers.can_read_once
    )


def fit_lengths(answers: Answers, encoded: EncodedFacts) -> float:
    """Fit how the lengths of a masked LM's answers depend on x; return the facts' mean -log p(y | x, r), each times its
    count.

    Each fact counts as much as some prompt, given the length of y, finds y probable: of a fact that the LM does not
    know, no length is right, and such facts would make all lengths depend less on x.
    """
    lengths = answers.prompts.lengths
    if lengths is None:
        raise ValueError("the answers' lengths are not learned")
    lengths.requires_grad_(True)
    known = answers.read_once(encoded)
    assert known is not None
    counts = known.gold.amax(1).exp()
    reached = _fit(answers, encoded, encoded.rows, known, lengths, _PRIOR_OF_LENGTHS, counts)
    lengths.requires_grad_(False)
    return reached


def _fit(
    answers: Answers,
    encoded: EncodedFacts,
    rows: Int[Tensor, " facts"],
    known: ReadOnce | None,
    module: nn.Module,
    prior: float,
    counts: Float[Tensor, " facts"] | None = None,
) -> float:
    """Fit what is tuned of a module to the facts in these rows, with all else as it is; return their mean
    -log p(y | x, r), each times its count if there are counts. What the LM says of all facts is known."""
    assert known is not None
    fitted = [parameter for parameter in module.parameters() if parameter.requires_grad]
    known, dtype = known.of(rows), fitted[0].dtype
    module.to(sum_dtype(answers.prompts.lm))
    start = [parameter.detach().clone() for parameter in fitted]

    def loss() -> Float[Tensor, ""]:
        total = answers.likelihood(encoded, rows, known).total
        return -(total if counts is None else counts * total).mean()

    def change() -> Float[Tensor, ""]:
        # The logit of a dropped prompt stays -inf.
        each = [(now - before)[before.isfinite()].square().sum() for now, before in zip(fitted, start, strict=True)]
        return torch.stack(each).sum() / 2

    optimizer = torch.optim.LBFGS(fitted, max_iter=_STEPS, line_search_fn="strong_wolfe")

    def closure() -> Float[Tensor, ""]:
        optimizer.zero_grad()
        total = loss() + prior * change() / len(rows)
        total.backward()
        return total

    optimizer.step(closure)
    reached = float(loss().detach())
    for parameter in fitted:
        parameter.grad = None
    module.to(dtype)
    return reached
