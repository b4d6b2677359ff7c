"""Does a mixture with its defaults pay on SmolLM2, and does its run end too early? Tables of docs/findings/mixtures.md.

    ASKWELL_DATA=DIR python studies/real_mixtures.py [RELATION …]   # does what is missing, then writes the page
    ASKWELL_DATA=DIR python studies/real_mixtures.py --page         # only writes the page

LAMA's prompt alone, the first eight of the mined prompts, that one of these which the mixture weighs most, alone, and
the mixture with more pairs at most: each ends by itself; one-token answers. The relations are those of T-REx that
defaults are chosen on.
"""

import sys
import time
from statistics import fmean
from typing import Any

import torch
from lines import RESULTS, append_line, read_lines
from pages import FINDINGS, fill, table

from askwell import Mixture, load_lm, load_prompts, load_relation, train
from askwell.data.split import sample
from askwell.evaluation.examine import evaluate_split
from askwell.lms.frozen import FrozenLM
from askwell.prompts.prompt import usable_prompts

KEPT = RESULTS / "real_mixtures.jsonl"
RELATIONS = ("P127", "P1001", "P279", "P364")
PROMPTS, MORE_PAIRS = 8, 6400
ALONE, MIXTURE, BEST, LONGER = "LAMA's prompt", "mixture", "its best prompt, alone", "mixture, up to 6,400 pairs"
WAYS = (ALONE, MIXTURE, BEST, LONGER)


def measure(lm: FrozenLM, name: str, way: str, best: str | None) -> dict[str, Any]:
    """Train with the defaults and ask test facts; `best` is the heaviest prompt of the relation's mixture."""
    facts = sample(load_relation(f"trex_original/{name}"), train=300, dev=100, test=150, seed=0)
    source, count = ("trex", 1) if way == ALONE else ("trex_mine", PROMPTS)
    usable = [one.template for one in usable_prompts(lm, load_prompts(f"{source}/{name}", relation=facts))[0][:count]]
    templates = [one for one in usable if one.text == best] if way == BEST else usable
    began = time.process_time()
    mixture = Mixture(lm, templates, answers="one-token", relation=facts)
    budget: dict[str, Any] = {"recipe": "plateau", "pairs": MORE_PAIRS} if way == LONGER else {}
    result = train(mixture, facts, progress=False, **budget)
    seconds = time.process_time() - began
    outcomes = evaluate_split(mixture, facts).outcomes
    return {
        "relation": name,
        "way": way,
        "facts": len(outcomes),
        "best": templates[int(mixture.weights.argmax())].text,
        "kept": len(mixture.tuned.kept),
        "weighting": mixture.spec.weighting,
        "pairs": result.pairs,
        "right": "".join(str(int(one.rank <= 1)) for one in outcomes),
        "losses": [round(-one.log_probability, 3) for one in outcomes],
        "dev": [[line.pairs, round(line.dev["P@1"], 1), round(line.dev["log_loss"], 3)] for line in result.history],
        "seconds": round(seconds, 1),
    }


def write_page() -> None:
    """Fill the table of the page."""
    header = ["relation", "asked with", "prompts left", "weights", "test facts", "P@1", "log-loss", "pairs", "CPU s"]
    rows = [
        [
            *(line[name] for name in ("relation", "way", "kept", "weighting", "facts")),
            f"{100 * line['right'].count('1') / line['facts']:.1f}",
            f"{fmean(line['losses']):.2f}",
            line["pairs"],
            f"{line['seconds']:.0f}",
        ]
        for line in read_lines(KEPT)
    ]
    fill(FINDINGS / "mixtures.md", {"real": table(header, rows, names=2)})


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
