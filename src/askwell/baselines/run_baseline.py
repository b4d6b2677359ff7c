"""Runs a baseline by its name: from an LM, prompts and facts to a mixture that `evaluate` scores like any other.

LPAQA averages the prompts' log-probabilities, so its ensembles are products of experts: with equal exponents, with the
exponents that were published with the prompts, or with exponents that are learned on train. OptiPrompt is a single
soft prompt at layer 0; AutoPrompt's search and fine-tuning have separate files.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from askwell.baselines.autoprompt import search_triggers
from askwell.baselines.fine_tuning import fine_tune
from askwell.baselines.hard_prompt import blank_template, prompt_of
from askwell.baselines.registry import BASELINES, need_prompts
from askwell.baselines.result import AnyProgress, BaselineRun
from askwell.data.facts import Relation
from askwell.data.templates import Template
from askwell.errors import BadOption, NothingLeft
from askwell.evaluation.scoring import score_facts
from askwell.lms.frozen import FrozenLM
from askwell.mixture.description import About
from askwell.mixture.learned_from import MIXTURE, LearnedFrom, RelationRecord
from askwell.mixture.mixture import Mixture
from askwell.prompts.context import settle
from askwell.prompts.prompt import LeftOutPrompt
from askwell.specs.mixture_spec import NO_LEAD_IN, MixtureSpec, SettledMixtureSpec
from askwell.specs.training_spec import AutoPromptSpec, BaselineName, FineTuningSpec, TrainingSpec
from askwell.training.history import Interrupted, TrainingResult, badness
from askwell.training.loop import train


def best_on_train(
    lm: FrozenLM, templates: Sequence[Template], relation: Relation, spec: SettledMixtureSpec
) -> tuple[Mixture, list[dict[str, Any]]]:
    """Build a mixture of the prompt that answers the most train facts, with ties broken by log-loss, then by order;
    return it with the train scores of each prompt. A fact that cannot be asked with a prompt counts as unanswered."""
    everything = Mixture(lm, templates, spec, relation=relation)
    scored: list[dict[str, Any]] = []
    left_out = list(everything.left_out_prompts)
    for prompt in everything.prompts:
        alone = Mixture(lm, [prompt.template], spec, relation=relation)
        try:
            facts = alone.encode_relation(relation).need("train")
        except NothingLeft as nothing:
            left_out.append(LeftOutPrompt(prompt.template, str(nothing)))
            continue
        scores = score_facts(alone.answering(kind=facts.kind), facts, relation)
        scores["P@1"] *= len(facts) / len(relation.train)
        scored.append({"template": prompt.template, **scores})
    if not scored:
        everything.encode_relation(relation).need("train")  # says why nothing can be asked
        raise NothingLeft("prompts", {"no train fact can be asked with it": len(left_out)})
    best = min(scored, key=badness)
    mixture = Mixture(lm, [best["template"]], spec, relation=relation)
    mixture.left_out_prompts += left_out
    return mixture, [{**of, "template": of["template"].text} for of in scored]


def random_dense_prompt(lm: FrozenLM, *, vectors: int = 5, seed: int = 0, asked: MixtureSpec | None = None) -> Mixture:
    """Build a mixture of one prompt "[X] v … v [Y] .", with vectors drawn from a Gaussian fitted to the word vectors.

    OptiPrompt does not tune the full stop; here it starts as a full stop and is tuned as well.
    """
    template = blank_template(lm, vectors)
    drawn = {"initial": "random", "seed": seed, "lead_in": NO_LEAD_IN, "shots": 0}
    mixture = Mixture(lm, [template], settle(asked or MixtureSpec(), lm).model_copy(update=drawn))
    full_stop = torch.tensor(prompt_of(lm, template).token_ids[vectors:], dtype=torch.long, device=lm.device)
    with torch.no_grad():
        for vectors_of in (mixture.vectors, mixture.initial_vectors):
            vectors_of[vectors:] = lm.word_vectors(full_stop).to(vectors_of.dtype)
    return mixture


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
    asked: MixtureSpec | None = None,
    folder: Path | None = None,
    resume: bool = False,
    progress: Callable[[AnyProgress], None] | None = None,
) -> BaselineRun:
    """Run the baseline of that name; a spec replaces the settings of the baselines that it fits, and the answers, the
    beginning of sentences and what comes before them are those of `asked`. AutoPrompt takes only answers of one token,
    and baselines that make their own prompt have nothing before it.

    With a `folder`, training or a search can be interrupted: its best state is kept there, and `resume` continues from
    it. Fine-tuning cannot be resumed; it saves its LM in the folder at the end.
    """
    baseline = BASELINES[name]
    need_prompts(name, len(templates))
    spec = settle(_asking_like(baseline.mixture, asked, seed), lm, relation, templates)
    shared: Any = {"seed": seed, "asked": spec}
    if baseline.how == "searched":
        start_from = templates[0] if templates else None
        run: BaselineRun = search_triggers(
            lm, relation, search, start_from=start_from, **shared, folder=folder, resume=resume, progress=progress
        )
    elif baseline.how == "fine-tuned":
        if resume:
            raise BadOption(
                "fine-tuning cannot be resumed after an interruption; start over with `overwrite`",
                overwrite="--overwrite",
            )
        run = fine_tune(lm, relation, templates[0], fine_tuning, **shared, folder=folder, progress=progress)
    else:
        on_train: list[dict[str, Any]] = []
        if baseline.how == "top-1":
            mixture, on_train = best_on_train(lm, templates, relation, spec)
            need_prompts(name, len(on_train))
        elif baseline.prompts == "none":
            mixture = random_dense_prompt(lm, **shared)
        else:
            mixture = Mixture(lm, templates, spec, relation=relation)
            need_prompts(name, len(mixture.prompts))
        learned_from = LearnedFrom(prompts_on_train=tuple(on_train))
        run = BaselineRun(mixture, About(relation=RelationRecord.of(relation), learned_from=learned_from))
        if baseline.how == "trained":
            how = training or baseline.training
            run = _trained(mixture, relation, how, folder=folder, resume=resume, progress=progress)
    learned_from = run.learned_from.model_copy(update={"baseline": name})
    return replace(run, about=run.about.model_copy(update={"learned_from": learned_from}))


def _asking_like(own: MixtureSpec, asked: MixtureSpec | None, seed: int) -> MixtureSpec:
    """Return a baseline's own mixture with the answers, the beginning of sentences, the lead-in and, where possible,
    the number of examples that were asked for, so that it asks the same questions in its own way."""
    names: tuple[str, ...] = ("answers", "longest_answer", "begin", "lead_in")
    if asked is not None and not own.keeps_words and (asked.shots or (asked.shots == 0 and not own.shots)):
        names += ("shots", "shot_separator", "shot_draws")
    shared = {} if asked is None else {name: getattr(asked, name) for name in names}
    return own.model_copy(update={**shared, "seed": seed})


def _trained(
    mixture: Mixture, relation: Relation, spec: TrainingSpec, *, folder: Path | None, **options: Any
) -> BaselineRun:
    """Train the mixture like ours; if interrupted, save its best state so far."""
    try:
        result = train(mixture, relation, spec, folder=folder, **options)
    except Interrupted as interrupted:
        if folder is not None:
            mixture.save_pretrained(folder / MIXTURE, about=_about(interrupted.result, relation))
        raise
    return BaselineRun(mixture, _about(result, relation), result.history)


def _about(result: TrainingResult, relation: Relation) -> About:
    scores = {"dev": result.dev_scores}
    return About(relation=RelationRecord.of(relation), learned_from=result.learned_from, scores=scores)
