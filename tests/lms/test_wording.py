"""Prompts, x's and y's are written as they are in the sentence; the expected tokens are written by hand."""

import functools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from builders import tiny
from builders.specs import paper_spec
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, normalizers
from transformers import BertTokenizer, PreTrainedTokenizerBase, PreTrainedTokenizerFast

from askwell.data.facts import Fact
from askwell.data.names import load_prompts
from askwell.data.templates import Template, parse_template
from askwell.errors import LMUnavailable
from askwell.lms.batches import PLACES, QuestionTable, TokenisedTexts, words_of
from askwell.lms.frozen import FrozenLM
from askwell.lms.tokenisation import Place, PromptTokens, Wording, tokenise
from askwell.mixture.mixture import Mixture

WORDPIECE, ALBERT, METASPACE = "bert", "albert", "llama-metaspace"
BYTE_LEVEL = ["roberta", "bart", "modernbert", "gpt2", "llama"]
ONE_OF_EACH = [WORDPIECE, ALBERT, METASPACE, *BYTE_LEVEL]
SPACED, GLUED = Place.SPACED, Place.GLUED


@functools.cache
def lm(name: str) -> FrozenLM:
    return FrozenLM(*tiny.TINY[name]())


def wording(name: str) -> Wording:
    return lm(name).wording


def names(tokenizer: Any, ids: list[int] | tuple[int, ...]) -> str:
    return " ".join(tokenizer.convert_ids_to_tokens(list(ids)))


def written(name: str, prompt: PromptTokens) -> str:
    """A prompt as one line: its tokens, and its blanks in their places."""
    tokenizer = lm(name).tokenizer
    first, second = ("[X]", "[Y]") if prompt.x_first else ("[Y]", "[X]")
    parts = [names(tokenizer, prompt.before), first, names(tokenizer, prompt.between), second]
    return " ".join(" ".join([*parts, names(tokenizer, prompt.after)]).split())


