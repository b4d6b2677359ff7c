"""The demo: a sweep over relations of the built-in testbed, and the figures and questions made from its runs.

`demo_page.py` writes its report.
"""

import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from askwell.data.facts import Fact
from askwell.data.testbed import PREFIX, lm_folder, testbed_relation, told
from askwell.errors import BadOption
from askwell.evaluation.outcomes import Outcome
from askwell.mixture.encode import encode_facts, encode_relation
from askwell.mixture.mixture import Mixture
from askwell.mixture.save import load_mixture
from askwell.runs.plan import Plan
from askwell.runs.store import Store
from askwell.specs.sweep_spec import SweepSpec
from askwell.views.study_cells import KeptRun, kept_runs
from askwell.views.study_rows import read_texts
from askwell.views.told import FACT_KINDS, MANUAL, MIXTURE, MOST_FREQUENT, FactKind, ToldFigures

_DEMO = read_texts("demo.toml")
SWEEP, TEXTS, _QUICK = _DEMO["sweep"], _DEMO["texts"], _DEMO["quick"]
RELATIONS, QUICK_RELATIONS = tuple(_DEMO["relations"]), tuple(_QUICK["relations"])


@dataclass(frozen=True)
class Method:
    """A way to ask: prompts and a setting of the sweep."""

    name: str
    prompts: str
    setting: str
    label: str
    """In tables and charts."""
    note: str
    """What it is, for readers who do not know the paper."""

    @property
    def tuned(self) -> bool:
        """Whether its prompts are soft."""
        return SWEEP["settings"][self.setting].get("tuned", True)


METHODS = tuple(Method(**method) for method in _DEMO["methods"])
QUICK_METHODS = tuple(method for method in METHODS if method.name in _QUICK["methods"])


def demo_sweep(lm: str, names: Sequence[str] | None = None, *, seed: int = 0, quick: bool = False) -> SweepSpec:
    """The sweep for these choices; invalid ones are refused before any work is done."""
    if not lm.startswith(PREFIX):
        raise BadOption(
            f"--lm {lm}: the demo compares answers with what the LM was told, so it needs one of the testbed's LMs, "
            f"e.g. {PREFIX}bert"
        )
    lm_folder(lm)  # refuses an LM that does not exist
    if quick and names:
        raise BadOption("--quick chooses its own relation; leave out --quick or --relations")
    if seed < 0:
        raise BadOption(f"--seed {seed}: a seed cannot be negative")
    bare = [name.removeprefix(PREFIX) for name in names or (QUICK_RELATIONS if quick else RELATIONS)]
    for name in bare:
        testbed_relation(name)
    if repeated := sorted({name for name in bare if bare.count(name) > 1}):
        raise BadOption(f"--relations names {', '.join(repeated)} twice")
    chosen = {"lms": [{"source": lm}], "facts": [PREFIX + name for name in bare], "seeds": [seed], "facts_seed": seed}
    if quick:
        asked_with = {method.setting for method in QUICK_METHODS}
        settings = {name: setting for name, setting in SWEEP["settings"].items() if name in asked_with}
        chosen |= _QUICK["sweep"] | {"settings": settings}
    return SweepSpec.model_validate(SWEEP | chosen)


