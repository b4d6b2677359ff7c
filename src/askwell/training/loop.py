"""The training loop: what is minimised, by gradient or by EM; build, step, score on dev, keep the best."""

import logging
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from askwell.answers.candidates import Candidates, GivenCandidates, as_candidates
from askwell.answers.encode import EncodedFacts
from askwell.answers.kinds import EncodedRelation
from askwell.answers.reply import LeftOutFact, count_reasons
from askwell.answers.strategy import Answers
from askwell.data.facts import Relation, SplitName
from askwell.data.names import as_relation
from askwell.errors import NothingLeft, checked
from askwell.evaluation.examine import evaluate_split
from askwell.evaluation.scoring import score_each
from askwell.lms.machine import limited_threads
from askwell.mixture.mixture import Mixture
from askwell.specs.mixture_spec import MixtureSpec
from askwell.specs.training_spec import TrainingSpec
from askwell.training.checkpoint import State, load_checkpoint, run_id, save_checkpoint
from askwell.training.history import (
    HistoryLine,
    Interrupted,
    TrainingProgress,
    TrainingResult,
    best_of,
    gain_over,
    may_be_kept,
)
from askwell.training.optimiser import (
    CHOSEN_PAIRS,
    add_to_means,
    choose_tuned,
    choose_weighting,
    facts_to_fit,
    fit_lengths,
    fit_weights,
    fits_lengths,
    fits_weights,
    moments_of,
    optimizer_of,
    penalty,
    rates_of,
    restore_moments,
    step,
    tuned_by,
)
from askwell.training.schedule import Schedule, posterior_power, schedule_of, scored_dev_facts
from askwell.views.to_text import Bar

_log = logging.getLogger("askwell")


class Loss(NamedTuple):
    """The loss of some facts."""

    to_minimise: Float[Tensor, ""]
    """A sum over facts whose gradient is the step to take."""
    negative_log_likelihood: float
    """The sum over facts of -log p(y | x, r)."""
    posteriors: Float[Tensor, " prompts"]
    """The sum over facts of the posterior over prompts."""