# Each template in the tokens of WordPiece, byte-level BPE and ALBERT's tokenizer, with the places of x and of y.
# Llama's metaspace writes as byte-level BPE does, with "▁" for "Ġ" and bytes for characters that it lacks.
PROMPTS: dict[str, dict[str, tuple[str, Place, Place]]] = {
    "The capital of [X] is [Y] .": {
        "wordpiece": ("The capital of [X] is [Y] .", SPACED, SPACED),
        "byte-level": ("ĠThe Ġcapital Ġof [X] Ġis [Y] Ġ.", SPACED, SPACED),
        "albert": ("▁the ▁capital ▁of [X] ▁is [Y] ▁.", SPACED, SPACED),
    },
    "[X] was born in [Y].": {
        "wordpiece": ("[X] was born in [Y] .", SPACED, SPACED),
        "byte-level": ("[X] Ġwas Ġborn Ġin [Y] .", SPACED, SPACED),
        "albert": ("[X] ▁was ▁born ▁in [Y] .", SPACED, SPACED),
    },
    "[Y], the capital of [X]": {
        "wordpiece": ("[Y] , the capital of [X]", SPACED, SPACED),
        "byte-level": ("[Y] , Ġthe Ġcapital Ġof [X]", SPACED, SPACED),
        "albert": ("[Y] , ▁the ▁capital ▁of [X]", SPACED, SPACED),
    },
    "[X] [Y]": {
        "wordpiece": ("[X] [Y]", SPACED, SPACED),
        "byte-level": ("[X] [Y]", SPACED, SPACED),
        "albert": ("[X] [Y]", SPACED, SPACED),
    },
    "[Y] [X]": {
        "wordpiece": ("[Y] [X]", SPACED, SPACED),
        "byte-level": ("[Y] [X]", SPACED, SPACED),
        "albert": ("[Y] [X]", SPACED, SPACED),
    },
    "The city ([X]) lies in a city ([Y]).": {
        "wordpiece": ("The city ( [X] ) lies in a city ( [Y] ) .", SPACED, SPACED),
        "byte-level": ("ĠThe Ġcity Ġ( [X] ) Ġlies Ġin Ġa Ġcity Ġ( [Y] ) .", GLUED, GLUED),
        "albert": ("▁the ▁city ▁( [X] ) ▁lies ▁in ▁a ▁city ▁( [Y] ) .", GLUED, GLUED),
    },
    "([Y]) [X]": {
        "wordpiece": ("( [Y] ) [X]", SPACED, SPACED),
        "byte-level": ("Ġ( [Y] ) [X]", SPACED, GLUED),
        "albert": ("▁( [Y] ) [X]", SPACED, GLUED),
    },
    "[X]vik lies in [Y]land !": {
        "wordpiece": ("[X] ##vik lies in [Y] ##land !", SPACED, SPACED),
        "byte-level": ("[X] vik Ġlies Ġin [Y] land Ġ!", SPACED, SPACED),
        "albert": ("[X] vik ▁lies ▁in [Y] land ▁!", SPACED, SPACED),
    },
    "[X]vik, [Y]": {
        "wordpiece": ("[X] ##vik , [Y]", SPACED, SPACED),
        "byte-level": ("[X] vik , [Y]", SPACED, SPACED),
        "albert": ("[X] vik , [Y]", SPACED, SPACED),
    },
    "pre[X] is [Y]": {
        "wordpiece": ("p ##r ##e [X] is [Y]", GLUED, SPACED),
        "byte-level": ("Ġ p r e [X] Ġis [Y]", GLUED, SPACED),
        "albert": ("▁ p r e [X] ▁is [Y]", GLUED, SPACED),
    },
    "[X]'s city is [Y]": {
        "wordpiece": ("[X] ' s city is [Y]", SPACED, SPACED),
        "byte-level": ("[X] ' s Ġcity Ġis [Y]", SPACED, SPACED),
        "albert": ("[X] ' s ▁city ▁is [Y]", SPACED, SPACED),
    },
    "[X]-[Y]": {
        "wordpiece": ("[X] - [Y]", SPACED, SPACED),
        "byte-level": ("[X] - [Y]", SPACED, GLUED),
        "albert": ("[X] - [Y]", SPACED, GLUED),
    },
    "[X][Y]": {
        "wordpiece": ("[X] [Y]", SPACED, GLUED),
        "byte-level": ("[X] [Y]", SPACED, GLUED),
        "albert": ("[X] [Y]", SPACED, GLUED),
    },
    "in\n[X] and\n[Y]": {
        "wordpiece": ("in [X] and [Y]", SPACED, SPACED),
        "byte-level": ("Ġin Ċ [X] Ġand Ċ [Y]", GLUED, GLUED),
        "albert": ("▁in [X] ▁and [Y]", SPACED, SPACED),
    },
    "Reykjavik and [X] : Massachusetts [Y]": {
        "wordpiece": ("Rey ##kja ##vik and [X] : Mass ##achus ##etts [Y]", SPACED, SPACED),
        "byte-level": ("ĠRey kja vik Ġand [X] Ġ: ĠMass achus etts [Y]", SPACED, SPACED),
        "albert": ("▁rey kja vik ▁and [X] ▁: ▁mass achus etts [Y]", SPACED, SPACED),
    },
}


def script(name: str) -> str:
    return {WORDPIECE: "wordpiece", ALBERT: "albert"}.get(name, "byte-level")


def in_script(name: str, tokens: str) -> str:
    return tokens.replace("Ġ", "▁").replace("Ċ", "<0x0A>") if name == METASPACE else tokens


@pytest.mark.parametrize("template", PROMPTS)
@pytest.mark.parametrize("name", ONE_OF_EACH)
def test_templates_become_the_tokens_that_are_written_out(name: str, template: str) -> None:
    expected, x_place, y_place = PROMPTS[template][script(name)]
    prompt = tokenise(parse_template(template), wording(name))
    assert written(name, prompt) == in_script(name, expected)
    assert (prompt.x_place, prompt.y_place) == (x_place, y_place)


