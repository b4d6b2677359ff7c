"""Shared by commands that run something: what is shown while an LM is loaded and a run or a sweep is under way, and the
results of runs and evaluations. Without a terminal, progress is only lines."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from askwell.cli.terminal import bar, note, note_left_out_facts, print_json, say, show, show_document, stderr
from askwell.data.facts import SPLITS, Relation
from askwell.data.split import fold_of
from askwell.data.templates import Template
from askwell.evaluation.knowledge import PRIOR_CORRECTED
from askwell.evaluation.metrics import METRICS, scores_of
from askwell.evaluation.scoring import FEW, EvaluationFigures, doubt
from askwell.files import to_json
from askwell.lms.frozen import FrozenLM
from askwell.lms.load import load_lm
from askwell.lms.machine import set_threads
from askwell.mixture.learned_from import NOTHING_FOUND
from askwell.mixture.mixture import Mixture
from askwell.runs.folder import Run, check_folder, clear_folder, hold_folder, read_run
from askwell.runs.record import RunRecord
from askwell.runs.run import Asking, Built, RunProgress, run
from askwell.runs.score_source import Scored
from askwell.runs.several_runs import pooled
from askwell.runs.sources import note_left_out_prompts
from askwell.specs.mixture_spec import NO_LEAD_IN
from askwell.specs.run_spec import RunSpec
from askwell.training.checkpoint import CHECKPOINT
from askwell.training.history import HistoryLine, TrainingProgress, badness
from askwell.views.printable import counted
from askwell.views.scores import (
    candidate_blocks,
    control_sentences,
    detail_sentences,
    evaluation_blocks,
    gain_text,
    score_table,
    spread_blocks,
    statement_sentences,
    told_sentences,
)


class RunBars:
    """The bars of a run, and a line for each dev score. On an interrupt, it says how to continue."""

    def __init__(self, folder: Path) -> None:
        self._bar, self._folder = bar(""), folder
        self._best: tuple[float, ...] | None = None
        self._measured_from = (time.monotonic(), 0)
        self._noted = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._bar.__exit__()
        if kind is not None and issubclass(kind, KeyboardInterrupt) and (self._folder / CHECKPOINT).exists():
            note(
                f"interrupted: the best state so far is saved in {self._folder}; the same command with --resume "
                "continues from there"
            )
        if kind is not None and self._folder.is_dir() and not any(self._folder.iterdir()):
            self._folder.rmdir()

    def __call__(self, state: RunProgress) -> None:
        """Show a progress event of the run."""
        if isinstance(state, Built):
            _note_mixture(state.mixture)
            for split, left_out in state.left_out.items():
                note_left_out_facts(split, left_out)
        elif isinstance(state, Asking):
            self._bar(state.done, state.total, what=state.what)
        elif isinstance(state, TrainingProgress):
            self._follow_training(state)
        else:
            self._bar(state.done, state.total, f"loss {_loss(state.loss)}", state.unit)
            if state.record is not None:
                text = "untuned" if state.loss is None else f"loss {state.loss:6.3f}"
                text += "" if state.record.template is None else f"  {state.record.template}"
                self._print_if_better(state.done, state.record.dev, text, state.record.unwanted)

    def _follow_training(self, state: TrainingProgress) -> None:
        if state.dev_scored != self._noted:
            self._noted = state.dev_scored
            note(state.dev_scored)
        began, pairs_before = self._measured_from
        seconds, pairs = time.monotonic() - began, state.pairs_done - pairs_before
        speed = f"{pairs / seconds:.0f} pairs/s" if seconds > 0 and pairs > 0 else "– pairs/s"
        what = "pairs, at most" if state.ends_by_itself else "pairs"
        self._bar(state.pairs_done, state.pairs, f"loss {_loss(state.loss)}  {speed}", what)
        if state.record is not None:
            self._print_record(state, state.record, speed)
            self._measured_from = (time.monotonic(), state.pairs_done)

    def _print_record(self, state: TrainingProgress, record: HistoryLine, speed: str) -> None:
        not_trained = "untuned    " if record.round == 0 else "fitted     "
        loss = not_trained if record.train_loss is None else f"loss {record.train_loss:6.3f}"
        best = "  ← best" if state.best == record else ""
        of_all = "" if state.ends_by_itself else f"/{state.pairs}"
        stderr.print(
            f"{record.pairs:{len(str(state.pairs))}}{of_all} pairs  {loss}  {_dev(record.dev)}  {speed}{best}",
            markup=False,
        )

    def _print_if_better(self, at: int, dev: dict[str, Any], text: str, *first: int) -> None:
        key = (*first, *badness(dev))
        if self._best is None or key < self._best:
            self._best = key
            stderr.print(f"{at:5}  {_dev(dev)}  {text}", markup=False)


def _note_mixture(mixture: Mixture) -> None:
    """Note which prompts the LM cannot use, what its sentences begin with if there is a choice, and whether weights
    that depend on x can have an effect."""
    note_left_out_prompts(mixture, note)
    if len(mixture.lm.beginnings) > 1:
        note(f"sentences begin with: {mixture.spec.begin} (--begin)")
    if mixture.spec.lead_in != NO_LEAD_IN:
        note(f"sentences are preceded by: {mixture.spec.lead_in} (--lead-in)")
    if mixture.examples:
        whose = "once for all prompts" if mixture.spec.opening == "shared" else "for each prompt"
        draws = mixture.spec.shot_draws
        drawn = f"the best of {draws} draws on dev {whose}" if draws > 1 else f"drawn {whose}"
        note(f"examples before the question: {mixture.spec.shots} train facts, {drawn} (--shots, --shot-draws)")
    if mixture.dropped_examples:
        shown = mixture.examples[:1] if mixture.spec.opening == "shared" else mixture.examples
        wanted = mixture.dropped_examples + sum(map(len, shown))
        note(
            f"{mixture.dropped_examples} of {wanted} examples did not fit into the LM's "
            f"maximum input of {mixture.lm.context} tokens and were dropped, starting with the first of each prompt"
        )
    if mixture.weighting.reads == ("x",) and mixture.finds_every_x_alike:
        note(
            "data-dependent weights have no effect here: no prompt has a word before x, so a causal LM finds x "
            "equally probable with all of them"
        )


def _dev(scores: dict[str, Any]) -> str:
    loss = "∞" if scores["log_loss"] is None else f"{scores['log_loss']:.3f}"
    return f"dev P@1 {scores['P@1']:5.1f}  dev log-loss {loss}"


def _loss(loss: float | None) -> str:
    return "–" if loss is None else f"{loss:.3f}"


def load_for_run(
    lm: str, relations: Sequence[Relation], templates: Sequence[Template], threads: int | None, **loading: Any
) -> FrozenLM:
    """Load the LM of a run, and note what the run will use."""
    for line in dict.fromkeys(line for relation in relations for line in relation.counts.lines()):
        note(line)
    loaded = load_lm(lm, **loading)
    set_threads(threads)
    train, dev, test = (sorted({len(relation.split(split)) for relation in relations}) for split in SPLITS)
    in_folds = f" in each of {len(relations)} folds" if len(relations) > 1 else ""
    note(
        f"{relations[0].name}: {_from_to(train)} train, {_from_to(dev)} dev and {_from_to(test)} test "
        f"{'fact' if test == [1] else 'facts'}{in_folds}, {counted(len(templates), 'prompt')}, on "
        f"{loaded.identity.name} ({loaded.family.name}, {loaded.device})"
    )
    return loaded


def _from_to(counts: Sequence[int]) -> str:
    return "–".join(map(str, dict.fromkeys([counts[0], counts[-1]])))


def run_with_bars(
    spec: RunSpec, lm: FrozenLM, relation: Relation, folder: Path, *, overwrite: bool, **options: Any
) -> RunRecord:
    """Execute a run and show its progress; `overwrite` removes the files of an earlier run first."""
    with hold_folder(folder), RunBars(folder) as bars:
        # Checked again, since another run may have finished there while the LM was loading.
        check_folder(folder, resume=options.get("resume", False), overwrite=overwrite)
        if overwrite:
            clear_folder(folder)
        return run(spec, lm, relation, folder, progress=bars, **options)


def print_run(record: RunRecord, folder: Path, relation: Relation, *, json: bool) -> None:
    """Print the results of a run, as JSON or as a summary: scores, controls, and what to do next."""
    if json:
        print_json(record.as_json(folder))
        return
    note_missing(record)
    show(score_table({"untuned": record.untuned, record.state: record.test}), *candidate_blocks(record.test))
    if record.training is not None and record.training.found_nothing:
        say(NOTHING_FOUND)
    run = read_run(folder)
    say(*told_sentences(record.spec.lm, run.test, run.untuned))
    for missing, problem in record.controls_missing.items():
        note(f"no control {missing} for {record.relation.name}: {problem}")
    say(*control_sentences(record.knowledge))
    learns = record.spec.baseline is None and record.spec.training is not None
    note_few(record.test.micro["P@1"], record.test.facts, relation, can_fold=learns)
    tuned = record.spec.training is not None and record.training is not None and record.training.pairs is not None
    found = record.training.prompt if record.training is not None else None
    lines = []
    if found is not None:
        lines.append(f"prompt found: {found}")
    elif len(record.prompts) == 1 and record.spec.baseline is not None:
        lines.append(f"prompt: {record.prompts[0].template}")
    seconds = record.environment.seconds or 0.0
    if record.mixture.shots:
        took = "" if tuned else f"; {seconds:.0f} s in all"
        lines.append(f"{len(record.prompts[0].examples)} examples before the question{took}.")
    if tuned and record.training is not None:
        lines.append(
            f"effective prompts: {record.effective_prompts:.1f} of {len(record.prompts)}; the state after "
            f"{record.training.best_pairs} of {record.training.pairs} pairs was best on dev; {seconds:.0f} s in all."
        )
        if record.dev is not None and record.training.dev_facts < record.dev.facts:
            lines.append(f"During tuning, {record.training.dev_facts} of the {record.dev.facts} dev facts were scored.")
    follow = f"askwell compare {folder} OTHER" if record.spec.baseline else f'askwell ask {folder} "…"'
    lines.append(f"Saved in {folder}. Next: {follow}, or askwell show {folder}")
    say(*lines)


def note_few(score: float, fact_count: int, relation: Relation, *, can_fold: bool = True) -> None:
    """Note between which values P@1 lies for all that few facts show, and how to score more; nothing for enough of
    them."""
    if fact_count >= FEW:
        return
    rule = relation.origin.split_by or ""
    is_split_here, read = relation.origin.seed is not None and fold_of(rule) is None, len(relation)
    groups = len({fact.y if rule.startswith("distinct-y") else fact.x for fact in relation})
    way_out = ""
    if is_split_here and can_fold and fact_count < read:
        way_out = f"; --folds {min(5, groups)} scores every fact of the file once"
    elif is_split_here and fact_count < 4 * read // 10:
        way_out = "; a split such as --split-ratio 50-10-40 tests on more"
    note(f"WARNING: {doubt(round(score / 100 * fact_count), fact_count)}{way_out}")


def print_folds(runs: Sequence[Run], out: Path, *, json: bool) -> None:
    """Print what runs on the folds of a relation score together."""
    found = pooled(runs)
    missing = dict.fromkeys(lack for run in runs for lack in run.record.controls_missing.items())
    for name, problem in missing:
        note(f"no control {name}: {problem}")
    if json:
        print_json({"out": str(out), **to_json(found)})
        return
    states = {run.record.state for run in runs}
    state = states.pop() if len(states) == 1 else "tuned"
    show(score_table({"untuned": found.untuned, state: found.tuned}), *candidate_blocks(found.tuned))
    say(
        f"Each of the {found.tuned.facts} facts was answered once, by a mixture that learned from the other folds. "
        f"P@1 {found.tuned.micro['P@1']:.1f} (95 % interval {found.low:.1f} to {found.high:.1f})."
    )
    if found.gain is not None:
        say(f"{state.capitalize()} over untuned, fact by fact: {gain_text(found.gain.micro)}.")
    say(*control_sentences(found.knowledge))
    say(f"P@1 by fold: {', '.join(METRICS['P@1'].text(scores['P@1']) for scores in found.by_fold.values())}.")
    say(f'Saved in {out}. Next: askwell ask {out} "…", or askwell runs {out}')


def note_missing(record: RunRecord) -> None:
    """Note which candidates a run left out, and the bounds on its scores if a search was cut short."""
    if record.untuned is not None and record.untuned.unsettled:
        note(f"untuned {record.untuned.bounds_text}")
    _note_missing(record.test)


def _note_missing(figures: EvaluationFigures) -> None:
    """Note which candidates were left out, and the bounds on the scores if the search was cut short."""
    if figures.candidates_left_out:
        words = counted(figures.candidates_left_out, "candidate")
        note(f"{words} left out, which the LM cannot spell within the longest allowed answer")
    if figures.unsettled:
        note(figures.bounds_text)


def print_scored(scored: Scored) -> None:
    """Print the scores, then the controls, the spread of several runs, and the measures of trust."""
    note_left_out_facts(scored.evaluation.split, scored.evaluation.left_out)
    _note_missing(scored.evaluation.figures())
    show(*evaluation_blocks(scored.evaluation))
    for name, lack in scored.controls_missing.items():
        note(f"no controls for {name}: {lack}")
    of_facts, split = scored.evaluation.outcomes, scored.evaluation.split
    if len(of_facts) < FEW:
        note(f"WARNING: {doubt(sum(one.rank <= 1 for one in of_facts), len(of_facts), split)}")
    say(*control_sentences(scored.knowledge))
    if scored.as_words is not None and scored.gain is not None:
        show(score_table({"hard prompts": scored.as_words.figures(), "tuned": scored.evaluation.figures()}))
        say(f"Tuned over the same prompts as they are written, fact by fact: {gain_text(scored.gain.micro)}.")
    say(*statement_sentences(scored.accuracy_of_prompts, scored.published))
    for runs in scored.several_runs:
        show(*spread_blocks(runs))
    if scored.trust:
        from askwell.views.trust_section import trust_of_mixture

        outcomes = {} if scored.controls is None else scored.controls.outcomes
        corrected = outcomes.get(PRIOR_CORRECTED, {}).get("test")
        say(*detail_sentences(scored.knowledge, scores_of(corrected)["P@1"] if corrected else None))
        for trust in scored.trust:
            show_document(trust_of_mixture(trust))
