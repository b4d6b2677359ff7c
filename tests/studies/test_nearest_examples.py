"""Examples for each x: the trial gives what the public model gives for the sentences written out."""

import sys
from pathlib import Path

import torch
from agreement import plain

from askwell import Mixture
from askwell.data.facts import Fact
from askwell.data.templates import parse_template
from askwell.specs.mixture_spec import MixtureSpec

sys.path.insert(0, str(Path(__file__).parents[2] / "studies"))
import nearest_examples

FACTS = [Fact("Paris", "France"), Fact("Rome", "Italy"), Fact("Mary Cassatt", "Peru")]
SPEC = MixtureSpec(begin="space", answers="one-token", lead_in="none")


def trial(shown: list[tuple[Fact, ...]]) -> nearest_examples.Trial:
    lm = plain("gpt2")
    mixture = Mixture(lm, [parse_template("[X] lies in [Y] .")], SPEC)
    spec = SPEC.model_copy(update={"shots": 1, "shot_separator": " "})
    return nearest_examples.Trial(lm, mixture.prompts[0], spec, [fact.x for fact in FACTS], shown)


def test_every_x_is_asked_behind_its_own_examples() -> None:
    asked = trial([(FACTS[1],), (FACTS[0],), (FACTS[0], FACTS[1])])
    texts = [
        " Rome lies in Italy . Paris lies in",
        " Paris lies in France . Rome lies in",
        " Paris lies in France . Rome lies in Italy . Mary Cassatt lies in",
    ]
    ours = asked.log_probs(torch.tensor([2, 0, 1]))[torch.tensor([1, 2, 0])]
    for number, text in enumerate(texts):
        ids = asked.lm.tokenizer(text, add_special_tokens=False, return_tensors="pt")["input_ids"]
        with torch.no_grad():
            public = asked.lm.model(input_ids=ids).logits[0, -1].log_softmax(0)
        torch.testing.assert_close(ours[number], public, rtol=0, atol=1e-4)


def test_tuning_moves_the_words_behind_x_and_makes_the_ys_more_probable() -> None:
    asked = trial([(FACTS[1],), (FACTS[0],), (FACTS[0],)])
    every, tokens = torch.arange(3), torch.tensor([5, 6, 7])
    before, vectors = asked.log_probs_of(every, tokens).sum().item(), asked.vectors.detach().clone()
    assert len(vectors) == 2, "lies in"
    asked.tune(every, tokens, 96)
    assert asked.log_probs_of(every, tokens).sum().item() > before
    assert (asked.vectors.detach() != vectors).any(1).all()


def test_the_nearest_come_last_and_no_fact_shows_its_own_x() -> None:
    facts = [Fact("a", "1"), Fact("a", "2"), Fact("b", "3"), Fact("c", "4"), Fact("c", "5"), Fact("d", "6")]
    states = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.9, 0.1], [0.5, 0.5], [0.5, 0.5], [0.0, 1.0]])
    chosen = nearest_examples.nearest(states, facts, [0, 1, 2, 3, 4], 2)
    assert chosen[0] == (facts[3], facts[2])
    assert chosen[5] == (facts[2], facts[3]), "c is nearest to d, and there once"
    assert [fact.x for fact in chosen[3]] == ["b", "a"]


def test_representations_are_unit_vectors_of_each_x() -> None:
    lm = plain("gpt2")
    mixture = Mixture(lm, [parse_template("[X] lies in [Y] .")], SPEC)
    encoded, _ = mixture.encode(FACTS)
    states = nearest_examples.representations(mixture, encoded)
    torch.testing.assert_close(states.norm(dim=1), torch.ones(len(encoded)))