TEXTS: dict[str, dict[str, tuple[str, str]]] = {  # spaced, glued
    "Paris": {
        "wordpiece": ("Paris", "##P ##a ##r ##i ##s"),
        "byte-level": ("ĠParis", "Paris"),
        "albert": ("▁paris", "paris"),
    },
    "Mary Cassatt": {
        "wordpiece": ("Mary Cass ##att", "##M ##a ##r ##y Cass ##att"),
        "byte-level": ("ĠMary ĠCass att", "M a r y ĠCass att"),
        "albert": ("▁mary ▁cass att", "m a r y ▁cass att"),
    },
    "vik, Paris": {
        "wordpiece": ("v ##i ##k , Paris", "##vik , Paris"),
        "byte-level": ("Ġ vik , ĠParis", "vik , ĠParis"),
        "albert": ("▁ vik , ▁paris", "vik , ▁paris"),
    },
    "(Paris)": {  # the public tokenizer writes "pre(Paris)" as p ##r ##e ( Paris )
        "wordpiece": ("( Paris )", "( Paris )"),
        "byte-level": ("Ġ( Paris )", "( Paris )"),
        "albert": ("▁( paris )", "( paris )"),
    },
    # What looks like a special token is text.
    "[MASK]": {
        "wordpiece": ("[ M ##A ##S ##K ]", "[ M ##A ##S ##K ]"),
        "byte-level": ("Ġ [ M A S K ]", "[ M A S K ]"),
        "albert": ("▁ [ m a s k ]", "[ m a s k ]"),
    },
    "<s> Paris": {
        "wordpiece": ("< s > Paris", "< s > Paris"),
        "byte-level": ("Ġ < s > ĠParis", "< s > ĠParis"),
        "albert": ("▁ < s > ▁paris", "< s > ▁paris"),
    },
    "<pad>": {
        "wordpiece": ("< p ##a ##d >", "< p ##a ##d >"),
        "byte-level": ("Ġ < p a d >", "< p a d >"),
        "albert": ("▁ < p a d >", "< p a d >"),
    },
    "</s>": {
        "wordpiece": ("< / s >", "< / s >"),
        "byte-level": ("Ġ < / s >", "< / s >"),
        "albert": ("▁ < / s >", "< / s >"),
    },
    "<|end_of_text|>": {
        "wordpiece": ("< | e ##n ##d _ of _ t ##e ##x ##t | >", "< | e ##n ##d _ of _ t ##e ##x ##t | >"),
        "byte-level": ("Ġ < | e n d _ o f _ t e x t | >", "< | e n d _ o f _ t e x t | >"),
        "albert": ("▁ < | e n d _ o f _ t e x t | >", "< | e n d _ o f _ t e x t | >"),
    },
}


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("name", ONE_OF_EACH)
def test_texts_in_their_places(name: str, text: str) -> None:
    spaced, glued = TEXTS[text][script(name)]
    tokenizer = lm(name).tokenizer
    assert names(tokenizer, wording(name).encode(text, SPACED)) == in_script(name, spaced)
    assert names(tokenizer, wording(name).encode(text, GLUED)) == in_script(name, glued)


@pytest.mark.parametrize("name", ONE_OF_EACH)
def test_no_text_becomes_a_special_token(name: str) -> None:
    tokenizer = lm(name).tokenizer
    special = set(tokenizer.all_special_ids)
    for token in tokenizer.all_special_tokens:
        for place in Place:
            assert not special & set(wording(name).encode(f"{token} Paris{token}", place)), token


@pytest.mark.parametrize("name", [METASPACE, *BYTE_LEVEL])
def test_every_space_is_kept_where_tokens_spell_spaces(name: str) -> None:
    expected = {
        "[X]  is [Y]": "[X] Ġ Ġis [Y]",
        "[X] is  [Y]": "[X] Ġis Ġ [Y]",
        "[X]  [Y]": "[X] Ġ [Y]",
        "[X]   [Y]": "[X] Ġ Ġ [Y]",
    }
    for template, tokens in expected.items():
        prompt = tokenise(parse_template(template), wording(name))
        assert written(name, prompt) == in_script(name, tokens), template
        assert prompt.y_place is SPACED


def test_one_token_forms() -> None:
    for name in BYTE_LEVEL:
        of, ids = wording(name).single_token, lm(name).tokenizer.convert_tokens_to_ids
        assert (of("Rome", SPACED), of("Rome", GLUED)) == (ids("ĠRome"), ids("Rome"))
        assert (of("Italy", SPACED), of("Italy", GLUED)) == (ids("ĠItaly"), None)
        assert (of("Cuba", SPACED), of("Cuba", GLUED)) == (None, ids("Cuba"))
    of, ids = wording(WORDPIECE).single_token, lm(WORDPIECE).tokenizer.convert_tokens_to_ids
    assert (of("Rome", SPACED), of("vik", GLUED)) == (ids("Rome"), ids("##vik"))
    assert of("é", SPACED) is None, "an unknown token spells nothing"


