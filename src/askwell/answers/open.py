"""Answers of any length: all strings that the LM can spell, found by best-first search.

Ranks are exact up to the tenth. Any later rank is infinite: its reciprocal counts as 0. Where a search reaches its
limit before the rank is known, the rank lies between two bounds: the better answers that were found, and how many more
there can be in the probability that is left.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from askwell.answers.answer_search import AnswerSearch
from askwell.answers.encode import EncodedFacts, why_not
from askwell.answers.greedy import greedy, writes_answers_out
from askwell.answers.reply import PromptReply, Replies, Reply, RightAnswers
from askwell.answers.search import FoundAnswer, FoundAnswers, SearchLimits
from askwell.answers.strategy import Answers, Golds, Prior, PromptAnswers, Ranking
from askwell.answers.tree import candidate_log_probs
from askwell.data.facts import Fact, Relation
from askwell.errors import NotFinite, UsageError
from askwell.lms.batches import PLACES, TokenisedTexts, Words, words_of
from askwell.lms.vocabulary import speller
from askwell.specs.mixture_spec import Match

RANKED = 10
"""Ranks are exact up to this one."""
_FACTS_AT_ONCE = 32
_WORK_AT_ONCE = 2**26
"""Facts are ranked together up to this many squares of the LM's width, over its layers and all prompts: with a large LM
fewer, so that progress shows."""
_OPENED, _MOST_OPENED = 100, 1000
"""Prefixes that are opened for each fact at first, and for one whose rank is not known by then."""
_OPENED_TO_ASK, _LEAST_OPENED_TO_ASK = 500, 100
"""Prefixes that are opened for an x that is asked under one prompt, and at least under many: an answer comes within
seconds from an LM of 100 M parameters."""
_OPENED_FOR_THE_BEST, _AT_ONCE_FOR_THE_BEST = 8, 4
"""Prefixes of one fact that are opened at first, and together, where only the best answer counts: any answer of more
than half of the probability is among them, and whether y is the best is then found out for those that may be right."""
_MOST_OPENED_FOR_THE_BEST = 64
_FREQUENT = 16
"""Where only the best answer counts, this many of the relation's most frequent ys are tried instead of y first: under
prompts that hardly ever end an answer, a search would not find them."""
_PRIOR_ANSWERS, _BEST_OF_PRIOR = 30, 5


class OpenAnswers(Answers):
    """Strings of any length up to a limit."""

    is_listed = False
    most_xs_of_prior = 32
    _known: tuple[Golds, "_Spellings"] | None = None

    @property
    def vocabulary(self) -> str:
        """The answers that golds are ranked among, in words."""
        return self.kind.describe(self.prompts.lm.identity.name)

    def _search(self, *, only: int | None = None, **limits: int) -> AnswerSearch:
        return AnswerSearch(self.prompts, SearchLimits(tokens=self.kind.longest, **limits), self.kind, only=only)

    # ── asking ────────────────────────────────────────────────────────────────────────────────────────────────────

    def ask(self, xs: Sequence[str], top: int = 10) -> Iterator[Replies]:
        """Yield the most probable answers for each x, best first: those that are certainly the best."""
        self.check_askable(xs)
        opened = max(_LEAST_OPENED_TO_ASK, _OPENED_TO_ASK // len(self.prompts.tuned.kept))
        search = self._search(answers=top, opened=opened)
        for words, rows in self._in_batches(xs, _FACTS_AT_ONCE):
            for found in search.best(words, rows):
                certain = [a for a in found.answers if found.is_exact or a.log_probability >= found.unseen]
                replies = Replies(
                    Reply(answer.text, math.exp(answer.log_probability), tuple(map(math.exp, answer.parts.tolist())))
                    for answer in certain or found.answers[:1]
                )
                if not found.is_exact:
                    replies.unseen = math.exp(found.unseen)
                yield replies

    def ask_each_prompt(self, xs: Sequence[str]) -> Iterator[list[PromptReply]]:
        """Yield the best answers of every prompt by itself to each x, empty where none is found."""
        self.check_askable(xs)
        prompts = self.prompts.tuned.kept.tolist()
        searches = [self._search(only=prompt, answers=1, opened=_OPENED_TO_ASK) for prompt in prompts]
        certain = torch.zeros(len(self.prompts.prompts), device=self.prompts.lm.device)
        words, rows = self._words(xs)
        for some in rows.split(_FACTS_AT_ONCE):
            by_prompt = [search.best(words, some, log_weights=certain) for search in searches]
            for of_x in zip(*by_prompt, strict=True):
                best = [
                    (one.answers[0].text, math.exp(one.answers[0].log_probability)) if one.answers else ("", 0.0)
                    for one in of_x
                ]
                own = [(prompt, *answer) for prompt, answer in zip(prompts, best, strict=True)]
                yield self._prompt_replies(self.prompts.weights.detach(), own)

    # ── evaluation ────────────────────────────────────────────────────────────────────────────────────────────────

    def batches(self, encoded: EncodedFacts) -> Iterable[Int[Tensor, " facts"]]:
        """Return the rows of all facts, in the batches in which they are searched."""
        of_prompt = sum(stack.layers * stack.width**2 for stack in self.prompts.lm.stacks.values())
        # Where only the best answer counts, a fact takes a few prefixes at a time, too few to fill a batch alone.
        work = _WORK_AT_ONCE * (SearchLimits.at_once // _AT_ONCE_FOR_THE_BEST if self.best_only else 1)
        within = max(4, work // (of_prompt * len(self.prompts.prompts)))
        return encoded.rows.split(min(within, _FACTS_AT_ONCE))

    def rank(
        self,
        encoded: EncodedFacts,
        rows: Int[Tensor, " facts"],
        golds: Golds,
        top: int = RANKED,
        *,
        record: list[PromptAnswers] | None = None,
        prior: Prior | None = None,
    ) -> tuple[list[Ranking], list[Ranking]]:
        """Return the rankings of the facts in these rows; there are too many answers to be corrected by a prior.

        If no answers are needed (`top` is 0), only what is more probable than y is searched for.
        """
        del prior
        spellings, ranked = self.spellings(golds), 1 if self.best_only else RANKED
        facts = [encoded.facts[row] for row in rows.tolist()]
        if top == 0 and record is None:
            of_golds = self._gold_log_probs(encoded, rows)
            better = self._better(encoded, rows, of_golds, spellings, ranked)
            return [spellings.ranking(*of, top, ranked) for of in zip(facts, of_golds, better, strict=True)], []
        limits = {"opened": _OPENED_FOR_THE_BEST, "at_once": _AT_ONCE_FOR_THE_BEST} if self.best_only else {}
        search = self._search(**{"answers": max(top, ranked), "opened": _OPENED, **limits})
        others = [spellings.others(fact) for fact in facts]
        found = search.best(encoded.xs, rows, lambda number, text: text not in others[number])
        known = [of.log_probability_of(spellings.text(fact.y)) for fact, of in zip(facts, found, strict=True)]
        missed = [number for number, gold in enumerate(known) if gold is None]
        asked = dict(zip(missed, self._gold_log_probs(encoded, rows[missed]) if missed else (), strict=True))
        of_golds = [asked[number] if gold is None else gold for number, gold in enumerate(known)]
        if self.best_only:
            cut = [number for number, of_fact in enumerate(found) if not of_fact.is_exact]
            of_cut = self._with_frequent(encoded, rows[cut], [found[number] for number in cut], golds)
            for number, of_fact in zip(cut, of_cut, strict=True):
                found[number] = of_fact
        so_far = [spellings.ranking(*of, 0) for of in zip(facts, of_golds, found, strict=True)]
        left_open = [n for n, one in enumerate(so_far) if one.rank <= ranked and one.rank_at_most != one.rank]
        sought = [of_golds[n] for n in left_open]
        most = _MOST_OPENED_FOR_THE_BEST if self.best_only else _MOST_OPENED
        wider = self._better(encoded, rows[left_open], sought, spellings, ranked, most)
        for number, of_fact in zip(left_open, wider, strict=True):
            found[number] = _merged(of_fact, found[number])
        if record is not None:
            record.append(self._prompt_answers(encoded.xs, rows, found))
        return [spellings.ranking(*of, top, ranked) for of in zip(facts, of_golds, found, strict=True)], []

    def _with_frequent(
        self, encoded: EncodedFacts, rows: Int[Tensor, " facts"], found: Sequence[FoundAnswers], golds: Golds
    ) -> list[FoundAnswers]:
        """Add the relation's most frequent ys to what was found: where one of them is better than y, no search needs to
        look for such an answer."""
        # A masked LM would have to read its lengths again, and a product's answers are not those of its prompts.
        if not found or self.prompts.long_answers.fills_masks or self.prompts.is_product:
            return [*found]
        counts = Counter(y for ys in golds.values() for y in ys)
        ys = [y for y, _ in sorted(counts.items(), key=lambda one: (-one[1], one[0]))[:_FREQUENT]]
        texts, by_prompt, of_mixture = self._log_probs_of(ys, encoded.xs, rows)
        added = []
        for number, of_fact in enumerate(found):
            frequent = zip(texts.values(), of_mixture[number].tolist(), by_prompt[number].unbind(1), strict=True)
            added.append(_merged(of_fact, FoundAnswers(tuple(FoundAnswer(*one) for one in frequent), is_exact=False)))
        return added

    @torch.no_grad()
    def _log_probs_of(
        self,
        ys: Sequence[str],
        xs: Words,
        rows: Int[Tensor, " xs"],
        log_weights: Float[Tensor, " prompts"] | None = None,
    ) -> tuple[dict[str, str], Float[Tensor, "xs prompts answers"], Float[Tensor, "xs answers"]]:
        """Return those of some ys that can be answers, with their spellings, log p(y | t, x) and log p(y | x, r); not
        for products. Weights that do not depend on x can replace the mixture's."""
        prompts, lm = self.prompts, self.prompts.lm
        reasons = why_not(self.kind, prompts, TokenisedTexts(ys, lm.wording))
        texts = self.spelt_texts([y for y, reason in zip(ys, reasons, strict=True) if reason is None])
        words = words_of(list(texts), lm.wording, lm.device)
        if log_weights is None:
            log_weights, lengths = prompts.weights_and_lengths(xs, rows, self.kind.log_lengths)
        else:
            lengths = prompts.log_lengths_for(xs, rows, self.kind.log_lengths)
        by_prompt = candidate_log_probs(prompts.long_answers, prompts.tuned, xs, rows, words, lengths).double()
        of_mixture = (by_prompt + log_weights.double().expand(len(rows), -1)[..., None]).logsumexp(1)
        return texts, by_prompt, of_mixture

    def quick_ranks(self, encoded: EncodedFacts, golds: Golds) -> tuple[list[Ranking], float | None]:
        """Tell whether y is the best answer to each fact, as its rank, and the log-loss of ys that are possible: in an
        LM that writes answers out, whether y is what it writes; in others, from a search, without the facts for which
        it was cut before that was known. It is less work than ranks."""
        rankings: list[Ranking] = []
        every: list[float] = []
        is_written = writes_answers_out(self.prompts)
        for rows in encoded.rows.split(_FACTS_AT_ONCE):
            found = (self._written if is_written else self._searched)(encoded, rows, golds)
            rankings += [
                Ranking(1.0 if right else math.inf, math.inf, gold) for gold, right in found if right is not None
            ]
            every += [gold for gold, _ in found if gold > -math.inf]
        return rankings, -sum(every) / len(every) if every else None

    def _written(
        self, encoded: EncodedFacts, rows: Int[Tensor, " facts"], golds: Golds
    ) -> list[tuple[float, bool | None]]:
        """Return the log-probability of each y, and whether it is what the LM writes."""
        prompts, facts = self.prompts, [encoded.facts[row] for row in rows.tolist()]
        kept = prompts.tuned.kept
        place = PLACES[int(prompts.pairs.y_places[kept[0]])]
        encode = prompts.lm.wording.encode
        others = [[encode(y, place) for y in golds[fact.x] if y != fact.y] for fact in facts]
        ends = {prompts.long_answers.end_of(prompt) for prompt in kept.tolist()} - {None, *self.kind.through}
        of_golds, is_best = greedy(prompts, encoded, rows, others, sorted(end for end in ends if end is not None))
        return list(zip(of_golds.double().tolist(), is_best.tolist(), strict=True))

    def _searched(
        self, encoded: EncodedFacts, rows: Int[Tensor, " facts"], golds: Golds
    ) -> list[tuple[float, bool | None]]:
        """Return the log-probability of each y, and whether no wrong answer is better; None if the search was cut."""
        spellings, of_golds = self.spellings(golds), self._gold_log_probs(encoded, rows)
        better = self._better(encoded, rows, of_golds, spellings, 1)
        found: list[tuple[float, bool | None]] = []
        for row, gold, of_fact in zip(rows.tolist(), of_golds, better, strict=True):
            right = spellings.right(encoded.facts[row])
            is_wrong = gold == -math.inf or any(answer.text not in right for answer in of_fact.answers)
            found.append((gold, False if is_wrong else True if of_fact.is_exact else None))
        return found

    def _better(
        self,
        encoded: EncodedFacts,
        rows: Int[Tensor, " facts"],
        golds: Sequence[float],
        spellings: "_Spellings",
        answers: int,
        opened: int | None = None,
    ) -> list[FoundAnswers]:
        """Return the answers to each fact that are at least as probable as y, up to this many wrong ones. A few
        prefixes are opened at first, which is enough for most, and many more for the others."""
        found = dict.fromkeys(range(len(golds)), FoundAnswers((), is_exact=True))
        right = [spellings.right(encoded.facts[row]) for row in rows.tolist()]
        asked = [number for number, gold in enumerate(golds) if gold > -math.inf]
        at_once = _AT_ONCE_FOR_THE_BEST if answers == 1 else SearchLimits.at_once
        for most in (_OPENED, _MOST_OPENED) if opened is None else (opened,):
            search = self._search(answers=answers, opened=most, at_once=at_once)
            of_asked = search.at_least(
                encoded.xs,
                rows[asked],
                [golds[number] for number in asked],
                lambda number, text, asked=asked: text not in right[asked[number]],
            )
            found |= zip(asked, of_asked, strict=True)
            asked = [number for number in asked if not found[number].is_exact]
            if not asked:
                break
        return [found[number] for number in range(len(golds))]

    @torch.no_grad()
    def _gold_log_probs(self, encoded: EncodedFacts, rows: Int[Tensor, " facts"]) -> list[float]:
        return self.likelihood(encoded, rows).total.double().tolist()

    def _prompt_answers(self, xs: Words, rows: Int[Tensor, " facts"], found: Sequence[FoundAnswers]) -> PromptAnswers:
        """Return how probable each prompt finds the answers that the whole mixture finds best.

        A prompt's best answer is the best of these to it, and divergences are those of the distributions over these
        answers and all others taken together, which is at most that of the whole distributions.
        """
        prompts = self.prompts.tuned.kept.tolist()
        weights = self.prompts.log_weights_for(xs, rows).exp().double().detach().cpu().numpy()[:, prompts]
        best, divergences = [], []
        for of_fact, of_prompts in zip(found, weights, strict=True):
            probs = np.exp([answer.parts[prompts].tolist() for answer in of_fact.answers])
            probs = probs.reshape(len(of_fact.answers), len(prompts))
            rest = np.clip(1 - probs.sum(0), 0, None)
            everything = np.vstack([probs, rest])
            divergence = _entropy(everything @ of_prompts) - float(of_prompts @ _entropy(everything))
            best.append(probs.argmax(0) if len(probs) else np.zeros(len(prompts), dtype=int))
            divergences.append(max(0.0, float(divergence)))
        of_mixture = np.zeros(len(best), dtype=int)
        return PromptAnswers(tuple(prompts), np.array(best), of_mixture, weights, np.array(divergences))

    def spellings(self, golds: Golds) -> "_Spellings":
        """Return how the LM spells all right answers of a relation."""
        if self._known is None or self._known[0] is not golds:
            every = {y for ys in golds.values() for y in ys}
            self._known = golds, _Spellings(golds, self.spelt_texts(every), self.prompts.spec.match)
        return self._known[1]

    def spelt_texts(self, ys: Iterable[str]) -> dict[str, str]:
        """Return the string that each y's tokens spell; y itself where they spell no answer."""
        lm, place = self.prompts.lm, self.prompts.token_words.places[0]
        spell = speller(lm, place)
        return {y: spell(tuple(lm.wording.encode(y, place))) or y for y in ys}

    # ── priors ────────────────────────────────────────────────────────────────────────────────────────────────────

    def majority(self, relation: Relation) -> "OpenPrior":
        """Return the ys of train by how often they occur there, without those that cannot be answers."""
        ys = list(dict.fromkeys(fact.y for fact in relation.train))
        reasons = why_not(self.kind, self.prompts, TokenisedTexts(ys, self.prompts.lm.wording))
        texts = self.spelt_texts([y for y, reason in zip(ys, reasons, strict=True) if reason is None])
        counts = Counter(texts[fact.y] for fact in relation.train if fact.y in texts)
        if not counts:
            raise UsageError(f"no train y of {relation.name} can be an answer")
        total = counts.total()
        answers = tuple(
            FoundAnswer(text, math.log(count / total), torch.empty(0)) for text, count in counts.most_common()
        )
        found = FoundAnswers(answers, is_exact=True)
        return OpenPrior(f"how often each y occurs in {total} train facts", self, found)

    def _prior(
        self,
        description: str,
        xs: Words,
        rows: Int[Tensor, " xs"],
        log_weights: Float[Tensor, " prompts"] | None = None,
    ) -> "OpenPrior":
        """Return the answers that are most probable as the mean over these x's."""
        # With too few prefixes, a prior would seem to give any y.
        limits = {"answers": _BEST_OF_PRIOR, "at_once": _AT_ONCE_FOR_THE_BEST} if self.best_only else {}
        search = self._search(**{"answers": _PRIOR_ANSWERS, **limits})
        (found,) = search.best(xs, rows[None], log_weights=log_weights)

        known: dict[str, float] = {}

        def log_means(ys: Sequence[str]) -> dict[str, float]:
            new = [y for y in ys if y not in known]
            if new and not self.prompts.is_product:
                texts, _, of_xs = self._log_probs_of(new, xs, rows, log_weights)
                known.update(zip(texts, (of_xs.logsumexp(0) - math.log(len(rows))).tolist(), strict=True))
            return known

        return OpenPrior(description, self, found, log_means)


