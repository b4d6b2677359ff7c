"""Find frequent templates in sentences with marked x and y, as ConceptNet's prompts were found.

Usage: sentence_templates.py SENTENCES OUT [--relation NAME] [--min-count 11]. OUT is a folder, which gets a prompt file
for each relation; with --relation, a file. What was read, kept and left out is printed as JSON.
"""

import argparse
import json
import re
from collections import Counter
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from askwell.data.readers import file_name, read_records, text_of
from askwell.data.templates import templates_jsonl
from askwell.errors import BadFile, BadOption, NothingLeft
from askwell.files import write_whole


@dataclass
class SentenceTemplates:
    """The templates of each relation, the most frequent first, and what was read."""

    read: int = 0
    """Sentences of the relations that were asked for."""
    distinct: int = 0
    """Templates before the rare ones were left out."""
    left_out: Counter[str] = field(default_factory=Counter)
    """Sentences that make no template, by reason."""
    templates: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    """Each with its text under "template" and the number of its sentences under "count"."""


def frequent_templates(path: Path, least: int = 11, relation: str | None = None) -> SentenceTemplates:
    """Return the templates that occur in at least `least` sentences of a relation.

    A line is {"sentence": …, "x": …, "y": …, "relation": …}. x and y are words as written in the sentence, or their
    positions [start, end] in it, counted in characters. With `relation`, only its sentences count, and sentences that
    name no relation."""
    if least < 1:
        raise BadOption(f"`least` {least}: at least 1 is needed", least="--min-count")
    counts: dict[str, Counter[str]] = {}
    found = SentenceTemplates()
    for number, record in read_records(path):
        if relation is not None and record.setdefault("relation", relation) != relation:
            continue
        if "relation" not in record:
            problem = "'relation' is missing; name the relation of all sentences with `relation`"
            raise BadFile(path, problem, number, relation="--relation")
        found.read += 1
        name = file_name(path, number, text_of(path, number, record, "relation"))
        try:
            template = _template(path, number, record)
        except ValueError as reason:
            found.left_out[str(reason)] += 1
        else:
            counts.setdefault(name, Counter())[template] += 1
    found.distinct = sum(map(len, counts.values()))
    for name, counter in sorted(counts.items()):
        frequent = sorted((-count, template) for template, count in counter.items() if count >= least)
        if frequent:
            found.templates[name] = [{"template": template, "count": -count} for count, template in frequent]
    if not found.templates:
        reasons = found.left_out + Counter({f"template occurs in fewer than {least} sentences": found.distinct})
        raise NothingLeft("templates", reasons)
    return found


def write_templates(found: SentenceTemplates, out: Path, *, one_file: bool) -> None:
    """Write a prompt file for each relation into the folder `out`, or the only one as the file `out`."""
    for name, templates in found.templates.items():
        write_whole(out if one_file else out / f"{name}.jsonl", templates_jsonl(templates))


def _template(path: Path, number: int, record: dict[str, Any]) -> str:
    """Return the sentence with its blanks; raises ValueError, with the reason, if it is not clear where they go."""
    text_of(path, number, record, "sentence")
    sentence = record["sentence"]
    if "[X]" in sentence or "[Y]" in sentence:
        raise ValueError("the sentence already holds [X] or [Y]")
    xs, ys = (_positions(path, number, record, key, sentence) for key in ("x", "y"))
    for key, spans in (("x", xs), ("y", ys)):
        if not spans:
            raise ValueError(f"{key} is not in the sentence")
    apart = ((x, y) for x in xs for y in ys if x[1] <= y[0] or y[1] <= x[0])
    pairs = list(islice(apart, 2))  # one is clear, two are not; a long sentence can have billions
    if not pairs:
        raise ValueError("x and y overlap")
    if len(pairs) > 1:
        raise ValueError("x or y occurs more than once; give its position")
    for (start, end), blank in sorted(zip(pairs[0], ("[X]", "[Y]"), strict=True), reverse=True):
        sentence = sentence[:start] + blank + sentence[end:]
    return " ".join(sentence.split())


def _positions(path: Path, number: int, record: dict[str, Any], key: str, sentence: str) -> list[tuple[int, int]]:
    """Return where x or y is: the position that is given, or every place where its words occur as whole words."""
    marked = record.get(key)
    if not isinstance(marked, list):
        words = text_of(path, number, record, key)
        if not words:
            raise BadFile(path, f"{key!r} is empty", number)
        return [match.span() for match in re.finditer(rf"(?<!\w){re.escape(words)}(?!\w)", sentence)]
    if len(marked) == 2 and all(type(end) is int for end in marked) and 0 <= marked[0] < marked[1] <= len(sentence):
        return [(marked[0], marked[1])]
    raise BadFile(path, f"{key!r} is {marked}, which is not a position [start, end] in the sentence", number)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Find frequent templates in marked sentences.")
    parser.add_argument("sentences", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--relation")
    parser.add_argument("--min-count", type=int, default=11, help='11 is ConceptNet\'s "more than 10"')
    given = parser.parse_args()
    found = frequent_templates(given.sentences, given.min_count, given.relation)
    write_templates(found, given.out, one_file=given.relation is not None)
    print(json.dumps(vars(found), ensure_ascii=False, indent=2))
