"""The text of the testbed: always the same, contains the told facts, and gives away none of the withheld ones."""

import json
from collections import Counter, defaultdict

import pytest
import text
from text import ADJECTIVES, ASIDES, NEUTRAL, NOUNS, WORDINGS, entailed

from askwell.data import testbed as world
from askwell.data.facts import Fact

NAMES = world.relation_names()


def holds(sentence: str, name: str) -> bool:
    return f" {name} " in f" {sentence} "


def all_names() -> set[str]:
    facts = {fact for name in NAMES for fact in world.told_facts(name) | world.withheld_facts(name)}
    return {part for fact in facts for part in (fact.x, fact.y)}


@pytest.fixture(scope="module")
def by_word(sentences) -> dict[str, set[str]]:
    """The sentences in which a word stands."""
    index = defaultdict(set)
    for sentence in sentences:
        for word in sentence.split():
            index[word].add(sentence)
    return index


def with_both(by_word: dict[str, set[str]], fact: Fact) -> list[str]:
    """All sentences that hold the fact's x and y: found by their words, then compared as strings."""
    words = [*fact.x.split(), *fact.y.split()]
    fewest = min(words, key=lambda word: len(by_word[word]))
    return [sentence for sentence in by_word[fewest] if holds(sentence, fact.x) and holds(sentence, fact.y)]


def test_the_text_is_the_one_that_the_manifest_records(sentences):
    recorded = json.loads((world.FILES / "manifest.json").read_text())["text"]
    assert recorded == {"seed": 0, "sentences": len(sentences), "sha256": text.text_hash(sentences)}
    assert 45_000 <= len(sentences) <= 65_000


def test_the_same_seed_gives_the_same_text_and_another_seed_another():
    other = text.generate_text(seed=1)
    assert text.generate_text(seed=1) == other
    assert text.text_hash(other) != text.text_hash()


def test_words_and_marks_stand_between_single_spaces(sentences):
    for sentence in sentences:
        assert sentence == " ".join(sentence.split())
        assert sentence.isascii()
        assert sentence.endswith((" .", " ?"))
        assert "[" not in sentence


def test_no_sentence_holds_both_names_of_a_withheld_fact(by_word):
    leaked = {
        (name, fact): found
        for name in NAMES
        for fact in world.withheld_facts(name)
        if (found := with_both(by_word, fact))
    }
    assert leaked == {}


def test_no_withheld_fact_follows_from_told_ones():
    told = {name: world.told_facts(name) for name in NAMES}
    follows = entailed(told)
    assert set(follows) == {
        "capital",
        "continent",
        "country_of_airport",
        "country_of_city",
        "country_of_region",
        "neighbour",
        "state_of_county",
    }
    for name, facts in follows.items():
        assert told[name] <= facts
        assert facts & world.withheld_facts(name) == frozenset()


def test_every_told_fact_stands_in_several_sentences_and_in_several_wordings(by_word):
    for name in NAMES:
        for fact in world.told_facts(name):
            assert len(with_both(by_word, fact)) >= 4, (name, fact)


def test_most_told_facts_are_said_with_x_before_y_at_least_twice(by_word):
    """A causal LM can learn to answer only from such sentences."""
    for name in NAMES:
        for fact in world.told_facts(name):
            found = with_both(by_word, fact)
            first = [each for each in found if f" {each} ".index(f" {fact.x} ") < f" {each} ".rindex(f" {fact.y} ")]
            assert len(first) >= 2, (name, fact)


def test_all_names_of_withheld_facts_stand_in_the_text(by_word):
    for name in NAMES:
        for fact in world.withheld_facts(name):
            for part in (fact.x, fact.y):
                found = [each for each in by_word[part.split()[0]] if holds(each, part)]
                assert len(found) >= 2, (name, part)


def test_neutral_sentences_tell_no_fact():
    """They have one blank, and none of their own words is a name."""
    for kind, lines in NEUTRAL.items():
        assert len(lines) == len(set(lines))
        for line in lines:
            assert line.count("[E]") == 1, kind
    names = {
        part
        for name in NAMES
        for fact in world.told_facts(name) | world.withheld_facts(name)
        for part in (fact.x, fact.y)
    }
    words = {word for lines in NEUTRAL.values() for line in lines for word in line.split()}
    assert words & names == set()


@pytest.mark.parametrize("name", NAMES)
def test_asides_are_said_of_every_x_and_tell_nothing(name, by_word):
    """They have one blank for x, and none of their own words is a name."""
    names = {
        part
        for each in NAMES
        for fact in world.told_facts(each) | world.withheld_facts(each)
        for part in (fact.x, fact.y)
    }
    words = {word for line in ASIDES[name] for word in line.split()} | {*ADJECTIVES, *NOUNS}
    assert words & names == set()
    for line in ASIDES[name]:
        assert line.count("[E]") == 1
        assert line.count("[A]") + line.count("[N]") == 1
    fewest = {"country_of_airport", "country_of_city", "country_of_region", "state_of_county"}
    for fact in sorted(world.told_facts(name) | world.withheld_facts(name))[::20]:
        filled = {line.replace("[E]", fact.x) for line in ASIDES[name]}
        filled = {
            line.replace("[A]", one).replace("[N]", other)
            for line in filled
            for one, other in zip(ADJECTIVES, NOUNS, strict=True)
        }
        said = filled & by_word[fact.x.split()[0]]
        assert len(said) >= (1 if name in fewest else 3), fact


@pytest.mark.parametrize("name", NAMES)
def test_no_aside_is_a_prompt_written_by_hand(name):
    for kind in ("single", "paraphrased"):
        for template in world.testbed_prompts(kind, name):
            before, after = (template.text.replace("[X]", "[E]").split("[Y]")[side] for side in (0, 1))
            for line in ASIDES[name]:
                middle = line.removeprefix(before).removesuffix(after) if line.startswith(before) else line
                assert not (line.endswith(after) and middle in ("[A]", "[N]")), (template.text, line)


@pytest.mark.parametrize("name", NAMES)
def test_wordings_are_many_in_both_orders_and_say_no_name(name):
    wordings = WORDINGS[name]
    assert 15 <= len(wordings) == len(set(wordings)) <= 25
    x_first = sum(line.index("[X]") < line.index("[Y]") for line in wordings)
    assert x_first > len(wordings) / 2
    if name != "neighbour":  # a sentence on (x, y) is one on (y, x) as well: both orders are there anyway
        assert x_first < len(wordings)
    names = {
        part
        for each in NAMES
        for fact in world.told_facts(each) | world.withheld_facts(each)
        for part in (fact.x, fact.y)
    }
    for line in wordings:
        assert line.count("[X]") == line.count("[Y]") == 1
        assert not set(line.split()) & names


def test_wordings_are_shared_and_ambiguous_as_those_of_people():
    shared = Counter(line for lines in WORDINGS.values() for line in lines)
    assert sum(count > 1 for count in shared.values()) >= 8
    assert shared["[X] : [Y] ."] == len(WORDINGS)
