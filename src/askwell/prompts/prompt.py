"""Prompts in an LM's tokens: the templates that it can use, what stands before their sentences, and initial vectors."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import cycle, islice

import torch
from jaxtyping import Float
from torch import Tensor

from askwell.data.facts import Fact
from askwell.data.templates import Template, parse_template
from askwell.errors import BadOption, NothingLeft
from askwell.lms.families import Question, Unusable
from askwell.lms.frozen import FrozenLM
from askwell.lms.tokenisation import NO_OPENING, WITH_A_SPACE, Beginning, Opening, Place, PromptTokens, tokenise
from askwell.specs.mixture_spec import A_FACT, NO_LEAD_IN, Initial, MixtureSpec, SettledMixtureSpec

RANDOM, LABEL = "random", "label"
"""What free vectors can start from besides words."""


@dataclass(frozen=True)
class Prompt:
    """A template that the LM can be asked with."""

    template: Template
    tokens: PromptTokens
    question: Question
    token_ids: tuple[int, ...]
    """The prompt tokens that the LM reads, in the order in which `Token.prompt_token` counts them."""

    @property
    def shared_tokens(self) -> int:
        """How many of them, the first ones, are a shared opening's."""
        return self.tokens.opening if self.tokens.is_opening_shared else 0


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
        twin = next((number for number, earlier in enumerate(prompts) if _read_alike(earlier, prompt)), None)
        if twin is None:
            prompts.append(prompt)
            continue
        first = prompts[twin].template
        if first.weight is not None and template.weight is not None:
            prompts[twin] = replace(prompts[twin], template=replace(first, weight=first.weight + template.weight))
        left_out.append(LeftOutPrompt(template, f"merged: up to y it is the same as {first.text!r}"))
    if not prompts:
        raise NothingLeft("prompts", Counter(prompt.reason for prompt in left_out))
    return prompts, left_out


def with_context(lm: FrozenLM, prompt: Prompt, spec: MixtureSpec, examples: Sequence[Fact]) -> Prompt:
    """Return the prompt with everything that stands before its sentence."""
    opening = _opening_of(lm, spec, prompt.template, prompt.tokens.beginning, examples)
    if opening == NO_OPENING:
        return prompt
    tokens = tokenise(prompt.template, lm.wording, prompt.tokens.beginning, opening)
    question = lm.family.ask_y(tokens, lm.wording, lm.special)
    return Prompt(prompt.template, tokens, question, _token_ids(tokens, question))


def _opening_of(
    lm: FrozenLM, spec: MixtureSpec, template: Template, beginning: Beginning, examples: Sequence[Fact] = ()
) -> Opening:
    """Return what stands before the sentence of a template: free vectors, the lead-in, and examples in the template's
    words, or in those of a shared opening, each followed by its separator."""
    is_shared = spec.opening == "shared"
    lead_in = "" if spec.lead_in == NO_LEAD_IN else _up_to_sentence(lm, spec.lead_in)
    prefix = _prefix_tokens(lm, spec, beginning)
    if not examples:
        return Opening(prefix, (), lead_in, is_shared=is_shared) if prefix or lead_in else NO_OPENING
    closing = _up_to_sentence(lm, template.after + spec.shot_separator, is_whole=True).rstrip(" ")
    if isinstance(spec, SettledMixtureSpec) and spec.opening_template is not None:
        template = parse_template(spec.opening_template)
    after = _up_to_sentence(lm, template.after + spec.shot_separator, is_whole=True)
    filled: list[tuple[str, str]] = []
    for fact in examples:
        fillers = {"[X]": fact.x, "[Y]": fact.y}
        text = after if filled else lead_in
        filled += [(text + template.before, fillers[template.first]), (template.between, fillers[template.second])]
    return Opening(prefix, tuple(filled), after, closing, is_shared)


def _prefix_tokens(lm: FrozenLM, spec: MixtureSpec, beginning: Beginning) -> tuple[int, ...]:
    """Return the tokens in whose places free vectors go; those that start at random are only marked by them."""
    if not spec.prefix:
        return ()
    if spec.prefix_words == LABEL:
        raise BadOption(
            f"`prefix_words` {LABEL}: the relation is not known here; write its label out",
            prefix_words="--prefix-words",
        )
    words = A_FACT if spec.prefix_words == RANDOM else spec.prefix_words
    tokens = lm.wording.encode(words, beginning.place)
    if not tokens or lm.wording.unknown_id in tokens:
        raise BadOption(
            f"`prefix_words` {words!r}: {lm.identity.name} has no tokens for it; choose other words",
            prefix_words="--prefix-words",
        )
    return tuple(islice(cycle(tokens), spec.prefix))


def _up_to_sentence(lm: FrozenLM, text: str, *, is_whole: bool = False) -> str:
    """Return a text with the space or line break that separates it from the following sentence, unless it is whole and
    has its own."""
    if lm.wording.line_break is None:
        text = text.replace("\n", " ")
    if not text[-1:].isspace():
        return text if is_whole else f"{text} "
    # What begins a line stands as at the start of a text, if the LM has a choice of beginnings.
    begun = lm.beginnings.get("line-break", next(iter(lm.beginnings.values())))
    return f"{text} " if text.endswith("\n") and begun.place is Place.SPACED else text


def with_label(spec: MixtureSpec, label: str) -> MixtureSpec:
    """Return the spec with the relation's label written out, if its free vectors start from that."""
    if not spec.prefix or spec.prefix_words != LABEL:
        return spec
    return spec.model_copy(update={"prefix_words": label})


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


def _read_alike(one: Prompt, other: Prompt) -> bool:
    """Tell whether two prompts of different texts read the same after the cut."""
    same_forms = one.tokens.x_place == other.tokens.x_place and one.tokens.y_place == other.tokens.y_place
    return one.question == other.question and same_forms and one.tokens != other.tokens


def token_rows(prompts: Sequence[Prompt], first: int = 0) -> list[range | tuple[int, ...]]:
    """Return for each prompt the rows of the tuned vectors, from a first one on, that its tokens have: those of a
    shared opening come first and once, then each prompt's own."""
    opening = next((prompt.shared_tokens for prompt in prompts), 0)
    found: list[range | tuple[int, ...]] = []
    next_row = first + opening
    for prompt in prompts:
        own = range(next_row, next_row + len(prompt.token_ids) - opening)
        found.append((*range(first, first + opening), *own) if opening else own)
        next_row = own.stop
    return found


def original_tokens(prompts: Sequence[Prompt]) -> list[int]:
    """Return the token whose place each row of the tuned vectors takes."""
    opening = next((prompt.token_ids[: prompt.shared_tokens] for prompt in prompts), ())
    return [*opening, *(token for prompt in prompts for token in prompt.token_ids[prompt.shared_tokens :])]


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
    ids = torch.tensor(original_tokens(prompts), dtype=torch.long)
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
        in_prefix = torch.zeros(len(ids), dtype=torch.bool)
        for rows in token_rows(prompts):
            in_prefix[list(rows[:random_prefix])] = True
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
