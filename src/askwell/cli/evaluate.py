"""`askwell evaluate`."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from askwell.cli import options
from askwell.cli.terminal import bar, note, print_json
from askwell.errors import BadOption
from askwell.files import need_writable_file
from askwell.specs.mixture_spec import MixtureSpec


def evaluate(
    *mixtures: str,
    facts: options.Several = None,
    lm: options.LM = None,
    prompts: options.Prompts = None,
    mixture: Annotated[MixtureSpec, Parameter(name="*", group="Untuned prompts")] = MixtureSpec(),  # noqa: B008 - frozen
    split: Literal["train", "dev", "test"] = "test",
    candidates: options.CandidatesFile = None,
    among: options.Among = None,
    per_fact: Path | None = None,
    trust: options.Flag = False,
    risk: options.Risk = 0.1,
    confidence: options.Confidence = None,
    where: options.Where = None,
    controls: options.WithControls = True,
    reading: options.Reading = options.Reading(),  # noqa: B008 - frozen
    data: options.Data = None,
    loading: options.Loading = options.Loading(),  # noqa: B008 - frozen
    threads: options.Threads = None,
    json: options.Json = False,
) -> None:
    """Score a saved mixture, or untuned prompts, on held-out facts.

    Either name the folders of saved mixtures, or give --lm and --prompts, which make a uniform mixture. Scores
    are in per cent, the log-loss in nats; micro is the mean over facts, macro the mean of the relations' means.
    Ranks leave out the other right answers of the same x.

    Args:
        mixtures: Runs, folders of runs, stores, or saved mixtures.
        facts: The relation to ask about: one for all saved mixtures, or one for each. With --prompts it can also be a
            folder or name of many relations, such as trex_original; --prompts is then the folder or name of their
            prompts.
        split: The facts to ask about.
        per_fact: A Parquet file to write, with one row per fact.
        trust: Also report how far the scores can be trusted: calibration, abstention, answer sets, whether the prompts
            agree, and what their nearest words score.
        risk: With --trust: the fraction of the given answers that may be wrong.
        confidence: With --trust: keep the risk with this confidence, e.g. 0.95.
    """
    if bool(mixtures) == bool(prompts):
        raise BadOption("evaluate takes either runs or saved mixtures, or --lm with --prompts")
    if mixtures and mixture != MixtureSpec():
        raise BadOption("a saved mixture cannot be changed: leave out the options for untuned prompts")
    if trust and split != "test":
        raise BadOption(f"--trust learns thresholds on dev and measures on test: leave out --split {split}")
    if per_fact is not None:
        need_writable_file(per_fact, "--per-fact")
    from askwell.answers.candidates import find_candidates
    from askwell.cli.running import print_scored
    from askwell.evaluation.outcomes import write_outcomes
    from askwell.lms.machine import set_threads
    from askwell.runs.score_source import EvaluationSources, saved_jobs, score_jobs, untuned_jobs
    from askwell.runs.sources import find_mixtures

    set_threads(threads)
    named = EvaluationSources(facts or (), lm, asdict(loading), data, reading.rule, reading.columns)
    if mixtures:
        jobs = saved_jobs(find_mixtures(mixtures, where), named, note)
    else:
        jobs = untuned_jobs(prompts or [], mixture, named, note)
    with bar("preparing") as shown:
        scored = score_jobs(
            jobs,
            split,
            lambda relation: find_candidates(candidates, among, relation),
            controls=controls and split == "test",
            trust=trust,
            risk=risk,
            confidence=confidence,
            progress=lambda what, done, total: shown(done, total, what=what),
            note=note,
        )
    if per_fact is not None:
        write_outcomes(scored.evaluation.outcomes, per_fact)
        note(f"one row per fact is in {per_fact}")
    if json:
        print_json(scored.as_json())
    else:
        print_scored(scored)