@dataclass(frozen=True)
class DemoRuns:
    """The finished runs of a demo."""

    runs: Mapping[tuple[str, str], KeptRun]
    """By relation and method."""

    @property
    def methods(self) -> tuple[Method, ...]:
        """The methods that were run."""
        names = {name for _, name in self.runs}
        return tuple(method for method in METHODS if method.name in names)

    @property
    def relations(self) -> tuple[str, ...]:
        """The names of the relations."""
        return tuple(dict.fromkeys(relation for relation, _ in self.runs))

    def of(self, method: str) -> dict[str, KeptRun]:
        """The runs of a method, by relation."""
        return {relation: run for (relation, name), run in self.runs.items() if name == method}

    def figures(self) -> ToldFigures:
        """What each method, and the most frequent y of train, gets right of the facts that all of them were asked."""
        right: dict[str, dict[str, dict[Fact, bool]]] = {}
        for (relation, method), run in self.runs.items():
            right.setdefault(method, {})[relation] = {Fact(o.x, o.y): o.rank <= 1 for o in run.test}
        for relation in self.relations:
            everywhere = frozenset.intersection(*(frozenset(of[relation]) for of in right.values()))
            for of in right.values():
                of[relation] = {fact: hit for fact, hit in of[relation].items() if fact in everywhere}
        right[MOST_FREQUENT] = {
            relation: most_frequent_right(self._train_ys(relation), testbed_relation(relation).golds, facts)
            for relation, facts in right[MIXTURE].items()
        }
        return ToldFigures(
            right,
            {relation: told(relation) for relation in self.relations},
            {relation: self._of_several_tokens(relation, right[MIXTURE][relation]) for relation in self.relations},
        )

    def _train_ys(self, relation: str) -> list[str]:
        """The ys of the train facts that the LM can be asked."""
        encoded = encode_relation(self._mixtures[relation], testbed_relation(relation))
        return [fact.y for fact in encoded.split("train").facts]

    def _of_several_tokens(self, relation: str, facts: Iterable[Fact]) -> frozenset[Fact]:
        """Those of the facts whose y is not one token of the LM."""
        encoded, _ = encode_facts(self._mixtures[relation], facts)
        of_one = (encoded.answers >= 0).tolist()
        return frozenset(fact for fact, is_one in zip(encoded.facts, of_one, strict=True) if not is_one)

    @cached_property
    def _mixtures(self) -> dict[str, Mixture]:
        """The tuned mixture of each relation, all on one LM."""
        mixtures: dict[str, Mixture] = {}
        for relation, run in self.of(MIXTURE).items():
            lm = next(iter(mixtures.values())).lm if mixtures else None
            mixtures[relation] = load_mixture(run.mixture or "", lm)
        return mixtures


def most_frequent_right(
    train_ys: Iterable[str], golds: Mapping[str, Sequence[str]], facts: Iterable[Fact]
) -> dict[Fact, bool]:
    """Whether the most frequent y is right for each fact; other golds of its x are skipped, as in all ranks."""
    counts = Counter(train_ys)
    ys = sorted(counts, key=lambda y: (-counts[y], y))
    return {fact: next((y for y in ys if y == fact.y or y not in golds[fact.x]), None) == fact.y for fact in facts}


def demo_runs(plan: Plan, store: Store) -> DemoRuns:
    """The runs of the demo's plan, in the order of the relations and then of the methods."""
    by_cell = {(task.spec.relation, task.spec.prompts, task.spec.setting): task.spec.id for task in plan.runs}
    asked = dict.fromkeys(task.spec.relation for task in plan.runs)
    cells = [
        (name, method) for name in asked for method in METHODS if (name, method.prompts, method.setting) in by_cell
    ]
    runs = kept_runs([store.read(by_cell[relation, of.prompts, of.setting]) for relation, of in cells])
    names = [(relation.removeprefix(PREFIX), method.name) for relation, method in cells]
    return DemoRuns(dict(zip(names, runs, strict=True)))


_QUESTIONS: Mapping[FactKind, int] = {"told": 3, "withheld": 2}
"""How many are drawn for each relation."""


@dataclass(frozen=True)
class ShownAnswer:
    """The most probable answer to a question."""

    text: str
    probability: float
    right: bool


@dataclass(frozen=True)
class ShownQuestion:
    """An x, and what the hand-written prompt and the tuned mixture answer."""

    relation: str
    x: str
    golds: tuple[str, ...]
    kind: FactKind
    hard: ShownAnswer
    soft: ShownAnswer


def draw_questions(done: DemoRuns, seed: int) -> list[ShownQuestion]:
    """A few questions for each relation, drawn at random from x's whose golds are all told or all withheld."""
    questions = []
    for relation in done.relations:
        hard, soft = ({o.x: o for o in done.runs[relation, method].test} for method in (MANUAL, MIXTURE))
        are_told = {x: {Fact(x, gold) in told(relation) for gold in hard[x].golds} for x in hard.keys() & soft.keys()}
        for kind in FACT_KINDS:
            xs = sorted(x for x, found in are_told.items() if found == {kind == "told"})
            drawn = random.Random(f"{seed} {relation} {kind}").sample(xs, min(len(xs), _QUESTIONS[kind]))
            questions += [
                ShownQuestion(relation, x, hard[x].golds, kind, _answer(hard[x]), _answer(soft[x])) for x in drawn
            ]
    return questions


def _answer(outcome: Outcome) -> ShownAnswer:
    return ShownAnswer(outcome.answers[0], outcome.probabilities[0], outcome.answers[0] in outcome.golds)
