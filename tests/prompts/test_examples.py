"""Examples in the prompt: they agree with the public model on the written-out text, and none is its own question."""

from pathlib import Path
from typing import Literal

import agreement
import pytest
import reference
import torch
from agreement import ALL, CAUSAL, exact, gradients, ids, plain, script, words
from builders import tiny
from builders.specs import paper_spec
from builders.worlds import frozen
from written_out import next_log_probs

from askwell.answers.one_token import OneTokenAnswers
from askwell.data.facts import Fact, Relation
from askwell.errors import BadOption, NothingLeft
from askwell.mixture.mixture import Mixture
from askwell.prompts.context import draw_examples, writable_facts
from askwell.prompts.prompt_set import OWN_EXAMPLE
from askwell.specs.mixture_spec import MixtureSpec
from askwell.specs.training_spec import TrainingSpec
from askwell.training.loop import Objective, train

TRAIN = [
    Fact("Paris", "France"), Fact("Rome", "Italy"), Fact("Lima", "Peru"), Fact("Oslo", "Norway"),
    Fact("Vienna", "Austria"), Fact("Berlin", "Germany"), Fact("Quito", "Peru"),
]  # fmt: skip
DEV = [Fact("Reykjavik", "Norway"), Fact("Mary Cassatt", "France")]
TEST = [Fact("Cuba", "Spain"), Fact("Egypt", "Italy"), Fact("Paris", "Italy")]
RELATION = Relation.of("r", TRAIN, DEV, TEST)
TEMPLATES = ["[X], its capital is [Y] .", "The capital of [X] is [Y] .", "[Y] is the capital of [X] ."]


def usable(name: str) -> list[str]:
    return TEMPLATES[:2] if name in CAUSAL else TEMPLATES


def shot_spec(name: str, shots: int = 2, **options: object) -> MixtureSpec:
    begin = {"begin": "nothing"} if name in CAUSAL else {}
    return paper_spec(shots=shots, **begin, **options)


def written(template: str, fact: Fact) -> str:
    return template.replace("[X]", fact.x).replace("[Y]", fact.y)


def few_shot_text(name: str, template: str, examples: tuple[Fact, ...], x: str) -> tuple[str, str]:
    """The examples and the question, each on a line of its own, up to y and from y on."""
    starts_with_space = name in ("roberta", "modernbert", "bart", "bart-scaled")
    first = " " if starts_with_space else ""
    line = "\n " if starts_with_space or name == "llama-metaspace" else "\n"
    question = template.replace("[X]", x)
    before, after = (first + line.join([*(written(template, fact) for fact in examples), question])).split("[Y]")
    return before.rstrip(" ") if name in CAUSAL else before, after


@pytest.mark.parametrize("name", ALL)
def test_a_hard_few_shot_prompt_is_the_public_model_on_the_written_out_text(name: str) -> None:
    lm = plain(name)
    mixture = Mixture(lm, usable(name), shot_spec(name), relation=RELATION)
    xs = ["Reykjavik", "Mary Cassatt", "Egypt"]
    encoded, facts = words(lm, xs)
    for number, template in enumerate(usable(name)):
        assert len(mixture.examples[number]) == 2
        if template.startswith("[Y]") and script(name) == "byte-level":  # the public mask swallows the line break
            continue
        ours = mixture.word_log_probs(encoded, facts, number)
        for fact, x in enumerate(xs):
            before, after = few_shot_text(name, template, mixture.examples[number], x)
            expected = next_log_probs(name, lm.model, lm.tokenizer, before, after)
            if len(mixture.token_words.places) > 1:
                expected = expected[mixture.token_words.tokens[mixture.pairs.y_places[number]]]
            torch.testing.assert_close(ours[fact], expected, rtol=0, atol=3e-5)


def hand_written(name: str) -> list[reference.Piece]:
    """The example (Rome, Italy) and the question after x, in tokens that are written by hand."""
    sentence = {
        "wordpiece": "The capital of Rome is Italy . The capital of [X] is [Y] .",
        "byte-level": "ĠThe Ġcapital Ġof ĠRome Ġis ĠItaly Ġ. Ċ ĠThe Ġcapital Ġof [X] Ġis [Y] Ġ.",
    }[script(name)]
    if name == "gpt2":
        sentence = sentence.replace("ĠThe", "T h e")
    return reference.written(plain(name).tokenizer, agreement.AROUND[name].format(sentence))


