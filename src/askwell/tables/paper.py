"""The paper's own figures, from a file that is no part of askwell."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from askwell.data_folder import data_folder
from askwell.errors import BadFile
from askwell.tables.fact_sets import CONCEPTNET, is_distinct_y, paper_name
from askwell.tables.kinds import ARROWS, INIT, SOFT, VECTORS, WEIGHTS
from askwell.tables.lines import Line
from askwell.text_file import read_text

FILE = "paper_tables.json"
_SETS = ("trex_original", "trex_extended", "google_re", "conceptnet")
_ABLATION, _DISTINCT = "ablation: bert-large-cased, trex_original, mined", "distinct_y: trex_original, mined"
_ABLATION_ROWS = {INIT: "baseline", WEIGHTS: "mixture weights only", VECTORS: "token vectors only", SOFT: "both"}


@dataclass(frozen=True)
class Paper:
    """The paper's tables."""

    tables: dict[str, Any]

    def score(self, line: Line, tuned: str, metric: str) -> float | None:
        """The paper's figure for a cell, where LM, facts and source of prompts are the same."""
        fact_set, source = paper_name(line.fact_set), paper_source(line.source)
        if fact_set is None or source is None or not line.is_plain or tuned not in ARROWS:
            return None
        lm = base_name(line.lm)
        if isinstance(self._at(fact_set, lm, source, metric), dict):
            return self._number(fact_set, lm, source, metric, tuned)
        # Google-RE and ConceptNet have one figure for the tuned prompts, and none for where each started.
        if tuned == SOFT:
            return self._number(fact_set, lm, source, metric)
        if tuned == INIT and source != "soft-ran":
            plain = "lama" if source == "soft-sin" or fact_set == CONCEPTNET else "lpaqa"
            return self._number(fact_set, lm, plain, metric)
        return None

    def ablation(self, line: Line, tuned: str, metric: str) -> float | None:
        """The paper's figure for a row of the ablation."""
        of_paper = (base_name(line.lm), line.fact_set, paper_source(line.source))
        if of_paper != ("bert-large-cased", "trex_original", "soft-min") or not line.is_plain:
            return None
        return self._number(_ABLATION, _ABLATION_ROWS.get(tuned, ""), metric)

    def distinct_y(self, line: Line, tuned: str, metric: str) -> float | None:
        """The paper's figure on facts whose splits share no y."""
        if not is_distinct_y(line.fact_set) or paper_source(line.source) != "soft-min" or not line.is_plain:
            return None
        row = {INIT: "lpaqa", SOFT: "soft"}.get(tuned, "")
        return self._number(_DISTINCT, base_name(line.lm), row, metric)

    def effective_prompts(self, line: Line, figure: str) -> float | None:
        """Mean, std, min or max of the effective number of prompts."""
        source, fact_set = paper_source(line.source), paper_name(line.fact_set)
        if source is None or fact_set is None or not line.is_plain:
            return None
        return self._number("effective_prompts", f"{fact_set}-{source.removeprefix('soft-')}", figure)

    def pairs_a_relation(self, fact_set: str) -> float | None:
        """How many facts a relation of the set has on average, all splits together."""
        return self._number("relation_statistics", paper_name(fact_set) or "", "mean_pairs")

    def _number(self, *keys: str) -> float | None:
        found = self._at(*keys)
        return found if isinstance(found, float) else None

    def _at(self, *keys: str) -> Any:
        found: Any = self.tables
        for key in keys:
            found = found.get(key) if isinstance(found, dict) else None
        return found


def base_name(lm: str) -> str:
    """An LM's name without who published it."""
    return lm.rpartition("/")[2]


def paper_source(source: str) -> str | None:
    """The paper's name for prompts of a source."""
    if source.startswith("random"):
        return "soft-ran"
    return {"single": "soft-sin", "manual": "soft-sin", "mined": "soft-min", "paraphrased": "soft-par"}.get(source)


def read_paper(file: Path | None) -> Paper | None:
    """The tables of a file; if none is named, of one that lies in the data folder or beside it; else None."""
    if file is None:
        data = data_folder(None)
        places = [] if data is None else [data / FILE, data.resolve().parent / FILE]
        file = next((place for place in places if place.is_file()), None)
    return None if file is None else _read(file)


def _read(file: Path) -> Paper:
    try:
        tables = json.loads(read_text(file), parse_int=float)
    except ValueError as error:
        raise BadFile(file, f"this is no JSON ({error})") from None
    if not isinstance(tables, dict) or not any(isinstance(tables.get(name), dict) for name in _SETS):
        raise BadFile(file, f"these are not the paper's tables: none of {', '.join(_SETS)} is an object in it")
    wrong = next((name for name, table in tables.items() if not _is_table(table)), None)
    if wrong is not None:
        raise BadFile(file, f"{wrong}: an object whose leaves are numbers or null was expected")
    return Paper(tables)


def _is_table(table: Any) -> bool:
    if isinstance(table, dict):
        return all(value is None or isinstance(value, int | float) or _is_table(value) for value in table.values())
    return False
