"""The vectors with which soft prompts start."""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from askwell.lms import FrozenLM
from askwell.mixture.prompt_set import Prompt
from askwell.specs import Initial


def initial_vectors(
    lm: FrozenLM, prompts: Sequence[Prompt], *, initial: Initial, noise: float, seed: int
) -> Float[Tensor, "prompt_tokens embedding"]:
    """The first vectors of all prompt tokens.

    "words" takes the word embeddings of the hard prompts; "random" draws each from a Gaussian fitted to the LM's word
    embeddings, dimension by dimension, and "random-full" from one with a full covariance. `noise` then moves every
    vector by that many standard deviations of the word embeddings.
    """
    generator = torch.Generator().manual_seed(seed)
    ids = torch.tensor([id_ for prompt in prompts for id_ in prompt.token_ids], dtype=torch.long)
    words = lm.word_vectors(ids.to(lm.device)).cpu().double()
    if initial == "words" and noise == 0:
        return words.to(lm.parameter_dtype).to(lm.device)
    mean, deviation, factor = _fit(lm, full=initial == "random-full")
    shape = words.shape
    if initial == "words":
        vectors = words
    elif initial == "random":
        vectors = mean + deviation * torch.randn(shape, generator=generator, dtype=torch.float64)
    else:
        vectors = mean + torch.randn(shape, generator=generator, dtype=torch.float64) @ factor.T
    if noise:
        vectors = vectors + noise * deviation * torch.randn(shape, generator=generator, dtype=torch.float64)
    return vectors.to(lm.parameter_dtype).to(lm.device)


def _fit(lm: FrozenLM, *, full: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Mean and standard deviation of the word embeddings in each dimension, and a factor of their covariance."""
    everything = lm.word_vectors(torch.arange(lm.word_count, device=lm.device)).cpu().double()
    mean, deviation = everything.mean(0), everything.std(0)
    if not full:
        return mean, deviation, torch.empty(0)
    # The covariance may be singular (fewer words than dimensions), where a Cholesky factor does not exist.
    values, directions = torch.linalg.eigh(torch.cov(everything.T))
    return mean, deviation, directions * values.clamp(min=0).sqrt()
