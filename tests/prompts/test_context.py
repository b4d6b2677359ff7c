"""What comes before the sentence: a lead-in and free vectors agree with the public model and with the reference."""

import math
from pathlib import Path
from typing import Any, Literal

import agreement
import pytest
import reference
import torch
from agreement import ALL, CAUSAL, WORDPIECE, exact, gradients, ids, moved, plain, script, usable, words
from builders import tiny
from builders.specs import paper_spec
from written_out import next_log_probs

from askwell.answers.one_token import OneTokenAnswers
from askwell.data.facts import Fact, Relation
from askwell.data.templates import parse_template
from askwell.errors import BadOption
from askwell.mixture.mixture import Mixture
from askwell.prompts import context
from askwell.prompts.context import LEAD_INS, SHOTS, best_opening, opening_scores, settle
from askwell.prompts.prompt import with_label
from askwell.runs.build_spec import build_run_spec
from askwell.specs.mixture_spec import ContextScores, MixtureSpec
from askwell.specs.training_spec import TrainingSpec

XS = ["Reykjavik", "Paris", "Mary Cassatt"]
LEAD_IN = "The city :"
IN_TOKENS = {"wordpiece": "The city :", "byte-level": "ĠThe Ġcity Ġ:", "albert": "▁the ▁city ▁:"}
TEMPLATES = ["[X], its capital is [Y].", "The capital of [X] is [Y] .", "The city ([X]) lies in [Y] !"]


def led_in(name: str, **options: object) -> MixtureSpec:
    asked = {"begin": "space"} if name in CAUSAL else {}
    return paper_spec(lead_in=LEAD_IN, **asked, **options)


@pytest.mark.parametrize("name", ALL)
def test_a_hard_prompt_is_the_public_model_on_the_text_with_its_lead_in(name: str) -> None:
    lm = plain(name)
    mixture = Mixture(lm, TEMPLATES, led_in(name))
    xs, facts = words(lm, XS)
    space = "" if name in (*WORDPIECE, "albert", "llama-metaspace") else " "
    for number, template in enumerate(TEMPLATES):
        if name == "albert" and "[Y]." in template:  # the public tokenizer writes a space behind a mask
            continue
        ours = mixture.word_log_probs(xs, facts, number)
        for fact, x in enumerate(XS):
            before, after = f"{space}{LEAD_IN} {template}".replace("[X]", x).split("[Y]")
            written = before.rstrip() if tiny.FAMILY[name] == "causal" else before
            expected = next_log_probs(name, lm.model, lm.tokenizer, written, after)
            if len(mixture.token_words.places) > 1:
                expected = expected[mixture.token_words.tokens[mixture.pairs.y_places[number]]]
            torch.testing.assert_close(ours[fact], expected, rtol=0, atol=2e-5)


def in_pieces(name: str, template: str) -> list[reference.Piece]:
    """The template with its lead-in, in tokens that are written by hand."""
    sentence = agreement.TEMPLATES[script(name)][template]
    text = agreement._in_tokens(name, agreement.AROUND[name].format(f"{IN_TOKENS[script(name)]} {sentence}"))
    return reference.written(plain(name).tokenizer, text)


@pytest.mark.parametrize("name", ["bert", "albert", "roberta", "bart", "gpt2", "llama-metaspace"])
def test_the_lead_in_is_tuned_with_the_rest_of_the_prompt_at_all_layers(name: str) -> None:
    lm, templates = exact(name), usable(name, TEMPLATES[:2])
    mixture = moved(lm, templates, led_in(name, deep=True))
    xs, facts = words(lm, XS)
    gold = ids(name, agreement.YS[script(name)])[0]
    vectors, deltas = [], []
    weights = mixture.weight_logits.detach().log_softmax(0)
    first = 0
    by_prompt = []
    for template in templates:
        pieces = in_pieces(name, template)
        count = len(reference.prompt_ids(reference.before(pieces, "y") if name in CAUSAL else pieces))
        rows = slice(first, first + count)
        first += count
        vectors.append(mixture.vectors.detach()[rows].clone().requires_grad_())
        layers = {stack: torch.stack(of)[:, rows] for stack, of in mixture.layer_deltas.items()}
        deltas.append({stack: of.detach().clone().requires_grad_() for stack, of in layers.items()})
        asked = [
            reference.log_p_y(
                lm.model, lm.tokenizer, tiny.FAMILY[name], pieces, ids(name, agreement.XS[script(name)][x][0]),
                vectors[-1], deltas[-1],
            )[gold]
            for x in XS
        ]  # fmt: skip
        by_prompt.append(torch.stack(asked))
    assert first == len(mixture.vectors)
    total = (torch.stack(by_prompt, 1) + weights).logsumexp(1).sum()
    total.backward()
    tokens = torch.full((2, len(XS)), gold)
    ours = (mixture.pairs.gold_log_probs(mixture.tuned, xs, tokens, facts) + weights).logsumexp(1).sum()
    ours.backward()
    torch.testing.assert_close(ours, total, rtol=0, atol=1e-9)
    found = gradients(mixture)
    torch.testing.assert_close(found["vectors"], torch.cat([leaf.grad for leaf in vectors]), rtol=0, atol=1e-9)
    for stack in deltas[0]:
        expected = torch.cat([of[stack].grad for of in deltas], dim=1)
        for layer, of_layer in enumerate(expected):
            torch.testing.assert_close(found[f"deltas.{stack}.{layer}"], of_layer, rtol=0, atol=1e-9)


