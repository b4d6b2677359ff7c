"""How probable a causal LM finds x and a prompt's words after it, against the public model on the written-out text."""

import pytest
import torch
from agreement import plain, words
from builders.specs import paper_spec
from builders.worlds import FACTS
from test_examples import RELATION

from askwell.mixture.mixture import Mixture
from askwell.specs.mixture_spec import MixtureSpec
from askwell.specs.training_spec import TrainingSpec
from askwell.training import optimiser
from askwell.training.optimiser import choose_tuned, choose_weighting

XS = ["Reykjavik", "Mary Cassatt", "Egypt"]


def written_log_p(before: str, x: str, between: str, *, with_x: bool) -> float:
    """The sum of log p of x's tokens, if they count, and of the words after it, in one reading of the public model."""
    lm = plain("gpt2")
    texts = (before.rstrip(), before + x, before + x + between)
    until_x, until_words, whole = (lm.tokenizer(text, add_special_tokens=False)["input_ids"] for text in texts)
    start = [] if before else [lm.special.text_start]  # nothing else comes before x's first token
    first = len(start) + len(until_x if with_x else until_words)
    read = torch.tensor([[*start, *whole]])
    log_probs = lm.model(read).logits[0].log_softmax(-1)
    return float(sum(log_probs[at - 1, read[0, at]] for at in range(first, read.shape[1])))


@pytest.mark.parametrize("templates", [["[X] is [Y] .", "The capital of [X] is called [Y] ."],
                                       ["[X] is [Y] .", "[X] is called [Y] ."]])  # fmt: skip
def test_the_question_is_read_as_the_public_model_reads_it(templates: list[str]) -> None:
    lm = plain("gpt2")
    mixture = Mixture(lm, templates, MixtureSpec(begin="nothing", weighting="question", answers="one-token"))
    encoded, facts = words(lm, XS)
    found = mixture.log_p_x(encoded, facts).detach()
    begin_alike = all(template.startswith("[X]") for template in templates)
    for fact, x in enumerate(XS):
        for number, template in enumerate(templates):
            before, _, after = template.partition("[X]")
            # Where all prompts begin with x, it is equally probable with all, and only the words after it are read.
            expected = written_log_p(before, x, after.partition(" [Y]")[0], with_x=not begin_alike)
            assert float(found[fact, number]) == pytest.approx(expected, abs=1e-4)


def test_a_masked_lm_is_asked_for_x_alone() -> None:
    lm, templates = plain("bert"), ["[X] is [Y] .", "The capital of [X] is called [Y] ."]
    encoded, facts = words(lm, XS)
    of_x, of_question = (
        Mixture(lm, templates, paper_spec(weighting=weighting)).log_p_x(encoded, facts)
        for weighting in ("combined", "question")
    )
    assert torch.equal(of_x, of_question)


@pytest.mark.parametrize("shots", [0, 2])
def test_what_questions_share_is_read_once(shots: int, monkeypatch: pytest.MonkeyPatch) -> None:
    lm, templates = plain("gpt2"), ["[X] is [Y] .", "[X] is called [Y] .", "The capital of [X] is called [Y] ."]
    encoded, facts = words(lm, XS)
    opening = "shared" if shots else "own"
    for some in (templates, templates[:2]):
        spec = paper_spec(shots=shots, opening=opening, weighting="question", begin="eos")
        mixture = Mixture(lm, some, spec, relation=RELATION)
        with torch.no_grad():
            mixture.vectors.add_(0.1 * torch.randn(mixture.vectors.shape, generator=torch.Generator().manual_seed(1)))
        found = []
        for shares in (True, False):
            monkeypatch.setattr(lm, "may_share_prefixes", shares)
            values = mixture.log_p_x(encoded, facts)
            (gradient,) = torch.autograd.grad(values.square().sum(), mixture.vectors)
            found.append((values.detach(), gradient))
        torch.testing.assert_close(found[0][0], found[1][0], rtol=1e-5, atol=1e-4)
        torch.testing.assert_close(found[0][1], found[1][1], rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize(("name", "expected"), [("gpt2", "question"), ("bert", "combined")])
def test_a_causal_lm_is_offered_its_questions(name: str, expected: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(optimiser, "LEAST_FACTS", 2)
    monkeypatch.setattr(optimiser, "CLEARLY", -100.0)
    lm, templates = plain(name), ["[X] is [Y] .", "The capital of [X] is called [Y] ."]
    mixture, spec = Mixture(lm, templates, paper_spec()), TrainingSpec(tune_vectors=False)
    encoded, _ = mixture.encode(FACTS)
    choose_tuned(mixture, spec)
    assert mixture.spec.weighting == "auto"
    choose_weighting(mixture, mixture.answering(kind=encoded.kind), encoded, spec)
    assert mixture.spec.weighting == expected
    assert set(mixture.spec.weighting_scores) == {expected, "static"}
