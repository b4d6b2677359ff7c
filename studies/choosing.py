"""Do train facts tell how prompts should be weighed? A table of docs/findings/mixtures.md.

    python studies/choosing.py           # does what is missing in results/choosing.jsonl, then writes the page
    python studies/choosing.py --page    # only writes the page

Mined prompts of both testbeds, one-token answers, as many train facts as a run reads, only the weights fitted. Realm,
goods, teacher and berth of the second testbed are kept for choosing.
"""

import sys
from typing import Any

import torch
from lines import RESULTS, append_line, read_lines, sample
from pages import FINDINGS, fill, table
from weighing import CHOSEN_ON, LMS

from askwell import Mixture, MixtureSpec, TrainingSpec, load_lm
from askwell.data.testbed import relations, testbed_prompts, testbed_relation, told_facts
from askwell.evaluation.scoring import score_facts
from askwell.lms.frozen import FrozenLM
from askwell.training.loop import choose_for_run, spread
from askwell.training.optimiser import choose_tuned, facts_to_fit, fit_weights

KEPT = RESULTS / "choosing.jsonl"
OF_TESTBED = ("testbed:country_of_airport", "testbed:country_of_city")
CELLS = {
    **dict.fromkeys(("testbed:bert", "testbed:roberta", "testbed:bart", "testbed:causal"), OF_TESTBED),
    **dict.fromkeys(LMS, tuple(f"testbed2:{one.name}" for one in relations("testbed2:"))),
}
ONLY_WEIGHTS = TrainingSpec(tune_vectors=False)
TOLD = 100
"""At most this many told test facts are asked."""


def measure(lm: FrozenLM, lm_name: str, name: str) -> dict[str, Any]:
    """Choose a relation's weighting as a run does, and ask told test facts with fitted weights of both kinds."""
    relation, told = testbed_relation(name), told_facts(name)
    mixture = Mixture(lm, testbed_prompts("mined", name), MixtureSpec(answers="one-token"), relation=relation)
    encoded = mixture.encode_relation(relation)
    train, answers = encoded.need("train"), mixture.answering(kind=encoded.kind)
    few, _ = mixture.encode(sample([fact for fact in relation.test if fact in told], TOLD))
    choose_tuned(mixture, ONLY_WEIGHTS)
    choose_for_run(mixture, answers, train, ONLY_WEIGHTS)
    chosen, scores = mixture.spec.weighting, mixture.spec.weighting_scores
    by_x = next(one for one in scores if one != "static")
    line: dict[str, Any] = {"lm": lm_name, "relation": name, "prompts": len(mixture.prompts), "chosen": chosen}
    line |= {"held out": {"static": scores["static"], "by x": scores[by_x]}, "told": {}}
    for way, weighting in {"static": "static", "by x": by_x}.items():
        mixture.weigh_by(weighting)
        choose_tuned(mixture, ONLY_WEIGHTS)
        fit_weights(answers, spread(train, facts_to_fit(len(mixture.prompts))))
        found = score_facts(answers, few, relation)
        line["told"][way] = [found["P@1"], found["log_loss"]]
    return line


def write_page() -> None:
    """Fill the table of the page."""
    lines, rows = read_lines(KEPT), []
    for one in lines:
        name = one["relation"].rpartition(":")[2]
        held_out = [f"{one['held out'][way]:.2f}" for way in ("static", "by x")]
        told = [f"{one['told'][way][0]:.0f} / {one['told'][way][1]:.2f}" for way in ("static", "by x")]
        rows.append([one["lm"], f"{name} †" if name in CHOSEN_ON else name, *held_out, *told, one["chosen"]])
    header = ["LM", "relation", "held out, static", "held out, by x", "told, static", "told, by x", "chosen"]
    by_testbed = {
        prefix: [one for one in lines if one["lm"].startswith(prefix)] for prefix in ("testbed:", "testbed2:")
    }
    counts = {
        prefix: f"{sum(one['chosen'] != 'static' for one in of)} of {len(of)}" for prefix, of in by_testbed.items()
    }
    places = {"choosing": table(header, rows, names=2)}
    fill(FINDINGS / "mixtures.md", {**places, "chosen 1": counts["testbed:"], "chosen 2": counts["testbed2:"]})


def main() -> None:
    """Do the missing cells, then write the page's table."""
    if "--page" not in sys.argv:
        torch.set_num_threads(1)
        done = {(one["lm"], one["relation"]) for one in read_lines(KEPT)}
        for lm_name, names in CELLS.items():
            lm = load_lm(lm_name)
            for name in names:
                if (lm_name, name) not in done:
                    append_line(KEPT, measure(lm, lm_name, name))
    write_page()


if __name__ == "__main__":
    main()
