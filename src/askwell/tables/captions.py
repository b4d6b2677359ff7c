"""What must stand below a table: of which facts, among which answers, averaged how, over which seeds."""

from collections.abc import Iterable, Sequence

from askwell.tables.group import Average, RunGroup
from askwell.tables.kinds import how_of
from askwell.tables.lines import Line

AVERAGES: dict[Average, str] = {
    "micro": "Micro average: the mean over all facts.",
    "macro": "Macro average: the mean of the relations' means.",
}
FILTERED = "Other right answers for the same x are passed over in all ranks."


def caption_of(what: str, groups: Sequence[RunGroup], average: Average | None = "micro", *, spread: bool = True) -> str:
    """The caption of a table whose cells are these groups; `spread` says whether it shows deviations over seeds."""
    sentences = [
        what,
        _facts(groups),
        f"Ranked among {'; '.join(_vocabularies(groups))}. {FILTERED}",
        AVERAGES[average] if average is not None else "",
        _seeds(groups, spread=spread),
        _trained_unlike(groups),
    ]
    return " ".join(sentence for sentence in sentences if sentence)


def groups_of(lines: Iterable[Line], kinds: Iterable[str]) -> list[RunGroup]:
    """The groups of the cells that a table shows."""
    shown = tuple(kinds)
    return [line.groups[kind] for line in lines for kind in shown if kind in line.groups]


def of_how_many(group: RunGroup, groups: Sequence[RunGroup]) -> str:
    """A cell's own number of relations, where it has fewer than others of its table."""
    most = max(len(other.relations) for other in groups)
    return "" if len(group.relations) == most else f"{len(group.relations)} of {most} relations"


def _facts(groups: Sequence[RunGroup]) -> str:
    sets = sorted({run.fact_set for group in groups for run in group.runs})
    relations = {relation for group in groups for relation in group.relations}
    asked = _span([group.facts for group in groups])
    left_out = _span([group.left_out for group in groups])
    return (
        f"Facts: {', '.join(sets)}, {len(relations)} relation{'s' if len(relations) != 1 else ''}; {asked} test facts "
        f"asked, {left_out} left out{' (by row and column)' if ' to ' in asked + left_out else ''}."
    )


def _vocabularies(groups: Sequence[RunGroup]) -> list[str]:
    return list(dict.fromkeys(run.vocabulary for group in groups for run in group.runs))


def _seeds(groups: Sequence[RunGroup], *, spread: bool) -> str:
    seeds = sorted({seed for group in groups for seed in group.outcome_seeds})
    listed = f"Seed {seeds[0]}." if len(seeds) == 1 else f"Seeds {', '.join(map(str, seeds))}."
    several = sorted({len(group.seeds) for group in groups if len(group.seeds) > 1})
    if several:
        listed += " A figure is the mean over its seeds"
        listed += ", ± their standard deviation" if spread else ""
        listed += f", where there are several ({_listed(several)})."
    if any(len(group.seeds) < len(runs) for group in groups for runs in group.by_relation.values()):
        listed += " Some relations have more seeds than others: a relation counts by its own mean."
    return listed


def _trained_unlike(groups: Sequence[RunGroup]) -> str:
    """In what the tuned runs of a table differ, beside what its rows and columns say."""
    hows = [how_of(run.spec) for group in groups for run in group.runs if run.spec.training is not None]
    told = []
    for field in dict.fromkeys(field for how in hows for field in how):
        values = list(dict.fromkeys(how.get(field) for how in hows))
        if len(values) > 1:
            told.append(f"{field} {', '.join('default' if value is None else str(value) for value in values)}")
    return f"Not all were tuned alike: {'; '.join(told)}." if told else ""


def _span(numbers: Sequence[int]) -> str:
    low, high = min(numbers), max(numbers)
    return str(low) if low == high else f"{low} to {high}"


def _listed(numbers: Sequence[int]) -> str:
    return " or ".join(map(str, numbers))
