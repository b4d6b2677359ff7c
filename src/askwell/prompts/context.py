"""The choice of what stands before a prompt's sentence: a beginning, a lead-in, in-context examples.

All but the beginning are prompt tokens like any others, and tuned with them. What comes before x matters most to a
causal LM: its first position draws much of its attention and is represented unlike any other, so the same prompt can be
several times as good after a line break as after nothing, and better still after a few words that say what is to come,
or after a few facts that show it. So what a spec leaves open is chosen by how probable untuned prompts find the run's
own train facts. The choice takes seconds and is made anew for every run: it depends on nothing but the LM, the prompts
and the facts.
"""

import random
from collections.abc import Sequence
from math import log
from statistics import fmean

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from askwell.data.facts import Fact, Relation
from askwell.data.templates import Template
from askwell.errors import BadOption, NothingLeft
from askwell.lms.batches import PLACES, TokenisedTexts, Words, words_of
from askwell.lms.frozen import FrozenLM
from askwell.lms.tokenisation import Beginning, Place
from askwell.prompts.long_answers import LongAnswers
from askwell.prompts.pairs import PairReader, Tuned
from askwell.prompts.prompt import Prompt, initial_vectors, usable_prompts, with_context
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
# Draws of examples are compared on this many dev facts at most, spread evenly.
_DEV_FACTS = 256


# ── in-context examples: each prompt has its own, and a prompt that shows an x is never asked about it ────────────────


def writable_facts(lm: FrozenLM, spec: MixtureSpec, facts: Sequence[Fact]) -> list[Fact]:
    """Return the distinct facts that can be examples: x and y have tokens, and y has no more than answers may have."""
    longest = spec.most_tokens or 1
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


def choose_examples(
    lm: FrozenLM, prompts: Sequence[Prompt], spec: MixtureSpec, relation: Relation | None
) -> tuple[list[Shown], int, tuple[tuple[float, ...], ...]]:
    """Return as many train facts for each prompt as the spec asks for, drawn by the seed: of several draws, those that
    make dev facts most probable. Return also how many did not fit into the LM's longest input, over all prompts, and
    for each prompt the mean log-loss of dev facts with each draw, if there are several."""
    if relation is None:
        raise BadOption(
            "`shots`: examples are train facts; name the relation with `relation`", shots="--shots", relation="--facts"
        )
    facts = writable_facts(lm, spec, relation.train)
    if not facts:
        reason = "no train fact can be written out in the LM's tokens"
        raise NothingLeft(f"examples for {relation.name}", {reason: len(relation.train)})
    room, count, shares = _room(lm, spec, relation), spec.shots or 0, spec.opening == "shared"
    draws = [
        [
            _that_fit(lm, prompt, spec, draw_examples(facts, count, spec.seed, 0 if shares else number, draw), room)
            for number, prompt in enumerate(prompts)
        ]
        for draw in range(spec.shot_draws)
    ]
    if shares:  # what fits into the longest prompt fits into all
        draws = [[min(draw, key=len)] * len(prompts) for draw in draws]
    chosen, by_prompt = draws[0], ()
    if len(draws) > 1:
        losses = torch.stack([_dev_log_losses(lm, prompts, draw, spec, relation) for draw in draws])
        compared = losses.mean(1, keepdim=True).expand_as(losses) if shares else losses
        chosen = [draws[best][number] for number, best in enumerate(compared.argmin(0).tolist())]
        by_prompt = tuple(map(tuple, losses.T.tolist()))
    most = min(count, len({fact.x for fact in facts}))
    return chosen, sum(most - len(own) for own in (chosen[:1] if shares else chosen)), by_prompt


def _that_fit(lm: FrozenLM, prompt: Prompt, spec: MixtureSpec, examples: Shown, room: dict[Place, int]) -> Shown:
    """Return the last of a prompt's examples, as many as fit."""
    for dropped in range(len(examples)):
        opened = with_context(lm, prompt, spec, examples[dropped:])
        longest = max(len(stream.left) + len(stream.right) for stream in opened.question.streams.values())
        if lm.context is None or longest + room[opened.tokens.x_place] <= lm.context:
            return examples[dropped:]
    return ()


def _room(lm: FrozenLM, spec: MixtureSpec, relation: Relation) -> dict[Place, int]:
    """Return the number of tokens that the longest x at each place and the longest answer take."""
    xs = {fact.x for split in relation.splits.values() for fact in split}
    answer = spec.most_tokens or 0
    lengths = TokenisedTexts(sorted(xs), lm.wording).lengths
    return {place: answer + int(lengths[number].max()) for number, place in enumerate(PLACES)}


