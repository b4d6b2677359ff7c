"""From a sweep to its runs: which are done, which are left, and about how long the rest will take."""

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from random import Random
from typing import Any

from askwell.answers.candidates import Candidates, load_candidates
from askwell.answers.kinds import common_kind
from askwell.answers.listed import MOST_XS_OF_PRIOR
from askwell.data.facts import Relation
from askwell.data.names import data_folder, find, load_prompts, load_relation, relations_of
from askwell.data.split import sample
from askwell.data.templates import Template
from askwell.data.testbed import PREFIXES
from askwell.errors import AskwellError, BadFile, NoPrompts, NothingLeft
from askwell.lms.frozen import FrozenLM
from askwell.lms.load import load_lm
from askwell.lms.machine import limited_threads
from askwell.mixture.mixture import Mixture
from askwell.prompts.prompt import usable_prompts
from askwell.prompts.weights import WEIGHTINGS
from askwell.runs.build_spec import build_run_spec
from askwell.runs.store import FailedRun, Store
from askwell.runs.worker import LMKey, RunTask
from askwell.specs.mixture_spec import MixtureSpec
from askwell.specs.run_spec import LMChoice, RunSpec, SweepSpec
from askwell.training.loop import Objective
from askwell.training.schedule import schedule_of, scored_dev_facts


@contextmanager
def _naming(file: Path, key: str) -> Generator[None]:
    """Make errors raised in the block name the sweep's file and the key that caused them."""
    try:
        yield
    except AskwellError as error:
        raise BadFile(file, f"{key}: {error}") from error


@dataclass(frozen=True)
class GridCell:
    """A relation, and one named set of prompts for it."""

    relation: Relation
    prompts: str
    templates: tuple[Template, ...]


def cells_of(sweep: SweepSpec, file: Path, data: Path | None) -> tuple[list[GridCell], list[str]]:
    """Return the cells of a sweep, and the pairs that do not exist, each with the reason."""
    data = data_folder(data or (Path(sweep.data) if sweep.data else None))
    relations = _relations(sweep, file, data)
    try:
        sweep.check_size(len(relations))
    except ValueError as error:
        raise BadFile(file, str(error)) from None
    cells: list[GridCell] = []
    without: list[str] = []
    for name, sources in sweep.prompts.items():
        found = len(cells)
        for relation in relations:
            with _naming(file, f"prompts.{name}"):
                try:
                    read = load_prompts(sources, relation=relation, data=data)
                    drawn = sample_prompts(read, sweep.most_prompts.get(name), f"{sweep.facts_seed} {relation.name}")
                    if sweep.joined_punctuation:
                        drawn = tuple({one.joined.text: one.joined for one in drawn}.values())
                    cells.append(GridCell(relation, name, drawn))
                except NoPrompts as missing:
                    without.append(f"{relation.name} has no {name} prompts: {missing}")
        if found == len(cells):
            raise BadFile(file, f"prompts.{name}: there are none for any relation of the sweep ({without[-1]})")
    for relation in relations:
        if all(cell.relation is not relation for cell in cells):
            raise BadFile(file, f"facts: {relation.name} has no prompts under any name")
    return cells, without


def sample_prompts(templates: Sequence[Template], most: int | None, seed: str) -> tuple[Template, ...]:
    """Return the first template, and as many others, drawn by the seed, as may be had; larger samples contain smaller
    ones."""
    distinct = {template.text: template for template in reversed(templates)}
    if most is None or len(templates) <= most:
        return tuple(templates)
    others = sorted(distinct.keys() - {templates[0].text})
    Random(seed).shuffle(others)
    return (templates[0], *(distinct[text] for text in others[: most - 1]))


def _relations(sweep: SweepSpec, file: Path, data: Path | None) -> list[Relation]:
    relations: dict[str, Relation] = {}
    for source in sweep.facts:
        with _naming(file, "facts"):
            names = relations_of(f"{source}:" if f"{source}:" in PREFIXES else source, data)
            read = [_sampled(name, sweep, data) for name in names]
        for relation in read:
            same = relations.setdefault(relation.name, relation)
            if same.digest != relation.digest:
                raise BadFile(file, f"facts: two different relations are called {relation.name}; rename one")
    return list(relations.values())


def _sampled(name: str, sweep: SweepSpec, data: Path | None) -> Relation:
    # The testbed and folders have their own splits.
    is_split = name.startswith(PREFIXES) or find(name, "facts", data).is_dir()
    own: dict[str, str | None] = {"split": sweep.split_by, "ratio": sweep.split_ratio, "x": sweep.x, "y": sweep.y}
    relation = load_relation(name, data=data, seed=sweep.facts_seed, **({} if is_split else own))
    sizes = {"train": sweep.train_facts, "dev": sweep.dev_facts, "test": sweep.test_facts}
    return sample(relation, **sizes, seed=sweep.facts_seed)


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

    def as_json(self, workers: int, failed: Sequence[FailedRun] = ()) -> dict[str, Any]:
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
    with _naming(file, "candidates"):
        candidates = None if sweep.candidates is None else load_candidates(sweep.candidates)
    tell = note or (lambda _text: None)
    runs: dict[str, RunTask] = {}
    seconds: dict[str, float] = {}
    done = store.done()
    names: dict[str, str] = {}
    for choice in sweep.lms:
        tell(f"loading {choice.source}")
        with _naming(file, "lms"):  # on the CPU, since the device of the runs may be that of another machine
            lm = load_lm(
                choice.source, revision=choice.revision, tokenizer=choice.tokenizer, device="cpu", dtype=sweep.dtype
            )
        if names.setdefault(lm.identity.name, lm.identity.digest) != lm.identity.digest:
            raise BadFile(file, f"lms: two different LMs are called {lm.identity.name}; rename the folder of one")
        usable, reasons = _usable(lm, cells)
        if not usable:
            raise BadFile(file, f"lms: {choice.source} can use none of the prompts ({reasons[0]})")
        without += reasons
        mixtures = _mixtures(sweep, file, lm, usable)
        tasks = [task for cell in usable for task in _runs_of(sweep, cell, choice, lm, mixtures, candidates, store)]
        # By the LM that is asked, the original first: each control LM is made once.
        tasks.sort(key=lambda task: (task.spec.control or "", task.spec.seed if task.spec.control else 0))
        new = {task.spec.id: task for task in tasks if task.spec.id not in runs}
        runs |= new
        seconds |= _seconds(lm, [task for run, task in new.items() if run not in done])
        del lm  # before the next is loaded: two may not fit
    return Plan(tuple(runs.values()), frozenset(done & runs.keys()), seconds, tuple(without))


