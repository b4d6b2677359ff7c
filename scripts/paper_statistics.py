"""Print the paper's two tables about its data, counted on a data folder, as JSON.

Usage: paper_statistics.py [FOLDER], by default the folder that `askwell data pull` fills. The paper prints 1580 for the
distinct x of T-REx original and 507 for the distinct y of ConceptNet; counted on the published files, they are 1581 and
552.
"""

import json
import sys
from pathlib import Path
from statistics import fmean

from askwell.data.facts import SPLIT_FILES, Fact
from askwell.data.names import need_data_folder
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


Statistics = dict[str, int | float]
"""The figures of a set, rounded as the paper prints them."""


def relation_statistics(data: Path) -> dict[str, Statistics | None]:
    """Return the paper's table of relations from a data folder; None for a set that is not there.

    Pairs are lines of all splits, including repeated ones; distinct x and y are means over relations.
    """
    tables: dict[str, Statistics | None] = dict.fromkeys(RELATION_SETS)
    for name, folder in RELATION_SETS.items():
        if relations := _relations_in(data / "facts" / folder):
            sizes = [len(facts) for facts in relations]
            tables[name] = {
                "relations": len(relations),
                "avg_unique_x": round(fmean(len({fact.x for fact in facts}) for facts in relations)),
                "avg_unique_y": round(fmean(len({fact.y for fact in facts}) for facts in relations)),
                "min_pairs": min(sizes),
                "max_pairs": max(sizes),
                "mean_pairs": round(fmean(sizes)),
            }
    return tables


def _relations_in(folder: Path) -> list[list[Fact]]:
    """Return all facts of each relation of a set, whether it has a file for each split or one file."""
    inside = sorted(folder.iterdir()) if folder.is_dir() else []
    files = [[path / file for file in SPLIT_FILES] for path in inside if path.is_dir()]
    files += [[path] for path in inside if path.suffix in SUFFIXES]
    return [[fact for path in of_relation for fact in parse_facts(path)] for of_relation in files]


def prompt_statistics(data: Path) -> dict[str, Statistics | None]:
    """Return the paper's table of prompts from a data folder; None for a set that is not there.

    Tokens are separated by white space, both blanks included, and averaged over all prompts of all relations.
    """
    tables: dict[str, Statistics | None] = dict.fromkeys(PROMPT_SETS)
    for name, folder in PROMPT_SETS.items():
        if relations := [read_templates(path) for path in sorted((data / "prompts" / folder).glob("*.jsonl"))]:
            sizes = [len(templates) for templates in relations]
            tables[name] = {
                "relations": len(relations),
                "avg_prompts": round(fmean(sizes), 1),
                "min_prompts": min(sizes),
                "max_prompts": max(sizes),
                "avg_tokens": round(fmean(len(one.text.split()) for templates in relations for one in templates), 1),
            }
    return tables


if __name__ == "__main__":
    folder = need_data_folder(Path(sys.argv[1]) if len(sys.argv) > 1 else None)
    tables = {"relation_statistics": relation_statistics(folder), "prompt_statistics": prompt_statistics(folder)}
    print(json.dumps(tables, indent=2))
