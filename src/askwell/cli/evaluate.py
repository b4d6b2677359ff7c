"""`askwell evaluate`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from askwell.cli.options import (
    LM,
    Candidates,
    Data,
    Device,
    Dtype,
    Json,
    Prompts,
    Revision,
    SplitBy,
    Threads,
    Where,
    WithControls,
)  # fmt: skip
from askwell.errors import BadOption, NothingLeft
from askwell.files import need_writable_folder
from askwell.specs.mixture import MixtureSpec

if TYPE_CHECKING:
    from collections.abc import Mapping

    from askwell.evaluation.evaluate import Evaluation


def evaluate(
    *mixtures: Annotated[str, Parameter(help="Runs, folders of runs, stores, or saved mixtures.")],
    facts: Annotated[
        list[str] | None,
        Parameter(
            help="The relation to ask about, one for each saved mixture. With --prompts it can also be a folder or "
            "name of many relations, such as trex_original; --prompts is then the folder or name of their prompts.",
            negative="",
        ),
    ] = None,
    lm: LM = None,
    prompts: Prompts = None,
    mixture: Annotated[MixtureSpec, Parameter(name="*", group="Untuned prompts")] = MixtureSpec(),  # noqa: B008
    split: Annotated[Literal["train", "dev", "test"], Parameter(help="The facts to ask about.")] = "test",
    candidates: Candidates = None,
    per_fact: Annotated[Path | None, Parameter(help="A Parquet file that gets one row per fact.")] = None,
    trust: Annotated[
        bool,
        Parameter(
            help="Also report how far the scores can be trusted: calibration, abstention, answer sets, whether the "
            "prompts agree, and what their nearest words score.",
            negative="",
        ),
    ] = False,
    risk: Annotated[
        float,
        Parameter(help="With --trust: the fraction of the given answers that may be wrong."),
    ] = 0.1,
    confidence: Annotated[
        float | None,
        Parameter(
            name=["--confidence", "--sureness"], help="With --trust: keep the risk with this confidence, e.g. 0.95."
        ),
    ] = None,
    where: Where = None,
    controls: WithControls = True,
    split_by: SplitBy = None,
    data: Data = None,
    revision: Revision = None,
    device: Device = None,
    dtype: Dtype = "auto",
    threads: Threads = None,
    json: Json = False,
) -> None:
    """Score a saved mixture, or untuned prompts as a uniform mixture, on held-out facts.

    Either name the folders of saved mixtures, or give --lm and --prompts. Scores are in per cent: micro is the mean
    over facts, macro the mean of the relations' means; ranks leave out the other right answers of the same x.
    """
    from askwell.cli.progress import EvaluationBar
    from askwell.cli.running import control_lines, print_several, set_threads
    from askwell.cli.terminal import note, print_json
    from askwell.cli.terminal import out as terminal
    from askwell.cli.trust import check_options, print_trust
    from askwell.evaluation.controls import PRIOR_CORRECTED, Controls, controls_together
    from askwell.evaluation.evaluate import evaluate as run_evaluation
    from askwell.evaluation.evaluate import together
    from askwell.evaluation.examine import examine
    from askwell.evaluation.knowledge import knowledge_over
    from askwell.evaluation.metrics import scores_of
    from askwell.evaluation.outcomes import write_outcomes
    from askwell.evaluation.trust import trust_of
    from askwell.files import to_json
    from askwell.mixture.candidates import read_candidates
    from askwell.runs.seeds import several_runs
    from askwell.runs.sources import find_mixtures, saved_jobs, untuned_jobs

    set_threads(threads)
    if bool(mixtures) == bool(prompts):
        raise BadOption("evaluate takes either runs or saved mixtures, or --lm with --prompts")
    if mixtures and mixture != MixtureSpec():
        raise BadOption("a saved mixture stays as it is: leave out the options for untuned prompts")
    if trust:
        check_options(split, risk, confidence)
    if per_fact is not None:
        need_writable_folder(per_fact.parent, "--per-fact")
    words = read_candidates(candidates) if candidates else None
    loading = {"revision": revision, "device": device, "dtype": dtype}
    if mixtures:
        jobs = saved_jobs(find_mixtures(mixtures, where), facts, lm, data, split_by, loading, note)
    else:
        jobs = untuned_jobs(prompts or [], facts, lm, mixture, data, split_by, loading, note)
    evaluations: list[Evaluation] = []
    found: list[Controls] = []
    counts: dict[str, Any] = {}
    relations_left_out: dict[str, str] = {}
    controls_missing: dict[str, str] = {}
    measures = []
    for job in jobs:
        relation = job.relation
        counts[relation.name] = relation.counts.as_json()
        for line in relation.counts.lines():
            note(f"{relation.name}: {line}")
        lacks = [name for name in ("train", "dev") if not relation.split(name)]
        with_controls = controls and split == "test" and not lacks
        if controls and split == "test" and lacks:
            controls_missing[relation.name] = f"it has no {' and no '.join(lacks)} facts to make and choose them with"
        try:
            with EvaluationBar(f"{split} facts of {relation.name}") as shown:
                if not with_controls and not trust:
                    evaluations.append(
                        run_evaluation(job.mixture, relation, split=split, candidates=words, progress=shown)
                    )
                    continue
                examination = examine(
                    job.mixture, relation, splits=("test", "dev") if trust else ("test",), candidates=words,
                    controls=with_controls, prompts=trust, seed=job.mixture.spec.seed, progress=shown,
                )  # fmt: skip
                evaluations.append(examination.evaluations["test"])
                if trust:
                    measures.append(
                        trust_of(
                            job.mixture, relation, examination, candidates=words, risk=risk, confidence=confidence,
                            progress=shown,
                        )
                    )  # fmt: skip
            if examination.controls.missing:
                controls_missing[relation.name] = "; ".join(dict.fromkeys(examination.controls.missing.values()))
            elif with_controls:
                found.append(examination.controls)
        except NothingLeft as nothing:
            relations_left_out[relation.name] = str(nothing)
            note(f"{relation.name} is left out: {nothing}")
    if not evaluations:
        raise BadOption("; ".join(relations_left_out.values()))
    evaluation = together(evaluations)
    if per_fact is not None:
        write_outcomes(evaluation.outcomes, per_fact)
        note(f"one row per fact is in {per_fact}")
    several = several_runs(evaluations)
    all_controls = controls_together(found)
    knowledge = knowledge_over(evaluation.outcomes, all_controls)
    if json:
        document = to_json(evaluation.figures()) | {"counts": counts, "relations_left_out": relations_left_out}
        if controls and split == "test":
            document |= {
                "controls": to_json(all_controls.figures()),
                "controls_missing": controls_missing,
                "knowledge": None if knowledge is None else to_json(knowledge.figures()),
            }
        document |= {"several_runs": to_json(several)} if several else {}
        document |= {"trust": to_json(measures)} if trust else {}
        print_json(document)
        return
    _print_table(evaluation)
    for name, lack in controls_missing.items():
        note(f"no controls for {name}: {lack}")
    corrected = all_controls.outcomes.get(PRIOR_CORRECTED, {}).get("test")
    for line in control_lines(
        None if knowledge is None else knowledge.figures(), scores_of(corrected)["P@1"] if corrected else None
    ):
        terminal.print(line, markup=False, soft_wrap=True)
    for runs in several:
        print_several(runs)
    for one in measures:
        print_trust(one)


def _print_table(evaluation: "Evaluation") -> None:
    from rich.table import Table

    from askwell.cli.terminal import counted, note, note_left_out_facts, out
    from askwell.evaluation.metrics import METRICS, TABLE_METRICS

    figures = evaluation.figures()
    note_left_out_facts(evaluation.split, figures.left_out, figures.left_out_facts)
    if figures.candidates_left_out:
        note(f"{counted(figures.candidates_left_out, 'candidate')} left out: not one token of the LM")
    title = f"{counted(figures.facts, f'{evaluation.split} fact')}, {evaluation.vocabulary}"
    table = Table("", "facts", *TABLE_METRICS, title=title)

    def add(name: str, facts: int | float, scores: "Mapping[str, int | float]") -> None:
        table.add_row(name, f"{facts:.0f}", *(METRICS[metric].text(scores.get(metric)) for metric in TABLE_METRICS))

    for name, scores in figures.relations.items():
        add(name, scores["facts"], scores)
    if len(figures.relations) > 1:
        table.add_section()
        add("micro average", figures.facts, figures.micro)
        add("macro average", figures.facts, figures.macro)
    add("other golds kept (raw)", figures.facts, figures.raw.micro)
    out.print(table)
