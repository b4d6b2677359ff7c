"""The estimate of how many x's are known, against chance computed by going through all x's, and in a world where it is
known which x's are."""

import random
from dataclasses import astuple

import numpy as np
import pytest
from agreement import X_FIRST, moved, plain

from askwell.answers.candidates import Candidates
from askwell.answers.strategy import PromptAnswers
from askwell.data.facts import Fact, Relation
from askwell.evaluation.examine import examine
from askwell.evaluation.knowledge import KnownShare, given_answers, known_share, luck_of, mean_of_runs, without_luck
from askwell.evaluation.trust import trust_of
from askwell.mixture.mixture import Mixture
from askwell.views.to_text import plain_text
from askwell.views.trust_section import known_sentence, trust_of_mixture

XS, YS = 240, 12


def plain_estimate(given, golds):
    """Go through all x's, with every other x's right answers in place of its own."""
    unknown = 0.0
    for number, answers in enumerate(given):
        if not set(answers) & set(golds[number]):
            right = [bool(set(answers) & set(golds[other])) for other in range(len(golds)) if other != number]
            unknown += 1 / (1 - min(sum(right) / len(right), 0.95))
    return min(max(1 - unknown / len(given), 0.0), 1.0)


def world(known: float, prompts: int, seed: int):
    """X's with one of a few ys each; of a known x one prompt gives y, and everything else that is answered is drawn."""
    draw = random.Random(seed)
    golds = [{draw.randrange(YS)} for _ in range(XS)]
    given = [{draw.randrange(YS) for _ in range(prompts)} for _ in range(XS)]
    for number in range(round(known * XS)):
        given[number] |= golds[number]
    return given, golds


@pytest.mark.parametrize("known", [0.0, 0.3, 0.75, 1.0])
@pytest.mark.parametrize("prompts", [1, 5])
def test_in_a_world_where_it_is_known_which_xs_are_known(known: float, prompts: int) -> None:
    found = [known_share(*world(known, prompts, seed)) for seed in range(30)]
    estimates = [one.known for one in found if one is not None]
    assert len(estimates) == 30
    # Cut at 0 and 1, the mean of estimates lies a little inside; a score without correction is far off.
    assert sum(estimates) / 30 == pytest.approx(known, abs=0.03)
    assert sum(one.low <= known <= one.high for one in found if one is not None) >= 26
    answered = sum(one.answered for one in found if one is not None) / 30
    assert answered == pytest.approx(known + (1 - known) * (1 - (1 - 1 / YS) ** prompts), abs=0.03)


def test_the_same_as_going_through_all_xs() -> None:
    for seed in range(5):
        given, golds = world(0.4, 3, seed)
        golds = [of_x | ({seed} if number % 7 == 0 else set()) for number, of_x in enumerate(golds)]
        found = known_share(given, golds)
        assert found is not None
        assert found.known == pytest.approx(plain_estimate(given, golds))


def test_luck_by_hand_and_answers_that_are_right_for_all() -> None:
    assert luck_of([{1}, {1, 2}, {9}], [{1}, {2}, {2, 3}]) == [0.0, 1.0, 0.0]
    found = known_share([{1}, {1}, {2}], [{1}, {1}, {1}])
    assert found is not None
    assert (found.answered, found.luck, found.known) == (2 / 3, 2 / 3, pytest.approx(2 / 3))
    capped = known_share([{1, 2}, {3}, {3}], [{3}, {1}, {2}])
    assert capped is not None
    assert (capped.answered, capped.luck, capped.known) == (0.0, pytest.approx(2 / 3), 0.0)
    assert known_share([{1}], [{1}]) is None


def test_an_interval_is_never_a_point() -> None:
    for is_answered, expected in ((True, (0.973, 1.0, 1.0)), (False, (0.0, 0.0, 0.027))):
        found = without_luck([is_answered] * 100, [0.0] * 100)
        assert (found.low, found.known, found.high) == pytest.approx(expected, abs=0.001)  # about 3 of 100, as by rule


