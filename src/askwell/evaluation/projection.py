"""What tuned vectors are worth: the words nearest to them, what these score as a hard prompt, and what is lost when
single vectors are put back to where they started.

A tuned vector is near a word without being that word. The score of the words alone shows how much to read into them.
"""

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from askwell.data.facts import Fact, Relation
from askwell.errors import BadOption
from askwell.evaluation.examine import Examination, evaluate_split, examine
from askwell.evaluation.scoring import Progress, Projection
from askwell.lms.frozen import FrozenLM
from askwell.mixture.mixture import Mixture
from askwell.prompts.prompt import original_tokens

# Word vectors and their products with all prompt tokens take about this many bytes at once.
_BYTES_AT_ONCE = 64 * 2**20


@torch.no_grad()
def closest_words(
    lm: FrozenLM, vectors: Float[Tensor, "vectors embedding"], asked: Int[Tensor, " vectors"], count: int
) -> tuple[Int[Tensor, "vectors nearest"], Float[Tensor, "vectors nearest"], Float[Tensor, " vectors"]]:
    """Return the nearest words of each vector, best first, their probabilities, and those of the words asked about.

    p(w | v) is the softmax of the word embeddings times the vector.

    The vocabulary is read in chunks: neither all word vectors nor all probabilities are ever in memory.
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
    return best_words, (best - log_total[:, None]).exp(), (logit_of_asked - log_total).exp()


@torch.no_grad()
def most_from_others(lm: FrozenLM, words: Sequence[int], others: Sequence[int]) -> dict[int, float]:
    """Return for each word w the highest p(w | v) among the vectors v of other words."""
    own, asked = sorted({*others}), sorted({*words})
    vectors = lm.word_vectors(torch.tensor(own, dtype=torch.long, device=lm.device)).to(lm.parameter_dtype)
    log_total = vectors.new_full((len(own),), -torch.inf)
    at_once = max(1, _BYTES_AT_ONCE // (vectors.element_size() * (vectors.shape[1] + len(own))))
    for every in torch.arange(lm.word_count, device=lm.device).split(at_once):
        log_total = torch.logaddexp(log_total, (vectors @ lm.word_vectors(every).to(vectors.dtype).T).logsumexp(1))
    of_asked = lm.word_vectors(torch.tensor(asked, dtype=torch.long, device=lm.device)).to(vectors.dtype)
    p = (vectors @ of_asked.T - log_total[:, None]).exp()
    return {
        word: max((one for other, one in zip(own, of_word, strict=True) if other != word), default=0.0)
        for word, of_word in zip(asked, p.T.tolist(), strict=True)
    }


@torch.no_grad()
def project(mixture: Mixture) -> Mixture:
    """Return a mixture that asks with the word nearest to each tuned vector: argmax p(w | v).

    The prompts' weights and the temperature are kept; perturbations of deeper layers have no words, and are dropped.
    """
    if mixture.spec.keeps_words:
        raise BadOption("a product of experts keeps its prompts hard: there is nothing to project")
    spec = mixture.spec.model_copy(update={"deep": False})
    templates = [prompt.template for prompt in mixture.prompts[:: spec.copies]]
    projected = Mixture(mixture.lm, templates, spec, examples=mixture.examples)
    projected.left_out_prompts = list(mixture.left_out_prompts)
    projected.vectors.copy_(mixture.lm.word_vectors(_nearest(mixture)))
    projected.weighting.load_state_dict(mixture.weighting.state_dict())
    if projected.representation is not None and mixture.representation is not None:
        projected.representation.load_state_dict(mixture.representation.state_dict())
    return projected


def projection_scores(mixture: Mixture, relation: Relation, *, progress: Progress = None) -> Projection:
    """Score a mixture and its nearest words on the test facts of a relation."""
    examination = examine(mixture, relation, ["test"], controls=False, prompts=False, progress=progress)
    return projection_of(examination, progress)


def projection_of(examination: Examination, progress: Progress = None) -> Projection:
    """Score the nearest words of a mixture on the test facts, beside the mixture itself."""
    mixture, relation, tuned = examination.mixture, examination.relation, examination.evaluations["test"]
    words = evaluate_split(  # only ranks are needed
        project(mixture),
        relation,
        candidates=examination.candidates,
        top=0,
        encoded=examination.encoded,
        progress=progress,
    )
    original = original_tokens(mixture.prompts)
    nearest = _nearest(mixture).tolist()
    return Projection(
        relation=relation.name,
        split=tuned.split,
        vocabulary=tuned.vocabulary,
        facts=len(tuned.outcomes),
        left_out=len(tuned.left_out),
        tuned=tuned.micro,
        projected=words.micro,
        changed=sum(a != b for a, b in zip(original, nearest, strict=True)) / max(1, len(original)),
    )


def _nearest(mixture: Mixture) -> torch.Tensor:
    if not len(mixture.vectors):  # prompts of blanks alone
        return torch.zeros(0, dtype=torch.long, device=mixture.lm.device)
    asked = torch.zeros(len(mixture.vectors), dtype=torch.long, device=mixture.lm.device)
    return closest_words(mixture.lm, mixture.vectors, asked, 1)[0][:, 0]


# ── vectors put back to their start ───────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class PutBack:
    """The mean of log p(y | x, r) over some facts, and how it changes when vectors are put back to their start."""

    facts: int
    log_probability: float
    changes: tuple[float, ...]
    """For each group of vectors: the mean with these at their start, minus the mean as it is."""


@torch.no_grad()
def put_back(
    mixture: Mixture,
    facts: Sequence[Fact],
    groups: Sequence[Sequence[int]],
    progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> PutBack:
    """Ask about the facts with each group of rows of `mixture.vectors` at its start in turn, also in deeper layers.

    Facts that the mixture cannot answer, or gives no probability at all, are left out.
    """
    encoded, _ = mixture.encode(facts)
    answers = mixture.answering(kind=encoded.kind)
    encoded, _ = answers.choose(encoded)
    if not len(encoded):
        raise BadOption("put_back: the mixture can be asked about none of these facts")
    batches = encoded.rows.split(answers.facts_at_once(encoded))

    def asked() -> torch.Tensor:
        return torch.cat([answers.likelihood(encoded, rows).total for rows in batches]).double()

    as_it_is = asked()
    known, changes = as_it_is.isfinite(), []
    for done, rows in enumerate(groups):
        with _at_start(mixture, rows):
            changes.append(float((asked() - as_it_is)[known].mean()))
        progress(done + 1, len(groups))
    return PutBack(int(known.sum()), float(as_it_is[known].mean()), tuple(changes))


@contextmanager
def _at_start(mixture: Mixture, rows: Sequence[int]) -> Generator[None]:
    """Put vectors back to their start, and in the end to where they were."""
    deltas = [delta for layers in mixture.layer_deltas.values() for delta in layers]
    starts = [mixture.initial_vectors, *map(torch.zeros_like, deltas)]
    tuned, at = [mixture.vectors, *deltas], list(rows)
    kept = [one[at].clone() for one in tuned]
    try:
        for one, start in zip(tuned, starts, strict=True):
            one[at] = start[at]
        yield
    finally:
        for one, values in zip(tuned, kept, strict=True):
            one[at] = values
