"""Made-up figures of a demo."""

from askwell.data.facts import Fact
from askwell.views.demo_runs import METHODS
from askwell.views.told import MOST_FREQUENT, ToldFigures


def facts_of(relation: str, kind: str, count: int) -> list[Fact]:
    return [Fact(f"{relation} {kind} {number}", "y") for number in range(count)]


def figures(
    right: dict[str, dict[str, tuple[int, int]]], counts: dict[str, tuple[int, int]], others: tuple[int, int] = (0, 0)
) -> ToldFigures:
    """Of each relation's told and withheld facts that many are right, the first ones; other methods get `others`."""
    answered = {}
    for method in (*(method.name for method in METHODS), MOST_FREQUENT):
        answered[method] = {}
        for relation, of_kinds in counts.items():
            hits = right.get(method, {}).get(relation, others)
            answered[method][relation] = {
                fact: number < hit
                for kind, count, hit in zip(("told", "withheld"), of_kinds, hits, strict=True)
                for number, fact in enumerate(facts_of(relation, kind, count))
            }
    told = {relation: frozenset(facts_of(relation, "told", of_kinds[0])) for relation, of_kinds in counts.items()}
    return ToldFigures(answered, told)
