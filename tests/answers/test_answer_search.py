"""Searching answers under a mixture finds what scoring every string finds, on tiny LMs of each family."""

import itertools
import math
from dataclasses import replace

import pytest
import torch
from agreement import GLUED_Y, exact, exact_eager_attention, ids, moved, usable, words
from builders import tiny, tiny_walks

from askwell.answers.answer_search import AnswerSearch, PrefixReader
from askwell.answers.search import SearchLimits
from askwell.answers.tree import candidate_log_probs
from askwell.lms.batches import PLACES, Words
from askwell.lms.frozen import FrozenLM
from askwell.lms.vocabulary import speller
from askwell.prompts.long_answers import length_log_probs
from askwell.specs.mixture_spec import AnswerKind, MixtureSpec

LIMITS = SearchLimits(answers=8, opened=100_000, tokens=3, branches=10_000)
SHORT = SearchLimits(answers=5, opened=100_000, tokens=2, branches=10_000)
WHOLE = AnswerKind(any_length=True)


def kind_of(log_lengths: torch.Tensor | None) -> AnswerKind:
    """Answers of any length; those of a masked LM have these log-probabilities of lengths."""
    return WHOLE if log_lengths is None else AnswerKind(any_length=True, log_lengths=tuple(log_lengths.tolist()))


