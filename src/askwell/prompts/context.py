"""What stands before a prompt's sentence: a beginning, free vectors, a lead-in, in-context examples.

All but the beginning are prompt tokens like any others, and tuned with them. What comes before x matters most to a
causal LM: its first position draws much of its attention and is represented unlike any other, so the same prompt can be
several times as good after a line break as after nothing, and better still after a few words that say what is to come,
or after a few facts that show it. So what a spec leaves open is chosen by how probable untuned prompts find the run's
own train facts. The choice takes seconds and is made anew for every run: it depends on nothing but the LM, the prompts
and the facts.
"""

import random
from collections.abc import Sequence
from itertools import cycle, islice
from math import log
from statistics import fmean

import torch
from jaxtyping import Float
from torch import Tensor

from askwell.data.facts import Fact, Relation
from askwell.data.templates import Template
from askwell.errors import BadOption, NothingLeft
from askwell.lms.batches import PLACES, AnswerTokens, TokenisedTexts, words_of
from askwell.lms.frozen import FrozenLM
from askwell.lms.tokenisation import NO_OPENING, Beginning, Opening, Place
from askwell.prompts.pairs import PairReader, Tuned
from askwell.prompts.prompt import Prompt, initial_vectors, usable_prompts, with_opening
from askwell.specs.mixture_spec import (
    A_FACT,
    AUTO_LEAD_IN,
    NO_LEAD_IN,
    Begin,
    ContextScores,
    MixtureSpec,
    SettledMixtureSpec,
)

Shown = tuple[Fact, ...]
"""The in-context examples of one prompt, in their order."""
RANDOM, LABEL = "random", "label"
"""What free vectors can start from besides words."""
# Few enough to take seconds in every run: on SmolLM2, four times as many pairs lead to the same choices.
_PAIRS, _PROMPTS = 64, 4
_LONGEST_ANSWER = 10
LEAD_INS = (NO_LEAD_IN, "Fact :", "From the encyclopedia :", "The following statement is true :", A_FACT)
"""The texts among which a lead-in is chosen."""
SHOTS = 4
"""The number of examples that can be chosen instead: more hardly help without tuning, and cost more in training."""
_FACTS_FOR_EXAMPLES = 5 * SHOTS
"""A relation with fewer x's in train keeps them all to learn from."""
_FACTS_TO_DRAW_FROM = 1000


def opening_of(
    lm: FrozenLM, spec: MixtureSpec, template: Template, beginning: Beginning, examples: Sequence[Fact] = ()
) -> Opening:
    """Return what stands before the sentence of a template: free vectors, the lead-in, and examples in the template's
    words, each followed by its separator."""
    lead_in = "" if spec.lead_in == NO_LEAD_IN else up_to_sentence(lm, spec.lead_in)
    prefix = prefix_tokens(lm, spec, beginning)
    if not examples:
        return Opening(prefix, (), lead_in) if prefix or lead_in else NO_OPENING
    after = up_to_sentence(lm, template.after + spec.shot_separator, is_whole=True)
    filled: list[tuple[str, str]] = []
    for fact in examples:
        fillers = {"[X]": fact.x, "[Y]": fact.y}
        text = after if filled else lead_in
        filled += [(text + template.before, fillers[template.first]), (template.between, fillers[template.second])]
    return Opening(prefix, tuple(filled), after, closing=after.rstrip(" "))


def prefix_tokens(lm: FrozenLM, spec: MixtureSpec, beginning: Beginning) -> tuple[int, ...]:
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


def up_to_sentence(lm: FrozenLM, text: str, *, is_whole: bool = False) -> str:
    """Return a text with the space or line break that separates it from the following sentence, unless it is whole and
    has its own."""
    if lm.wording.line_break is None:
        text = text.replace("\n", " ")
    if not text[-1:].isspace():
        return text if is_whole else f"{text} "
    if text.endswith("\n") and place_after_line_break(lm) is Place.SPACED:
        return f"{text} "
    return text


def place_after_line_break(lm: FrozenLM) -> Place:
    """Return the place of what begins a line: as at the start of a text, if the LM has a choice of beginnings."""
    beginnings = lm.beginnings
    return beginnings.get("line-break", next(iter(beginnings.values()))).place


def with_label(spec: MixtureSpec, label: str) -> MixtureSpec:
    """Return the spec with the relation's label written out, if its free vectors start from that."""
    if not spec.prefix or spec.prefix_words != LABEL:
        return spec
    return spec.model_copy(update={"prefix_words": label})


