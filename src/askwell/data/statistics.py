"""The paper's two tables about its data: how large the relations are, and how many prompts they have."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from askwell.data.facts import SPLIT_FILES
from askwell.data.readers import SUFFIXES, parse_facts
from askwell.data.templates import read_templates

# The paper's names, and the folders of the sets.
RELATION_SETS = {
    "trex_original": "trex_original",
    "trex_extended": "trex_extend",
    "google_re": "google_re",
    "conceptnet": "conceptnet",
}
PROMPT_SETS = {
    "trex-min": "trex_mine",
    "trex-par": "trex_paraphrase",
    "google_re-sin": "google_re",
    "google_re-min": "google_re_mine",
    "google_re-par": "google_re_paraphrase",
    "conceptnet": "conceptnet",
}


@dataclass(frozen=True)
class RelationStatistics:
    """The relations of a fact set, rounded as the paper prints them."""

    relations: int
    avg_unique_x: int
    """Distinct x of a relation, over all splits."""
    avg_unique_y: int
    min_pairs: int
    """Lines of the smallest relation, over all splits; repeated facts count each time."""
    max_pairs: int
    mean_pairs: int


@dataclass(frozen=True)
class PromptStatistics:
    """The prompts of a prompt set, rounded as the paper prints them."""

    relations: int
    avg_prompts: float
    min_prompts: int
    max_prompts: int
    avg_tokens: float
    """Tokens separated by white space, both blanks included, averaged over all prompts of all relations."""


@dataclass(frozen=True)
class DataStatistics:
    """Both tables; None for a set that is not there."""

    relation_statistics: dict[str, RelationStatistics | None]
    prompt_statistics: dict[str, PromptStatistics | None]


def data_statistics(data: Path) -> DataStatistics:
    """Return the paper's tables of relations and of prompts from a data folder."""
    return DataStatistics(relation_statistics(data), prompt_statistics(data))


def relation_statistics(data: Path) -> dict[str, RelationStatistics | None]:
    """Return the paper's table of relations from a data folder; None for a set that is not there."""
    return {name: _relations(_fact_files(data / "facts" / folder)) for name, folder in RELATION_SETS.items()}


def prompt_statistics(data: Path) -> dict[str, PromptStatistics | None]:
    """Return the paper's table of prompts from a data folder; None for a set that is not there."""
    return {name: _prompts(sorted((data / "prompts" / folder).glob("*.jsonl"))) for name, folder in PROMPT_SETS.items()}


def _fact_files(folder: Path) -> list[list[Path]]:
    """Return the files of each relation: its splits, or one file."""
    if not folder.is_dir():
        return []
    relations = [[path / file for file in SPLIT_FILES] for path in sorted(folder.iterdir()) if path.is_dir()]
    return relations + [[path] for path in sorted(folder.iterdir()) if path.suffix in SUFFIXES]


def _relations(relations: Sequence[Sequence[Path]]) -> RelationStatistics | None:
    if not relations:
        return None
    facts = [[fact for path in paths for fact in parse_facts(path)] for paths in relations]
    sizes = [len(those) for those in facts]
    return RelationStatistics(
        relations=len(facts),
        avg_unique_x=round(fmean(len({fact.x for fact in those}) for those in facts)),
        avg_unique_y=round(fmean(len({fact.y for fact in those}) for those in facts)),
        min_pairs=min(sizes),
        max_pairs=max(sizes),
        mean_pairs=round(fmean(sizes)),
    )


def _prompts(paths: Sequence[Path]) -> PromptStatistics | None:
    if not paths:
        return None
    templates = [read_templates(path) for path in paths]
    sizes = [len(those) for those in templates]
    return PromptStatistics(
        relations=len(templates),
        avg_prompts=round(fmean(sizes), 1),
        min_prompts=min(sizes),
        max_prompts=max(sizes),
        avg_tokens=round(fmean(len(template.text.split()) for those in templates for template in those), 1),
    )