@pytest.mark.parametrize("name", ["bert", "roberta", "bart", "gpt2"])
def test_examples_are_tuned_at_all_layers_as_the_reference_has_it(name: str) -> None:
    lm = exact(name)
    spec = shot_spec(name, shots=1, deep=True)
    mixture = Mixture(lm, [TEMPLATES[1]], spec, examples=[(Fact("Rome", "Italy"),)])
    pieces = hand_written(name)
    count = len(reference.prompt_ids(reference.before(pieces, "y") if name in CAUSAL else pieces))
    assert count == len(mixture.vectors)
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for parameter in mixture.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
    vectors = mixture.vectors.detach().clone().requires_grad_()
    deltas = {stack: torch.stack(of).detach().requires_grad_() for stack, of in mixture.layer_deltas.items()}
    gold, x = ids(name, agreement.YS[script(name)])[0], ids(name, agreement.XS[script(name)]["Reykjavik"][0])
    expected = reference.log_p_y(lm.model, lm.tokenizer, tiny.FAMILY[name], pieces, x, vectors, deltas)[gold]
    expected.backward()
    xs, facts = words(lm, ["Reykjavik"])
    ours = mixture.pairs.gold_log_probs(mixture.tuned, xs, torch.full((2, 1), gold), facts).sum()
    ours.backward()
    torch.testing.assert_close(ours, expected, rtol=0, atol=1e-9)
    found = gradients(mixture)
    torch.testing.assert_close(found["vectors"], vectors.grad, rtol=0, atol=1e-9)
    for stack, leaf in deltas.items():
        assert leaf.grad is not None
        for layer, of_layer in enumerate(leaf.grad):
            torch.testing.assert_close(found[f"deltas.{stack}.{layer}"], of_layer, rtol=0, atol=1e-9)


def test_without_examples_it_is_the_plain_prompt_to_the_bit() -> None:
    for name in ("bert", "bart", "gpt2"):
        begin = Mixture(plain(name), usable(name)).spec.begin
        one = Mixture(plain(name), usable(name), MixtureSpec(begin=begin))
        other = Mixture(plain(name), usable(name), MixtureSpec(begin=begin, lead_in="none", shots=0), relation=RELATION)
        assert [prompt.tokens for prompt in one.prompts] == [prompt.tokens for prompt in other.prompts]
        xs, facts = words(plain(name), ["Paris", "Egypt"])
        assert torch.equal(OneTokenAnswers(one).log_probs(xs, facts), OneTokenAnswers(other).log_probs(xs, facts))


def test_examples_are_train_facts_each_about_another_x() -> None:
    twice = [*TRAIN, Fact("Paris", "Rome"), Fact("Paris", "Spain")]
    for seed in range(20):
        for prompt in range(3):
            drawn = draw_examples(twice, 5, seed, prompt)
            assert len({fact.x for fact in drawn}) == 5
            assert set(drawn) <= set(twice)
            assert drawn == draw_examples(twice, 5, seed, prompt)
    assert len({draw_examples(twice, 3, 0, prompt) for prompt in range(4)}) == 4, "each prompt has its own"
    assert len({draw_examples(twice, 3, 0, 0, draw) for draw in range(4)}) == 4
    assert len(draw_examples(twice, 50, 0, 0)) == 7


def shows(mixture: Mixture, x: str) -> list[bool]:
    return [any(fact.x == x for fact in examples) for examples in mixture.examples]


@pytest.mark.parametrize("weighting", ["static", "data-dependent"])
def test_a_prompt_has_no_weight_for_an_x_that_it_shows(weighting: str) -> None:
    lm = exact("bert")
    spec = shot_spec("bert", copies=3, weighting=weighting)
    mixture = Mixture(lm, TEMPLATES[:1], spec, relation=RELATION)
    with torch.no_grad():
        mixture.weight_logits.copy_(torch.tensor([0.3, -1.0, 0.5]))
    xs, facts = words(lm, [fact.x for fact in TRAIN])
    shown = torch.tensor([shows(mixture, fact.x) for fact in TRAIN])
    assert shown.any()
    with torch.no_grad():
        log_p_x = mixture.log_p_x(xs, facts)
        by_prompt = torch.stack([mixture.word_log_probs(xs, facts, t).exp() for t in range(3)], 1)
        found = OneTokenAnswers(mixture).log_probs(xs, facts).exp()
    for n in range(len(TRAIN)):
        each = [
            float(mixture.weight_logits[t].detach().exp() * (log_p_x[n, t].exp() if weighting != "static" else 1))
            * (not shown[n, t])
            for t in range(3)
        ]
        if sum(each) == 0:  # asked as it is: nothing else can be
            continue
        expected = sum(weight / sum(each) * by_prompt[n, t] for t, weight in enumerate(each))
        torch.testing.assert_close(found[n], expected, rtol=1e-8, atol=1e-12)


