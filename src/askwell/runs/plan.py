"""From a sweep to its runs: which are done, which are left, and about how long the rest will take."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from askwell.answers.candidates import Candidates, load_candidates
from askwell.answers.encode import needs_any_length
from askwell.answers.listed import MOST_XS_OF_PRIOR
from askwell.errors import BadFile, NothingLeft
from askwell.lms.frozen import FrozenLM
from askwell.lms.load import load_lm
from askwell.lms.machine import limited_threads
from askwell.mixture.mixture import Mixture
from askwell.prompts.prompt import usable_prompts
from askwell.prompts.weights import WEIGHTINGS
from askwell.runs.build_spec import build_run_spec
from askwell.runs.grid import GridCell, cells_of, naming
from askwell.runs.store import Store
from askwell.runs.worker import LMKey, RunFailed, RunTask
from askwell.specs.mixture_spec import MixtureSpec
from askwell.specs.run_spec import RunSpec
from askwell.specs.sweep_spec import LMChoice, SweepSpec
from askwell.training.loop import Objective
from askwell.training.schedule import schedule_of, scored_dev_facts

BACKWARD = 3.0
"""Training on a pair costs about as much as asking this many."""
_PAIRS = 32


def work_of(task: RunTask, prompts: int) -> float:
    """Return the work of a run with this many usable prompts, in units of asking one pair."""
    spec, relation = task.spec, task.relation
    prompts *= spec.mixture.copies
    prior = min(MOST_XS_OF_PRIOR, len({fact.x for fact in relation.train}))
    work = float(prompts * (len(relation.dev) + len(relation.test) + prior))
    if spec.training is not None and relation.train:
        train = len(relation.train)
        dev = scored_dev_facts(spec.training, facts=train, dev_facts=len(relation.dev), prompts=prompts)
        plan = schedule_of(spec.training, facts=train, dev_facts=dev, prompts=prompts, seed=spec.seed)
        scores = 1 + sum(plan.scores_dev(stretch) for stretch in range(1, len(plan.ends) + 1))
        asked_once = not spec.training.tune_vectors and not (spec.mixture.deep and spec.training.tune_layers)
        trained = prompts * train if asked_once else BACKWARD * plan.pairs
        nearest_words = prompts * len(relation.test)
        work += trained + scores * prompts * dev + nearest_words
    return 2 * work if WEIGHTINGS[spec.mixture.weighting].reads_x else work  # p(x | t) is read, too


def measured_pair(mixture: Mixture, task: RunTask) -> float | None:
    """Measure the seconds that asking one pair takes, by training on a few; None if no fact can be trained on."""
    facts, _ = mixture.encode(task.relation.train[:_PAIRS])
    if not len(facts):
        return None
    with limited_threads(task.spec.threads):
        return Objective(mixture.answering(kind=facts.kind), facts, "gradient").seconds_of_pair(_PAIRS) / BACKWARD


def stored_pairs(store: Store, done: list[tuple[RunSpec, float]]) -> float | None:
    """Estimate the seconds that asking one pair takes, from finished runs and their work; None if there are none."""
    took = [(store.read(spec.id).record.environment.seconds, work) for spec, work in done]
    seconds = sum(of_run for of_run, _ in took if of_run is not None)
    work = sum(work for of_run, work in took if of_run is not None)
    return seconds / work if work else None


_TELLING = 0.1
"""Finished runs predict how long the others will take if they make up more than this fraction of the work."""


@dataclass(frozen=True)
class Plan:
    """The runs of a sweep, grouped by LM."""

    runs: tuple[RunTask, ...]
    done: frozenset[str]
    """The ids of those that are complete."""
    seconds: dict[str, float]
    """The estimated seconds of each of the others, by id; those of an LM that was not measured are missing."""
    without: tuple[str, ...]
    """Parts of the grid that are impossible, each with the reason."""

    @property
    def to_do(self) -> tuple[RunTask, ...]:
        """The runs that are not done."""
        return tuple(task for task in self.runs if task.spec.id not in self.done)

    def estimate(self, workers: int) -> float | None:
        """Estimate how many seconds the rest will take; None if unknown."""
        if any(task.spec.id not in self.seconds for task in self.to_do):
            return None
        longest = max(self.seconds.values(), default=0.0)
        return max(longest, sum(self.seconds.values()) / workers)

    def as_json(self, workers: int, failed: Sequence[RunFailed] = ()) -> dict[str, Any]:
        """Return the plan with its estimates for this many workers, and which runs failed, as plain JSON."""
        why = {failure.id: failure.message for failure in failed}
        shown = ("id", "lm", "relation", "prompts", "setting", "seed", "control")
        runs = [
            {
                **{name: getattr(task.spec, name) for name in shown},
                "was_done": task.spec.id in self.done,
                "estimated_seconds": self.seconds.get(task.spec.id),
                "failure": why.get(task.spec.id),
            }
            for task in self.runs
        ]
        return {"runs": runs, "left_out": list(self.without), "estimated_seconds": self.estimate(workers)}


def plan_sweep(
    sweep: SweepSpec, file: Path, store: Store, *, data: Path | None = None, note: Callable[[str], None] | None = None
) -> Plan:
    """Plan a sweep; whatever is wrong with it is reported before any run begins."""
    cells, without = cells_of(sweep, file, data)
    with naming(file, "candidates"):
        candidates = None if sweep.candidates is None else load_candidates(sweep.candidates)
    tell = note or (lambda _text: None)
    runs: dict[str, RunTask] = {}
    seconds: dict[str, float] = {}
    done = store.done()
    names: dict[str, str] = {}
    for choice in sweep.lms:
        tell(f"loading {choice.source}")
        with naming(file, "lms"):  # on the CPU, since the device of the runs may be that of another machine
            lm = load_lm(
                choice.source, revision=choice.revision, tokenizer=choice.tokenizer, device="cpu", dtype=sweep.dtype
            )
        if names.setdefault(lm.identity.name, lm.identity.digest) != lm.identity.digest:
            raise BadFile(file, f"lms: two different LMs are called {lm.identity.name}; rename the folder of one")
        usable, reasons = _usable(lm, cells)
        if not usable:
            raise BadFile(file, f"lms: {choice.source} can use none of the prompts ({reasons[0]})")
        without += reasons
        mixtures = _mixtures(sweep, file, lm, [cell for cell, _ in usable])
        of_lm = [
            (task, count)
            for cell, count in usable
            for task in _runs_of(sweep, cell, choice, lm, mixtures, candidates, store)
        ]
        of_lm.sort(key=lambda known: _asked_lm(known[0]))
        new = {task.spec.id: (task, count) for task, count in of_lm if task.spec.id not in runs}
        runs |= {run: task for run, (task, _) in new.items()}
        seconds |= _seconds(lm, list(new.values()), done, store)
        del lm  # before the next is loaded: two may not fit
    return Plan(tuple(runs.values()), frozenset(done & runs.keys()), seconds, tuple(without))


def _usable(lm: FrozenLM, cells: list[GridCell]) -> tuple[list[tuple[GridCell, int]], list[str]]:
    """Return the cells whose prompts the LM can use, with the number of usable prompts, and why others are unusable."""
    usable: list[tuple[GridCell, int]] = []
    reasons: list[str] = []
    for cell in cells:
        try:
            prompts, _ = usable_prompts(lm, cell.templates)
            usable.append((cell, len(prompts)))
        except NothingLeft as nothing:
            what = f"the {cell.prompts} prompts of {cell.relation.name}"
            reasons.append(f"{lm.identity.name} cannot use {what}: {nothing}")
    return usable, reasons


def _mixtures(sweep: SweepSpec, file: Path, lm: FrozenLM, cells: list[GridCell]) -> dict[str, MixtureSpec]:
    """Return the mixture of each setting for an LM. What sentences begin with applies only to causal LMs, and all
    relations have the same kind of answers, so that no mean is taken over both kinds."""
    needed = any(needs_any_length(lm, cell.relation) for cell in cells)
    answers = sweep.answers if sweep.answers != "auto" else "any-length" if needed else "one-token"
    mixtures = {}
    for name, setting in sweep.settings.items():
        own = setting.mixture
        chosen: dict[str, str] = {"answers": answers} if own.answers == "auto" else {}
        if len(lm.beginnings) == 1:
            chosen["begin"] = "auto"
        elif own.begin != "auto":
            with naming(file, f"settings.{name}"):
                lm.beginning(own.begin)
        mixtures[name] = own.model_copy(update=chosen)
    return mixtures


def _asked_lm(task: RunTask) -> tuple[str, int]:
    """Return the key that sorts an LM's runs by the LM that is asked, the original first: each control is made once."""
    return ("", 0) if task.spec.control is None else (task.spec.control, task.spec.seed)


