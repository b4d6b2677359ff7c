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
from askwell.evaluation.outcomes import Outcome
from askwell.evaluation.statements import (
    accuracy_of_prompts,
    evaluate_mixture_statements,
    evaluate_statements,
    log_likelihoods,
    published_accuracy,
    statement,
)
from askwell.lms.frozen import FrozenLM
from askwell.lms.load import load_lm
from askwell.mixture.mixture import Mixture
from askwell.prompts.prompt_set import TOO_LONG

TEXTS = ["the capital of [X] is [Y] , a city .", "[Y] is the city of [X] ."]
TEMPLATES = [parse_template(text) for text in TEXTS]
YS = ("Rome", "Reykjavik", "Lima", "Massachusetts", "Oslo")
CANDIDATES = Candidates("c", YS)
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
def masked_by_hand(lm: FrozenLM, sentence: str, first: int = 0) -> float:
    """Sum the log-probabilities of each word's tokens, from some word on, with that token and the later ones of the
    word masked."""
    tokenizer, total = lm.tokenizer, 0.0
    words = [tokenizer(word, add_special_tokens=False)["input_ids"] for word in sentence.split()]
    for number, word in list(enumerate(words))[first:]:
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

    (template,), found = TEMPLATES[:1], evaluate_statements(lm, TEMPLATES[:1], RELATION, candidates=CANDIDATES)
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
    found = evaluate_statements(lm, TEMPLATES, RELATION, candidates=CANDIDATES)
    each = []
    for template in TEMPLATES:
        scores = torch.tensor([causal_by_hand(lm, statement(template, x, other)) for other in YS])
        each.append(float(scores.softmax(0)[YS.index(y)]))
    (outcome,) = (one for one in found.outcomes if one.y == y)
    assert outcome.log_probability == pytest.approx(float(torch.tensor(each).mean().log()), abs=1e-3)


def test_accuracy_is_that_of_each_prompt_alone() -> None:
    """With ties aside, it is how often the right statement has the highest sum; the second relation has one prompt."""
    lm, golds = lm_of(tiny.make_bert()), [(fact.x, fact.y) for fact in FACTS]
    both = evaluate_statements(lm, TEMPLATES, RELATION, candidates=CANDIDATES)
    one = evaluate_statements(lm, TEMPLATES[:1], RELATION, candidates=CANDIDATES)
    right = []
    for template in TEMPLATES:
        best = [max(YS, key=lambda y, t=template, x=x: masked_by_hand(lm, statement(t, x, y))) for x, _ in golds]
        right.append(sum(answer == y for answer, (_, y) in zip(best, golds, strict=True)))
    assert (both.right_of_prompts, one.right_of_prompts) == ((*right,), (right[0],))
    first, second = accuracy_of_prompts([both, one])
    assert (first, second) == (100 * right[0] / len(FACTS), 100 * right[1] / len(FACTS))


def test_published_figures_are_found_by_the_name_on_the_hub() -> None:
    found = published_accuracy("google-bert/bert-base-cased")
    assert found is not None
    assert (found.accuracy, found.standard_error, found.facts) == (18.39, 0.37, 7731)
    assert published_accuracy("testbed:bert") is None


# ── with tuned vectors ────────────────────────────────────────────────────────────────────────────────────────────────

# A causal LM reads only prompts that end in y; a capital letter, which the statements of hard prompts get, is in both.
BOTH = [parse_template(text) for text in ("The capital of [X] is [Y] , a city .", "[X] has the city [Y] .")]
BARE: dict[str, Any] = {"begin": "bos", "lead_in": "none"}


def mixture_of(make: Any, templates: Any = BOTH, **choices: Any) -> Mixture:
    lm = lm_of(make())
    return Mixture(lm, templates, **({**BARE, **choices} if lm.family.name == "causal" else choices))


def moved(mixture: Mixture) -> Mixture:
    """Move everything that can be tuned away from where it began."""
    generator = torch.Generator().manual_seed(1)
    for tuned in mixture.parameters():
        tuned.data += 0.5 * tuned.data.std().nan_to_num(1.0) * torch.randn(tuned.shape, generator=generator)
    return mixture


