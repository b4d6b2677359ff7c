"""What a causal LM's sentences begin with, and what comes before them: chosen once for an LM, by how probable hard
prompts find train facts.

A causal LM's first position draws much of its attention and is represented unlike any other, so the same prompt can be
several times as good after a line break as after nothing, and better still after a few words that say what is to come,
or after a few facts that show it.
The choices are kept in the cache folder under the LM's hash.
"""

from collections.abc import Sequence
from contextlib import suppress
from itertools import islice
from math import log
from pathlib import Path
from statistics import fmean
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
from askwell.prompts.examples import Shown, draw_examples, with_examples, writable_facts
from askwell.prompts.pairs import PairReader, Tuned
from askwell.prompts.prompt import Prompt, initial_vectors, usable_prompts
from askwell.specs.mixture_spec import A_FACT, AUTO_LEAD_IN, NO_LEAD_IN, Begin, MixtureSpec

Example = tuple[Relation, Sequence[Template]]
"""A relation and prompts for it."""
# Few enough to take seconds: a relation's scores of two beginnings are further apart than other facts would move them.
_RELATIONS, _FACTS, _PROMPTS = 4, 64, 4
_LONGEST_ANSWER = 10
LEAD_INS = (NO_LEAD_IN, "Fact :", "From the encyclopedia :", "The following statement is true :", A_FACT)
"""The texts among which a lead-in is chosen."""
SHOTS = 4
"""The number of examples that can be chosen instead: more make little difference by hand, and cost more in training."""
_FACTS_FOR_EXAMPLES = 5 * SHOTS
"""A relation with fewer x's in train keeps them all to learn from."""
_FACTS_TO_DRAW_FROM = 1000


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