@pytest.mark.parametrize("name", CAUSAL)
def test_what_follows_a_line_break_begins_as_a_text_does(name: str) -> None:
    lm = plain(name)
    mixture = Mixture(lm, ["[X] is [Y]"], MixtureSpec(lead_in=r"The city\n", begin="space"))
    prompt = mixture.prompts[0]
    line_break = agreement.BEGINS[name]["line-break"]
    lead_in = [*ids(name, "ĠThe Ġcity"), *agreement.plain_ids(name, line_break)]
    assert list(prompt.token_ids) == [*lead_in, *ids(name, "Ġis")]
    assert prompt.tokens.opening == len(lead_in)
    assert prompt.tokens.x_place == lm.beginnings["line-break"].place


def test_free_vectors_start_from_words_a_label_or_at_random() -> None:
    lm = plain("bert")
    template = "The capital of [X] is [Y] ."
    plain_ids = Mixture(lm, [template], paper_spec()).prompts[0].token_ids
    of_words = Mixture(lm, [template], paper_spec(prefix=5, prefix_words="The city", lead_in="of"))
    expected = [*ids("bert", "The city The city The"), *ids("bert", "of"), *plain_ids]
    assert list(of_words.prompts[0].token_ids) == expected
    vectors = lm.model.get_input_embeddings()(torch.tensor(expected))
    assert torch.equal(of_words.vectors, vectors)

    labelled = with_label(paper_spec(prefix=2, prefix_words="label"), "born in")
    assert list(Mixture(lm, [template], labelled).prompts[0].token_ids[:2]) == ids("bert", "born in")
    with pytest.raises(BadOption, match="label"):
        Mixture(lm, [template], paper_spec(prefix=2, prefix_words="label"))

    drawn = [Mixture(lm, [template] * 2, paper_spec(prefix=3, prefix_words="random", seed=seed)) for seed in (0, 0, 1)]
    assert torch.equal(drawn[0].vectors, drawn[1].vectors)
    words_of_template = lm.model.get_input_embeddings()(torch.tensor(plain_ids))
    for prompt in range(2):
        rows = slice(prompt * (3 + len(plain_ids)), (prompt + 1) * (3 + len(plain_ids)))
        one, other = drawn[0].vectors[rows], drawn[2].vectors[rows]
        assert torch.equal(one[3:], words_of_template)
        assert not torch.isclose(one[:3], other[:3]).any(1).all()
    assert not torch.equal(drawn[0].vectors[:3], drawn[0].vectors[3 + len(plain_ids) :][:3]), "prompts share vectors"


def test_nothing_before_the_sentence_is_the_plain_prompt() -> None:
    for name in ALL:
        templates = usable(name)
        one, other = Mixture(plain(name), templates), Mixture(plain(name), templates, MixtureSpec(lead_in="none"))
        assert [prompt.tokens for prompt in one.prompts] == [prompt.tokens for prompt in other.prompts]
        assert all(prompt.tokens.opening == 0 for prompt in one.prompts)
        assert torch.equal(one.vectors, other.vectors)