@dataclass(frozen=True)
class OpenPrior(Prior):
    """Strings that are given to every x, with their probabilities."""

    answers: OpenAnswers
    found: FoundAnswers
    """The best of them."""
    log_probabilities: Callable[[Sequence[str]], Mapping[str, float]] = lambda _ys: {}
    """Those of ys that are not among the best, as far as they are possible."""

    def rank(self, facts: Sequence[Fact], golds: Golds, top: int = RANKED) -> list[Ranking]:
        """Return the rankings of facts if these answers are given to all of them."""
        spellings = self.answers.spellings(golds)
        best = {answer.text for answer in self.found.answers}
        others = self.log_probabilities(sorted({fact.y for fact in facts if spellings.text(fact.y) not in best}))
        rankings = []
        for fact in facts:
            ranking = spellings.ranking(fact, others.get(fact.y, -math.inf), self.found, top)
            if not self.found.is_exact and ranking.log_probability == -math.inf:
                # The search was cut, and y may be as probable as the best that was not found.
                at_best = spellings.ranking(fact, self.found.unseen, self.found, 0)
                ranking = replace(ranking, rank=at_best.rank, raw_rank=at_best.raw_rank)
            rankings.append(ranking)
        return rankings


class _Spellings:
    """The right answers of a relation as the LM's tokens spell them; an uncased LM spells them in lower case."""

    def __init__(self, golds: Golds, texts: dict[str, str], match: Match) -> None:
        self._golds, self._texts, self._match = golds, texts, match
        self._own: dict[str, str] = {}  # the relation's own spelling of what the LM's tokens spell
        for y, text in sorted(texts.items()):
            self._own.setdefault(text, y)

    def text(self, y: str) -> str:
        """Return the string that y's tokens spell, which identifies an answer."""
        return self._texts.get(y, y)

    def right(self, fact: Fact, *, without: str | None = None) -> RightAnswers:
        """Return all right answers for a fact's x, including y."""
        return RightAnswers(map(self.text, (*self._golds[fact.x], fact.y)), self._match, without)

    def others(self, fact: Fact) -> RightAnswers:
        """Return the other right answers for a fact's x."""
        return self.right(fact, without=self.text(fact.y))

    def ranking(self, fact: Fact, gold: float, found: FoundAnswers, top: int, ranked: int = RANKED) -> Ranking:
        """Return the ranking of a fact, given what was found, and its log-probability if y is not among that. Only that
        many of the answers that are better than y were searched for."""
        y, others = self.text(fact.y), self.others(fact)
        own = found.log_probability_of(y)
        gold = gold if own is None else own
        if math.isnan(gold) or gold == math.inf:
            raise NotFinite("a probability is not finite, so answers cannot be ranked")
        wrong = [answer for answer in found.answers if answer.text != y]
        raw = _rank(gold, [answer.log_probability for answer in wrong])
        rank = _rank(gold, [answer.log_probability for answer in wrong if answer.text not in others])
        # With enough answers that are as probable as those sought, what was not found does not matter.
        unknown = 0.0 if found.is_exact else found.most_unseen(gold)
        if ranked < min(rank, RANKED):
            unknown = math.inf
        answers = [(self._own.get(answer.text, answer.text), answer.log_probability) for answer in found.answers]
        kept = answers[:top] or [("", -math.inf)][:top]
        return Ranking(
            rank=_capped(rank),
            raw_rank=_capped(raw),
            log_probability=gold,
            answers=tuple(text for text, _ in kept),
            probabilities=tuple(math.exp(log_probability) for _, log_probability in kept),
            rank_at_most=_capped(rank + unknown),
        )


def _rank(gold: float, others: Sequence[float]) -> float:
    if gold == -math.inf:
        return math.inf
    return 1 + sum(other > gold for other in others) + 0.5 * sum(other == gold for other in others)


def _capped(rank: float) -> float:
    return rank if rank <= RANKED else math.inf


def _merged(found: FoundAnswers, others: FoundAnswers) -> FoundAnswers:
    """Add the answers of another search to what one found."""
    answers = {answer.text: answer for answer in (*others.answers, *found.answers)}.values()
    ordered = sorted(answers, key=lambda answer: -answer.log_probability)
    return replace(found, answers=tuple(ordered))


def _entropy(probs: np.ndarray) -> np.ndarray | np.floating:
    """Return the entropy of each column, in nats."""
    return -(probs * np.log(probs, where=probs > 0, out=np.zeros_like(probs))).sum(0)