def test_special_tokens_around_a_sentence() -> None:
    around = {
        "bert": ("[CLS]", "[SEP]"),
        "roberta": ("<s>", "</s>"),
        "bart": ("<s>", "</s>"),
        "modernbert": ("[CLS]", "[SEP]"),
        "albert": ("[CLS]", "[SEP]"),
        "gpt2": ("", ""),
        "llama": ("<|begin_of_text|>", ""),
        "llama-metaspace": ("<s>", ""),
    }
    for name, (before, after) in around.items():
        tokenizer = lm(name).tokenizer
        assert names(tokenizer, wording(name).prefix) == before, name
        assert names(tokenizer, wording(name).suffix) == after, name


def test_the_convention_is_told() -> None:
    assert "##" in wording("bert").convention
    assert "Ġ" in wording("roberta").convention
    assert "▁" in wording("albert").convention
    assert "▁" in wording("llama-metaspace").convention


def test_a_tokenizer_without_backend_is_refused() -> None:
    class Slow(PreTrainedTokenizerBase):
        def __init__(self) -> None:
            pass

    slow = Slow()
    with pytest.raises(LMUnavailable, match=r"Slow.*tokenizer\.json"):
        Wording(slow)


def test_chinese_characters_glued_to_a_blank() -> None:
    """BERT's tokenizer makes every Chinese character a word of its own, whatever stands beside it."""
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "##a", "東", "##東", "京", "##京", "in"]
    tokenizer = BertTokenizer(vocab={token: n for n, token in enumerate(vocabulary)}, do_lower_case=False)
    prompt = tokenise(parse_template("[X]東京 in [Y]京"), Wording(tokenizer))
    assert tokenizer.tokenize("a東京 in a京") == ["a", "東", "京", "in", "a", "京"]
    assert names(tokenizer, prompt.between) == "東 京 in"
    assert names(tokenizer, prompt.after) == "京"


def test_an_uncased_wordpiece_lowers_and_strips_accents() -> None:
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "e", "##e", "t", "##t", ".", "##a"]
    tokenizer = BertTokenizer(vocab={token: n for n, token in enumerate(vocabulary)}, do_lower_case=True)
    prompt = tokenise(parse_template("Été [X]Té. [Y]"), Wording(tokenizer))
    assert names(tokenizer, prompt.before) == "e ##t ##e"
    assert names(tokenizer, prompt.between) == "##t ##e ."


def test_llamas_older_tokenizer_file() -> None:
    """It writes the first space with a normalizer, where newer files have a pre-tokenizer."""
    new = lm(METASPACE).tokenizer
    old = Tokenizer.from_str(new.backend_tokenizer.to_str())
    old.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    old.pre_tokenizer = None
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=old, bos_token="<s>", eos_token="</s>", unk_token="<unk>")
    assert isinstance(old.model, models.BPE)
    older = Wording(tokenizer)
    assert names(tokenizer, older.encode("Paris (Paris)", SPACED)) == "▁Paris ▁( Paris )"
    assert names(tokenizer, older.encode("Paris", GLUED)) == "Paris"
    prompt = tokenise(parse_template("The city ([Y]) lies in [X]vik."), older)
    assert written(METASPACE, prompt) == "▁The ▁city ▁( [Y] ) ▁lies ▁in [X] vik ."
    assert (prompt.x_place, prompt.y_place) == (SPACED, GLUED)


# Properties of all templates

LETTERS = "abcPRSvikon0123é東.,;:!?()-'\"/"
WORD = st.text(LETTERS, min_size=1, max_size=6)
WORDS = st.lists(WORD, max_size=3).map(" ".join)
KNOWN = st.sampled_from(["Paris", "Reykjavik", "Mary Cassatt", "Italy", "vik", "on"])
FILLER = st.one_of(KNOWN, st.lists(WORD, min_size=1, max_size=3).map(" ".join))
STRETCH = st.text(LETTERS + " \n", max_size=12)  # may touch its blanks


