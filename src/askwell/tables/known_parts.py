"""Parts of the test facts that no run can tell by itself: the kind of relation, and what the testbed tells its LMs."""

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path

from askwell.data_folder import data_folder
from askwell.evaluation import Outcome
from askwell.facts import Fact
from askwell.testbed.world import PREFIX, relations, told
from askwell.trust.partitions import Parts, by_cardinality

TOLD, WITHHELD = "told", "withheld"
_LAMA = Path("meta/lama_relations.jsonl")


def known_parts(outcomes: Sequence[Outcome]) -> Mapping[str, Parts]:
    """The outcomes by told and withheld, and by cardinality: those of relations of which that is known."""
    kinds = cardinalities({outcome.relation for outcome in outcomes})
    of_testbed = [outcome for outcome in outcomes if outcome.relation.startswith(PREFIX)]
    found = {
        "told": _by_told(of_testbed),
        "cardinality": by_cardinality([outcome for outcome in outcomes if outcome.relation in kinds], kinds),
    }
    return {name: parts for name, parts in found.items() if parts}


def cardinalities(names: Iterable[str]) -> dict[str, str]:
    """1-1, N-1 or N-M for relations of the testbed, and for T-REx's if LAMA's list of them is in the data folder."""
    of_testbed = {PREFIX + relation.name: relation.cardinality for relation in relations()}
    data = data_folder(None)
    of_lama = _lama(data / _LAMA) if data is not None and (data / _LAMA).is_file() else {}
    found = {name: of_testbed.get(name) or of_lama.get(name.rpartition("/")[2]) for name in names}
    return {name: kind for name, kind in found.items() if kind is not None}


@cache
def _lama(path: Path) -> dict[str, str]:
    records = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return {record["relation"]: record["type"] for record in records if "type" in record}


def _by_told(outcomes: Sequence[Outcome]) -> Parts:
    parts: Parts = {TOLD: [], WITHHELD: []}
    for outcome in outcomes:
        is_told = Fact(outcome.x, outcome.y) in told(outcome.relation.removeprefix(PREFIX))
        parts[TOLD if is_told else WITHHELD].append(outcome)
    return {name: members for name, members in parts.items() if members}
