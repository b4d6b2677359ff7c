"""Two LMs compared, made by hand: the states of some facts before and after are given."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from askwell.evaluation.outcomes import Outcome
from askwell.evaluation.verdicts import AskedLM, Verdicts, judge
from askwell.runs.diff_lms import Diff, save_diff

STATES = (
    *[("by hand", "by hand")] * 5,
    *[("by hand", "tuned only")] * 3,
    *[("by hand", "not")] * 2,
    ("not", "by hand"),
    *[("not", "not")] * 2,
)
"""Five facts that are kept, three hidden, two gone, one new, two unknown."""


def outcome(x: str, y: str, answer: str, log_probability: float = -1.0, relation: str = "r") -> Outcome:
    rank = 1.0 if answer == y else 2.0
    return Outcome(relation, x, y, (y,), rank, rank, log_probability, (answer,), (0.5,))


def asked(name: str, states: Sequence[str], ys: Sequence[str] | None = None, relation: str = "r") -> AskedLM:
    """An LM that has these states for its facts; where a way of asking does not find y, it answers "?"."""
    ys = ys or [f"y{number}" for number in range(len(states))]
    sides = [
        [outcome(f"x{n}", ys[n], ys[n] if state == found else "?", relation=relation) for n, state in enumerate(states)]
        for found in ("by hand", "tuned only")
    ]
    return AskedLM(name, *sides)


def judged(
    pairs: Sequence[tuple[str, str]] = STATES, before: str = "BERT", after: str = "BERT (4 bits)", **options: Any
) -> Verdicts:
    before_states, after_states = zip(*pairs, strict=True)
    sides = asked(before, before_states), asked(after, after_states)
    return judge(*sides, frequency={("r", "y0"): 3, ("r", "y6"): 12}, **options)


def keep_diff(folder: Path, verdicts: Verdicts) -> Diff:
    """Write a diff into a folder that has no runs."""
    folder.mkdir()
    found = Diff(verdicts, None, ())
    save_diff(found, folder)
    return found