@pytest.mark.parametrize("method", ["gradient", "em"])
def test_no_example_is_its_own_question_in_training(method: Literal["gradient", "em"]) -> None:
    lm = exact("gpt2")
    mixture = Mixture(lm, TEMPLATES[1:2], shot_spec("gpt2", copies=3), relation=RELATION)
    facts, _ = mixture.encode(TRAIN)
    objective = Objective(mixture.answering(kind=facts.kind), facts, method)
    rows = [list(of_prompt) for of_prompt in mixture.pairs.rows]
    for number, fact in enumerate(facts.facts):
        mixture.zero_grad()
        loss = objective.loss(torch.tensor([number]))
        loss.to_minimise.backward()
        assert mixture.vectors.grad is not None
        for prompt, is_shown in enumerate(shows(mixture, fact.x)):
            moved_by = float(mixture.vectors.grad[rows[prompt]].abs().sum())
            assert (moved_by == 0) == is_shown
            assert (float(loss.posteriors[prompt]) == 0) == is_shown


def test_what_only_prompts_that_were_dropped_do_not_show_is_not_trained_on() -> None:
    lm = exact("gpt2")
    mixture = Mixture(lm, TEMPLATES[1:2], shot_spec("gpt2", copies=2), relation=RELATION)
    facts, _ = mixture.encode(TRAIN)
    mixture.weight_logits.data[1] = -torch.inf
    objective = Objective(mixture.answering(kind=facts.kind), facts, "gradient")
    for number, fact in enumerate(facts.facts):
        loss = objective.loss(torch.tensor([number]))
        loss.to_minimise.backward()
        assert (loss.negative_log_likelihood == 0) == shows(mixture, fact.x)[0]


def test_a_single_prompt_leaves_out_what_it_shows() -> None:
    mixture = Mixture(plain("bert"), TEMPLATES[:1], shot_spec("bert", shots=3), relation=RELATION)
    shown = {fact.x for fact in mixture.examples[0]}
    facts = mixture.encode_relation(RELATION)
    assert {fact.x for fact in facts.split("train").facts} == {fact.x for fact in TRAIN} - shown
    assert {one.reason for one in facts.left_out("train")} == {OWN_EXAMPLE}
    assert {fact.x for fact in facts.split("test").facts} == {fact.x for fact in TEST} - shown
    of_paris = Mixture(plain("bert"), TEMPLATES[:1], shot_spec("bert", shots=1), examples=[(TRAIN[0],)])
    left_out = of_paris.encode_relation(RELATION).left_out("test")
    assert [(one.fact, one.reason) for one in left_out] == [(Fact("Paris", "Italy"), OWN_EXAMPLE)]
    assert of_paris.ask("Paris", top=1)


def test_what_does_not_fit_is_dropped_from_the_oldest_on(monkeypatch: pytest.MonkeyPatch) -> None:
    lm = plain("bert")
    whole = Mixture(lm, TEMPLATES[1:2], shot_spec("bert", shots=4), relation=RELATION)
    assert whole.dropped_examples == 0
    # [CLS] and [SEP], 4 examples of 7 tokens (one with a longer x is not among them), the question's 5 words and
    # mask, and the longest x (Mary Cassatt: 3 tokens).
    counts = [len(ids("bert", "The capital of")) + 1 + 1 + 1 + 1 for _ in whole.examples[0]]
    longest = 2 + sum(counts) + 6 + 3
    for limit, dropped in ((longest, 0), (longest - 1, 1), (longest - 7, 1), (longest - 8, 2), (20, 3)):
        monkeypatch.setattr(type(lm), "context", property(lambda _self, limit=limit: limit))
        cut = Mixture(lm, TEMPLATES[1:2], shot_spec("bert", shots=4), relation=RELATION)
        assert cut.dropped_examples == dropped, limit
        assert cut.examples[0] == whole.examples[0][dropped:]


def test_of_several_draws_that_with_the_lowest_dev_loss_is_taken() -> None:
    lm = plain("gpt2")
    relation = Relation.of("r", TRAIN, [Fact("Reykjavik", "Norway"), Fact("Egypt", "Italy")], TEST)
    mixture = Mixture(lm, TEMPLATES[:2], shot_spec("gpt2", shots=2, shot_draws=4), relation=relation)
    for prompt, template in enumerate(TEMPLATES[:2]):
        draws = [draw_examples(relation.train, 2, 0, prompt, draw) for draw in range(4)]
        losses = []
        for examples in draws:
            total = 0.0
            for fact in relation.dev:
                before, after = few_shot_text("gpt2", template, examples, fact.x)
                gold = ids("gpt2", f"Ġ{fact.y}")[0]
                total -= float(next_log_probs("gpt2", lm.model, lm.tokenizer, before, after)[gold])
            losses.append(total / len(relation.dev))
        assert mixture.example_log_losses[prompt] == pytest.approx(losses, abs=1e-4)
        assert mixture.examples[prompt] == draws[losses.index(min(losses))]


