"""Finds templates that are frequent among sentences with marked x and y, as ConceptNet's prompts were found."""

import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from askwell.data.records import file_name, read_records
from askwell.errors import BadFile, BadOption, NothingLeft
from askwell.files import write_whole

MORE_THAN_TEN = 11

Span = tuple[int, int]


@dataclass(frozen=True)
class Frequent:
    """A template, and in how many sentences it stands."""

    template: str
    count: int


@dataclass
class SentenceTemplates:
    """The templates of each relation, the most frequent first, and what was read."""

    templates: dict[str, list[Frequent]] = field(default_factory=dict)
    read: int = 0
    """Sentences of the relations that were asked for."""
    distinct: int = 0
    """Templates before the rare ones were left out."""
    left_out: Counter[str] = field(default_factory=Counter)
    """Sentences that make no template, by reason."""

    def as_json(self) -> dict[str, Any]:
        """The templates with their counts, and what was read."""
        return {
            "read": self.read,
            "distinct": self.distinct,
            "left_out": dict(self.left_out),
            "templates": {name: [asdict(one) for one in templates] for name, templates in self.templates.items()},
        }


def frequent_templates(path: Path, least: int = MORE_THAN_TEN, relation: str | None = None) -> SentenceTemplates:
    """The templates that at least `least` sentences of a relation have.

    A line is {"sentence": …, "x": …, "y": …, "relation": …}. x and y are the words as they stand in the sentence, or
    their places [start, end] in it, counted in characters. With `relation` only its sentences count, and those that
    name none.
    """
    if least < 1:
        raise BadOption(f"--min-count {least}: at least 1 is needed")
    counts: dict[str, Counter[str]] = {}
    found = SentenceTemplates()
    for number, record in read_records(path):
        name = record.get("relation", relation)
        if not isinstance(name, str) or not name:
            raise BadFile(
                path, 'has no "relation", as text; or say with --relation what all sentences are about', number
            )
        if relation is not None and name != relation:
            continue
        found.read += 1
        file_name(path, number, name)
        sentence = _text(path, number, record, "sentence")
        template = _template(path, number, record, sentence)
        if isinstance(template, _NoTemplate):
            found.left_out[template.reason] += 1
        else:
            counts.setdefault(name, Counter())[template] += 1
    found.distinct = sum(map(len, counts.values()))
    for name, counter in sorted(counts.items()):
        frequent = [Frequent(template, count) for template, count in counter.items() if count >= least]
        if frequent:
            found.templates[name] = sorted(frequent, key=lambda one: (-one.count, one.template))
    if not found.templates:
        reasons = Counter(found.left_out)
        reasons[f"template stands in fewer than {least} sentences"] = found.distinct
        raise NothingLeft("templates", +reasons)
    return found


def write_templates(found: SentenceTemplates, out: Path, *, one_file: bool) -> None:
    """Writes a prompt file for each relation into the folder `out`, or the only one as the file `out`."""
    for name, templates in found.templates.items():
        write_whole(out if one_file else out / f"{name}.jsonl", templates_jsonl(templates))


def templates_jsonl(templates: list[Frequent]) -> str:
    """A prompt file: one template a line, with its count."""
    lines = [json.dumps({"template": one.template, "count": one.count}, ensure_ascii=False) for one in templates]
    return "\n".join(lines) + "\n"


@dataclass(frozen=True)
class _NoTemplate:
    reason: str


def _template(path: Path, number: int, record: dict[str, Any], sentence: str) -> str | _NoTemplate:
    if "[X]" in sentence or "[Y]" in sentence:
        return _NoTemplate("the sentence holds [X] or [Y] already")
    places = {key: list(_places(path, number, record, key, sentence)) for key in ("x", "y")}
    for key, spans in places.items():
        if not spans:
            return _NoTemplate(f"{key} does not stand in the sentence")
    pairs = [(x, y) for x in places["x"] for y in places["y"] if x[1] <= y[0] or y[1] <= x[0]]
    if not pairs:
        return _NoTemplate("x and y overlap")
    if len(pairs) > 1:
        return _NoTemplate("x or y stands there more than once; mark it by its place")
    (x, y) = pairs[0]
    first, second = sorted([(x, "[X]"), (y, "[Y]")])
    text = "".join(
        [
            sentence[: first[0][0]],
            first[1],
            sentence[first[0][1] : second[0][0]],
            second[1],
            sentence[second[0][1] :],
        ]
    )
    return " ".join(text.split())


def _places(path: Path, number: int, record: dict[str, Any], key: str, sentence: str) -> Iterator[Span]:
    """Where x or y stands: the place that is given, or all places where its words stand whole."""
    marked = record.get(key)
    if isinstance(marked, list):
        is_place = len(marked) == 2 and all(isinstance(end, int) and not isinstance(end, bool) for end in marked)
        if not is_place or not 0 <= marked[0] < marked[1] <= len(sentence):
            raise BadFile(path, f'"{key}" is {marked}, which is no place [start, end] in the sentence', number)
        yield marked[0], marked[1]
        return
    words = _text(path, number, record, key)
    for match in re.finditer(rf"(?<!\w){re.escape(words)}(?!\w)", sentence):
        yield match.span()


def _text(path: Path, number: int, record: dict[str, Any], key: str) -> str:
    value = record.get(key)
    if not isinstance(value, str) or not value.strip():
        raise BadFile(path, f'has no "{key}", as text that is not empty', number)
    return value.strip() if key != "sentence" else value
