"""Examples in the prompt: train facts, written in the prompt's own words, that come before the question.

Each prompt has its own. They are prompt tokens like all others, and a prompt that shows an x is never asked about it.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from askwell.data.facts import Relation
from askwell.errors import BadOption, NothingLeft
from askwell.lms.batches import PLACES, TokenisedTexts, Words, words_of
from askwell.lms.frozen import FrozenLM
from askwell.lms.tokenisation import Place
from askwell.prompts.context import Shown, draw_examples, with_context, writable_facts
from askwell.prompts.long_answers import LongAnswers
from askwell.prompts.pairs import PairReader, Tuned
from askwell.prompts.prompt import Prompt, initial_vectors
from askwell.specs.mixture_spec import MixtureSpec

# Draws are compared on this many dev facts at most, spread evenly.
_DEV_FACTS = 256
_NO_TRAIN_FACTS = "no train fact can be written out in the LM's tokens"


class Chosen(NamedTuple):
    """A prompt with its examples."""

    prompt: Prompt
    examples: Shown
    dropped: int
    """How many examples did not fit into the LM's longest input; the first ones were dropped."""
    log_losses: tuple[float, ...] = ()
    """The mean log-loss of dev facts with each draw of examples, where several were compared."""


def choose_examples(
    lm: FrozenLM, prompts: Sequence[Prompt], spec: MixtureSpec, relation: Relation | None
) -> list[Chosen]:
    """Return every prompt with as many train facts as the spec asks for, drawn for each by the seed; of several draws,
    the one that makes dev facts most probable."""
    if relation is None:
        raise BadOption(
            "`shots`: examples are train facts; name the relation with `relation`", shots="--shots", relation="--facts"
        )
    facts = writable_facts(lm, spec, relation.train)
    if not facts:
        raise NothingLeft(f"examples for {relation.name}", {_NO_TRAIN_FACTS: len(relation.train)})
    room = _room(lm, spec, relation)
    draws = [
        [
            _that_fit(lm, prompt, spec, draw_examples(facts, spec.shots or 0, spec.seed, number, draw), room)
            for number, prompt in enumerate(prompts)
        ]
        for draw in range(spec.shot_draws)
    ]
    if len(draws) == 1:
        return draws[0]
    losses = torch.stack([_dev_log_losses(lm, draw, spec, relation) for draw in draws])
    best = losses.argmin(0).tolist()
    by_prompt = [tuple(of_prompt) for of_prompt in losses.T.tolist()]
    return [draws[best[n]][n]._replace(log_losses=by_prompt[n]) for n in range(len(prompts))]


def _that_fit(lm: FrozenLM, prompt: Prompt, spec: MixtureSpec, examples: Shown, room: dict[Place, int]) -> Chosen:
    """Return the prompt with the last of its examples, as many as fit."""
    for dropped in range(len(examples) + 1):
        opened = with_context(lm, prompt, spec, examples[dropped:])
        longest = max(len(stream.left) + len(stream.right) for stream in opened.question.streams.values())
        if lm.context is None or longest + room[opened.tokens.x_place] <= lm.context:
            break
    return Chosen(opened, examples[dropped:], dropped)


def _room(lm: FrozenLM, spec: MixtureSpec, relation: Relation) -> dict[Place, int]:
    """Return the number of tokens that the longest x at each place and the longest answer take."""
    xs = {fact.x for split in relation.splits.values() for fact in split}
    answer = 0 if spec.answers == "one-token" else spec.longest_answer
    lengths = TokenisedTexts(sorted(xs), lm.wording).lengths
    return {place: answer + int(lengths[number].max()) for number, place in enumerate(PLACES)}


@torch.no_grad()
def _dev_log_losses(
    lm: FrozenLM, chosen: Sequence[Chosen], spec: MixtureSpec, relation: Relation
) -> Float[Tensor, " prompts"]:
    """Compute the mean of -log p(y | x, t) over dev facts under each prompt alone, without those that it shows."""
    facts = writable_facts(lm, spec, relation.dev)
    if not facts:
        raise BadOption(
            "`shot_draws`: draws are compared on dev facts, and none can be asked; take one draw",
            shot_draws="--shot-draws",
        )
    facts = [facts[n] for n in torch.linspace(0, len(facts) - 1, min(_DEV_FACTS, len(facts))).round().long().tolist()]
    prompts = [one.prompt for one in chosen]
    reader = PairReader(lm, prompts, reads_x=False)
    vectors = initial_vectors(lm, prompts, initial="words", noise=0.0, seed=spec.seed)
    tuned = Tuned(vectors, None, torch.arange(len(prompts), device=lm.device))
    xs, ys = (words_of(texts, lm.wording, lm.device) for texts in ([f.x for f in facts], [f.y for f in facts]))
    asked = torch.arange(len(facts), device=lm.device)
    if spec.answers == "one-token":
        gold = torch.where(ys.lengths == 1, ys.ids[:, :, 0], -1)
        log_probs = reader.gold_log_probs(tuned, xs, gold, asked)
    else:
        log_probs = LongAnswers(lm, prompts, reader).log_probs(tuned, xs, ys, asked)
    is_shown = ExampleTable(lm, [one.examples for one in chosen]).shown(xs, asked)
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
