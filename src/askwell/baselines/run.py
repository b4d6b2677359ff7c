"""Runs a baseline by its name: from an LM, prompts and facts to a mixture that `evaluate` scores like any other."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from askwell.baselines.autoprompt import SearchProgress, search_triggers
from askwell.baselines.ensembles import best_on_train
from askwell.baselines.fine_tuning import FineTuningProgress, fine_tune
from askwell.baselines.named import BaselineName, named_baseline, need_prompts
from askwell.baselines.optiprompt import random_dense_prompt
from askwell.errors import BadOption
from askwell.facts import Relation
from askwell.lms import FrozenLM
from askwell.mixture import Mixture, MixtureSpec
from askwell.mixture.encode import LeftOutFact
from askwell.mixture.save import save_mixture
from askwell.prompts import Template
from askwell.specs import AutoPromptSpec, FineTuningSpec, TrainingSpec
from askwell.training import Progress, train

BaselineProgress = Progress | SearchProgress | FineTuningProgress


@dataclass(frozen=True)
class BaselineRun:
    """What a baseline has made, ready to be evaluated."""

    mixture: Mixture
    history: tuple[dict[str, Any], ...] = ()
    left_out: dict[str, tuple[LeftOutFact, ...]] = field(default_factory=dict)
    """Facts of train and dev that could not be asked, where they were used."""


def run_baseline(
    name: BaselineName,
    lm: FrozenLM,
    templates: Sequence[Template],
    relation: Relation,
    *,
    training: TrainingSpec | None = None,
    search: AutoPromptSpec | None = None,
    fine_tuning: FineTuningSpec | None = None,
    seed: int = 0,
    folder: Path | None = None,
    resume: bool = False,
    progress: Callable[[BaselineProgress], None] | None = None,
) -> BaselineRun:
    """Runs the baseline of that name; each spec is for those baselines that it fits, and replaces their own settings.

    With a `folder`, what is trained or searched can be interrupted, keeps its best state there, and goes on with
    `resume`. Fine-tuning cannot go on; it leaves its LM in the folder when it has ended.
    """
    baseline = named_baseline(name)
    need_prompts(name, len(templates))
    spec = MixtureSpec.model_validate({**baseline.mixture.model_dump(exclude_unset=True), "seed": seed})
    if baseline.how == "searched":
        start_from = templates[0] if templates else None
        found = search_triggers(
            lm, relation, search, start_from=start_from, seed=seed, folder=folder, resume=resume, progress=progress
        )
        run = BaselineRun(found.mixture, found.history, found.left_out)
    elif baseline.how == "fine-tuned":
        if resume:
            raise BadOption("fine-tuning cannot go on after an interruption; begin anew with --overwrite")
        tuned = fine_tune(lm, relation, templates[0], fine_tuning, seed=seed, folder=folder, progress=progress)
        run = BaselineRun(tuned.mixture, tuned.history, tuned.left_out)
    elif baseline.how == "top-1":
        mixture, of_prompts = best_on_train(lm, templates, relation, spec)
        need_prompts(name, len(of_prompts))
        mixture.learned_from = {"relation": _told(relation), "train": of_prompts}
        run = BaselineRun(mixture)
    else:
        mixture = random_dense_prompt(lm, seed=seed) if baseline.prompts == "none" else Mixture(lm, templates, spec)
        need_prompts(name, 0 if baseline.prompts == "none" else len(mixture.prompts))
        if baseline.how == "trained":
            result = _train(mixture, relation, training or baseline.training, folder, resume, progress)
            run = BaselineRun(mixture, result.history, result.left_out)
        else:
            mixture.learned_from = {"relation": _told(relation)}
            run = BaselineRun(mixture)
    run.mixture.learned_from = {"baseline": name, **run.mixture.learned_from}
    return run


def _train(
    mixture: Mixture,
    relation: Relation,
    spec: TrainingSpec,
    folder: Path | None,
    resume: bool,
    progress: Callable[[BaselineProgress], None] | None,
) -> Any:
    try:
        return train(mixture, relation, spec, folder=folder, resume=resume, progress=progress)
    except KeyboardInterrupt:
        if folder is not None and mixture.learned_from:
            save_mixture(mixture, folder)
        raise


def _told(relation: Relation) -> dict[str, Any]:
    return {"name": relation.name, "sha256": relation.digest, **relation.counts.as_json()}
