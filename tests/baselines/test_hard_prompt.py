"""Prompts of given tokens."""

import pytest
from builders.specs import paper_spec
from builders.worlds import frozen
from by_hand import ids_of

from askwell.baselines.hard_prompt import as_text, blank_template, hard_mixture, prompt_of, spelt
from askwell.data.templates import parse_template


@pytest.mark.parametrize("name", ["bert", "roberta", "albert", "gpt2", "llama", "llama-metaspace", "bart"])
def test_room_for_so_many_tokens(name):
    lm = frozen(name)
    for count in (1, 5, 12):
        assert len(prompt_of(lm, blank_template(lm, count)).tokens.between) == count


@pytest.mark.parametrize(
    ("name", "tokens", "text", "reads_back"),
    [
        ("bert", ["lies", "in", "the"], "[X] lies in the [Y] .", True),
        ("bert", ["##vik", "Rey", "##kja"], "[X]vik Reykja [Y] .", True),
        ("bert", ["Rey", "##kja", "l"], "[X] Reykja l [Y] .", True),
        ("bert", ["P", "##a", "##r"], "[X] Par [Y] .", True),
        ("bert", ["t", "##h", "##e"], "[X] the [Y] .", False),  # its text is one token, "the"
        ("roberta", ["Ġlies", "Ġin", "Ġthe"], "[X] lies in the [Y] .", True),
        ("roberta", ["Ġthe", "Cuba", "Ġof"], "[X] theCuba of [Y] .", True),
        ("roberta", ["Ġ", "i", "n"], "[X] in [Y] .", False),
        ("roberta", ["[", "X", "]"], "[X][X] [Y] .", False),  # its text has another blank
    ],
)
def test_text_that_reads_back_as_the_same_tokens_is_the_template(name, tokens, text, reads_back):
    lm = frozen(name)
    shape = prompt_of(lm, blank_template(lm, 3))
    ids = [*ids_of(lm, *tokens), *shape.token_ids[3:]]
    assert spelt(lm, shape, ids) == text
    found = as_text(lm, shape, ids)
    assert (found is not None) == reads_back
    mixture = hard_mixture(lm, shape, ids, paper_spec())
    assert mixture.prompts[0].template == (found or shape.template)
    words = lm.model.get_input_embeddings().weight[ids]
    assert mixture.vectors.tolist() == words.tolist()


def test_words_around_both_blanks():
    lm = frozen("bert")
    shape = prompt_of(lm, parse_template("the capital ([X]) is [Y] ."))
    ids = ids_of(lm, "its", "city", "(", ")", "and", "!")
    assert spelt(lm, shape, ids).replace(" (", "(") == "its city([X] ) and [Y] !"


def test_what_a_causal_lm_does_not_read_stays_as_it_was():
    lm = frozen("llama")
    shape = prompt_of(lm, parse_template("the [X] is [Y] and so on"))
    assert len(shape.token_ids) == 2
    ids = ids_of(lm, "Ġof", "Ġin")
    found = as_text(lm, shape, ids)
    assert found is not None
    assert found.text == "of [X] in [Y] and so on"
