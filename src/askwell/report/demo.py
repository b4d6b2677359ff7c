"""The demo: a sweep over relations of the built-in testbed, and the page made from its runs."""

import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from askwell.data.facts import Fact
from askwell.data.testbed import PREFIX, lm_folder, relations, testbed_relation, told
from askwell.errors import BadOption
from askwell.evaluation.outcomes import Outcome
from askwell.mixture.encode import encode_relation
from askwell.mixture.save import load_mixture
from askwell.report.cells import KeptRun, kept_runs
from askwell.report.charts import Gap, Panel, gaps_chart, panels_chart
from askwell.report.figures import MEASURE, TRAINED, prompt_figures
from askwell.report.page import (
    Cell,
    Code,
    Column,
    ColumnGroup,
    Drawing,
    FigureBlock,
    Key,
    Page,
    Paragraph,
    Points,
    Row,
    Section,
    Table,
)
from askwell.report.rows import headed, one_decimal, ranked_among
from askwell.report.told import (
    DEEP,
    FACT_KINDS,
    MANUAL,
    MINED,
    MIXTURE,
    MOST_FREQUENT,
    PARAPHRASED,
    RANDOM,
    SINGLE,
    FactKind,
    Findings,
    ToldFigures,
)
from askwell.runs.plan import Plan
from askwell.runs.store import Store
from askwell.specs.mixture import MixtureSpec
from askwell.specs.sweep import LMChoice, Setting, SweepSpec
from askwell.version import VERSION

RELATIONS = ("capital", "country_of_city", "currency", "language")
"""The default: relations of every cardinality, with enough facts."""
QUICK_RELATIONS = ("capital",)
DEV_FACTS, TEST_FACTS = 45, 600
"""At most this many are drawn: few enough dev facts to score them often, for a curve, and to finish in minutes."""
_ALL = "manual and paraphrased"
_SETTINGS = {
    "hard": Setting(tuned=False, prompts=("manual", "paraphrased")),
    "mined": Setting(tuned=False, prompts=("mined",), mixture=MixtureSpec(weights="file")),
    "single": Setting(prompts=("manual",)),
    "mixture": Setting(prompts=(_ALL,)),
    "deep": Setting(prompts=(_ALL,), mixture=MixtureSpec(deep=True)),
    "random": Setting(prompts=(_ALL,), mixture=MixtureSpec(initial="random")),
}


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
        return _SETTINGS[self.setting].tuned


METHODS = (
    Method(MANUAL, "manual", "hard", "manual", "one hand-written prompt, which is not in the text"),
    Method(PARAPHRASED, "paraphrased", "hard", "paraphrased", "paraphrases with equal weights, which are not in it"),
    Method(MINED, "mined", "mined", "mined", "mined from the text itself, with the miner's weights"),
    Method(SINGLE, "manual", "single", "single", "the hand-written prompt, tuned"),
    Method(
        MIXTURE, _ALL, "mixture", "mixture", "the hand-written prompt and the paraphrases, tuned with their weights"
    ),
    Method(DEEP, _ALL, "deep", "deep mixture", "the same, tuned at all layers of the LM"),
    Method(RANDOM, _ALL, "random", "mixture from random", "the same, starting from random vectors instead of words"),
)


def demo_sweep(lm: str, names: Sequence[str] | None = None, *, seed: int = 0, quick: bool = False) -> SweepSpec:
    """The sweep for these choices; invalid ones are refused before any work."""
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
    return SweepSpec(
        lms=(LMChoice(source=lm),),
        facts=tuple(PREFIX + name for name in bare),
        prompts={
            "manual": (f"{PREFIX}single",),
            "paraphrased": (f"{PREFIX}paraphrased",),
            "mined": (f"{PREFIX}mined",),
            _ALL: (f"{PREFIX}single", f"{PREFIX}paraphrased"),
        },
        settings=_SETTINGS,
        seeds=(seed,),
        dev_facts=DEV_FACTS,
        test_facts=TEST_FACTS,
        facts_seed=seed,
        threads=1,  # the testbed's LMs are too small to gain from more; with one, figures are the same on every machine
        engine="in-process",
    )