def only(mixture, count: int = 12) -> list[int]:
    """Lets answers be spelled with this many tokens alone, spread over the vocabulary, and gives them."""
    lm = mixture.lm
    whole = {t for p in PLACES for t in range(lm.vocabulary_size) if speller(lm, p)((t,)) is not None}
    kept = sorted(whole)[:: max(1, len(whole) // count)][:count]
    mixture.long_answers.__dict__["never"] = [t for t in range(lm.vocabulary_size) if t not in kept]
    return kept


def only_both(mixture) -> list[int]:
    """The same with the words that are one token in both forms, so that no form of an answer is missing."""
    lm = mixture.lm
    kept = sorted({lm.wording.encode(word, place)[0] for word in tiny.BOTH for place in PLACES})
    mixture.long_answers.__dict__["never"] = [t for t in range(lm.vocabulary_size) if t not in kept]
    return kept


def every_answer(mixture, tokens: list[int], x: str, log_lengths) -> dict[str, float]:
    """log p(y | x, r) of every string of up to three of these tokens, at any place that the prompts need."""
    lm, texts = mixture.lm, {}
    for place in {prompt.tokens.y_place for prompt in mixture.prompts}:
        spelt = speller(lm, place)
        for size in (1, 2, 3):
            for spelling in itertools.product(tokens, repeat=size):
                if (text := spelt(spelling)) is not None:
                    texts[text] = None
    strings = list(texts)
    xs, _ = words(lm, [x])
    ys, every = words(lm, strings)
    same_x = Words(xs.ids.expand(-1, len(strings), -1), xs.lengths.expand(-1, len(strings)))
    with torch.no_grad():
        by_prompt = mixture.long_answers.log_probs(mixture.tuned, same_x, ys, every, log_lengths)
        total = (by_prompt + mixture.weighting(None, 1)).logsumexp(1)
    return dict(zip(strings, total.tolist(), strict=True))


@pytest.mark.parametrize("name", ["bert", "gpt2", "bart"])
def test_the_search_finds_what_enumeration_finds(name):
    lm = exact(name)
    templates = [template for template in usable(name) if template != GLUED_Y][:2]
    mixture = moved(lm, templates)
    log_lengths = length_log_probs([1, 1, 2, 3]) if name == "bert" else None
    expected = every_answer(mixture, only(mixture), "Paris", log_lengths)
    within = {
        text: p for text, p in expected.items() if len(lm.wording.encode(text, mixture.prompts[0].tokens.y_place)) <= 2
    }
    best = sorted(within.items(), key=lambda item: -item[1])
    xs, questions = words(lm, ["Paris"])
    search = AnswerSearch(mixture, LIMITS, kind_of(log_lengths))
    (found,) = search.best(xs, questions)
    assert found.is_exact
    assert [answer.text for answer in found.answers] == [text for text, _ in best[:8]]
    for answer, (_, log_p) in zip(found.answers, best, strict=False):
        assert answer.log_probability == pytest.approx(log_p, abs=1e-9)
    gold = best[5]
    (better,) = search.at_least(xs, questions, [gold[1] - 1e-10])
    assert [answer.text for answer in better.answers] == [text for text, _ in best[:6]]


def test_prompts_that_need_two_forms_count_for_the_same_answer():
    lm = exact("gpt2")
    mixture = moved(lm, [usable("gpt2")[0], GLUED_Y])
    assert len({prompt.tokens.y_place for prompt in mixture.prompts}) == 2
    tokens = only_both(mixture)
    xs, questions = words(lm, ["Rome"])
    (found,) = AnswerSearch(mixture, SearchLimits(answers=4, opened=100_000, tokens=1), WHOLE).best(xs, questions)
    expected = every_answer(mixture, tokens, "Rome", None)
    best = sorted(tiny.BOTH, key=lambda word: -expected[word])[:4]
    assert [answer.text for answer in found.answers] == best
    for answer in found.answers:
        assert answer.log_probability == pytest.approx(expected[answer.text], abs=1e-9)


@pytest.mark.parametrize("name", ["gpt2", "bart", "gemma2"])
def test_kept_beginnings_and_whole_sentences_find_the_same(name, monkeypatch):
    monkeypatch.setattr("transformers.models.gemma2.modeling_gemma2.eager_attention_forward", exact_eager_attention)
    lm = exact(name)
    mixture = moved(lm, usable(name)[:2], MixtureSpec(deep=True))
    only(mixture)
    xs, questions = words(lm, ["Paris", "Mary Cassatt"])
    kept = AnswerSearch(mixture, SHORT, WHOLE).best(xs, questions)
    monkeypatch.setattr("askwell.answers.answer_search._KEPT_BYTES", 1)
    one_by_one = AnswerSearch(mixture, SHORT, WHOLE).best(xs, questions)
    monkeypatch.setattr(lm, "walk", None)
    whole = AnswerSearch(mixture, SHORT, WHOLE).best(xs, questions)
    for others in (one_by_one, whole):
        for of_question, expected in zip(kept, others, strict=True):
            assert [answer.text for answer in of_question.answers] == [answer.text for answer in expected.answers]
            for answer, other in zip(of_question.answers, expected.answers, strict=True):
                assert answer.log_probability == pytest.approx(other.log_probability, abs=1e-9)
                assert answer.parts.tolist() == pytest.approx(other.parts.tolist(), abs=1e-9)


def test_a_search_that_outgrows_a_window(monkeypatch):
    """Questions are kept and go on; where a prefix no longer fits into the window, whole sentences are read."""
    lm = FrozenLM(*tiny_walks.make_gemma3(window=11), dtype=torch.float64)
    mixture = moved(lm, usable("gemma3")[:1])
    only(mixture, 3)
    xs, questions = words(lm, ["Paris", "Mary Cassatt"])
    lengths = mixture.long_answers.table.lengths(xs, questions, torch.zeros_like(questions))
    assert int(lengths.max()) < 11 < int(lengths.max()) + 2
    ways = []
    for name in ("_hidden", "_of_sentences"):
        real = getattr(PrefixReader, name)
        monkeypatch.setattr(PrefixReader, name, lambda *given, real=real, name=name: ways.append(name) or real(*given))
    found = AnswerSearch(mixture, LIMITS, WHOLE).best(xs, questions)
    assert ways[0] == "_hidden"
    assert ways[-1] == "_of_sentences"
    monkeypatch.setattr(lm, "walk", None)
    for of_question, expected in zip(found, AnswerSearch(mixture, LIMITS, WHOLE).best(xs, questions), strict=True):
        assert [answer.text for answer in of_question.answers] == [answer.text for answer in expected.answers]
        for answer, other in zip(of_question.answers, expected.answers, strict=True):
            assert answer.log_probability == pytest.approx(other.log_probability, abs=1e-6)


@pytest.mark.parametrize("forms", [1, 2])
def test_answers_that_do_not_count_do_not_fill_the_limit(forms):
    lm = exact("gpt2")
    mixture = moved(lm, [usable("gpt2")[0], GLUED_Y][:forms])
    only_both(mixture)
    xs, questions = words(lm, ["Paris", "Rome"])
    search = AnswerSearch(mixture, SHORT, WHOLE)
    plain = search.best(xs, questions)
    first = [of.answers[0].text for of in plain]
    counted = search.best(xs, questions, lambda number, text: text != first[number])
    for number, (of, of_plain) in enumerate(zip(counted, plain, strict=True)):
        assert of.answers[0].text == first[number]
        assert len(of.answers) == SHORT.answers + 1
        assert [answer.text for answer in of.answers[:-1]] == [answer.text for answer in of_plain.answers]


@pytest.mark.parametrize("forms", [1, 2])
@pytest.mark.parametrize("name", ["bert", "gpt2"])
def test_the_best_answers_of_bags_are_those_of_the_mean(name, forms):
    lm = exact(name)
    templates = [usable(name)[0], GLUED_Y if forms == 2 else usable(name)[1]]
    mixture = moved(lm, templates, MixtureSpec(weighting="data-dependent"))
    log_lengths = length_log_probs([1, 1, 2]) if name == "bert" else None
    tokens = only_both(mixture)
    names = ["Paris", "Mary Cassatt", "Rome", "Lima"]
    xs, _ = words(lm, names)
    bags = torch.tensor([[0, 1], [2, 3]])
    found = AnswerSearch(mixture, SHORT, kind_of(log_lengths)).best(xs, bags)
    strings = set()
    for place in {prompt.tokens.y_place for prompt in mixture.prompts}:
        spelt = speller(lm, place)
        spellings = itertools.chain(itertools.product(tokens, repeat=1), itertools.product(tokens, repeat=2))
        strings |= {text for spelling in spellings if (text := spelt(spelling)) is not None}
    ys, _ = words(lm, sorted(strings))
    with torch.no_grad():
        weights = mixture.weighting(mixture.log_p_x(xs, torch.arange(len(names))), len(names))
        every = candidate_log_probs(mixture.long_answers, mixture.tuned, xs, torch.arange(len(names)), ys, log_lengths)
    by_x = (every + weights[:, :, None]).logsumexp(1).exp()
    for bag, of in zip(bags, found, strict=True):
        mean = dict(zip(sorted(strings), by_x[bag].mean(0).tolist(), strict=True))
        best = sorted(mean, key=lambda text: -mean[text])[: SHORT.answers]
        assert of.is_exact
        assert [answer.text for answer in of.answers] == best
        for answer in of.answers:
            assert answer.log_probability == pytest.approx(math.log(mean[answer.text]), abs=1e-9)
            of_texts = every[bag][:, :, sorted(strings).index(answer.text)]
            assert answer.parts.tolist() == pytest.approx(of_texts.exp().mean(0).log().tolist(), abs=1e-9)


@pytest.mark.parametrize("through", [(), (".",)])
def test_no_form_of_an_answer_holds_what_ends_it(through):
    """In two forms, "Ġ." and "." end answers; a string is no answer if either form of it holds one of them."""
    lm = exact("gpt2")
    mixture = moved(lm, ["[X] is in [Y] .", "[X] ([Y]."])
    assert len({prompt.tokens.y_place for prompt in mixture.prompts}) == 2
    ends = dict(zip(ids("gpt2", ". Ġ."), (".", "Ġ."), strict=True))
    assert {*mixture.long_answers.end_tokens} == {*ends}
    kept = sorted({*only_both(mixture)[:14], *ends})
    mixture.long_answers.__dict__["never"] = [t for t in range(lm.vocabulary_size) if t not in kept]
    blocked = {end for end, token in ends.items() if token not in through}
    expected = {
        text: log_p
        for text, log_p in every_answer(mixture, kept, "Rome", None).items()
        if not any(blocked & {*lm.wording.encode(text, place)} for place in PLACES)
        and all(len(lm.wording.encode(text, place)) <= 2 for place in PLACES)
        and all({*lm.wording.encode(text, place)} <= {*kept} for place in PLACES)
    }
    best = sorted(expected, key=lambda text: -expected[text])
    xs, questions = words(lm, ["Rome"])
    kind = AnswerKind(any_length=True, through=tuple(end for end, token in ends.items() if token in through))
    limits = SearchLimits(answers=len(best), opened=100_000, tokens=2)
    (found,) = AnswerSearch(mixture, limits, kind).best(xs, questions)
    both = [answer for answer in found.answers if answer.text in expected]
    assert [answer.text for answer in both] == best[: len(both)]
    assert len(both) > 3
    assert any("." in text for text in best) == bool(through)
    for answer in found.answers:
        assert not any(blocked & {*lm.wording.encode(answer.text, place)} for place in PLACES)


@pytest.mark.parametrize("opened", [1, 3, 9, 20, 100_000])
@pytest.mark.parametrize("forms", [1, 2])
@pytest.mark.parametrize("name", ["bert", "gpt2", "bart"])
def test_a_cut_search_bounds_how_many_answers_are_better(name, forms, opened):
    lm = exact(name)
    mixture = moved(lm, [usable(name)[0], GLUED_Y if forms == 2 else usable(name)[1]])
    log_lengths = length_log_probs([1, 1, 2]) if name == "bert" else None
    tokens = only_both(mixture)
    expected = {
        text: p
        for text, p in every_answer(mixture, tokens, "Paris", log_lengths).items()
        if all(len(lm.wording.encode(text, prompt.tokens.y_place)) <= 2 for prompt in mixture.prompts)
    }
    order = sorted(expected, key=lambda text: -expected[text])
    xs, questions = words(lm, ["Paris"])
    search = AnswerSearch(mixture, replace(SHORT, opened=opened, answers=100), kind_of(log_lengths))
    for place in (0, 2, 7):
        gold = expected[order[place]]
        (found,) = search.at_least(xs, questions, [gold + 1e-9])
        better = len(found.answers)
        assert better <= place <= better + (0 if found.is_exact else found.most_unseen(gold))
        assert found.is_exact or opened < 100_000
