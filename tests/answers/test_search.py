"""Best-first search finds what enumeration finds, on random distributions over a vocabulary of five tokens."""

import itertools
import math
import zlib

import pytest
import torch

from askwell.answers.search import Continuations, Prefix, SearchLimits, search_answers

VOCABULARY, PROMPTS, LONGEST = 5, 3, 3


def distribution(seed: int, prompt: int, tokens: tuple[int, ...], length: int | None) -> torch.Tensor:
    """Log-probabilities of the next token (the last entry: that the answer is over), far from uniform."""
    key = zlib.crc32(repr((seed, prompt, tokens, length)).encode())
    draw = torch.randn(VOCABULARY + 1, generator=torch.Generator().manual_seed(key), dtype=torch.float64)
    size = VOCABULARY + 1 if length is None else VOCABULARY
    return (2.5 * draw[:size]).log_softmax(0)


def text_of(tokens: tuple[int, ...]) -> str | None:
    """Two tokens 3 in a row are another spelling of something else."""
    return None if (3, 3) in itertools.pairwise(tokens) else "".join("abcde"[token] for token in tokens)


def opener(seed: int):
    def open_(prefixes, branches):
        each = [[distribution(seed, t, p.tokens, p.length) for t in range(PROMPTS)] for p in prefixes]
        stacked = torch.stack([torch.stack(of_prefix) for of_prefix in each])
        log_end = stacked[..., VOCABULARY] if prefixes[0].length is None else None
        joint = torch.stack([p.log_joint for p in prefixes])
        totals = torch.zeros_like(joint)
        return Continuations.best_of(joint, stacked[..., :VOCABULARY], totals, log_end, branches)

    return open_


def enumerated(seed: int, weights: torch.Tensor, log_lengths: dict[int | None, float]) -> list[tuple[str, float]]:
    """All answers with their log-probabilities, by brute force."""
    found = []
    for size in range(1, LONGEST + 1):
        for tokens in itertools.product(range(VOCABULARY), repeat=size):
            if text_of(tokens) is None:
                continue
            for length, log_length in log_lengths.items():
                if length not in (None, size):
                    continue
                total = 0.0
                for t in range(PROMPTS):
                    log_p = log_length
                    for step, token in enumerate(tokens):
                        log_p += float(distribution(seed, t, tokens[:step], length)[token])
                    if length is None:
                        log_p += float(distribution(seed, t, tokens, None)[VOCABULARY])
                    total += float(weights[t]) * math.exp(log_p)
                found.append((text_of(tokens) or "", math.log(total)))
    return sorted(found, key=lambda answer: -answer[1])


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("lengths", [{None: 0.0}, {1: math.log(0.5), 2: math.log(0.3), 3: math.log(0.2)}])
def test_the_best_answers_and_all_that_are_better_than_one(seed, lengths):
    weights = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
    roots = [[Prefix(0, (), weights.log() + log_p, length) for length, log_p in lengths.items()]]
    expected = enumerated(seed, weights, lengths)
    limits = SearchLimits(answers=7, tokens=LONGEST, opened=10_000)
    (result,) = search_answers(roots, opener(seed), text_of, limits)
    assert result.is_exact
    assert [(a.text, pytest.approx(a.log_probability)) for a in result.answers] == expected[:7]
    for place in (0, 4, 20):
        gold = expected[place]
        many = SearchLimits(answers=100, tokens=LONGEST, opened=10_000)
        (better,) = search_answers(roots, opener(seed), text_of, many, least=[gold[1] - 1e-12])
        assert better.is_exact
        assert [answer.text for answer in better.answers] == [text for text, _ in expected[: place + 1]]


def test_a_search_that_is_cut_off_says_so():
    roots = [[Prefix(0, (), torch.full((PROMPTS,), -math.log(PROMPTS), dtype=torch.float64))]]
    (result,) = search_answers(roots, opener(1), text_of, SearchLimits(answers=40, tokens=LONGEST, opened=3))
    assert not result.is_exact
    assert result.unseen > result.answers[-1].log_probability


@pytest.mark.parametrize("branches", [1, 2])
@pytest.mark.parametrize("lengths", [{None: 0.0}, {1: math.log(0.5), 2: math.log(0.3), 3: math.log(0.2)}])
def test_continuations_that_were_not_kept_are_looked_at_when_it_is_their_turn(branches, lengths):
    weights = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
    roots = [[Prefix(0, (), weights.log() + log_p, length) for length, log_p in lengths.items()]]
    expected = enumerated(1, weights, lengths)
    limits = SearchLimits(answers=40, tokens=LONGEST, opened=10_000, branches=branches)
    (result,) = search_answers(roots, opener(1), text_of, limits)
    assert result.is_exact
    assert [(a.text, pytest.approx(a.log_probability)) for a in result.answers] == expected[:40]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("branches", [2, 64])
def test_what_a_cut_search_leaves_open_bounds_how_many_are_better(seed, branches):
    weights = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
    roots = [[Prefix(0, (), weights.log())]]
    expected = enumerated(seed, weights, {None: 0.0})
    cut = 0
    for opened, place in itertools.product((1, 2, 5, 12, 30), (0, 3, 9, 40)):
        least = expected[place][1]
        limits = SearchLimits(answers=100, tokens=LONGEST, opened=opened, branches=branches, at_once=1)
        (result,) = search_answers(roots, opener(seed), text_of, limits, least=[least + 1e-12])
        found = len(result.answers)
        assert found <= place <= found + result.left / math.exp(least)
        assert not result.is_exact or (found, result.left) == (place, 0)
        cut += not result.is_exact
    assert cut


def test_answers_that_do_not_count_do_not_end_the_search():
    roots = [[Prefix(0, (), torch.full((PROMPTS,), -math.log(PROMPTS), dtype=torch.float64))]]
    limits = SearchLimits(answers=3, tokens=LONGEST, opened=10_000, at_once=1)
    (plain,) = search_answers(roots, opener(2), text_of, limits, least=[-20.0])
    first = plain.answers[0].text
    (result,) = search_answers(
        roots, opener(2), text_of, limits, least=[-20.0], counts=lambda _question, text: text != first
    )
    assert first in [answer.text for answer in result.answers]
    assert sum(answer.text != first for answer in result.answers) >= 3


@pytest.mark.parametrize("opened", [3, 8])
def test_a_sure_answer_of_many_tokens_is_not_lost_among_short_ones(opened):
    """Of nine tokens, each with probability 0.9; whatever else there is has one token."""

    def open_(prefixes, branches):
        logits = torch.full((len(prefixes), 1, VOCABULARY), math.log(0.1 / VOCABULARY), dtype=torch.float64)
        ends = torch.full((len(prefixes), 1), math.log(0.1 / VOCABULARY), dtype=torch.float64)
        for row, prefix in enumerate(prefixes):
            if prefix.tokens == (2,) * len(prefix.tokens):
                (ends[row] if len(prefix.tokens) == 9 else logits[row, :, 2]).fill_(math.log(0.9))
            else:
                ends[row] = math.log(0.9)
        joint = torch.stack([prefix.log_joint for prefix in prefixes])
        return Continuations.best_of(joint, logits, torch.zeros_like(joint), ends, branches)

    limits = SearchLimits(answers=4, tokens=10, opened=opened, at_once=8)
    root = [Prefix(0, (), torch.zeros(1, dtype=torch.float64))]
    (result,) = search_answers([root], open_, lambda tokens: "".join("abcde"[token] for token in tokens), limits)
    assert result.answers[0].text == "c" * 9
    assert result.answers[0].log_probability == pytest.approx(10 * math.log(0.9))
