"""What the testbeds' LMs find of every candidate answer to every fact, for estimates.py.

    python studies/asked_matrices.py     # does what is not in build/estimates yet

For each LM, relation and way of asking, a file holds log p(y | x, r) of all one-token ys of the relation for each test
and dev fact whose y is one token, what was answered, and how probable the controls find it.
"""

import argparse
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from askwell import Mixture, MixtureSpec, load_lm, train
from askwell.answers.encode import EncodedFacts
from askwell.answers.listed import ListedAnswers, ListedPrior, combine
from askwell.data.facts import Fact, Relation
from askwell.data.split import sample
from askwell.data.testbed import lm_names, testbed_prompts, testbed_relation, told_facts
from askwell.evaluation.knowledge import priors_of
from askwell.lms.frozen import FrozenLM
from askwell.prompts.weights import certainty_of

KEPT = Path(__file__).parents[1] / "build" / "estimates"
MOST = {"train": 300, "dev": None, "test": 200}
"""Facts of a relation that are used, at most."""
MINED = {"testbed:": 6, "testbed2:": 16}
"""Mined prompts that are used: on the first testbed, few find all."""
CHOSEN_ON = {
    "testbed:": ("dialling_code", "country_of_region", "neighbour", "continent"),
    "testbed2:": ("realm", "goods", "teacher", "berth"),
}
"""Relations by which an estimate is chosen; no figure of the reported table is from them."""
REPORTED = {
    "testbed:": ("capital", "currency", "language", "country_of_airport", "state_of_county"),
    "testbed2:": ("birthplace", "deathplace", "founder", "heir", "mark", "trade", "warden"),
}
WAYS: dict[str, tuple[str, MixtureSpec, dict[str, Any]]] = {
    "certainty": (
        "mined",
        MixtureSpec(answers="one-token", weighting="certainty"),
        {"tune_vectors": False, "fit_weights": False},
    ),
    "one": ("single", MixtureSpec(answers="one-token"), {}),
    "mixture": ("mined", MixtureSpec(answers="one-token", weighting="static"), {}),
}
"""For each way of asking its prompts, their spec, and how they are tuned."""


def relations_of(way: str) -> Sequence[Mapping[str, Sequence[str]]]:
    """Return the relations that are asked in a way: those to choose by, only in the first."""
    return (CHOSEN_ON, REPORTED) if way == next(iter(WAYS)) else (REPORTED,)


def relation_of(name: str) -> Relation:
    """Return a relation, with some of its facts drawn if there are many."""
    return sample(testbed_relation(name), **MOST, seed=0)


def tuned(lm: FrozenLM, relation: Relation, way: str) -> Mixture:
    """Return the tuned prompts of a way of asking."""
    kind, spec, training = WAYS[way]
    templates = testbed_prompts(kind, relation.name)[: MINED[relation.name.partition(":")[0] + ":"]]
    mixture = Mixture(lm, templates, spec, relation=relation)
    train(mixture, relation, threads=1, progress=False, **training)
    return mixture


class Cell:
    """How the facts of a relation are asked with a mixture, and what is kept of the answers."""

    def __init__(self, mixture: Mixture, relation: Relation) -> None:
        self.mixture, self.relation = mixture, relation
        self.facts = mixture.encode_relation(relation)
        answers = mixture.answering(None, self.facts.kind)
        if not isinstance(answers, ListedAnswers):
            raise TypeError("answers must be listed")
        self.answers = answers
        ys = sorted({fact.y for split in relation.splits.values() for fact in split})
        self.numbers = {y: n for y, n in zip(ys, answers.numbers_of(ys), strict=True) if n is not None}
        self.columns = torch.tensor(list(self.numbers.values()))
        self.priors = {
            name: prior.log_probs
            for name, prior in priors_of(answers, relation)[0].items()
            if isinstance(prior, ListedPrior)
        }

    @torch.no_grad()
    def asked(self, facts: EncodedFacts, rows: Tensor) -> dict[str, Any]:
        """Return what is kept of some facts: a row for each, in every column."""
        each = self.answers.by_prompt(facts.xs, rows)
        evidence = certainty_of(each) if self.mixture.weighting.reads == "answers" else None
        log_weights = self.mixture.log_weights_for(facts.xs, rows, evidence)
        log_probs = combine(self.mixture, each, log_weights)
        equal = combine(self.mixture, each, torch.zeros_like(log_weights).log_softmax(1))
        best, best_of_prompts = log_probs.max(1), each.argmax(2)
        some = [facts.facts[row] for row in rows.tolist()]
        found: dict[str, Any] = {"x": [fact.x for fact in some], "y": [fact.y for fact in some]}
        found |= {"log p mixture": log_probs[:, self.columns], "log p equal": equal[:, self.columns]}
        found |= {"p best": best.values.exp(), "best by prompt": best_of_prompts, "log weights": log_weights}
        found["agreement"] = (log_weights.exp() * (best_of_prompts == best.indices[:, None])).sum(1)
        for name, of_prior in self.priors.items():
            ranked = self.answers.rankings(of_prior.expand(len(some), -1), some, self.relation.golds)
            found |= {f"{name} of best": of_prior[best.indices].exp(), f"rank {name}": [one.rank for one in ranked]}
        return found

    def kept(self) -> dict[str, np.ndarray]:
        """Return all that is kept."""
        parts: dict[str, list[Any]] = {}
        for split in ("test", "dev"):
            facts = self.facts.split(split)
            for rows in facts.rows.split(50):
                for name, part in (self.asked(facts, rows) | {"split": [split] * len(rows)}).items():
                    parts.setdefault(name, []).extend(part.numpy() if isinstance(part, Tensor) else part)
        kept = {name: np.array(part) for name, part in parts.items()}
        kept["golds"] = np.array(["\t".join(self.relation.golds[str(x)]) for x in kept["x"]])
        return kept | {"candidates": np.array(list(self.numbers)), "numbers": self.columns.numpy()}


def measure(lm: FrozenLM, lm_name: str, name: str, way: str) -> None:
    """Ask an LM about a relation, and keep what it finds."""
    began, relation, told = time.process_time(), relation_of(name), told_facts(name)
    mixture = tuned(lm, relation, way)
    trained = time.process_time() - began
    kept = Cell(mixture, relation).kept()
    kept["told"] = np.array([Fact(str(x), str(y)) in told for x, y in zip(kept["x"], kept["y"], strict=True)])
    kept["seconds"] = np.array([trained, time.process_time() - began])
    KEPT.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(path_of(lm_name, name, way), allow_pickle=False, **kept)
    print(lm_name, name, way, kept["seconds"].round(1), flush=True)


def path_of(lm_name: str, name: str, way: str) -> Path:
    """Return the file of a cell."""
    return KEPT / f"{lm_name}-{name.partition(':')[2]}-{way}.npz".replace(":", "-")


def main() -> None:
    """Do what is missing."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ways", nargs="+", default=list(WAYS))
    ways = parser.parse_args().ways
    torch.set_num_threads(1)
    for way in ways:
        for names in relations_of(way):
            for prefix in names:
                for bare in lm_names(prefix):
                    lm = load_lm(prefix + bare)
                    for name in (prefix + one for one in names[prefix]):
                        if not path_of(prefix + bare, name, way).exists():
                            measure(lm, prefix + bare, name, way)


if __name__ == "__main__":
    main()
