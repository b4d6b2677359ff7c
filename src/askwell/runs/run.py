"""A run, from its spec to its folder: build the mixture, tune it, evaluate it, hold it against controls, save it.

Everything that makes a run comes through here: `askwell train`, baselines, sweeps and the demo.
"""

import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from pydantic import TypeAdapter

from askwell.baselines.run import BaselineProgress, run_baseline
from askwell.data.audit import audit_relation
from askwell.data.facts import Relation
from askwell.data.read_facts import SplitLines
from askwell.data.templates import Template, parse_template
from askwell.evaluation.cautious import dev_answers
from askwell.evaluation.controls import Controls
from askwell.evaluation.evaluate import Evaluation, evaluate
from askwell.evaluation.examine import Examination, examine
from askwell.evaluation.knowledge import knowledge_over
from askwell.evaluation.partitions import partitions_of, scores_of_parts
from askwell.evaluation.trust import Trust, trust_of
from askwell.files import to_json
from askwell.lms.frozen import FrozenLM
from askwell.mixture.answers import Candidates
from askwell.mixture.description import About
from askwell.mixture.encode import EncodedRelation, count_reasons, encode_relation
from askwell.mixture.mixture import Mixture
from askwell.mixture.save import save_mixture
from askwell.runs.folder import write_history, write_run
from askwell.runs.record import (
    MIXTURE,
    HistoryLine,
    LeftOutPrompt,
    PromptRecord,
    RelationRecord,
    RunRecord,
    TrainingRecord,
    environment,
)
from askwell.specs import AutoPromptSpec, FineTuningSpec, MixtureSpec, PromptText, RunSpec, TrainingSpec
from askwell.specs.baselines import BaselineName
from askwell.specs.run import DeviceKind, Digits
from askwell.training.checkpoint import CHECKPOINT
from askwell.training.loop import train
from askwell.training.result import Interrupted, TrainingResult


@dataclass(frozen=True)
class Built:
    """A run's mixture is there, untuned."""

    mixture: Mixture


@dataclass(frozen=True)
class Asking:
    """Facts are being asked."""

    what: str
    done: int
    total: int


RunProgress = Built | Asking | BaselineProgress


def run_spec(
    lm: FrozenLM,
    relation: Relation,
    templates: Sequence[Template],
    *,
    mixture: MixtureSpec | None = None,
    training: TrainingSpec | None = None,
    baseline: BaselineName | None = None,
    search: AutoPromptSpec | None = None,
    fine_tuning: FineTuningSpec | None = None,
    candidates: Candidates | None = None,
    prompts: str = "given",
    setting: str | None = None,
    threads: int | None = None,
) -> RunSpec:
    """The spec of a run on things that are loaded already; `prompts` and `setting` name it in tables.

    Without `training` (and without a baseline that learns), the prompts are asked as they are.
    """
    mixture = mixture or MixtureSpec()
    return RunSpec(
        lm=lm.identity.name,
        lm_sha256=lm.identity.digest,
        relation=relation.name,
        facts_sha256=relation.digest,
        prompts=prompts,
        templates=tuple(PromptText(template=template.text, weight=template.weight) for template in templates),
        setting=setting or baseline or setting_name(mixture, training),
        mixture=mixture,
        training=None if training is None else training.model_copy(update={"threads": None}),
        candidates=None if candidates is None else candidates.name,
        candidates_sha256=None if candidates is None else candidates.digest,
        threads=threads or (None if training is None else training.threads) or torch.get_num_threads(),
        device=_device(lm),
        dtype=_precision(lm),
        baseline=baseline,
        search=search,
        fine_tuning=fine_tuning,
    )


def setting_name(mixture: MixtureSpec, training: TrainingSpec | None) -> str:
    """A name for a setting that was given none: what sets it apart from the defaults."""
    if training is None:
        parts = ["hard"]
    else:
        tuned = training.tune_vectors or (mixture.deep and training.tune_layers)
        parts = ["deep" if mixture.deep else "soft" if tuned and mixture.combine == "mixture" else "weights"]
        parts += ["EM"] if training.method == "em" else []
    parts += ["product"] if mixture.combine == "product" else []
    parts += [mixture.weighting] if mixture.weighting != "static" else []
    parts += [mixture.initial] if mixture.initial != "words" else []
    parts += [f"{mixture.copies} copies"] if mixture.copies > 1 else []
    return ", ".join(parts)


def _device(lm: FrozenLM) -> DeviceKind:
    return TypeAdapter(DeviceKind).validate_python(lm.device.type)


def _precision(lm: FrozenLM) -> Digits:
    return TypeAdapter(Digits).validate_python(str(lm.dtype).removeprefix("torch."))


