"""From names to scores, as in `askwell evaluate`: saved mixtures or untuned prompts, on one relation or many."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from askwell.answers.candidates import Candidates
from askwell.answers.kinds import common_kind
from askwell.data.facts import Relation, SplitName
from askwell.data.names import load_prompts, load_relation, relation_label, relations_of
from askwell.data.readers import USUAL, Columns
from askwell.data.templates import Template
from askwell.errors import BadOption, NoPrompts, NothingLeft
from askwell.evaluation.comparison import Comparison, compare
from askwell.evaluation.knowledge import Controls, Knowledge, controls_together, knowledge
from askwell.evaluation.scoring import Evaluation, together
from askwell.evaluation.statements import (
    PublishedAccuracy,
    StatementEvaluation,
    accuracy_of_prompts,
    evaluate_mixture_statements,
    evaluate_statements,
    published_accuracy,
)
from askwell.evaluation.trust import FullEvaluation, Trust, evaluate
from askwell.files import to_json
from askwell.lms.frozen import FrozenLM
from askwell.lms.identity import LMIdentity
from askwell.lms.load import load_lm
from askwell.mixture.description import Description
from askwell.mixture.mixture import Mixture
from askwell.mixture.save import read_description
from askwell.prompts.prompt import with_label
from askwell.runs.several_runs import SeveralRuns, several_runs
from askwell.runs.sources import Note, note_left_out_prompts, own_relation, saved_mixture, warn_of_other_facts
from askwell.specs.mixture_spec import MixtureSpec

EvaluationJob = tuple[Mixture, Relation]
"""A mixture, and the relation to ask it about."""


@dataclass(frozen=True)
class EvaluationSources:
    """The names of the LM and facts that mixtures are evaluated on, and how these are loaded and read."""

    facts: Sequence[str] = ()
    """Relations, or sets of them; if empty, those that saved mixtures were learned from."""
    lm: str | None = None
    """None for the one that a saved mixture was learned on."""
    loading: Mapping[str, Any] = field(default_factory=dict)
    """Options of `load_lm`."""
    data: Path | None = None
    split_by: str | None = None
    columns: Columns = USUAL


def saved_jobs(folders: Sequence[str], on: EvaluationSources, note: Note) -> Iterator[EvaluationJob]:
    """Yield saved mixtures, each with its own relation; an LM that several were learned on is loaded once."""
    known = {folder: read_description(folder) for folder in folders}
    each = _one_for_each(on.facts, [known[folder] for folder in folders]) if on.facts else [None] * len(folders)
    relations = [
        own_relation(folder, source, on.data, on.split_by, on.columns)
        for folder, source in zip(folders, each, strict=True)
    ]
    loaded: dict[LMIdentity, FrozenLM] = {}
    still_needed = Counter(known[folder].base_lm for folder in folders)
    for folder, relation in zip(folders, relations, strict=True):
        base = known[folder].base_lm
        mixture = saved_mixture(folder, loaded.pop(base, None) or on.lm, **on.loading)
        still_needed[base] -= 1
        if still_needed[base]:
            loaded[base] = mixture.lm
        warn_of_other_facts(folder, known[folder], relation, "it may have been trained on these facts", note)
        yield mixture, relation


def _one_for_each(names: Sequence[str], descriptions: Sequence[Description]) -> list[str]:
    """Return the facts for each mixture: those given for it, or the same for all mixtures of one relation."""
    if len(names) == len(descriptions):
        return list(names)
    if len(names) > 1:
        raise BadOption(
            f"`facts` names {len(names)} relations for {len(descriptions)} mixtures; give one for all, or one for each",
            facts="--facts",
        )
    learned = sorted({one.relation.name for one in descriptions if one.relation is not None})
    if len(learned) > 1:
        raise BadOption(
            f"`facts` {names[0]}: the mixtures were learned from several relations ({', '.join(learned)}); choose some "
            "with `where`, or leave `facts` out",
            facts="--facts",
            where="--where",
        )
    return [*names] * len(descriptions)


def untuned_jobs(prompts: list[str], spec: MixtureSpec, on: EvaluationSources, note: Note) -> Iterator[EvaluationJob]:
    """Yield untuned prompts of one relation, or of each relation in a folder."""
    loaded, relations = _untuned(prompts, on, spec.seed, note)
    data = on.data
    spec = spec.model_copy(update={"answers": common_kind(spec.answers, [loaded], [one for one, _ in relations])})
    usable = 0
    for relation, templates in relations:
        try:
            of_relation = with_label(spec, relation_label(relation.name, data))
            mixture = Mixture(loaded, templates, of_relation, relation=relation)
        except NothingLeft as nothing:
            if len(relations) == 1:
                raise
            note(f"{relation.name} is left out: {nothing}")
            continue
        note_left_out_prompts(mixture, note)
        usable += 1
        yield mixture, relation
    if not usable:
        raise NothingLeft("relations", {"no prompt can be used by the LM": len(relations)})


def _untuned(
    prompts: list[str], on: EvaluationSources, seed: int, note: Note
) -> tuple[FrozenLM, list[tuple[Relation, list[Template]]]]:
    """Return the LM, and the relations that have prompts, with these."""
    if on.lm is None or not on.facts:
        raise BadOption("untuned prompts need `lm` and `facts`", lm="--lm", facts="--facts")
    data, columns = on.data, on.columns
    names = [name for source in on.facts for name in relations_of(source, data)]
    relations: list[tuple[Relation, list[Template]]] = []
    for name in names:
        relation = load_relation(name, data=data, split=on.split_by, seed=seed, x=columns.x, y=columns.y)
        try:
            relations.append((relation, load_prompts(prompts, relation=relation, data=data)))
        except NoPrompts as missing:
            if len(names) == 1:
                raise
            note(f"{name} is left out: {missing}")
    if not relations:
        raise BadOption(f"no relation of {', '.join(on.facts)} has a prompt file in {', '.join(prompts)}")
    return load_lm(on.lm, **on.loading), relations


@dataclass(frozen=True)
class Scored:
    """The scores of all relations together; `controls` and `trust` are None if they were not requested."""

    evaluation: Evaluation
    several_runs: list[SeveralRuns]
    """The relations that were evaluated more than once."""
    counts: dict[str, Any]
    """Lines read, repeated and leaked, by relation: see `Counts`."""
    relations_left_out: dict[str, str]
    """Relations of which no fact could be asked, and why."""
    controls: Controls | None
    controls_missing: dict[str, str]
    """Relations without controls, and why."""
    knowledge: Knowledge | None
    """The gain over the best control."""
    trust: list[Trust] | None
    as_words: Evaluation | None = None
    """The words of tuned prompts as hard prompts, on the same facts; None if they were not requested."""
    accuracy_of_prompts: tuple[float, ...] = ()
    """Of statements: the accuracy of each hard prompt alone, in per cent (see `accuracy_of_prompts`)."""
    published: PublishedAccuracy | None = None
    """Of BEAR's statements: the leaderboard's figure for the LM, if it has one."""

    @property
    def gain(self) -> Comparison | None:
        """The tuned prompts (A) and their words (B), paired by fact."""
        return None if self.as_words is None else compare(self.evaluation, self.as_words)

    def as_json(self) -> dict[str, Any]:
        """Return all figures as plain JSON."""
        document = to_json(self.evaluation.figures())
        document |= {"counts": self.counts, "relations_left_out": self.relations_left_out}
        if self.controls is not None:
            document |= {
                "controls": to_json(self.controls.figures()),
                "controls_missing": self.controls_missing,
                "knowledge": to_json(self.knowledge),
            }
        if self.as_words is not None:
            document |= {"as_words": to_json(self.as_words.figures()), "gain": to_json(self.gain)}
        if self.accuracy_of_prompts:
            document |= {"accuracy_of_prompts": self.accuracy_of_prompts, "published": to_json(self.published)}
        document |= {"several_runs": to_json(self.several_runs)} if self.several_runs else {}
        return document | ({} if self.trust is None else {"trust": to_json(self.trust)})


def score_jobs(
    jobs: Iterable[EvaluationJob],
    split: SplitName = "test",
    candidates_of: Callable[[Relation], Candidates | None] = lambda _relation: None,
    *,
    controls: bool = True,
    trust: bool = False,
    risk: float = 0.1,
    confidence: float | None = None,
    progress: Callable[[str, int, int], None] | None = None,
    note: Note = lambda _line: None,
) -> Scored:
    """Score mixtures on their relations; a relation of which no fact can be asked is left out.

    Controls need test facts; `trust` also measures how far each relation's scores can be trusted.
    """
    evaluations: list[FullEvaluation] = []
    found: list[Controls] = []
    counts: dict[str, Any] = {}
    left_out: dict[str, str] = {}
    missing: dict[str, str] = {}
    for mixture, relation in jobs:
        name, candidates = relation.name, candidates_of(relation)
        counts[name] = relation.counts.as_json()
        for line in relation.counts.lines():
            note(f"{name}: {line}")
        lacks = [other for other in ("train", "dev") if not relation.split(other)]
        if controls and lacks:
            missing[name] = f"it has no {' and no '.join(lacks)} facts to make and choose them with"
        asking = None if progress is None else partial(progress, f"facts of {name}")
        try:
            evaluation = evaluate(
                mixture,
                relation,
                split,
                candidates=candidates,
                controls=controls and not lacks,
                trust=trust,
                risk=risk,
                confidence=confidence,
                seed=mixture.spec.seed,
                progress=asking,
            )
        except NothingLeft as nothing:
            left_out[name] = str(nothing)
            note(f"{name} is left out: {nothing}")
            continue
        evaluations.append(evaluation)
        if evaluation.controls is not None and evaluation.controls.missing:
            missing[name] = "; ".join(dict.fromkeys(evaluation.controls.missing.values()))
        elif evaluation.controls is not None:
            found.append(evaluation.controls)
    if not evaluations:
        raise BadOption("; ".join(left_out.values()))
    scored, all_controls = together(evaluations), controls_together(found)
    return Scored(
        scored,
        several_runs(evaluations),
        counts,
        left_out,
        all_controls if controls else None,
        missing,
        knowledge(scored.outcomes, all_controls.outcomes),
        [evaluation.trust for evaluation in evaluations if evaluation.trust is not None] if trust else None,
    )


_BEAR = "bear/"
"""What the names of BEAR's relations begin with where `askwell data import` wrote them."""


