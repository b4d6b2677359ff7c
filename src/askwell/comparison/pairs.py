"""Which outcome of one run belongs to which of the other."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from askwell.errors import BadOption, UserMistake
from askwell.evaluation.evaluate import Outcome

Unit = Literal["fact", "x", "y"]
"""What the tests take as one independent thing: a fact, all facts of an x, or all facts of a y (of one relation)."""

Outcomes = Sequence[Outcome] | Mapping[int, Sequence[Outcome]]
"""The outcomes of one run, or of one run for each seed."""


@dataclass(frozen=True)
class Pair:
    """One fact as both runs answered it, with the same seed."""

    a: Outcome
    b: Outcome

    @property
    def fact(self) -> tuple[str, str, str]:
        """Relation, x and y."""
        return self.a.relation, self.a.x, self.a.y

    def unit(self, unit: Unit) -> tuple[str, ...]:
        """What the pair is one thing with. Lines that repeat a fact, and a fact's seeds, always stay together."""
        match unit:
            case "fact":
                return self.fact
            case "x":
                return self.a.relation, self.a.x
            case "y":
                return self.a.relation, self.a.y
        raise BadOption(f"there is no unit {unit!r}: choose one of fact, x, y")


@dataclass(frozen=True)
class Paired:
    """The pairs of two runs, sorted by fact, and how many outcomes have no partner."""

    pairs: tuple[Pair, ...]
    seeds: tuple[int, ...]
    """The seeds that were paired; empty if neither side has several."""
    only_a: int
    only_b: int


def pair_outcomes(a: Outcomes, b: Outcomes) -> Paired:
    """Pairs the same facts and, where both sides have several seeds, the same seeds.

    A side without seeds (a baseline that has none) stands beside every seed of the other. A fact that stands n times
    in one run and m times in the other makes min(n, m) pairs.
    """
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        seeds = sorted(a.keys() & b.keys())
        if not seeds:
            raise UserMistake(
                f"no seed was run on both sides: A has {_listed(a)}, B has {_listed(b)}; name runs of the same seeds"
            )
    else:
        seeds = sorted(a if isinstance(a, Mapping) else b if isinstance(b, Mapping) else ())
    pairs, only_a, only_b = [], 0, 0
    for seed in seeds or [None]:
        in_a, in_b = _numbered(a, seed), _numbered(b, seed)
        shared = in_a.keys() & in_b.keys()
        pairs += [(key, Pair(in_a[key], in_b[key])) for key in shared]
        only_a, only_b = only_a + len(in_a) - len(shared), only_b + len(in_b) - len(shared)
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        only_a += sum(len(a[seed]) for seed in a.keys() - b.keys())
        only_b += sum(len(b[seed]) for seed in b.keys() - a.keys())
    if not pairs:
        raise UserMistake(
            f"the two runs have no fact in common: A has {only_a} facts of {_relations(a)}, B {only_b} of "
            f"{_relations(b)}; compare runs on the same relation and split"
        )
    pairs.sort(key=lambda numbered: numbered[0])  # so that the order of rows in a file changes no random draw
    return Paired(tuple(pair for _, pair in pairs), tuple(seeds), only_a, only_b)


def _numbered(outcomes: Outcomes, seed: int | None) -> dict[tuple[str, str, str, int], Outcome]:
    """Outcomes by fact, the n-th line of a repeated fact under the number n."""
    chosen = outcomes[seed] if isinstance(outcomes, Mapping) and seed is not None else outcomes
    times: Counter[tuple[str, str, str]] = Counter()
    numbered = {}
    for outcome in chosen:
        if not isinstance(outcome, Outcome):
            raise TypeError(f"an Outcome was expected, not {type(outcome).__name__}; seeds go into a mapping")
        fact = (outcome.relation, outcome.x, outcome.y)
        numbered[*fact, times[fact]] = outcome
        times[fact] += 1
    return numbered


def _relations(outcomes: Outcomes) -> str:
    runs = outcomes.values() if isinstance(outcomes, Mapping) else [outcomes]
    names = sorted({outcome.relation for run in runs for outcome in run})
    return ", ".join(names[:3]) + (", …" if len(names) > 3 else "") or "no relation"


def _listed(seeds: Mapping[int, object]) -> str:
    return ", ".join(map(str, sorted(seeds))) or "none"
