"""`askwell train`, `askwell baseline` and `askwell transfer`."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter, validators

from askwell.baselines.registry import BASELINES, baseline_settings, need_prompts
from askwell.cli import options
from askwell.cli.replies import need_mixtures
from askwell.cli.terminal import bar, note, note_loading, print_json, say, show
from askwell.data.names import load_folds, load_prompts, load_relation
from askwell.errors import BadOption
from askwell.specs.mixture_spec import AUTO_LEAD_IN, AnswersChoice, BeginOption, MixtureSpec
from askwell.specs.training_spec import AutoPromptSpec, BaselineName, FineTuningSpec, TrainingSpec

if TYPE_CHECKING:
    from askwell.runs.record import RunRecord
    from askwell.specs.run_spec import RunSpec

_HELP = {name: field.description for name, field in MixtureSpec.model_fields.items()}
_BASELINES = "; ".join(f"{name}: {baseline.about}" for name, baseline in BASELINES.items())


def train(
    *,
    lm: options.NeededLM,
    facts: options.Facts,
    prompts: options.NeededPrompts,
    out: options.RunFolder,
    mixture: Annotated[MixtureSpec, Parameter(name="*", group="Mixture")] = MixtureSpec(),  # noqa: B008 - frozen
    training: Annotated[TrainingSpec, Parameter(name="*", group="Training")] = TrainingSpec(),  # noqa: B008 - frozen
    resume: options.Resume = False,
    overwrite: options.Overwrite = False,
    seeds: str | None = None,
    folds: Annotated[int | None, Parameter(validator=validators.Number(gte=2, lte=50))] = None,
    controls: options.WithControls = True,
    candidates: options.CandidatesFile = None,
    among: options.Among = None,
    reading: options.Reading = options.Reading(),  # noqa: B008 - frozen
    data: options.Data = None,
    loading: options.Loading = options.Loading(),  # noqa: B008 - frozen
    compiled: options.Flag = False,
    json: options.Json = False,
) -> None:
    """Learn a mixture of soft prompts for a relation.

    The folder gets the record of the run (run.json), the saved mixture (mixture/), the outcome of each test fact
    (facts.parquet) and the history of tuning. Ctrl-C keeps the best state so far, and --resume continues from there.

    Args:
        seeds: Train once per seed (0,1,2, or 3 for three of them), into the folders seed-0 and so on in --out, and
            report the mean and spread of the scores; --resume continues after an interruption. The facts of each split
            stay the same: those of --seed, for a single file.
        folds: For few facts in a single file: cut them into this many folds, train once for each on the other facts,
            into the folders fold-1 and so on in --out, and score all facts together, each once.
        compiled: Compile parts of the LM's layers with torch.compile: slow to start, but worth it for long runs on a
            GPU.
    """
    if seeds is not None and folds is not None:
        raise BadOption("--seeds and --folds cannot be combined: train folds with one --seed after the other")
    from askwell.answers.candidates import find_candidates
    from askwell.runs.folder import check_folder
    from askwell.runs.several_runs import over_seeds, run_each, seeds_as_json, seeds_of

    read: dict[str, Any] = reading.named | {"data": data, "seed": mixture.seed}
    of_seeds = {} if seeds is None else {out / f"seed-{seed}": seed for seed in seeds_of(seeds)}
    if folds is not None:
        relations = load_folds(facts, folds, **read)
        planned = {out / f"fold-{place}": (one, mixture.seed) for place, one in enumerate(relations, start=1)}
    else:
        relations = [load_relation(facts, **read)]
        planned = {folder: (relations[0], seed) for folder, seed in (of_seeds or {out: mixture.seed}).items()}
    templates = load_prompts(prompts, relation=relations[0], data=data)
    labels = {one.digest: find_candidates(candidates, among, one) for one in relations}
    if candidates is not None or among is not None:
        training = training.model_validate({**training.model_dump(), "classify": True})
    several = [*planned] != [out]
    if not (several and resume):
        for folder in planned:
            check_folder(folder, resume=resume, overwrite=overwrite)
    note_loading(lm)  # what is wrong with facts, prompts or folder has been said: it takes no torch
    from askwell.cli.running import load_for_run, note_few, print_folds, print_run, run_with_bars
    from askwell.runs.build_spec import build_run_spec, prompts_name
    from askwell.views.scores import spread_blocks

    loaded = load_for_run(lm, relations, templates, training.threads, **asdict(loading), compiled=compiled)
    specs = {
        folder: build_run_spec(
            loaded,
            relation,
            templates,
            mixture=mixture.model_copy(update={"seed": seed}),
            training=training,
            candidates=labels[relation.digest],
            prompts=prompts_name(prompts),
        )
        for folder, (relation, seed) in planned.items()
    }

    def do(spec: "RunSpec", folder: Path, begun: bool) -> "RunRecord":
        relation, _ = planned[folder]
        return run_with_bars(
            spec, loaded, relation, folder, overwrite=overwrite, resume=begun, untuned=True, controls=controls,
            candidates=labels[relation.digest],
        )  # fmt: skip

    if not several:
        print_run(do(specs[out], out, resume), out, relations[0], json=json)
        return
    runs = run_each(specs, do, resume=resume, note=note)
    if folds is not None:
        print_folds(runs, out, json=json)
    elif json:
        print_json(seeds_as_json(out, runs))
    else:
        found = over_seeds(runs)
        show(*spread_blocks(found))
        note_few(found.scores["P@1"].mean, found.facts[0], relations[0])


@Parameter(name="*")
@dataclass(frozen=True)
class _Asked:
    """How a baseline asks: some choices of a mixture."""

    begin: Annotated[BeginOption, Parameter(help=_HELP["begin"])] = "auto"
    answers: Annotated[AnswersChoice, Parameter(help=_HELP["answers"])] = "auto"
    longest_answer: Annotated[int | None, Parameter(help=_HELP["longest_answer"])] = None
    lead_in: Annotated[str, Parameter(help=_HELP["lead_in"])] = AUTO_LEAD_IN
    shots: Annotated[int | None, Parameter(help=_HELP["shots"])] = None
    shot_separator: Annotated[str | None, Parameter(help=_HELP["shot_separator"])] = None
    shot_draws: Annotated[int | None, Parameter(help=_HELP["shot_draws"])] = None


def baseline(
    name: Annotated[BaselineName, Parameter(help=f"{_BASELINES}.", show_choices=False)],
    /,
    *,
    lm: options.NeededLM,
    facts: options.Facts,
    prompts: options.Prompts = None,
    out: options.RunFolder,
    seed: options.Seed = 0,
    asked: _Asked = _Asked(),
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
    from askwell.runs.folder import check_folder

    given = {option: value for option, value in asdict(asked).items() if value is not None}
    settings = baseline_settings(name, training, search, fine_tuning, seed=seed, **given)
    relation = load_relation(facts, data=data, seed=seed, **reading.named)
    templates = load_prompts(prompts, relation=relation, data=data) if prompts else []
    need_prompts(name, len(templates))
    if resume and not BASELINES[name].can_continue:
        raise BadOption(f"--resume: {name} cannot be resumed; start over, with --overwrite if necessary")
    check_folder(out, resume=resume, overwrite=overwrite)
    note_loading(lm)
    from askwell.cli.running import load_for_run, print_run, run_with_bars
    from askwell.runs.build_spec import build_run_spec, prompts_name

    loaded = load_for_run(lm, [relation], templates, training.threads, **asdict(loading))
    spec = build_run_spec(
        loaded,
        relation,
        templates,
        **settings,
        baseline=name,
        prompts=prompts_name(prompts or ["none"]),
    )
    record = run_with_bars(spec, loaded, relation, out, overwrite=overwrite, resume=resume, controls=controls)
    print_run(record, out, relation, json=json)


def transfer(
    run: str,
    /,
    *,
    lm: options.LM = None,
    out: options.RunFolder,
    tune: options.Flag = False,
    facts: str | None = None,
    training: Annotated[TrainingSpec, Parameter(name="*", group="Training")] = TrainingSpec(),  # noqa: B008 - frozen
    resume: options.Resume = False,
    overwrite: options.Overwrite = False,
    controls: options.WithControls = True,
    where: options.Where = None,
    reading: options.Reading = options.Reading(),  # noqa: B008 - frozen
    data: options.Data = None,
    loading: options.Loading = options.Loading(),  # noqa: B008 - frozen
    json: options.Json = False,
) -> None:
    """Ask another LM with the mixture that one LM learned, or tune it from there.

    The prompts, their weights and what tuning added to their words go over; between changed copies of one LM
    (fine-tuned, quantised) everything goes over as it is. It is scored on the run's own test facts, beside the LM that
    it was learned on and the same prompts as words. The folder is that of a run, as `askwell train` writes it.

    Args:
        run: The run, or the folder of its saved mixture.
        tune: Tune the mixture on the other LM, starting from what was carried over.
        facts: The relation, if the run's facts are not found by name, or to ask about another relation.
    """
    if lm is None:
        raise BadOption("transfer needs --lm: the LM to ask with the mixture")
    if not tune and (training != TrainingSpec() or resume):
        raise BadOption("options of tuning, and --resume, need --tune")
    need_mixtures(run)
    note_loading(lm, run)
    from askwell.cli.running import note_missing, run_with_bars
    from askwell.files import to_json
    from askwell.lms.load import load_lm
    from askwell.lms.machine import set_threads
    from askwell.runs.build_spec import transfer_run
    from askwell.runs.folder import check_folder
    from askwell.runs.score_source import EvaluationSources, saved_jobs
    from askwell.runs.sources import find_mixture, note_left_out_prompts
    from askwell.views.scores import control_sentences, score_table

    set_threads(training.threads)
    check_folder(out, resume=resume, overwrite=overwrite)
    folder = find_mixture(run, where, note)
    own = {**asdict(loading), "revision": None, "tokenizer": None}
    named = EvaluationSources([] if facts is None else [facts], None, own, data, reading.rule, reading.columns)
    ((source, relation),) = saved_jobs([folder], named, note)
    loaded = load_lm(lm, **asdict(loading))
    with bar("test facts") as shown:
        carried, spec, scores = transfer_run(folder, source, relation, loaded, training if tune else None, shown)
    note_left_out_prompts(carried, note)
    record = run_with_bars(
        spec,
        loaded,
        relation,
        out,
        overwrite=overwrite,
        resume=resume,
        untuned=tune,
        controls=controls,
        candidates=carried.candidates,
        start=carried,
    )
    if json:
        print_json({**record.as_json(out), "transfer": to_json(scores)})
        return
    note_missing(record)
    here, there = source.lm.identity.name, loaded.identity.name
    rows = {f"learned on {here}": scores.source, f"as words, {there}": scores.words}
    rows |= {f"carried over, {there}": record.untuned or record.test}
    show(score_table(rows | ({f"tuned from there, {there}": record.test} if tune else {})))
    if scores.source.facts != record.test.facts:
        say(f"{here} was asked {scores.source.facts} of the test facts, {there} {record.test.facts}.")
    say(*control_sentences(record.knowledge))
    if (how := carried.transferred) is not None:
        tokens = len(carried.vectors)
        say(
            "The LMs share tokenizer and shapes: the vectors went over as they are."
            if how.is_copy
            else f"{how.matched_tokens} of {tokens} prompt tokens have a counterpart; their vectors went over by a map "
            f"fitted on {how.shared_words} shared words."
        )
    say(f'Saved in {out}. Next: askwell ask {out} "…", or askwell compare {run} {out}')
