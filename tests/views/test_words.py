import json
import math
from dataclasses import replace

import pytest
import torch
from agreement import plain
from builders import tiny
from builders.specs import paper_spec
from hypothesis import given, settings
from hypothesis import strategies as st
from looked_at import TEMPLATES, trained_looking

from askwell.answers.encode import ONE_TOKEN, AnswerKind
from askwell.data.facts import Fact, Relation
from askwell.errors import BadOption, NotFinite
from askwell.evaluation import projection as nearest
from askwell.lms.frozen import FrozenLM
from askwell.mixture.mixture import Mixture
from askwell.specs.mixture_spec import MixtureSpec
from askwell.views.printable import SPACE, visible
from askwell.views.words import BlankPlace, PromptToken, brightness, nearest_words, notes_on_prompt


def softmax_by_hand(mixture: Mixture, vector: list[float]) -> list[float]:
    table = mixture.lm.model.get_input_embeddings().weight.double().tolist()
    logits = [sum(a * b for a, b in zip(row, vector, strict=True)) for row in table]
    highest = max(logits)
    total = sum(math.exp(logit - highest) for logit in logits)
    return [math.exp(logit - highest) / total for logit in logits]


@pytest.mark.parametrize("bytes_at_once", [1, 20_000, 64 * 2**20])
def test_probabilities_are_a_softmax_over_all_words(bert, monkeypatch, bytes_at_once):
    monkeypatch.setattr(nearest, "_BYTES_AT_ONCE", bytes_at_once)
    tokens = {p.template: p.tokens for p in nearest_words(bert, nearest=3)}[TEMPLATES[0]]
    for row, token in enumerate(tokens):  # the first prompt's vectors are the first rows
        p = softmax_by_hand(bert, bert.vectors[row].double().tolist())
        ranked = sorted(range(len(p)), key=lambda number: -p[number])
        told = [token.tuned, *token.next_nearest]
        assert [word.token for word in told] == ranked[:4]
        assert [word.p for word in told] == pytest.approx([p[number] for number in ranked[:4]], rel=1e-4)
        assert token.original.token == bert.prompts[0].token_ids[row]
        assert token.original.p == pytest.approx(p[token.original.token], rel=1e-4)
        lengths = [math.hypot(*vectors[row].tolist()) for vectors in (bert.vectors, bert.initial_vectors)]
        assert token.size_ratio == pytest.approx(lengths[0] / lengths[1], rel=1e-5)


def test_heaviest_prompts_come_first_and_ties_keep_their_order(bert):
    mixture = Mixture(bert.lm, ["[X] is [Y]", "[X] in [Y]", "[X] was [Y]", "[X] from [Y]"], paper_spec())
    with torch.no_grad():
        mixture.weight_logits.copy_(torch.tensor([0.1, 0.4, 0.1, 0.4]).log())
    prompts = nearest_words(mixture)
    assert [prompt.template for prompt in prompts] == ["[X] in [Y]", "[X] from [Y]", "[X] is [Y]", "[X] was [Y]"]
    assert [prompt.weight for prompt in prompts] == pytest.approx([0.4, 0.4, 0.1, 0.1])


def test_items_stand_as_in_the_sentence():
    mixture = trained_looking("bert", templates=["The city of [Y] lies in [X], Reykjavik ."])
    items = nearest_words(mixture)[0].items
    told = [item.shown if isinstance(item, BlankPlace) else item.original.shown for item in items]
    assert told == ["The", "city", "of", "[Y]", "lies", "in", "[X]", ",", "Rey", "‿kja", "‿vik", "."]


def test_byte_level_words_are_read_with_their_spaces():
    mixture = trained_looking("roberta", templates=["[X] (born in [Y]) was é"])
    items = nearest_words(mixture)[0].items
    told = [item.shown if isinstance(item, BlankPlace) else item.original.shown for item in items]
    assert told == ["[X]", "(", "‿b", "‿o", "‿r", "‿n", "in", "[Y]", "‿)", "was", SPACE, r"‿\xc3", r"‿\xa9"]


