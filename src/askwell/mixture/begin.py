"""What a causal LM's sentences begin with, and what leads them in: chosen once for an LM, by how probable hard prompts
find train facts.

A causal LM's first position draws much of its attention and is represented unlike any other, so the same prompt can be
several times as good after a line break as after nothing, and better still after a few words that say what is to come.
The choices are kept in the cache folder under the LM's hash.
"""

from collections.abc import Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Literal

import torch
from jaxtyping import Float
from pydantic import BaseModel, ConfigDict, ValidationError
from torch import Tensor

from askwell.data.facts import Fact, Relation
from askwell.data.templates import Template
from askwell.errors import CannotWrite, NothingLeft
from askwell.files import cache_folder, write_whole
from askwell.lms.batches import AnswerTokens, SpeltTexts, words_of
from askwell.lms.frozen import FrozenLM
from askwell.lms.tokenisation import Beginning, Place
from askwell.mixture.openings import opening_of
from askwell.mixture.pairs import PairReader, Tuned
from askwell.mixture.prompts import initial_vectors, usable_prompts, with_opening
from askwell.specs.mixture import A_FACT, AUTO_LEAD_IN, NO_LEAD_IN, Begin, MixtureSpec

Example = tuple[Relation, Sequence[Template]]
"""A relation and prompts for it."""
# Few enough to take seconds: a relation's scores of two beginnings are further apart than other facts would move them.
_RELATIONS, _FACTS, _PROMPTS = 4, 64, 4
_LONGEST_ANSWER = 10
LEAD_INS = (NO_LEAD_IN, "Fact :", "From the encyclopedia :", "The following statement is true :", A_FACT)
"""The texts among which a lead-in is chosen."""


class BeginChoice(BaseModel):
    """What an LM's sentences begin with, and why."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    format: Literal["askwell-begin"] = "askwell-begin"
    lm: str
    begin: Begin
    log_probabilities: dict[Begin, float]
    """Mean log p(y | x, t) of train facts under the words of their prompts."""
    relations: tuple[str, ...]
    pairs: int
    """The number of (fact, prompt) pairs under each beginning."""


class LeadInChoice(BaseModel):
    """What leads in an LM's sentences, and why."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    format: Literal["askwell-lead-in"] = "askwell-lead-in"
    lm: str
    begin: Begin
    lead_in: str
    log_probabilities: dict[str, float]
    """Mean log p(y | x, t) of train facts under the words of their prompts, behind each text."""
    relations: tuple[str, ...]
    pairs: int
    """The number of (fact, prompt) pairs behind each text."""


def resolve_begin(
    spec: MixtureSpec, lm: FrozenLM, examples: Sequence[Example] = (), *, anew: bool = False
) -> MixtureSpec:
    """The spec with "auto" replaced by the LM's beginning and lead-in: those that are known, else those that fit the
    examples best, else a line break and no lead-in. What is named is kept; a beginning that the LM does not have is
    refused.

    With `anew`, nothing but the examples decides, so that the choice is the same wherever it is made.
    """
    return _with_lead_in(_with_begin(spec, lm, examples, anew=anew), lm, examples, anew=anew)


def _with_lead_in(spec: MixtureSpec, lm: FrozenLM, examples: Sequence[Example], *, anew: bool) -> MixtureSpec:
    if spec.lead_in != AUTO_LEAD_IN:
        return spec
    choice = None
    if len(lm.beginnings) > 1 and spec.begin != "auto":
        choice = None if anew else known_lead_in(lm, spec.begin)
        if choice is None and (choice := choose_lead_in(lm, examples, spec.begin)) is not None:
            _keep(_lead_in_place(lm, spec.begin), choice)
    return spec.model_copy(update={"lead_in": NO_LEAD_IN if choice is None else choice.lead_in})


def known_lead_in(lm: FrozenLM, begin: Begin) -> LeadInChoice | None:
    """The choice that was made for this LM and beginning before, None if there is none that can be read."""
    try:
        return LeadInChoice.model_validate_json(_lead_in_place(lm, begin).read_bytes())
    except (OSError, ValidationError):
        return None


@torch.no_grad()
def choose_lead_in(lm: FrozenLM, examples: Sequence[Example], begin: Begin) -> LeadInChoice | None:
    """The lead-in behind which the prompts' words give the ys of train facts the highest mean log-probability, from a
    few facts of the first relations; None if no fact can be asked."""
    room = max(len(lm.wording.encode(text, Place.SPACED)) for text in LEAD_INS)
    usable = list(islice((found for example in examples if (found := _askable(lm, *example, room=room))), _RELATIONS))
    if not usable:
        return None
    beginning, scores = lm.beginning(begin), {}
    for text in LEAD_INS:
        totals = [_log_probabilities(lm, beginning, templates, facts, text) for _, templates, facts in usable]
        scores[text] = float(torch.cat(totals).mean())
    return LeadInChoice(
        lm=lm.identity.name,
        begin=begin,
        lead_in=max(scores, key=scores.__getitem__),
        log_probabilities=scores,
        relations=tuple(name for name, _, _ in usable),
        pairs=sum(len(templates) * len(facts) for _, templates, facts in usable),
    )


def _with_begin(spec: MixtureSpec, lm: FrozenLM, examples: Sequence[Example], *, anew: bool) -> MixtureSpec:
    if spec.begin != "auto":
        lm.beginning(spec.begin)
        return spec
    choice = None
    if len(_distinct(lm)) > 1:
        choice = None if anew else known_choice(lm)
        if choice is None and (choice := choose_begin(lm, examples)) is not None:
            _keep(_place(lm), choice)
    begin = next(iter(lm.beginnings)) if choice is None else choice.begin
    return spec.model_copy(update={"begin": begin})


