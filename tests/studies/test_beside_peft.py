"""A prompt tuned by PEFT gets the scores that PEFT's own model gives it."""

import sys
from pathlib import Path

import pytest
import torch
from agreement import plain

from askwell.data.facts import Fact
from askwell.data.templates import parse_template
from askwell.lms.batches import words_of

sys.path.insert(0, str(Path(__file__).parents[2] / "studies"))
import beside_peft

FACTS = [Fact("Paris", "France"), Fact("Rome", "Italy"), Fact("Mary Cassatt", "Peru")]


@pytest.mark.parametrize("whole", [False, True])
def test_the_mixture_with_its_vectors_gives_the_probabilities_of_peft(whole: bool) -> None:
    pytest.importorskip("peft")
    lm, template = plain("gpt2"), parse_template("[X] lies in [Y] .")
    vectors, _ = beside_peft.tune_peft(lm, template, FACTS, 6, 0.1, whole=whole)
    started = lm.word_vectors(torch.tensor(beside_peft.prompt_ids(lm)))
    assert not torch.isclose(vectors, started).all(1).any(), "PEFT has moved all of its vectors"
    mixture = beside_peft.with_vectors(lm, template, vectors, "one-token")
    model = beside_peft.peft_model(lm)
    model.prompt_encoder["default"].embedding.weight.data.copy_(vectors)
    words = words_of([fact.x for fact in FACTS], lm.wording, lm.device)
    ours = mixture.word_log_probs(words, torch.arange(len(FACTS)), 0)
    for number, fact in enumerate(FACTS):
        before, _ = beside_peft.sentence(lm, template, fact, whole=whole)
        assert before == lm.tokenizer(f" {fact.x} lies in", add_special_tokens=False)["input_ids"]
        with torch.no_grad():
            logits = model(input_ids=torch.tensor([before])).logits[0, -1]
        torch.testing.assert_close(ours[number], logits.log_softmax(0), rtol=0, atol=1e-4)


def test_of_several_rates_the_best_on_dev_counts() -> None:
    line = {"answers": "one-token", "pairs": 1, "relation": "P1", "contender": "PEFT", "log_loss": 1.0}
    line |= {"cpu_seconds": 2.0, "pairs_per_second": 0.5}
    lines = [{**line, "P@1": 10.0, "dev": 3.0}, {**line, "P@1": 20.0, "dev": 2.0}, {**line, "P@1": 30.0, "dev": 2.5}]
    assert [kept["P@1"] for kept in beside_peft.best_rates(lines)] == [20.0]
    assert "| PEFT | 20.0 | 20.0 | 1.00 | 2 | 0.5 |" in beside_peft.table(beside_peft.best_rates(lines), ["PEFT"])


def test_steps_are_compared_with_steps() -> None:
    ours = {"dev_after": [[0, 1.0, 3.0], [400, 40.0, 2.0]], "step_cpu_seconds": 25.0}
    assert beside_peft.step_ratio(ours, {"pairs": 400, "cpu_seconds": 80.0}) == 16 / 5


def test_the_page_says_with_which_rates_peft_was_run() -> None:
    runs = [("P1", 0.03), ("P1", 0.01), ("P2", 0.03), ("P3", 0.03)]
    lines = [{"contender": beside_peft.PEFT, "relation": name, "rate": rate} for name, rate in runs]
    assert beside_peft.rates_run(lines) == "0.01, 0.03: P1; 0.03: P2, P3"
