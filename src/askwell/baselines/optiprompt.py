"""OptiPrompt: one prompt whose tokens are dense vectors at layer 0. It is a setting of ours.

Started from random vectors it is "[X] v v v v v [Y] .", started from a manual prompt it has a vector for each token of
that prompt. OptiPrompt leaves the full stop of the random prompt as it is; here it starts as it is and is tuned, too.
"""

import torch

from askwell.baselines.hard_prompt import blank_template, prompt_of
from askwell.lms import FrozenLM
from askwell.mixture import Mixture, MixtureSpec

VECTORS = 5
"""Dense vectors of a prompt that starts at random."""


def random_dense_prompt(lm: FrozenLM, *, vectors: int = VECTORS, seed: int = 0) -> Mixture:
    """A mixture of one prompt "[X] v … v [Y] ." whose vectors are drawn from a Gaussian fitted to the word vectors."""
    template = blank_template(lm, vectors)
    mixture = Mixture(lm, [template], MixtureSpec(initial="random", seed=seed))
    full_stop = torch.tensor(prompt_of(lm, template).token_ids[vectors:], dtype=torch.long, device=lm.device)
    with torch.no_grad():
        for vectors_of in (mixture.vectors, mixture.initial_vectors):
            vectors_of[vectors:] = lm.word_vectors(full_stop).to(vectors_of.dtype)
    return mixture