class OpeningChoice(BaseModel):
    """How probable train facts are after each text that can precede an LM's sentences."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    format: Literal["askwell-opening"] = "askwell-opening"
    lm: str
    begin: Begin
    lead_ins: dict[str, float]
    """Mean log p(y | x, t) of train facts under their untuned prompts, after each text."""
    shots: int = SHOTS
    examples: float | None
    """The same after this many examples; None if these are too many for the facts or for the LM's maximum input
    length."""
    least: float
    """Half the log-probability of guessing among the LM's tokens: what precedes a sentence must make the facts more
    probable than this. To an LM that was trained on little text it is noise, which tuning then has to overcome."""
    relations: tuple[str, ...]
    pairs: int
    """The number of (fact, prompt) pairs behind each figure, without pairs whose prompt shows their x as an example."""

    def best(self, *, allow_examples: bool) -> tuple[str, int]:
        """The lead-in or the number of examples after which the facts are most probable; at most one of the two is
        used."""
        lead_in = max(self.lead_ins, key=self.lead_ins.__getitem__)
        if allow_examples and self.examples is not None and self.examples > max(self.lead_ins[lead_in], self.least):
            return NO_LEAD_IN, self.shots
        return (lead_in if self.lead_ins[lead_in] > self.least else NO_LEAD_IN), 0


def resolve_begin(
    spec: MixtureSpec, lm: FrozenLM, examples: Sequence[Example] = (), *, anew: bool = False
) -> MixtureSpec:
    """The spec with "auto" replaced by what the LM's sentences begin with and what precedes them: the choice made
    earlier for this LM, otherwise what fits the examples best, otherwise a line break with nothing before it. Explicit
    choices are kept; a beginning that the LM does not have is refused. With `anew`, earlier choices are ignored, so
    that the choice is the same wherever it is made."""
    return _with_opening(_with_begin(spec, lm, examples, anew=anew), lm, examples, anew=anew)


def _with_opening(spec: MixtureSpec, lm: FrozenLM, examples: Sequence[Example], *, anew: bool) -> MixtureSpec:
    """A lead-in is chosen only if none is given, and only if the LM will read the words that were scored."""
    named = spec.lead_in != AUTO_LEAD_IN or bool(spec.shots) or bool(spec.prefix) or spec.initial != "words"
    if named or len(lm.beginnings) == 1 or spec.begin == "auto":
        return spec.with_named_opening
    allow_examples = spec.shots is None and spec.combine == "mixture" and _have_examples(examples)
    choice = None if anew else known_opening(lm, spec.begin)
    if choice is None or (allow_examples and choice.examples is None):
        found = choose_opening(lm, examples, spec.begin)
        if found is not None:
            choice = found
            _keep(_opening_place(lm, spec.begin), choice)
    if choice is None:
        return spec.with_named_opening
    lead_in, shots = choice.best(allow_examples=allow_examples)
    return spec.model_copy(update={"lead_in": lead_in, "shots": shots})


def _have_examples(examples: Sequence[Example]) -> bool:
    """Whether there are relations, and each has facts to spare; all relations of a table get the same opening."""
    return bool(examples) and all(
        len({fact.x for fact in relation.train}) >= _FACTS_FOR_EXAMPLES for relation, _ in examples
    )


def known_opening(lm: FrozenLM, begin: Begin) -> OpeningChoice | None:
    """The choice that was made for this LM and beginning before, None if there is none that can be read."""
    try:
        return OpeningChoice.model_validate_json(_opening_place(lm, begin).read_bytes())
    except (OSError, ValidationError):
        return None


@torch.no_grad()
def choose_opening(lm: FrozenLM, examples: Sequence[Example], begin: Begin) -> OpeningChoice | None:
    """How probable a few train facts of the first relations are after each lead-in and after examples; None if no fact
    can be asked."""
    room = max(len(lm.wording.encode(text, Place.SPACED)) for text in LEAD_INS)
    usable = list(islice((found for example in examples if (found := _askable(lm, *example, room=room))), _RELATIONS))
    if not usable:
        return None
    beginning, by_name = lm.beginning(begin), {relation.name: relation for relation, _ in examples}
    shown = [_examples_for(lm, by_name[name], templates) for name, templates, _ in usable]
    # A prompt that shows an x is not asked about it; all openings are compared on the same pairs.
    pairs = [
        torch.tensor([[fact.x not in {one.x for one in own} for own in of_prompts] for fact in facts]).flatten()
        for of_prompts, (_, _, facts) in zip(shown, usable, strict=True)
    ]

    def mean(lead_in: str, *, with_examples: bool = False) -> float:
        each = [
            _log_probabilities(lm, beginning, templates, facts, lead_in, of_prompts if with_examples else ())[asked]
            for of_prompts, asked, (_, templates, facts) in zip(shown, pairs, usable, strict=True)
        ]
        return float(torch.cat(each).mean())

    tokens = [len(lm.wording.encode(fact.y, Place.SPACED)) for _, _, facts in usable for fact in facts]
    fits = all(
        all(of_prompts) and _fit(lm, _opened(lm, beginning, templates, NO_LEAD_IN, of_prompts), facts)
        for of_prompts, (_, templates, facts) in zip(shown, usable, strict=True)
    )
    return OpeningChoice(
        lm=lm.identity.name,
        begin=begin,
        lead_ins={text: mean(text) for text in LEAD_INS},
        examples=mean(NO_LEAD_IN, with_examples=True) if fits else None,
        least=-0.5 * log(lm.word_count) * fmean(tokens),
        relations=tuple(name for name, _, _ in usable),
        pairs=sum(int(asked.sum()) for asked in pairs),
    )


def _examples_for(lm: FrozenLM, relation: Relation, templates: Sequence[Template]) -> list[Shown]:
    """Examples for each prompt, none where the relation has too few facts for them."""
    if not _have_examples([(relation, templates)]):
        return [()] * len(templates)
    facts = writable_facts(lm, MixtureSpec(), relation.train[:_FACTS_TO_DRAW_FROM])
    return [draw_examples(facts, SHOTS, 0, number) for number in range(len(templates))]


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
    """A few prompts and train facts, evenly spaced, that the LM can be asked about with every beginning, with room for
    this many more tokens."""
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


def _opened(
    lm: FrozenLM, beginning: Beginning, templates: Sequence[Template], lead_in: str, shown: Sequence[Shown]
) -> list[Prompt]:
    """The templates' prompts after a lead-in, or each after its examples."""
    prompts, _ = usable_prompts(lm, templates, beginning)
    spec = MixtureSpec(lead_in=lead_in)
    own = shown or [()] * len(prompts)
    return [with_examples(lm, prompt, spec, examples) for prompt, examples in zip(prompts, own, strict=True)]


def _fit(lm: FrozenLM, prompts: Sequence[Prompt], facts: Sequence[Fact]) -> bool:
    """Whether all facts can be asked with all prompts within the LM's longest input."""
    if lm.context is None:
        return True
    texts = [fact.x for fact in facts], [fact.y for fact in facts]
    xs, ys = (SpeltTexts(some, lm.wording).lengths_alone(lm.device) for some in texts)
    longest = PairReader(lm, prompts, reads_x=False).longest_question(xs) + ys.lengths.amax(0)
    return bool((longest <= lm.context).all())


def _log_probabilities(
    lm: FrozenLM,
    beginning: Beginning,
    templates: Sequence[Template],
    facts: Sequence[Fact],
    lead_in: str = NO_LEAD_IN,
    shown: Sequence[Shown] = (),
) -> Float[Tensor, " pairs"]:
    """log p(y | x, t) of each pair: of all of y's tokens, but not of what ends the answer, since how a template
    continues after y says nothing about whether y is known."""
    prompts = _opened(lm, beginning, templates, lead_in, shown)
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


def _opening_place(lm: FrozenLM, begin: Begin) -> Path:
    return cache_folder() / "opening" / f"{lm.identity.digest}-{begin}.json"


def _keep(path: Path, choice: BeginChoice | OpeningChoice) -> None:
    with suppress(CannotWrite):  # without it the choice is made again next time
        write_whole(path, choice.model_dump_json(indent=1) + "\n")
