"""K and K*, against pairs that are counted one by one."""

import pytest
from agreement import X_FIRST, moved, plain
from builders.outcomes import outcome
from test_labels import KIND_OF, KINDS, RELATION

from askwell.answers.candidates import Candidates
from askwell.data.facts import Fact, Relation
from askwell.evaluation.examine import evaluate_split
from askwell.evaluation.labels import RankedPairs, pairs_together, ranked_pairs
from askwell.evaluation.scoring import together
from askwell.views.scores import evaluation_blocks

WORDS = Candidates("words", ("Rome", "Paris", "Peru", "Egypt", "Italy"))
SEVERAL_GOLDS = Relation.of(
    "r",
    train=[Fact("Oslo", "Rome")],
    dev=[Fact("Lima", "Italy")],
    test=[Fact("Lima", "Peru"), Fact("Lima", "Egypt"), Fact("Oslo", "Paris"), Fact("Boston", "Rome")],
)


@pytest.mark.parametrize("family", ["bert", "gpt2"])
def test_pairs_counted_one_by_one(family: str) -> None:
    mixture = moved(plain(family), X_FIRST)
    evaluation = evaluate_split(mixture, SEVERAL_GOLDS, candidates=WORDS)
    shares, pairs = [], 0
    for fact in SEVERAL_GOLDS.test:
        p = {reply.y: reply.probability for reply in mixture.ask(fact.x, 5, candidates=list(WORDS.words))}
        golds = {"Lima": {"Peru", "Egypt", "Italy"}, "Oslo": {"Paris", "Rome"}, "Boston": {"Rome"}}[fact.x]
        won = [1.0 if p[y] < p[fact.y] else 0.5 if p[y] == p[fact.y] else 0.0 for y in WORDS.words if y not in golds]
        shares.append(sum(won) / len(won))
        pairs += len(won)
    assert pairs == 2 + 2 + 3 + 4
    found = evaluation.ranked_pairs
    assert found is not None
    assert (found.facts, found.pairs) == (4, pairs)
    assert found.share == pytest.approx(25 * sum(shares))
    assert found.all_of_fact == pytest.approx(25 * sum(share == 1 for share in shares))
    assert evaluation.figures().ranked_pairs == found


def test_ties_count_half_and_facts_without_a_wrong_candidate_do_not_count() -> None:
    outcomes = [
        outcome("x1", "a", 1.0),
        outcome("x2", "a", 1.5),  # as probable as one other
        outcome("x3", "b", 3.0),
        outcome("x4", "a", 2.0, golds=("a", "b")),
        outcome("x5", "a", 1.0, golds=("a", "b", "c")),
    ]
    found = ranked_pairs(outcomes, ("a", "b", "c"), {"a": "a", "b": "b", "c": "c"}.get)
    assert found == RankedPairs(4, 2 + 2 + 2 + 1, 43.75, 25.0), "100, 75, 0 and 0 of four facts"
    assert ranked_pairs(outcomes[4:], ("a", "b", "c"), str) is None


def test_labels_of_several_words_are_one_candidate() -> None:
    evaluation = evaluate_split(moved(plain("bert"), X_FIRST), RELATION, candidates=KINDS)
    found = evaluation.ranked_pairs
    assert found is not None
    assert found.pairs == found.facts == len(evaluation.outcomes), "one of the two labels is wrong"
    right = [one.answers[0] == KIND_OF[one.y] for one in evaluation.outcomes]
    assert found.share == found.all_of_fact == pytest.approx(100 * sum(right) / len(right))


def test_several_relations_together_and_in_words() -> None:
    mixture = moved(plain("bert"), X_FIRST)
    one, other = (evaluate_split(mixture, of, candidates=WORDS) for of in (SEVERAL_GOLDS, SEVERAL_GOLDS))
    assert together([one, other]).ranked_pairs == pairs_together([one.ranked_pairs, other.ranked_pairs])
    first, second = RankedPairs(1, 4, 100.0, 100.0), RankedPairs(3, 6, 60.0, 0.0)
    assert pairs_together([first, second]) == RankedPairs(4, 10, 70.0, 25.0)
    assert pairs_together([first, None]) is None
    assert evaluate_split(mixture, SEVERAL_GOLDS).ranked_pairs is None
    assert one.ranked_pairs is not None
    assert f"{one.ranked_pairs.share:.1f} % are ranked correctly" in "".join(map(str, evaluation_blocks(one)))
