"""Two LMs compared fact by fact: is what BEFORE knew gone from AFTER, or only hidden?

Hard prompts and tuned prompts are ordinary runs on each LM, kept in a store: a run that is there is used, and one that
was interrupted is continued. With a forget set, the runs know the retained facts alone, and the forget set is only
asked, so that nothing about it can reach prompts, weights or what stands before the sentences.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from json import dumps
from pathlib import Path
from typing import Any, Literal

from pydantic import TypeAdapter

from askwell.answers.kinds import common_kind
from askwell.data.facts import Relation
from askwell.data.names import cardinalities, load_prompts, load_relation, load_test_facts
from askwell.data.templates import Template
from askwell.data.testbed import PREFIXES, forgotten_facts, prefix_and_name, withheld_facts
from askwell.errors import AskwellError, BadOption, NothingLeft, UsageError, checked, first_few
from askwell.evaluation.examine import evaluate_split, examine
from askwell.evaluation.knowledge import best_control
from askwell.evaluation.metrics import LOG_LOSS
from askwell.evaluation.outcomes import FactKey, Outcome
from askwell.evaluation.verdicts import AskedLM, Verdicts, judge
from askwell.files import read_saved, to_json, write_whole
from askwell.lms.changed import changed_lm
from askwell.lms.frozen import FrozenLM
from askwell.lms.load import load_lm
from askwell.mixture.mixture import Mixture
from askwell.runs.build_spec import build_run_spec
from askwell.runs.folder import Run
from askwell.runs.run import RunProgress, run
from askwell.runs.store import Store, new_or_open_store, unfinished_run
from askwell.specs.mixture_spec import MixtureSpec
from askwell.specs.training_spec import TrainingSpec
from askwell.views.printable import counted

SAVED = "diff.json"
"""The file of a diff, in the folder of its runs."""

Prompts = str | Path | Template | Sequence[str | Path | Template] | None


@dataclass(frozen=True)
class Diff:
    """What became of the facts, and the runs that say so."""

    verdicts: Verdicts
    """Of the test facts; with a forget set, of the facts to forget."""
    retained: Verdicts | None
    """With a forget set, of the retained test facts."""
    runs: tuple[str, ...]
    """The ids of the runs, in the folder runs of the store."""
    notes: tuple[str, ...] = ()
    version: Literal[1] = 1


def save_diff(found: Diff, folder: Path) -> None:
    """Write a diff into the folder of its runs."""
    write_whole(folder / SAVED, dumps(to_json(found), ensure_ascii=False, indent=1) + "\n")


def read_diff(folder: Path) -> Diff:
    """Read the diff in a folder."""
    return read_saved(folder / SAVED, TypeAdapter(Diff).validate_json)


def diff_folders(path: Path) -> list[Path]:
    """List the folders of the diffs at a path, sorted: the folder itself, or those in it."""
    if (path / SAVED).is_file():
        return [path]
    return sorted(folder for folder in path.iterdir() if (folder / SAVED).is_file()) if path.is_dir() else []


@checked
def diff(
    before: str | Path | FrozenLM,
    after: str | Path | FrozenLM | None,
    relation: Any,
    prompts: Any = None,
    *,
    folder: str | Path,
    forget: Any = None,
    after_bits: int | None = None,
    after_pruned: float | None = None,
    mixture: MixtureSpec | None = None,
    training: TrainingSpec | None = None,
    threads: int | None = None,
    confidence: float = 0.95,
    data: Path | str | None = None,
    loading: Mapping[str, Any] | None = None,
    progress: Callable[[str, RunProgress], None] | None = None,
) -> Diff:
    """Compare two LMs fact by fact, and return what became of each fact.

    `relation` is one relation or a list of them, each as `load_relation` returns or reads it; a testbed's has prompts
    of its own. Names are looked up in `data`, the data folder. Without `after`, AFTER is BEFORE with weights rounded to
    `after_bits` or the fraction `after_pruned` of them set to 0. With `forget`, the facts of that relation are what is
    judged, and prompts are tuned on `relation` alone.
    """
    if after is None and after_bits is None and after_pruned is None:
        raise BadOption(
            "name a second LM, or say how the first is changed: `after_bits` 4 or `after_pruned` 0.3",
            after_bits="--after-bits",
            after_pruned="--after-pruned",
        )
    given = list(relation) if isinstance(relation, list | tuple) else [relation]
    relations = [one if isinstance(one, Relation) else load_relation(one, data=data) for one in given]
    twice = [name for name, times in Counter(one.name for one in relations).items() if times > 1]
    if twice:
        raise BadOption(f"{twice[0]} is named twice: name each relation once")
    if forget is not None:
        forget = forget if isinstance(forget, Relation) else load_test_facts(forget, data=data)
        relations = [_retain_alone(relations, forget)]
    templates = [_prompts_of(one, prompts, data) for one in relations]
    kinds = cardinalities([one.name for one in relations], data)
    first = before if isinstance(before, FrozenLM) else load_lm(before, **(loading or {}))
    second = first if after is None else after if isinstance(after, FrozenLM) else load_lm(after, **(loading or {}))
    second = changed_lm(second, bits=after_bits, pruned=after_pruned)
    store = new_or_open_store(Path(folder)).make()
    work = _Work(
        first,
        second,
        store,
        mixture or MixtureSpec(),
        training or TrainingSpec(),
        threads,
        progress or (lambda *_: None),
    )
    parts = [work.ask(one, of_one, forget) for one, of_one in zip(relations, templates, strict=True)]
    with suppress(OSError):  # others have runs under way in it, or nothing had to be run
        store.unfinished.rmdir()
    judged = _judged(first, second, parts, kinds, confidence)
    retained = None
    if forget is not None:
        retained = judged
        judged = _judged(first, second, [_of_forget(part) for part in parts], kinds, confidence)
    return Diff(judged, retained, tuple(work.runs), tuple(work.notes))


def _retain_alone(relations: Sequence[Relation], forget: Relation) -> Relation:
    if len(relations) != 1:
        raise BadOption("with a forget set there is one set of facts to retain; compare several relations one by one")
    (retain,) = relations
    kept = {fact for facts in retain.splits.values() for fact in facts}
    both = sorted(f"{fact.x} → {fact.y}" for facts in forget.splits.values() for fact in {*facts} & kept)
    if both:
        raise BadOption(
            f"`forget` and `retain` share {counted(len(both), 'fact')} ({first_few(both)}): prompts would be tuned on "
            "facts that they are to find; leave them out of one of the two",
            forget="--forget",
            retain="--retain",
        )
    return retain


def _prompts_of(relation: Relation, prompts: Prompts, data: Path | str | None) -> list[Template]:
    if prompts is None:
        if not relation.name.startswith(PREFIXES):
            raise BadOption(f"`prompts`: {relation.name} has none of its own; name some", prompts="--prompts")
        prompts = f"{prefix_and_name(relation.name)[0]}mined"
    return load_prompts(prompts, relation=relation, data=data)


@dataclass(frozen=True)
class _Asked:
    """The outcomes of one relation: by hand and tuned, before and after, and what they are compared with."""

    relation: Relation
    sides: tuple[Sequence[Outcome], ...]
    control: Sequence[Outcome] = ()
    """Of AFTER's tuned prompts: the control with the highest P@1 on dev."""
    prior: Sequence[Outcome] = ()
    """The one with the lowest log-loss there."""
    carried_over: Sequence[Outcome] = ()
    forget: "_Asked | None" = None