def _runs_of(
    sweep: SweepSpec,
    cell: GridCell,
    choice: LMChoice,
    lm: FrozenLM,
    mixtures: dict[str, MixtureSpec],
    candidates: Candidates | None,
    store: Store,
) -> list[RunTask]:
    tasks = []
    tokenizer = None if choice.tokenizer is None else _wherever(choice.tokenizer)
    key = LMKey(_wherever(choice.source), choice.revision, tokenizer, sweep.device, sweep.dtype, sweep.compiled)
    seen_from_anywhere = Store(store.folder.resolve(), store.id)
    for name, setting in sweep.settings.items():
        if setting.prompts is not None and cell.prompts not in setting.prompts:
            continue
        of_setting = sweep.controls if setting.controls is None else setting.controls
        controls = (None, *of_setting) if setting.tuned else (None,)
        for seed, control in product(setting.seeds or sweep.seeds, controls):
            spec = build_run_spec(
                lm,
                cell.relation,
                cell.templates,
                mixture=mixtures[name].model_copy(update={"seed": seed}),
                training=setting.training if setting.tuned else None,
                candidates=candidates,
                control=control,
                prompts=cell.prompts,
                setting=name,
                threads=sweep.threads,
                device=sweep.device,
                dtype=sweep.dtype,
            )
            tasks.append(RunTask(spec, key, cell.relation, candidates, seen_from_anywhere))
    return tasks