@st.composite
def templates(draw: st.DrawFn, stretches: st.SearchStrategy[str] = STRETCH) -> Template:
    first, second = draw(st.sampled_from([("[X]", "[Y]"), ("[Y]", "[X]")]))
    parts = [draw(stretches), first, draw(stretches), second, draw(stretches)]
    return parse_template("".join(parts))


@st.composite
def spaced_templates(draw: st.DrawFn) -> Template:
    """Templates with spaces around both blanks."""
    first, second = draw(st.sampled_from([("[X]", "[Y]"), ("[Y]", "[X]")]))
    parts = [draw(WORDS), first, draw(WORDS), second, draw(WORDS)]
    return parse_template(" ".join(part for part in parts if part))


def filled(template: Template, x: str, y: str) -> str:
    return template.text.replace("[X]", "\0").replace("[Y]", y).replace("\0", x)


def tokens_of(name: str, template: Template, x: str, y: str) -> list[int]:
    """The tokens of a sentence as askwell puts them together."""
    prompt, of = tokenise(template, wording(name)), wording(name).encode
    fillers = [of(x, prompt.x_place), of(y, prompt.y_place)]
    first, second = fillers if prompt.x_first else fillers[::-1]
    return [*prompt.before, *first, *prompt.between, *second, *prompt.after]


@pytest.mark.parametrize("name", BYTE_LEVEL)
@settings(max_examples=60, deadline=None)
@given(template=templates(), x=FILLER, y=FILLER)
def test_the_tokens_spell_the_sentence(name: str, template: Template, x: str, y: str) -> None:
    tokens = lm(name).tokenizer.convert_ids_to_tokens(tokens_of(name, template, x, y))
    assert decoders.ByteLevel().decode(tokens) == " " + filled(template, x, y)


@pytest.mark.parametrize("name", BYTE_LEVEL)
@settings(max_examples=60, deadline=None)
@given(template=templates(), x=FILLER, y=FILLER)
def test_nothing_merges_across_a_blank(name: str, template: Template, x: str, y: str) -> None:
    """Each stretch and each filler spells its own text: a token that crossed a blank would spell of both."""
    prompt, of = tokenise(template, wording(name)), wording(name).encode

    def text(ids: list[int] | tuple[int, ...]) -> str:
        return decoders.ByteLevel().decode(lm(name).tokenizer.convert_ids_to_tokens(list(ids)))

    fillers = [(x, prompt.x_place), (y, prompt.y_place)]
    if not prompt.x_first:
        fillers.reverse()
    spelled = [text(prompt.before), *(text(of(*filler)).removeprefix(" ") for filler in fillers)]
    assert spelled[1:] == [filler for filler, _ in fillers]
    # The space before a filler is the filler's own, the one at the sentence's start is the first word's.
    before, between = template.before, template.between
    takes_space = [place is SPACED for _, place in fillers]
    assert takes_space == [before.endswith(" ") or not before, between.endswith(" ")]
    assert spelled[0] == (" " + before.removesuffix(" ") if before else "")
    assert text(prompt.between) == between.removesuffix(" ")
    assert text(prompt.after) == template.after


@pytest.mark.parametrize("name", [*BYTE_LEVEL, WORDPIECE, ALBERT, METASPACE])
@settings(max_examples=60, deadline=None)
@given(template=spaced_templates(), x=FILLER, y=FILLER)
def test_with_spaces_around_blanks_the_public_tokenizer_agrees(name: str, template: Template, x: str, y: str) -> None:
    sentence = filled(template, x, y)
    text = f" {sentence}" if name in BYTE_LEVEL else sentence
    public: Any = lm(name).tokenizer
    assert tokens_of(name, template, x, y) == public(text, add_special_tokens=False)["input_ids"]


