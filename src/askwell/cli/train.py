"""`askwell train`."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from askwell.cli.controls import ShownControls, WithControls
from askwell.cli.options import LM, Compiled, Data, Device, Dtype, Facts, Json, Prompts, Revision, SplitBy
from askwell.cli.run_folder import PER_FACT, check_folder, keeping_history, prompts_document
from askwell.errors import BadOption
from askwell.files import to_json
from askwell.specs.mixture import MixtureSpec
from askwell.specs.training import TrainingSpec

if TYPE_CHECKING:
    from askwell.evaluation.evaluate import Evaluation
    from askwell.mixture.description import About
    from askwell.mixture.mixture import Mixture
    from askwell.training.result import TrainingResult


def train(
    *,
    lm: LM = None,
    facts: Facts,
    prompts: Prompts = None,
    out: Annotated[Path, Parameter(help="The folder in which the mixture is saved.")],
    mixture: Annotated[MixtureSpec, Parameter(name="*", group="Mixture")] = MixtureSpec(),  # noqa: B008 - frozen
    training: Annotated[TrainingSpec, Parameter(name="*", group="Training")] = TrainingSpec(),  # noqa: B008 - frozen
    resume: Annotated[bool, Parameter(help="Go on with the interrupted run in the folder.", negative="")] = False,
    overwrite: Annotated[bool, Parameter(help="Replace the mixture in the folder.", negative="")] = False,
    seeds: Annotated[
        str | None,
        Parameter(
            help="Train once for each seed, 0,1,2 or 3 for three of them, into the folders seed-0 and so on in --out, "
            "and tell mean and spread of the scores; --resume goes on where it was interrupted."
        ),
    ] = None,
    controls: WithControls = True,
    split_by: SplitBy = None,
    data: Data = None,
    revision: Revision = None,
    device: Device = None,
    dtype: Dtype = "auto",
    compiled: Compiled = False,
    json: Json = False,
) -> None:
    """Learn a mixture of soft prompts for a relation.

    The folder gets the mixture (config.json, mixture.safetensors, README.md), the history of the run, and what the
    mixture made of each test fact. Ctrl-C keeps the best state so far, and --resume goes on.
    """
    if lm is None or not prompts:
        raise BadOption("train needs --lm and --prompts")
    if seeds is not None:
        from askwell.cli.seeds import train_over_seeds
        from askwell.data.names import read_relation

        train_over_seeds(
            seeds, out, mixture, training, resume=resume, json=json,
            relation_of=lambda seed: read_relation(facts, data=data, split=split_by, seed=seed),
            train_one=lambda spec, folder, begun: train(
                lm=lm, facts=facts, prompts=prompts, out=folder, mixture=spec, training=training, resume=begun,
                overwrite=overwrite, controls=controls, split_by=split_by, data=data, revision=revision, device=device,
                dtype=dtype, compiled=compiled,
            ),
        )  # fmt: skip
        return
    from askwell.cli.progress import EvaluationProgress, TrainingBar
    from askwell.cli.sources import set_threads
    from askwell.cli.terminal import counted, note, note_left_out_facts, note_left_out_prompts, print_json
    from askwell.data.names import read_prompts, read_relation
    from askwell.evaluation.cautious import dev_answers
    from askwell.evaluation.evaluate import evaluate
    from askwell.evaluation.examine import examine
    from askwell.evaluation.outcomes import write_outcomes
    from askwell.lms.load import load_lm
    from askwell.mixture.description import About
    from askwell.mixture.mixture import Mixture
    from askwell.mixture.save import save_mixture
    from askwell.training.checkpoint import CHECKPOINT
    from askwell.training.loop import train as run_training
    from askwell.training.result import Interrupted

    started = time.monotonic()
    relation = read_relation(facts, data=data, split=split_by, seed=mixture.seed)
    templates = read_prompts(prompts, relation=relation, data=data)
    check_folder(out, resume=resume, overwrite=overwrite, checkpoint=CHECKPOINT, holds="a mixture")
    for line in relation.counts.lines():
        note(line)
    tuned = Mixture(load_lm(lm, revision=revision, device=device, dtype=dtype, compiled=compiled), templates, mixture)
    note_left_out_prompts(tuned)
    note(
        f"{relation.name}: {len(relation.train)} train, {len(relation.dev)} dev and {len(relation.test)} test facts, "
        f"{counted(len(tuned.prompts), 'prompt')} on {tuned.lm.identity.name} "
        f"({tuned.lm.family.name}, {tuned.lm.device})"
    )

    if tuned.weighting.reads_x and tuned.finds_every_x_alike:
        note(
            "data-dependent weights have no effect here: no prompt has a word before x, so a causal LM finds x equally "
            "probable with all of them"
        )
    set_threads(training.threads)
    out.mkdir(parents=True, exist_ok=True)
    if overwrite:
        (out / CHECKPOINT).unlink(missing_ok=True)
    with EvaluationProgress("test facts, untuned") as shown:
        untuned = evaluate(tuned, relation, progress=shown)

    try:
        with TrainingBar() as live:
            shown_and_kept = keeping_history(out, live)
            result = run_training(tuned, relation, training, folder=out, resume=resume, progress=shown_and_kept)
    except Interrupted as interrupted:
        so_far = interrupted.result
        learned_from = {**so_far.learned_from(relation), "split_by": split_by}
        save_mixture(tuned, out, about=About(learned_from=learned_from, scores={"dev": so_far.dev_scores}))
        note(
            f"interrupted: the best state so far ({so_far.best.pairs} pairs) is saved in {out}; "
            "the same command with --resume goes on"
        )
        raise
    for split, left_out in result.left_out.items():
        note_left_out_facts(split, left_out)
    note_left_out_facts("test", untuned.left_out)
    with EvaluationProgress("test and dev facts, tuned") as shown:
        examination = examine(tuned, relation, controls=controls, prompts=False, seed=mixture.seed, progress=shown)
    tested = examination.evaluations["test"]
    write_outcomes(tested.outcomes, out / PER_FACT)
    about = About(
        learned_from={**result.learned_from(relation), "split_by": split_by},
        scores={"dev": result.dev_scores, "test, untuned": untuned.for_card(), "test": tested.for_card()},
        dev_answers=to_json(dev_answers(examination.evaluations["dev"])),
    )
    save_mixture(tuned, out, about=about)
    (out / CHECKPOINT).unlink(missing_ok=True)
    shown_controls = ShownControls() if controls else None
    if shown_controls is not None:
        shown_controls.add(relation, examination.controls)
    if json:
        document = _document(tuned, about, result, untuned, tested, out, time.monotonic() - started)
        print_json(document | (shown_controls.as_json(tested) if shown_controls is not None else {}))
    else:
        _print_summary(tuned, result, untuned, tested, shown_controls, out, time.monotonic() - started)


def _document(
    mixture: "Mixture",
    about: "About",
    result: "TrainingResult",
    untuned: "Evaluation",
    tested: "Evaluation",
    out: Path,
    seconds: float,
) -> dict[str, Any]:
    return {
        "out": str(out),
        **prompts_document(mixture),
        "effective_prompts": mixture.effective_prompts,
        "learned_from": about.learned_from,
        "history": [line.as_json() for line in result.history],
        "untuned": to_json(untuned.figures()),
        "test": to_json(tested.figures()),
        "seconds": round(seconds, 1),
    }


def _print_summary(
    mixture: "Mixture",
    result: "TrainingResult",
    untuned: "Evaluation",
    tested: "Evaluation",
    controls: ShownControls | None,
    out: Path,
    seconds: float,
) -> None:
    from rich.table import Table

    from askwell.cli.terminal import out as terminal
    from askwell.evaluation.metrics import METRICS

    table = Table("", *METRICS, title=f"{len(tested.outcomes)} test facts, {tested.vocabulary}")
    for name, evaluation in (("untuned", untuned), ("tuned", tested)):
        figures = evaluation.for_card()
        table.add_row(name, *(metric.text(figures[metric.key]) for metric in METRICS.values()))
    terminal.print(table)
    if controls is not None:
        controls.show(tested)
    terminal.print(
        f"{mixture.effective_prompts:.1f} of {len(mixture.prompts)} prompts in effect; the state after "
        f"{result.best.pairs} of {result.pairs} pairs was best on dev; "
        f'{seconds:.0f} s in all.\nSaved in {out}. Next: askwell ask {out} "…", or askwell show {out}',
        soft_wrap=True,
        markup=False,
    )
