"""The prompts of the testbed: enough of each kind, and none of the hand-written ones in the text."""

import json
from collections import defaultdict

import pytest
from miner import mine
from text import WORDINGS

from askwell.data import testbed as world

NAMES = world.relation_names()
BY_HAND = ("single", "paraphrased")


@pytest.mark.parametrize("name", NAMES)
def test_there_are_enough_prompts_also_for_causal_lms(name):
    counts = {}
    for kind in ("single", "paraphrased", "mined"):
        templates = world.testbed_prompts(kind, name)
        assert len({template.text for template in templates}) == len(templates)
        counts[kind] = (len(templates), sum(template.x_first for template in templates))
    assert counts["single"] == (1, 1)
    assert counts["paraphrased"][0] >= 8
    assert counts["paraphrased"][1] >= 5
    assert counts["mined"][0] >= 12
    assert counts["mined"][1] >= 6


@pytest.mark.parametrize("name", NAMES)
def test_random_prompts_keep_the_places_of_the_mined_ones_and_none_of_their_words(name, sentences):
    mined = [template.text.split() for template in world.testbed_prompts("mined", name)]
    random = [template.text.split() for template in world.testbed_prompts("random", name)]
    known = {word for sentence in sentences for word in sentence.split()}
    assert len(random) >= 12
    kept = 0
    for words in random:
        shapes = [[word if not word.isalpha() else "" for word in each] for each in mined]
        assert [word if not word.isalpha() else "" for word in words] in shapes
        assert {word for word in words if word.isalpha()} <= known
        kept += words in mined
    assert kept <= 4  # those without words, such as "[X] : [Y] ."


@pytest.mark.parametrize("name", NAMES)
def test_the_answer_mostly_ends_the_prompt(name):
    templates = [template for kind in ("single", "paraphrased") for template in world.testbed_prompts(kind, name)]
    assert sum(template.after == " ." for template in templates) >= 0.8 * len(templates)


def test_no_manual_or_paraphrased_prompt_is_a_wording_or_stands_in_one():
    wordings = [f" {line.casefold()} " for lines in WORDINGS.values() for line in lines]
    for name in NAMES:
        for kind in BY_HAND:
            for template in world.testbed_prompts(kind, name):
                bare = template.text.removesuffix(" .").casefold()
                assert not [line for line in wordings if f" {bare} " in line], template.text


def test_no_sentence_is_a_manual_or_paraphrased_prompt_filled_with_a_fact(sentences):
    """Not even a part of a sentence, and not with capitals changed."""
    assert filled_prompts(sentences) == []


def test_a_filled_prompt_would_be_found_wherever_it_stands():
    template = world.testbed_prompts("single", "capital")[0].text.replace("[X]", "Peru").replace("[Y]", "Lima")
    for sentence in (template, f"as we know , {template.upper()}", f"{template.removesuffix(' .')} , and more ."):
        assert filled_prompts(["Peru : Lima .", sentence]) == [sentence.casefold()]


def filled_prompts(sentences: list[str]) -> list[str]:
    """The sentences in which a prompt written by hand stands word for word, filled with a fact."""
    by_word = defaultdict(set)
    for sentence in sentences:
        for word in sentence.casefold().split():
            by_word[word].add(f" {sentence.casefold()} ")
    found = set()
    for name in NAMES:
        relation = world.testbed_relation(name)
        prompts = [
            template.text.removesuffix(" .") for kind in BY_HAND for template in world.testbed_prompts(kind, name)
        ]
        for fact in (*relation.train, *relation.dev, *relation.test):
            words = f"{fact.x} {fact.y}".casefold().split()
            rarest = min((by_word.get(word, set()) for word in words), key=len)
            near = [sentence for sentence in rarest if all(word in sentence for word in words)]
            for prompt in prompts if near else ():
                filled = f" {prompt.replace('[X]', fact.x).replace('[Y]', fact.y)} ".casefold()
                found.update(sentence.strip() for sentence in near if filled in sentence)
    return sorted(found)


def test_hand_written_prompts_use_words_of_the_text(sentences):
    """A word that an LM never read would be no word to it."""
    words = {word for sentence in sentences for word in sentence.split()} | {"[X]", "[Y]"}
    for name in NAMES:
        for kind in BY_HAND:
            for template in world.testbed_prompts(kind, name):
                assert set(template.text.split()) <= words


@pytest.mark.parametrize("name", NAMES)
def test_mined_prompts_say_that_they_are_in_the_text_and_carry_weights(name, sentences):
    lines = world.FILES.joinpath("prompts", "mined", f"{name}.jsonl").read_text().splitlines()
    records = [json.loads(line) for line in lines]
    assert all(record["in_text"] for record in records)
    weights = [template.weight or 0 for template in world.testbed_prompts("mined", name)]
    assert weights == sorted(weights, reverse=True)
    assert sum(weights) == pytest.approx(1, abs=1e-4)
    told = world.told_facts(name)
    for template in world.testbed_prompts("mined", name)[:3]:
        filled = {template.text.replace("[X]", fact.x).replace("[Y]", fact.y) for fact in told}
        assert not filled.isdisjoint(sentences)


def test_the_shipped_prompts_are_what_the_miner_finds(sentences):
    shipped = [(template.text, template.weight) for template in world.testbed_prompts("mined", "symbol")]
    mined = mine(sentences, world.told_facts("symbol"), keep=len(shipped))
    assert [(each.template, round(each.weight, 6)) for each in mined] == shipped