def test_answers_until_they_have_most_of_the_weight() -> None:
    answers = PromptAnswers(
        prompts=(0, 1, 2, 3),
        best=np.array([[5, 6, 5, 7], [1, 2, 3, 4], [8, 8, 8, 8]]),
        of_mixture=np.array([5, 1, 8]),
        weights=np.array([[0.5, 0.2, 0.26, 0.04], [0.96, 0.02, 0.01, 0.01], [4.0, 2.0, 1.0, 1.0]]),
        divergences=np.zeros(3),
    )
    assert given_answers(answers) == [{5, 6}, {1}, {8}]


def test_runs_of_several_seeds() -> None:
    one, other = KnownShare(10, 0.5, 0.1, 0.4, 0.2, 0.6), KnownShare(30, 0.9, 0.3, 0.8, 0.6, 1.0)
    found = mean_of_runs([one, other])
    assert found is not None
    assert astuple(found) == pytest.approx((40, 0.8, 0.25, 0.7, 0.5, 0.9))
    assert mean_of_runs([one, None]) is None
    assert mean_of_runs([]) is None


# From a mixture

NAMES = ["Berlin", "Boston", "Lima", "Oslo", "Paris", "Rome"]
WORDS = Candidates("words", ("Rome", "Paris", "Peru", "Egypt", "Italy", "Norway", "Spain", "city"))


def answers_by_weight(mixture, x: str) -> dict[str, float]:
    """The answers that the prompts give by themselves, the one with the most weight first."""
    found: dict[str, float] = {}
    for reply in next(mixture.answering(WORDS).ask_each_prompt([x])):
        found[reply.y] = found.get(reply.y, 0.0) + reply.weight
    return dict(sorted(found.items(), key=lambda one: -one[1]))


@pytest.mark.parametrize("family", ["bert", "gpt2"])
def test_of_a_mixture_from_what_each_prompt_answers(family: str) -> None:
    mixture = moved(plain(family), X_FIRST)
    by_x = {x: answers_by_weight(mixture, x) for x in NAMES}
    # The second answer to all x's but the last is right, and nothing that is answered to the last.
    golds = {x: [*of_x][1:2] for x, of_x in by_x.items()}
    golds["Rome"] = [next(y for y in WORDS.words if y not in by_x["Rome"])]
    golds["Lima"] = [*golds["Lima"], next(y for y in WORDS.words if y not in golds["Lima"])]
    relation = Relation.of("r", [Fact("Spain", "Rome")], [], [Fact(x, y) for x, ys in golds.items() for y in ys])
    found = trust_of(examine(mixture, relation, candidates=WORDS, controls=False)).known
    given = []
    for of_x in by_x.values():
        before = [sum(list(of_x.values())[:count]) for count in range(len(of_x))]
        given.append({y for y, total in zip(of_x, before, strict=True) if total < 0.95 * sum(of_x.values())})
    expected = plain_estimate(given, list(golds.values()))
    assert found is not None
    assert 0 < expected < 1, "a case in which there is something to tell"
    answered = sum(bool(answers & set(of_x)) for answers, of_x in zip(given, golds.values(), strict=True))
    assert (found.questions, found.answered) == (6, pytest.approx(answered / 6))
    assert found.known == pytest.approx(expected)
    assert f"know an answer to {100 * expected:.1f} % of the 6 x's" in known_sentence(found)


def test_one_prompt_and_answers_that_are_searched_for_have_no_estimate() -> None:
    relation = Relation.of("r", [Fact("Rome", "Italy")], [Fact("Oslo", "Norway")], [Fact("Lima", "Peru")])
    assert trust_of(examine(moved(plain("bert"), X_FIRST[:1]), relation, controls=False)).known is None
    mixture = Mixture(plain("bert"), X_FIRST, answers="any-length")
    assert trust_of(examine(mixture, relation, controls=False)).known is None


def test_the_sentence_stands_in_the_trust_section() -> None:
    pairs = [("Lima", "Peru"), ("Boston", "Italy"), ("Oslo", "Norway")]
    relation = Relation.of("r", [Fact("Rome", "Italy")], [Fact("Paris", "Egypt")], [Fact(x, y) for x, y in pairs])
    found = trust_of(examine(moved(plain("bert"), X_FIRST), relation, controls=False))
    assert found.known is not None
    shown = " ".join(plain_text(trust_of_mixture(found)).split())
    assert known_sentence(found.known) in shown
