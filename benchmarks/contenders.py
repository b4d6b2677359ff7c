"""The same mixture and facts for all contenders: askwell, the plain loop and the good plain loop."""

from collections.abc import Callable, Sequence

import good_plain_loop
import plain_loop
import torch
from torch import Tensor

from askwell import Mixture
from askwell.answers.encode import EncodedFacts
from askwell.answers.one_token import OneTokenAnswers
from askwell.training.loop import Objective

Epoch = Callable[[], object]


def plain_facts(facts: EncodedFacts) -> list[plain_loop.PlainFact]:
    """Return the facts as lists of tokens."""
    ids, lengths = facts.xs.ids[0].tolist(), facts.xs.lengths[0].tolist()
    golds = facts.gold_tokens[0].tolist()
    return [plain_loop.PlainFact(x[:length], y) for x, length, y in zip(ids, lengths, golds, strict=True)]


def plain_mixture(mixture: Mixture) -> plain_loop.PlainMixture:
    """Return the mixture in the form of the plain loops."""
    prompts = []
    for prompt in mixture.prompts:
        question, stream = prompt.question, prompt.question.streams["layers"]
        left, right = ([(token.id, token.prompt_token >= 0) for token in side] for side in (stream.left, stream.right))
        prompts.append(plain_loop.PlainPrompt(left, right, question.read_at, question.read_after_x))
    return plain_loop.PlainMixture(mixture.lm.model, prompts, deep=mixture.spec.deep)


def our_epoch(mixture: Mixture, facts: EncodedFacts, batch_facts: int) -> Epoch:
    """Return an epoch of EM as askwell trains: one forward and backward pass per pair."""
    tuned = [mixture.vectors, *mixture.deltas.parameters()]
    optimizer = torch.optim.Adam(tuned, lr=1e-3)
    objective = Objective(mixture.answering(kind=facts.kind), facts, "em")

    def epoch() -> None:
        posteriors = torch.zeros(len(mixture.prompts))
        for batch in torch.randperm(len(facts)).split(batch_facts):
            optimizer.zero_grad()
            for chunk in batch.split(objective.facts_at_once):
                loss = objective.loss(chunk)
                (loss.to_minimise / len(batch)).backward()
                posteriors += loss.posteriors
            optimizer.step()
        mixture.weight_logits.data.copy_((posteriors / len(facts)).log())

    return epoch


def plain_epoch(mixture: Mixture, facts: EncodedFacts, *, freeze_table: bool = True) -> Epoch:
    """Return an epoch of the plain loop, in which the LM's weights are not frozen.

    Its word vectors are, by default: the loop looks tokens up one by one, and with a gradient each look-up fills a
    table of its own, which multiplies the time. Scripts that look up whole sentences do not pay for that.
    """
    table = mixture.lm.model.get_input_embeddings()
    frozen = set(table.parameters()) if freeze_table else set()
    return _epoch_of(plain_loop, mixture, facts, [p for p in mixture.lm.model.parameters() if p not in frozen])


def good_epoch(mixture: Mixture, facts: EncodedFacts) -> Epoch:
    """Return an epoch of the good plain loop."""
    return _epoch_of(good_plain_loop, mixture, facts, [])


def our_evaluation(mixture: Mixture, facts: EncodedFacts) -> Callable[[], Tensor]:
    """Return a call that computes log p(· | x, r) of all facts."""
    return lambda: OneTokenAnswers(mixture).log_probs(facts.xs, torch.arange(len(facts)))


def plain_evaluation(mixture: Mixture, facts: EncodedFacts) -> Callable[[], Tensor]:
    """Return a call that computes the same by the plain loop."""
    plain, as_lists = plain_mixture(mixture), plain_facts(facts)
    return lambda: plain_loop.evaluate(mixture.lm.model, plain, as_lists)


def _epoch_of(loop: object, mixture: Mixture, facts: EncodedFacts, not_frozen: Sequence[torch.nn.Parameter]) -> Epoch:
    plain, as_lists = plain_mixture(mixture), plain_facts(facts)
    optimizer = torch.optim.Adam(plain_loop.tuned_parameters(plain), lr=1e-3)
    generator = torch.Generator().manual_seed(0)
    model = mixture.lm.model

    def epoch() -> None:
        for parameter in not_frozen:
            parameter.requires_grad_(True)
        try:
            loop.train_epoch(model, plain, as_lists, optimizer, generator)  # ty: ignore[unresolved-attribute]
        finally:
            model.requires_grad_(False)
            for parameter in model.parameters():
                parameter.grad = None

    return epoch
