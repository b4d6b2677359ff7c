"""What the demo runs: which relations are asked, and in which ways.

The plainest prior: always giving the y that is most frequent among the training facts, without asking the LM.

Does the runs of a plan, and keeps each in its folder when it is whole.
"""

import hashlib
import json
import random
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import torch

from askwell.data.facts import Fact, Relation
from askwell.data.templates import Template
from askwell.data.testbed import PREFIX, testbed_prompts, testbed_relation
from askwell.errors import BadOption, DamagedFile
from askwell.evaluation.evaluate import evaluate
from askwell.evaluation.outcomes import Outcome, read_outcomes, write_outcomes
from askwell.files import to_json, write_whole
from askwell.lms.frozen import FrozenLM
from askwell.lms.load import load_lm
from askwell.mixture.description import About
from askwell.mixture.encode import count_reasons, encode_facts
from askwell.mixture.mixture import Mixture
from askwell.mixture.save import load_mixture, save_mixture
from askwell.report.drawing import Chart
from askwell.report.words import look_at
from askwell.report.words_figure import words_chart
from askwell.specs.mixture import MixtureSpec
from askwell.specs.training import TrainingSpec
from askwell.training.checkpoint import CHECKPOINT
from askwell.training.loop import train
from askwell.version import VERSION

RELATIONS = ("capital", "country_of_city", "currency", "language")
"""Asked if none are named: of each cardinality, with enough facts."""
QUICK_RELATIONS = ("capital",)
THREADS = 1
"""The testbed's LMs are too small to gain from more, and so the figures are the same on every machine."""
DEV_FACTS, TEST_FACTS = 45, 600
"""At most so many are drawn: few enough dev facts to score them often, for a curve, and to be done in minutes."""


@dataclass(frozen=True)
class Method:
    """A way to ask."""

    name: str
    label: str
    """In tables and charts."""
    phrase: str
    """In a sentence."""
    prompts: tuple[str, ...]
    """Kinds of the testbed's prompts."""
    spec: MixtureSpec
    tuned: bool
    note: str
    """What it is, for those who have not read the paper."""


MANUAL = Method(
    "manual", "manual", "the hand-written prompt", ("single",), MixtureSpec(), tuned=False,
    note="one hand-written prompt, which is not in the text",
)  # fmt: skip
PARAPHRASED = Method(
    "paraphrased", "paraphrased", "the paraphrased prompts", ("paraphrased",), MixtureSpec(), tuned=False,
    note="paraphrases with equal weights, which are not in the text",
)  # fmt: skip
MINED = Method(
    "mined", "mined", "the mined prompts", ("mined",), MixtureSpec(weights="file"), tuned=False,
    note="mined from the text itself, with the miner's weights",
)  # fmt: skip
SINGLE = Method(
    "soft-single", "single", "one soft prompt", ("single",), MixtureSpec(), tuned=True,
    note="the hand-written prompt, tuned",
)  # fmt: skip
MIXTURE = Method(
    "soft-mixture", "mixture", "the mixture of soft prompts", ("single", "paraphrased"), MixtureSpec(), tuned=True,
    note="the hand-written prompt and the paraphrases, tuned together with their weights",
)  # fmt: skip
DEEP = Method(
    "deep-mixture", "deep mixture", "the deep mixture", ("single", "paraphrased"), MixtureSpec(deep=True), tuned=True,
    note="the same, tuned at all layers of the LM",
)  # fmt: skip
RANDOM = Method(
    "random-mixture", "mixture from random", "the mixture that began at random", ("single", "paraphrased"),
    MixtureSpec(initial="random"), tuned=True, note="the same places, but random vectors instead of the words",
)  # fmt: skip

METHODS = (MANUAL, PARAPHRASED, MINED, SINGLE, MIXTURE, DEEP, RANDOM)


