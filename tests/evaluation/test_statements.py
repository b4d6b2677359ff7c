"""Scores of whole statements against a sentence-by-sentence forward pass of the public model, and against lm-pub-quiz
where it is installed."""

from typing import Any

import pytest
import torch
from builders import tiny

from askwell.answers.candidates import Candidates
from askwell.answers.listed import NOT_A_CANDIDATE
from askwell.data.facts import Fact, Relation
from askwell.data.templates import parse_template
from askwell.errors import BadOption
from askwell.evaluation.statements import evaluate_statements, log_likelihoods, statement
from askwell.lms.frozen import FrozenLM

TEXTS = ["the capital of [X] is [Y] , a city .", "[Y] is the city of [X] ."]
TEMPLATES = [parse_template(text) for text in TEXTS]
YS = ("Rome", "Reykjavik", "Lima", "Massachusetts", "Oslo")
FACTS = [Fact("Italy", "Rome"), Fact("Italy", "Oslo"), Fact("Peru", "Lima"), Fact("Reykjavik", "Massachusetts")]
RELATION = Relation.of("P36", train=[], dev=[], test=[*FACTS, Fact("Peru", "Cuba")])
SENTENCES = [statement(template, fact.x, y) for template in TEMPLATES for fact in FACTS for y in YS]


def lm_of(made: Any) -> FrozenLM:
    return FrozenLM(*made)


@torch.no_grad()
def causal_by_hand(lm: FrozenLM, sentence: str) -> float:
    """Sum the log-probabilities of all tokens, one prefix at a time."""
    ids = [lm.tokenizer.bos_token_id, *lm.tokenizer(sentence, add_special_tokens=False)["input_ids"]]
    total = 0.0
    for end in range(1, len(ids)):
        logits = lm.model(input_ids=torch.tensor([ids[:end]])).logits[0, -1]
        total += float(logits.double().log_softmax(-1)[ids[end]])
    return total


@torch.no_grad()
def masked_by_hand(lm: FrozenLM, sentence: str) -> float:
    """Sum the log-probabilities of each word's tokens, with that token and the later ones of the word masked."""
    tokenizer, total = lm.tokenizer, 0.0
    words = [tokenizer(word, add_special_tokens=False)["input_ids"] for word in sentence.split()]
    for number, word in enumerate(words):
        for place, token in enumerate(word):
            masked = [*word[:place], *[tokenizer.mask_token_id] * (len(word) - place)]
            ids = [token for each in [*words[:number], masked, *words[number + 1 :]] for token in each]
            at = 1 + sum(map(len, words[:number])) + place
            whole = torch.tensor([[tokenizer.cls_token_id, *ids, tokenizer.sep_token_id]])
            total += float(lm.model(input_ids=whole).logits[0, at].double().log_softmax(-1)[token])
    return total


@pytest.mark.parametrize(("make", "by_hand"), [(tiny.make_gpt2, causal_by_hand), (tiny.make_bert, masked_by_hand)])
def test_whole_sentences(make: Any, by_hand: Any) -> None:
    lm = lm_of(make())
    expected = torch.tensor([by_hand(lm, sentence) for sentence in SENTENCES]).double()
    torch.testing.assert_close(log_likelihoods(lm, SENTENCES), expected, rtol=1e-5, atol=1e-4)

    (template,), found = TEMPLATES[:1], evaluate_statements(lm, TEMPLATES[:1], RELATION, candidates=Candidates("c", YS))
    for outcome in found.outcomes:
        scores = {y: by_hand(lm, statement(template, outcome.x, y)) for y in YS}
        better = [y for y in YS if scores[y] > scores[outcome.y]]
        assert outcome.raw_rank == 1 + len(better)
        assert outcome.rank == 1 + len([y for y in better if y not in outcome.golds])
        total = torch.tensor(list(scores.values())).double().logsumexp(0)
        assert outcome.log_probability == pytest.approx(float(scores[outcome.y] - total), abs=1e-3)
        assert list(outcome.answers) == sorted(YS, key=lambda y: -scores[y])
    assert [(left.fact, left.reason) for left in found.left_out] == [(Fact("Peru", "Cuba"), NOT_A_CANDIDATE)]


def test_several_prompts_are_averaged() -> None:
    lm, (x, y) = lm_of(tiny.make_gpt2()), ("Peru", "Lima")
    found = evaluate_statements(lm, TEMPLATES, RELATION, candidates=Candidates("c", YS))
    each = []
    for template in TEMPLATES:
        scores = torch.tensor([causal_by_hand(lm, statement(template, x, other)) for other in YS])
        each.append(float(scores.softmax(0)[YS.index(y)]))
    (outcome,) = (one for one in found.outcomes if one.y == y)
    assert outcome.log_probability == pytest.approx(float(torch.tensor(each).mean().log()), abs=1e-3)


def test_what_has_no_statements_is_refused() -> None:
    with pytest.raises(BadOption, match="seq2seq"):
        evaluate_statements(lm_of(tiny.make_bart()), TEMPLATES, RELATION)
    with pytest.raises(BadOption, match="labels"):
        evaluate_statements(lm_of(tiny.make_bert()), TEMPLATES, RELATION, candidates=Candidates("c", ("a",), ("b",)))


@pytest.mark.parametrize("make", [tiny.make_gpt2, tiny.make_bert])
def test_agrees_with_the_public_evaluator(make: Any) -> None:
    public = pytest.importorskip("lm_pub_quiz.evaluators.pll_evaluators")
    lm = lm_of(make())
    is_causal = lm.family.name == "causal"
    lm.tokenizer.pad_token = lm.tokenizer.pad_token or lm.tokenizer.eos_token
    kind, name = (public.CausalLMEvaluator, "CLM") if is_causal else (public.MaskedLMEvaluator, "MLM")
    evaluator = kind.from_model(lm.model, tokenizer=lm.tokenizer, model_type=name, device="cpu")
    for text, template in zip(TEXTS, TEMPLATES, strict=True):
        for fact in FACTS:
            theirs = evaluator.score_answers(template=text, answers=list(YS), subject=fact.x, reduction="sum")
            ours = log_likelihoods(lm, [statement(template, fact.x, y) for y in YS])
            torch.testing.assert_close(ours, torch.tensor(theirs).double(), rtol=1e-5, atol=1e-4)
