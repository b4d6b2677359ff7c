"""From names to mixtures: saved ones at a path or on the hub, and untuned prompts on an LM, with their relations.

`note` is called with what the user should know: prompts that the LM cannot use, facts that were trained on.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from askwell.answers.candidates import Candidates
from askwell.answers.kinds import kind_of_facts
from askwell.data.facts import Fact, Relation
from askwell.data.names import load_relation
from askwell.data.readers import USUAL, Columns
from askwell.errors import BadFile, BadOption
from askwell.evaluation.examine import evaluate_split
from askwell.evaluation.outcomes import read_outcomes
from askwell.evaluation.selective import dev_answers, need_dev_answers
from askwell.lms.batches import TokenisedTexts
from askwell.lms.frozen import FrozenLM
from askwell.lms.load import load_lm
from askwell.lms.machine import Precision
from askwell.mixture.description import Description
from askwell.mixture.learned_from import CONFIG, MIXTURE, DevAnswers, RelationRecord
from askwell.mixture.mixture import Mixture
from askwell.mixture.save import facts_source, lm_source, read_description, tokenizer_source

Note = Callable[[str], None]
T = TypeVar("T")


def find_mixture(path: str, where: str | None, note: Note) -> str:
    """Find the saved mixture at a path: the path itself, that of a run, or of the best run on dev among several.

    A path that is not a folder is taken as a name on the hub.
    """
    if (saved := _saved_without_a_run(path, where)) is not None:
        return saved
    from askwell.runs.query import choose_run  # here, since a saved mixture is asked without any record of runs

    run = choose_run(path, where)
    if run.folder != Path(path):
        note(f"the run {run.record.spec.label}, in {run.folder}")
    return str(run.mixture)


@dataclass(frozen=True)
class RunXs:
    """The x's of a run's facts."""

    train: Collection[str]
    """Those that it has learned from."""
    all: Collection[str]
    """Those of dev and test, too."""


def xs_of_run(mixture: str) -> RunXs | None:
    """Return the x's of the run that a mixture was saved in; None if it has no run, or its run does not say."""
    from askwell.evaluation.outcomes import read_golds
    from askwell.runs.folder import read_run
    from askwell.runs.record import RECORD, TRAIN_GOLDS

    folder = Path(mixture).parent
    if Path(mixture).name != MIXTURE or not all((folder / name).is_file() for name in (RECORD, TRAIN_GOLDS)):
        return None
    run, train = read_run(folder), read_golds(folder / TRAIN_GOLDS)
    scored = [figures for figures in (run.record.test, run.record.dev) if figures is not None]
    left_out = (left.x for figures in scored for left in figures.left_out_facts)
    return RunXs(
        {*train} if run.record.spec.learns else (), {*train, *left_out, *(one.x for one in (*run.test, *run.dev))}
    )


def find_mixtures(paths: Sequence[str], where: str | None = None) -> list[str]:
    """Find all saved mixtures at some paths; in a folder of runs or a store, those of every run that saved one."""
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
    """Resolve a name on the hub, the folder of a saved mixture, or the best state of an interrupted run; else None."""
    folder = Path(path)
    if not folder.is_dir() or (where is None and (folder / CONFIG).is_file()):
        return path
    from askwell.runs.folder import is_run

    if where is None and not is_run(folder) and (folder / MIXTURE / CONFIG).is_file():
        return str(folder / MIXTURE)
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
    """Load a saved mixture on its LM; `lm` says where the LM is, if it has moved."""
    if isinstance(lm, FrozenLM):
        return Mixture.from_pretrained(folder, lm)
    description = read_description(folder)
    source, stored_revision = lm or lm_source(folder, description), description.base_lm.revision
    if source is None:
        raise BadOption(f"{folder} was learned on {description.base_lm.name}; name that LM with `lm`", lm="--lm")
    loaded = load_lm(
        source,
        revision=revision or (stored_revision if lm is None else None),
        tokenizer=tokenizer or tokenizer_source(folder, description),
        device=device,
        dtype=dtype,
    )
    return Mixture.from_pretrained(folder, loaded)


def configure_answers(mixture: Mixture, relation: Relation | None, candidates: Candidates | None) -> None:
    """Decide what an untuned mixture counts as an answer, from the facts of a relation if there is one; for a masked
    LM, candidates determine how long answers are."""
    if mixture.answer_kind is not None:
        return
    if relation is not None:
        mixture.answer_kind = mixture.encode_relation(relation, candidates=candidates).kind
    elif candidates is not None and mixture.lm.family.fills_masks:
        mixture.answer_kind = kind_of_facts(mixture, TokenisedTexts(candidates.words, mixture.lm.wording))


