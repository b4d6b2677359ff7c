"""`askwell baseline`."""

from dataclasses import asdict
from typing import Annotated

from cyclopts import Parameter

from askwell.baselines.registry import BASELINES, baseline_settings, need_prompts
from askwell.cli import options
from askwell.data.names import load_prompts, load_relation
from askwell.errors import BadOption
from askwell.specs.mixture_spec import AUTO_LEAD_IN, AnswersChoice, BeginOption, MixtureSpec
from askwell.specs.training_spec import AutoPromptSpec, BaselineName, FineTuningSpec, TrainingSpec

_HELP = {name: field.description for name, field in MixtureSpec.model_fields.items()}
_NAMES = "; ".join(f"{name}: {baseline.about}" for name, baseline in BASELINES.items())


def baseline(
    name: Annotated[BaselineName, Parameter(help=f"{_NAMES}.", show_choices=False)],
    /,
    *,
    lm: options.LM = None,
    facts: options.Facts,
    prompts: options.Prompts = None,
    out: options.RunFolder,
    seed: options.Seed = 0,
    begin: Annotated[BeginOption, Parameter(help=_HELP["begin"])] = "auto",
    answers: Annotated[AnswersChoice, Parameter(help=_HELP["answers"])] = "auto",
    longest_answer: Annotated[int | None, Parameter(help=_HELP["longest_answer"])] = None,
    lead_in: Annotated[str, Parameter(help=_HELP["lead_in"])] = AUTO_LEAD_IN,
    shots: Annotated[int | None, Parameter(help=_HELP["shots"])] = None,
    shot_separator: Annotated[str | None, Parameter(help=_HELP["shot_separator"])] = None,
    shot_draws: Annotated[int | None, Parameter(help=_HELP["shot_draws"])] = None,
    search: Annotated[AutoPromptSpec, Parameter(name="*", group="AutoPrompt")] = AutoPromptSpec(),  # noqa: B008 - frozen
    fine_tuning: Annotated[FineTuningSpec, Parameter(group="Fine-tuning")] = FineTuningSpec(),  # noqa: B008 - frozen
    training: Annotated[TrainingSpec, Parameter(name="*", group="Training")] = TrainingSpec(),  # noqa: B008 - frozen
    resume: options.Resume = False,
    overwrite: options.Overwrite = False,
    controls: options.WithControls = True,
    reading: options.Reading = options.Reading(),  # noqa: B008 - frozen
    data: options.Data = None,
    loading: options.Loading = options.Loading(),  # noqa: B008 - frozen
    json: options.Json = False,
) -> None:
    """Run a baseline: LAMA, examples in the prompt, LPAQA, OptiPrompt, AutoPrompt or fine-tuning.

    It is scored like a mixture, and its folder has the same files as that of `askwell train`, so `askwell compare` and
    `askwell report` accept both.
    """
    if lm is None:
        raise BadOption("baseline needs --lm")
    from askwell.cli.running import load_for_run, print_run, run_with_bars
    from askwell.runs.build_spec import build_run_spec, prompts_name
    from askwell.runs.folder import check_folder

    given = {
        "longest_answer": longest_answer,
        "shots": shots,
        "shot_separator": shot_separator,
        "shot_draws": shot_draws,
    }
    settings = baseline_settings(
        name,
        training,
        search,
        fine_tuning,
        seed=seed,
        begin=begin,
        answers=answers,
        lead_in=lead_in,
        **{option: value for option, value in given.items() if value is not None},
    )
    relation = load_relation(facts, data=data, split=reading.rule, seed=seed, x=reading.x, y=reading.y)
    templates = load_prompts(prompts, relation=relation, data=data) if prompts else []
    need_prompts(name, len(templates))
    if resume and not BASELINES[name].can_continue:
        raise BadOption(f"--resume: {name} cannot be resumed; start over, with --overwrite if necessary")
    check_folder(out, resume=resume, overwrite=overwrite)
    loaded = load_for_run(lm, relation, templates, training.threads, **asdict(loading))
    spec = build_run_spec(
        loaded,
        relation,
        templates,
        **settings,
        baseline=name,
        prompts=prompts_name(prompts or ["none"]),
    )
    record = run_with_bars(
        spec, loaded, relation, out, overwrite=overwrite, resume=resume, controls=controls, split_by=reading.rule
    )
    print_run(record, out, json=json)