@dataclass
class _Work:
    before: FrozenLM
    after: FrozenLM
    store: Store
    mixture: MixtureSpec
    training: TrainingSpec
    threads: int | None
    tell: Callable[[str, RunProgress], None]
    runs: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def ask(self, relation: Relation, templates: Sequence[Template], forget: Relation | None) -> _Asked:
        """Run hard and tuned prompts on both LMs; then ask what no run asks: BEFORE's tuned prompts of AFTER, AFTER's
        controls, and the forget set."""
        answers = common_kind(self.mixture.answers, [self.before, self.after], [relation])
        spec = self.mixture.model_copy(update={"answers": answers})
        made = [
            (lm, self._run(lm, relation, templates, spec, training))
            for lm in (self.before, self.after)
            for training in (None, self.training)
        ]
        mixtures = [self._mixture(lm, of, templates, relation) for lm, of in made]
        try:
            carried = mixtures[1].transfer(self.after, relation)
        except AskwellError as problem:
            carried = None
            self.notes.append(f"BEFORE's tuned prompts cannot be asked of AFTER: {problem}")
        asked = self._asked(relation, [of.test for _, of in made], mixtures[3], carried)
        if forget is None:
            return asked
        facts = [fact for split in forget.splits.values() for fact in split]
        # Under the name of what is retained, whose facts that were never told they are compared with.
        only_asked = Relation.of(relation.name, relation.train, relation.dev, facts)
        sides = [evaluate_split(one, only_asked).outcomes for one in mixtures]
        aside = self._asked(only_asked, sides, mixtures[3], carried)
        return replace(asked, forget=aside)

    def _run(
        self,
        lm: FrozenLM,
        relation: Relation,
        templates: Sequence[Template],
        mixture: MixtureSpec,
        training: TrainingSpec | None,
    ) -> Run:
        """Return a run of the store, made if it is not there."""
        spec = build_run_spec(
            lm, relation, templates, mixture=mixture, training=training, prompts="diff", threads=self.threads
        )
        target, label = self.store.run_folder(spec.id), spec.label
        if not target.is_dir():
            with unfinished_run(spec.id, self.store.unfinished, alone=True) as unfinished:
                options: dict[str, Any] = {"checkpoints": unfinished.folder, "resume": True}
                options["progress"] = lambda event: self.tell(label, event)
                try:
                    run(spec, lm, relation, unfinished.result, **options)
                except NothingLeft as problem:
                    name = lm.identity.name
                    raise UsageError(f"{name} cannot be asked about {relation.name}: {problem}") from None
                unfinished.finish(target)
        self.runs += [spec.id] if spec.id not in self.runs else []
        return self.store.read(spec.id)

    def _mixture(self, lm: FrozenLM, of: Run, templates: Sequence[Template], relation: Relation) -> Mixture:
        if of.mixture is not None:
            return Mixture.from_pretrained(of.mixture, lm)
        made = Mixture(lm, templates, of.record.mixture, relation=relation)
        made.configure_answers(relation)
        return made

    def _asked(
        self, relation: Relation, sides: Sequence[Sequence[Outcome]], tuned: Mixture, carried: Mixture | None
    ) -> _Asked:
        found = examine(tuned, relation, ["test"], prompts=False).controls.controls
        chosen = {name: of for name, of in found.items() if of.get("dev") and of.get("test")}
        on_dev = {name: of["dev"] for name, of in chosen.items()}
        return _Asked(
            relation,
            tuple(sides),
            control=chosen[best_control(on_dev)]["test"] if chosen else (),
            prior=chosen[best_control(on_dev, metric=LOG_LOSS)]["test"] if chosen else (),
            carried_over=() if carried is None else evaluate_split(carried, relation).outcomes,
        )