@dataclass(frozen=True)
class DemoRuns:
    """The finished runs of a demo."""

    runs: Mapping[tuple[str, str], KeptRun]
    """By relation and method."""

    @property
    def relations(self) -> tuple[str, ...]:
        """The names of the relations."""
        return tuple(dict.fromkeys(relation for relation, _ in self.runs))

    def of(self, method: str) -> dict[str, KeptRun]:
        """The runs of a method, by relation."""
        return {relation: run for (relation, name), run in self.runs.items() if name == method}

    def figures(self) -> ToldFigures:
        """What each method, and the most frequent y of train, gets right of the facts that all of them were asked."""
        right = {
            method.name: {
                relation: {Fact(outcome.x, outcome.y): outcome.rank <= 1 for outcome in run.test}
                for relation, run in self.of(method.name).items()
            }
            for method in METHODS
        }
        for relation in self.relations:
            everywhere = frozenset.intersection(*(frozenset(of[relation]) for of in right.values()))
            for of in right.values():
                of[relation] = {fact: hit for fact, hit in of[relation].items() if fact in everywhere}
        right[MOST_FREQUENT] = {
            relation: most_frequent_right(self._train_ys(relation), testbed_relation(relation).golds, facts)
            for relation, facts in right[MIXTURE].items()
        }
        return ToldFigures(right, {relation: told(relation) for relation in self.relations})

    def _train_ys(self, relation: str) -> list[str]:
        """The ys of the train facts that the LM can be asked."""
        mixture = load_mixture(self.runs[relation, MIXTURE].mixture or "")
        return [fact.y for fact in encode_relation(mixture, testbed_relation(relation)).split("train").facts]


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
    cells = [(relation, method) for relation in asked for method in METHODS]
    runs = kept_runs([store.read(by_cell[relation, of.prompts, of.setting]) for relation, of in cells])
    names = [(relation.removeprefix(PREFIX), method.name) for relation, method in cells]
    return DemoRuns(dict(zip(names, runs, strict=True)))


_QUESTIONS: Mapping[FactKind, int] = {"told": 3, "withheld": 2}
"""How many are drawn for each relation."""


@dataclass(frozen=True)
class Answer:
    """The most probable answer to a question."""

    text: str
    probability: float
    right: bool


@dataclass(frozen=True)
class Question:
    """An x, and what the hand-written prompt and the tuned mixture answer."""

    relation: str
    x: str
    golds: tuple[str, ...]
    kind: FactKind
    hard: Answer
    soft: Answer


def draw_questions(done: DemoRuns, seed: int) -> list[Question]:
    """A few questions for each relation, drawn at random from x's whose golds are all told or all withheld."""
    questions = []
    for relation in done.relations:
        hard, soft = (
            {outcome.x: outcome for outcome in done.runs[relation, method].test} for method in (MANUAL, MIXTURE)
        )
        for kind in FACT_KINDS:
            xs = sorted(x for x in hard.keys() & soft.keys() if _kinds_of(relation, hard[x]) == {kind})
            drawn = random.Random(f"{seed} {relation} {kind}").sample(xs, min(len(xs), _QUESTIONS[kind]))
            questions += [Question(relation, x, hard[x].golds, kind, _answer(hard[x]), _answer(soft[x])) for x in drawn]
    return questions


def _kinds_of(relation: str, outcome: Outcome) -> set[FactKind]:
    return {"told" if Fact(outcome.x, gold) in told(relation) else "withheld" for gold in outcome.golds}


def _answer(outcome: Outcome) -> Answer:
    return Answer(outcome.answers[0], outcome.probabilities[0], outcome.answers[0] in outcome.golds)


