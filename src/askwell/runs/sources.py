"""From names to mixtures: saved ones at a path or on the hub, and untuned prompts on an LM, with their relations.

`note` is called with what a user should know: prompts that the LM cannot use, facts that were trained on.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from askwell.data.data_folder import data_folder, find
from askwell.data.facts import SPLIT_FILES, Relation
from askwell.data.names import read_prompts, read_relation, relation_label, relations_of
from askwell.data.readers import USUAL, Columns
from askwell.data.templates import Template
from askwell.data.testbed import PREFIX
from askwell.errors import BadFile, BadOption, NoPrompts, NothingLeft
from askwell.evaluation.scoring import evaluate
from askwell.evaluation.selective import DevAnswers, dev_answers, dev_answers_from
from askwell.lms.frozen import FrozenLM
from askwell.lms.identity import LMIdentity
from askwell.lms.load import Precision, load_lm
from askwell.mixture.candidates import Candidates
from askwell.mixture.description import Description
from askwell.mixture.encode import answer_kind, encode_relation, needs_any_length
from askwell.mixture.mixture import Mixture
from askwell.mixture.save import (
    CONFIG,
    IN_A_RUN,
    lm_source,
    load_mixture,
    read_description,
    read_dev_answers,
    tokenizer_source,
)
from askwell.prompts.openings import with_label
from askwell.specs.mixture_spec import MixtureSpec

Note = Callable[[str], None]


def find_mixture(path: str, where: str | None, note: Note) -> str:
    """The saved mixture that a path names: itself, that of a run, or of the best run on dev among several.

    A path that is not a folder is taken as a name on the hub.
    """
    if (saved := _saved_without_a_run(path, where)) is not None:
        return saved
    from askwell.runs.query import choose_run  # here, since a saved mixture is asked without any record of runs

    run = choose_run(path, where)
    if run.folder != Path(path):
        note(f"the run {run.record.spec.label}, in {run.folder}")
    return str(run.mixture)


def find_mixtures(paths: Sequence[str], where: str | None = None) -> list[str]:
    """All saved mixtures at some paths; of a folder of runs or a store, every run that saved one."""
    from askwell.runs.query import select_runs

    folders = []
    for path in paths:
        if (saved := _saved_without_a_run(path, where)) is not None:
            found = [saved]
        else:
            found = [str(run.mixture) for run in select_runs(path, where) if run.mixture is not None]
        if not found:
            raise BadFile(path, "no run here has a saved mixture: nothing was tuned")
        folders += found
    return folders


def _saved_without_a_run(path: str, where: str | None) -> str | None:
    """A name on the hub, the folder of a saved mixture, or the best state so far of an interrupted run."""
    folder = Path(path)
    if not folder.is_dir() or (where is None and (folder / CONFIG).is_file()):
        return path
    from askwell.runs.folder import is_run

    if where is None and not is_run(folder) and (folder / IN_A_RUN / CONFIG).is_file():
        return str(folder / IN_A_RUN)
    return None


def saved_mixture(
    folder: str,
    lm: str | FrozenLM | None,
    *,
    revision: str | None,
    tokenizer: str | None = None,
    device: str | None,
    dtype: Precision,
) -> Mixture:
    """A saved mixture on its LM; `lm` says where the LM is, if it is no longer where it was."""
    if isinstance(lm, FrozenLM):
        return load_mixture(folder, lm)
    description = read_description(folder)
    source, stored_revision = lm or lm_source(folder, description), description.base_lm.revision
    if source is None:
        raise BadOption(f"{folder} was learned on {description.base_lm.name}; name that LM with --lm")
    loaded = load_lm(
        source,
        revision=revision or (stored_revision if lm is None else None),
        tokenizer=tokenizer or tokenizer_source(folder, description),
        device=device,
        dtype=dtype,
    )
    return load_mixture(folder, loaded)


def untuned_mixture(
    lm: FrozenLM, templates: Sequence[Template], spec: MixtureSpec, note: Note, relation: Relation | None = None
) -> Mixture:
    """Untuned prompts, with a note on those that the LM cannot use; their examples are the relation's."""
    mixture = Mixture(lm, templates, spec, relation=relation)
    for line in left_out_prompt_lines(mixture):
        note(line)
    return mixture