def writable_facts(lm: FrozenLM, spec: MixtureSpec, facts: Sequence[Fact]) -> list[Fact]:
    """Return the distinct facts that can be examples: x and y have tokens, and y has no more than answers may have."""
    longest = 1 if spec.answers == "one-token" else spec.longest_answer
    distinct = list(dict.fromkeys(facts))
    xs, ys = (
        TokenisedTexts([getattr(fact, side) for fact in distinct], lm.wording, {Place.SPACED}) for side in ("x", "y")
    )
    place = PLACES.index(Place.SPACED)
    can_be_written = (xs.lengths[place] > 0) & (ys.lengths[place] > 0) & (ys.lengths[place] <= longest)
    for texts in (xs, ys):
        can_be_written &= ~texts.holds(lm.wording.unknown_id, Place.SPACED)
    return [distinct[number] for number in can_be_written.nonzero()[0]]


def draw_examples(facts: Sequence[Fact], count: int, seed: int, prompt: int, draw: int = 0) -> Shown:
    """Draw this many of the facts, no two about the same x, for the prompt of that number."""
    order = random.Random(f"examples of askwell, {seed}, {prompt}, {draw}").sample(facts, len(facts))
    by_x: dict[str, Fact] = {}
    for fact in order:
        if len(by_x) == count:
            break
        by_x.setdefault(fact.x, fact)
    return tuple(by_x.values())


def with_context(lm: FrozenLM, prompt: Prompt, spec: MixtureSpec, examples: Sequence[Fact]) -> Prompt:
    """Return the prompt with everything that stands before its sentence."""
    return with_opening(lm, prompt, opening_of(lm, spec, prompt.template, prompt.tokens.beginning, examples))


def settle(
    spec: MixtureSpec, lm: FrozenLM, relation: Relation | None = None, templates: Sequence[Template] = ()
) -> SettledMixtureSpec:
    """Return the spec with a value for each "auto": what makes the relation's train facts most probable under the
    untuned prompts. Without facts or prompts to choose by, it is the LM's fixed default: a line break, where it has
    one, and nothing before the sentence. What the spec names stays; a beginning that the LM lacks is refused."""
    if isinstance(spec, SettledMixtureSpec):
        lm.beginning(spec.begin)
        return spec
    begin, begins = spec.begin, {}
    if begin == "auto":
        begins = {} if relation is None else begin_scores(lm, relation, templates)
        begin = max(begins, key=begins.__getitem__) if begins else next(iter(lm.beginnings))
    lm.beginning(begin)
    plain = spec.with_named_opening
    scores = ContextScores(begins=begins)
    # Something that is named stands alone, and random vectors are not the words that would be scored.
    is_open = spec.lead_in == AUTO_LEAD_IN and not spec.shots and not spec.prefix and spec.initial == "words"
    if is_open and relation is not None and len(lm.beginnings) > 1:
        allow_examples = spec.shots is None and spec.combine == "mixture"
        scores = opening_scores(lm, relation, templates, begin, allow_examples=allow_examples)
        scores = scores.model_copy(update={"begins": begins})
        lead_in, shots = best_opening(scores)
        plain = plain.model_copy(update={"lead_in": lead_in, "shots": shots})
    return SettledMixtureSpec.model_validate({**plain.model_dump(), "begin": begin, "context_scores": scores})


def best_opening(scores: ContextScores) -> tuple[str, int]:
    """Return the lead-in or the number of examples after which the facts are most probable; at most one of the two is
    used, and neither where none makes them probable enough."""
    ways = {(text, 0): score for text, score in scores.lead_ins.items()}
    ways |= {(NO_LEAD_IN, shots): score for shots, score in scores.shots.items()}
    best = max(ways, key=ways.__getitem__, default=None)
    is_enough = best is not None and scores.least is not None and ways[best] > scores.least
    return best if best is not None and is_enough else (NO_LEAD_IN, 0)


@torch.no_grad()
def begin_scores(lm: FrozenLM, relation: Relation, templates: Sequence[Template]) -> dict[Begin, float]:
    """Return the mean log-probability that the prompts' words give the ys of train facts under each of the LM's
    beginnings; empty if there is no choice, or no fact can be asked."""
    choices = _distinct(lm)
    askable = _askable(lm, relation, templates) if len(choices) > 1 else None
    if askable is None:
        return {}
    return {name: float(_log_probabilities(lm, beginning, *askable).mean()) for name, beginning in choices.items()}


