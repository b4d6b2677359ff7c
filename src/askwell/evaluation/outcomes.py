"""The outcome of a fact: where a mixture ranks the right answer, and what it answers instead. Kept as Parquet."""

import glob
import json
import math
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from askwell.data.facts import SplitName
from askwell.errors import BadFile, CannotWrite
from askwell.files import need_utf8_name, write_aside


@dataclass(frozen=True)
class Outcome:
    """How a mixture answered one fact."""

    relation: str
    x: str
    y: str
    golds: tuple[str, ...]
    """All right answers for x, of all splits."""
    rank: float
    """Rank of y with the other golds left out; infinite where it is only known that ten others are more probable. Where
    a search was cut, the rank among the answers that were found."""
    raw_rank: float
    log_probability: float
    answers: tuple[str, ...]
    """The most probable answers, best first."""
    probabilities: tuple[float, ...]
    rank_at_most: float = math.nan
    """The rank if every answer that a search left open were more probable than y: the rank itself, unless the search
    was cut before it was known."""

    def __post_init__(self) -> None:
        if math.isnan(self.rank_at_most):
            object.__setattr__(self, "rank_at_most", self.rank)

    @property
    def is_settled(self) -> bool:
        """Whether the rank is known."""
        return self.rank_at_most == self.rank

    def at_worst(self) -> "Outcome":
        """Return the same outcome with the largest rank that y may have."""
        return replace(self, rank=self.rank_at_most)

    def with_raw_rank(self) -> "Outcome":
        """Return the same outcome with the other right answers of x counted as wrong, and as many answers left open."""
        unknown = 0.0 if self.is_settled else self.rank_at_most - self.rank
        return replace(self, rank=self.raw_rank, rank_at_most=self.raw_rank + unknown)


_COLUMNS = {
    "relation": "VARCHAR",
    "x": "VARCHAR",
    "y": "VARCHAR",
    "golds": "VARCHAR[]",
    "rank": "DOUBLE",
    "raw_rank": "DOUBLE",
    "log_probability": "DOUBLE",
    "answers": "VARCHAR[]",
    "probabilities": "DOUBLE[]",
    "rank_at_most": "DOUBLE",
}


_INFINITE = {"rank": math.inf, "raw_rank": math.inf, "log_probability": -math.inf, "rank_at_most": math.inf}


def write_outcomes(outcomes: Sequence[Outcome], path: Path) -> None:
    """Write one row per fact, in the order given; the log_probability of a probability of 0, and an infinite rank, are
    null."""
    rows = (asdict(outcome) for outcome in outcomes)
    finite = (row | {name: None for name in _INFINITE if not math.isfinite(row[name])} for row in rows)
    _write_rows(finite, _COLUMNS, path)


def read_outcomes(path: Path) -> list[Outcome]:
    """Read outcomes from a file that `write_outcomes` wrote."""
    rows = _rows_of(path, _COLUMNS, "facts")
    outcomes = []
    for number, row in enumerate(rows, start=1):
        fields: dict[str, Any] = dict(zip(_COLUMNS, row, strict=False))
        fields |= {name: infinite for name, infinite in _INFINITE.items() if name in fields and fields[name] is None}
        _need_values(path, number, fields)
        fields |= {name: tuple(fields[name]) for name in ("golds", "answers", "probabilities")}
        outcomes.append(Outcome(**fields))
    return outcomes


def _rows_of(path: Path, expected: Mapping[str, str], what: str) -> list[tuple[Any, ...]]:
    """Read the rows of a Parquet file, which must have these columns with these types."""
    import duckdb  # imported here and below, since many commands read and write no outcomes

    need_utf8_name(path)
    try:
        with duckdb.connect() as database:
            read = database.read_parquet(glob.escape(str(path)))  # otherwise "*", "?" and "[" would be patterns
            found = dict(zip(read.columns, map(str, read.types), strict=True))
            whole = [*expected.items()]
            if [*found.items()] not in (whole, whole[:-1]):  # all ranks of a file without the last column are exact
                raise BadFile(path, f"expected the columns {_listed(expected)}; found {_listed(found)}")
            return read.fetchall()
    except duckdb.Error as error:
        raise BadFile(path, f"this is not a Parquet file of {what}: {str(error).splitlines()[0]}") from error
    except UnicodeDecodeError:
        raise BadFile(path, "its texts are not UTF-8, so it was altered") from None


