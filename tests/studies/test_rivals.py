"""Rivals are scored as askwell's own runs are, and PEFT's methods begin where they are said to begin."""

import sys
from pathlib import Path

import pytest
import torch
from agreement import plain

from askwell import Mixture
from askwell.data.facts import Fact, Relation
from askwell.data.templates import parse_template
from askwell.evaluation.examine import evaluate_split

sys.path.insert(0, str(Path(__file__).parents[2] / "studies"))
import rivals

FACTS = [Fact("Paris", "France"), Fact("Rome", "Italy"), Fact("Mary Cassatt", "Peru"), Fact("Paris", "Italy")]
RELATION = Relation.of("lies in", FACTS, FACTS, FACTS)
TEMPLATE = parse_template("[X] lies in [Y] .")


def test_an_lm_is_scored_as_evaluate_scores_a_hard_prompt() -> None:
    lm = plain("gpt2")
    rows = [rivals.sentence(lm, TEMPLATE, fact, whole=False) for fact in RELATION.test]
    found = rivals.scored(lm.model, lm, RELATION, RELATION.test, rows)
    outcomes = evaluate_split(Mixture(lm, [TEMPLATE], begin="space", answers="one-token"), RELATION).outcomes
    by_fact = {Fact(one.x, one.y): one for one in outcomes}
    assert found["right"] == "".join(str(int(by_fact[fact].rank <= 1)) for fact in RELATION.test)
    expected = [-by_fact[fact].log_probability for fact in RELATION.test]
    assert found["losses"] == pytest.approx(expected, abs=2e-4)


def test_other_right_answers_are_left_out_of_the_ranking() -> None:
    lm = plain("gpt2")
    rows = [rivals.sentence(lm, TEMPLATE, fact, whole=False) for fact in RELATION.test]
    tokens = {fact.y: row[1][0] for fact, row in zip(RELATION.test, rows, strict=True)}

    class PrefersItaly(torch.nn.Module):
        def forward(self, input_ids: torch.Tensor) -> object:  # noqa: ARG002
            logits = torch.zeros(1, 1, len(lm.tokenizer))
            logits[..., tokens["Italy"]], logits[..., tokens["France"]] = 2.0, 1.0
            return type("Output", (), {"logits": logits})

    right = dict(
        zip(RELATION.test, rivals.scored(PrefersItaly(), lm, RELATION, RELATION.test, rows)["right"], strict=True)
    )
    assert right == {FACTS[0]: "1", FACTS[1]: "1", FACTS[2]: "0", FACTS[3]: "1"}


@pytest.mark.parametrize("name", ["prefix tuning, from 4 examples", "LoRA, r = 8, behind 4 examples"])
def test_an_untuned_method_is_the_lm_that_reads_the_examples(name: str) -> None:
    pytest.importorskip("peft")
    lm, rival = plain("llama"), rivals.RIVALS[name]
    text = rivals.lines_of(TEMPLATE, FACTS[:2])
    assert text == "Paris lies in France .\nRome lies in Italy .\n"
    model = rivals.adapted(lm, rival, text)
    written_out = lm.tokenizer(f"{text}Mary Cassatt lies in", add_special_tokens=False)["input_ids"]
    before = len(lm.tokenizer(text, add_special_tokens=False)["input_ids"]) if rival.method == "prefix" else 0
    with torch.no_grad():
        expected = lm.model(input_ids=torch.tensor([written_out])).logits[0, -1]
        found = model(input_ids=torch.tensor([written_out[before:]])).logits[0, -1]
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-4)


def test_lora_leaves_the_lm_as_it_was() -> None:
    pytest.importorskip("peft")
    lm = plain("llama")
    before = {name: value.clone() for name, value in lm.model.state_dict().items()}
    model = rivals.adapted(lm, rivals.RIVALS["LoRA, r = 8"], "")
    rivals.tune(model, [rivals.sentence(lm, TEMPLATE, fact, whole=False) for fact in FACTS], 8, 0.1)
    after = lm.model.state_dict()
    assert all(torch.equal(value, after[name]) for name, value in before.items())
    assert after.keys() == before.keys()


def test_facts_that_are_shown_are_not_tuned_on() -> None:
    shown, others = rivals.drawn(FACTS, 2)
    assert len(shown) == 2
    assert sorted([*shown, *others]) == sorted(FACTS)


def test_only_new_xs_are_asked() -> None:
    relation = Relation.of("lies in", FACTS[:1], FACTS[1:2], FACTS)
    assert [fact.x for fact in rivals.of_new_xs(relation).test] == ["Mary Cassatt", "Rome"]


def test_every_rate_of_every_rival_is_wanted_once() -> None:
    asked = [(one["contender"], one["rate"]) for one in rivals.wanted("P1")]
    assert len({*asked}) == len(asked)
    assert {rate for name, rate in asked if name == "LoRA, r = 32"} == {3e-4, 1e-3, 3e-3}
    assert len(asked) == 6 + 3 + 9 + 2 * 12
