"""The other ways to tune or ask a causal LM, on the same facts: the tables of docs/findings/rivals.md.

    pip install 'askwell[peft]'; askwell lm pull smollm2
    ASKWELL_DATA=… python studies/rivals.py P176 P138 P19   # does what is missing, then writes the page
    python studies/rivals.py --page                         # only writes the page

Examples without tuning; PEFT's prompt tuning, prefix tuning from the keys and values of a real text, P-tuning and LoRA,
with and without four examples before the question; askwell's default with as many pairs and with more. One-token
answers. Each line of results/rivals.jsonl is one run. A rival's rate is the one with the lowest log-loss on dev.
"""

import argparse
import copy
import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import torch
from beside_peft import PEFT as PROMPT_TUNING
from beside_peft import WORDS, facts_of, peft_model, sentence, tune
from lines import RESULTS, append_line, read_lines
from pages import FINDINGS, fill
from pages import table as markdown

from askwell import Mixture, load_lm, train
from askwell.data.facts import Fact, Relation
from askwell.data.templates import Template, parse_template
from askwell.evaluation.examine import evaluate_split
from askwell.evaluation.significance import permutation_test
from askwell.lms.frozen import FrozenLM
from askwell.lms.tokenisation import Place
from askwell.specs.mixture_spec import MixtureSpec

RUNS, PAGE = RESULTS / "rivals.jsonl", FINDINGS / "rivals.md"
PAIRS, EXAMPLES = 400, 4
OURS = "askwell, its default"


@dataclass(frozen=True)
class Rival:
    """One of PEFT's methods."""

    method: str
    rates: tuple[float, ...]
    shots: int = 0
    """Examples before the question, as text."""
    size: int = 0
    """The rank of LoRA, or the examples whose keys and values prefix tuning starts from (0: a few words)."""


def _rivals() -> dict[str, Rival]:
    rivals = {"prefix tuning, from some words": Rival("prefix", (1e-3, 3e-3, 1e-2))}
    rivals |= {f"prefix tuning, from {n} examples": Rival("prefix", (1e-3, 3e-3, 1e-2), size=n) for n in (4, 50)}
    for shots, behind in ((0, ""), (EXAMPLES, ", behind 4 examples")):
        rivals[f"{PROMPT_TUNING}{behind}"] = Rival("prompt", (1e-2, 3e-2, 1e-1), shots)
        rivals[f"P-tuning{behind}"] = Rival("p-tuning", (1e-4, 3e-4, 1e-3), shots)
        for rank in (8, 32):
            rivals[f"LoRA, r = {rank}{behind}"] = Rival("lora", (3e-4, 1e-3, 3e-3), shots, rank)
    return rivals


RIVALS = _rivals()
UNTUNED = {
    f"{shots} examples, untuned{only}": (shots, bool(only)) for shots in (4, 16, 50) for only in ("", ", x and y alone")
}
BUDGETS = {OURS: PAIRS, f"{OURS}, 800 pairs": 800, f"{OURS}, 1,600 pairs": 1600}


def lines_of(template: Template, facts: Sequence[Fact]) -> str:
    """Return facts as lines of text in the words of a template."""
    return "".join(template.text.replace("[X]", fact.x).replace("[Y]", fact.y) + "\n" for fact in facts)


def drawn(facts: Sequence[Fact], count: int) -> tuple[list[Fact], list[Fact]]:
    """Draw some facts to be shown, and return the others as well."""
    shown = random.Random(0).sample(list(facts), count)
    return shown, [fact for fact in facts if fact not in shown]