def note_left_out_prompts(mixture: Mixture, note: Note) -> None:
    """Name the prompts that the LM cannot use, if there are any."""
    if mixture.left_out_prompts:
        total = len(mixture.left_out_prompts) + len(mixture.prompts) // mixture.spec.copies
        note(f"{len(mixture.left_out_prompts)} of {total} prompt{'s' if total != 1 else ''} left out:")
        for prompt in mixture.left_out_prompts:
            note(f"  {prompt.template.text!r}: {prompt.reason}")


def own_relation(
    folder: str,
    facts: str | None,
    data: Path | None,
    split_by: str | None = None,
    columns: Columns = USUAL,
) -> Relation:
    """Load the relation named by `facts`, or the one that the mixture in the folder was learned from, split as it was
    then unless `split_by` is given."""
    description = read_description(folder)
    learned = description.relation or RelationRecord(name="")
    recorded = facts_source(folder, description)
    if facts is None and recorded is None:
        raise BadOption(f"{folder} is untuned: name the relation to ask about with `facts`", facts="--facts")
    source = facts or recorded or ""
    if recorded in (source, str(Path(source).resolve())):
        columns = Columns(columns.x or learned.x, columns.y or learned.y)
    seed = description.mixture_spec.seed if learned.split_seed is None else learned.split_seed
    try:
        relation = load_relation(
            source, data=data, split=split_by or learned.split_by, seed=seed, x=columns.x, y=columns.y
        )
    except BadFile as problem:
        if facts is not None:
            raise
        raise BadOption(
            f"the facts that {folder} was learned from cannot be read again ({problem}): name them with `facts` (and "
            "their columns with `x` and `y`)",
            facts="--facts",
            x="--x",
            y="--y",
        ) from None
    have_changed = learned.sha256 not in (None, relation.digest)
    if facts is None and split_by is None and have_changed and recorded != learned.name:
        raise BadOption(
            f"the facts in {recorded} have changed since {folder} was learned from them, and its split is not the same "
            "any more; name facts to ask about with `facts`",
            facts="--facts",
        )
    return relation


def dev_facts_of(folder: str, most: int) -> list[Fact]:
    """Return some dev facts of the run that a mixture was saved in, spread evenly; none if it was not saved in a run,
    or is on the hub."""
    from askwell.runs.folder import DEV_OUTCOMES  # here, since a saved mixture is asked without any record of runs

    path = Path(folder).parent / DEV_OUTCOMES
    return [Fact(one.x, one.y) for one in spread(read_outcomes(path), most)] if path.is_file() else []


def spread(items: Sequence[T], most: int) -> list[T]:
    """Return at most so many of some items, spread evenly."""
    return [items[number * len(items) // most] for number in range(most)] if len(items) > most else list(items)


def warn_of_other_facts(folder: str, description: Description, relation: Relation, danger: str, note: Note) -> None:
    """Note that a relation is not the one, or not the split, that a mixture was learned from."""
    learned = description.relation
    if learned is not None and learned.sha256 not in (None, relation.digest):
        note(
            f"WARNING: {relation.name} is not the relation, or not the split, that {folder} was learned from; {danger}"
        )


def relation_to_ask(mixture: Mixture, folder: str | None, facts: str, data: Path | None) -> Relation:
    """Load the named relation, split as for the mixture in the folder, if there is one."""
    if folder is None:
        return load_relation(facts, data=data, seed=mixture.spec.seed)
    return own_relation(folder, facts, data)


def dev_answers_of(
    mixture: Mixture,
    folder: str | None,
    relation: Relation | None,
    candidates: Candidates | None,
    *,
    progress: Callable[[int, int], None] | None,
    note: Note,
) -> DevAnswers:
    """Return the answers to a relation's dev facts or, without a relation, those that were saved with the mixture."""
    if relation is None:
        return need_dev_answers(read_description(folder or "").dev_answers)
    if folder is not None:
        danger = "if it was trained on these dev facts, the threshold is too low"
        warn_of_other_facts(folder, read_description(folder), relation, danger, note)
    evaluation = evaluate_split(mixture, relation, split="dev", candidates=candidates, progress=progress)
    return dev_answers(evaluation, candidates or mixture.candidates)