@pytest.mark.parametrize("make", [tiny.make_gpt2, tiny.make_llama, tiny.make_bert, tiny.make_albert])
def test_untuned_vectors_are_the_words(make: Any) -> None:
    mixture = mixture_of(make)
    plain = evaluate_statements(mixture.lm, BOTH, RELATION, candidates=CANDIDATES)
    untuned = evaluate_mixture_statements(mixture, RELATION, candidates=CANDIDATES)
    assert untuned.left_out == plain.left_out
    for ours, theirs in zip(untuned.outcomes, plain.outcomes, strict=True):
        assert (ours.x, ours.y, ours.golds, ours.rank, ours.answers) == (
            theirs.x, theirs.y, theirs.golds, theirs.rank, theirs.answers
        )  # fmt: skip
        assert ours.log_probability == pytest.approx(theirs.log_probability, abs=1e-4)


@torch.no_grad()
def tuned_by_hand(mixture: Mixture, number: int, x: str, y: str) -> float:
    """Sum the log-probabilities of a sentence's tokens, read one by one, with the vectors in the template's places."""
    lm, template, plain = mixture.lm, BOTH[number], mixture.lm.tokenizer
    start = [] if lm.family.name == "masked" else [plain.bos_token_id]
    words: list[tuple[bool, list[int]]] = []
    for at, piece in enumerate([template.before, x, template.between, y, template.after]):
        for word in piece.split():
            spaced = lm.family.name == "causal" and words
            ids = plain(f" {word}" if spaced else word, add_special_tokens=False)["input_ids"]
            words.append((at % 2 == 0, ids))
    before = sum(len(prompt.token_ids) for prompt in mixture.prompts[:number])
    own = list(range(before, before + len(mixture.prompts[number].token_ids)))
    ids, rows, word_of = list(start), [-1] * len(start), [-1] * len(start)
    for of, (is_template, tokens) in enumerate(words):
        ids += tokens
        rows += [own.pop(0) if is_template and own else -1 for _ in tokens]
        word_of += [of] * len(tokens)
    embed = lm.model.get_input_embeddings()

    def read(tokens: list[int], used: list[int], at: int) -> torch.Tensor:
        vectors = embed(torch.tensor([tokens])).clone()
        for place, row in enumerate(used):
            if row >= 0:
                vectors[0, place] = mixture.vectors[row]
        return lm.model(inputs_embeds=vectors).logits[0, at].double().log_softmax(-1)

    total = 0.0
    for at in range(len(start), len(ids)):
        if lm.family.name == "causal":
            total += float(read(ids[:at], rows[:at], -1)[ids[at]])
            continue
        is_masked = [later >= at and word_of[later] == word_of[at] for later in range(len(ids))]
        tokens = [plain.mask_token_id if masked else token for masked, token in zip(is_masked, ids, strict=True)]
        used = [-1 if masked else row for masked, row in zip(is_masked, rows, strict=True)]
        found = read([plain.cls_token_id, *tokens, plain.sep_token_id], [-1, *used, -1], at + 1)
        total += float(found[ids[at]])
    return total


def by_fact(outcomes: Any) -> dict[tuple[str, str], Outcome]:
    return {(one.x, one.y): one for one in outcomes}


@pytest.mark.parametrize("make", [tiny.make_gpt2, tiny.make_bert])
def test_tuned_vectors_and_weights_count(make: Any) -> None:
    mixture = moved(mixture_of(make))
    found = by_fact(evaluate_mixture_statements(mixture, RELATION, candidates=CANDIDATES).outcomes)
    for fact in FACTS:
        scores = torch.tensor([[tuned_by_hand(mixture, t, fact.x, y) for y in YS] for t in range(len(BOTH))])
        expected = (mixture.weights.detach()[:, None] * scores.softmax(1)).sum(0).log()
        assert found[fact.x, fact.y].log_probability == pytest.approx(float(expected[YS.index(fact.y)]), abs=1e-3)


