"""Output to the terminal: results go to stdout, everything else to stderr."""

import json
import sys
import textwrap
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from askwell.views.document import Block, Document, Section
from askwell.views.printable import counted, json_escaped, printable
from askwell.views.to_text import Bar, print_blocks, print_document

if TYPE_CHECKING:
    from askwell.answers.reply import LeftOutFact


class _Terminal(Console):
    """A console that prints no control characters but its own, since texts may come from files written by others."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Yield the segments to print, with characters that a terminal would act on escaped."""
        for segment in super().render(renderable, options):
            is_own = segment.control is not None
            yield segment if is_own else Segment(printable(segment.text), segment.style, segment.control)


stderr = _Terminal(stderr=True, highlight=False, soft_wrap=True)
stdout = _Terminal(highlight=False)


def print_json(document: Any) -> None:
    """Print one JSON document on stdout."""
    sys.stdout.write(_as_json(document) + "\n")


def print_json_list(documents: Iterable[Any]) -> None:
    """Print a list as one JSON document on stdout, each item as soon as it is known."""
    before = "[\n"
    for document in documents:
        sys.stdout.write(before + textwrap.indent(_as_json(document), "  "))
        sys.stdout.flush()
        before = ",\n"
    sys.stdout.write("[]\n" if before.startswith("[") else "\n]\n")


def _as_json(document: Any) -> str:
    """Encode a document as JSON that every program can read: infinite and NaN values become null."""
    try:
        text = json.dumps(document, ensure_ascii=False, indent=2, allow_nan=False)
    except ValueError:
        finite = json.loads(json.dumps(document), parse_constant=lambda _: None)
        text = json.dumps(finite, ensure_ascii=False, indent=2, allow_nan=False)
    return json_escaped(text)


def say(*lines: str) -> None:
    """Print lines of a result on stdout, not wrapped at the terminal's width, so that they can be copied."""
    for line in lines:
        stdout.print(line, markup=False, soft_wrap=True)


def show(*blocks: Block) -> None:
    """Print tables and sentences on stdout."""
    print_blocks(blocks, stdout)


def show_document(document: Document) -> None:
    """Print a document on stdout, its sections under their headings."""
    print_document(document, stdout)


def show_section(heading: str, *blocks: Block) -> None:
    """Print blocks on stdout under a heading."""
    show_document(Document("", sections=(Section(heading, blocks),)))


def note(text: str) -> None:
    """Print a line for the user on stderr."""
    stderr.print(text, style="dim", markup=False)


def note_loading(*names: str | None) -> None:
    """Note what is being loaded, unless that is quick because torch has been imported before."""
    if "torch" not in sys.modules:
        note(f"loading {' and '.join(['torch', *filter(None, names)])} …")


def note_left_out_facts(split: str, left_out: "Sequence[LeftOutFact]") -> None:
    """Note how many facts of a split could not be asked and why, and name some of them."""
    from askwell.answers.reply import count_reasons, way_out_of

    for reason, count in sorted(count_reasons(left_out).items()):
        named = [f"{one.fact.x} → {one.fact.y}" for one in left_out if one.reason == reason]
        examples = f"{'; '.join(named[:3])}{'; …' if count > 3 else ''}"
        note(f"left out of {split}: {counted(count, 'fact')}, since {reason} ({examples}){way_out_of(reason)}")


_SECONDS_BETWEEN_LINES = 30.0


def bar(what: str) -> Bar:
    """Return a bar on stderr that appears at once; a line now and then, where stderr is not a terminal."""
    return Bar(what, console=stderr, after=0.0, line_every=_SECONDS_BETWEEN_LINES)