def demo_page(
    sweep: SweepSpec,
    done: DemoRuns,
    figures: ToldFigures,
    findings: Findings,
    questions: Sequence[Question],
    next_steps: Sequence[tuple[str, str]],
) -> Page:
    """The page of a demo."""
    lm, seed = sweep.lms[0].source, sweep.seeds[0]
    asked = _asked(figures, done)
    counts = ", ".join(f"{len(figures.facts(kind))} {kind}" for kind in FACT_KINDS)
    return Page(
        title=f"What does {lm} know, and how should it be asked?",
        lead=(
            "A small language model was trained on a text whose facts are known: it tells most facts of a small world "
            "and withholds the rest. Here the model is asked for both, with hard prompts and with soft ones."
        ),
        about=(("LM", lm), ("Relations", str(len(done.relations))), ("Test facts", counts), ("Seed", str(seed))),
        sections=(
            Section("What was found", (Points(findings.main),)),
            Section("All prompts, all relations", (_table(figures, asked),)),
            Section("Told against withheld", (Points(findings.elicited), _gaps(figures, asked))),
            Section("Learning curves", (*map(Paragraph, findings.learning), _curves(done))),
            Section("Some questions", (_questions(questions, seed),)),
            Section("What the soft prompts look like", _prompts(done)),
            Section("What to try next", (Code(tuple(next_steps)),)),
        ),
        foot=f"Made by askwell {VERSION} with: askwell demo --lm {lm} --relations {' '.join(done.relations)} "
        f"--seed {seed}",
    )


def _table(figures: ToldFigures, asked: str) -> Table:
    about = {relation.name: relation for relation in relations()}
    groups = [
        ColumnGroup(
            name,
            tuple(Column(kind, f"of {len(figures.facts(kind, name))}", kind == "withheld") for kind in FACT_KINDS),
            note=about[name].cardinality,
        )
        for name in figures.relations
    ]
    several = len(figures.relations) > 1
    if several:
        columns = tuple(Column(kind, f"{len(figures.relations)} relations", kind == "withheld") for kind in FACT_KINDS)
        groups.append(ColumnGroup("mean", columns, note="macro"))
    shares = {
        name: [figures.p_at_1(name, relation, kind) for relation in figures.relations for kind in FACT_KINDS]
        + ([figures.macro(name, kind) for kind in FACT_KINDS] if several else [])
        for name in figures.right
    }
    best = [max(share or 0.0 for share in of_all) for of_all in zip(*shares.values(), strict=True)]
    rows = []
    for method in METHODS:
        begins = {MANUAL: "Hard prompts: as they are", SINGLE: "Soft prompts: tuned"}.get(method.name, "")
        cells = [one_decimal(share) for share in shares[method.name]]
        for at in range(0, len(cells), len(FACT_KINDS)):  # of told facts
            cells[at] = replace(cells[at], strong=shares[method.name][at] == best[at])
        rows.append(Row(method.label, tuple(cells), begins=begins, note=method.note))
    cells = tuple(map(one_decimal, shares[MOST_FREQUENT]))
    rows.append(Row("most frequent answer", cells, begins="No LM at all", note="of the training facts", pale=True))
    caption = (
        f"P@1 in per cent: how often the right answer is the most probable one. {asked} Told facts appear in the text "
        "that the LM was trained on; withheld ones appear nowhere in it and follow from nothing in it, so right "
        f"answers to them show what guessing can achieve. {'The mean is that of the relations (macro). ' * several}"
        "The best figure of each column of told facts is bold."
    )
    return Table(caption, "prompts", tuple(groups), tuple(rows))


