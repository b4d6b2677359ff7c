"""p(w | v): how near each of an LM's words is to a vector, in the sense in which the LM itself would read it."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from askwell.lms import FrozenLM

# Word vectors and their products with all prompt tokens take about so many bytes at once.
_BYTES_AT_ONCE = 64 * 2**20


@dataclass(frozen=True)
class Nearest:
    """For each vector its nearest words, best first, and the probability of one word that was asked for."""

    words: Int[Tensor, "vectors nearest"]
    p: Float[Tensor, "vectors nearest"]
    p_of_asked: Float[Tensor, " vectors"]


@torch.no_grad()
def nearest_words(
    lm: FrozenLM, vectors: Float[Tensor, "vectors embedding"], asked: Int[Tensor, " vectors"], count: int
) -> Nearest:
    """The softmax of word embeddings times vector, of which the `count` best words and the asked ones are kept.

    The vocabulary is read in parts: neither all word vectors nor all probabilities are ever held.
    """
    vectors = vectors.detach().to(lm.parameter_dtype)
    log_total = vectors.new_full((len(vectors),), -torch.inf)
    logit_of_asked = log_total.clone()
    best = vectors.new_empty((len(vectors), 0))
    best_words = asked.new_empty((len(vectors), 0))
    at_once = max(1, _BYTES_AT_ONCE // (vectors.element_size() * (vectors.shape[1] + len(vectors))))
    for words in torch.arange(lm.word_count, device=lm.device).split(at_once):
        logits = vectors @ lm.word_vectors(words).to(vectors.dtype).T
        log_total = torch.logaddexp(log_total, logits.logsumexp(1))
        here = (asked >= words[0]) & (asked <= words[-1])
        logit_of_asked[here] = logits[here, asked[here] - words[0]]
        part, places = logits.topk(min(count, len(words)), dim=1)
        best, order = torch.cat([best, part], 1).sort(dim=1, descending=True, stable=True)
        best, best_words = best[:, :count], torch.cat([best_words, words[places]], 1).gather(1, order)[:, :count]
    return Nearest(best_words, (best - log_total[:, None]).exp(), (logit_of_asked - log_total).exp())
