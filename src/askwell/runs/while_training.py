"""A callback for transformers' Trainer: what does the LM know while it is trained?"""

from typing import Any

from transformers import PreTrainedModel, TrainerCallback

from askwell.data.facts import Relation
from askwell.data.names import load_prompts, load_relation
from askwell.errors import BadOption
from askwell.evaluation.examine import evaluate_split
from askwell.lms.frozen import FrozenLM
from askwell.mixture.mixture import Mixture
from askwell.specs.training_spec import TrainingSpec
from askwell.training.loop import train


class KnowledgeCallback(TrainerCallback):
    """Asks the LM that is being trained about a relation's test facts every few steps, and logs the scores.

    Hard prompts are asked before the first step, every `every` steps, and at the end. With `tuned`, prompts are also
    tuned on the relation's train facts at the end; the LM's own weights are not changed by that. Scores are kept in
    `history` and in the Trainer's log history, as `askwell/hard_P@1` and `askwell/tuned_P@1`. Trainers do not tell
    callbacks where they log to; added by `add_to(trainer)`, scores go there as well.
    """

    def __init__(
        self,
        relation: Any,
        prompts: Any,
        every: int = 500,
        *,
        tuned: bool | TrainingSpec = False,
        tokenizer: Any = None,
    ) -> None:
        if every < 1:
            raise BadOption(f"`every` {every}: ask every so many steps, at least 1")
        self.relation = relation if isinstance(relation, Relation) else load_relation(relation)
        self.templates = load_prompts(prompts, relation=self.relation)
        self.every, self.tuned, self.tokenizer = every, tuned, tokenizer
        self.history: list[dict[str, float]] = []
        """The step and the scores, each time that the LM was asked."""
        self._log: Any = None

    def add_to(self, trainer: Any) -> "KnowledgeCallback":
        """Add the callback to a Trainer, and log to whatever it logs to."""
        trainer.add_callback(self)
        self._log = trainer.log
        return self

    def on_train_begin(self, args: Any, state: Any, control: Any, **given: Any) -> None:  # noqa: ARG002 - as Trainer calls it
        """Ask before the first step."""
        self._ask(state, given)

    def on_step_end(self, args: Any, state: Any, control: Any, **given: Any) -> None:  # noqa: ARG002 - as Trainer calls it
        """Ask every few steps."""
        if state.global_step % self.every == 0:
            self._ask(state, given)

    def on_train_end(self, args: Any, state: Any, control: Any, **given: Any) -> None:  # noqa: ARG002 - as Trainer calls it
        """Ask at the end, with tuned prompts as well if they were asked for."""
        if not self.history or self.history[-1]["step"] != state.global_step or self.tuned:
            self._ask(state, given, tune=bool(self.tuned))

    def _ask(self, state: Any, given: dict[str, Any], *, tune: bool = False) -> None:
        model, tokenizer = given.get("model"), self.tokenizer or given.get("processing_class")
        if not isinstance(model, PreTrainedModel) or tokenizer is None:
            raise BadOption("KnowledgeCallback needs a transformers model, and its tokenizer: give tokenizer=")
        learns = {name: parameter.requires_grad for name, parameter in model.named_parameters()}
        was_training = model.training
        try:
            lm = FrozenLM(model, tokenizer)
            scores = {"askwell/hard_P@1": self._score(Mixture(lm, self.templates, relation=self.relation))}
            if tune:
                mixture = Mixture(lm, self.templates, relation=self.relation)
                train(mixture, self.relation, self.tuned if isinstance(self.tuned, TrainingSpec) else None)
                scores["askwell/tuned_P@1"] = self._score(mixture)
        finally:  # the Trainer goes on with the same weights, still to be learned
            for name, parameter in model.named_parameters():
                parameter.requires_grad_(learns[name])
            model.train(was_training)
        self.history.append({"step": state.global_step, **scores})
        if self._log is not None:
            self._log(dict(scores))
        else:
            state.log_history.append({**scores, "step": state.global_step})

    def _score(self, mixture: Mixture) -> float:
        return evaluate_split(mixture, self.relation, top=1).figures().micro["P@1"]
