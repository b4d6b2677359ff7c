"""What the demo runs: which relations are asked, and in which ways."""

import hashlib
import json
import random
from dataclasses import dataclass
from typing import Any

from askwell.errors import BadOption
from askwell.facts import Relation
from askwell.prompts import Template
from askwell.specs import MixtureSpec, TrainingSpec
from askwell.testbed.world import PREFIX, testbed_prompts, testbed_relation
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