@pytest.mark.parametrize("name", [WORDPIECE, "roberta", ALBERT, METASPACE])
@settings(max_examples=40, deadline=None)
@given(template=templates(), xs=st.lists(FILLER, min_size=2, max_size=4))
def test_the_number_of_prompt_tokens_does_not_depend_on_x(name: str, template: Template, xs: list[str]) -> None:
    asked = lm(name)
    prompt = tokenise(template, asked.wording)
    if name == METASPACE and not prompt.x_first:
        return
    question = asked.family.ask_y(prompt, asked.wording, asked.special)
    mask = asked.tokenizer.mask_token_id
    table = QuestionTable(
        [question], [prompt.x_place], [range(len((*prompt.before, *prompt.between, *prompt.after)))], mask, asked.device
    )
    words = words_of(xs, asked.wording, asked.device)
    facts = torch.arange(len(xs))
    (stream,) = table.batch(words, facts, torch.zeros_like(facts)).streams.values()
    expected = [*prompt.before, *prompt.between, *(() if name == METASPACE else prompt.after)]
    for ids, rows in zip(stream.ids, stream.prompt_tokens, strict=True):
        assert rows[rows >= 0].tolist() == list(range(len(expected)))
        assert ids[rows >= 0].tolist() == expected


# The released prompts


def test_prompts_that_begin_with_y_lose_no_fact(shared_data: Path) -> None:
    folder = shared_data / "prompts" / "trex_mine"
    mined = [template for path in sorted(folder.glob("*.jsonl")) for template in load_prompts(str(path))]
    begin_with_y = [template for template in mined if template.text.startswith("[Y]")]
    assert (len(begin_with_y), len(mined)) == (710, 1166)
    for name in ("roberta", "bart"):
        assert {tokenise(template, wording(name)).y_place for template in begin_with_y} == {SPACED}
    mixture = Mixture(lm("roberta"), begin_with_y[:5], paper_spec())
    facts = [Fact("Paris", y) for y in tiny.SPACED_NAMES + tiny.BOTH]  # SPACED: one token only after a space
    encoded, left_out = mixture.encode(facts)
    assert left_out == []
    assert len(encoded) == len(facts)


AWKWARD = ["Paris", "", " ", "  Paris", "the Paris", "(Paris) is", "Paris(is", "été", "vik", "a\tis", "[MASK] a",
           "北京", "...", "-a is", "a" * 120, "Paris"]  # fmt: skip


@pytest.mark.parametrize("name", ONE_OF_EACH)
@settings(max_examples=25, deadline=None)
@given(drawn=st.lists(st.text(max_size=12), max_size=6))
def test_many_texts_at_once_are_spelt_as_each_alone(name: str, drawn: list[str]) -> None:
    texts, asked = [*AWKWARD, *drawn], wording(name)
    spelt, kept = TokenisedTexts(texts, asked), np.array([3, 0, len(texts) - 1, 4])
    for number, place in enumerate(PLACES):
        alone = [asked.encode(text, place) for text in texts]
        assert asked.encode_all(texts, place) == alone
        assert spelt.lengths[number].tolist() == [len(tokens) for tokens in alone]
        assert spelt.single(place).tolist() == [tokens[0] if len(tokens) == 1 else -1 for tokens in alone]
        for token in {0, asked.unknown_id, *alone[0]} - {None}:
            assert spelt.holds(token, place).tolist() == [token in tokens for tokens in alone]
        for words, expected in (
            (spelt.words(torch.device("cpu")), alone),
            (spelt.words(torch.device("cpu"), kept), [alone[place] for place in kept]),
        ):
            rows = zip(words.ids[number].tolist(), words.lengths[number].tolist(), strict=True)
            assert [ids[:length] for ids, length in rows] == expected
            assert not words.ids[number][torch.arange(words.ids.shape[2]) >= words.lengths[number][:, None]].any()
    assert not spelt.holds(None, PLACES[0]).any()


def test_one_endless_text_takes_no_room_from_the_others() -> None:
    """Padded to the longest, 20,000 texts would take 20,000 × 100,000 numbers."""
    mixture = Mixture(lm(WORDPIECE), ["[X] is [Y] ."])
    facts = [*(Fact("Paris", "France") for _ in range(20_000)), Fact("Paris " * 100_000, "France")]
    encoded, left_out = mixture.encode(facts)
    assert len(encoded) == 20_000
    assert encoded.xs.ids.shape[2] == 1
    assert [one.fact.x[:6] for one in left_out] == ["Paris "]
