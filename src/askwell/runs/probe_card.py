"""What an LM knows, counted from the runs of a probe: by relation, in all, in parts, and beside other LMs.

Of two tuned settings, each relation's is the one that is better on dev, so that its test score is not a choice.
Means are macro: every relation counts the same. Scores and tests are over all seeds; what is said of single facts is
said of the first. Where a search was cut, a score has two bounds.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import fmean
from typing import Any

from askwell.errors import Failure
from askwell.evaluation.comparison import Difference, compare
from askwell.evaluation.metrics import mean_of_known
from askwell.evaluation.outcomes import Outcome
from askwell.evaluation.scoring import WORDS, label_of, parted
from askwell.evaluation.significance import wilson_interval
from askwell.files import to_json
from askwell.runs.probe_plan import EXAMPLES, HARD, SETTINGS, TUNED, SettingName
from askwell.runs.probe_results import ProbedFact, ProbedRun

CONFIDENT = 0.5
"""The probability from which an answer counts as confident: more than all others together."""
_SHOWN = 12
_EDGES = (1, 5, 20)
FREQUENCIES = ("never in train", "1–4 times", "5–19 times", "20 times or more")
LENGTHS = ("1 word", "2 words", "3 words or more")


@dataclass(frozen=True)
class AskedRelation:
    """What an LM answers of one relation; P@1 in per cent, as a mean over seeds."""

    relation: str
    label: str
    kind: str | None
    facts: int
    scores: dict[str, float]
    """By setting."""
    at_least: dict[str, float]
    """By setting: the score if every fact whose search was cut has a better answer."""
    bits: dict[str, float | None]
    """By setting: bits of the right answer beyond the best control."""
    tuned: str
    """The tuned setting that is better on dev."""
    low: float
    """The ends of Wilson's 95 % interval of the tuned score."""
    high: float
    control: float
    """P@1 of the control that is best on dev."""
    control_name: str | None

    @property
    def tuned_score(self) -> float:
        """P@1 of the tuned prompts."""
        return self.scores[self.tuned]


@dataclass(frozen=True)
class Part:
    """P@1 on some facts of all relations together, as a mean over facts."""

    name: str
    facts: int
    hard: float
    examples: float
    tuned: float
    control: float


@dataclass(frozen=True)
class FactToRead:
    """A fact, and what was answered."""

    relation: str
    x: str
    y: str
    hard: str
    """The answer to the hard prompt."""
    tuned: str
    """The answer to the tuned prompts."""
    probability: float
    """Of the latter."""


@dataclass(frozen=True)
class LMCard:
    """What one LM knows."""

    lm: str
    lm_sha256: str
    relations: tuple[AskedRelation, ...]
    """Sorted by the tuned score, the best first."""
    facts: int
    left_out: int
    unsettled: dict[str, int]
    """By setting: facts that count as right because the search was cut before a better answer was found."""
    scores: dict[str, float]
    """The mean over relations, by setting."""
    at_least: dict[str, float]
    """By setting: the mean if every fact whose search was cut has a better answer."""
    bits: dict[str, float | None]
    by_seed: dict[str, tuple[float, ...]]
    """The mean over relations with each seed, for settings that have several on all relations."""
    tuned: float
    control: float
    over_control: Difference
    """Tuned minus the best control, the mean over relations."""
    over_hard: Difference
    over_examples: Difference
    brought_out: int
    """Facts that neither the hard prompt nor the control has right, and the tuned prompts have."""
    brought_out_by_examples: int
    """Those of them that the examples have right, too."""
    brought_out_facts: tuple[FactToRead, ...]
    confident: int
    """Tuned answers with a probability of at least 0.5."""
    confident_wrong: int
    confident_wrong_facts: tuple[FactToRead, ...]
    parts: dict[str, tuple[Part, ...]]
    """By kind of relation, by how often y occurs in train, by the length of y."""
    seconds: float
    """Of all runs, each on one core."""
    missing: tuple[str, ...]
    """Relations of the plan that lack a setting, and are not counted."""

    @property
    def is_knowledge(self) -> bool:
        """Whether the gain over the control is there: with few units, the interval alone is overconfident."""
        return self.over_control.low is not None and self.over_control.low > 0 and self.over_control.is_clear


@dataclass(frozen=True)
class LMPair:
    """Two LMs on the facts that both answered, with their tuned prompts; the mean over relations."""

    a: str
    b: str
    facts: int
    relations: int
    difference: Difference


@dataclass(frozen=True)
class Card:
    """A knowledge card."""

    lms: tuple[LMCard, ...]
    pairs: tuple[LMPair, ...]

    def as_json(self) -> dict[str, Any]:
        """Return all figures as plain JSON."""
        return to_json(self)