def settle_answers(mixture: Mixture, relation: Relation | None, candidates: Candidates | None) -> None:
    """Decides what an untuned mixture counts as an answer, from the facts of a relation if there is one; for a masked
    LM, candidates decide how long answers are."""
    if mixture.answer_kind is not None:
        return
    if relation is not None:
        mixture.answer_kind = encode_relation(mixture, relation, candidates=candidates).kind
    elif candidates is not None and mixture.lm.family.fills_masks:
        mixture.answer_kind = answer_kind(mixture, candidates.words)


def left_out_prompt_lines(mixture: Mixture) -> list[str]:
    """Lines that name the prompts that the LM cannot use; empty if it can use all."""
    if not mixture.left_out_prompts:
        return []
    total = len(mixture.left_out_prompts) + len(mixture.prompts) // mixture.spec.copies
    lines = [f"{len(mixture.left_out_prompts)} of {total} prompt{'s' if total != 1 else ''} left out:"]
    return lines + [f"  {prompt.template.text!r}: {prompt.reason}" for prompt in mixture.left_out_prompts]


def own_relation(
    description: Description,
    facts: str,
    data: Path | None,
    split_by: str | None = None,
    columns: Columns = USUAL,
) -> Relation:
    """The relation that `facts` names, split as it was when the mixture was learned, unless `split_by` says how."""
    split = split_by or (None if description.relation is None else description.relation.split_by)
    seed = description.mixture_spec.seed
    return read_relation(facts, data=data, split=split, seed=seed, x=columns.x, y=columns.y)


def warn_of_other_facts(folder: str, description: Description, relation: Relation, danger: str, note: Note) -> None:
    """Notes that a relation is not the one, or not the split, that a mixture was learned from."""
    learned = description.relation
    if learned is not None and learned.sha256 not in (None, relation.digest):
        note(
            f"WARNING: {relation.name} is not the relation, or not the split, that {folder} was learned from; {danger}"
        )


def relation_to_ask(mixture: Mixture, folder: str | None, facts: str, data: Path | None) -> Relation:
    """The named relation, split as for the mixture in the folder, if there is one."""
    if folder is None:
        return read_relation(facts, data=data, seed=mixture.spec.seed)
    return own_relation(read_description(folder), facts, data)


def dev_answers_of(
    mixture: Mixture,
    folder: str | None,
    relation: Relation | None,
    candidates: Candidates | None,
    *,
    progress: Callable[[int, int], None] | None,
    note: Note,
) -> DevAnswers:
    """The answers to a relation's dev facts or, without a relation, those that were saved with the mixture."""
    if relation is None:
        return dev_answers_from(read_dev_answers(folder or ""))
    if folder is not None:
        danger = "if it was trained on these dev facts, the threshold is too low"
        warn_of_other_facts(folder, read_description(folder), relation, danger, note)
    evaluation = evaluate(mixture, relation, split="dev", candidates=candidates, progress=progress)
    return dev_answers(evaluation, candidates or mixture.candidates)


@dataclass(frozen=True)
class EvaluationJob:
    """A mixture, and the relation to ask it about."""

    mixture: Mixture
    relation: Relation


@dataclass(frozen=True)
class Named:
    """The names of what is to be evaluated on, and how it is loaded and read."""

    facts: Sequence[str] = ()
    """Relations, or sets of them; none for those that saved mixtures were learned from."""
    lm: str | None = None
    """None for the one that a saved mixture was learned on."""
    loading: Mapping[str, Any] = field(default_factory=dict)
    """Options of `load_lm`."""
    data: Path | None = None
    split_by: str | None = None
    columns: Columns = USUAL


