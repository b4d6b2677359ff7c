"""The outcome of a fact: where a mixture ranks the right answer, and what it answers instead. Kept as Parquet."""

import glob
import json
import math
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from askwell.data.facts import SplitName
from askwell.errors import BadFile, CannotWrite
from askwell.files import need_utf8_name, write_aside

FactKey = tuple[str, str, str]
"""Relation, x and y."""


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
    def key(self) -> FactKey:
        """The fact that it is the outcome of."""
        return self.relation, self.x, self.y

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


def by_fact(outcomes: Iterable[Outcome]) -> dict[FactKey, Outcome]:
    """Return outcomes by their facts."""
    return {outcome.key: outcome for outcome in outcomes}


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
_CONTROL_COLUMNS = {"split": "VARCHAR", "control": "VARCHAR"}
_CONTROL_COLUMNS |= {name: _COLUMNS[name] for name in ("relation", "x", "y", "rank", "rank_at_most")}
_GOLD_COLUMNS = {name: _COLUMNS[name] for name in ("x", "golds")}
_INFINITE = {"rank": math.inf, "raw_rank": math.inf, "log_probability": -math.inf, "rank_at_most": math.inf}
"""What a null stands for."""


def write_outcomes(outcomes: Sequence[Outcome], path: Path) -> None:
    """Write one row per fact, in the order given; the log_probability of a probability of 0, and an infinite rank, are
    null."""
    _write_rows((asdict(outcome) for outcome in outcomes), _COLUMNS, path)


def read_outcomes(path: Path) -> list[Outcome]:
    """Read outcomes from a file that `write_outcomes` wrote."""
    return [Outcome(**fields) for fields in _rows_of(path, _COLUMNS, "facts")]


def write_controls(controls: Mapping[str, Mapping[SplitName, Sequence[Outcome]]], path: Path) -> None:
    """Write a row for each control, split and fact, in the order given."""
    rows = (
        {"split": split, "control": name, **{key: getattr(one, key) for key in _CONTROL_COLUMNS if key in _COLUMNS}}
        for name, by_split in controls.items()
        for split, outcomes in by_split.items()
        for one in outcomes
    )
    _write_rows(rows, _CONTROL_COLUMNS, path)


def read_controls(path: Path) -> dict[str, dict[str, list[Outcome]]]:
    """Read the outcomes of each control by name and split, with only relation, x, y and rank.

    That is enough for rank metrics; these outcomes have no answers and no probabilities.
    """
    nothing: Any = {"raw_rank": math.nan, "log_probability": math.nan, "answers": (), "probabilities": ()}
    controls: dict[str, dict[str, list[Outcome]]] = {}
    for fields in _rows_of(path, _CONTROL_COLUMNS, "controls"):
        split, name = fields.pop("split"), fields.pop("control")
        outcome = Outcome(**fields, golds=(fields["y"],), **nothing)
        controls.setdefault(name, {}).setdefault(split, []).append(outcome)
    return controls


def write_golds(golds: Mapping[str, tuple[str, ...]], path: Path) -> None:
    """Write a row for each x that was learned from, with all its right answers."""
    _write_rows(({"x": x, "golds": ys} for x, ys in golds.items()), _GOLD_COLUMNS, path)


def read_golds(path: Path) -> dict[str, tuple[str, ...]]:
    """Read the x's that were learned from, with all right answers for each."""
    return {row["x"]: row["golds"] for row in _rows_of(path, _GOLD_COLUMNS, "x's")}


def _rows_of(path: Path, expected: Mapping[str, str], what: str) -> Iterator[dict[str, Any]]:
    """Yield the rows of a Parquet file, which must have these columns with these types, and possible values."""
    import duckdb  # imported here and below, since many commands read and write no outcomes

    need_utf8_name(path)
    try:
        with duckdb.connect() as database:
            read = database.read_parquet(glob.escape(str(path)))  # otherwise "*", "?" and "[" would be patterns
            found = dict(zip(read.columns, map(str, read.types), strict=True))
            if [*found.items()] != [*expected.items()]:
                raise BadFile(path, f"expected the columns {_listed(expected)}; found {_listed(found)}")
            rows = read.fetchall()
    except duckdb.Error as error:
        raise BadFile(path, f"this is not a Parquet file of {what}: {str(error).splitlines()[0]}") from error
    except UnicodeDecodeError:
        raise BadFile(path, "its texts are not UTF-8, so it was altered") from None
    for number, row in enumerate(rows, start=1):
        fields: dict[str, Any] = {}
        for name, value in zip(expected, row, strict=True):
            fields[name] = tuple(value) if isinstance(value, list) else _INFINITE.get(name) if value is None else value
            if fields[name] is None or (isinstance(value, list) and None in value):
                raise BadFile(path, f"row {number} has no {name}")
        is_possible = all(fields.get(name, 1) >= 1 for name in ("rank", "raw_rank", "rank_at_most"))
        is_possible &= fields.get("log_probability", 0) <= 0.001  # some room for rounding; NaN is never possible
        is_possible &= all(0 <= probability <= 1.001 for probability in fields.get("probabilities", ()))
        if not is_possible:
            wrong = "a rank below 1, a log_probability above 0, or a probability that is not between 0 and 1"
            raise BadFile(path, f"row {number} has {wrong}")
        yield fields


def _listed(columns: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {kind}" for name, kind in [*columns.items()][:12])


def _write_rows(rows: Iterable[Mapping[str, Any]], columns: Mapping[str, str], path: Path) -> None:
    import duckdb

    try:
        with tempfile.TemporaryDirectory() as folder, duckdb.connect() as database:
            lines = Path(folder) / "rows.jsonl"
            with lines.open("w", encoding="utf-8") as file:
                for row in rows:
                    infinite = {name: None for name in _INFINITE if not math.isfinite(row.get(name, 0.0))}
                    file.write(json.dumps({**row, **infinite}, ensure_ascii=False) + "\n")
            database.execute("SET threads = 1")  # rows stay in order, and the same rows give the same file
            source = database.read_json(glob.escape(str(lines)), columns=dict(columns), format="newline_delimited")
            with write_aside(path) as aside:
                source.write_parquet(str(aside))
    except (OSError, duckdb.Error) as error:
        raise CannotWrite(f"{path} cannot be written: {str(error).splitlines()[0]}") from error
