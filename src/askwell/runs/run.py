"""A run, from its spec to its folder: build the mixture, tune it, evaluate it, compare it with controls, save it.

All runs are executed here: those of `askwell train`, of baselines, of sweeps and of the demo.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from askwell.answers.candidates import Candidates, GivenCandidates, as_candidates
from askwell.answers.kinds import EncodedRelation
from askwell.answers.reply import LeftOutFact
from askwell.baselines.result import AnyProgress
from askwell.baselines.run_baseline import run_baseline
from askwell.data.facts import SPLITS, Relation, SplitName
from askwell.data.split_audit import audit_relation
from askwell.data.templates import Template, parse_template
from askwell.errors import BadOption, checked
from askwell.evaluation.examine import Examination, evaluate_split, examine
from askwell.evaluation.knowledge import knowledge
from askwell.evaluation.scoring import Evaluation, partitions_of, scores_of_parts
from askwell.evaluation.selective import dev_answers
from askwell.evaluation.trust import Trust, trust_of
from askwell.lms.frozen import FrozenLM
from askwell.lms.machine import limited_threads
from askwell.mixture.description import About
from askwell.mixture.learned_from import MIXTURE, LearnedFrom, RelationRecord
from askwell.mixture.mixture import Mixture
from askwell.runs.folder import write_history, write_run
from askwell.runs.record import (
    Environment,
    HistoryRecord,
    LeftOutTemplate,
    PromptRecord,
    RunRecord,
    environment,
)
from askwell.specs.mixture_spec import MixtureSpec, SettledMixtureSpec
from askwell.specs.run_spec import RunSpec
from askwell.specs.training_spec import BaselineName
from askwell.training.checkpoint import remove_checkpoint
from askwell.training.history import Interrupted
from askwell.training.loop import train


@dataclass(frozen=True)
class Built:
    """A run's mixture has been built, still untuned, and its facts have been read."""

    mixture: Mixture
    left_out: dict[SplitName, tuple[LeftOutFact, ...]]
    """The facts that cannot be asked, and why."""

    @classmethod
    def of(cls, mixture: Mixture, encoded: EncodedRelation, candidates: Candidates | None) -> "Built":
        """Return what is known before the first question."""
        answers = mixture.answering(candidates or mixture.candidates, encoded.kind)
        return cls(mixture, {one: (*encoded.left_out(one), *answers.choose(encoded.split(one))[1]) for one in SPLITS})


@dataclass(frozen=True)
class Asking:
    """Facts are being asked."""

    what: str
    done: int
    total: int


RunProgress = Built | Asking | AnyProgress


