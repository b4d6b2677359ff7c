"""The most probable answers of any length under a mixture, and all that are more probable than a given one.

Prompts that need different forms of a word (" Paris", "Paris") spell the same answer in different tokens. Prompts of
one form are searched together. An answer of the whole mixture gets at least 1/n of its probability from one of n
forms, so searching form by form, with a threshold that is lower by that factor, finds all answers that matter; they
are then scored under all prompts.

How prefixes of answers continue is read for each expert, a prompt with an x. A causal LM or a decoder reads what comes
before y once for each expert and keeps its keys and values; opening a prefix then reads one token, the prefix's last,
after those of all prefixes that it continues. Masked LMs, and LMs without a walk, read the whole sentence for each
prefix.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property

import torch
from jaxtyping import Float, Int
from torch import Tensor

from askwell.answers.likelihood import check_one_form, multiply
from askwell.answers.search import (
    Continuations,
    FoundAnswer,
    FoundAnswers,
    IsCounted,
    Prefix,
    SearchLimits,
    search_answers,
)
from askwell.answers.tree import candidate_log_probs
from askwell.lms.batches import PLACES, AnswerTokens, Words, words_of
from askwell.lms.tokenisation import Place
from askwell.lms.vocabulary import speller
from askwell.lms.walks.past import KeptRows, Past, Paths
from askwell.prompts.long_answers import LongAnswers, bytes_of_cached_token
from askwell.prompts.pairs import Tuned
from askwell.prompts.prompt_set import PromptSet
from askwell.specs.mixture_spec import AnswerKind

# The most bytes that are cached for the sentences of the questions searched at once.
_KEPT_BYTES = 2**29
# A search whose cached sentences outgrow this many bytes reads whole sentences from then on.
_KEPT_BYTES_OF_READER = 2**29
# The most logits held at once, except that those of all experts of one prefix always are.
_LOGITS_AT_ONCE = 2**23


class AnswerSearch:
    """Searches the answers of some prompts in their present state."""

    def __init__(
        self, prompt_set: PromptSet, limits: SearchLimits, kind: AnswerKind, *, only: int | None = None
    ) -> None:
        """Prepare to search; with `only`, the answers of the prompt of that number, as if there were no other."""
        self._prompts, self._limits, self._tuned = prompt_set, limits, prompt_set.tuned
        if only is not None:
            self._tuned = replace(self._tuned, kept=torch.tensor([only], device=prompt_set.lm.device))
        self._known_lengths = kind.log_lengths or (0.0,) if prompt_set.long_answers.fills_masks else ()
        ends = [prompt_set.long_answers.end_of(prompt) for prompt in self._tuned.kept.tolist()]
        # An answer ends at the end token of any of the prompts, so that they all give the same answers.
        self._ends = frozenset(end for end in ends if end is not None) - frozenset(kind.through)
        self._goes_on = not prompt_set.long_answers.fills_masks and not self._ends.issuperset(ends)
        places = prompt_set.pairs.y_places[self._tuned.kept]
        is_product = prompt_set.is_product and only is None
        self._exponents = prompt_set.weights.detach()[self._tuned.kept] if is_product else None
        if self._exponents is not None:
            check_one_form(prompt_set)
        self._forms = {PLACES[number]: self._tuned.kept[places == number] for number in places.unique().tolist()}

    def best(
        self,
        xs: Words,
        questions: Int[Tensor, "questions *xs"],
        counts: IsCounted | None = None,
        log_weights: Float[Tensor, " prompts"] | None = None,
    ) -> list[FoundAnswers]:
        """Return the most probable answers to each question, up to the limit of those that `counts` accepts. A question
        is the number of an x, or those of several, of whose p(y | x, r) the mean is meant. Weights that do not depend
        on x can replace the mixture's."""
        bags = questions[:, None] if questions.dim() == 1 else questions
        found = self._found(xs, bags, None, counts, log_weights)
        if len(self._forms) == 1:
            return found
        # The best answers of each form by itself are a lower bound for those of the mixture.
        least = [self._last_that_counts(number, of.answers, counts) for number, of in enumerate(found)]
        results = []
        for number, of in enumerate(self._found(xs, bags, least, lambda _number, _text: False, log_weights)):
            last = self._last_that_counts(number, of.answers, counts)
            answers = tuple(answer for answer in of.answers if answer.log_probability >= last)
            results.append(replace(of, answers=answers if counts else answers[: self._limits.answers]))
        return results

    def at_least(
        self,
        xs: Words,
        questions: Int[Tensor, " questions"],
        least: Sequence[float],
        counts: IsCounted | None = None,
    ) -> list[FoundAnswers]:
        """Return all answers to each question whose log-probability is at least that given, up to the limit of those
        that `counts` accepts; an answer counts where the prompts of one form give it that much."""
        return [
            replace(of, answers=tuple(a for a in of.answers if a.log_probability >= least[number]))
            for number, of in enumerate(self._found(xs, questions[:, None], least, counts, None))
        ]

    def _last_that_counts(self, number: int, answers: Sequence[FoundAnswer], counts: IsCounted | None) -> float:
        """Return the probability of the last answer within the limit, -inf if there are fewer."""
        counted = [answer for answer in answers if counts is None or counts(number, answer.text)]
        within = len(counted) >= self._limits.answers
        return counted[self._limits.answers - 1].log_probability if within else -math.inf

    def _bags_at_once(self, xs: Words, bags: Int[Tensor, "bags xs"]) -> int:
        """Return how many bags can be searched at once, so that what is cached of their sentences fits into memory."""
        lm, experts = self._prompts.lm, bags.shape[1] * len(self._tuned.kept)
        tokens = int(self._prompts.pairs.longest_question(xs).max()) + self._limits.opened
        return max(1, _KEPT_BYTES // (experts * tokens * bytes_of_cached_token(lm)))

    @torch.no_grad()
    def _found(
        self,
        xs: Words,
        bags: Int[Tensor, "bags xs"],
        sought: Sequence[float] | None,
        counts: IsCounted | None,
        given_weights: Float[Tensor, " prompts"] | None,
    ) -> list[FoundAnswers]:
        if not len(bags):
            return []
        at_once = self._bags_at_once(xs, bags)
        if len(bags) > at_once:
            first = self._found(xs, bags[:at_once], sought and sought[:at_once], counts, given_weights)
            later = counts and (lambda number, text: counts(at_once + number, text))
            return first + self._found(xs, bags[at_once:], sought and sought[at_once:], later, given_weights)
        prompt_set, size = self._prompts, bags.shape[1]
        everyone = bags.flatten()
        weights, log_lengths = self._weights_and_lengths(xs, everyone, given_weights)
        log_weights = weights.double().expand(len(everyone), -1).view(*bags.shape, -1) - math.log(size)
        results: list[list[FoundAnswers]] = [[] for _ in bags]
        # An answer of the whole mixture may get as little as this from the prompts of each form.
        of_form = None if sought is None else [one - math.log(len(self._forms)) for one in sought]
        for place, prompts in self._forms.items():
            texts, experts = bags.repeat_interleave(len(prompts), 1), prompts.repeat(size)
            answers, never = prompt_set.long_answers, sorted(self._ends)
            open_ = PrefixReader(answers, self._tuned, xs, texts, experts, self._exponents, never)
            of_experts = log_weights[..., prompts].flatten(1)
            if self._exponents is not None:  # the prompts of an x are one expert
                of_experts = torch.full_like(of_experts[:, :size], -math.log(size))
            of_lengths = self._lengths(log_lengths, prompts, of_experts)
            roots = [
                [Prefix(number, (), of_bag + log_length[number], length) for length, log_length in of_lengths]
                if not any(self._has_enough(number, result, sought, counts) for result in results[number])
                else []
                for number, of_bag in enumerate(of_experts)
            ]
            found = search_answers(
                roots, open_, self._speller(place), self._limits, least=of_form, sure=sought, counts=counts
            )
            for number, result in enumerate(found):
                results[number].append(result)
        return [
            self._together(
                xs, bag, log_weights[n], results[n], None if log_lengths is None else log_lengths[n * size :]
            )
            for n, bag in enumerate(bags)
        ]

    def _speller(self, place: Place) -> Callable[[tuple[int, ...]], str | None]:
        """Return a function from tokens to the answer that they spell at a place; None if they spell none, or
        one that contains an end token in another form."""
        spelt, encode = speller(self._prompts.lm, place), self._prompts.lm.wording.encode
        others = [other for other in self._forms if other != place]

        def answer(tokens: tuple[int, ...]) -> str | None:
            text = spelt(tokens)
            if text is None or any(self._ends.intersection(encode(text, other)) for other in others):
                return None
            return text

        return answer

    def _has_enough(
        self, number: int, found: FoundAnswers, sought: Sequence[float] | None, counts: IsCounted | None
    ) -> bool:
        """Tell whether the prompts of one form find enough answers, and probable enough ones, without the others."""
        if sought is None:
            return False
        sure = [answer.text for answer in found.answers if answer.log_probability >= sought[number]]
        return sum(counts is None or counts(number, text) for text in sure) >= self._limits.answers

    def _weights_and_lengths(
        self, xs: Words, rows: Int[Tensor, " xs"], given_weights: Float[Tensor, " prompts"] | None
    ) -> tuple[Float[Tensor, "*xs prompts"], Float[Tensor, "xs prompts lengths"] | None]:
        """Return log p(t | r, x), unless it is given, and log p(m | r, x, t) of a masked LM's answers; None for other
        LMs."""
        if given_weights is None:
            weights, found = self._prompts.weights_and_lengths(xs, rows, self._known_lengths)
        else:
            found = self._prompts.log_lengths_for(xs, rows, self._known_lengths, self._tuned)
            weights = given_weights
        return weights, None if found is None else found.expand(len(rows), len(self._prompts.prompts), -1)

    def _lengths(
        self,
        log_lengths: Float[Tensor, "xs prompts lengths"] | None,
        prompts: Int[Tensor, " form"],
        like: Float[Tensor, "bags experts"],
    ) -> list[tuple[int | None, Float[Tensor, "bags #experts"]]]:
        """Return the lengths that answers can have, with the log-probability of each under every expert of each bag:
        since a prefix begins with it, the prefix bounds whatever continues it."""
        if log_lengths is None:
            return [(None, like.new_zeros(len(like), 1))]
        of_form = log_lengths[:, prompts].double().unflatten(0, (len(like), -1))  # bags, xs, prompts, lengths
        if self._exponents is not None:  # the prompts of an x are one expert, and all have p(m | r)
            of_form = of_form[:, :, :1]
        by_length = of_form.flatten(1, 2).unbind(2)
        return [(number + 1, log_p) for number, log_p in enumerate(by_length[: self._limits.tokens])]

    def _together(
        self,
        xs: Words,
        bag: Int[Tensor, " xs"],
        log_weights: Float[Tensor, "xs prompts"],
        results: Sequence[FoundAnswers],
        log_lengths: Float[Tensor, "_ prompts lengths"] | None,
    ) -> FoundAnswers:
        """Combine the answers of all forms, scored under all prompts."""
        is_exact = all(result.is_exact for result in results)
        unseen = float(torch.tensor([result.unseen for result in results], dtype=torch.float64).logsumexp(0))
        # An answer that is probable enough gets at least 1/n of its probability from one of the n forms.
        left = sum(result.left for result in results) * len(results)
        if self._goes_on:  # the probability of an end is then also that of an answer that continues after it
            left *= self._limits.tokens + 1
        found = {answer.text: answer for result in results for answer in result.answers}
        if not found:
            return FoundAnswers((), is_exact, unseen, left)
        kept = self._tuned.kept
        if len(results) == 1 and self._exponents is None:
            joint = torch.stack([answer.parts for answer in found.values()]).view(len(found), len(bag), len(kept))
            of_mixture = torch.tensor([answer.log_probability for answer in found.values()], dtype=torch.float64)
            of_kept = (joint - log_weights[:, kept]).nan_to_num(nan=-torch.inf, neginf=-torch.inf)
            by_x = of_kept.new_full((*of_kept.shape[:2], log_weights.shape[1]), -torch.inf)
            by_x[..., kept] = of_kept
        else:
            ys = words_of(list(found), self._prompts.lm.wording, self._prompts.lm.device)
            lengths = None if log_lengths is None else log_lengths[: len(bag)]
            by_x = candidate_log_probs(self._prompts.long_answers, self._tuned, xs, bag, ys, lengths)
            by_x = by_x.double().movedim(2, 0)
            of_mixture = (by_x + log_weights).flatten(1).logsumexp(1)
            if self._exponents is not None:
                of_mixture = torch.tensor([answer.log_probability for answer in found.values()], dtype=torch.float64)
        by_prompt = by_x.logsumexp(1) - math.log(len(bag))
        texts = list(found)
        order = of_mixture.argsort(descending=True, stable=True).tolist()
        answers = tuple(FoundAnswer(texts[n], float(of_mixture[n]), by_prompt[n]) for n in order)
        return FoundAnswers(answers, is_exact, unseen, left)


class PrefixReader:
    """Opens prefixes of answers to some questions, with the same prompts for all of them. Made for one search."""

    def __init__(
        self,
        answers: LongAnswers,
        tuned: Tuned,
        xs: Words,
        texts: Int[Tensor, "questions experts"],
        prompts: Int[Tensor, " experts"],
        exponents: Float[Tensor, " prompts"] | None = None,
        never: Sequence[int] = (),
    ) -> None:
        """Prepare to read prefixes; in a product, the prompts of each x are multiplied with these exponents into one
        expert. The tokens of `never` continue no prefix, like those that are never part of an answer."""
        self._answers, self._tuned, self._xs, self._texts, self._prompts = answers, tuned, xs, texts, prompts
        self._lm, self._exponents = answers.lm, exponents
        self._never = torch.tensor([*answers.never, *never], dtype=torch.long, device=self._lm.device)
        self._kept: KeptRows | None = None
        self._by_sentences = False
        self._opened: dict[tuple[int, tuple[int, ...]], tuple[Paths, Paths | None]] = {}
        """The cached rows of each prefix that was opened, under each expert, and the encoder's."""
        self._hidden_after: dict[tuple[int, tuple[int, ...]], Float[Tensor, "experts width"]] = {}
        """What the output embedding reads after each of them, for when it is opened again."""

    @torch.no_grad()
    def __call__(self, prefixes: Sequence[Prefix], branches: int) -> Continuations:
        """Return how the prefixes continue, in order."""
        texts = self._texts[[prefix.question for prefix in prefixes]]
        log_joint = torch.stack([prefix.log_joint for prefix in prefixes])
        parts = []
        start = 0
        for logits in self._logits(prefixes, texts):
            some = slice(start, start + len(logits))
            parts.append(self._best(logits, texts[some], log_joint[some], branches))
            start = some.stop
        return Continuations.joined(parts)

    def _best(
        self, logits: Float[Tensor, "prefixes experts vocabulary"], texts: Tensor, log_joint: Tensor, branches: int
    ) -> Continuations:
        prompts = self._prompts.expand(len(texts), -1)
        log_totals = logits.logsumexp(2)
        every = torch.arange(prompts.numel(), device=prompts.device)
        self._answers.reader.refuse_not_finite(every, prompts.flatten(), log_totals.flatten())
        log_end = None
        if not self._answers.fills_masks:
            ends = self._answers.ends_of(self._xs, texts.flatten(), prompts.flatten()).view(*texts.shape, 1)
            log_end = logits.gather(2, ends)[..., 0].double() - log_totals.double()
        if self._exponents is not None:
            shape = (len(logits), -1, len(self._exponents))
            log_probs = (logits - log_totals.unsqueeze(2)).unflatten(1, shape[1:])
            of_ends = None if log_end is None else log_end.view(shape).to(logits.dtype)
            one_end = self._answers.has_one_end
            logits, log_end, log_totals = multiply(log_probs, of_ends, self._exponents, one_end=one_end)
            log_end = None if log_end is None else (log_end - log_totals).double()
        logits.index_fill_(2, self._never, -torch.inf)
        return Continuations.best_of(log_joint, logits, log_totals, log_end, branches)

    def _logits(self, prefixes: Sequence[Prefix], texts: Tensor) -> Iterator[Float[Tensor, "some experts vocabulary"]]:
        """Yield the logits after the prefixes, in batches."""
        experts = len(self._prompts)
        together = max(1, _LOGITS_AT_ONCE // (experts * self._lm.vocabulary_size))
        if not self._keeps(prefixes):
            for start in range(0, len(prefixes), together):
                some = slice(start, start + together)
                yield self._of_sentences(prefixes[some], texts[some]).view(-1, experts, self._lm.vocabulary_size)
            return
        for hidden in self._hidden(prefixes, texts).split(together * experts):
            yield self._lm.head.logits(hidden).view(-1, experts, self._lm.vocabulary_size)

    def _keeps(self, prefixes: Sequence[Prefix]) -> bool:
        """Tell whether the sentences so far can be cached; once they cannot, neither can later, longer ones."""
        if self._by_sentences or self._answers.fills_masks:
            return False
        longest = self._longest_question + max(len(prefix.tokens) for prefix in prefixes)
        rows = 0 if self._kept is None else self._kept.count
        self._by_sentences = not self._lm.can_keep(longest) or rows * self._lm.bytes_of_kept_row > _KEPT_BYTES_OF_READER
        if self._by_sentences:
            self._kept = None
            self._opened.clear()
            self._hidden_after.clear()
        return not self._by_sentences

    @cached_property
    def _longest_question(self) -> int:
        """The most tokens that come before y."""
        prompts = self._prompts.expand(len(self._texts), -1).flatten()
        return int(self._answers.table.lengths(self._xs, self._texts.flatten(), prompts).max())

    # ── whole sentences ───────────────────────────────────────────────────────────────────────────────────────────

    def _of_sentences(self, prefixes: Sequence[Prefix], texts: Tensor) -> Float[Tensor, "pairs vocabulary"]:
        lm, experts = self._lm, len(self._prompts)
        texts, prompts = texts.flatten(), self._prompts.repeat(len(prefixes))
        done = torch.tensor([len(prefix.tokens) for prefix in prefixes], device=lm.device).repeat_interleave(experts)
        whole = [len(prefix.tokens) if prefix.length is None else prefix.length for prefix in prefixes]
        lengths = torch.tensor(whole, device=lm.device).repeat_interleave(experts)
        longest, filler = max(whole), lm.special.mask if self._answers.fills_masks else 0
        padded = [[*prefix.tokens, *[filler] * (longest - len(prefix.tokens))] for prefix in prefixes]
        ids = torch.tensor(padded, dtype=torch.long, device=lm.device).view(len(prefixes), longest)
        ys = AnswerTokens(ids.repeat_interleave(experts, 0), lengths, done, torch.ones_like(done))
        logits = torch.empty(len(texts), lm.vocabulary_size, dtype=lm.parameter_dtype, device=lm.device)
        sentences = self._answers.reader.sentences
        for chosen, batch in sentences(self._tuned, self._answers.table, self._xs, texts, prompts, ys):
            logits[chosen] = lm.logits(batch, self._tuned.vectors, self._tuned.deltas)
        return logits

    # ── cached questions ──────────────────────────────────────────────────────────────────────────────────────────

    def _hidden(self, prefixes: Sequence[Prefix], texts: Tensor) -> Float[Tensor, "pairs width"]:
        """Return what the output embedding reads after each prefix under each expert."""
        names = [(prefix.question, prefix.tokens) for prefix in prefixes]
        fresh = [row for row, name in enumerate(names) if name not in self._hidden_after]
        if fresh:
            of_fresh = [prefixes[row] for row in fresh]
            # A search opens all its questions first, and then only prefixes of their answers.
            is_start = not of_fresh[0].tokens
            hidden = self._read_questions(of_fresh, texts[fresh]) if is_start else self._read_tokens(of_fresh)
            self._hidden_after |= zip([names[row] for row in fresh], hidden.split(len(self._prompts)), strict=True)
            if len(fresh) == len(prefixes):
                return hidden
        return torch.cat([self._hidden_after[name] for name in names])

    def _read_questions(self, prefixes: Sequence[Prefix], texts: Tensor) -> Float[Tensor, "pairs width"]:
        prompts = self._prompts.repeat(len(texts))
        hidden, past = self._answers.beginnings(self._tuned, self._xs, texts.flatten(), prompts)
        self._note(prefixes, past)
        return hidden

    def _read_tokens(self, prefixes: Sequence[Prefix]) -> Float[Tensor, "pairs width"]:
        paths, source = zip(*(self._opened[prefix.question, prefix.tokens[:-1]] for prefix in prefixes), strict=True)
        sources = [each for each in source if each is not None]
        assert self._kept is not None
        past = Past(self._kept, Paths.stacked(paths), Paths.stacked(sources) if sources else None)
        last = torch.tensor([prefix.tokens[-1] for prefix in prefixes], device=self._lm.device)
        batch = self._answers.next_tokens(last.repeat_interleave(len(self._prompts)), past)
        hidden, own = self._lm.hidden_and_kept(batch, self._tuned.vectors, self._tuned.deltas)
        assert own is not None
        self._note(prefixes, past.with_own(own))
        return hidden

    def _note(self, opened: Sequence[Prefix], past: Past) -> None:
        """Cache the rows of opened prefixes, the experts of each in consecutive rows."""
        self._kept = past.kept
        rows = torch.arange(len(opened) * len(self._prompts), device=self._lm.device).split(len(self._prompts))
        for prefix, own in zip(opened, rows, strict=True):
            of_prefix = past.of(own)
            self._opened[prefix.question, prefix.tokens] = (of_prefix.paths, of_prefix.source)