def saved_jobs(folders: Sequence[str], named: Named, note: Note) -> Iterator[EvaluationJob]:
    """Saved mixtures, each with its own relation; an LM that several were learned on is loaded once."""
    known = {folder: read_description(folder) for folder in folders}
    if named.facts:
        sources = _one_for_each(named.facts, [known[folder] for folder in folders])
    else:
        sources = [_recorded_relation(folder, known[folder]) for folder in folders]
    relations = [
        own_relation(known[folder], source, named.data, named.split_by, named.columns)
        for folder, source in zip(folders, sources, strict=True)
    ]
    loaded: dict[LMIdentity, FrozenLM] = {}
    still_needed = Counter(known[folder].base_lm for folder in folders)
    for folder, relation in zip(folders, relations, strict=True):
        base = known[folder].base_lm
        mixture = saved_mixture(folder, loaded.pop(base, None) or named.lm, **named.loading)
        still_needed[base] -= 1
        if still_needed[base]:
            loaded[base] = mixture.lm
        warn_of_other_facts(folder, known[folder], relation, "it may have been trained on these facts", note)
        yield EvaluationJob(mixture, relation)


def _one_for_each(facts: Sequence[str], descriptions: Sequence[Description]) -> list[str]:
    """The facts for each mixture: those given for it, or the same for all mixtures of one relation."""
    if len(facts) == len(descriptions):
        return list(facts)
    if len(facts) > 1:
        raise BadOption(
            f"--facts names {len(facts)} relations for {len(descriptions)} mixtures; give one for all, or one for each"
        )
    learned = sorted({one.relation.name for one in descriptions if one.relation is not None})
    if len(learned) > 1:
        raise BadOption(
            f"--facts {facts[0]}: the mixtures were learned from several relations ({', '.join(learned)}); choose some "
            "with --where, or leave --facts out"
        )
    return [*facts] * len(descriptions)


def _recorded_relation(folder: str, description: Description) -> str:
    if description.relation is None:
        raise BadOption(f"{folder} is untuned: name the relation to ask about with --facts")
    name = description.relation.name
    if not name.startswith(PREFIX):
        try:
            found = find(name, "facts", data_folder(None))
        except BadFile:
            found = None
        # A folder of that name can be something else: the run itself, say.
        if found is None or (found.is_dir() and not any((found / file).is_file() for file in SPLIT_FILES)):
            raise BadOption(
                f"{folder} was learned from {name}, and a run does not keep its facts: name them with --facts (and "
                "their columns with --x and --y)"
            )
    return name


def untuned_jobs(prompts: list[str], spec: MixtureSpec, named: Named, note: Note) -> Iterator[EvaluationJob]:
    """Untuned prompts of one relation, or of each relation in a folder."""
    if named.lm is None or not named.facts:
        raise BadOption("untuned prompts need --lm and --facts")
    data, columns = named.data, named.columns
    names = [name for source in named.facts for name in relations_of(source, data)]
    relations: list[tuple[Relation, list[Template]]] = []
    for name in names:
        relation = read_relation(name, data=data, split=named.split_by, seed=spec.seed, x=columns.x, y=columns.y)
        try:
            relations.append((relation, read_prompts(prompts, relation=relation, data=data)))
        except NoPrompts as missing:
            if len(names) == 1:
                raise
            note(f"{name} is left out: {missing}")
    if not relations:
        raise BadOption(f"no relation of {', '.join(named.facts)} has a prompt file in {', '.join(prompts)}")
    loaded = load_lm(named.lm, **named.loading)
    if spec.answers == "auto":  # one kind for all, so that means do not mix the two
        needed = any(needs_any_length(loaded, relation) for relation, _ in relations)
        spec = spec.model_copy(update={"answers": "any-length" if needed else "one-token"})
    usable = 0
    for relation, templates in relations:
        try:
            of_relation = with_label(spec, relation_label(relation.name, data))
            mixture = untuned_mixture(loaded, templates, of_relation, note, relation)
        except NothingLeft as nothing:
            if len(relations) == 1:
                raise
            note(f"{relation.name} is left out: {nothing}")
            continue
        usable += 1
        yield EvaluationJob(mixture, relation)
    if not usable:
        raise NothingLeft("relations", {"no prompt can be used by the LM": len(relations)})
