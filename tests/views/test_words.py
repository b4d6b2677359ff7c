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

from askwell.data.facts import Fact, Relation
from askwell.errors import BadOption, NotFinite
from askwell.evaluation import projection as nearest
from askwell.lms.frozen import FrozenLM
from askwell.mixture.mixture import Mixture
from askwell.specs.mixture_spec import ONE_TOKEN, AnswerKind, MixtureSpec
from askwell.training import optimiser
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


def test_moves_are_in_spreads_of_what_each_layer_puts_out(bert, deep_bart, monkeypatch):
    assert all(prompt.moved_layers == {} for prompt in nearest_words(bert))
    scales = {"encoder": [0.5, 2.0], "decoder": [1.0, 4.0, 0.25]}
    monkeypatch.setattr(optimiser, "hidden_scales", lambda *_: scales)
    prompts = {prompt.template: prompt for prompt in nearest_words(deep_bart)}
    assert prompts["[X] [Y]"].moved_layers == {}
    rows, width = deep_bart.pairs.rows[1], deep_bart.deltas["encoder"][0].shape[1]
    for stack, of_stack in scales.items():
        by_hand = [
            sum(math.hypot(*deep_bart.deltas[stack][layer][row].tolist()) for row in rows) / len(rows)
            / scale / math.sqrt(width)
            for layer, scale in enumerate(of_stack)
        ]  # fmt: skip
        assert prompts[TEMPLATES[1]].moved_layers[stack] == pytest.approx(by_hand, rel=1e-5)
    assert list(prompts[TEMPLATES[1]].moved_layers) == ["encoder", "decoder"]
    table = deep_bart.lm.model.get_input_embeddings().weight.double()
    spread = math.sqrt(table.shape[1]) * float(table.std(0).mean())
    moved = (deep_bart.vectors - deep_bart.initial_vectors)[list(rows)].double().norm(dim=1) / spread
    assert [token.moved for token in prompts[TEMPLATES[1]].tokens] == pytest.approx(moved.tolist(), rel=1e-4)


def test_a_vector_that_was_not_tuned_shows_its_own_word(bert):
    mixture = Mixture(bert.lm, TEMPLATES, paper_spec())
    every = torch.arange(bert.lm.word_count)
    products = bert.lm.word_vectors(every) @ mixture.vectors.detach().T
    assert any(int(of_vector.argmax()) not in bert.lm.tokenizer.all_special_ids for of_vector in products.T)
    for prompt in nearest_words(mixture):
        for token in prompt.tokens:
            assert (token.tuned, token.is_near, token.moved) == (token.original, True, 0.0)
            assert token.original not in token.next_nearest
            assert len(token.next_nearest) == 3


def test_a_word_is_near_only_if_it_is_probable_and_more_so_than_under_the_vectors_of_other_words():
    """Vectors of one's own making: a word among 400 whose vectors are the axes of their own space, and a "hub" that is
    long, and so the most probable word under every vector."""
    model, tokenizer = tiny.make_bert()
    lm = FrozenLM(model, tokenizer)
    count, width = lm.word_count, lm.word_vectors(torch.arange(1)).shape[1]
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        table = torch.nn.functional.normalize(torch.randn(count, width, generator=generator), dim=1)
        table[:, 0] = 1.0
        hub = 17
        table[hub] = 0.0
        table[hub, 0] = 30.0
        lm.model.get_input_embeddings().weight.copy_(table)
    mixture = Mixture(lm, ["[X] is [Y]"], paper_spec())

    def seen(vector: torch.Tensor) -> tuple[int, bool]:
        with torch.no_grad():
            mixture.vectors.copy_(vector[None])
        (token,) = nearest_words(mixture)[0].tokens
        return token.tuned.token, token.is_near

    target = 23
    alone = table[target].clone()
    alone[0] = 0.0  # the hub gains nothing from it
    assert seen(40 * alone) == (target, True)
    assert seen(0.1 * alone) == (target, False), "hardly above chance"
    assert seen(table[target]) == (hub, False), "as probable under the vector of every word"


def test_what_is_lost_without_a_vector_is_what_the_mixture_with_it_untuned_answers(deep_bart):
    facts = [Fact("Paris", "France"), Fact("Rome", "Italy"), Fact("Lima", "Peru")]
    xs, ys = [fact.x for fact in facts], [fact.y for fact in facts]
    before = {name: value.clone() for name, value in deep_bart.state_dict().items()}
    prompts = nearest_words(deep_bart, facts=facts)
    assert all(torch.equal(before[name], value) for name, value in deep_bart.state_dict().items())

    def mean(at_start: list[int]) -> float:
        other = Mixture(deep_bart.lm, [prompt.template for prompt in deep_bart.prompts], deep_bart.spec)
        state = {name: value.clone() for name, value in before.items()}
        for name, value in state.items():
            if name == "vectors" or name.startswith("deltas"):
                value[at_start] = other.state_dict()[name][at_start]
        other.load_state_dict(state)
        return float(other(xs, ys).detach().mean())

    tuned = mean([])
    number = 1
    rows = list(deep_bart.pairs.rows[number])
    (shown,) = [prompt for prompt in prompts if prompt.template == TEMPLATES[number]]
    assert (shown.facts, shown.log_probability) == (3, pytest.approx(tuned, rel=1e-5))
    assert shown.change == pytest.approx(mean(rows) - tuned, abs=1e-4)
    for row, token in zip(rows, shown.tokens, strict=True):
        assert token.change == pytest.approx(mean([row]) - tuned, abs=1e-4)
    assert any(abs(token.change or 0.0) > 0.01 for token in shown.tokens)


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
    mixture.vectors.data += 0.5
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
        *("weight", "template", "copy", "copies", "original_is_initial", "cut_text", "items"),
        *("end", "sentences", "facts", "log_probability", "change"),
    }
    token = next(item for prompt in told for item in prompt["items"] if item["kind"] == "token")
    assert set(token) == {
        *("kind", "original", "tuned", "size_ratio", "next_nearest", "is_near", "moved", "layers", "change"),
    }
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