_Of = Mapping[str, list[ProbedRun]]
"""The runs of an LM and a relation by setting, the first seed first."""


def card_of(
    runs: Iterable[ProbedRun],
    planned: Sequence[str],
    lms: Sequence[str],
    settings: Sequence[SettingName] = SETTINGS,
) -> Card:
    """Count what the runs of some settings found, on the planned relations that have them all."""
    by_lm: dict[str, dict[str, dict[str, list[ProbedRun]]]] = {lm: {} for lm in lms}
    for run in sorted(runs, key=lambda run: run.seed):
        if run.lm in by_lm and run.relation in planned and run.setting in settings:
            by_lm[run.lm].setdefault(run.relation, {}).setdefault(run.setting, []).append(run)
    cards: list[LMCard] = []
    tuned: dict[str, dict[int, list[Outcome]]] = {}
    for lm, relations in by_lm.items():
        whole = {name: of for name, of in relations.items() if {*of} >= {*settings} and _have_facts(of)}
        if not whole:
            raise Failure(f"no relation has all its runs on {lm} yet, so there is no card; the same command goes on")
        tuned[lm] = _tuned_by_seed(whole)
        cards.append(_of_lm(lm, whole, tuned[lm], tuple(name for name in planned if name not in whole)))
    return Card(tuple(cards), tuple(_pair(a, b, tuned) for a, b in combinations(by_lm, 2)))


def _have_facts(of: _Of) -> bool:
    return all(run.facts for runs in of.values() for run in runs)


def _first(of: _Of, setting: str) -> ProbedRun:
    return of[setting][0]


def _best_on_dev(of: _Of) -> str:
    return max((name for name in TUNED if name in of), key=lambda name: fmean(run.dev or 0.0 for run in of[name]))


def _control_of(of: _Of) -> ProbedRun:
    """Return the run whose best control is the best on dev of all settings: priors differ from prompt to prompt."""
    return max((runs[0] for runs in of.values()), key=lambda run: run.control_dev or 0.0)


def _tuned_by_seed(relations: Mapping[str, _Of]) -> dict[int, list[Outcome]]:
    """Return the outcomes of the tuned prompts of all relations, for each seed."""
    found: dict[int, list[Outcome]] = {}
    for of in relations.values():
        for run in of[_best_on_dev(of)]:
            found.setdefault(run.seed, []).extend(run.outcomes())
    return found


def _pair(a: str, b: str, tuned: Mapping[str, Mapping[int, list[Outcome]]]) -> LMPair:
    found = compare(tuned[a], tuned[b], unit="y")
    of_a, of_b = ({(one.relation, one.x, one.y) for of in tuned[lm].values() for one in of} for lm in (a, b))
    return LMPair(a, b, len(of_a & of_b), len(found.relations), found.macro)


def _of_lm(
    lm: str, relations: Mapping[str, _Of], tuned: Mapping[int, list[Outcome]], missing: tuple[str, ...]
) -> LMCard:
    asked = sorted((_relation(of) for of in relations.values()), key=lambda one: (-one.tuned_score, one.relation))
    every = [run for of in relations.values() for runs in of.values() for run in runs]
    facts = [fact for of in relations.values() for fact in _facts(of)]
    brought_out = [fact for fact in facts if fact.tuned.is_first and not (fact.hard.is_first or fact.by_control)]
    brought_out.sort(key=lambda fact: -fact.tuned.probability)
    # Another right answer of x may be more probable, which does not count as an error, but would look like one.
    to_show = [fact for fact in brought_out if fact.tuned.answer == fact.tuned.y]
    confident = [fact for fact in facts if fact.tuned.probability >= CONFIDENT]
    wrong = sorted((fact for fact in confident if not fact.tuned.is_right), key=lambda fact: -fact.tuned.probability)

    def over(others: Callable[[_Of], list[Outcome]]) -> Difference:
        return compare(tuned, [one for of in relations.values() for one in others(of)], unit="y").macro

    return LMCard(
        lm=lm,
        lm_sha256=every[0].lm_sha256,
        relations=tuple(asked),
        facts=len(facts),
        left_out=sum(_first(of, HARD).left_out for of in relations.values()),
        unsettled={name: sum(_first(of, name).unsettled for of in relations.values()) for name in asked[0].scores},
        scores={name: fmean(one.scores[name] for one in asked) for name in asked[0].scores},
        at_least={name: fmean(one.at_least[name] for one in asked) for name in asked[0].at_least},
        bits={name: mean_of_known([one.bits[name] for one in asked]) for name in asked[0].bits},
        by_seed=_by_seed(relations),
        tuned=fmean(one.tuned_score for one in asked),
        control=fmean(one.control for one in asked),
        over_control=over(lambda of: _control_of(of).outcomes(of_control=True)),
        over_hard=over(lambda of: _first(of, HARD).outcomes()),
        over_examples=over(lambda of: _first(of, EXAMPLES).outcomes()),
        brought_out=len(brought_out),
        brought_out_by_examples=sum(fact.examples.is_first for fact in brought_out),
        brought_out_facts=tuple(fact.to_read for fact in _of_many_relations(to_show)),
        confident=len(confident),
        confident_wrong=len(wrong),
        confident_wrong_facts=tuple(fact.to_read for fact in _of_many_relations(wrong)),
        parts=_parts(facts),
        seconds=round(sum(run.seconds for run in every), 1),
        missing=missing,
    )