@checked
def run(
    spec: RunSpec,
    lm: FrozenLM,
    relation: Relation,
    folder: Path | str,
    *,
    candidates: GivenCandidates = None,
    checkpoints: Path | str | None = None,
    resume: bool = False,
    untuned: bool = False,
    controls: bool = True,
    mixture: SettledMixtureSpec | None = None,
    start: Mixture | None = None,
    seconds_to_load: float | None = None,
    progress: Callable[[RunProgress], None] | None = None,
) -> RunRecord:
    """Execute a run, write it to a folder, and return its record.

    `lm`, `relation` and `candidates` are what the spec names by their hashes. Checkpoints are kept in `checkpoints`, or
    in the folder itself, and `resume` continues from there. With `untuned`, test facts are also scored before tuning;
    without `controls`, neither controls nor measures of trust are computed. On an interrupt, the best state so far is
    saved as the folder's mixture.

    Where the spec leaves the context before a causal LM's sentences open, it is chosen on the relation's train facts,
    unless `mixture` is the spec's own mixture with that choice made elsewhere, as for controls. If the spec starts from
    another LM's mixture, `start` is that mixture, carried over to this LM.
    """
    date, began = datetime.now(UTC).replace(microsecond=0), time.monotonic()
    if relation.digest != spec.facts_sha256:
        raise BadOption(f"the spec describes a run on {spec.relation}, but these are different facts ({relation.name})")
    if (spec.start is None) != (start is None):
        raise BadOption("`start` is the mixture that the spec starts from: give both, or neither")
    folder, candidates = Path(folder), as_candidates(candidates)
    checkpoints = folder if checkpoints is None else Path(checkpoints)
    folder.mkdir(parents=True, exist_ok=True)
    tell = progress or (lambda _event: None)
    known = RelationRecord.of(relation)
    work = _Work(
        spec, mixture or spec.mixture, lm, relation, known, folder, checkpoints, candidates, resume, tell, start
    )
    with limited_threads(spec.threads):
        made = work.mixture(untuned=untuned) if spec.baseline is None else work.baseline(spec.baseline)
        made.mixture.answer_kind = made.encoded.kind
        # Dev says which of several tuned mixtures to use; of prompts as they are, only P@1 on test is wanted then.
        asked: tuple[SplitName, ...] = ("test",) if spec.best_only and spec.training is None else ("test", "dev")
        examination = examine(
            made.mixture,
            relation,
            asked,
            candidates=candidates,
            encoded=made.encoded,
            controls=controls,
            top=1 if spec.best_only else 10,
            best_only=spec.best_only,
            prompts=not spec.best_only,
            seed=spec.seed,
            progress=work.asking(f"{' and '.join(asked)} facts"),
        )
        measures_trust = controls and not spec.best_only
        trust = trust_of(examination, progress=work.asking("nearest words")) if measures_trust else None
    took = {"began": date, "seconds": round(time.monotonic() - began, 3), "seconds_to_load": seconds_to_load}
    record = _record(work, made, examination, trust, environment().model_copy(update=took))
    if spec.training is not None or spec.baseline is not None or start is not None:
        made.mixture.save_pretrained(folder / MIXTURE, about=_about(record, made, examination, candidates))
    outcomes = {split: evaluation.outcomes for split, evaluation in examination.evaluations.items()}
    before = () if made.untuned is None else made.untuned.outcomes
    golds = {fact.x: relation.golds[fact.x] for fact in relation.train}
    write_run(folder, record, outcomes, examination.controls.outcomes, untuned=before, train_golds=golds)
    remove_checkpoint(work.checkpoints)
    return record


@dataclass(frozen=True)
class _Made:
    """A mixture in its final state, and how it got there."""

    mixture: Mixture
    encoded: EncodedRelation
    learned_from: LearnedFrom | None = None
    """What it was trained on and how; None if nothing was learned."""
    history: tuple[HistoryRecord, ...] = ()
    untuned: Evaluation | None = None


@dataclass(frozen=True)
class _Work:
    """The inputs of a run, and the two ways to make its mixture."""

    spec: RunSpec
    asked: MixtureSpec
    """The mixture of the spec, perhaps already settled."""
    lm: FrozenLM
    relation: Relation
    known: RelationRecord
    folder: Path
    checkpoints: Path
    candidates: Candidates | None
    resume: bool
    tell: Callable[[RunProgress], None]
    start: Mixture | None = None
    """A mixture of another LM, carried over to this one."""

    def mixture(self, *, untuned: bool) -> _Made:
        """Make a mixture of ours, tuned if the spec says so; with `untuned`, also score it on test before tuning."""
        spec, relation = self.spec, self.relation
        mixture = self.start or Mixture(self.lm, templates_of(spec), self.asked, relation=relation)
        chosen = self.candidates if spec.training is not None and spec.training.classify else None
        # A mixture that may give any answer learns to answer y itself, even if y is a label of the candidates.
        among = self.candidates if spec.training is None else chosen
        facts = mixture.encode_relation(relation, candidates=among, whole_answers=chosen is not None)
        self.tell(Built.of(mixture, facts, self.candidates))
        if spec.training is None:
            return _Made(mixture, facts)
        before = None
        if untuned:
            asking = self.asking("test facts, untuned")
            before = evaluate_split(mixture, relation, candidates=self.candidates, encoded=facts, progress=asking)
        try:
            result = train(
                mixture,
                relation,
                spec.training,
                candidates=chosen,
                encoded=facts,
                folder=self.checkpoints,
                resume=self.resume,
                progress=self._keep_history,
            )
        except Interrupted as stop:
            about = About(relation=self.known, learned_from=stop.result.learned_from)
            mixture.save_pretrained(self.folder / MIXTURE, about=about)
            raise
        return _Made(mixture, facts, result.learned_from, _lines(result.history), before)

    def baseline(self, name: BaselineName) -> _Made:
        """Make the mixture of a baseline."""
        found = run_baseline(
            name,
            self.lm,
            templates_of(self.spec),
            self.relation,
            training=self.spec.training,
            search=self.spec.search,
            fine_tuning=self.spec.fine_tuning,
            seed=self.spec.seed,
            asked=self.asked,
            folder=self.checkpoints,
            resume=self.resume,
            progress=self._keep_history,
        )
        facts = found.mixture.encode_relation(self.relation)
        self.tell(Built.of(found.mixture, facts, None))
        return _Made(found.mixture, facts, found.learned_from, _lines(found.history))

    def asking(self, what: str) -> Callable[[int, int], None]:
        """Return a callback that reports how many facts have been asked."""
        return lambda done, total: self.tell(Asking(what, done, total))

    def _keep_history(self, state: AnyProgress) -> None:
        """Write the history whenever dev has been scored, so that it can be read during the run."""
        if state.record is not None:
            write_history(self.folder, _lines(state.history))
        self.tell(state)