@dataclass(frozen=True)
class _Made:
    """A mixture in its final state, and how it got there."""

    mixture: Mixture
    facts: EncodedRelation
    history: tuple[HistoryLine, ...] = ()
    training: TrainingRecord | None = None
    untuned: Evaluation | None = None
    learned_from: dict[str, Any] | None = None


def run(
    spec: RunSpec,
    lm: FrozenLM,
    relation: Relation,
    folder: Path,
    *,
    candidates: Candidates | None = None,
    checkpoints: Path | None = None,
    resume: bool = False,
    untuned: bool = False,
    controls: bool = True,
    split_by: str | None = None,
    progress: Callable[[RunProgress], None] | None = None,
) -> RunRecord:
    """Does a run and writes it into a folder; gives its record.

    `lm`, `relation` and `candidates` are what the spec names by their hashes. Checkpoints lie in `checkpoints`, or in
    the folder itself, and `resume` goes on from there. With `untuned`, test facts are also scored before tuning;
    without `controls`, neither controls nor measures of trust are computed. Interrupted, the best state so far is
    saved as the folder's mixture.
    """
    tell = progress or (lambda _event: None)
    began = time.monotonic()
    folder.mkdir(parents=True, exist_ok=True)
    with _threads(spec.threads):
        if spec.baseline is not None:
            made = _make_baseline(spec, lm, relation, folder, checkpoints or folder, resume, tell)
        else:
            made = _make_mixture(
                spec, lm, relation, folder, checkpoints or folder, resume, split_by, untuned, candidates, tell
            )
        examination = examine(
            made.mixture,
            relation,
            candidates=candidates,
            facts=made.facts,
            controls=controls,
            seed=spec.seed,
            progress=_asking("test and dev facts", tell),
        )
        trust = None
        if controls:
            trust = trust_of(
                made.mixture,
                relation,
                examination,
                candidates=candidates,
                facts=made.facts,
                progress=_asking("nearest words", tell),
            )
    record = _record(spec, relation, split_by, made, examination, trust)
    took = environment().model_copy(update={"seconds": round(time.monotonic() - began, 3)})
    if spec.training is not None or spec.baseline is not None:
        about = _about(record, made, examination, candidates)
        save_mixture(made.mixture, folder / MIXTURE, about=about)
    record = record.model_copy(update={"environment": took})
    outcomes = {split: evaluation.outcomes for split, evaluation in examination.evaluations.items()}
    write_run(folder, record, outcomes, examination.controls.outcomes)
    ((checkpoints or folder) / CHECKPOINT).unlink(missing_ok=True)
    return record


def _make_mixture(
    spec: RunSpec,
    lm: FrozenLM,
    relation: Relation,
    folder: Path,
    checkpoints: Path,
    resume: bool,
    split_by: str | None,
    untuned: bool,
    candidates: Candidates | None,
    tell: Callable[[RunProgress], None],
) -> _Made:
    mixture = Mixture(lm, [parse_template(prompt.template, prompt.weight) for prompt in spec.templates], spec.mixture)
    facts = encode_relation(mixture, relation)
    tell(Built(mixture))
    if spec.training is None:
        return _Made(mixture, facts)
    before = None
    if untuned:
        asking = _asking("test facts, untuned", tell)
        before = evaluate(mixture, relation, candidates=candidates, facts=facts, progress=asking)

    def told(result: TrainingResult) -> dict[str, Any]:
        return {**result.learned_from(relation), "split_by": split_by}

    try:
        result = train(
            mixture,
            relation,
            spec.training,
            facts=facts,
            folder=checkpoints,
            resume=resume,
            progress=_keeping_history(folder, tell),
        )
    except Interrupted as stop:
        save_mixture(mixture, folder / MIXTURE, about=About(learned_from=told(stop.result)))
        raise
    training = TrainingRecord(
        train_facts=result.train_facts,
        dev_facts=result.dev_facts,
        left_out={split: count_reasons(left_out) for split, left_out in result.left_out.items()},
        pairs=result.pairs,
        planned_pairs=result.planned_pairs,
        best_pairs=result.best.pairs,
        step_sizes=result.step_sizes,
    )
    return _Made(mixture, facts, _lines(result.history), training, before, told(result))


