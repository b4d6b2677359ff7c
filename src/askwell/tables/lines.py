"""The rows that all tables share: an LM, asked on a set of facts with prompts of one source in one way.

Runs that differ in anything but relation and seed never come together in one cell: what the kinds do not tell apart
gets a row of its own, named by its settings or by what differs.
"""

import hashlib
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from askwell.tables.group import RunGroup
from askwell.tables.kept import KeptRun
from askwell.tables.kinds import EM, INIT, Kind, how_of, kind_of, source_of

_FIRST_SOURCES = ("single", "manual", "mined", "paraphrased")


@dataclass(frozen=True)
class Line:
    """A row: its runs by what was tuned (init, soft, deep, …)."""

    lm: str
    fact_set: str
    source: str
    extras: tuple[str, ...]
    apart: str
    """What tells it from a row that is otherwise the same; empty if there is none."""
    groups: Mapping[str, RunGroup]

    @property
    def label(self) -> str:
        """The row's heading."""
        named = ", ".join([self.source, *self.extras])
        return f"{named} [{self.apart}]" if self.apart else named

    @property
    def is_plain(self) -> bool:
        """Whether it is told by its source alone."""
        return not self.extras and not self.apart


@dataclass(frozen=True)
class _Key:
    fact_set: str
    lm: str
    source: str
    extras: tuple[str, ...]
    apart: tuple[str, ...]


def lines_of(runs: Sequence[KeptRun]) -> list[Line]:
    """All rows, by set of facts, LM and source."""
    rows: dict[_Key, dict[str, list[KeptRun]]] = defaultdict(lambda: defaultdict(list))
    key_of = _Keys(runs)
    for run in runs:
        kind = kind_of(run.spec)
        rows[key_of(run, kind)][kind.tuned].append(run)
    found = []
    for key in sorted(rows, key=_place):
        kinds = rows[key]
        # What is followed in training does not matter to what it starts from.
        plain = rows.get(_Key(key.fact_set, key.lm, key.source, tuple(e for e in key.extras if e != EM), key.apart), {})
        untuned = _split([(INIT, run) for run in kinds.get(INIT) or plain.get(INIT, [])])
        tuned = _split([(kind, run) for kind, group in kinds.items() if kind != INIT for run in group])
        common = untuned[0][1] if len(untuned) == 1 else {}
        for apart, groups in tuned or ([("", {})] if common else []):
            found.append(_line(key, apart, {**common, **groups}))
        if len(untuned) > 1:
            found += [_line(key, apart, groups) for apart, groups in untuned]
    return found


def _line(key: _Key, apart: str, groups: Mapping[str, Sequence[KeptRun]]) -> Line:
    told = "; ".join([*key.apart, *([apart] if apart else [])])
    return Line(
        key.lm, key.fact_set, key.source, key.extras, told, {kind: RunGroup(tuple(r)) for kind, r in groups.items()}
    )


def _place(key: _Key) -> tuple[Any, ...]:
    known = _FIRST_SOURCES.index(key.source) if key.source in _FIRST_SOURCES else len(_FIRST_SOURCES)
    return key.fact_set, key.lm, known, key.source, key.extras, key.apart


class _Keys:
    """Finds the row of a run, and tells rows apart that are on other data under the same names."""

    def __init__(self, runs: Sequence[KeptRun]) -> None:
        self._lms = _numbered(runs, lambda run: run.spec.lm, lambda run: run.spec.lm_sha256)
        self._facts = _numbered(runs, lambda run: run.spec.relation, lambda run: run.spec.facts_sha256)
        self._prompts = _numbered(
            runs, lambda run: (run.spec.relation, run.spec.lm, run.spec.prompts), lambda run: _templates(run)
        )
        self._candidates = {(run.fact_set, run.spec.lm, run.spec.candidates_sha256) for run in runs}

    def __call__(self, run: KeptRun, kind: Kind) -> _Key:
        spec, apart = run.spec, []
        lm = spec.lm if not self._lms(run) else f"{spec.lm} (another of that name, {spec.lm_sha256[:6]})"
        if number := self._facts(run):
            apart.append(f"other facts, {number + 1}")
        if number := self._prompts(run):
            apart.append(f"other templates, {number + 1}")
        vocabularies = [key for key in self._candidates if key[:2] == (run.fact_set, spec.lm)]
        if len(vocabularies) > 1:
            apart.append(f"among {spec.candidates}" if spec.candidates else "among all answers")
        return _Key(run.fact_set, lm, source_of(spec), kind.extras, tuple(apart))