@torch.no_grad()
def _dev_log_losses(
    lm: FrozenLM, prompts: Sequence[Prompt], examples: Sequence[Shown], spec: MixtureSpec, relation: Relation
) -> Float[Tensor, " prompts"]:
    """Compute the mean of -log p(y | x, t) over dev facts under each prompt alone, without those that it shows."""
    facts = writable_facts(lm, spec, relation.dev)
    if not facts:
        raise BadOption(
            "`shot_draws`: draws are compared on dev facts, and none can be asked; take one draw",
            shot_draws="--shot-draws",
        )
    facts = [facts[n] for n in torch.linspace(0, len(facts) - 1, min(_DEV_FACTS, len(facts))).round().long().tolist()]
    opened = [with_context(lm, prompt, spec, own) for prompt, own in zip(prompts, examples, strict=True)]
    log_probs = _untuned_log_probs(lm, opened, facts, one_token=spec.most_tokens is None)
    xs = words_of([fact.x for fact in facts], lm.wording, lm.device)
    is_shown = ExampleTable(lm, examples).shown(xs, torch.arange(len(facts), device=lm.device))
    counts = log_probs.isfinite() & ~is_shown
    return -torch.where(counts, log_probs, 0.0).sum(0) / counts.sum(0).clamp(min=1)


class ExampleTable:
    """Which prompts show which x's."""

    def __init__(self, lm: FrozenLM, examples: Sequence[Shown]) -> None:
        self._lm, self._prompts = lm, len(examples)
        self._by_x: dict[tuple[int, ...], set[int]] = {}
        for prompt, shown in enumerate(examples):
            for fact in shown:
                self._by_x.setdefault(tuple(lm.wording.encode(fact.x, PLACES[0])), set()).add(prompt)

    def shown(self, xs: Words, rows: Int[Tensor, " facts"]) -> Bool[Tensor, "facts prompts"]:
        """Mark, for each fact, the prompts that show its x, with any y: after these, the LM could copy the answer, or
        has been shown a different one."""
        tokens = zip(xs.ids[0, rows].tolist(), xs.lengths[0, rows].tolist(), strict=True)
        table = torch.zeros(len(rows), self._prompts, dtype=torch.bool)
        for row, (ids, length) in enumerate(tokens):
            for prompt in self._by_x.get(tuple(ids[:length]), ()):
                table[row, prompt] = True
        return table.to(self._lm.device)


def renormalised(
    log_weights: Float[Tensor, "facts prompts"], shown: Bool[Tensor, "facts prompts"]
) -> Float[Tensor, "facts prompts"]:
    """Renormalise the weights without the prompts that show a fact's x; unchanged if no other prompt has any weight."""
    others = log_weights.masked_fill(shown, -torch.inf)
    changes = shown.any(1) & (others > -torch.inf).any(1)
    # Other rows are left alone: even a softmax of weights that already sum to one would change their last digits.
    return torch.where(changes[:, None], others.masked_fill(~changes[:, None], 0.0).log_softmax(1), log_weights)


# ── the choice of what a spec leaves open ─────────────────────────────────────────────────────────────────────────────


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
    opening, template = spec.opening, None
    if is_open and relation is not None and len(lm.beginnings) > 1:
        allow_examples = spec.shots is None and not spec.keeps_words
        shares = opening == "shared" or (opening == "auto" and len({one.text for one in templates}) > 1)
        scores = opening_scores(lm, relation, templates, begin, allow_examples=allow_examples, shares=shares)
        scores, template = scores.model_copy(update={"begins": begins}), scores.template
        lead_in, shots = best_opening(scores)
        plain = plain.model_copy(update={"lead_in": lead_in, "shots": shots})
        if opening == "auto" and shares and (shots or lead_in != NO_LEAD_IN):
            opening = "shared"
    if opening == "shared" and template is None:
        prompts, _ = usable_prompts(lm, templates, lm.beginning(begin))
        template = max(prompts, key=lambda prompt: prompt.template.weight or 0.0).template.text
    settled = {"opening": "own"} if opening != "shared" else {"opening": "shared", "opening_template": template}
    return SettledMixtureSpec.model_validate(
        {**plain.model_dump(), "begin": begin, "context_scores": scores, **settled}
    )


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
    templates, facts = askable
    return {
        name: float(_scores(lm, _opened(lm, beginning, templates), facts).mean()) for name, beginning in choices.items()
    }


