"""`askwell baseline`."""

import json as json_format
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter
from pydantic import BaseModel, ValidationError

from askwell.baselines.named import BASELINES, need_prompts
from askwell.cli.options import LM, Data, Device, Dtype, Facts, Json, Prompts, Revision, SplitBy
from askwell.cli.run_folder import HISTORY, PER_FACT, check_folder, keeping_history, prompts_document
from askwell.errors import BadOption
from askwell.files import to_json, write_whole
from askwell.specs.baselines import AutoPromptSpec, BaselineName, FineTuningSpec
from askwell.specs.training import TrainingSpec

if TYPE_CHECKING:
    from askwell.baselines.run import BaselineRun
    from askwell.evaluation.evaluate import Evaluation
    from askwell.mixture.description import About

METRICS = "metrics.json"
_NAMES = "; ".join(f"{name}: {baseline.about}" for name, baseline in BASELINES.items())


def baseline(
    name: Annotated[BaselineName, Parameter(help=f"{_NAMES}.", show_choices=False)],
    /,
    *,
    lm: LM = None,
    facts: Facts,
    prompts: Prompts = None,
    out: Annotated[Path, Parameter(help="The folder in which what it makes is saved.")],
    seed: Annotated[int, Parameter(help="Seed of everything that is drawn at random.")] = 0,
    search: Annotated[AutoPromptSpec, Parameter(name="*", group="AutoPrompt")] = AutoPromptSpec(),  # noqa: B008 - frozen
    fine_tuning: Annotated[FineTuningSpec, Parameter(group="Fine-tuning")] = FineTuningSpec(),  # noqa: B008 - frozen
    training: Annotated[TrainingSpec, Parameter(name="*", group="Training")] = TrainingSpec(),  # noqa: B008 - frozen
    resume: Annotated[bool, Parameter(help="Go on with the interrupted run in the folder.", negative="")] = False,
    overwrite: Annotated[bool, Parameter(help="Replace what is in the folder.", negative="")] = False,
    split_by: SplitBy = None,
    data: Data = None,
    revision: Revision = None,
    device: Device = None,
    dtype: Dtype = "auto",
    json: Json = False,
) -> None:
    """Run a baseline, and score it as mixtures are scored.

    The folder gets the prompts (config.json, mixture.safetensors, README.md), what they made of each test fact
    (facts.parquet, for askwell compare), the scores (metrics.json) and, where something is learned, its history.
    """
    if lm is None:
        raise BadOption("baseline needs --lm")
    if seed < 0:
        raise BadOption(f"--seed {seed}: a seed is not negative")
    chosen = _chosen_training(name, training, search, fine_tuning)
    from askwell.baselines.run import run_baseline
    from askwell.cli.progress import BaselineBar, EvaluationProgress
    from askwell.cli.sources import set_threads
    from askwell.cli.terminal import counted, note, note_left_out_facts, note_left_out_prompts, print_json
    from askwell.data.names import read_prompts, read_relation
    from askwell.evaluation.evaluate import evaluate
    from askwell.evaluation.outcomes import write_outcomes
    from askwell.lms.load import load_lm
    from askwell.mixture.description import About
    from askwell.mixture.save import save_mixture
    from askwell.training.checkpoint import CHECKPOINT

    started = time.monotonic()
    relation = read_relation(facts, data=data, split=split_by, seed=seed)
    templates = read_prompts(prompts, relation=relation, data=data) if prompts else []
    need_prompts(name, len(templates))
    if resume and BASELINES[name].how not in ("trained", "searched"):
        raise BadOption(f"--resume: {name} cannot go on after an interruption; begin anew, with --overwrite if need be")
    check_folder(out, resume=resume, overwrite=overwrite, checkpoint=CHECKPOINT, holds="a run")
    for line in relation.counts.lines():
        note(line)
    loaded = load_lm(lm, revision=revision, device=device, dtype=dtype)
    note(
        f"{name} on {relation.name}: {len(relation.train)} train, {len(relation.dev)} dev and {len(relation.test)} "
        f"test facts, {counted(len(templates), 'prompt')}, on {loaded.identity.name} "
        f"({loaded.family.name}, {loaded.device})"
    )
    set_threads(training.threads)

    if overwrite:
        for old in (CHECKPOINT, HISTORY):
            (out / old).unlink(missing_ok=True)
    made_folder = not out.exists()
    out.mkdir(parents=True, exist_ok=True)
    try:
        with BaselineBar() as live:
            run = run_baseline(
                name,
                loaded,
                templates,
                relation,
                training=chosen,
                search=search,
                fine_tuning=fine_tuning,
                seed=seed,
                folder=out,
                resume=resume,
                progress=keeping_history(out, live),
            )
    except KeyboardInterrupt:
        if (out / CHECKPOINT).exists():
            note(f"interrupted: the best so far is saved in {out}; the same command with --resume goes on")
        raise
    finally:
        if made_folder and not any(out.iterdir()):
            out.rmdir()
    mixture = run.mixture
    note_left_out_prompts(mixture)
    for split, left_out in run.left_out.items():
        note_left_out_facts(split, left_out)
    with EvaluationProgress("test facts") as shown:
        tested = evaluate(mixture, relation, progress=shown)
    note_left_out_facts("test", tested.left_out)
    figures = to_json(tested.figures())
    learned_from = {**run.about.learned_from, "split_by": split_by}
    scores = {**run.about.scores, "test": tested.for_card()}
    about = About(learned_from=learned_from, scores=scores)
    out.mkdir(parents=True, exist_ok=True)
    write_outcomes(tested.outcomes, out / PER_FACT)
    metrics = {"baseline": name, "seed": seed, "test": figures}
    write_whole(out / METRICS, json_format.dumps(metrics, ensure_ascii=False, indent=2) + "\n")
    save_mixture(mixture, out, about=about)
    (out / CHECKPOINT).unlink(missing_ok=True)
    if json:
        print_json(_document(name, run, about, tested, out, time.monotonic() - started))
    else:
        _print_summary(name, run, tested, out, time.monotonic() - started)