def _numbered(
    runs: Iterable[KeptRun], within: Callable[[KeptRun], Hashable], value: Callable[[KeptRun], str]
) -> Callable[[KeptRun], int]:
    """Which of the values under one name a run has: 0 for the one with most facts, then prompts."""
    sizes: dict[Hashable, dict[str, tuple[int, int]]] = defaultdict(dict)
    for run in runs:
        size = (run.facts + run.left_out, len(run.spec.templates))
        sizes[within(run)][value(run)] = max(size, sizes[within(run)].get(value(run), size))
    orders = {
        name: sorted(found, key=lambda one, found=found: (-found[one][0], -found[one][1], one))
        for name, found in sizes.items()
    }
    return lambda run: orders[within(run)].index(value(run))


def _templates(run: KeptRun) -> str:
    told = "\n".join(f"{prompt.template}\t{prompt.weight}" for prompt in run.spec.templates)
    return hashlib.sha256(told.encode()).hexdigest()


def _split(runs: Sequence[tuple[str, KeptRun]]) -> list[tuple[str, dict[str, list[KeptRun]]]]:
    """The runs of a row in as many parts as were done in different ways, each with what it is called."""
    hows = {_flat(how_of(run.spec)) for _, run in runs}
    by_kind: dict[str, set[Any]] = defaultdict(set)
    for kind, run in runs:
        by_kind[kind].add(_flat(how_of(run.spec)))
    keep_names = not _one_each(runs, lambda run: _flat(how_of(run.spec)))
    if all(len(ways) == 1 for ways in by_kind.values()) and not keep_names:
        return [("", _kinds(runs))] if runs else []
    parts: dict[Any, list[tuple[str, KeptRun]]] = defaultdict(list)
    for kind, run in runs:
        parts[_flat(how_of(run.spec)), run.spec.setting if keep_names else ""].append((kind, run))
    names = {part: " / ".join(sorted({run.spec.setting for _, run in inside})) for part, inside in parts.items()}
    differing = sorted({field for field, _ in set().union(*hows) - set.intersection(*map(set, hows))})
    told = {
        part: name if list(names.values()).count(name) == 1 else f"{name}: {_fields(dict(part[0]), differing)}"
        for part, name in names.items()
    }
    return [(told[part], _kinds(parts[part])) for part in sorted(parts, key=lambda part: told[part])]


def _one_each(runs: Sequence[tuple[str, KeptRun]], way: Callable[[KeptRun], Hashable]) -> bool:
    """Whether each kind has one run a relation and seed, once ways are told apart."""
    keys = [(kind, way(run), run.spec.relation, run.spec.seed) for kind, run in runs]
    return len(keys) == len(set(keys))


def _kinds(runs: Iterable[tuple[str, KeptRun]]) -> dict[str, list[KeptRun]]:
    kinds: dict[str, list[KeptRun]] = defaultdict(list)
    for kind, run in runs:
        kinds[kind].append(run)
    return dict(kinds)


def _flat(how: Mapping[str, Any]) -> frozenset[tuple[str, Any]]:
    return frozenset(how.items())


def _fields(how: Mapping[str, Any], names: Sequence[str]) -> str:
    return ", ".join(f"{name} {how[name]}" for name in names if how.get(name) is not None)