def adapted(lm: FrozenLM, rival: Rival, text: str) -> Any:
    """Return PEFT's model of a method that is still untuned; prefix tuning starts from a text."""
    from peft import LoraConfig, PrefixTuningConfig, PromptEncoderConfig, TaskType, get_peft_model
    from peft.tuners.cartridge.utils import initialize_kv_prefix_from_past_key_values

    kind: dict[str, Any] = {"task_type": TaskType.CAUSAL_LM}
    torch.manual_seed(0)
    if rival.method == "lora":  # which puts layers of its own into a model, so it gets a copy
        return get_peft_model(copy.deepcopy(lm.model), LoraConfig(**kind, r=rival.size, lora_alpha=2 * rival.size))
    if rival.method == "prompt":
        return peft_model(lm)
    if rival.method == "p-tuning":
        return get_peft_model(lm.model, PromptEncoderConfig(**kind, num_virtual_tokens=8, encoder_hidden_size=128))
    ids = torch.tensor([lm.wording.encode(text, Place.GLUED)])
    model: Any = get_peft_model(lm.model, PrefixTuningConfig(**kind, num_virtual_tokens=ids.shape[1]))
    with torch.no_grad():
        past = lm.model(input_ids=ids, use_cache=True).past_key_values
    initialize_kv_prefix_from_past_key_values(model, past_key_values=past)
    return model


def of_new_xs(relation: Relation) -> Relation:
    """Leave out test facts whose x is in train: where train facts are shown as examples, they cannot all be asked."""
    trained = {fact.x for fact in relation.train}
    test = [fact for fact in relation.test if fact.x not in trained]
    return Relation.of(relation.name, relation.train, relation.dev, test)


@torch.no_grad()
def scored(model: Any, lm: FrozenLM, relation: Relation, facts: Sequence[Fact], rows: Sequence[Any]) -> dict[str, Any]:
    """Rank y among the LM's tokens, without other right answers, and take its log-probability."""
    right, losses = "", []
    for fact, (before, (y, *_)) in zip(facts, rows, strict=True):
        log_p = model(input_ids=torch.tensor([before])).logits[0, -1].double().log_softmax(0)
        others = [lm.wording.encode(gold, Place.SPACED) for gold in relation.golds[fact.x] if gold != fact.y]
        among = log_p.clone()
        among[[of_gold[0] for of_gold in others if len(of_gold) == 1]] = -torch.inf
        rank = 1 + int((among > log_p[y]).sum()) + 0.5 * (int((among == log_p[y]).sum()) - 1)
        right += str(int(rank <= 1))
        losses.append(round(-float(log_p[y]), 4))
    return {"right": right, "losses": losses}


def run_rival(lm: FrozenLM, relation: Relation, template: Template, rival: Rival, rate: float) -> dict[str, Any]:
    """Tune by one of PEFT's methods, and score dev and test."""
    is_prefix = rival.method == "prefix"
    shown, others = drawn(relation.train, rival.size if is_prefix else rival.shots)
    text = lines_of(template, shown) or f"{WORDS}\n"
    front = text if is_prefix or shown else ""
    of_prefix = len(lm.wording.encode(text, Place.GLUED)) if is_prefix else 0

    def rows(facts: Sequence[Fact]) -> list[tuple[list[int], list[int]]]:
        made = (sentence(lm, template, fact, whole=False, front=front) for fact in facts)
        return [(before[of_prefix:], y) for before, y in made]

    model = adapted(lm, rival, text)
    seconds = tune(model, rows(others), PAIRS, rate)
    dev = scored(model, lm, relation, relation.dev, rows(relation.dev))
    test = scored(model, lm, relation, relation.test, rows(relation.test))
    count = sum(one.numel() for one in model.parameters() if one.requires_grad)
    return {**test, "dev": fmean(dev["losses"]), "seconds": round(seconds, 1), "parameters": count}


