"""`askwell baseline`."""

from dataclasses import asdict
from typing import Annotated, Any

from cyclopts import Parameter
from pydantic import BaseModel, ValidationError

from askwell.baselines.named import BASELINES, need_prompts
from askwell.cli import options
from askwell.data.names import read_prompts, read_relation
from askwell.errors import BadOption
from askwell.specs import AutoPromptSpec, FineTuningSpec, TrainingSpec
from askwell.specs.baselines import BaselineName
from askwell.specs.mixture import NO_LEAD_IN, AnswersChoice, BeginOption, MixtureSpec

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
    lead_in: Annotated[str, Parameter(help=_HELP["lead_in"])] = NO_LEAD_IN,
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

    It is scored as mixtures are, and the folder gets the same files as with `askwell train`, so that `askwell compare`
    and `askwell report` accept both.
    """
    if lm is None:
        raise BadOption("baseline needs --lm")
    chosen = _chosen_training(name, training, search, fine_tuning)
    from askwell.cli.running import load_for_run, print_run, prompts_name, run_with_bars
    from askwell.runs.folder import check_folder
    from askwell.runs.run_spec import run_spec

    how = BASELINES[name].how
    if how == "searched":
        if answers == "any-length":
            raise BadOption(f"--answers any-length: {name} searches with answers of one token of the LM alone")
        answers = "one-token"
    if lead_in != NO_LEAD_IN and "none" in BASELINES[name].prompts:
        raise BadOption(f"--lead-in: {name} searches for its own words; leave it out")
    examples = {"shots": shots, "shot_separator": shot_separator, "shot_draws": shot_draws}
    given = {option: value for option, value in examples.items() if value is not None}
    if given and not BASELINES[name].mixture.shots:
        raise BadOption(f"--{next(iter(given)).replace('_', '-')} is not a setting of {name}: it has no examples")
    if shots == 0:
        raise BadOption("--shots 0: without examples, the baseline is lama")
    mixture = _asking(name, seed=seed, begin=begin, answers=answers, lead_in=lead_in, **given)
    relation = read_relation(facts, data=data, split=reading.rule, seed=seed, x=reading.x, y=reading.y)
    templates = read_prompts(prompts, relation=relation, data=data) if prompts else []
    need_prompts(name, len(templates))
    if resume and how not in ("trained", "searched"):
        raise BadOption(f"--resume: {name} cannot be continued; start over, with --overwrite if need be")
    check_folder(out, resume=resume, overwrite=overwrite)
    loaded = load_for_run(lm, relation, templates, training.threads, **asdict(loading))
    spec = run_spec(
        loaded,
        relation,
        templates,
        mixture=mixture,
        training=chosen if how == "trained" else None,
        baseline=name,
        search=search if how == "searched" else None,
        fine_tuning=fine_tuning if how == "fine-tuned" else None,
        prompts=prompts_name(prompts or ["none"]),
    )
    record = run_with_bars(
        spec, loaded, relation, out, overwrite=overwrite, resume=resume, controls=controls, split_by=reading.rule
    )
    print_run(record, out, json=json)


def _asking(name: BaselineName, **asked: Any) -> MixtureSpec:
    """The baseline's own mixture, with what is asked for."""
    try:
        return MixtureSpec.model_validate(BASELINES[name].mixture.model_dump() | asked)
    except ValidationError as error:
        raise BadOption(error.errors()[0]["msg"].removeprefix("Value error, ")) from None


def _chosen_training(
    name: BaselineName, training: TrainingSpec, search: AutoPromptSpec, fine_tuning: FineTuningSpec
) -> TrainingSpec:
    """The baseline's own training settings, updated by those given; settings of other baselines are refused."""
    how = BASELINES[name].how
    fits = {"trained": training, "searched": search, "fine-tuned": fine_tuning}
    prefix = {"fine-tuned": "fine-tuning."}
    for kind, spec in fits.items():
        given = sorted(spec.model_fields_set - {"threads"})
        if given and kind != how:
            option = f"--{prefix.get(kind, '')}{given[0].replace('_', '-')}"
            raise BadOption(f"{option} is not a setting of {name}{_own_settings(fits.get(how), prefix.get(how, ''))}")
    own = BASELINES[name].training.model_dump(exclude_unset=True)
    given = training.model_dump(exclude_unset=True)
    if {"pairs", "minutes", "epochs"} & given.keys():  # one budget replaces another
        own = {key: value for key, value in own.items() if key not in ("pairs", "minutes", "epochs")}
    try:
        return TrainingSpec.model_validate(own | given)
    except ValidationError as error:
        raise BadOption(error.errors()[0]["msg"].removeprefix("Value error, ")) from None


def _own_settings(spec: BaseModel | None, prefix: str) -> str:
    if spec is None:
        return ": it learns nothing"
    return "; it takes " + ", ".join(f"--{prefix}{field.replace('_', '-')}" for field in type(spec).model_fields)