class Objective:
    """The loss of training facts; whatever does not change during training is computed once."""

    def __init__(self, answers: Answers, encoded: EncodedFacts, method: Literal["gradient", "em"]) -> None:
        self._answers, self._encoded, self._method = answers, encoded, method
        self._prompts = prompts = answers.prompts
        self.facts_at_once = answers.facts_at_once(encoded)
        changing = (prompts.vectors, *prompts.deltas.parameters())
        self._known = None if any(part.requires_grad for part in changing) else answers.read_once(encoded)

    def loss(self, rows: Int[Tensor, " facts"], power: float = 1.0) -> Loss:
        """Return the loss of the facts in these rows, without those that all prompts show as examples.

        With a power α below 1, posteriors are q ∝ joint^α, and what is minimised is the bound that they make tight:
        -(1/α) log Σ joint^α, whose gradient is that of the expected log joint under q.
        """
        if self._prompts.examples:  # encoding leaves such facts out, but prompts can be dropped later
            rows = rows[~self._prompts.is_own_example(self._encoded.xs, rows)]
            if not len(rows):
                nothing = torch.zeros((), device=rows.device, requires_grad=True)
                return Loss(nothing, 0.0, torch.zeros_like(self._prompts.weight_logits))
        known = None if self._known is None else self._known.of(rows)
        found = self._answers.likelihood(self._encoded, rows, known)
        negative = -float(found.total.detach().sum())
        if found.joint is None:
            return Loss(-found.total.sum(), negative, torch.zeros_like(self._prompts.weight_logits))
        posteriors = (power * found.joint.detach()).softmax(1)
        if self._method == "gradient" or found.by_prompt is None:
            to_minimise = -(found.total if power == 1 else (power * found.joint).logsumexp(1) / power).sum()
        else:
            # Weights whose M step has a closed form take it once a stretch.
            expected = found.by_prompt if self._prompts.weighting.closed_form else found.joint
            to_minimise = -torch.where(posteriors > 0, posteriors * expected, 0.0).sum()
        return Loss(to_minimise, negative, posteriors.sum(0))

    def seconds_of_pair(self, pairs: int = 64) -> float:
        """Measure how long training on one (fact, prompt) pair takes, on about this many; nothing is changed."""
        prompts = len(self._prompts.tuned.kept)
        few = self._encoded.rows[: max(1, pairs // prompts)]
        seconds = []
        for _ in range(3):  # the first is slower, since it allocates memory
            began = time.perf_counter()
            for chunk in few.split(self.facts_at_once):
                self.loss(chunk).to_minimise.backward()
            seconds.append(time.perf_counter() - began)
        for parameter in self._prompts.parameters():
            parameter.grad = None
        return min(seconds) / (len(few) * prompts)


@checked
def train(
    mixture: Mixture,
    relation: Relation | Any,
    spec: TrainingSpec | None = None,
    *,
    candidates: GivenCandidates = None,
    encoded: EncodedRelation | None = None,
    folder: Path | str | None = None,
    resume: bool = False,
    test: bool = False,
    progress: Callable[[TrainingProgress], None] | bool | None = None,
    **choices: Any,
) -> TrainingResult:
    """Tune the mixture on a relation's train facts, from the state that it is in, and leave it in the state that was
    best on its dev facts. Calling it again continues from there.

    Instead of a relation, a name, a path or facts in memory can be given, as for `load_relation`. Pass a `spec`, or
    fields of TrainingSpec by name: `train(mixture, relation, pairs=400)`. With `candidates`, it is tuned to choose
    among them. `encoded` are the relation's facts, if they are encoded already. With a `folder`, a checkpoint is saved
    there after each stretch of the schedule, from which `resume` continues: a resumed run gives the same result as one
    that was never interrupted. Ctrl-C leaves the mixture in its best state so far and is raised as `Interrupted`, which
    has the result. With `test`, the result has the evaluation on the test facts.

    If it takes long, a terminal or notebook shows a progress bar, unless `progress` is False; if it is a function, it
    is called at each step instead. How many facts are left out, and why, is logged once before training."""
    spec = TrainingSpec.given(spec, choices, to=train, elsewhere={"Mixture": MixtureSpec})
    candidates, folder = as_candidates(candidates), None if folder is None else Path(folder)
    relation = as_relation(relation)
    with limited_threads(spec.threads):  # a run has set its own number already
        spec = spec.model_copy(update={"threads": torch.get_num_threads()})
        if encoded is None:
            encoded = mixture.encode_relation(relation, candidates=candidates, whole_answers=candidates is not None)
        if callable(progress):
            result = _train(mixture, encoded, spec, candidates, folder, resume, progress)
        else:
            with Bar("pairs", progress) as bar:
                step_done = partial(_show, bar)
                result = _train(mixture, encoded, spec, candidates, folder, resume, step_done)
        if not test:
            return result
        shown = None if callable(progress) else progress
        return replace(result, test=evaluate_split(mixture, relation, encoded=encoded, progress=shown))


def _show(bar: Bar, at: TrainingProgress) -> None:
    bar(at.pairs_done, at.pairs)


def _train(
    mixture: Mixture,
    encoded: EncodedRelation,
    spec: TrainingSpec,
    candidates: Candidates | None,
    folder: Path | None,
    resume: bool,
    progress: Callable[[TrainingProgress], None],
) -> TrainingResult:
    mixture.answer_kind, mixture.candidates = encoded.kind, candidates
    choose_tuned(mixture, spec)
    relation, answers = encoded.relation, mixture.answering()
    left_out: dict[str, tuple[LeftOutFact, ...]] = {}
    for split in ("train", "dev"):
        encoded.need(split)
    train_facts, dev = (_with_answers(encoded, split, answers, left_out) for split in ("train", "dev"))
    for split, without in left_out.items():
        for reason, count in count_reasons(without).items():
            of = len(relation.splits[split])
            _log.warning("%s: %d of %d %s facts left out: %s", relation.name, count, of, split, reason)
    asked = scored_dev_facts(spec, fact_count=len(train_facts), dev_facts=len(dev), prompts=len(mixture.prompts))
    dev_scored = "" if asked == len(dev) else f"each score on dev asks {asked} of its {len(dev)} facts"
    if dev_scored:
        _log.info("%s: %s", relation.name, dev_scored)
    dev = spread(dev, asked)
    run = run_id(mixture, relation, spec, candidates)
    rates = rates_of(mixture, train_facts, spec)
    state = load_checkpoint(folder, run, mixture) if folder is not None and resume else None
    if state is None:
        state = _first_state(mixture, answers, train_facts, dev, relation, spec)
    else:
        _continue_from(state, mixture, spec)
    objective = Objective(answers, train_facts, spec.method)
    if spec.minutes is not None and state.pairs is None:
        # All dev scores together cost at most a third of the training pairs: they have no backward pass.
        state.pairs = max(1, int(spec.minutes * 60 / objective.seconds_of_pair() * 0.75))
    schedule = schedule_of(
        spec,
        fact_count=len(train_facts),
        dev_facts=len(dev),
        prompts=state.prompts,
        seed=mixture.spec.seed,
        pairs=state.pairs,
    )
    optimizer = optimizer_of(mixture, spec, rates)
    if optimizer is not None and state.moments:
        restore_moments(optimizer, state.moments)
    if folder is not None and not state.stretches:
        save_checkpoint(folder, run, state)

    loop = _Loop(
        mixture, answers, relation, dev, dev_scored, spec, schedule, objective, optimizer, state, folder, run, progress
    )

    def result() -> TrainingResult:
        return TrainingResult(
            spec=spec,
            history=tuple(state.history),
            left_out=left_out,
            train_facts=len(train_facts),
            dev_facts=len(dev),
            pairs=schedule.pairs_after(state.stretches),
            planned_pairs=schedule.pairs,
            step_sizes=asdict(rates),
            finished=schedule.is_over(state.stretches, state.history),
            vocabulary=answers.vocabulary,
        )

    # What the LM computes for an x before all tuned words never changes, so it is cached if it is needed again.
    again = [dev.xs, *([train_facts.xs] if schedule.pairs > len(train_facts) * state.prompts else [])]
    try:
        with mixture.pairs.keeping(*again):
            loop.tell(0, state.history[-1])
            while not schedule.is_over(state.stretches, state.history):
                loop.take_stretch()
            if fits_lengths(answers, spec):
                loop.fit_lengths(train_facts)
    except KeyboardInterrupt as stop:
        raise Interrupted(result()) from stop
    finally:
        loop.load_best()
    return result()


@dataclass(frozen=True)
class _Loop:
    """What training goes through again and again, and the state that it changes."""

    mixture: Mixture
    answers: Answers
    relation: Relation
    dev: EncodedFacts
    dev_scored: str
    spec: TrainingSpec
    schedule: Schedule
    objective: Objective
    optimizer: torch.optim.Optimizer | None
    state: State
    folder: Path | None
    """Where checkpoints are written, if anywhere."""
    run: str
    progress: Callable[[TrainingProgress], None]

    def tell(self, pairs_since: int, line: HistoryLine | None) -> None:
        """Report how far training is."""
        state, schedule = self.state, self.schedule
        loss = state.loss / state.facts if state.facts else None
        done = schedule.pairs_after(state.stretches) + pairs_since
        best = best_of(state.history, self.spec.kept_by)
        ends = schedule.ends_by_itself
        told = TrainingProgress(done, schedule.pairs, loss, line, tuple(state.history), best, ends, self.dev_scored)
        self.progress(told)

    def load_best(self) -> None:
        """Put the mixture into its best state so far."""
        self.mixture.load_state_dict(self.state.kept[best_of(self.state.history, self.spec.kept_by).round])

    def take_stretch(self) -> None:
        """Train for a stretch of the schedule, score dev if it is time, and write a checkpoint."""
        mixture, spec, state = self.mixture, self.spec, self.state
        _stretch(mixture, self.objective, self.optimizer, spec, self.schedule, state, self.tell)
        if spec.drop_below and state.stretches == self.schedule.drop_after:
            mixture.drop_prompts(spec.drop_below)
        state.parameters, state.moments = _copy(mixture), moments_of(self.optimizer)
        line = self._score_means() if self.schedule.scores_dev(state.stretches) else None
        if self.folder is not None:
            save_checkpoint(self.folder, self.run, state)
        self.tell(0, line)

    def _score_means(self) -> HistoryLine:
        """Score the mean over the last steps on dev, and keep it if it may be the best."""
        state = self.state
        scored = {**state.parameters, **state.means}
        self.mixture.load_state_dict(scored)
        line, losses = self._score(state.loss / state.facts)
        if state.to_beat:
            line = replace(line, gain=gain_over(state.to_beat, losses))
        self.mixture.load_state_dict(state.parameters)
        state.kept[line.round] = scored  # before its line, so that Ctrl-C finds the state of every line
        state.history.append(line)
        state.loss, state.facts = 0.0, 0
        front = may_be_kept(state.history, self.spec.kept_by)
        state.kept = {each.round: state.kept[each.round] for each in front}
        return line

    def fit_lengths(self, train_facts: EncodedFacts) -> None:
        """Fit how long answers are in the best state, and score that as a state of its own."""
        state = self.state
        self.load_best()
        fit_lengths(self.answers, spread(train_facts, facts_to_fit(state.prompts)))
        state.kept[len(state.history)] = _copy(self.mixture)
        line, _ = self._score(train_loss=None)
        state.history.append(replace(line, fits_lengths=True))
        self.tell(0, state.history[-1])

    def _score(self, train_loss: float | None) -> tuple[HistoryLine, list[float]]:
        pairs = self.schedule.pairs_after(self.state.stretches)
        return _score(self.answers, self.dev, self.relation, len(self.state.history), pairs, train_loss)


def _first_state(
    mixture: Mixture,
    answers: Answers,
    train_facts: EncodedFacts,
    dev: EncodedFacts,
    relation: Relation,
    spec: TrainingSpec,
) -> State:
    """Choose how prompts are weighed and fit their weights, as far as the spec wants that, and return the state before
    the first step."""
    if mixture.spec.weighting == "auto":
        choose_for_run(mixture, answers, train_facts, spec)
    if mixture.representation is not None and not mixture.representation.is_fitted:
        mixture.representation.fit(train_facts.xs)
    untuned = _copy(mixture)
    first, _ = _score(answers, dev, relation, round_=0, pairs=0, train_loss=None)
    state = State([first], parameters=untuned, kept={0: untuned}, moments={}, means={}, prompts=0)
    if fits_weights(answers, spec):
        fit_weights(answers, spread(train_facts, facts_to_fit(len(mixture.prompts))))
        fitted, losses = _score(answers, dev, relation, round_=1, pairs=0, train_loss=None)
        state.history.append(fitted)
        # Each prompt suits few x's: where weights can tell which, tuning the prompts often spoils them, and on few dev
        # facts that can look like a gain.
        if mixture.weighting.depends_on_x and spec.keep is None:
            state.to_beat = losses
        state.parameters = _copy(mixture)
        state.kept = {0: untuned, 1: state.parameters}
    state.prompts = len(mixture.tuned.kept)
    state.weighting, state.weighting_scores = mixture.spec.weighting, mixture.spec.weighting_scores
    return state


def _continue_from(state: State, mixture: Mixture, spec: TrainingSpec) -> None:
    """Put the mixture into the state of a run that was interrupted."""
    if state.weighting != mixture.spec.weighting:
        mixture.weigh_by(state.weighting)
        choose_tuned(mixture, spec)
    mixture.spec = mixture.spec.model_copy(update={"weighting_scores": state.weighting_scores})
    mixture.load_state_dict(state.parameters)


def _with_answers(
    encoded: EncodedRelation, split: SplitName, answers: Answers, left_out: dict[str, tuple[LeftOutFact, ...]]
) -> EncodedFacts:
    """Return the facts whose y is one of the answers; the others are left out. It is an error if there are none."""
    chosen, others = answers.choose(encoded.split(split))
    left_out[split] = (*encoded.left_out(split), *others)
    if not len(chosen):
        raise NothingLeft(f"{split} facts of {encoded.relation.name}", count_reasons(left_out[split]))
    return chosen


def choose_for_run(mixture: Mixture, answers: Answers, train_facts: EncodedFacts, spec: TrainingSpec) -> None:
    """Choose a mixture's weighting by a few of its train facts, and by more of them if these leave it open."""
    for pairs in CHOSEN_PAIRS:
        some = spread(train_facts, facts_to_fit(len(mixture.prompts), pairs))
        if not choose_weighting(mixture, answers, some, spec) or some is train_facts:
            return


def spread(encoded: EncodedFacts, count: int) -> EncodedFacts:
    """Return this many of the facts, evenly spaced; the facts themselves if that is all of them."""
    if count >= len(encoded):
        return encoded
    kept = torch.zeros(len(encoded), dtype=torch.bool, device=encoded.answers.device)
    kept[torch.arange(count, device=kept.device) * len(encoded) // count] = True
    return encoded.subset(kept)


def _stretch(
    mixture: Mixture,
    objective: Objective,
    optimizer: torch.optim.Optimizer | None,
    spec: TrainingSpec,
    schedule: Schedule,
    state: State,
    tell: Callable[[int, None], None],
) -> None:
    """Take the steps of the next stretch of the schedule."""
    facts_done = 0
    posteriors = torch.zeros_like(mixture.weight_logits)
    tuned, first = tuned_by(optimizer, mixture), schedule.steps_after(state.stretches)
    for number, (batch, fraction) in enumerate(schedule.batches(state.stretches), start=first):
        power = posterior_power(spec.anneal, number, schedule.steps)
        for chunk in batch.to(mixture.lm.device).split(objective.facts_at_once):
            loss = objective.loss(chunk, power)
            if optimizer is not None:
                (loss.to_minimise / len(batch)).backward()
            state.loss += loss.negative_log_likelihood
            posteriors += loss.posteriors
        if optimizer is not None:
            if spec.l2:
                (spec.l2 * penalty(mixture)).backward()
            step(optimizer, fraction)
            if schedule.ends_by_itself:
                add_to_means(state.means, tuned, schedule.weight_in_mean(number))
        facts_done += len(batch)
        state.facts += len(batch)
        tell(facts_done * schedule.prompts, None)
    if spec.method == "em" and spec.tune_weights and mixture.weighting.closed_form:
        mean_posterior = (posteriors / facts_done).clamp(min=torch.finfo(posteriors.dtype).tiny)
        is_dropped = mixture.weight_logits == -torch.inf
        mixture.weight_logits.data.copy_(mean_posterior.log().masked_fill(is_dropped, -torch.inf))
    state.stretches += 1


def _score(
    answers: Answers, dev: EncodedFacts, relation: Relation, round_: int, pairs: int, train_loss: float | None
) -> tuple[HistoryLine, list[float]]:
    """Score the mixture on dev after this many pairs, and return the line for its history and the facts' log-losses."""
    (scores, losses), prompts = score_each(answers, dev, relation), answers.prompts
    return HistoryLine(round_, pairs, train_loss, scores, prompts.effective_prompts, prompts.temperature), losses


def _copy(mixture: Mixture) -> dict[str, Tensor]:
    return {name: tensor.detach().clone() for name, tensor in mixture.state_dict().items()}