def _usable(lm: FrozenLM, cells: list[GridCell]) -> tuple[list[GridCell], list[str]]:
    """Return the cells whose prompts the LM can use, and why it cannot use the others."""
    usable: list[GridCell] = []
    reasons: list[str] = []
    for cell in cells:
        try:
            usable_prompts(lm, cell.templates)
            usable.append(cell)
        except NothingLeft as nothing:
            what = f"the {cell.prompts} prompts of {cell.relation.name}"
            reasons.append(f"{lm.identity.name} cannot use {what}: {nothing}")
    return usable, reasons


def _mixtures(sweep: SweepSpec, file: Path, lm: FrozenLM, cells: list[GridCell]) -> dict[str, MixtureSpec]:
    """Return the mixture of each setting for an LM. What sentences begin with applies only to causal LMs, and all
    relations have the same kind of answers, so that no mean is taken over both kinds."""
    answers = common_kind(sweep.answers, [lm], [cell.relation for cell in cells])
    mixtures = {}
    for name, setting in sweep.settings.items():
        own = setting.mixture
        chosen: dict[str, str] = {"answers": answers} if own.answers == "auto" else {}
        if len(lm.beginnings) == 1:
            chosen["begin"] = "auto"
        elif own.begin != "auto":
            with _naming(file, f"settings.{name}"):
                lm.beginning(own.begin)
        mixtures[name] = own.model_copy(update=chosen)
    return mixtures


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
                best_only=sweep.best_only,
            )
            tasks.append(RunTask(spec, key, cell.relation, candidates, store))
    return tasks


def _wherever(source: str) -> str:
    """Make a path absolute, for workers with another current folder; other names are not changed."""
    return str(Path(source).resolve()) if Path(source).exists() else source


BACKWARD = 3.0
"""Training on a pair costs about as much as asking this many."""
_PAIRS = 32


def seconds_per_pair(lm: FrozenLM, spec: RunSpec, relation: Relation) -> float | None:
    """Measure the seconds that asking one (fact, prompt) pair of a run takes, by training on a few with sentences as
    long as the run's; None if no fact can be trained on."""
    names = ("lead_in", "prefix", "prefix_words", "shots", "shot_separator")
    begin = next(iter(lm.beginnings)) if spec.mixture.begin == "auto" else spec.mixture.begin
    like = MixtureSpec(begin=begin, **{name: getattr(spec.mixture, name) for name in names})
    mixture = Mixture(lm, [prompt.template for prompt in spec.templates], like, relation=relation)
    facts, _ = mixture.encode(relation.train[:_PAIRS])
    if not len(facts):
        return None
    with limited_threads(spec.threads):
        return Objective(mixture.answering(kind=facts.kind), facts, "gradient").seconds_of_pair(_PAIRS) / BACKWARD


def work_of(spec: RunSpec, relation: Relation) -> float:
    """Return the work of a run, in units of asking one pair."""
    prompts = len(spec.templates) * spec.mixture.copies
    prior = min(MOST_XS_OF_PRIOR, len({fact.x for fact in relation.train}))
    dev = 0 if spec.best_only and spec.training is None else len(relation.dev)
    work = float(prompts * (dev + len(relation.test) + prior))
    if spec.training is not None and relation.train:
        train = len(relation.train)
        dev = scored_dev_facts(spec.training, fact_count=train, dev_facts=len(relation.dev), prompts=prompts)
        schedule = schedule_of(spec.training, fact_count=train, dev_facts=dev, prompts=prompts, seed=spec.seed)
        scores = 1 + sum(schedule.scores_dev(stretch) for stretch in range(1, len(schedule.ends) + 1))
        asked_once = not spec.training.tune_vectors and not (spec.mixture.deep and spec.training.tune_layers)
        trained = prompts * train if asked_once else BACKWARD * schedule.pairs
        nearest_words = 0 if spec.best_only else prompts * len(relation.test)
        work += trained + scores * prompts * dev + nearest_words
    signals = [signal for signal in WEIGHTINGS[spec.mixture.weighting].reads if signal != "kind"]
    return work * (1 + len(signals))  # the LM reads once more for each signal, but every x alone only once


def _seconds(lm: FrozenLM, tasks: list[RunTask]) -> dict[str, float]:
    """Estimate how many seconds each run of an LM will take, by id; empty if they are not run on a CPU like ours."""
    measured = (seconds_per_pair(lm, task.spec, task.relation) for task in tasks if task.spec.device == "cpu")
    of_pair = next((seconds for seconds in measured if seconds is not None), None)
    if of_pair is None:
        return {}
    budgets = {task.spec.id: task.spec.training.minutes for task in tasks if task.spec.training is not None}
    return {
        task.spec.id: 60 * minutes
        if (minutes := budgets.get(task.spec.id))
        else of_pair * work_of(task.spec, task.relation)
        for task in tasks
    }