@torch.no_grad()
def opening_scores(
    lm: FrozenLM, relation: Relation, templates: Sequence[Template], begin: Begin, *, allow_examples: bool
) -> ContextScores:
    """Return how probable a few train facts are after each lead-in and, if they may be used, after examples; empty if
    no fact can be asked."""
    askable = _askable(lm, relation, templates, room=max(len(_spaced(lm, text)) for text in LEAD_INS))
    if askable is None:
        return ContextScores()
    usable, facts = askable
    beginning = lm.beginning(begin)
    shown = _examples_for(lm, relation, len(usable)) if allow_examples else []
    # A prompt that shows an x is not asked about it; all openings are compared on the same pairs.
    examples_of = [{fact.x for fact in own} for own in shown] or [set[str]()] * len(usable)
    asked = torch.tensor([[fact.x not in own for own in examples_of] for fact in facts]).flatten()
    if not asked.any():
        return ContextScores()

    def mean(lead_in: str, examples: Sequence[Shown] = ()) -> float:
        return float(_log_probabilities(lm, beginning, usable, facts, lead_in, examples)[asked].mean())

    fits = all(shown) and bool(shown) and _fit(lm, _opened(lm, beginning, usable, NO_LEAD_IN, shown), facts)
    return ContextScores(
        lead_ins={text: mean(text) for text in LEAD_INS},
        shots={SHOTS: mean(NO_LEAD_IN, shown)} if fits else {},
        least=-0.5 * log(lm.word_count) * fmean(len(_spaced(lm, fact.y)) for fact in facts),
    )


def _spaced(lm: FrozenLM, text: str) -> list[int]:
    return lm.wording.encode(text, Place.SPACED)


def _examples_for(lm: FrozenLM, relation: Relation, prompts: int) -> list[Shown]:
    """Return examples for each of the prompts; none at all where the relation has too few facts for them."""
    if len({fact.x for fact in relation.train}) < _FACTS_FOR_EXAMPLES:
        return []
    facts = writable_facts(lm, MixtureSpec(), relation.train[:_FACTS_TO_DRAW_FROM])
    return [draw_examples(facts, SHOTS, 0, number) for number in range(prompts)]


def _distinct(lm: FrozenLM) -> dict[Begin, Beginning]:
    """Return the LM's beginnings; of those with the same tokens only the last, which has the plainest name."""
    names = {beginning: name for name, beginning in lm.beginnings.items()}
    return {name: beginning for beginning, name in names.items()}


def _askable(
    lm: FrozenLM, relation: Relation, templates: Sequence[Template], *, room: int = 0
) -> tuple[list[Template], list[Fact]] | None:
    """Return a few prompts and evenly spaced train facts that the LM can be asked about with every beginning, with
    room for this many more tokens; None if there are none."""
    try:
        prompts = usable_prompts(lm, templates)[0][:_PROMPTS]
    except NothingLeft:
        return None
    if not relation.train:
        return None
    texts = [fact.x for fact in relation.train], [fact.y for fact in relation.train]
    xs, ys = (TokenisedTexts(some, lm.wording).lengths_alone(lm.device) for some in texts)
    fits = (xs.lengths > 0).all(0) & (ys.lengths > 0).all(0) & (ys.lengths <= _LONGEST_ANSWER).all(0)
    if lm.context is not None:
        for beginning in _distinct(lm).values():
            reader = PairReader(lm, usable_prompts(lm, templates, beginning)[0], reads_x=False)
            fits &= reader.longest_question(xs) + ys.lengths.amax(0) + room <= lm.context
    numbers = fits.nonzero()[:, 0]
    if not len(numbers):
        return None
    count = min(_PAIRS // len(prompts), len(numbers))
    chosen = numbers[torch.linspace(0, len(numbers) - 1, count).round().long().to(lm.device)]
    return [prompt.template for prompt in prompts], [relation.train[n] for n in chosen.tolist()]


def _opened(
    lm: FrozenLM, beginning: Beginning, templates: Sequence[Template], lead_in: str, shown: Sequence[Shown]
) -> list[Prompt]:
    """Return the templates' prompts after a lead-in, or each after its examples."""
    prompts, _ = usable_prompts(lm, templates, beginning)
    spec = MixtureSpec(lead_in=lead_in)
    own = shown or [()] * len(prompts)
    return [with_context(lm, prompt, spec, examples) for prompt, examples in zip(prompts, own, strict=True)]


def _fit(lm: FrozenLM, prompts: Sequence[Prompt], facts: Sequence[Fact]) -> bool:
    """Tell whether all facts can be asked with all prompts within the LM's longest input."""
    if lm.context is None:
        return True
    texts = [fact.x for fact in facts], [fact.y for fact in facts]
    xs, ys = (TokenisedTexts(some, lm.wording).lengths_alone(lm.device) for some in texts)
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
    """Return log p(y | x, t) of each pair: of all of y's tokens, but not of what ends the answer, since how a template
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