@pytest.mark.parametrize("name", tiny.TINY)
def test_every_lm_can_be_looked_at(name):
    for prompt in nearest_words(trained_looking(name)):
        assert sum(isinstance(item, BlankPlace) for item in prompt.items) == 2
        for token in prompt.tokens:
            assert 0 <= token.original.p <= token.tuned.p <= 1
            assert all(token.tuned.p >= word.p for word in token.next_nearest)
            assert all(word.text and word.shown for word in (token.original, token.tuned)) or token.tuned.shown == SPACE


def test_causal_prompts_are_cut_after_y(gpt2):
    cut = {prompt.template: prompt for prompt in nearest_words(gpt2)}[TEMPLATES[1]]
    assert isinstance(cut.items[-1], BlankPlace)
    assert cut.items[-1].name == "[Y]"
    assert cut.cut_text == ", and lies in Iceland ."
    assert "Iceland" not in "".join(token.original.text for token in cut.tokens)


def test_the_token_after_y_ends_answers_of_any_length(gpt2):
    assert {prompt.end for prompt in nearest_words(gpt2)} == {""}
    mixture = trained_looking("gpt2", templates=["[X] is in [Y] , and so on", "[X] has [Y] .", "[X] is [Y]"])
    for kind, ends in (
        (ONE_TOKEN, ["", "", ""]),
        (AnswerKind(any_length=True, longest=10), [",", ".", ""]),
    ):
        mixture.answer_kind = kind
        by_template = {prompt.template: prompt.end for prompt in nearest_words(mixture)}
        assert [by_template[prompt.template.text] for prompt in mixture.prompts] == ends


def test_other_prompts_are_not_cut(bert):
    assert {prompt.cut_text for prompt in nearest_words(bert)} == {""}


def test_random_starts_and_copies_are_flagged(bert, gpt2):
    assert all(prompt.original_is_initial and prompt.copy is None for prompt in nearest_words(bert))
    prompts = nearest_words(gpt2)
    assert not any(prompt.original_is_initial for prompt in prompts)
    assert sorted((prompt.template, prompt.copy) for prompt in prompts) == sorted(
        (template, copy) for template in TEMPLATES for copy in (1, 2)
    )
    first = next(prompt for prompt in prompts if (prompt.template, prompt.copy) == (TEMPLATES[0], 1))
    assert [token.original.text for token in first.tokens] == ["was", "born", "in", "the", "city", "of"]


def test_deep_norms_are_means_over_the_tokens_of_one_prompt(bert, deep_bart):
    assert all(prompt.deep_norms == {} for prompt in nearest_words(bert))
    prompts = {prompt.template: prompt for prompt in nearest_words(deep_bart)}
    assert prompts["[X] [Y]"].deep_norms == {}
    rows = deep_bart.pairs.rows[1]
    for stack, layers in (("encoder", 2), ("decoder", 3)):
        by_hand = [
            sum(math.hypot(*deep_bart.deltas[stack][layer][row].tolist()) for row in rows) / len(rows)
            for layer in range(layers)
        ]
        assert prompts[TEMPLATES[1]].deep_norms[stack] == pytest.approx(by_hand, rel=1e-5)
    assert list(prompts[TEMPLATES[1]].deep_norms) == ["encoder", "decoder"]


def test_a_vector_that_started_at_zero_has_no_growth(bert):
    mixture = Mixture(bert.lm, ["[X] is [Y]"], paper_spec())
    mixture.initial_vectors.zero_()
    assert nearest_words(mixture)[0].tokens[0].size_ratio is None
    mixture.vectors.data.zero_()
    assert nearest_words(mixture)[0].tokens[0].size_ratio is None


def test_vectors_that_are_not_finite_are_refused(bert):
    mixture = Mixture(bert.lm, ["[X] is [Y]", "[X] in [Y]"], paper_spec())
    mixture.vectors.data[1, 0] = torch.nan
    with pytest.raises(NotFinite, match=r"\[X\] in \[Y\]"):
        nearest_words(mixture)


def test_half_precision_lms_are_read_in_single_precision():
    model, tokenizer = tiny.make_bert()
    mixture = Mixture(FrozenLM(model, tokenizer, dtype=torch.bfloat16), ["[X] is [Y]"], paper_spec())
    token = nearest_words(mixture)[0].tokens[0]
    p = softmax_by_hand(mixture, mixture.vectors[0].double().tolist())
    assert token.tuned.p == pytest.approx(max(p), rel=1e-4)