def _gaps(figures: ToldFigures, asked: str) -> FigureBlock:
    about = {relation.name: relation for relation in relations()}
    drawings = []
    for name in figures.relations:
        labels = {method.name: f"soft {method.label}" if method.tuned else method.label for method in METHODS}
        gaps = [
            Gap(label, *(figures.p_at_1(method, name, kind) for kind in FACT_KINDS), aside=method == MOST_FREQUENT)
            for method, label in (labels | {MOST_FREQUENT: "most frequent answer"}).items()
        ]
        chart = gaps_chart(gaps, first="told", second="withheld", measure="P@1 in per cent")
        note = f"{about[name].label} · {about[name].cardinality}"
        drawings.append(Drawing(f"gaps-{name}", chart, name, note))
    caption = f"P@1 on told and on withheld test facts; the gap between the two is due to the text. {asked}"
    keys = (Key("told in the text", "first", "dot"), Key("withheld from it", "second", "diamond"))
    return FigureBlock(tuple(drawings), caption, keys)


def _curves(done: DemoRuns) -> FigureBlock:
    soft = {method.label: method.name for method in METHODS if method.tuned}
    panels = [
        Panel(relation, {label: done.runs[relation, name].curve for label, name in soft.items()})
        for relation in done.relations
    ]
    caption = (
        "Dev P@1 while the prompts are tuned. The dev facts, told and withheld ones, are held out, so no curve can be "
        "expected to reach 100. The state with the best dev P@1 is kept; among equals, that with the lowest log-loss."
    )
    chart = panels_chart(panels, list(soft), measure=MEASURE, trained=TRAINED)
    return FigureBlock((Drawing("curves", chart),), caption, wide=True)


def _questions(questions: Sequence[Question], seed: int) -> Table:
    rows: list[Row] = []
    for question, begins in headed(questions, lambda question: question.relation):
        cells = [Cell(", ".join(question.golds)), Cell(question.kind)]
        cells += [
            Cell(answer.text, mark="right" if answer.right else "wrong", note=f"{100 * answer.probability:.1f} %")
            for answer in (question.hard, question.soft)
        ]
        rows.append(Row(question.x, tuple(cells), begins=begins))
    caption = (
        f"The most probable answer and its probability. The questions were drawn at random (seed {seed}) from the test "
        "facts, regardless of the answers, among x's whose right answers are all told or all withheld."
    )
    columns = ("right answer", "in the text", "hand-written prompt", "tuned mixture")
    return Table(caption, "x", (ColumnGroup("", tuple(map(Column, columns))),), tuple(rows), numeric=False)


def _prompts(done: DemoRuns) -> tuple[Paragraph | Points | FigureBlock, ...]:
    drawn, problems = prompt_figures(list(done.of(MIXTURE).values()))
    figures = [
        FigureBlock((Drawing(f"prompts-{number}", figure.chart),), figure.caption, wide=True,
                    folded=figure.title if number else "")
        for number, figure in enumerate(drawn)
    ]  # fmt: skip
    lead = (
        "Each row is one soft prompt of the tuned mixture, heaviest first: the word nearest to each tuned vector is "
        "written over the word that it started as, where the two differ. Nearest words are not an explanation."
    )
    return (Paragraph(lead), *figures, *([Points(tuple(problems))] if problems else []))


def _asked(figures: ToldFigures, done: DemoRuns) -> str:
    """Which test facts are counted, among which answers, and why others are not."""
    drawn = f"At most {TEST_FACTS} test facts and {DEV_FACTS} dev facts of a relation are drawn at random."
    text = f"{ranked_among(done.runs.values())} {drawn}"
    asked = {name: sum(len(figures.facts(kind, name)) for kind in FACT_KINDS) for name in figures.relations}
    given = {name: run.facts + run.left_out for name, run in done.of(MIXTURE).items()}
    counts = ", ".join(f"{given[name] - count} of {name}" for name, count in asked.items() if given[name] > count)
    if not counts:
        return f"{text} None is left out."
    reasons = "; ".join(sorted({reason for run in done.runs.values() for reason in run.record.test.left_out}))
    return f"{text} Left out: {counts} ({reasons})."
