"""Where things go: results to stdout, everything else to stderr."""

import json
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console

if TYPE_CHECKING:
    from askwell.evaluation.evaluate import LeftOut
    from askwell.mixture.mixture import Mixture

log = Console(stderr=True, highlight=False, soft_wrap=True)
out = Console(highlight=False)


def print_json(document: Any) -> None:
    """One JSON document on stdout."""
    json.dump(document, sys.stdout, ensure_ascii=False, indent=2, allow_nan=False)
    sys.stdout.write("\n")


def counted(count: int, word: str) -> str:
    """A number with its noun."""
    return f"{count} {word}" if count == 1 else f"{count} {word}s"


def note(text: str) -> None:
    """A line for the user on stderr."""
    log.print(text, style="dim", markup=False)


def note_left_out_prompts(mixture: "Mixture") -> None:
    """Names the prompts that the LM cannot use."""
    from askwell.runs.sources import left_out_prompt_lines

    for line in left_out_prompt_lines(mixture):
        note(line)


def note_left_out_facts(split: str, reasons: Mapping[str, int], facts: "Sequence[LeftOut]" = ()) -> None:
    """Says how many facts of a split could not be asked and why, and names some of them."""
    for reason, count in sorted(reasons.items()):
        named = [f"{fact.x} → {fact.y}" for fact in facts if fact.reason == reason]
        examples = f" ({'; '.join(named[:3])}{'; …' if count > 3 else ''})" if named else ""
        note(f"left out of {split}: {counted(count, 'fact')}, since {reason}{examples}")
