"""`askwell evaluate`."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from askwell.cli.controls import ShownControls, WithControls
from askwell.cli.options import LM, Candidates, Data, Device, Dtype, Json, Prompts, Revision, SplitBy, Threads
from askwell.errors import BadOption, NothingLeft
from askwell.files import need_writable_folder, to_json
from askwell.specs.mixture import MixtureSpec

if TYPE_CHECKING:
    from askwell.evaluation.evaluate import Evaluation


def evaluate(
    *mixtures: Annotated[str, Parameter(help="Folders of saved mixtures.")],
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
    per_fact: Annotated[Path | None, Parameter(help="A Parquet file that gets a row for each fact.")] = None,
    trust: Annotated[
        bool,
        Parameter(
            help="Also tell how far the scores can be believed: calibration, abstention, answer sets, whether the "
            "prompts agree, and what their nearest words score.",
            negative="",
        ),
    ] = False,
    risk: Annotated[
        float, Parameter(help="With --trust: the share of answers that may be wrong where others are not given.")
    ] = 0.1,
    confidence: Annotated[
        float | None,
        Parameter(
            name=["--confidence", "--sureness"],
            help="With --trust: with which confidence the risk is to be kept, 0.95 say.",
        ),
    ] = None,
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
    from askwell.cli.progress import EvaluationProgress
    from askwell.cli.seeds import several_runs
    from askwell.cli.sources import saved_jobs, set_threads, untuned_jobs
    from askwell.cli.terminal import note, print_json
    from askwell.cli.trust import check_options, print_trust
    from askwell.evaluation.evaluate import together
    from askwell.evaluation.examine import examine
    from askwell.evaluation.outcomes import write_outcomes
    from askwell.evaluation.trust import trust_of
    from askwell.mixture.answers import read_candidates

    set_threads(threads)
    if bool(mixtures) == bool(prompts):
        raise BadOption("evaluate takes either the folders of saved mixtures, or --lm with --prompts")
    if mixtures and mixture != MixtureSpec():
        raise BadOption("a saved mixture is as it was learned: leave out the options for untuned prompts")
    if trust:
        check_options(split, risk, confidence)
    if per_fact is not None:
        need_writable_folder(per_fact.parent, "--per-fact")
    words = read_candidates(candidates) if candidates else None
    loading = {"revision": revision, "device": device, "dtype": dtype}
    if mixtures:
        jobs = saved_jobs(mixtures, facts, lm, data, split_by, loading)
    else:
        jobs = untuned_jobs(prompts or [], facts, lm, mixture, data, split_by, loading)
    evaluations: list[Evaluation] = []
    counts: dict[str, Any] = {}
    relations_left_out: dict[str, str] = {}
    trusts = []
    shown_controls = ShownControls() if controls and split == "test" else None
    for job in jobs:
        counts[job.relation.name] = job.relation.counts.as_json()
        for line in job.relation.counts.lines():
            note(f"{job.relation.name}: {line}")
        try:
            with EvaluationProgress(f"{split} facts of {job.relation.name}") as shown:
                examination = examine(
                    job.mixture,
                    job.relation,
                    splits=("test", "dev") if trust else (split,),
                    candidates=words,
                    controls=shown_controls is not None,
                    prompts=trust,
                    seed=job.mixture.spec.seed,
                    progress=shown,
                )
            evaluations.append(examination.evaluations[split])
            if shown_controls is not None:
                shown_controls.add(job.relation, examination.controls)
            if trust:
                with EvaluationProgress(f"nearest words for {job.relation.name}") as shown:
                    trusts.append(
                        trust_of(
                            job.mixture,
                            job.relation,
                            examination,
                            candidates=words,
                            risk=risk,
                            confidence=confidence,
                            progress=shown,
                        )
                    )
        except NothingLeft as nothing:
            relations_left_out[job.relation.name] = str(nothing)
            note(f"{job.relation.name} is left out: {nothing}")
    if not evaluations:
        raise BadOption("; ".join(relations_left_out.values()))
    evaluation = together(evaluations)
    if per_fact is not None:
        write_outcomes(evaluation.outcomes, per_fact)
        note(f"a row for each fact is in {per_fact}")
    several = several_runs(evaluations)
    if json:
        document = to_json(evaluation.figures()) | {"counts": counts, "relations_left_out": relations_left_out}
        document |= shown_controls.as_json(evaluation) if shown_controls is not None else {}
        document |= {"several_runs": [runs.as_json() for runs in several]} if several else {}
        document |= {"trust": [to_json(one) for one in trusts]} if trust else {}
        print_json(document)
    else:
        _print_table(evaluation)
        if shown_controls is not None:
            shown_controls.show(evaluation)
        for runs in several:
            runs.show()
        for one in trusts:
            print_trust(one)


def _print_table(evaluation: "Evaluation") -> None:
    from rich.table import Table

    from askwell.cli.terminal import note, note_left_out_facts, out
    from askwell.evaluation.metrics import METRICS, TABLE_METRICS

    figures = to_json(evaluation.figures())
    note_left_out_facts(evaluation.split, evaluation.left_out)
    if figures["candidates_left_out"]:
        note(f"{figures['candidates_left_out']} candidates are left out: not one token of the LM")
    title = f"{figures['facts']} {evaluation.split} facts, {evaluation.vocabulary}"
    table = Table("", "facts", *TABLE_METRICS, title=title)

    def add(name: str, facts: int, scores: Mapping[str, int | float]) -> None:
        table.add_row(name, str(facts), *(METRICS[metric].text(scores.get(metric)) for metric in TABLE_METRICS))

    for name, scores in figures["relations"].items():
        add(name, scores["facts"], scores)
    if len(figures["relations"]) > 1:
        table.add_section()
        for name in ("micro", "macro"):
            add(f"{name} average", figures["facts"], figures[name])
    add("other golds kept (raw)", figures["facts"], figures["raw"]["micro"])
    out.print(table)