def _listed(columns: Mapping[str, str]) -> str:
    shown = [f"{name[:40]} {kind[:40]}" for name, kind in columns.items()]
    return ", ".join(shown[:12]) + (f" and {len(shown) - 12} more" if len(shown) > 12 else "")


def _need_values(path: Path, number: int, fields: Mapping[str, Any]) -> None:
    """Raise an error if a row lacks a value or has an impossible one."""
    for name, value in fields.items():
        if value is None or (isinstance(value, list) and None in value):
            raise BadFile(path, f"row {number} has no {name}")
    ranks = [fields[name] for name in ("rank", "raw_rank", "rank_at_most") if name in fields]
    if not all(rank >= 1 for rank in ranks) or math.isnan(fields.get("log_probability", 0.0)):
        raise BadFile(path, f"row {number} has a rank below 1, or one that is NaN")
    if fields.get("log_probability", 0.0) > 0.001:
        raise BadFile(path, f"row {number} has a log_probability above 0")
    if not all(0 <= probability <= 1.001 for probability in fields.get("probabilities", ())):
        raise BadFile(path, f"row {number} has a probability that is not between 0 and 1")


_CONTROL_COLUMNS = {"split": "VARCHAR", "control": "VARCHAR", "relation": "VARCHAR", "x": "VARCHAR", "y": "VARCHAR"}
_CONTROL_COLUMNS |= {"rank": "DOUBLE", "rank_at_most": "DOUBLE"}


def write_controls(controls: Mapping[str, Mapping[SplitName, Sequence[Outcome]]], path: Path) -> None:
    """Write a row for each control, split and fact, in the order given."""
    rows = (
        {"split": split, "control": name, "relation": one.relation, "x": one.x, "y": one.y}
        | {"rank": _finite(one.rank), "rank_at_most": _finite(one.rank_at_most)}
        for name, by_split in controls.items()
        for split, outcomes in by_split.items()
        for one in outcomes
    )
    _write_rows(rows, _CONTROL_COLUMNS, path)


def _finite(rank: float) -> float | None:
    return rank if math.isfinite(rank) else None


def read_controls(path: Path) -> dict[str, dict[str, list[Outcome]]]:
    """Read the outcomes of each control by name and split, with only relation, x, y and rank.

    That is enough for rank metrics; these outcomes have no answers and no probabilities.
    """
    controls: dict[str, dict[str, list[Outcome]]] = {}
    for number, row in enumerate(_rows_of(path, _CONTROL_COLUMNS, "controls"), start=1):
        fields: dict[str, Any] = dict(zip(_CONTROL_COLUMNS, row, strict=False))
        fields |= {rank: math.inf for rank in ("rank", "rank_at_most") if rank in fields and fields[rank] is None}
        _need_values(path, number, fields)
        split, name = fields.pop("split"), fields.pop("control")
        nothing = {"raw_rank": math.nan, "log_probability": math.nan, "answers": (), "probabilities": ()}
        outcome = Outcome(**fields, golds=(fields["y"],), **nothing)
        controls.setdefault(name, {}).setdefault(split, []).append(outcome)
    return controls


def _write_rows(rows: Iterable[Mapping[str, Any]], columns: Mapping[str, str], path: Path) -> None:
    import duckdb

    try:
        with tempfile.TemporaryDirectory() as folder, duckdb.connect() as database:
            lines = Path(folder) / "rows.jsonl"
            with lines.open("w", encoding="utf-8") as file:
                file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
            database.execute("SET threads = 1")  # rows stay in order, and the same rows give the same file
            source = database.read_json(glob.escape(str(lines)), columns=dict(columns), format="newline_delimited")
            with write_aside(path) as aside:
                source.write_parquet(str(aside))
    except (OSError, duckdb.Error) as error:
        raise CannotWrite(f"{path} cannot be written: {str(error).splitlines()[0]}") from error