def _of_forget(part: _Asked) -> _Asked:
    """Return the forget set's outcomes beside those of facts that were never told."""
    if part.forget is None:
        raise ValueError("no forget set was asked")
    never = _withheld(part.relation)

    def never_told(outcomes: Sequence[Outcome]) -> list[Outcome]:
        return [one for one in outcomes if one.key in never]

    own = part.forget
    sides = tuple([*mine, *never_told(other)] for mine, other in zip(own.sides, part.sides, strict=True))
    return _Asked(
        own.relation,
        sides,
        control=[*own.control, *never_told(part.control)],
        prior=[*own.prior, *never_told(part.prior)],
        carried_over=[*own.carried_over, *never_told(part.carried_over)],
        forget=own,
    )


def _judged(
    before: FrozenLM, after: FrozenLM, parts: Sequence[_Asked], kinds: Mapping[str, str], confidence: float
) -> Verdicts:
    names = before.identity.name, after.identity.name
    together = [[outcome for part in parts for outcome in part.sides[side]] for side in range(4)]
    never: set[FactKey] = set()
    forgotten: set[FactKey] = set()
    for part in parts:
        prefix = prefix_and_name(part.relation.name)[0]
        if part.relation.name.startswith(PREFIXES) and all(name.startswith(prefix) for name in names):
            never |= _withheld(part.relation)
        if names[1].startswith(PREFIXES):
            told = forgotten_facts(names[1])
            forgotten |= {(part.relation.name, fact.x, fact.y) for fact in part.relation.test if fact in told}
        if part.forget is not None and part.forget.relation is part.relation:
            forgotten |= {(part.relation.name, fact.x, fact.y) for fact in part.relation.test}
    lines = Counter((part.relation.name, fact.y) for part in parts for fact in part.relation.train)
    return judge(
        AskedLM(names[0], together[0], together[1]),
        AskedLM(names[1], together[2], together[3]),
        never_told=never,
        forgotten=forgotten,
        control=[outcome for part in parts for outcome in part.control],
        prior=[outcome for part in parts for outcome in part.prior],
        carried_over=[outcome for part in parts for outcome in part.carried_over],
        frequency=lines,
        kinds=kinds,
        confidence=confidence,
    )


def _withheld(relation: Relation) -> set[FactKey]:
    if not relation.name.startswith(PREFIXES):
        return set()
    return {(relation.name, fact.x, fact.y) for fact in withheld_facts(relation.name)}
