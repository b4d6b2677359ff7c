"""What stands behind an answer: the weight of each prompt for an x, and what the prompt would answer alone."""

from dataclasses import dataclass

import torch

from askwell.errors import UserMistake
from askwell.lms.batches import words_of
from askwell.mixture.ask import ask
from askwell.mixture.ask_together import over_answers
from askwell.mixture.encode import default_kind, why_unaskable
from askwell.mixture.mixture import Mixture


@dataclass(frozen=True)
class PromptBehind:
    """A prompt of a mixture, asked about one x."""

    number: int
    """Its place in a reply's `by_prompt`."""
    template: str
    weight: float
    """p(t | r, x); in a product, its exponent."""
    y: str
    """What it would answer alone."""
    probability: float


@torch.no_grad()
def prompts_behind(mixture: Mixture, x: str) -> list[PromptBehind]:
    """Each prompt with its weight for x and its own best answer, heaviest first.

    Where answers are searched (of any length, or labels), a prompt's own is that of the mixture's best ten which it
    finds most probable.
    """
    kind = default_kind(mixture)
    if (reason := why_unaskable(mixture, [x], kind)[0]) is not None:
        raise UserMistake(f"{x[:60]!r} cannot be asked: {reason}")
    words = words_of([x], mixture.lm.wording, mixture.lm.device)
    only = torch.zeros(1, dtype=torch.long, device=mixture.lm.device)
    of_mixture = mixture.spec.combine == "mixture"
    weights = mixture.log_weights_for(words, only)[0].exp() if of_mixture else mixture.weights
    own: list[tuple[str, float]] = []
    if kind.any_length or mixture.candidates is not None:
        found = next(ask(mixture, [x]))
        for prompt in range(len(mixture.prompts)):
            best = max(found, key=lambda reply, at=prompt: reply.by_prompt[at])
            own.append((best.y, best.by_prompt[prompt]))
    else:
        every = torch.arange(len(mixture.prompts), device=mixture.lm.device)
        log_probs = mixture.pairs.pair_log_probs(mixture.tuned, words, torch.zeros_like(every), every)
        log_probability, answer = over_answers(mixture, log_probs[None])[0].max(1)
        own = [
            (mixture.answer_space.word(number), probability)
            for number, probability in zip(answer.tolist(), log_probability.exp().tolist(), strict=True)
        ]
    behind = [
        PromptBehind(number, prompt.template.text, weight, y, probability)
        for number, (prompt, weight, (y, probability)) in enumerate(
            zip(mixture.prompts, weights.tolist(), own, strict=True)
        )
    ]
    return sorted(behind, key=lambda one: -one.weight)