def test_an_answer_ends_as_it_does_in_examples() -> None:
    lm = plain("gpt2")
    spec = MixtureSpec(shots=1, begin="nothing", answers="any-length")
    for template, end in (("[X] is in [Y]", "Ċ"), ("[X] is in [Y] .", "Ġ.")):
        mixture = Mixture(lm, [template], spec, relation=RELATION)
        question = lm.family.ask_answer(mixture.prompts[0].tokens, lm.wording, lm.special)
        assert question.end == agreement.plain_ids("gpt2", end)[0]


def test_examples_are_joined_by_the_separator_that_is_given() -> None:
    lm = plain("gpt2")
    spec = paper_spec(shots=2, shot_separator=" ;", begin="nothing")
    mixture = Mixture(lm, ["in [X] is [Y]"], spec, relation=RELATION)
    one, two = mixture.examples[0]
    text = f"in {one.x} is {one.y} ;in {two.x} is {two.y} ;in Egypt is"
    expected = next_log_probs("gpt2", lm.model, lm.tokenizer, text, "")
    xs, facts = words(lm, ["Egypt"])
    torch.testing.assert_close(mixture.word_log_probs(xs, facts, 0)[0], expected, rtol=0, atol=3e-5)


@pytest.mark.parametrize("name", ["bert", "bart", "gpt2"])
def test_a_mixture_with_examples_is_tuned_saved_and_loaded(name: str, tmp_path: Path) -> None:
    lm = plain(name)
    options = {"shots": 2, "copies": 2, "deep": True, "begin": "nothing" if name in CAUSAL else "space"}
    mixture = Mixture(lm, usable(name), MixtureSpec.model_validate(options), relation=RELATION)
    result = train(mixture, RELATION, TrainingSpec(pairs=64))
    assert result.train_facts == len(TRAIN)
    assert result.finished
    mixture.save_pretrained(tmp_path)
    loaded = Mixture.from_pretrained(tmp_path, lm)
    assert loaded.examples == mixture.examples
    assert [prompt.tokens for prompt in loaded.prompts] == [prompt.tokens for prompt in mixture.prompts]
    xs, facts = words(lm, ["Egypt", "Paris"])
    assert torch.equal(OneTokenAnswers(loaded).log_probs(xs, facts), OneTokenAnswers(mixture).log_probs(xs, facts))
    assert loaded.ask("Paris", top=2) == mixture.ask("Paris", top=2)


def test_mistakes_are_named() -> None:
    with pytest.raises(BadOption, match="`shots`: examples are train facts"):
        Mixture(plain("bert"), TEMPLATES[:1], shot_spec("bert"))
    nothing = Relation.of("r", [], DEV, TEST)
    with pytest.raises(NothingLeft, match="examples for r"):
        Mixture(plain("bert"), TEMPLATES[:1], shot_spec("bert"), relation=nothing)
    with pytest.raises(BadOption, match="`shot_draws`"):
        Mixture(
            plain("bert"), TEMPLATES[:1], shot_spec("bert", shot_draws=2), relation=Relation.of("r", TRAIN, [], TEST)
        )
    with pytest.raises(ValueError, match="no examples: leave out shots"):
        MixtureSpec(combine="product", shots=1)
    with pytest.raises(ValueError, match="shot_draws without shots"):
        MixtureSpec(shot_draws=2)
    assert MixtureSpec(shot_separator=r"\n\n", shots=1).shot_separator == "\n\n"


@pytest.mark.parametrize("name", ["bert", "gpt2"])
@pytest.mark.parametrize("answers", ["one-token", "any-length"])
def test_facts_that_can_be_examples_are_those_that_the_tokenizer_can_write(name: str, answers: str) -> None:
    lm = frozen(name)
    texts = ["Paris", "France", "Paris France Peru", "Qatar zzz", "☃", "\u200b", "Lima"]
    facts = [Fact(x, y) for x in texts for y in texts] * 2
    spec = MixtureSpec.model_validate({"answers": answers, "longest_answer": 2})

    def ids_of(text: str) -> list[int]:
        return lm.tokenizer(f" {text}" if name == "gpt2" else text, add_special_tokens=False)["input_ids"]

    def is_writable(fact: Fact) -> bool:
        x, y = ids_of(fact.x), ids_of(fact.y)
        if not x or not y or len(y) > (1 if answers == "one-token" else 2):
            return False
        return name == "gpt2" or lm.tokenizer.unk_token_id not in (*x, *y)

    expected = [fact for fact in dict.fromkeys(facts) if is_writable(fact)]
    assert 0 < len(expected) < len(set(facts))
    assert writable_facts(lm, spec, facts) == expected