def test_a_mixture_without_prompt_tokens_can_be_looked_at(bert):
    (prompt,) = nearest_words(Mixture(bert.lm, ["[X] [Y]"], paper_spec(deep=True)))
    assert (prompt.weight, prompt.tokens) == (1.0, [])


@pytest.mark.parametrize("count", [0, 1, 10_000])
def test_any_number_of_next_words_can_be_asked_for(bert, count):
    token = nearest_words(bert, nearest=count)[0].tokens[0]
    assert len(token.next_nearest) == min(count, bert.lm.word_count - 1)
    if count == 10_000:
        assert token.tuned.p + sum(word.p for word in token.next_nearest) == pytest.approx(1, rel=1e-4)


def test_a_negative_number_of_next_words_is_refused(bert):
    with pytest.raises(BadOption, match="nearest is -1"):
        nearest_words(bert, nearest=-1)


def test_json_tells_everything(deep_bart):
    (plain, *_) = told = json.loads(
        json.dumps([prompt.as_json() for prompt in nearest_words(deep_bart)], allow_nan=False)
    )
    assert len(told) == 3
    assert set(plain) == {
        *("weight", "template", "copy", "copies", "original_is_initial", "cut_text", "items", "deep_norms"),
        *("end", "sentences"),
    }
    token = next(item for prompt in told for item in prompt["items"] if item["kind"] == "token")
    assert set(token) == {"kind", "original", "tuned", "size_ratio", "next_nearest"}
    assert set(token["tuned"]) == {"token", "text", "glued", "p", "brightness"}


def test_the_same_word_is_known_by_its_token(bert):
    token = nearest_words(bert)[0].tokens[0]
    assert replace(token, tuned=replace(token.original, text="another spelling")).is_same_word
    assert not replace(token, tuned=replace(token.original, token=token.original.token + 1)).is_same_word
    assert isinstance(token, PromptToken)


def test_brightness_goes_from_chance_to_certainty():
    assert brightness(1.0, 30_000) == 1
    assert brightness(1 / 30_000, 30_000) == pytest.approx(0, abs=1e-12)
    assert brightness(0.0, 30_000) == 0
    assert brightness(0.01, 10_000) == pytest.approx(0.5)
    assert brightness(1.0, 1) == 1


@settings(deadline=None, max_examples=50)
@given(st.text(alphabet=st.characters()))
def test_nothing_invisible_is_left_in_a_word(text):
    shown = visible(text)
    assert shown.strip()
    assert all(char.isprintable() or char in "\u200c\u200d" for char in shown)


def test_words_that_could_not_be_seen_are_written_out():
    assert visible("\n\x1b") == r"\n\x1b"
    assert visible("\u202eabc") == r"\u202eabc"
    assert visible("\u200d") == r"\u200d"
    assert visible("  ") == SPACE * 2
    assert visible("\u0301") == "◌\u0301"
    assert visible("Zürich 東京") == "Zürich 東京"


def test_each_example_and_the_question_begin_a_line() -> None:
    relation = Relation.of("r", [Fact("Paris", "France"), Fact("Rome", "Italy")], [], [Fact("Lima", "Peru")])
    for name in ("bert", "gpt2"):
        spec = MixtureSpec(shots=2, lead_in="The city :", begin="nothing" if name == "gpt2" else "space")
        mixture = Mixture(plain(name), ["[X] is in [Y] ."], spec, relation=relation)
        (prompt,) = nearest_words(mixture)
        in_words = [
            " ".join(item.name if isinstance(item, BlankPlace) else item.original.text for item in line)
            for line in prompt.lines
        ]
        (one, two), stop = mixture.examples[0], "" if name == "gpt2" else " ."
        end = " . \n" if name == "gpt2" else " ."
        assert in_words[0].replace("T h e", "The") == f"The city : {one.x} is in {one.y}{end}"
        assert in_words[1:] == [f"{two.x} is in {two.y}{end}", f"[X] is in [Y]{stop}"]
        assert notes_on_prompt(prompt)[0].startswith("2 examples before the question")
