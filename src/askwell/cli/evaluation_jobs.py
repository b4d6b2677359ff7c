"""What `askwell evaluate` is to evaluate: pairs of a mixture and a relation, made one after the other."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from askwell.cli.sources import saved_mixture, untuned_mixture
from askwell.cli.terminal import note
from askwell.data_folder import data_folder, find
from askwell.errors import BadFile, BadOption, NothingLeft
from askwell.facts import Relation, SplitRule
from askwell.lms.load import load_lm
from askwell.mixture.mixture import Mixture
from askwell.mixture.save import read_description
from askwell.names import read_relation
from askwell.specs import MixtureSpec
from askwell.testbed.world import PREFIX


@dataclass(frozen=True)
class Job:
    """A mixture, and the relation to ask it about."""

    mixture: Mixture
    relation: Relation


def saved_jobs(
    folders: Sequence[str],
    facts: list[str] | None,
    lm: str | None,
    data: Path | None,
    split_by: SplitRule | None,
    loading: dict[str, Any],
) -> Iterator[Job]:
    """Saved mixtures, each with its own relation; an LM that several were learned on is loaded once."""
    if facts is not None and len(facts) != len(folders):
        raise BadOption(f"--facts is given {len(facts)} times for {len(folders)} mixtures; give one for each, or none")
    descriptions = [read_description(folder) for folder in folders]
    sources = facts or [_recorded_relation(folder, known) for folder, known in zip(folders, descriptions, strict=True)]
    relations = [
        read_relation(
            source,
            data=data,
            split=split_by or description["learned_from"].get("split_by"),
            seed=description["mixture_spec"]["seed"],
        )
        for source, description in zip(sources, descriptions, strict=True)
    ]
    loaded = None
    for folder, description, relation in zip(folders, descriptions, relations, strict=True):
        if loaded is None or description["base_lm"] != loaded.identity.model_dump():
            mixture = saved_mixture(folder, lm, **loading)
        else:
            mixture = saved_mixture(folder, loaded, **loading)
        loaded = mixture.lm
        trained_on = description["learned_from"].get("relation", {})
        if trained_on.get("sha256") not in (None, relation.digest):
            note(
                f"WARNING: {relation.name} is not the relation, or not the split, that {folder} was learned from; "
                "it may have been trained on these very facts"
            )
        yield Job(mixture, relation)


def untuned_jobs(
    prompts: list[str],
    facts: list[str] | None,
    lm: str | None,
    spec: MixtureSpec,
    data: Path | None,
    split_by: SplitRule | None,
    loading: dict[str, Any],
) -> Iterator[Job]:
    """Untuned prompts of one relation, or of each relation of a folder of them."""
    if lm is None or not facts:
        raise BadOption("untuned prompts need --lm and --facts")
    pairs = [pair for source in facts for pair in _relations_of(source, prompts, data)]
    relations = [(read_relation(name, data=data, split=split_by, seed=spec.seed), sources) for name, sources in pairs]
    loaded = load_lm(lm, **loading)
    usable = 0
    for relation, sources in relations:
        try:
            mixture = untuned_mixture(loaded, sources, spec, relation, data)
        except NothingLeft as nothing:
            if len(relations) == 1:
                raise
            note(f"{relation.name} is left out: {nothing}")
            continue
        usable += 1
        yield Job(mixture, relation)
    if not usable:
        raise NothingLeft("relations", {"no prompt can be used by the LM": len(relations)})


def _relations_of(source: str, prompts: list[str], data: Path | None) -> list[tuple[str, list[str]]]:
    """The relation that `source` names with its prompts, or each relation of a folder with the prompts of its name."""
    data = data_folder(data)
    if source.startswith(PREFIX):
        return [(source, prompts)]
    folder = find(source, "facts", data)
    inner = sorted(path.parent.name for path in folder.glob("*/test.jsonl")) if folder.is_dir() else []
    if not inner or (folder / "test.jsonl").exists():
        return [(source, prompts)]
    pairs = []
    for name in inner:
        sources = [str(Path(prompt) / name) for prompt in prompts]
        try:
            paths = [str(_prompt_file(prompt, data)) for prompt in sources]
        except BadFile as missing:
            note(f"{source}/{name} is left out: {missing}")
            continue
        pairs.append((f"{source}/{name}", paths))
    if not pairs:
        raise BadOption(f"no relation of {source} has a prompt file in {', '.join(prompts)}")
    return pairs


def _prompt_file(name: str, data: Path | None) -> Path:
    with_ending = Path(f"{name}.jsonl")
    return with_ending if with_ending.is_file() else find(name, "prompts", data)


def _recorded_relation(folder: str, description: dict[str, Any]) -> str:
    name = description["learned_from"].get("relation", {}).get("name")
    if name is None:
        raise BadOption(f"{folder} is untuned: say with --facts which relation to ask about")
    if name.startswith(PREFIX):
        return name
    try:
        find(name, "facts", data_folder(None))
    except BadFile:
        raise BadOption(f"{folder} was learned from {name}; say with --facts where its facts are") from None
    return name
