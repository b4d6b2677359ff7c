"""The callback for transformers' Trainer: what it logs, and that training is the same with it as without."""

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import Trainer, TrainerCallback, TrainingArguments

from askwell.data import testbed
from askwell.data.split import sample
from askwell.errors import BadOption
from askwell.evaluation.examine import evaluate_split
from askwell.lms.checkpoints import load_checkpoint_files
from askwell.lms.load import load_lm
from askwell.mixture.mixture import Mixture
from askwell.runs.while_training import KnowledgeCallback
from askwell.specs.training_spec import TrainingSpec

PROMPTS = ["The capital of [X] is [Y] ."]


class _Reporter(TrainerCallback):
    def __init__(self) -> None:
        self.logged: list[dict[str, float]] = []

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **given: Any) -> None:  # noqa: ARG002 - as Trainer calls it
        self.logged.append(dict(logs))


def _trainer(folder: Path) -> tuple[Trainer, Any, Any]:
    model, tokenizer, _ = load_checkpoint_files(str(testbed.lm_folder("testbed:causal")), None)
    ids = tokenizer(["the weather was fine and the road was long"] * 8)["input_ids"]
    rows: Any = [{"input_ids": row, "labels": row} for row in ids]
    options: dict[str, Any] = {"max_steps": 4, "per_device_train_batch_size": 2, "learning_rate": 1e-2}
    options |= {"report_to": [], "use_cpu": True, "save_strategy": "no", "logging_strategy": "no", "disable_tqdm": True}
    made = TrainingArguments(output_dir=str(folder), dataloader_pin_memory=False, **options)
    return Trainer(model.float(), made, train_dataset=rows, processing_class=tokenizer), model, tokenizer


@pytest.mark.filterwarnings("ignore")
def test_scores_are_logged_and_training_is_unchanged(tmp_path: Path) -> None:
    relation = sample(testbed.testbed_relation("capital"), train=24, dev=8, test=12, seed=0)
    plain, expected, tokenizer = _trainer(tmp_path)
    plain.train()
    trainer, model, _ = _trainer(tmp_path)
    reporter = _Reporter()
    trainer.add_callback(reporter)
    callback = KnowledgeCallback(relation, PROMPTS, every=2, tuned=TrainingSpec(pairs=32)).add_to(trainer)
    trainer.train()
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, expected.state_dict()[name]), name
    assert all(parameter.requires_grad for parameter in model.parameters())
    assert [line["step"] for line in callback.history] == [0, 2, 4, 4]
    assert "askwell/tuned_P@1" in callback.history[-1]
    logged = [line["askwell/hard_P@1"] for line in reporter.logged if "askwell/hard_P@1" in line]
    assert logged == [line["askwell/hard_P@1"] for line in callback.history]
    lm = load_lm("testbed:causal", device="cpu")
    before = evaluate_split(Mixture(lm, PROMPTS, relation=relation), relation).figures().micro["P@1"]
    after = evaluate_split(Mixture(load_lm(expected, tokenizer), PROMPTS, relation=relation), relation)
    assert logged[0] == before
    assert logged[-1] == after.figures().micro["P@1"]


def test_what_it_cannot_do_is_refused_in_a_sentence() -> None:
    with pytest.raises(BadOption, match="at least 1"):
        KnowledgeCallback("testbed:capital", PROMPTS, every=0)
    with pytest.raises(BadOption, match="tokenizer="):
        KnowledgeCallback("testbed:capital", PROMPTS).on_train_begin(None, None, None, model=None)
