"""The prompts of a mixture: the templates that the LM can use, in its tokens, those left out, and initial vectors."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from askwell.data.templates import Template
from askwell.errors import NothingLeft
from askwell.lms.families import Question, Unusable
from askwell.lms.frozen import FrozenLM
from askwell.lms.tokenisation import NO_OPENING, WITH_A_SPACE, Beginning, Opening, PromptTokens, tokenise
from askwell.specs.mixture_spec import Initial


@dataclass(frozen=True)
class Prompt:
    """A template that the LM can be asked with."""

    template: Template
    tokens: PromptTokens
    question: Question
    token_ids: tuple[int, ...]
    """The prompt tokens that the LM reads, in the order in which `Token.prompt_token` counts them."""


@dataclass(frozen=True)
class LeftOutPrompt:
    """A template that is not used, and why."""

    template: Template
    reason: str


def usable_prompts(
    lm: FrozenLM, templates: Iterable[Template], beginning: Beginning = WITH_A_SPACE
) -> tuple[list[Prompt], list[LeftOutPrompt]]:
    """Return the prompts that the LM can use, and those that it cannot use or that read the same as an earlier one."""
    prompts: list[Prompt] = []
    left_out: list[LeftOutPrompt] = []
    for template in templates:
        tokens = tokenise(template, lm.wording, beginning)
        try:
            question = lm.family.ask_y(tokens, lm.wording, lm.special)
        except Unusable as unusable:
            left_out.append(LeftOutPrompt(template, str(unusable)))
            continue
        prompt = Prompt(template, tokens, question, _token_ids(tokens, question))
        twin = _cut_twin(prompt, prompts)
        if twin is None:
            prompts.append(prompt)
        else:
            first = prompts[twin]
            prompts[twin] = replace(first, template=_with_added_weight(first.template, template))
            left_out.append(LeftOutPrompt(template, f"merged: up to y it is the same as {first.template.text!r}"))
    if not prompts:
        reasons: dict[str, int] = {}
        for prompt in left_out:
            reasons[prompt.reason] = reasons.get(prompt.reason, 0) + 1
        raise NothingLeft("prompts", reasons)
    return prompts, left_out


def with_opening(lm: FrozenLM, prompt: Prompt, opening: Opening) -> Prompt:
    """Return the prompt with an opening before its sentence."""
    if opening == NO_OPENING:
        return prompt
    tokens = tokenise(prompt.template, lm.wording, prompt.tokens.beginning, opening)
    question = lm.family.ask_y(tokens, lm.wording, lm.special)
    return Prompt(prompt.template, tokens, question, _token_ids(tokens, question))


def _token_ids(tokens: PromptTokens, question: Question) -> tuple[int, ...]:
    """Return all prompt tokens; those that a cut has removed from every stream have no vector and are not counted."""
    written = (*tokens.before, *tokens.between, *tokens.after)
    read = [
        token.prompt_token
        for stream in question.streams.values()
        for token in (*stream.left, *stream.right)
        if token.prompt_token >= 0
    ]
    return written[: max(read, default=-1) + 1]  # a cut removes tokens from the end


def _cut_twin(prompt: Prompt, earlier: Sequence[Prompt]) -> int | None:
    """Return the earlier prompt with another text that reads the same after the cut, if there is one."""
    for number, other in enumerate(earlier):
        same_question = other.question == prompt.question
        same_forms = other.tokens.x_place == prompt.tokens.x_place and other.tokens.y_place == prompt.tokens.y_place
        if same_question and same_forms and other.tokens != prompt.tokens:
            return number
    return None


def _with_added_weight(template: Template, other: Template) -> Template:
    if template.weight is None or other.weight is None:
        return template
    return replace(template, weight=template.weight + other.weight)


def initial_vectors(
    lm: FrozenLM, prompts: Sequence[Prompt], *, initial: Initial, noise: float, seed: int, random_prefix: int = 0
) -> Float[Tensor, "prompt_tokens embedding"]:
    """Return the initial vectors of all prompt tokens.

    "words" takes the word embeddings of the hard prompts; "random" draws each from a Gaussian fitted to the LM's word
    embeddings, dimension by dimension, and "random-full" from one with a full covariance. `noise` then moves every
    vector by that many standard deviations of the word embeddings. The first `random_prefix` tokens of each prompt are
    drawn at random in any case.
    """
    generator = torch.Generator().manual_seed(seed)
    ids = torch.tensor([id_ for prompt in prompts for id_ in prompt.token_ids], dtype=torch.long)
    words = lm.word_vectors(ids.to(lm.device)).cpu().double()
    if initial == "words" and noise == 0 and not random_prefix:
        return words.to(lm.parameter_dtype).to(lm.device)
    mean, deviation, factor = _fit(lm, full=initial == "random-full")
    shape = words.shape
    if initial == "words":
        vectors = words
    elif initial == "random":
        vectors = mean + deviation * torch.randn(shape, generator=generator, dtype=torch.float64)
    else:
        vectors = mean + torch.randn(shape, generator=generator, dtype=torch.float64) @ factor.T
    if random_prefix and initial == "words":
        in_prefix = torch.cat([torch.arange(len(prompt.token_ids)) < random_prefix for prompt in prompts])
        drawn = mean + deviation * torch.randn(shape, generator=generator, dtype=torch.float64)
        vectors = torch.where(in_prefix[:, None], drawn, vectors)
    if noise:
        vectors = vectors + noise * deviation * torch.randn(shape, generator=generator, dtype=torch.float64)
    return vectors.to(lm.parameter_dtype).to(lm.device)


def _fit(lm: FrozenLM, *, full: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Return the mean and standard deviation of the word embeddings in each dimension, and a factor of their
    covariance."""
    everything = lm.word_vectors(torch.arange(lm.word_count, device=lm.device)).cpu().double()
    mean, deviation = everything.mean(0), everything.std(0)
    if not full:
        return mean, deviation, torch.empty(0)
    # The covariance may be singular (fewer words than dimensions), where a Cholesky factor does not exist.
    values, directions = torch.linalg.eigh(torch.cov(everything.T))
    return mean, deviation, directions * values.clamp(min=0).sqrt()