def test_a_saved_mixture_keeps_its_opening(tmp_path: Path) -> None:
    lm = plain("gpt2")
    mixture = moved(lm, TEMPLATES[:2], MixtureSpec(lead_in=LEAD_IN, prefix=2, prefix_words="The", begin="eos"))
    mixture.save_pretrained(tmp_path)
    loaded = Mixture.from_pretrained(tmp_path, lm)
    assert [prompt.tokens for prompt in loaded.prompts] == [prompt.tokens for prompt in mixture.prompts]
    xs, facts = words(lm, XS)
    assert torch.equal(OneTokenAnswers(loaded).log_probs(xs, facts), OneTokenAnswers(mixture).log_probs(xs, facts))


@pytest.mark.parametrize("text", ["", "  ", "About [X] :"])
def test_a_lead_in_is_a_text_without_blanks(text: str) -> None:
    with pytest.raises(ValueError, match=r"lead_in"):
        MixtureSpec(lead_in=text)


FACTS = [Fact("Paris", "France"), Fact("Rome", "Italy"), Fact("Lima", "Peru")]


def mean_log_p(lead_ins: list[str], template: str, facts: list[Fact]) -> float:
    """The mean log-probability of one-token ys behind a text for each fact, by the public model."""
    lm, total = plain("gpt2"), 0.0
    for lead_in, fact in zip(lead_ins, facts, strict=True):
        written = f"{lead_in}{template.partition(' [Y]')[0]}".replace("[X]", fact.x)
        (gold,) = ids("gpt2", f"Ġ{fact.y}")
        total += float(next_log_probs("gpt2", lm.model, lm.tokenizer, written, "")[gold])
    return total / len(facts)


def test_the_opening_that_fits_train_facts_best_is_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    lm = plain("gpt2")
    relation, template = Relation.of("r", FACTS, [], FACTS), "The capital of [X] is [Y] ."
    texts = {text: "" if text == "none" else f"{text} " for text in LEAD_INS}
    expected = {name: mean_log_p([text] * len(FACTS), template, FACTS) for name, text in texts.items()}
    asked, templates = MixtureSpec(begin="nothing"), [parse_template(template)]
    chosen = settle(asked, lm, relation, templates)
    scores = chosen.context_scores
    assert scores.lead_ins == pytest.approx(expected, abs=1e-4)
    assert scores.shots == {}  # three facts are too few to spare some
    assert scores.least == pytest.approx(-math.log(lm.word_count) / 2)
    # To a model with random weights, no text makes the facts probable; what would be chosen if one did:
    assert (chosen.lead_in, chosen.shots) == ("none", 0)
    best = max(expected, key=expected.__getitem__)
    monkeypatch.setattr(context, "opening_scores", lambda *_, **__: scores.model_copy(update={"least": -100.0}))
    assert Mixture(lm, [template], asked, relation=relation).spec.lead_in == best
    # What is named is kept, and nothing is chosen beside it; elsewhere, and without facts, nothing is there.
    for named in {"lead_in": LEAD_IN}, {"prefix": 2}, {"shots": 2}, {"initial": "random"}:
        spec = settle(MixtureSpec.model_validate({"begin": "nothing", **named}), lm, relation, templates)
        assert (spec.lead_in, spec.shots) == (named.get("lead_in", "none"), named.get("shots", 0))
    assert Mixture(lm, [template], MixtureSpec(begin="eos")).spec.lead_in == "none"
    assert Mixture(plain("bert"), [template], MixtureSpec()).spec.lead_in == "none"