def _make_baseline(
    spec: RunSpec,
    lm: FrozenLM,
    relation: Relation,
    folder: Path,
    checkpoints: Path,
    resume: bool,
    tell: Callable[[RunProgress], None],
) -> _Made:
    templates = [parse_template(prompt.template, prompt.weight) for prompt in spec.templates]
    found = run_baseline(
        spec.baseline or "lama",
        lm,
        templates,
        relation,
        training=spec.training,
        search=spec.search,
        fine_tuning=spec.fine_tuning,
        seed=spec.seed,
        folder=checkpoints,
        resume=resume,
        progress=_keeping_history(folder, tell),
    )
    tell(Built(found.mixture))
    facts = encode_relation(found.mixture, relation)
    learned_from = found.about.learned_from
    training = TrainingRecord(
        train_facts=learned_from.get("train_facts", 0),
        dev_facts=learned_from.get("dev_facts", 0),
        left_out={split: count_reasons(left_out) for split, left_out in found.left_out.items()},
        pairs=learned_from.get("pairs"),
        planned_pairs=learned_from.get("planned_pairs"),
        best_pairs=learned_from.get("best_pairs"),
        step_sizes=learned_from.get("step_sizes"),
        found={name: learned_from[name] for name in ("prompt", "train") if name in learned_from},
    )
    return _Made(found.mixture, facts, _lines(found.history), training, learned_from=learned_from)


def _lines(history: Sequence[Any]) -> tuple[HistoryLine, ...]:
    return tuple(HistoryLine.model_validate(line if isinstance(line, dict) else line.as_json()) for line in history)


def _keeping_history(folder: Path, tell: Callable[[RunProgress], None]) -> Callable[[BaselineProgress], None]:
    """Writes the history whenever dev was scored, so that it can be looked at while the run goes on."""

    def keep(state: BaselineProgress) -> None:
        if state.record is not None:
            write_history(folder, _lines(state.history))
        tell(state)

    return keep


def _asking(what: str, tell: Callable[[RunProgress], None]) -> Callable[[int, int], None]:
    return lambda done, total: tell(Asking(what, done, total))


def _record(
    spec: RunSpec,
    relation: Relation,
    split_by: str | None,
    made: _Made,
    examination: Examination,
    trust: Trust | None,
) -> RunRecord:
    mixture, evaluations = made.mixture, examination.evaluations
    found = examination.controls
    gain = knowledge_over(evaluations["test"].outcomes, found)
    return RunRecord(
        id=spec.id,
        spec=spec,
        lm=mixture.lm.identity,
        relation=RelationRecord(
            name=relation.name, sha256=relation.digest, split_by=split_by, counts=relation.counts.as_json()
        ),
        prompts=tuple(
            PromptRecord(template=prompt.template.text, weight=weight)
            for prompt, weight in zip(mixture.prompts, mixture.weights.tolist(), strict=True)
        ),
        left_out_prompts=tuple(
            LeftOutPrompt(template=prompt.template.text, reason=prompt.reason) for prompt in mixture.left_out_prompts
        ),
        effective_prompts=mixture.effective_prompts,
        temperature=mixture.temperature,
        mean_entropy_over_x=examination.mean_entropy_over_x,
        untuned=None if made.untuned is None else made.untuned.figures(),
        test=evaluations["test"].figures(),
        dev=evaluations["dev"].figures() if "dev" in evaluations else None,
        controls=found.figures(),
        controls_missing=found.missing,
        knowledge=None if gain is None else gain.figures(),
        trust=trust,
        partitions=_partitions(relation, evaluations["test"], found),
        audit=audit_relation(SplitLines.of(relation)),
        training=made.training,
        history=made.history,
    )


def _partitions(
    relation: Relation, test: Evaluation, controls: Controls
) -> dict[str, dict[str, dict[str, int | float]]]:
    """The scores of parts of the test facts, each with its number of facts; easy is what a control gets right."""
    partitions = partitions_of(
        test.outcomes, {relation.name: relation}, [by_split["test"] for by_split in controls.controls.values()]
    )
    return {
        name: {part: {"facts": len(parts[part]), **scores} for part, scores in scores_of_parts(parts).items()}
        for name, parts in partitions.items()
    }


def _about(record: RunRecord, made: _Made, examination: Examination, candidates: Candidates | None) -> About:
    """What a saved mixture says of itself, so that it can be used without its run."""
    evaluations = examination.evaluations
    scores = {"test": evaluations["test"].for_card()}
    if made.untuned is not None:
        scores = {"test, untuned": made.untuned.for_card(), **scores}
    if "dev" in evaluations:
        scores = {"dev": evaluations["dev"].for_card(), **scores}
    return About(
        relation=record.relation.name,
        relation_sha256=record.relation.sha256,
        split_by=record.relation.split_by,
        learned_from=made.learned_from or {},
        scores=scores,
        dev_answers=to_json(dev_answers(evaluations["dev"], candidates)) if "dev" in evaluations else None,
    )


@contextmanager
def _threads(count: int) -> Generator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