def known_choice(lm: FrozenLM) -> BeginChoice | None:
    """The choice that was made for this LM before, None if there is none that can be read."""
    try:
        choice = BeginChoice.model_validate_json(_place(lm).read_bytes())
    except (OSError, ValidationError):
        return None
    return choice if choice.begin in lm.beginnings else None


@torch.no_grad()
def choose_begin(lm: FrozenLM, examples: Sequence[Example]) -> BeginChoice | None:
    """The beginning under which the prompts' words give the ys of train facts the highest mean log-probability, from a
    few facts of the first relations; None if no fact can be asked."""
    usable = list(islice((found for example in examples if (found := _askable(lm, *example))), _RELATIONS))
    if not usable:
        return None
    scores: dict[Begin, float] = {}
    for name, beginning in _distinct(lm).items():
        totals = [_log_probabilities(lm, beginning, templates, facts) for _, templates, facts in usable]
        scores[name] = float(torch.cat(totals).mean())
    return BeginChoice(
        lm=lm.identity.name,
        begin=max(scores, key=scores.__getitem__),
        log_probabilities=scores,
        relations=tuple(name for name, _, _ in usable),
        pairs=sum(len(templates) * len(facts) for _, templates, facts in usable),
    )


def _distinct(lm: FrozenLM) -> dict[Begin, Beginning]:
    """The LM's beginnings; of those that come to the same tokens only the last, which has the plainest name."""
    names = {beginning: name for name, beginning in lm.beginnings.items()}
    return {name: beginning for beginning, name in names.items()}


def _askable(
    lm: FrozenLM, relation: Relation, templates: Sequence[Template], *, room: int = 0
) -> tuple[str, list[Template], list[Fact]] | None:
    """A few of the prompts and train facts, spread evenly, that the LM can be asked under every beginning, with room
    for so many tokens more."""
    try:
        prompts = usable_prompts(lm, templates)[0][:_PROMPTS]
    except NothingLeft:
        return None
    if not relation.train:
        return None
    texts = [fact.x for fact in relation.train], [fact.y for fact in relation.train]
    xs, ys = (SpeltTexts(some, lm.wording).lengths_alone(lm.device) for some in texts)
    fits = (xs.lengths > 0).all(0) & (ys.lengths > 0).all(0) & (ys.lengths <= _LONGEST_ANSWER).all(0)
    if lm.context is not None:
        for beginning in _distinct(lm).values():
            reader = PairReader(lm, usable_prompts(lm, templates, beginning)[0], reads_x=False)
            fits &= reader.longest_question(xs) + ys.lengths.amax(0) + room <= lm.context
    numbers = fits.nonzero()[:, 0]
    if not len(numbers):
        return None
    chosen = numbers[torch.linspace(0, len(numbers) - 1, min(_FACTS, len(numbers))).round().long().to(lm.device)]
    return relation.name, [prompt.template for prompt in prompts], [relation.train[n] for n in chosen.tolist()]


def _log_probabilities(
    lm: FrozenLM,
    beginning: Beginning,
    templates: Sequence[Template],
    facts: Sequence[Fact],
    lead_in: str = NO_LEAD_IN,
) -> Float[Tensor, " pairs"]:
    """log p(y | x, t) of each pair: of all of y's tokens, but not of what ends the answer, since how a template goes on
    after y says nothing of whether y is known."""
    prompts, _ = usable_prompts(lm, templates, beginning)
    spec = MixtureSpec(lead_in=lead_in)
    prompts = [with_opening(lm, prompt, opening_of(lm, spec, prompt.template, beginning)) for prompt in prompts]
    reader = PairReader(lm, prompts, reads_x=False)
    table = reader.table_of([lm.family.ask_answer(prompt.tokens, lm.wording, lm.special) for prompt in prompts])
    vectors = initial_vectors(lm, prompts, initial="words", noise=0.0, seed=0)
    tuned = Tuned(vectors, None, torch.arange(len(prompts), device=lm.device))
    xs = words_of([fact.x for fact in facts], lm.wording, lm.device)
    ys = words_of([fact.y for fact in facts], lm.wording, lm.device)
    numbers = torch.arange(len(facts) * len(prompts), device=lm.device)
    texts, asked = numbers // len(prompts), numbers % len(prompts)
    places = reader.y_places[asked]
    ids, lengths = ys.ids[places, texts], ys.lengths[places, texts]
    total = torch.zeros(len(texts), dtype=lm.parameter_dtype, device=lm.device)
    answers = AnswerTokens(ids, lengths, torch.zeros_like(lengths), lengths)
    for chosen, batch in reader.sentences(tuned, table, xs, texts, asked, answers):
        targets = ids[chosen][torch.arange(ids.shape[1], device=lm.device) < lengths[chosen, None]]
        of_token = reader.log_probs_of(tuned, batch, asked[chosen], targets)
        total.index_add_(0, chosen[batch.read_pairs], of_token)
    return total


def _place(lm: FrozenLM) -> Path:
    return cache_folder() / "begin" / f"{lm.identity.digest}.json"


def _lead_in_place(lm: FrozenLM, begin: Begin) -> Path:
    return cache_folder() / "lead-in" / f"{lm.identity.digest}-{begin}.json"


def _keep(path: Path, choice: BeginChoice | LeadInChoice) -> None:
    with suppress(CannotWrite):  # without it the choice is made again next time
        write_whole(path, choice.model_dump_json(indent=1) + "\n")
