"""Which tokens may be triggers, against the names in the vocabularies of the tiny LMs."""

import pytest
from builders.worlds import CAPITALS, REPEATED, frozen

from askwell.baselines.autoprompt import allowed_tokens
from askwell.data.facts import Fact, Relation
from askwell.errors import NothingLeft
from askwell.specs.training_spec import AutoPromptSpec


def names(lm, relation=REPEATED, **settings) -> set[str]:
    allowed = allowed_tokens(lm, relation, AutoPromptSpec(**settings))
    assert len(allowed) == lm.word_count
    return set(lm.tokenizer.convert_ids_to_tokens(allowed.nonzero()[:, 0].tolist()))


@pytest.mark.parametrize("name", ["bert", "roberta", "albert", "modernbert", "gpt2", "llama", "llama-metaspace"])
def test_special_tokens_never_are_and_all_others_are_if_everything_is_allowed(name):
    lm = frozen(name)
    allowed = names(lm, allow_ys=True, allow_proper_nouns=True)
    assert allowed == set(lm.tokenizer.get_vocab()) - set(lm.tokenizer.all_special_tokens)


def test_right_answers_of_any_split_in_any_form():
    lm = frozen("roberta")
    without = names(lm, CAPITALS, allow_ys=True, allow_proper_nouns=True) - names(lm, CAPITALS, allow_proper_nouns=True)
    # Paris and France have a token without the space, too; those of the others are in pieces.
    assert without == {
        "ĠFrance",
        "France",
        "ĠItaly",
        "ĠPeru",
        "ĠNorway",
        "ĠGermany",
        "ĠAustria",
        "ĠSpain",
        "ĠEgypt",
    } | {
        "ĠParis",
        "Paris",
    }
    lower = Relation.of("lower", [Fact("a", "THE")], [Fact("b", "city")], [Fact("c", "of")])
    assert names(lm, lower, allow_ys=True) - names(lm, lower) == {"Ġthe", "Ġcity", "Ġof"}


def test_words_with_a_capital_letter():
    bert = frozen("bert")
    without = names(bert, allow_ys=True, allow_proper_nouns=True) - names(bert, allow_ys=True)
    assert {"Paris", "Mary", "The", "A", "Rey"} <= without
    assert not without & {"the", "vik", "##A", "##vik", "."}
    assert all(name[0].isupper() for name in without)
    roberta = frozen("roberta")
    without = names(roberta, allow_ys=True, allow_proper_nouns=True) - names(roberta, allow_ys=True)
    assert all(name.startswith("Ġ") and name[1].isupper() for name in without)
    assert {"ĠThe", "ĠMary", "ĠRey"} <= without
    assert "Ġ" not in without  # the sign of a space is a capital letter itself


def test_whole_words_only():
    bert = names(frozen("bert"), whole_words=True)
    assert {"the", "lies", "city", ".", "("} <= bert
    assert not any(name.startswith("##") for name in bert)
    roberta = names(frozen("roberta"), whole_words=True)
    assert {"Ġthe", "Ġlies", "Ġ."} <= roberta
    assert all(name.startswith("Ġ") for name in roberta)


def test_no_token_left(monkeypatch):
    lm = frozen("bert")
    monkeypatch.setattr("askwell.baselines.autoprompt.all_special_tokens", lambda lm: set(range(lm.word_count)))
    with pytest.raises(NothingLeft, match=f"no trigger tokens left: {lm.word_count} × a special token"):
        allowed_tokens(lm, REPEATED, AutoPromptSpec())
