"""The paper's figures, from a file that is not part of askwell, and what to bear in mind when comparing ours."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from askwell.data.data_folder import data_folder
from askwell.errors import BadFile
from askwell.files import read_text
from askwell.views.study_cells import ARROWS, INIT, SOFT, VECTORS, WEIGHTS, KeptRun
from askwell.views.study_rows import Line
from askwell.views.to_html import sentences

FILE = "paper_tables.json"
_SETS = ("trex_original", "trex_extended", "google_re", "conceptnet")
_ABLATION, _DISTINCT = "ablation: bert-large-cased, trex_original, mined", "distinct_y: trex_original, mined"
_ABLATION_ROWS = {INIT: "baseline", WEIGHTS: "mixture weights only", VECTORS: "token vectors only", SOFT: "both"}


@dataclass(frozen=True)
class Paper:
    """The paper's tables."""

    tables: dict[str, Any]

    def score(self, line: Line, tuned: str, metric: str) -> float | None:
        """The paper's figure for a cell, if LM, facts and source of prompts are the same."""
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
            plain = "lama" if source == "soft-sin" or fact_set == "conceptnet" else "lpaqa"
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
        """How many facts the relations of the set have on average, all splits together."""
        return self._number("relation_statistics", paper_name(fact_set) or "", "mean_pairs")

    def _number(self, *keys: str) -> float | None:
        found = self._at(*keys)
        return found if isinstance(found, float) else None

    def _at(self, *keys: str) -> Any:
        found: Any = self.tables
        for key in keys:
            found = found.get(key) if isinstance(found, dict) else None
        return found


def is_distinct_y(fact_set: str) -> bool:
    """Whether the set's name says that it was split so that no y is in two splits."""
    return "distinct" in fact_set


def paper_name(fact_set: str) -> str | None:
    """The name of a set of facts in the paper's tables; None if it is not there."""
    name = {"trex_extend": "trex_extended"}.get(fact_set, fact_set)  # the name of the released folder
    return name if name in _SETS else None


def base_name(lm: str) -> str:
    """An LM's name without its publisher."""
    return lm.rpartition("/")[2]


def paper_source(source: str) -> str | None:
    """The paper's name for prompts of a source."""
    if source.startswith("random"):
        return "soft-ran"
    return {"single": "soft-sin", "manual": "soft-sin", "mined": "soft-min", "paraphrased": "soft-par"}.get(source)


def read_paper(file: Path | None) -> Paper | None:
    """The tables in a file; if none is named, those in or beside the data folder; None if there are none."""
    if file is None:
        data = data_folder(None)
        places = [] if data is None else [data / FILE, data.resolve().parent / FILE]
        file = next((place for place in places if place.is_file()), None)
    if file is None:
        return None
    try:
        tables = json.loads(read_text(file), parse_int=float)
    except ValueError as error:
        raise BadFile(file, f"this is not JSON ({error})") from None
    if not isinstance(tables, dict) or not any(isinstance(tables.get(name), dict) for name in _SETS):
        raise BadFile(file, f"these are not the paper's tables: none of {', '.join(_SETS)} is an object in it")
    wrong = next((name for name, table in tables.items() if not _is_table(table)), None)
    if wrong is not None:
        raise BadFile(file, f"{wrong}: an object whose leaves are numbers or null was expected")
    return Paper(tables)


def _is_table(table: Any) -> bool:
    return isinstance(table, dict) and all(
        value is None or isinstance(value, int | float) or _is_table(value) for value in table.values()
    )


# A relation's count may differ a little from the paper's, e.g. by repeated lines.
_NEARLY = 0.97


def differences(runs: Sequence[KeptRun], paper: Paper) -> tuple[str, ...]:
    """Sentences on what to bear in mind when comparing these runs with the paper's figures."""
    trained = {(run.spec.training.recipe, run.spec.training.method) for run in runs if run.spec.training is not None}
    samples = []
    for fact_set in sorted({run.fact_set for run in runs}):
        counts = {run.spec.relation: run.record.relation.counts for run in runs if run.fact_set == fact_set}
        ours, theirs = fmean(of.get("read", 0) for of in counts.values()), paper.pairs_a_relation(fact_set)
        if theirs is not None and ours < _NEARLY * theirs:
            samples.append((fact_set, ours, len(counts), theirs))
    told = sentences(
        "paper.txt.jinja",
        several_templates=any(len(run.spec.templates) > 1 for run in runs),
        left_out=sum(run.left_out for run in runs),
        facts=sum(run.facts for run in runs),
        recipes=sorted(trained - {("paper", "em")}),
        candidates=sorted({run.spec.candidates for run in runs if run.spec.candidates}),
        samples=samples,
    )
    return tuple(told)