def score_statements(
    prompts: list[str],
    on: EvaluationSources,
    split: SplitName,
    candidates_of: Callable[[Relation], Candidates | None],
    *,
    folders: Sequence[str] = (),
    progress: Callable[[str, int, int], None] | None = None,
    note: Note = lambda _line: None,
) -> Scored:
    """Score saved mixtures in some folders, or untuned prompts, by whole statements (see `evaluation/statements.py`),
    without controls. Beside mixtures, the words of their prompts are scored as hard prompts."""
    counts: dict[str, Any] = {}
    evaluations: list[Evaluation] = []
    as_words: list[StatementEvaluation] = []
    known: dict[tuple[LMIdentity | str, ...], StatementEvaluation] = {}
    left_out: dict[str, str] = {}
    for mixture, lm, relation, templates in _statement_jobs(prompts, on, folders, note):
        counts[relation.name] = relation.counts.as_json()
        asking = None if progress is None else partial(progress, f"facts of {relation.name}")
        options: Any = {"candidates": candidates_of(relation), "progress": asking}
        same = (lm.identity, relation.name, relation.digest, *(template.text for template in templates))
        try:
            if same not in known:  # seeds differ in what is tuned alone
                known[same] = evaluate_statements(lm, templates, relation, split, **options)
            if mixture is not None:
                evaluations.append(evaluate_mixture_statements(mixture, relation, split, **options))
        except NothingLeft as nothing:
            left_out[relation.name] = str(nothing)
            note(f"{relation.name} is left out: {nothing}")
            continue
        as_words.append(known[same])
    if not as_words:
        raise BadOption("; ".join(left_out.values()))
    is_bear = all(name.startswith(_BEAR) for name in counts)
    return Scored(
        together(evaluations or as_words), several_runs(evaluations), counts, left_out, None, {}, None, None,
        as_words=together(as_words) if evaluations else None,
        accuracy_of_prompts=accuracy_of_prompts(as_words),
        published=published_accuracy(lm.identity.name) if is_bear else None,
    )  # fmt: skip


def _statement_jobs(
    prompts: list[str], on: EvaluationSources, folders: Sequence[str], note: Note
) -> Iterator[tuple[Mixture | None, FrozenLM, Relation, list[Template]]]:
    """Yield saved mixtures with the words of their prompts, or untuned prompts, with their LM and relation."""
    if not folders:
        lm, relations = _untuned(prompts, on, 0, note)
        yield from ((None, lm, relation, templates) for relation, templates in relations)
    for mixture, relation in saved_jobs(folders, on, note) if folders else ():
        yield mixture, mixture.lm, relation, [one.template for one in mixture.prompts[:: mixture.spec.copies]]
