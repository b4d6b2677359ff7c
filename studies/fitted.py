"""What fitting the prompts' weights is worth, before anything is tuned, on SmolLM2: in docs/findings/mixtures.md.

    ASKWELL_DATA=DIR python studies/fitted.py    # does what is missing in results/fitted.jsonl, then writes the page

The relations are some of T-REx that no other page reports. Only log-losses are measured: they need no ranks.
"""

from typing import Any

import torch
from lines import RESULTS, append_line, read_lines
from pages import FINDINGS, fill, table

from askwell import Mixture, TrainingSpec, load_lm, load_prompts, load_relation
from askwell.answers.strategy import Answers
from askwell.data.split import sample
from askwell.training.optimiser import choose_tuned, fit_weights

KEPT = RESULTS / "fitted.jsonl"
RELATIONS = ("P1001", "P127", "P279")
FACTS = 100


def log_loss(answers: Answers, encoded: Any) -> float:
    """Return the mean -log p(y | x, r) of facts."""
    with torch.no_grad():
        parts = [answers.likelihood(encoded, rows).total for rows in encoded.rows.split(16)]
    return -float(torch.cat(parts).mean())


def measure(name: str) -> dict[str, Any]:
    """Fit the weights of a relation's mined prompts, and return log-losses of test facts."""
    facts = sample(load_relation(f"trex_original/{name}"), train=FACTS, dev=40, test=FACTS, seed=0)
    templates = load_prompts(f"trex_mine/{name}", relation=facts)
    mixture = Mixture(load_lm("smollm2"), templates, answers="one-token", relation=facts, shots=0, lead_in="none")
    encoded = mixture.encode_relation(facts)
    answers = mixture.answering(kind=encoded.kind)
    train, test = encoded.split("train"), encoded.split("test")
    of_train, of_test = (answers.read_once(some) for some in (train, test))
    assert of_train is not None
    assert of_test is not None
    best = int(of_train.gold.mean(0).argmax())
    line: dict[str, Any] = {"relation": name, "prompts": len(mixture.prompts), "train": len(train), "test": len(test)}
    line |= {"equal": log_loss(answers, test), "best alone": -float(of_test.gold[:, best].mean())}
    choose_tuned(mixture, TrainingSpec(tune_vectors=False))
    fit_weights(answers, train)
    return line | {"fitted": log_loss(answers, test), "kept": len(mixture.tuned.kept)}


def main() -> None:
    """Do the missing relations, then fill the page's table."""
    torch.set_num_threads(1)
    done = {one["relation"] for one in read_lines(KEPT)}
    for name in RELATIONS:
        if name not in done:
            append_line(KEPT, measure(name))
    header = [
        "relation",
        "train / test facts",
        "prompts",
        "equal weights",
        "best prompt alone",
        "fitted",
        "prompts left",
    ]
    rows = [
        [
            one["relation"],
            f"{one['train']} / {one['test']}",
            str(one["prompts"]),
            *(f"{one[way]:.2f}" for way in ("equal", "best alone", "fitted")),
            str(one["kept"]),
        ]
        for one in read_lines(KEPT)
    ]
    fill(FINDINGS / "mixtures.md", {"fitted": table(header, rows)})


if __name__ == "__main__":
    main()
