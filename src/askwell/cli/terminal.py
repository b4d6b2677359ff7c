"""Where things go: results to stdout, everything else to stderr."""

import json
import sys
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console

if TYPE_CHECKING:
    from askwell.mixture.encode import LeftOutFact
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
    if not mixture.left_out_prompts:
        return
    total = len(mixture.left_out_prompts) + len(mixture.prompts) // mixture.spec.copies
    note(f"{len(mixture.left_out_prompts)} of {counted(total, 'prompt')} left out:")
    for prompt in mixture.left_out_prompts:
        note(f"  {prompt.template.text!r}: {prompt.reason}")


def note_left_out_facts(split: str, left_out: "Sequence[LeftOutFact]") -> None:
    """Says how many facts of a split could not be asked, why, and names some of them."""
    for reason, count in sorted(Counter(left.reason for left in left_out).items()):
        named = [f"{left.fact.x} → {left.fact.y}" for left in left_out if left.reason == reason]
        examples = "; ".join(named[:3]) + ("; …" if count > 3 else "")
        note(f"left out of {split}: {counted(count, 'fact')}, since {reason} ({examples})")
