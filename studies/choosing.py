"""Do train facts tell how prompts should be weighed? A table of docs/findings/mixtures.md.

    python studies/choosing.py           # does what is missing in results/choosing.jsonl, then writes the page
    python studies/choosing.py --page    # only writes the page

Mined prompts of the second testbed, one-token answers, only the weights fitted. Realm, goods, teacher and berth are
kept for choosing.
"""

import sys
from typing import Any, get_args

import torch
from lines import RESULTS, append_line, read_lines
from pages import FINDINGS, fill, table
from weighing import CHOSEN_ON, LMS

from askwell import Mixture, MixtureSpec, TrainingSpec, load_lm
from askwell.data.facts import Fact
from askwell.data.testbed import relations, testbed_prompts, testbed_relation, told_facts
from askwell.evaluation.examine import evaluate_split
from askwell.lms.frozen import FrozenLM
from askwell.specs.mixture_spec import WeightingName
from askwell.training.optimiser import choose_tuned, fit_weights, held_out_losses

KEPT = RESULTS / "choosing.jsonl"
WAYS = tuple(name for name in get_args(WeightingName) if name not in ("auto", "gate"))


def measure(lm: FrozenLM, lm_name: str, name: str) -> dict[str, Any]:
    """Cross-validate each weighting on a relation's train facts, and ask its told test facts with it."""
    relation, told, spec = testbed_relation(name), told_facts(name), TrainingSpec(tune_vectors=False)
    mixture = Mixture(lm, testbed_prompts("mined", name), MixtureSpec(answers="one-token"), relation=relation)
    encoded = mixture.encode_relation(relation)
    train, answers = encoded.need("train"), mixture.answering(kind=encoded.kind)
    losses, asked = {}, {}
    for weighting in WAYS:
        mixture.weigh_by(weighting)
        losses[weighting] = held_out_losses(mixture, answers, train, answers.read_once(train), spec)
        choose_tuned(mixture, spec)
        fit_weights(answers, train)
        outcomes = [one for one in evaluate_split(mixture, relation).outcomes if Fact(one.x, one.y) in told]
        right = sum(one.rank <= 1 for one in outcomes)
        log_loss = -sum(one.log_probability for one in outcomes) / len(outcomes)
        asked[weighting] = [round(100 * right / len(outcomes), 1), round(log_loss, 3)]
    gains = {weighting: losses["static"] - losses[weighting] for weighting in WAYS if weighting != "static"}
    return {
        "lm": lm_name,
        "relation": name,
        "prompts": len(mixture.prompts),
        "train": len(train),
        "held out": {way: round(float(of_facts.mean()), 3) for way, of_facts in losses.items()},
        "gain": {
            way: [round(float(gain.mean()), 3), round(float(gain.std()) / len(gain) ** 0.5, 3)]
            for way, gain in gains.items()
        },
        "told": asked,
    }


def write_page() -> None:
    """Fill the table of the page."""
    rows, ratios = [], []
    for one in read_lines(KEPT):
        gain, error = one["gain"]["combined"]
        ratios.append(gain / error)
        name = one["relation"].rpartition(":")[2]
        told = [f"{one['told'][way][0]:.0f} / {one['told'][way][1]:.2f}" for way in WAYS]
        held_out = [f"{one['held out'][way]:.2f}" for way in WAYS]
        shown = f"{name} †" if name in CHOSEN_ON else name
        rows.append([one["lm"], shown, str(one["train"]), *held_out, f"{gain:.2f} ± {error:.2f}", *told])
    header = ["LM", "relation", "train", *WAYS, "gain of combined", *(f"told, {way}" for way in WAYS)]
    places = {"choosing": table(header, rows), "least gain": f"{min(ratios):.1f}"}
    fill(FINDINGS / "mixtures.md", places)


def main() -> None:
    """Do the missing cells, then write the page's table."""
    if "--page" not in sys.argv:
        torch.set_num_threads(1)
        done = {(one["lm"], one["relation"]) for one in read_lines(KEPT)}
        lms = {name: load_lm(name) for name in LMS}
        for name in (f"testbed2:{one.name}" for one in relations("testbed2:")):
            for lm in LMS:
                if (lm, name) not in done:
                    append_line(KEPT, measure(lms[lm], lm, name))
    write_page()


if __name__ == "__main__":
    main()
