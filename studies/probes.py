"""Do tuned prompts rank right answers above wrong ones as well as a linear probe does? K in docs/findings/estimates.md.

    python studies/probes.py     # after asked_matrices.py; does what is not in results/probes.jsonl yet

K of a fact is the share of the relation's other ys that are less probable than y. The probe reads the LM's last hidden
state before y, under the manual prompt or as a mean over the mined ones, and scores y by a linear map of it times y's
output vector, alone or beside what the LM says by hand. The map is a logistic regression among the ys on train facts;
prompts and penalty are chosen on dev.
"""

import time
from typing import Any

import numpy as np
import torch
from asked_matrices import MINED, path_of, relation_of
from lines import RESULTS, append_line, read_lines
from torch import Tensor

from askwell import Mixture, load_lm
from askwell.answers.encode import EncodedFacts
from askwell.answers.listed import ListedAnswers
from askwell.data.facts import Fact, Relation
from askwell.data.testbed import lm_names, prefix_and_name, testbed_prompts, told_facts
from askwell.lms.batches import PLACES
from askwell.lms.frozen import FrozenLM

LINES = RESULTS / "probes.jsonl"
RELATIONS = {
    "testbed:": ("capital", "currency", "country_of_airport", "state_of_county"),
    "testbed2:": ("mark", "birthplace", "trade", "warden"),
}
PENALTIES = (1e-4, 1e-3, 1e-2, 1e-1, 1.0)
ASKED = {"one": {"one soft prompt": "log p mixture"}, "mixture": {"soft mixture": "log p mixture"}} | {
    "certainty": {"mined, by hand": "log p equal", "mined, weighed by certainty": "log p mixture"}
}
"""The scores that asked_matrices.py has kept, by way of asking."""


def wins(scores: Tensor, golds: list[list[int]], ys: list[int]) -> list[float]:
    """Return K of each fact: how many wrong ys have a lower score than y, half for ties."""
    found = []
    for of_fact, right, y in zip(scores, golds, ys, strict=True):
        wrong = torch.ones(len(of_fact), dtype=torch.bool)
        wrong[right] = False
        less, same = (of_fact[wrong] < of_fact[y]).sum(), (of_fact[wrong] == of_fact[y]).sum()
        found.append(float(less + same / 2) / int(wrong.sum()))
    return found


@torch.no_grad()
def states(mixture: Mixture, facts: EncodedFacts) -> Tensor:
    """Return the mean over prompts of what the LM's head reads before y, for each fact."""
    tuned, lm = mixture.tuned, mixture.lm
    total: Tensor | None = None
    for prompt in range(len(mixture.prompts)):
        prompts = torch.full_like(facts.rows, prompt)
        parts, order = [], []
        for chosen, batch in mixture.pairs.sentences(tuned, mixture.pairs.y_table, facts.xs, facts.rows, prompts):
            parts.append(lm.hidden_and_kept(batch, tuned.vectors, tuned.deltas, keeps=False)[0])
            order.append(chosen)
        read = torch.cat(parts)[torch.cat(order).argsort()]
        total = read if total is None else total + read
    if total is None:
        raise ValueError("there is no prompt")
    return total / len(mixture.prompts)