@dataclass(frozen=True)
class Run:
    """One way to ask one relation."""

    relation: str
    method: Method
    seed: int

    @property
    def templates(self) -> list[Template]:
        """The prompts that it starts from."""
        return [template for kind in self.method.prompts for template in testbed_prompts(kind, self.relation)]

    @property
    def facts(self) -> Relation:
        """The facts that are tuned on and asked."""
        return sampled(testbed_relation(self.relation), self.seed)

    @property
    def mixture_spec(self) -> MixtureSpec:
        """How they are put together."""
        return self.method.spec.model_copy(update={"seed": self.seed})

    def description(self, lm: dict[str, Any]) -> dict[str, Any]:
        """All that decides what comes out; `lm` says which LM it is."""
        return {
            "askwell": VERSION,
            "lm": lm,
            "relation": self.relation,
            "facts": self.facts.digest,
            "prompts": [[template.text, template.weight] for template in self.templates],
            "mixture": self.mixture_spec.model_dump(),
            "training": TrainingSpec().model_dump() if self.method.tuned else None,
            "threads": THREADS,
        }

    def folder_name(self, lm: dict[str, Any]) -> str:
        """The name of its folder: what it is, and the hash of all that decides what comes out."""
        described = json.dumps(self.description(lm), sort_keys=True)
        return f"{self.relation}-{self.method.name}-{hashlib.sha256(described.encode()).hexdigest()[:12]}"


@dataclass(frozen=True)
class Plan:
    """All runs of a demo, those of one relation after each other."""

    lm: str
    relations: tuple[str, ...]
    seed: int

    @property
    def runs(self) -> tuple[Run, ...]:
        """In the order in which they are done."""
        return tuple(Run(relation, method, self.seed) for relation in self.relations for method in METHODS)


def plan_demo(lm: str, relations: list[str] | None, *, seed: int, quick: bool) -> Plan:
    """The plan for these choices; what cannot be is refused before any work."""
    if not lm.startswith(PREFIX):
        raise BadOption(
            f"--lm {lm}: the demo holds answers against what the LM was told, so it needs one of the testbed's LMs, "
            f"e.g. {PREFIX}bert"
        )
    if quick and relations:
        raise BadOption("--quick asks one relation of its own; leave out --quick or --relations")
    if seed < 0:
        raise BadOption(f"--seed {seed}: a seed is 0 or more")
    names = [name.removeprefix(PREFIX) for name in relations or (QUICK_RELATIONS if quick else RELATIONS)]
    for name in names:
        testbed_relation(name)
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise BadOption(f"--relations names {', '.join(repeated)} twice")
    return Plan(lm, tuple(names), seed)


def sampled(relation: Relation, seed: int) -> Relation:
    """The relation with a sample of its dev and test facts, so that they can be asked quickly.

    Where an x has several golds all are kept: ranks would else miss some.
    """
    if relation.counts.several_golds:
        return relation
    dev, test = (
        random.Random(seed).sample(facts, min(most, len(facts)))
        for facts, most in ((relation.dev, DEV_FACTS), (relation.test, TEST_FACTS))
    )
    return Relation.of(relation.name, relation.train, dev, test)


def ys_by_frequency(facts: Iterable[Fact]) -> tuple[str, ...]:
    """The ys of facts, the most frequent first."""
    counts = Counter(fact.y for fact in facts)
    return tuple(sorted(counts, key=lambda y: (-counts[y], y)))


def answered_by_frequency(
    ys: Sequence[str], golds: Mapping[str, Sequence[str]], facts: Iterable[Fact]
) -> dict[Fact, bool]:
    """Whether the first of the ys is right for each fact; other golds of its x are passed over, as in all ranks."""
    hits = {}
    for fact in facts:
        others = set(golds[fact.x]) - {fact.y}
        hits[fact] = next((y for y in ys if y not in others), None) == fact.y
    return hits


RUNS, RESULT, PER_FACT, SAVED = "runs", "result.json", "facts.parquet", "mixture"


@dataclass(frozen=True)
class RunResult:
    """What came out of a run."""

    run: Run
    folder: Path
    outcomes: tuple[Outcome, ...]
    """What was made of each test fact."""
    left_out: dict[str, int]
    """Test facts that could not be asked, by reason."""
    vocabulary: str
    history: tuple[dict[str, Any], ...]
    """Dev scores while it was tuned; empty for hard prompts."""
    best_round: int | None
    prompts: int
    effective_prompts: float
    train_ys: tuple[str, ...]
    """The ys of the training facts that could be asked, the most frequent first."""

    @property
    def drawing(self) -> Chart:
        """The soft prompts in words."""
        title = f"{self.run.method.label} of soft prompts for {self.run.relation}"
        return words_chart(look_at(load_mixture(self.folder / SAVED)), title, heading=False)