def _chosen_training(
    name: BaselineName, training: TrainingSpec, search: AutoPromptSpec, fine_tuning: FineTuningSpec
) -> TrainingSpec:
    """The baseline's own training settings with those that were given; settings of other baselines are refused."""
    how = BASELINES[name].how
    fits = {"trained": training, "searched": search, "fine-tuned": fine_tuning}
    prefix = {"fine-tuned": "fine-tuning."}
    for kind, spec in fits.items():
        given = sorted(spec.model_fields_set - {"threads"})
        if given and kind != how:
            option = f"--{prefix.get(kind, '')}{given[0].replace('_', '-')}"
            raise BadOption(f"{option} is no setting of {name}{_own_settings(fits.get(how), prefix.get(how, ''))}")
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
        return ": nothing is learned there"
    return "; it takes " + ", ".join(f"--{prefix}{field.replace('_', '-')}" for field in type(spec).model_fields)


def _document(
    name: str, run: "BaselineRun", about: "About", tested: "Evaluation", out: Path, seconds: float
) -> dict[str, Any]:
    mixture = run.mixture
    return {
        "baseline": name,
        "out": str(out),
        **prompts_document(mixture),
        "learned_from": about.learned_from,
        "history": list(run.history),
        "test": to_json(tested.figures()),
        "seconds": round(seconds, 1),
    }


def _print_summary(name: str, run: "BaselineRun", tested: "Evaluation", out: Path, seconds: float) -> None:
    from rich.table import Table

    from askwell.cli.terminal import out as terminal
    from askwell.evaluation.metrics import METRICS

    table = Table("", *METRICS, title=f"{len(tested.outcomes)} test facts, {tested.vocabulary}")
    figures = tested.for_card()
    table.add_row(name, *(metric.text(figures[metric.key]) for metric in METRICS.values()))
    terminal.print(table)
    if "prompt" in run.about.learned_from:
        terminal.print(f"found: {run.about.learned_from['prompt']}", markup=False, soft_wrap=True)
    elif len(run.mixture.prompts) == 1:
        terminal.print(f"prompt: {run.mixture.prompts[0].template.text}", markup=False, soft_wrap=True)
    terminal.print(
        f"Saved in {out}, after {seconds:.0f} s. Next: askwell compare {out} OTHER", soft_wrap=True, markup=False
    )
