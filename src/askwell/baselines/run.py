"""Runs a baseline by its name: from an LM, prompts and facts to a mixture that `evaluate` scores like any other.

LPAQA averages the prompts' log-probabilities, so its ensembles are products of experts: with equal exponents, with the
exponents that were published with the prompts, or with exponents that are learned on train. OptiPrompt is a single
soft prompt at layer 0; the search of AutoPrompt and fine-tuning have files of their own.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from askwell.baselines.autoprompt import SearchProgress, search_triggers
from askwell.baselines.fine_tuning import FineTuningProgress, fine_tune
from askwell.baselines.hard_prompt import blank_template, prompt_of
from askwell.baselines.named import named_baseline, need_prompts
from askwell.data.facts import Relation
from askwell.data.templates import Template
from askwell.errors import BadOption, NothingLeft
from askwell.evaluation.evaluate import score_facts
from askwell.lms.frozen import FrozenLM
from askwell.mixture.description import About
from askwell.mixture.encode import LeftOutFact, encode_relation
from askwell.mixture.mixture import Mixture
from askwell.mixture.prompts import LeftOutPrompt
from askwell.mixture.save import IN_A_RUN, save_mixture
from askwell.specs.baselines import AutoPromptSpec, BaselineName, FineTuningSpec
from askwell.specs.mixture import MixtureSpec
from askwell.specs.training import TrainingSpec
from askwell.training.loop import train
from askwell.training.result import Interrupted, TrainingProgress, TrainingResult, best_by_dev


def best_on_train(
    lm: FrozenLM, templates: Sequence[Template], relation: Relation, spec: MixtureSpec
) -> tuple[Mixture, list[dict[str, Any]]]:
    """A mixture of the one prompt that answers most train facts, ties broken by log-loss, then by order; and what each
    prompt scores on train. A fact that cannot be asked with a prompt counts as not answered by it."""
    everything = Mixture(lm, templates, spec)
    scored: list[dict[str, Any]] = []
    left_out = list(everything.left_out_prompts)
    for prompt in everything.prompts:
        alone = Mixture(lm, [prompt.template], spec)
        try:
            facts = encode_relation(alone, relation).need("train")
        except NothingLeft as nothing:
            left_out.append(LeftOutPrompt(prompt.template, str(nothing)))
            continue
        scores = score_facts(alone, facts, relation)
        scores["P@1"] *= len(facts) / len(relation.train)
        scored.append({"template": prompt.template, **scores})
    if not scored:
        encode_relation(everything, relation).need("train")  # says why nothing can be asked
        raise NothingLeft("prompts", {"no train fact can be asked with it": len(left_out)})
    best = best_by_dev(scored, lambda of: of)
    mixture = Mixture(lm, [best["template"]], spec)
    mixture.left_out_prompts += left_out
    return mixture, [{**of, "template": of["template"].text} for of in scored]


VECTORS = 5
"""Dense vectors of a prompt that starts at random."""


def random_dense_prompt(lm: FrozenLM, *, vectors: int = VECTORS, seed: int = 0) -> Mixture:
    """A mixture of one prompt "[X] v … v [Y] ." whose vectors are drawn from a Gaussian fitted to the word vectors.

    OptiPrompt leaves the full stop as it is; here it starts as it is, and is tuned, too.
    """
    template = blank_template(lm, vectors)
    mixture = Mixture(lm, [template], MixtureSpec(initial="random", seed=seed))
    full_stop = torch.tensor(prompt_of(lm, template).token_ids[vectors:], dtype=torch.long, device=lm.device)
    with torch.no_grad():
        for vectors_of in (mixture.vectors, mixture.initial_vectors):
            vectors_of[vectors:] = lm.word_vectors(full_stop).to(vectors_of.dtype)
    return mixture


BaselineProgress = TrainingProgress | SearchProgress | FineTuningProgress


@dataclass(frozen=True)
class BaselineRun:
    """What a baseline has made, ready to be evaluated."""

    mixture: Mixture
    about: About
    """What it was learned from, and what it scores on dev, if dev was used."""
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
        run = BaselineRun(found.mixture, found.about, found.history, found.left_out)
    elif baseline.how == "fine-tuned":
        if resume:
            raise BadOption("fine-tuning cannot go on after an interruption; begin anew with --overwrite")
        tuned = fine_tune(lm, relation, templates[0], fine_tuning, seed=seed, folder=folder, progress=progress)
        run = BaselineRun(tuned.mixture, tuned.about, tuned.history, tuned.left_out)
    elif baseline.how == "top-1":
        mixture, of_prompts = best_on_train(lm, templates, relation, spec)
        need_prompts(name, len(of_prompts))
        run = BaselineRun(mixture, About(learned_from={"relation": relation.description, "train": of_prompts}))
    else:
        mixture = random_dense_prompt(lm, seed=seed) if baseline.prompts == "none" else Mixture(lm, templates, spec)
        need_prompts(name, 0 if baseline.prompts == "none" else len(mixture.prompts))
        if baseline.how == "trained":
            result = _train(mixture, relation, training or baseline.training, folder, resume, progress)
            history = tuple(line.as_json() for line in result.history)
            run = BaselineRun(mixture, _about(result, relation), history, result.left_out)
        else:
            run = BaselineRun(mixture, About(learned_from={"relation": relation.description}))
    named = {"baseline": name, **run.about.learned_from}
    return replace(run, about=run.about.model_copy(update={"learned_from": named}))


def _train(
    mixture: Mixture,
    relation: Relation,
    spec: TrainingSpec,
    folder: Path | None,
    resume: bool,
    progress: Callable[[BaselineProgress], None] | None,
) -> TrainingResult:
    try:
        return train(mixture, relation, spec, folder=folder, resume=resume, progress=progress)
    except Interrupted as interrupted:
        if folder is not None:
            save_mixture(mixture, folder / IN_A_RUN, about=_about(interrupted.result, relation))
        raise


def _about(result: TrainingResult, relation: Relation) -> About:
    return About(learned_from=result.learned_from(relation), scores={"dev": result.dev_scores})