@dataclass(frozen=True)
class Step:
    """Where the demo stands."""

    number: int
    """Of the run, counted from 1."""
    runs: int
    run: Run
    share: float
    """How much of the run is done, from 0 to 1."""
    result: RunResult | None = None
    """When the run is whole."""
    was_there: bool = False
    """Whether it was found whole from an earlier time."""


def run_demo(plan: Plan, out: Path, progress: Callable[[Step], None] | None = None) -> list[RunResult]:
    """The results of all runs of a plan. What an earlier, interrupted demo has left in the folder is not done again."""
    tell = progress or (lambda _step: None)
    lm = load_lm(plan.lm, device="cpu")
    results = []
    with _threads(THREADS):
        for number, run in enumerate(plan.runs, 1):
            folder = out / RUNS / run.folder_name(_identity(lm))
            was_there = (folder / RESULT).exists()
            if not was_there:

                def move(share: float, number: int = number, run: Run = run) -> None:
                    tell(Step(number, len(plan.runs), run, share))

                move(0.0)
                _do(run, lm, folder, move)
            result = read_result(run, folder)
            results.append(result)
            tell(Step(number, len(plan.runs), run, 1.0, result, was_there))
    return results


def read_result(run: Run, folder: Path) -> RunResult:
    """The result of a whole run."""
    path = folder / RESULT
    try:
        kept = json.loads(path.read_text(encoding="utf-8"))
        return RunResult(
            run=run,
            folder=folder,
            outcomes=tuple(read_outcomes(folder / PER_FACT)),
            left_out=kept["left_out"],
            vocabulary=kept["vocabulary"],
            history=tuple(kept["history"]),
            best_round=kept["best_round"],
            prompts=kept["prompts"],
            effective_prompts=kept["effective_prompts"],
            train_ys=tuple(kept["train_ys"]),
        )
    except (ValueError, KeyError, TypeError, OSError, duckdb.Error) as error:
        raise DamagedFile(
            f"{path} or a file beside it is damaged ({error}); remove {folder} and start again"
        ) from error


def _do(run: Run, lm: FrozenLM, folder: Path, move: Callable[[float], None]) -> None:
    """Does a run, and writes its result last: a folder with a result is whole."""
    relation = run.facts
    mixture = Mixture(lm, run.templates, run.mixture_spec)
    tuning = 0.8 if run.method.tuned else 0.0  # about the share of a run's time
    result, history, best_round = None, (), None
    if run.method.tuned:
        folder.mkdir(parents=True, exist_ok=True)
        result = train(
            mixture,
            relation,
            folder=folder,
            resume=True,
            progress=lambda state: move(tuning * state.pairs_done / max(1, state.pairs)),
        )
        history, best_round = tuple(line.as_json() for line in result.history), result.best.round
    evaluation = evaluate(
        mixture, relation, progress=lambda done, total: move(tuning + (1 - tuning) * done / max(1, total))
    )
    write_outcomes(evaluation.outcomes, folder / PER_FACT)
    if result is not None:
        about = About(learned_from=result.learned_from(relation), scores={"dev": result.dev_scores})
        save_mixture(mixture, folder / SAVED, about=about)
    kept = {
        "run": run.description(_identity(lm)),
        "figures": to_json(evaluation.figures()),
        "left_out": count_reasons(evaluation.left_out),
        "vocabulary": evaluation.vocabulary,
        "history": list(history),
        "best_round": best_round,
        "prompts": len(mixture.prompts),
        "effective_prompts": mixture.effective_prompts,
        "train_ys": ys_by_frequency(encode_facts(mixture, relation.train)[0].facts),
    }
    write_whole(folder / RESULT, json.dumps(kept, ensure_ascii=False, indent=1) + "\n")
    (folder / CHECKPOINT).unlink(missing_ok=True)


def _identity(lm: FrozenLM) -> dict[str, Any]:
    return {**lm.identity.model_dump(mode="json"), "runs": [str(lm.dtype), lm.device.type]}


@contextmanager
def _threads(count: int) -> Generator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