def run_ours(lm: FrozenLM, relation: Relation, template: Template, contender: str) -> dict[str, Any]:
    """Ask with examples alone, or tune askwell's default with a budget; score test."""
    began, pairs = time.process_time(), BUDGETS.get(contender)
    if pairs is None:
        shots, is_bare = UNTUNED[contender]
        spec = MixtureSpec(shots=shots, begin="line-break", answers="one-token")
        mixture = Mixture(lm, [parse_template("[X] [Y]") if is_bare else template], spec, relation=relation)
    else:
        mixture = Mixture(lm, [template], answers="one-token", relation=relation)
        train(mixture, relation, pairs=pairs, progress=False)
    seconds = time.process_time() - began
    by_fact = {Fact(one.x, one.y): one for one in evaluate_split(mixture, relation).outcomes}
    asked = [by_fact[fact] for fact in relation.test]
    right = "".join(str(int(one.rank <= 1)) for one in asked)
    return {"right": right, "losses": [round(-one.log_probability, 4) for one in asked], "seconds": round(seconds, 1)}


def wanted(relation: str) -> Iterator[dict[str, Any]]:
    """Yield what identifies each run on a relation, first those that cost least."""
    for contender in (*UNTUNED, *BUDGETS):
        yield {"relation": relation, "contender": contender, "rate": None}
    for place in range(max(len(rival.rates) for rival in RIVALS.values())):
        for contender, rival in RIVALS.items():
            # The middle one first, so that there is something to compare before all are done.
            rates = sorted(rival.rates, key=lambda rate, of=rival.rates: abs(of.index(rate) - 1))
            yield {"relation": relation, "contender": contender, "rate": rates[place]}


def best_rates(lines: Sequence[dict[str, Any]]) -> dict[tuple[str, str], dict[str, Any]]:
    """Return the run of each relation and contender, that with the lowest log-loss on dev."""
    best: dict[tuple[str, str], dict[str, Any]] = {}
    for line in lines:
        key = line["relation"], line["contender"]
        if key not in best or line["dev"] < best[key]["dev"]:
            best[key] = line
    return best


def write_page() -> None:
    """Write the page's table, over the relations that all contenders have."""
    lines = read_lines(RUNS)
    best = best_rates(lines)
    contenders = [*UNTUNED, *BUDGETS, *RIVALS]
    names = [
        name for name in dict.fromkeys(line["relation"] for line in lines) if {(name, c) for c in contenders} <= {*best}
    ]
    if not names:
        return
    ours = {name: best[name, OURS] for name in names}
    rows = []
    for contender in contenders:
        own = [best[name, contender] for name in names]
        rights = [list(map(int, line["right"])) for line in own]
        gaps = [
            b - a
            for name, right in zip(names, rights, strict=True)
            for a, b in zip(right, map(int, ours[name]["right"]), strict=True)
        ]
        rows.append([
            contender,
            *(f"{100 * fmean(right):.1f}" for right in rights),
            f"{100 * fmean(map(fmean, rights)):.1f}",
            f"{fmean(fmean(line['losses']) for line in own):.2f}",
            "" if contender == OURS else f"{permutation_test(torch.tensor(gaps, dtype=torch.float64).numpy()).p:.3f}",
            f"{fmean(line['seconds'] for line in own):.0f}",
        ])  # fmt: skip
    header = ["", *names, "macro P@1", "log-loss", "p, P@1 against askwell's default", "CPU s"]
    fill(PAGE, {"rivals": markdown(header, rows), "relations": str(len(names))})


def main() -> None:
    """Do the missing runs, then write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("relations", nargs="*")
    parser.add_argument("--page", action="store_true", help="only write the page")
    options = parser.parse_args()
    if not options.page:
        torch.set_num_threads(1)
        lm, done = load_lm("smollm2", device="cpu"), read_lines(RUNS)
        for name in options.relations:
            relation, template = facts_of(lm, name, "one-token")
            relation = of_new_xs(relation)
            for asked in wanted(name):
                if any(asked.items() <= line.items() for line in done):
                    continue
                if asked["rate"] is None:
                    found = {"dev": 0.0, **run_ours(lm, relation, template, asked["contender"])}
                else:
                    found = run_rival(lm, relation, template, RIVALS[asked["contender"]], asked["rate"])
                print(asked, found["seconds"], flush=True)
                append_line(RUNS, {**asked, **found})
    write_page()


if __name__ == "__main__":
    main()