@pytest.mark.parametrize("make", [tiny.make_gpt2, tiny.make_bert])
def test_what_stands_before_the_sentence_is_read_and_not_scored(make: Any) -> None:
    lead_in = "Here is a fact : "
    mixture = mixture_of(make, BOTH[:1], lead_in=lead_in)
    found = by_fact(evaluate_mixture_statements(mixture, RELATION, candidates=CANDIDATES).outcomes)
    for fact in FACTS:
        sentences = [lead_in + statement(BOTH[0], fact.x, y) for y in YS]
        if make is tiny.make_bert:
            scores = [masked_by_hand(mixture.lm, sentence, len(lead_in.split())) for sentence in sentences]
        else:  # the words before x and y are as probable with every candidate
            scores = [causal_by_hand(mixture.lm, sentence) for sentence in sentences]
        expected = torch.tensor(scores).log_softmax(0)[YS.index(fact.y)]
        assert found[fact.x, fact.y].log_probability == pytest.approx(float(expected), abs=1e-3)


@pytest.mark.parametrize(
    "choices", [{"deep": True}, {"combine": "product"}, {"weighting": "gate"}, {"copies": 2, "noise": 0.1}]
)
def test_every_kind_of_mixture_has_statements(choices: dict[str, Any]) -> None:
    mixture = moved(mixture_of(tiny.make_bert, **choices))
    found = evaluate_mixture_statements(mixture, RELATION, candidates=CANDIDATES)
    assert len(found.outcomes) == len(FACTS)
    total = [sum(outcome.probabilities) for outcome in found.outcomes]
    torch.testing.assert_close(torch.tensor(total), torch.ones(len(FACTS)), rtol=0, atol=1e-5)


def test_a_statement_that_is_too_long_is_left_out() -> None:
    mixture = mixture_of(tiny.make_bert)
    long = Fact(" ".join(["Italy"] * 600), "Rome")
    relation = Relation.of("P36", train=[], dev=[], test=[*FACTS, Fact("Peru", "Cuba"), long])
    for found in (
        evaluate_statements(mixture.lm, BOTH, relation, candidates=CANDIDATES),
        evaluate_mixture_statements(mixture, relation, candidates=CANDIDATES),
    ):
        assert [(left.fact, left.reason) for left in found.left_out] == [
            (Fact("Peru", "Cuba"), NOT_A_CANDIDATE),
            (long, TOO_LONG),
        ]


def test_what_has_no_statements_is_refused() -> None:
    with pytest.raises(BadOption, match="seq2seq"):
        evaluate_statements(lm_of(tiny.make_bart()), TEMPLATES, RELATION)
    with pytest.raises(BadOption, match="labels"):
        evaluate_statements(lm_of(tiny.make_bert()), TEMPLATES, RELATION, candidates=Candidates("c", ("a",), ("b",)))


@pytest.mark.parametrize("source", ["gpt2", "bert", "testbed:bert"])
def test_agrees_with_the_public_evaluator(source: str) -> None:
    """Templates have several tokens after y, and ys have one or more."""
    public = pytest.importorskip("lm_pub_quiz.evaluators.pll_evaluators")
    lm = load_lm(source) if source.startswith("testbed") else lm_of(tiny.TINY[source]())
    is_causal = lm.family.name == "causal"
    lm.tokenizer.pad_token = lm.tokenizer.pad_token or lm.tokenizer.eos_token
    kind, name = (public.CausalLMEvaluator, "CLM") if is_causal else (public.MaskedLMEvaluator, "MLM")
    evaluator = kind.from_model(lm.model, tokenizer=lm.tokenizer, model_type=name, device="cpu")
    for text, template in zip(TEXTS, TEMPLATES, strict=True):
        for fact in FACTS:
            theirs = evaluator.score_answers(template=text, answers=list(YS), subject=fact.x, reduction="sum")
            ours = log_likelihoods(lm, [statement(template, fact.x, y) for y in YS])
            torch.testing.assert_close(ours, torch.tensor(theirs).double(), rtol=1e-5, atol=1e-4)
