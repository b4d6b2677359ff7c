"""The same with transformers' Trainer: a module that gives a loss, and a collator that puts texts into lists."""

import tempfile

from torch import nn
from transformers import Trainer, TrainingArguments

import askwell


class Loss(nn.Module):
    """What Trainer wants of a model: a dictionary with a loss."""

    def __init__(self, mixture):
        super().__init__()
        self.mixture = mixture

    def forward(self, xs, ys):
        """The mean of -log p(y | x, r)."""
        return {"loss": -self.mixture(xs, ys).mean()}


lm = askwell.load_lm("testbed:causal", device="cpu")
relation = askwell.load_relation("testbed:continent")
mixture = askwell.Mixture(lm, "[X] lies in [Y] .")
mixture.configure_answers(relation, candidates=sorted({fact.y for fact in relation.train}))  # it chooses among these

with tempfile.TemporaryDirectory() as folder:
    trainer = Trainer(
        model=Loss(mixture),
        args=TrainingArguments(
            output_dir=folder,
            max_steps=24,
            per_device_train_batch_size=16,
            learning_rate=1e-2,
            remove_unused_columns=False,  # xs and ys are columns of ours
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
            use_cpu=True,
            logging_steps=8,
        ),
        train_dataset=[{"x": fact.x, "y": fact.y} for fact in relation.train],
        data_collator=lambda rows: {"xs": [row["x"] for row in rows], "ys": [row["y"] for row in rows]},
    )
    trainer.train()

losses = [line["loss"] for line in trainer.state.log_history if "loss" in line]
evaluation = askwell.evaluate(mixture, relation)
print(evaluation)
