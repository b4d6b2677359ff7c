"""The benchmarks run, and their counts are right."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from builders.specs import paper_spec
from builders.worlds import FACTS, TEMPLATES, frozen
from torch.utils.flop_counter import FlopCounterMode

from askwell.answers.one_token import OneTokenAnswers
from askwell.lms.walks import attention
from askwell.mixture.mixture import Mixture

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(autouse=True)
def _on_path(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))


@pytest.mark.parametrize("training", [False, True])
def test_needed_flops_are_what_askwell_computes(training, monkeypatch):
    """Up to the first layer's projections, through which gradients go at every row and are needed at some, and to the
    padding of attention in small batches, which is left out here."""
    from flops import needed_flops

    monkeypatch.setattr(attention, "_EVEN_PAIRS", 1)
    monkeypatch.setattr(attention, "_remembered_groups", attention._groups)
    lm = frozen("bert")
    mixture = Mixture(lm, TEMPLATES, paper_spec())
    facts, _ = mixture.encode(FACTS)
    everyone = torch.arange(len(facts))
    with FlopCounterMode(display=False) as counter:
        if training:
            mixture.pairs.gold_log_probs(mixture.tuned, facts.xs, facts.gold_tokens, everyone).sum().backward()
        else:
            OneTokenAnswers(mixture).log_probs(facts.xs, everyone)
    lengths = [mixture.pairs.y_table.lengths(facts.xs, everyone, torch.full_like(everyone, t)).sum() for t in range(3)]
    tuned = sum(len(prompt.token_ids) for prompt in mixture.prompts) * len(facts)
    idle = 2 * 3 * 24 * 24 * (int(sum(lengths)) - tuned) if training else 0
    assert needed_flops(mixture, facts, training=training) + idle == counter.get_total_flops()


def test_ratios_come_from_turns():
    from measure import in_turns

    order = []
    times = in_turns({"a": lambda: order.append("a"), "b": lambda: order.append("b")}, rounds=2)
    assert order == ["a", "b", "a", "b", "a", "b"]
    assert [len(each.seconds) for each in times.values()] == [2, 2], "the first round warms up"


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="Linux counts resident pages")
def test_peak_memory_is_what_a_call_holds():
    from measure import peak_bytes

    held = []
    peak = peak_bytes(lambda: held.append(torch.ones(20_000_000).sum()))
    assert 75_000_000 < peak < 100_000_000
    assert peak_bytes(lambda: None) < 10_000_000


def test_a_summary_keeps_the_figures_of_other_parts(tmp_path):
    from report import merge_summary

    (tmp_path / "summary.json").write_text('{"time_to_quality": {"ratio": 21.0}, "evaluation": {"small": 1}}')
    merge_summary(tmp_path, {"evaluation": {"small": 6.5}})
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary["time_to_quality"] == {"ratio": 21.0}
    assert summary["evaluation"] == {"small": 6.5}


@pytest.mark.slow
def test_all_parts_run_quickly(tmp_path):
    from parts import PARTS

    parts = [part for part in PARTS if part != "start_of_ask"]  # it starts a dozen processes
    command = [sys.executable, str(BENCHMARKS / "run.py"), *parts, "--quick", "--out", str(tmp_path)]
    subprocess.run(command, check=True, timeout=1800)
    summary = json.loads((tmp_path / "summary.json").read_text())
    for part in ("equal_work", "evaluation", "gemm_fraction"):
        assert summary[part]["small"] > 0
    assert 0 < summary["evaluation_memory_ratio"] < 1
    assert {path.stem for path in tmp_path.glob("*.json")} == {*parts, "summary"}


def test_an_unknown_part_is_refused(capsys):
    from run import main

    with pytest.raises(SystemExit) as stop:
        main(["speed"])
    assert stop.value.code == 2
    assert "there is no part 'speed'" in capsys.readouterr().err
