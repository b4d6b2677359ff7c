"""Examples chosen for each x: a trial on SmolLM2, by hand and with the words between x and y tuned.

    ASKWELL_DATA=… python studies/nearest_examples.py --relations P19 P138 P37

For each x, four train facts come before its question: the same four for all ("fixed", the draw that `--shots 4`
makes), or the four whose x's are nearest to it ("nearest", the nearest last). The distance is the LM's own: the cosine
between the centred hidden states from which it would answer the plain prompt about the two x's. No fact is ever an
example for its own x. Examples and x are constants, so they are read once; only the words after x are tuned, for 400
pairs in steps of 16 facts, with the step sizes of askwell. Every line of
results/nearest_examples.jsonl is a relation with one way of choosing; what has been done is not done
again.
"""

import argparse
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Float, Int
from lines import RESULTS, append_line, read_lines
from openings import digest, facts_of, ranks
from torch import Tensor

from askwell import Mixture, load_lm
from askwell.answers.encode import EncodedFacts
from askwell.answers.one_token import OneTokenAnswers
from askwell.data.facts import Fact, Relation
from askwell.evaluation.scoring import outcomes_of
from askwell.lms.batches import words_of
from askwell.lms.families import Token
from askwell.lms.frozen import FrozenLM
from askwell.lms.walks.past import Past
from askwell.prompts.context import draw_examples, writable_facts
from askwell.prompts.pairs import PairReader
from askwell.prompts.prompt import Prompt, initial_vectors, token_rows, with_context
from askwell.specs.mixture_spec import NO_LEAD_IN, MixtureSpec
from askwell.training.optimiser import OF_WORDS, word_scale
from askwell.training.schedule import warm_up_and_decay

NEAREST = RESULTS / "nearest_examples.jsonl"
SHOTS, TRAIN_FACTS, PAIRS, FACTS_OF_STEP = 4, 160, 400, 16
WAYS = ("fixed", "nearest")
_FACTS_AT_ONCE = 16


class Trial:
    """Facts, each asked after examples of its own; only the words after x are tuned."""

    def __init__(self, lm: FrozenLM, plain: Prompt, spec: MixtureSpec, xs: Sequence[str], shown: Sequence[Any]) -> None:
        self.lm = lm
        prompts = [_with_constant_opening(with_context(lm, plain, spec, examples)) for examples in shown]
        # All prompts have the same tuned words, and so the same rows.
        self._reader = PairReader(lm, prompts, reads_x=False, rows=[token_rows(prompts[:1])[0]] * len(prompts))
        self._xs = words_of(xs, lm.wording, lm.device)
        self.vectors = initial_vectors(lm, prompts[:1], initial="words", noise=0.0, seed=0).requires_grad_()
        lefts = [len(stream.left) for prompt in prompts for stream in prompt.question.streams.values()]
        every = torch.arange(len(xs), device=lm.device)
        x_lengths = self._xs.lengths[self._reader.x_places, every]
        self._lengths = torch.tensor(lefts, device=lm.device) + x_lengths
        self._past = self._read(every)

    @torch.no_grad()
    def _read(self, every: Int[Tensor, " facts"]) -> Past:
        """Compute the keys and values of all examples and x's."""
        order, parts = self._lengths.argsort(stable=True), []
        for some in order.split(_FACTS_AT_ONCE):
            batch = self._reader.y_table.batch(self._xs, every[some], every[some]).until(self._lengths[some])
            parts.append(self.lm.kept(batch, self.vectors.detach()))
        return Past.joined(parts).of(order.argsort())

    def _batch(self, some: Int[Tensor, " facts"]) -> Any:
        whole = self._reader.y_table.batch(self._xs, some, some)
        return whole.after(self._lengths[some], self._past.of(some))

    def log_probs_of(self, some: Int[Tensor, " facts"], tokens: Int[Tensor, " facts"]) -> Float[Tensor, " facts"]:
        """Return log p(y | x) of one token for each of these facts, with gradients into the tuned words."""
        return self.lm.log_probs_of(self._batch(some), self.vectors, None, tokens)[0]

    def log_probs(self, some: Int[Tensor, " facts"]) -> Float[Tensor, "facts vocabulary"]:
        """Return log p(· | x) for each of these facts."""
        return self.lm.logits(self._batch(some), self.vectors.detach()).log_softmax(1)

    def tune(self, facts: Int[Tensor, " facts"], tokens: Int[Tensor, " facts"], pairs: int) -> None:
        """Tune in one cycle of Adam over this many pairs of these facts, as askwell does."""
        peak, steps = OF_WORDS * word_scale(self.lm), max(1, round(pairs / FACTS_OF_STEP))
        optimizer = torch.optim.Adam([self.vectors], lr=peak)
        order = torch.Generator().manual_seed(0)
        left = torch.empty(0, dtype=torch.long)
        for step in range(steps):
            if len(left) < FACTS_OF_STEP:
                left = torch.cat([left, torch.randperm(len(facts), generator=order)])
            some, left = left[:FACTS_OF_STEP], left[FACTS_OF_STEP:]
            optimizer.param_groups[0]["lr"] = peak * warm_up_and_decay(step, steps, peak=0.1 * steps)
            (-self.log_probs_of(facts[some], tokens[some]).mean()).backward()
            optimizer.step()
            optimizer.zero_grad()