def test_examples_are_chosen_where_they_make_train_facts_more_probable(monkeypatch: pytest.MonkeyPatch) -> None:
    lm, template = plain("gpt2"), "[X] is [Y] ."
    xs = [f"Paris {number}" for number in range(24)]
    facts = [Fact(x, ("France", "Italy", "Peru")[number % 3]) for number, x in enumerate(xs)]
    relation, templates = Relation.of("r", facts, [], FACTS), [parse_template(template)]
    scores = opening_scores(lm, relation, templates, "nothing", allow_examples=True)
    (shown,) = Mixture(lm, [template], MixtureSpec(begin="nothing", shots=SHOTS), relation=relation).examples
    text = "".join(template.replace("[X]", fact.x).replace("[Y]", fact.y) + "\n" for fact in shown)
    others = [fact for fact in facts if fact not in shown]
    assert len(others) == 20
    assert scores.shots == {SHOTS: pytest.approx(mean_log_p([text] * 20, template, others), abs=1e-4)}
    assert scores.lead_ins["none"] == pytest.approx(mean_log_p([""] * 20, template, others), abs=1e-4)
    better = scores.model_copy(update={"least": -100.0, "shots": {SHOTS: max(scores.lead_ins.values()) + 1}})
    assert best_opening(better) == ("none", SHOTS)
    assert best_opening(better.model_copy(update={"shots": {SHOTS: -50.0}}))[1] == 0
    assert best_opening(better.model_copy(update={"shots": {}}))[1] == 0
    without = opening_scores(lm, relation, templates, "nothing", allow_examples=False)
    assert without.shots == {}
    assert without.lead_ins["none"] == pytest.approx(mean_log_p([""] * 24, template, facts), abs=1e-4)

    def fitting(*_: Any, allow_examples: bool, **_more: Any) -> ContextScores:
        return better if allow_examples else better.model_copy(update={"shots": {}})

    monkeypatch.setattr(context, "opening_scores", fitting)
    for changes, shots in (({}, SHOTS), ({"shots": 0}, 0), ({"combine": "product"}, 0)):
        spec = MixtureSpec.model_validate({"begin": "nothing", **changes})
        assert settle(spec, lm, relation, templates).shots == shots
    monkeypatch.undo()
    few = Relation.of("few", facts[:19], [], FACTS)
    assert opening_scores(lm, few, templates, "nothing", allow_examples=True).shots == {}

    # The paper's recipe has nothing before the sentence, unless it is named.
    def asked(recipe: Literal["plateau", "paper"], **named: int) -> tuple[str, int | None]:
        training, mixture = TrainingSpec(recipe=recipe), MixtureSpec.model_validate({"begin": "nothing", **named})
        spec = build_run_spec(lm, relation, templates, mixture=mixture, training=training).mixture
        return spec.lead_in, spec.shots

    assert asked("plateau") == ("auto", None)
    assert (asked("paper"), asked("paper", shots=2)) == (("none", 0), ("none", 2))


def test_a_mixture_shares_the_opening_that_is_chosen_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    lm, texts = plain("gpt2"), ["[X] is [Y] .", "[X] called [Y] ."]
    facts = [Fact(f"Paris {number}", ("France", "Italy", "Peru")[number % 3]) for number in range(24)]
    relation, templates = Relation.of("r", facts, [], FACTS), [parse_template(text) for text in texts]
    spec = MixtureSpec(begin="nothing", shots=SHOTS, opening="shared")
    shown = Mixture(lm, texts, spec, relation=relation).examples[0]
    others = [fact for fact in facts if fact not in shown]

    def opening(text: str) -> str:
        return "".join(text.replace("[X]", fact.x).replace("[Y]", fact.y) + "\n" for fact in shown)

    def each(before: str, text: str) -> torch.Tensor:
        return torch.tensor([mean_log_p([before], text, [fact]) for fact in others])

    best = max(texts, key=lambda text: float(each(opening(text), text).mean()))
    mixed = {before: torch.stack([each(before, text) for text in texts]).logsumexp(0) - math.log(2)
             for before in ("", opening(best))}  # fmt: skip
    scores = opening_scores(lm, relation, templates, "nothing", allow_examples=True, shares=True)
    assert scores.template == best
    assert scores.lead_ins["none"] == pytest.approx(float(mixed[""].mean()), abs=1e-4)
    assert scores.shots == {SHOTS: pytest.approx(float(mixed[opening(best)].mean()), abs=1e-4)}

    better = scores.model_copy(update={"least": -100.0, "shots": {SHOTS: max(scores.lead_ins.values()) + 1}})
    monkeypatch.setattr(context, "opening_scores", lambda *_, **__: better)
    chosen = settle(MixtureSpec(begin="nothing"), lm, relation, templates)
    assert (chosen.opening, chosen.opening_template, chosen.shots) == ("shared", best, SHOTS)
    # One prompt has its own; so has each of several if that is asked for, or if examples are.
    alone = settle(MixtureSpec(begin="nothing"), lm, relation, templates[:1])
    own = settle(MixtureSpec(begin="nothing", opening="own"), lm, relation, templates)
    named = settle(MixtureSpec(begin="nothing", shots=2), lm, relation, templates)
    assert [(one.opening, one.shots) for one in (alone, own, named)] == [("own", SHOTS), ("own", SHOTS), ("own", 2)]
