"""Does a mixture with its defaults pay on SmolLM2? A table of docs/findings/mixtures.md.

    ASKWELL_DATA=DIR python studies/real_mixtures.py [RELATION …]   # does what is missing, then writes the page
    ASKWELL_DATA=DIR python studies/real_mixtures.py --page         # only writes the page

LAMA's prompt alone, and the first eight of the mined prompts, each trained with the defaults to its own end; one-token
answers. The relations are some of T-REx that no other page reports.
"""

import sys
import time
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
RELATIONS = ("P127", "P1001", "P279")
PROMPTS = {"LAMA's prompt": ("trex", 1), "mixture": ("trex_mine", 8)}


def measure(lm: FrozenLM, name: str, way: str) -> dict[str, Any]:
    """Train with the defaults and ask test facts."""
    facts = sample(load_relation(f"trex_original/{name}"), train=300, dev=100, test=150, seed=0)
    source, count = PROMPTS[way]
    templates = [one.template for one in usable_prompts(lm, load_prompts(f"{source}/{name}", relation=facts))[0]]
    began = time.process_time()
    mixture = Mixture(lm, templates[:count], answers="one-token", relation=facts)
    result = train(mixture, facts, progress=False)
    seconds = time.process_time() - began
    outcomes = evaluate_split(mixture, facts).outcomes
    return {
        "relation": name,
        "way": way,
        "facts": len(outcomes),
        "kept": len(mixture.tuned.kept),
        "weighting": mixture.spec.weighting,
        "pairs": result.pairs,
        "P@1": 100 * sum(one.rank <= 1 for one in outcomes) / len(outcomes),
        "log_loss": -sum(one.log_probability for one in outcomes) / len(outcomes),
        "dev": [[line.pairs, line.dev["P@1"], line.dev["log_loss"]] for line in result.history],
        "seconds": round(seconds, 1),
    }


def write_page() -> None:
    """Fill the table of the page."""
    columns = ("relation", "way", "kept", "weighting", "facts", "P@1", "log_loss", "pairs", "seconds")
    header = ["relation", "asked with", "prompts left", "weights", "test facts", "P@1", "log-loss", "pairs", "CPU s"]
    shown = {"P@1": "{:.1f}", "log_loss": "{:.2f}", "seconds": "{:.0f}"}
    rows = [[shown.get(name, "{}").format(line[name]) for name in columns] for line in read_lines(KEPT)]
    fill(FINDINGS / "mixtures.md", {"real": table(header, rows, names=2)})


def main() -> None:
    """Do the missing runs, then write the page's table."""
    if "--page" not in sys.argv:
        torch.set_num_threads(1)
        lm, done = load_lm("smollm2"), {(one["relation"], one["way"]) for one in read_lines(KEPT)}
        for name in sys.argv[1:] or RELATIONS:
            for way in PROMPTS:
                if (name, way) not in done:
                    append_line(KEPT, measure(lm, name, way))
    write_page()


if __name__ == "__main__":
    main()
