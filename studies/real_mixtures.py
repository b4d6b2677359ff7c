"""What pays on SmolLM2, each way with its defaults and to its own end? Tables of docs/findings/mixtures.md.

    ASKWELL_DATA=DIR python studies/real_mixtures.py [RELATION …]   # does what is missing, then writes the page
    ASKWELL_DATA=DIR python studies/real_mixtures.py --page         # only writes the page

LAMA's prompt by hand, tuned, deep, and with vectors drawn at random for all words; the first eight of the mined
prompts, that one of these which the mixture weighs most, alone, and the mixture with more pairs at most. One-token
answers. The relations are those of T-REx that defaults are chosen on.
"""

import sys
import time
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

import numpy as np
import torch
from lines import RESULTS, append_line, read_lines
from pages import FINDINGS, fill, table

from askwell import Mixture, load_lm, load_prompts, load_relation, train
from askwell.data.split import sample
from askwell.evaluation.examine import evaluate_split
from askwell.evaluation.significance import p_text, permutation_test
from askwell.lms.frozen import FrozenLM
from askwell.prompts.prompt import usable_prompts
from askwell.specs.mixture_spec import NO_LEAD_IN

KEPT = RESULTS / "real_mixtures.jsonl"
RELATIONS = ("P127", "P1001", "P279", "P364")
PROMPTS, MORE_PAIRS = 8, 6400
ALONE, MIXTURE, BEST = "one soft prompt", "mixture of eight mined prompts", "the mixture's best prompt, alone"
WAYS: dict[str, dict[str, Any]] = {
    "one hard prompt": {},
    ALONE: {},
    "the same, deep": {"deep": True},
    "the same, all words at random": {"initial": "random"},
    MIXTURE: {},
    BEST: {},
    "mixture, up to 6,400 pairs": {"recipe": "plateau", "pairs": MORE_PAIRS},
}
OF_MINED = (MIXTURE, BEST, "mixture, up to 6,400 pairs")
OF_TRAINING = ("recipe", "pairs")


def measure(lm: FrozenLM, name: str, way: str, best: str | None) -> dict[str, Any]:
    """Train with the defaults and ask test facts; `best` is the heaviest prompt of the relation's mixture."""
    facts = sample(load_relation(f"trex_original/{name}"), train=300, dev=100, test=150, seed=0)
    source, count = ("trex_mine", PROMPTS) if way in OF_MINED else ("trex", 1)
    usable = [one.template for one in usable_prompts(lm, load_prompts(f"{source}/{name}", relation=facts))[0][:count]]
    templates = [one for one in usable if one.text == best] if way == BEST else usable
    changes = WAYS[way]
    of_mixture = {name: value for name, value in changes.items() if name not in OF_TRAINING}
    began, pairs, history = time.process_time(), 0, ()
    if way == "one hard prompt":
        mixture = Mixture(lm, templates, answers="one-token", lead_in=NO_LEAD_IN, shots=0, relation=facts)
    else:
        mixture = Mixture(lm, templates, answers="one-token", relation=facts, **of_mixture)
        budget = {name: value for name, value in changes.items() if name in OF_TRAINING}
        result = train(mixture, facts, progress=False, **budget)
        pairs, history = result.pairs, result.history
    seconds = time.process_time() - began
    outcomes = evaluate_split(mixture, facts).outcomes
    return {
        "relation": name,
        "way": way,
        "best": templates[int(mixture.weights.argmax())].text,
        "kept": len(mixture.tuned.kept),
        "effective": round(mixture.effective_prompts, 2),
        "weighting": mixture.spec.weighting,
        "pairs": pairs,
        "right": "".join(str(int(one.rank <= 1)) for one in outcomes),
        "losses": [round(-one.log_probability, 3) for one in outcomes],
        "dev": [[line.pairs, round(line.dev["P@1"], 1), round(line.dev["log_loss"], 3)] for line in history],
        "seconds": round(seconds, 1),
    }


def compared(lines: Mapping[tuple[str, str], dict[str, Any]], names: Sequence[str], way: str) -> list[str]:
    """Return the row of a way of asking over relations: each counts the same in means, each fact in tests."""
    own, alone = ([lines[name, one] for name in names] for one in (way, ALONE))
    rights = [np.array([*map(int, line["right"])], float) for line in own]
    gaps = np.concatenate([right - [*map(int, line["right"])] for right, line in zip(rights, alone, strict=True)])
    losses = [np.array(line["losses"]) for line in own]
    loss_gaps = np.concatenate([loss - line["losses"] for loss, line in zip(losses, alone, strict=True)])
    tests = ["", ""] if way == ALONE else [p_text(permutation_test(of).p) for of in (gaps, loss_gaps)]
    return [
        way,
        f"{100 * fmean(right.mean() for right in rights):.1f}",
        tests[0],
        f"{fmean(loss.mean() for loss in losses):.2f}",
        tests[1],
        f"{fmean(line['effective'] for line in own):.1f}",
        f"{fmean(line['pairs'] for line in own):.0f}",
        f"{fmean(line['seconds'] for line in own):.0f}",
    ]


def write_page() -> None:
    """Fill the tables of the page, with the relations that were asked in all ways."""
    lines = {(line["relation"], line["way"]): line for line in read_lines(KEPT)}
    names = [name for name in RELATIONS if all((name, way) in lines for way in WAYS)]
    if not names:
        return
    header = ["asked with", "P@1", "p", "log-loss", "p", "effective prompts", "pairs", "CPU s"]
    of_all = table(header, [compared(lines, names, way) for way in WAYS])
    rows = []
    for line in (lines[name, way] for name in names for way in WAYS):
        count = len(line["right"])
        score, loss = f"{100 * line['right'].count('1') / count:.1f}", f"{fmean(line['losses']):.2f}"
        settled = [line["kept"], line["weighting"], count]
        rows.append([line["relation"], line["way"], *settled, score, loss, line["pairs"], f"{line['seconds']:.0f}"])
    header = ["relation", "asked with", "prompts left", "weights", "test facts", "P@1", "log-loss", "pairs", "CPU s"]
    by_relation = table(header, rows, names=2)
    places = {"real": of_all, "real by relation": by_relation, "real relations": ", ".join(names)}
    fill(FINDINGS / "mixtures.md", places)


def main() -> None:
    """Do the missing runs, then write the page's table."""
    if "--page" not in sys.argv:
        torch.set_num_threads(1)
        lm = load_lm("smollm2")
        done = {(one["relation"], one["way"]): one["best"] for one in read_lines(KEPT)}
        for name in sys.argv[1:] or RELATIONS:
            for way in WAYS:
                if (name, way) not in done:
                    line = measure(lm, name, way, done.get((name, MIXTURE)))
                    done[name, way] = line["best"]
                    append_line(KEPT, line)
    write_page()


if __name__ == "__main__":
    main()