def fit(hidden: Tensor, ys: Tensor, vectors: Tensor, penalty: float, scores: Tensor) -> Tensor:
    """Return the map W under which e(y)·W h, added to given scores, is highest for the right y, with an L2 penalty."""
    weights = torch.zeros(vectors.shape[1], hidden.shape[1], requires_grad=True)
    optimiser = torch.optim.LBFGS([weights], max_iter=100, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimiser.zero_grad()
        value = torch.nn.functional.cross_entropy(scores + hidden @ weights.T @ vectors.T, ys)
        value = value + penalty * weights.square().sum()
        value.backward()
        return value

    optimiser.step(loss)
    return weights.detach()


class Asked:
    """A relation's one-token facts, and its ys as numbers."""

    def __init__(self, lm: FrozenLM, relation: Relation, kind: str) -> None:
        templates = testbed_prompts(kind, relation.name)[: MINED[prefix_and_name(relation.name)[0]]]
        self.mixture = Mixture(lm, templates, answers="one-token", relation=relation)
        encoded = self.mixture.encode_relation(relation)
        answers = self.mixture.answering(None, encoded.kind)
        if not isinstance(answers, ListedAnswers):
            raise TypeError("answers must be listed")
        self.answers, self.facts = answers, {split: encoded.split(split) for split in ("train", "dev", "test")}
        ys = sorted({fact.y for split in relation.splits.values() for fact in split})
        numbered = {y: n for y, n in zip(ys, answers.numbers_of(ys), strict=True) if n is not None}
        self.place, self.numbers = {y: at for at, y in enumerate(numbered)}, torch.tensor(list(numbered.values()))
        self.golds = relation.golds
        words = self.mixture.token_words
        tokens = words.tokens[PLACES.index(words.places[0]), self.numbers]
        vectors = lm.model.get_output_embeddings().weight[tokens].detach().float()
        self.vectors = (vectors - vectors.mean(0)) / vectors.std()
        self.hidden = {split: states(self.mixture, facts).float() for split, facts in self.facts.items()}
        mean, deviation = self.hidden["train"].mean(0), self.hidden["train"].std()
        self.hidden = {split: (of - mean) / deviation for split, of in self.hidden.items()}

    def ys(self, split: str) -> list[int]:
        """Return the number of each fact's y."""
        return [self.place[fact.y] for fact in self.facts[split].facts]

    def wins(self, scores: Tensor, split: str) -> list[float]:
        """Return K of each fact of a split."""
        golds = [[self.place[y] for y in self.golds[f.x] if y in self.place] for f in self.facts[split].facts]
        return wins(scores, golds, self.ys(split))

    def by_hand(self, split: str) -> Tensor:
        """Return the log-probabilities of all ys under the prompts as they are."""
        facts = self.facts[split]
        return self.answers.log_probs(facts.xs, facts.rows)[:, self.numbers].float()

    def probe(self, *, beside_lm: bool) -> tuple[float, list[float]]:
        """Return the best mean of K on dev over penalties, and K of each test fact under that probe: by itself, or
        added to what the LM says by hand."""
        best: tuple[float, list[float]] = (-1.0, [])
        given = {split: self.by_hand(split) * beside_lm for split in self.facts}
        ys = torch.tensor(self.ys("train"))
        for penalty in PENALTIES:
            weights = fit(self.hidden["train"], ys, self.vectors, penalty, given["train"])
            of = {split: given[split] + self.hidden[split] @ weights.T @ self.vectors.T for split in given}
            on_dev = float(np.mean(self.wins(of["dev"], "dev")))
            if on_dev > best[0]:
                best = on_dev, self.wins(of["test"], "test")
        return best


def measure(lm: FrozenLM, lm_name: str, name: str) -> None:
    """Compute K of all test facts of a relation in every way, and add the line."""
    began, relation, told = time.process_time(), relation_of(name), told_facts(name)
    manual, mined = (Asked(lm, relation, kind) for kind in ("single", "mined"))
    found: dict[str, list[float]] = {"manual, by hand": manual.wins(manual.by_hand("test"), "test")}
    for way, scores in ASKED.items():
        kept = dict(np.load(path_of(lm_name, name, way)))
        test = kept["split"] == "test"
        facts = [Fact(str(x), str(y)) for x, y in zip(kept["x"][test], kept["y"][test], strict=True)]
        if facts != list(manual.facts["test"].facts) or list(kept["candidates"]) != list(manual.place):
            raise ValueError(f"{path_of(lm_name, name, way)} was asked about other facts")
        for label, key in scores.items():
            found[label] = manual.wins(torch.tensor(kept[key][test]), "test")
    for label, beside in (("linear probe", False), ("linear probe, beside the LM's own scores", True)):
        probes = (manual.probe(beside_lm=beside), mined.probe(beside_lm=beside))
        found[label] = max(probes, key=lambda one: one[0])[1]
    rows = [fact in told for fact in manual.facts["test"].facts]
    line: dict[str, Any] = {"lm": lm_name, "relation": name, "told": "".join(str(int(one)) for one in rows)}
    line["K"] = {way: [round(one, 4) for one in of_way] for way, of_way in found.items()}
    append_line(LINES, line | {"seconds": round(time.process_time() - began, 1)})
    means = {way: round(100 * float(np.mean(np.array(of)[rows])), 1) for way, of in found.items()}
    print(lm_name, name, means, flush=True)


def main() -> None:
    """Do what is missing."""
    torch.set_num_threads(1)
    done = {(line["lm"], line["relation"]) for line in read_lines(LINES)}
    for prefix, names in RELATIONS.items():
        for lm_name in (prefix + one for one in lm_names(prefix)):
            lm = load_lm(lm_name)
            for name in (prefix + one for one in names):
                if (lm_name, name) not in done:
                    measure(lm, lm_name, name)


if __name__ == "__main__":
    main()
