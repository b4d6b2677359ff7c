"""Templates: the text of a prompt with one blank for x and one for y, as typed, as stored in files, and as found in
sentences with marked x and y, the way ConceptNet's prompts were found."""

import json
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, Literal

from askwell.calls import checked, checked_or
from askwell.data.readers import file_name, read_lines, read_records, text_of
from askwell.errors import BadFile, BadOption, BadTemplate, NothingLeft
from askwell.files import is_utf8, write_whole

Blank = Literal["[X]", "[Y]"]
_BLANK = re.compile(r"\[[XY]\]")
_BLANK_IN_OTHER_LETTERS = re.compile(r"\[\s*([xyXY])\s*\]")


@checked_or("templates can be given as they are written: '[X] was born in [Y] .'")
@dataclass(frozen=True)
class Template:
    """A prompt's text: three stretches of words around two blanks, e.g. `[X] was born in [Y] .`"""

    before: str
    first: Blank
    between: str
    second: Blank
    after: str
    weight: float | None = None
    """The weight that the prompt file gives it, if any."""

    @property
    def text(self) -> str:
        """Return the template as one line of text."""
        return f"{self.before}{self.first}{self.between}{self.second}{self.after}"

    @property
    def x_first(self) -> bool:
        """Return whether x's blank comes before y's."""
        return self.first == "[X]"


@checked
def parse_template(text: str, weight: float | None = None) -> Template:
    """Return the template that `text` spells; spaces at its ends are ignored."""
    text = text.strip()
    blanks = _BLANK.findall(text)
    for blank in ("[X]", "[Y]"):
        if (count := blanks.count(blank)) != 1:
            found = f"{count} times" if count else "no"
            raise BadTemplate(f"template {text!r} has {found} {blank}; {_advice(text, blank)}")
    if not is_utf8(text):
        raise BadTemplate(f"template {text!r} holds bytes that are not UTF-8; write it in UTF-8")
    before, between, after = _BLANK.split(text)
    return Template(before, blanks[0], between, blanks[1], after, weight)


def parsed_templates(given: str | Template | Iterable[Template | str]) -> list[Template]:
    """Return one template or several, each as a text or already parsed."""
    several = [given] if isinstance(given, str | Template) or not isinstance(given, Iterable) else given
    return [one if isinstance(one, Template) else _parsed(one) for one in several]


def _parsed(given: Any) -> Template:
    if not isinstance(given, str):
        raise BadTemplate(f"{type(given).__name__} is not a template; write its text, e.g. '[X] was born in [Y] .'")
    if not _BLANK_IN_OTHER_LETTERS.search(given):
        raise BadTemplate(
            f"{given!r} is not a template: it has no [X] and no [Y]; askwell.load_prompts reads files and sets"
        )
    return parse_template(given)


def _advice(text: str, blank: str) -> str:
    alike = [found.group() for found in _BLANK_IN_OTHER_LETTERS.finditer(text) if found.group(1).upper() in blank]
    if alike and blank not in alike:
        return f"write {blank} instead of {alike[0]}"
    return 'each blank appears exactly once, e.g. "[X] was born in [Y] ."'


def read_templates(path: Path) -> list[Template]:
    """Return the templates of a prompt file: JSON lines, or one template per line, where lines that begin with # are
    comments.

    If some are not templates, the error names all of them.
    """
    if path.is_dir():
        raise BadFile(path, "is a folder; name one of its prompt files")
    templates: list[Template] = []
    mistakes: dict[int, str] = {}
    for number, text, weight in _json_lines(path) if path.suffix == ".jsonl" else _text_lines(path):
        try:
            templates.append(parse_template(text, weight))
        except BadTemplate as error:
            mistakes[number] = str(error)
    if len(mistakes) == 1:
        ((number, mistake),) = mistakes.items()
        raise BadFile(path, mistake, line=number)
    if mistakes:
        named = "; ".join(f"line {number}: {mistake}" for number, mistake in list(mistakes.items())[:_NAMED_MISTAKES])
        more = f"; and {len(mistakes) - _NAMED_MISTAKES} more" if len(mistakes) > _NAMED_MISTAKES else ""
        raise BadFile(path, f"{len(mistakes)} lines are not templates: {named}{more}")
    if not templates:
        raise BadFile(path, "holds no templates")
    return templates


_NAMED_MISTAKES = 10


def templates_jsonl(templates: Iterable[Mapping[str, Any]]) -> str:
    """Return the text of a prompt file, with a record such as {"template": …, "weight": …} for each line."""
    return "".join(json.dumps(template, ensure_ascii=False) + "\n" for template in templates)


def weight_of(path: Path, line: int, record: Mapping[str, Any]) -> float | None:
    """Return the weight in a record of a prompt file, if there is one."""
    weight = record.get("weight")
    if weight is None:
        return None
    is_number = isinstance(weight, int | float) and not isinstance(weight, bool)
    if not is_number or not 0 <= weight <= sys.float_info.max:
        raise BadFile(path, f"'weight' is {weight!r}; it must be a number that is not negative", line)
    return float(weight)


def _text_lines(path: Path) -> Iterator[tuple[int, str, None]]:
    return ((number, line, None) for number, line in read_lines(path) if not line.lstrip().startswith("#"))


def _json_lines(path: Path) -> Iterator[tuple[int, str, float | None]]:
    for number, record in read_records(path):
        yield number, text_of(path, number, record, "template"), weight_of(path, number, record)


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

    def as_json(self, out: Path) -> dict[str, Any]:
        """Return the templates with their counts, what was read, and where the templates were written to."""
        return {"out": str(out), **vars(self)}


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