def _with_constant_opening(prompt: Prompt) -> Prompt:
    """Return the prompt with nothing tuned before x; its tuned words are counted from 0."""
    streams, before = {}, len(prompt.tokens.before)
    for name, stream in prompt.question.streams.items():
        left = tuple(Token(token.id) for token in stream.left)
        right = tuple(Token(token.id, max(-1, token.prompt_token - before)) for token in stream.right)
        streams[name] = replace(stream, left=left, right=right)
    return replace(prompt, question=replace(prompt.question, streams=streams), token_ids=prompt.token_ids[before:])


@torch.no_grad()
def representations(mixture: Mixture, facts: EncodedFacts) -> Float[Tensor, "facts width"]:
    """Return, for each fact, the centred hidden state from which the LM answers about its x, as a unit vector."""
    parts = []
    for some in torch.arange(len(facts)).split(_FACTS_AT_ONCE * 4):
        batch = mixture.pairs.y_table.batch(facts.xs, some, torch.zeros_like(some))
        hidden, _ = mixture.lm.hidden_and_kept(batch, mixture.vectors.detach(), keeps=False)
        parts.append(hidden)
    states = torch.cat(parts)
    return (states - states.mean(0)) / (states - states.mean(0)).norm(dim=1, keepdim=True)


def nearest(
    states: Float[Tensor, "facts width"], facts: Sequence[Fact], shown: Sequence[int], count: int
) -> list[tuple[Fact, ...]]:
    """Return, for each fact, those of the `shown` ones whose x's are nearest, the nearest last: none with its own x,
    no two with the same x."""
    order = (states @ states[list(shown)].T).argsort(dim=1, descending=True, stable=True)
    chosen = []
    for fact, places in zip(facts, order.tolist(), strict=True):
        by_x: dict[str, Fact] = {}
        for place in places:
            other = facts[shown[place]]
            if other.x != fact.x and len(by_x) < count:
                by_x.setdefault(other.x, other)
        chosen.append(tuple(reversed(by_x.values())))
    return chosen


def cell(lm: FrozenLM, name: str, way: str) -> dict[str, Any]:
    """Score one relation and way of choosing examples: by hand, and with the words after x tuned."""
    whole, templates = facts_of(lm, name, "one-token")
    relation = Relation.of(whole.name, whole.train[:: max(1, len(whole.train) // TRAIN_FACTS)], whole.dev, whole.test)
    spec = MixtureSpec(begin="line-break", answers="one-token", lead_in=NO_LEAD_IN)
    plain = Mixture(lm, templates, spec)
    train, test = (plain.encode(relation.split(split))[0] for split in ("train", "test"))
    began = time.process_time()
    fixed = draw_examples(writable_facts(lm, spec, whole.train), SHOTS, 0, 0)
    shown_xs = {fact.x for fact in fixed} if way == "fixed" else set()
    facts = [*train.facts, *test.facts]
    if way == "fixed":
        shown = [fixed] * len(facts)
    else:
        states = torch.cat([representations(plain, train), representations(plain, test)])
        shown = nearest(states, facts, range(len(train)), SHOTS)
    trial = Trial(lm, plain.prompts[0], spec.model_copy(update={"shots": SHOTS}), [fact.x for fact in facts], shown)
    answers = OneTokenAnswers(plain)

    def outcomes() -> dict[str, Any]:
        parts = [trial.log_probs(some + len(train)) for some in torch.arange(len(test)).split(_FACTS_AT_ONCE)]
        return ranks(outcomes_of(relation, test.facts, answers.rankings(torch.cat(parts), test.facts, relation.golds)))

    by_hand, tuned_from = outcomes(), time.process_time()
    usable = torch.tensor([number for number, fact in enumerate(train.facts) if fact.x not in shown_xs])
    place = plain.pairs.y_places[0]
    trial.tune(usable, train.gold_tokens[place][usable], PAIRS)
    tuning = time.process_time() - tuned_from
    return {
        "facts": len(test),
        "fact_digests": [digest(x, y) for x, y in sorted((fact.x, fact.y) for fact in test.facts)],
        "train_facts": len(train),
        "by hand": by_hand,
        "words tuned": outcomes(),
        "tuning_cpu_seconds": round(tuning, 1),
        "cpu_seconds": round(time.process_time() - began, 1),
    }


def main() -> None:
    """Do the missing lines."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--relations", nargs="*", default=["P19", "P138", "P37"])
    options = parser.parse_args()
    torch.set_num_threads(1)
    done, lm = read_lines(NEAREST), load_lm("smollm2", device="cpu")
    for name in options.relations:
        for way in WAYS:
            asked = {"relation": name, "examples": way, "shots": SHOTS, "pairs": PAIRS}
            if any(asked.items() <= line.items() for line in done):
                continue
            line = append_line(NEAREST, {**asked, **cell(lm, name, way)})
            scores = {k: sum(r == 1 for r in line[k]["rank"]) / line["facts"] for k in ("by hand", "words tuned")}
            print(name, way, scores, line["tuning_cpu_seconds"], line["cpu_seconds"], flush=True)


if __name__ == "__main__":
    main()
