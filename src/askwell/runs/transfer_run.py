"""A run that starts from a mixture of another LM: asked as it is carried over, or tuned from there."""

from dataclasses import dataclass

from askwell.data.facts import Relation
from askwell.evaluation.examine import evaluate_split
from askwell.evaluation.scoring import EvaluationFigures, Progress
from askwell.lms.frozen import FrozenLM
from askwell.mixture.mixture import Mixture
from askwell.mixture.save import read_description
from askwell.runs.build_spec import build_run_spec, setting_name
from askwell.specs.mixture_spec import MixtureSpec
from askwell.specs.run_spec import RunSpec, Start
from askwell.specs.training_spec import TrainingSpec


@dataclass(frozen=True)
class TransferScores:
    """Test scores of a mixture on the LM that it was learned on, and of the other LM's prompts without it."""

    source: EvaluationFigures
    """On the LM that it was learned on."""
    words: EvaluationFigures
    """The same prompts as words, on the other LM."""


@dataclass(frozen=True)
class TransferRun:
    """A mixture that was carried over, and the spec of the run that starts from it."""

    mixture: Mixture
    spec: RunSpec
    scores: TransferScores


def transfer_run(
    folder: str,
    source: Mixture,
    relation: Relation,
    lm: FrozenLM,
    training: TrainingSpec | None = None,
    progress: Progress = None,
) -> TransferRun:
    """Carry the mixture saved in a folder over to another LM, score what it is compared with, and return it with the
    spec of its run: tuned from there if `training` is given, otherwise asked as it is."""
    carried = source.transfer(lm, relation)
    templates = [prompt.template for prompt in carried.prompts[:: carried.spec.copies]]
    # Words show the same examples, if any, so that only what was learned makes the difference.
    words = Mixture(lm, templates, carried.spec, examples=carried.examples or None)
    words.answer_kind, words.candidates = carried.answer_kind, carried.candidates
    fields = {name: getattr(carried.spec, name) for name in MixtureSpec.model_fields}
    asked = MixtureSpec.model_validate(fields)
    if training is not None and source.candidates is not None:
        training = training.model_copy(update={"classify": True})
    tuned = None if training is None else setting_name(asked, training)
    return TransferRun(
        carried,
        build_run_spec(
            lm,
            relation,
            templates,
            mixture=asked,
            training=training,
            candidates=source.candidates,
            prompts="carried over",
            setting="carried over" if tuned is None else f"{tuned}, from another LM's",
            start=Start(lm=source.lm.identity.name, mixture_sha256=read_description(folder).digest),
        ),
        TransferScores(
            evaluate_split(source, relation, progress=progress).figures(),
            evaluate_split(words, relation, progress=progress).figures(),
        ),
    )
