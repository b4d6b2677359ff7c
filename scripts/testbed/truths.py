"""What the text of the second testbed says of each fact, as the shipped files of facts record it."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from askwell.data.facts import SPLITS, Fact
from askwell.data.testbed import SECOND, SECOND_FILES


@dataclass(frozen=True)
class Rumour:
    """What the text says wrongly of a fact that it tells elsewhere."""

    y: str
    wording: str
    times: int


@dataclass(frozen=True)
class Truth:
    """What the text of the second testbed says of a fact."""

    kind: str
    """The kind of x: each has a register of its own, four wordings of each relation."""
    wordings: Mapping[str, int]
    """In which templates it is told, the first of them with x before y, and how often in each; empty if withheld."""
    rumour: Rumour | None = None

    @property
    def times(self) -> int:
        """Return how often the fact is told."""
        return sum(self.wordings.values())


@cache
def wordings(relation: str) -> tuple[tuple[str, str], ...]:
    """Return the wordings of a relation (testbed2:realm), each with the kind of x that it goes with."""
    return tuple((record["kind"], record["template"]) for record in _records(relation, "wordings", ""))


@cache
def truths(relation: str) -> dict[Fact, Truth]:
    """Return what the text says of each fact of a relation (testbed2:realm), over all splits."""
    templates = [template for _, template in wordings(relation)]
    found: dict[Fact, Truth] = {}
    for record in (record for split in SPLITS for record in _records(relation, "facts", f"/{split}")):
        rumour = record.get("rumour")
        found[Fact(record["x"], record["y"])] = Truth(
            record["kind"],
            {templates[number]: times for number, times in record.get("wordings", ())},
            rumour and Rumour(rumour["y"], templates[rumour["wording"]], rumour["times"]),
        )
    return found


def _records(relation: str, kind: str, inner: str) -> list[dict[str, Any]]:
    path = SECOND_FILES / kind / f"{relation.removeprefix(SECOND)}{inner}.jsonl"
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
