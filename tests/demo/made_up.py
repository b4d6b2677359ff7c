"""Made-up figures, histories and results of a demo."""

from pathlib import Path

from askwell.data.facts import Fact
from askwell.demo.findings import PRIOR, Figures
from askwell.demo.results import METHODS, MIXTURE, Run, RunResult


def facts_of(relation: str, kind: str, count: int) -> list[Fact]:
    return [Fact(f"{relation} {kind} {number}", "y") for number in range(count)]


def figures(
    right: dict[str, dict[str, tuple[int, int]]], counts: dict[str, tuple[int, int]], others: tuple[int, int] = (0, 0)
) -> Figures:
    """Of each relation's told and withheld facts the first so many are right; methods not named get `others` right."""
    answered = {}
    for method in (*(method.name for method in METHODS), PRIOR):
        answered[method] = {}
        for relation, of_kinds in counts.items():
            hits = right.get(method, {}).get(relation, others)
            answered[method][relation] = {
                fact: number < hit
                for kind, count, hit in zip(("told", "withheld"), of_kinds, hits, strict=True)
                for number, fact in enumerate(facts_of(relation, kind, count))
            }
    told = {relation: frozenset(facts_of(relation, "told", of_kinds[0])) for relation, of_kinds in counts.items()}
    return Figures(answered, told, dict.fromkeys(counts, 0))


def tuned(relation: str, *scores: tuple[int, float]) -> RunResult:
    """A mixture with such a history of (pairs, dev P@1)."""
    history = tuple(
        {"round": number, "pairs": pairs, "dev": {"P@1": score, "log_loss": 1.0}}
        for number, (pairs, score) in enumerate(scores)
    )
    return RunResult(Run(relation, MIXTURE, 0), Path(), (), {}, "", history, 0, 1, 1.0, ())