def templates_of(spec: RunSpec) -> list[Template]:
    """Return the run's prompts."""
    return [parse_template(prompt.template, prompt.weight) for prompt in spec.templates]


def _lines(history: Sequence[Any]) -> tuple[HistoryRecord, ...]:
    return tuple(HistoryRecord.model_validate(line.as_json()) for line in history)


def _record(
    work: _Work, made: _Made, examination: Examination, trust: Trust | None, environment: Environment
) -> RunRecord:
    spec, relation, mixture = work.spec, work.relation, made.mixture
    evaluations, found = examination.evaluations, examination.controls
    of_controls = [by_split["test"] for by_split in found.controls.values()]
    partitions = partitions_of(evaluations["test"].outcomes, relation, of_controls)
    return RunRecord(
        id=spec.id,
        spec=spec,
        mixture=mixture.spec,
        lm=mixture.lm.identity,
        relation=work.known,
        prompts=_prompts(mixture),
        dropped_examples=mixture.dropped_examples,
        left_out_prompts=tuple(
            LeftOutTemplate(template=prompt.template.text, reason=prompt.reason) for prompt in mixture.left_out_prompts
        ),
        effective_prompts=mixture.effective_prompts,
        temperature=mixture.temperature,
        mean_entropy_over_x=examination.mean_entropy_over_x,
        untuned=None if made.untuned is None else made.untuned.figures(),
        test=evaluations["test"].figures(),
        dev=evaluations["dev"].figures() if "dev" in evaluations else None,
        controls=found.figures(),
        controls_missing=found.missing,
        knowledge=knowledge(evaluations["test"].outcomes, found.outcomes),
        trust=trust,
        partitions={name: scores_of_parts(parts) for name, parts in partitions.items()},
        audit=audit_relation(relation),
        training=made.learned_from,
        history=made.history,
        environment=environment,
    )


def _prompts(mixture: Mixture) -> tuple[PromptRecord, ...]:
    weights, none = mixture.weights.tolist(), [()] * len(mixture.prompts)
    shown, losses = mixture.examples or none, mixture.example_log_losses or none
    return tuple(
        PromptRecord(
            template=prompt.template.text,
            weight=weight,
            examples=tuple((fact.x, fact.y) for fact in examples),
            example_log_losses=of_draws,
        )
        for prompt, weight, examples, of_draws in zip(mixture.prompts, weights, shown, losses, strict=True)
    )


def _about(record: RunRecord, made: _Made, examination: Examination, candidates: Candidates | None) -> About:
    """Return the description saved with a mixture, so that it can be used without its run."""
    evaluations = examination.evaluations
    scores = {"test": evaluations["test"].for_card()}
    if made.untuned is not None:
        scores = {"test, untuned": made.untuned.for_card(), **scores}
    if "dev" in evaluations:
        scores = {"dev": evaluations["dev"].for_card(), **scores}
    beside = {"facts": record.test.facts, "vocabulary": record.test.vocabulary}
    for control in record.controls.values():
        if control.test is not None:
            scores[f"test without knowledge of x: {control.description}"] = {**control.test, **beside}
    return About(
        relation=record.relation,
        learned_from=made.learned_from,
        scores=scores,
        dev_answers=dev_answers(evaluations["dev"], candidates) if "dev" in evaluations else None,
    )