def _wherever(source: str) -> str:
    """Make a path absolute, for workers with another current folder; other names are not changed."""
    return str(Path(source).resolve()) if Path(source).exists() else source


def _seconds(lm: FrozenLM, tasks: list[tuple[RunTask, int]], done: frozenset[str], store: Store) -> dict[str, float]:
    """Estimate how many seconds each remaining run of an LM will take, by id."""
    work = {task.spec.id: work_of(task, prompts) for task, prompts in tasks}
    to_do = [task for task, _ in tasks if task.spec.id not in done]
    if not to_do:
        return {}
    known = [(task.spec, work[task.spec.id]) for task, _ in tasks if task.spec.id in done]
    # A few short runs spend most of their time on things other than pairs.
    is_telling = sum(amount for _, amount in known) > _TELLING * sum(work.values())
    of_pair = _measured(lm, to_do) if to_do[0].spec.device == "cpu" and not is_telling else None
    of_pair = of_pair or stored_pairs(store, known)
    if of_pair is None:
        return {}
    budgets = {task.spec.id: task.spec.training.minutes for task in to_do if task.spec.training is not None}
    return {
        task.spec.id: 60 * minutes if (minutes := budgets.get(task.spec.id)) else of_pair * work[task.spec.id]
        for task in to_do
    }


def _measured(lm: FrozenLM, tasks: list[RunTask]) -> float | None:
    mixtures = ((_like(lm, task), task) for task in tasks)
    return next((found for mixture, task in mixtures if (found := measured_pair(mixture, task)) is not None), None)


def _like(lm: FrozenLM, task: RunTask) -> Mixture:
    """Build a mixture whose sentences are as long as those of a run."""
    names = ("lead_in", "prefix", "prefix_words", "shots", "shot_separator")
    own = task.spec.mixture
    begin = next(iter(lm.beginnings)) if own.begin == "auto" else own.begin
    spec = MixtureSpec(begin=begin, **{name: getattr(own, name) for name in names})
    return Mixture(lm, [prompt.template for prompt in task.spec.templates], spec, relation=task.relation)