def _relation(of: _Of) -> AskedRelation:
    chosen, first = _best_on_dev(of), _first(of, HARD)
    control, run = _control_of(of), _first(of, chosen)
    right = sum(fact.is_first for fact in run.facts)
    low, high = wilson_interval(right, len(run.facts))
    return AskedRelation(
        relation=first.relation,
        label=first.label,
        kind=first.kind,
        facts=len(run.facts),
        scores={name: fmean(run.p_at_1 for run in of[name]) for name in SETTINGS if name in of},
        at_least={name: fmean(run.p_at_1_at_least for run in of[name]) for name in SETTINGS if name in of},
        bits={name: mean_of_known([run.bits for run in of[name]]) for name in SETTINGS if name in of},
        tuned=chosen,
        low=100 * low,
        high=100 * high,
        control=100 * sum(fact.by_control for fact in control.facts) / len(control.facts),
        control_name=control.control,
    )


def _by_seed(relations: Mapping[str, _Of]) -> dict[str, tuple[float, ...]]:
    several = {}
    for name in (name for name in TUNED if all(name in of for of in relations.values())):
        seeds = set.intersection(*({run.seed for run in of[name]} for of in relations.values()))
        if len(seeds) > 1:
            scores = {(run.seed, run.relation): run.p_at_1 for of in relations.values() for run in of[name]}
            several[name] = tuple(fmean(scores[seed, relation] for relation in relations) for seed in sorted(seeds))
    return several


@dataclass(frozen=True)
class _Asked:
    """A fact as three settings and the control answered it."""

    label: str
    kind: str | None
    hard: ProbedFact
    examples: ProbedFact
    tuned: ProbedFact
    by_control: bool

    @property
    def to_read(self) -> FactToRead:
        tuned = self.tuned
        return FactToRead(self.label, tuned.x, tuned.y, self.hard.answer, tuned.answer, tuned.probability)


def _facts(of: _Of) -> list[_Asked]:
    """Return the facts that all settings answered, in the order of the tuned prompts."""
    tuned, control = _first(of, _best_on_dev(of)), {(one.x, one.y): one for one in _control_of(of).facts}
    hard, examples = ({(one.x, one.y): one for one in _first(of, name).facts} for name in (HARD, EXAMPLES))
    asked = []
    for fact in tuned.facts:
        key = (fact.x, fact.y)
        if key in hard and key in examples and key in control:
            by_control = control[key].by_control
            asked.append(_Asked(tuned.label, tuned.kind, hard[key], examples[key], fact, by_control))
    return asked


def _of_many_relations(asked: Sequence[_Asked]) -> list[_Asked]:
    """Return the first of each relation, then the second, and so on, so that no relation fills a list."""
    seen: dict[str, int] = {}
    numbered = []
    for place, fact in enumerate(asked):
        numbered.append((seen.setdefault(fact.label, 0), place, fact))
        seen[fact.label] += 1
    return [fact for _, _, fact in sorted(numbered, key=lambda one: one[:2])[:_SHOWN]]


def _parts(asked: Sequence[_Asked]) -> dict[str, tuple[Part, ...]]:
    by_frequency = parted(asked, lambda one: label_of(one.tuned.train_lines, _EDGES, FREQUENCIES), FREQUENCIES)
    by_length = parted(asked, lambda one: label_of(len(one.tuned.y.split()), WORDS[:2], LENGTHS), LENGTHS)
    parts = {
        "kind of relation": parted(asked, lambda one: one.kind),
        "frequency of the answer": by_frequency,
        "length of the answer": by_length,
    }
    return {what: tuple(_part(name, of) for name, of in groups.items()) for what, groups in parts.items() if groups}


def _part(name: str, asked: Sequence[_Asked]) -> Part:
    def share(is_right: Callable[[_Asked], bool]) -> float:
        return 100 * sum(map(is_right, asked)) / len(asked)

    return Part(
        name,
        len(asked),
        share(lambda fact: fact.hard.is_first),
        share(lambda fact: fact.examples.is_first),
        share(lambda fact: fact.tuned.is_first),
        share(lambda fact: fact.by_control),
    )
