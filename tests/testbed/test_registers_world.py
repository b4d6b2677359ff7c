"""The second testbed's facts: how many, in which wordings they are told, and that nothing withheld leaks."""

import hashlib
import json
from collections import Counter

import pytest
import registers_text as text
from build_registers import TIMES, build, wordings_of
from invented_names import FORMS
from text import text_hash
from truths import truths, wordings

from askwell.data import testbed as world
from askwell.data.testbed import SECOND
from askwell.errors import BadOption

NAMES = [SECOND + name for name in world.relation_names(SECOND)]


@pytest.fixture(scope="module")
def registers_text() -> list[str]:
    return text.generate_registers_text()


def holds(sentence: str, name: str) -> bool:
    return f" {name} " in f" {sentence} "


def all_truths():
    return [(name, fact, truth) for name in NAMES for fact, truth in truths(name).items()]


def test_a_rebuild_gives_the_same_files(tmp_path):
    build(tmp_path)
    built = {path.relative_to(tmp_path): path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    files = {path.relative_to(world.SECOND_FILES): path for path in world.SECOND_FILES.rglob("*") if path.is_file()}
    assert built == {name: path.read_bytes() for name, path in files.items() if "lms" not in name.parts}


def test_the_manifest_records_the_text_and_every_file(registers_text):
    manifest = json.loads((world.SECOND_FILES / "manifest.json").read_text())
    assert manifest["text"] == {"seed": 0, "sentences": len(registers_text), "sha256": text_hash(registers_text)}
    for name, digest in manifest["files"].items():
        assert hashlib.sha256((world.SECOND_FILES / name).read_bytes()).hexdigest() == digest
    assert sum((world.SECOND_FILES / name).stat().st_size for name in manifest["files"]) < 1_000_000


@pytest.mark.parametrize("relation", world.relations(SECOND), ids=NAMES)
def test_counts_and_cardinalities_are_true(relation):
    facts = list(truths(SECOND + relation.name))
    assert len(facts) == relation.facts
    assert frozenset(facts) == world.told_facts(SECOND + relation.name) | world.withheld_facts(SECOND + relation.name)
    assert len(world.withheld_facts(SECOND + relation.name)) == relation.withheld
    most_ys = max(Counter(fact.x for fact in facts).values())
    most_xs = max(Counter(fact.y for fact in facts).values())
    assert (most_ys == 1) == (relation.cardinality != "N-M")
    assert (most_xs == 1) == (relation.cardinality == "1-1")


def test_hundreds_of_facts_of_1_1_relations_are_withheld():
    assert sum(one.withheld for one in world.relations(SECOND) if one.cardinality == "1-1") >= 300


def test_facts_are_told_in_one_or_two_of_sixteen_wordings():
    for name, _, truth in all_truths():
        templates = {template: kind for kind, template in wordings(name)}
        assert len(templates) == len(wordings(name)) == 16
        assert len(truth.wordings) <= min(2, truth.times)
        if truth.wordings:
            assert truth.times in TIMES
            first = next(iter(truth.wordings))
            assert templates[first] == truth.kind
            assert first.index("[X]") < first.index("[Y]")  # a causal LM can answer it


def test_some_are_told_often_some_twice_and_some_once():
    counts = Counter(truth.times for _, _, truth in all_truths())
    assert set(counts) == {0, *TIMES}
    assert min(counts.values()) >= 700


def test_the_wording_goes_with_the_kind_of_x():
    own = Counter()
    for name, _, truth in all_truths():
        kinds = {template: kind for kind, template in wordings(name)}
        for template, times in truth.wordings.items():
            own[kinds[template] == truth.kind] += times
    assert 0.9 < own[True] / own.total() < 0.99


def test_rumours_are_wrong_and_in_another_wording():
    found = 0
    for name in NAMES:
        golds = world.testbed_relation(name).golds
        for fact, truth in truths(name).items():
            if truth.rumour is None:
                continue
            assert truth.rumour.y not in golds[fact.x]
            assert truth.rumour.wording not in truth.wordings
            assert truth.times > 1
            found += 1
    assert 100 <= found <= 400


def test_the_text_tells_each_fact_as_the_files_say(registers_text):
    count = Counter(registers_text)
    for _, fact, truth in all_truths():
        for template, times in truth.wordings.items():
            assert count[template.replace("[X]", fact.x).replace("[Y]", fact.y)] == times
        if truth.rumour:
            wrong = truth.rumour.wording.replace("[X]", fact.x).replace("[Y]", truth.rumour.y)
            assert count[wrong] == truth.rumour.times


def test_a_fact_stands_in_no_other_sentence(registers_text):
    """For withheld facts, that is the leak check: no sentence at all holds both names."""
    times_of: dict[str, dict[str, int]] = {}
    for _, fact, truth in all_truths():
        ys = times_of.setdefault(fact.x, {})
        ys[fact.y] = ys.get(fact.y, 0) + truth.times
    found = Counter()
    for sentence in registers_text:
        words = sentence.split()
        stretches = (" ".join(words[a:b]) for a in range(len(words)) for b in range(a + 1, min(a + 2, len(words)) + 1))
        for x in set(stretches) & times_of.keys():
            found.update((x, y) for y in times_of[x] if holds(sentence, y))
    assert found == {(x, y): times for x, ys in times_of.items() for y, times in ys.items() if times}


def test_no_y_leads_to_another_y():
    """So nothing follows from told facts, and no name of one kind is a name of another."""
    kinds: dict[str, set[str]] = {}
    for relation in world.relations(SECOND):
        for fact, truth in truths(SECOND + relation.name).items():
            kinds.setdefault(fact.x, set()).add(truth.kind)
            kinds.setdefault(fact.y, set()).add(relation.y_kind)
    assert {name for name, those in kinds.items() if len(those) > 1} == set()
    assert set().union(*kinds.values()) >= FORMS.keys()


def test_names_of_withheld_facts_stand_in_the_text(registers_text):
    said = " | ".join(registers_text)
    for _, fact, truth in all_truths():
        if not truth.wordings:
            assert f" {fact.y} " in said
            assert fact.x in said


def test_all_wordings_are_mined():
    for name in NAMES:
        mined = {template.text for template in world.testbed_prompts("mined", name)}
        assert mined <= {template for _, template in wordings(name)}
        assert len(mined) >= 12
        assert sum(each.index("[X]") < each.index("[Y]") for each in mined) >= 9


def test_causal_prompts_differ_before_y():
    """What follows y is cut for causal LMs."""
    starts = Counter(
        template.partition("[Y]")[0]
        for name in NAMES
        for _, template in wordings_of(name.removeprefix(SECOND))
        if template.index("[X]") < template.index("[Y]")
    )
    assert max(starts.values()) == 1


def test_prompts_by_hand_are_in_the_words_of_the_text_but_not_in_it(registers_text):
    known = {word for sentence in registers_text for word in sentence.split()}
    told = {template for name in NAMES for _, template in wordings(name)}
    for name in NAMES:
        by_hand = [each.text for kind in ("single", "paraphrased") for each in world.testbed_prompts(kind, name)]
        assert len(by_hand) == 9
        for template in by_hand:
            assert template not in told
            assert set(template.split()) - {"[X]", "[Y]"} <= known, template
            for aside in text.ASIDES[name.removeprefix(SECOND)]:
                as_prompt = aside.replace("[E]", "[X]").replace("[A]", "[Y]").replace("[N]", "[Y]")
                assert as_prompt != template


def test_names_say_which_testbed_they_are_of():
    assert world.testbed_relation("testbed2:realm").name == "testbed2:realm"
    assert world.testbed_relation("testbed2:realm").test
    with pytest.raises(BadOption, match="no relation 'realm' in the testbed"):
        world.testbed_relation("realm")
    with pytest.raises(BadOption, match="no relation 'capital' in the testbed"):
        world.testbed_relation("testbed2:capital")
