"""The miner against a count by brute force."""

import re
from collections import Counter
from itertools import product
from random import Random

import pytest
from miner import mine

from askwell.data.facts import Fact

FACTS = [Fact("Peru", "Lima"), Fact("Guinea", "Conakry"), Fact("Equatorial Guinea", "Ciudad Paz"), Fact("Peru", "Sol")]
FORMS = ["{x} has {y} .", "{y} is the city of {x} .", "in {x} : {y} .", "{x} and {x} have {y} .", "{x} , {y} , {y} ."]


def corpus(seed: int) -> list[str]:
    random = Random(seed)
    xs, ys = [fact.x for fact in FACTS], [fact.y for fact in FACTS]
    sentences = [form.format(x=fact.x, y=fact.y) for form, fact in product(FORMS, FACTS)]
    sentences += [random.choice(FORMS).format(x=random.choice(xs), y=random.choice([*ys, "rain"])) for _ in range(60)]
    sentences += ["nothing here .", "Peru .", "Lima is far ."]
    random.shuffle(sentences)
    return sentences


def stretches(sentence: str, longest: int) -> list[tuple[int, int]]:
    """Where words begin and end, as places in the string."""
    words = [match.span() for match in re.finditer(r"\S+", sentence)]
    return [(words[i][0], words[j][1]) for i in range(len(words)) for j in range(i, min(i + longest, len(words)))]


def brute_force(sentences: list[str]) -> tuple[Counter, Counter]:
    """Hits and places of every template, by trying all pairs of stretches that do not overlap."""
    xs, pairs = {fact.x for fact in FACTS}, {(fact.x, fact.y) for fact in FACTS}
    hits, places = Counter(), Counter()
    for sentence in sentences:
        for (a, b), (c, d) in product(stretches(sentence, 2), repeat=2):
            x, y = sentence[a:b], sentence[c:d]
            if x not in xs or max(a, c) < min(b, d):
                continue
            changes = sorted([(a, b, "[X]"), (c, d, "[Y]")], reverse=True)
            template = sentence
            for start, end, blank in changes:
                template = template[:start] + blank + template[end:]
            places[template] += 1
            hits[template] += (x, y) in pairs
    return +hits, places


@pytest.mark.parametrize("seed", range(5))
def test_counts_precisions_and_weights_are_those_of_brute_force(seed):
    sentences = corpus(seed)
    hits, places = brute_force(sentences)
    mined = mine(sentences, FACTS, keep=1000, least=1)
    assert {each.template: each.count for each in mined} == hits
    for each in mined:
        assert each.precision == pytest.approx(hits[each.template] / places[each.template])
    total = sum(count * count / places[template] for template, count in hits.items())
    for each in mined:
        assert each.weight == pytest.approx(hits[each.template] ** 2 / places[each.template] / total)
    assert [each.weight for each in mined] == sorted((each.weight for each in mined), reverse=True)


def test_only_the_heaviest_are_kept_and_rare_ones_left_out():
    sentences = ["Peru has Lima ."] * 5 + ["Peru , Lima ."] * 3 + ["Peru : Lima ."] * 2 + ["Peru ( Lima ) ."]
    kept = [each.template for each in mine(sentences, FACTS, keep=2)]
    assert kept == ["[X] has [Y] .", "[X] , [Y] ."]
    assert [each.template for each in mine(sentences, FACTS, keep=9)] == [*kept, "[X] : [Y] ."]


def test_a_template_that_also_says_other_things_weighs_less():
    sentences = ["Peru has Lima ."] * 4 + ["Peru : Lima ."] * 4 + ["Peru : Rain ."] * 4
    first, second = mine(sentences, FACTS, keep=2)
    assert (first.template, first.precision) == ("[X] has [Y] .", 1)
    assert (second.template, second.precision) == ("[X] : [Y] .", 0.5)
    assert first.weight == pytest.approx(2 / 3)


def test_the_order_of_sentences_and_facts_does_not_matter():
    sentences = corpus(0)
    assert mine(sentences, FACTS, keep=8) == mine(sentences[::-1], FACTS[::-1], keep=8)


def test_nothing_is_mined_from_nothing():
    assert mine([], FACTS, keep=3) == []
    assert mine(["Peru has Lima ."], [], keep=3) == []