@torch.no_grad()
def opening_scores(
    lm: FrozenLM,
    relation: Relation,
    templates: Sequence[Template],
    begin: Begin,
    *,
    allow_examples: bool,
    shares: bool = False,
) -> ContextScores:
    """Return how probable a mixture of a few untuned prompts, weighed alike, finds a few train facts after each lead-in
    and, if they may be used, after examples; empty if no fact can be asked. Examples that all prompts share are written
    in the words of the prompt that does best after them in its own."""
    askable = _askable(lm, relation, templates, room=max(len(_spaced(lm, text)) for text in LEAD_INS))
    if askable is None:
        return ContextScores()
    usable, facts = askable
    beginning = lm.beginning(begin)
    shown = _examples_for(lm, relation, len(usable), shares=shares) if allow_examples else []
    # A prompt that shows an x is not asked about it; all openings are compared on the same pairs.
    examples_of = [{fact.x for fact in own} for own in shown] or [set[str]()] * len(usable)
    asked = torch.tensor([[fact.x not in own for own in examples_of] for fact in facts], device=lm.device)
    if not asked.any():
        return ContextScores()

    def score(opened: Sequence[Prompt]) -> tuple[float, Float[Tensor, " prompts"]]:
        """Return the mean of log p(y | x) under the mixture, and of log p(y | x, t) under each prompt."""
        of_pairs = _scores(lm, opened, facts).double().masked_fill(~asked, -torch.inf)
        of_facts = of_pairs.logsumexp(1) - asked.sum(1).log()
        by_prompt = of_pairs.masked_fill(~asked, 0.0).sum(0) / asked.sum(0)
        return float(of_facts[asked.any(1)].mean()), by_prompt

    lead_ins = {text: score(_opened(lm, beginning, usable, text))[0] for text in LEAD_INS}
    shots, template = {}, None
    opened = _opened(lm, beginning, usable, shown=shown) if shown and all(shown) else []
    if opened and _fit(lm, opened, facts):
        shots[SHOTS], by_prompt = score(opened)
        if shares:
            template = usable[int(by_prompt.nan_to_num(nan=-torch.inf).argmax())].text
            opened = _opened(lm, beginning, usable, shown=shown, template=template)
            shots[SHOTS] = score(opened)[0]
    least = -0.5 * log(lm.word_count) * fmean(len(_spaced(lm, fact.y)) for fact in facts)
    return ContextScores(lead_ins=lead_ins, shots=shots, least=least, template=template)


def _spaced(lm: FrozenLM, text: str) -> list[int]:
    return lm.wording.encode(text, Place.SPACED)


def _examples_for(lm: FrozenLM, relation: Relation, prompts: int, *, shares: bool) -> list[Shown]:
    """Return examples for each of the prompts, or the same for all; none at all where the relation has too few facts
    for them."""
    if len({fact.x for fact in relation.train}) < _FACTS_FOR_EXAMPLES:
        return []
    facts = writable_facts(lm, MixtureSpec(), relation.train[:_FACTS_TO_DRAW_FROM])
    return [draw_examples(facts, SHOTS, 0, 0 if shares else number) for number in range(prompts)]


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
        prompts = []
    if not prompts or not relation.train:
        return None
    xs, ys = _lengths(lm, relation.train)
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
    lm: FrozenLM,
    beginning: Beginning,
    templates: Sequence[Template],
    lead_in: str = NO_LEAD_IN,
    shown: Sequence[Shown] = (),
    template: str | None = None,
) -> list[Prompt]:
    """Return the templates' prompts after a lead-in, or each after its examples, which can all be written in the words
    of one template."""
    prompts, _ = usable_prompts(lm, templates, beginning)
    spec = MixtureSpec(lead_in=lead_in)
    if template is not None:
        begin = next(name for name, one in lm.beginnings.items() if one == beginning)
        shared = {"begin": begin, "shots": 0, "opening": "shared", "opening_template": template}
        spec = SettledMixtureSpec.model_validate({**spec.model_dump(), **shared})
    own = shown or [()] * len(prompts)
    return [with_context(lm, prompt, spec, examples) for prompt, examples in zip(prompts, own, strict=True)]


def _scores(lm: FrozenLM, prompts: Sequence[Prompt], facts: Sequence[Fact]) -> Float[Tensor, "facts prompts"]:
    """Return log p(y | x, t) of each pair: of all of y's tokens, but not of what ends the answer, since how a template
    continues after y says nothing about whether y is known."""
    return _untuned_log_probs(lm, prompts, facts, with_end=False)


def _fit(lm: FrozenLM, prompts: Sequence[Prompt], facts: Sequence[Fact]) -> bool:
    """Tell whether all facts can be asked with all prompts within the LM's longest input."""
    if lm.context is None:
        return True
    xs, ys = _lengths(lm, facts)
    longest = PairReader(lm, prompts, reads_x=False).longest_question(xs) + ys.lengths.amax(0)
    return bool((longest <= lm.context).all())


def _lengths(lm: FrozenLM, facts: Sequence[Fact]) -> tuple[Words, Words]:
    """Return how many tokens the xs and ys of facts have."""
    texts = [fact.x for fact in facts], [fact.y for fact in facts]
    xs, ys = (TokenisedTexts(some, lm.wording).lengths_alone(lm.device) for some in texts)
    return xs, ys


def _untuned_log_probs(
    lm: FrozenLM, prompts: Sequence[Prompt], facts: Sequence[Fact], *, one_token: bool = False, with_end: bool = True
) -> Float[Tensor, "facts prompts"]:
    """Return log p(y | x, t) of facts under prompts as they are written."""
    reader = PairReader(lm, prompts, reads_x=False)
    vectors = initial_vectors(lm, prompts, initial="words", noise=0.0, seed=0)
    tuned = Tuned(vectors, None, torch.arange(len(prompts), device=lm.device))
    xs, ys = (words_of(texts, lm.wording, lm.device) for texts in ([f.x for f in facts], [f.y for f in facts]))
    rows = torch.arange(len(facts), device=lm.device)
    if one_token:
        return reader.gold_log_probs(tuned, xs, torch.where(ys.lengths == 1, ys.ids[:, :, 0], -1), rows)
    return LongAnswers(lm, prompts, reader).log_probs(tuned, xs, ys, rows, with_end=with_end)
