"""The parts of the benchmark: each measures one thing and writes its rows and figures."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from answers import answers
from contenders import good_epoch, our_epoch, our_evaluation, plain_epoch, plain_evaluation, plain_facts
from fine_tuning import fine_tuning_step
from flops import needed_flops
from measure import Times, in_turns, peak_bytes
from report import merge_summary, write_part
from shapes import SHAPES, facts_of, lm_of, mixture_of, random_lm
from shared import shared
from start import start_of_ask
from threads import threads
from walks import walks

from askwell.answers.encode import EncodedFacts
from askwell.lms.batches import Words
from askwell.lms.frozen import FrozenLM

MIB = 2**20


@dataclass(frozen=True)
class Setting:
    """How much is measured, and where the results go."""

    folder: Path
    quick: bool = False
    rounds: int = 5
    lms: tuple[str, ...] = ("small", "testbed:bert", "testbed:roberta", "testbed:causal", "base")

    def of(self, *names: str) -> list[str]:
        """Return those of the LMs that are to be measured."""
        return [name for name in names if name in self.lms]

    def time(self, lm: str, contenders: Mapping[str, Callable[[], object]]) -> dict[str, Times]:
        """Return CPU seconds of each; fewer rounds and no warm-up for the large LM, whose times vary less."""
        if lm == "base":
            return in_turns(contenders, max(1, self.rounds // 2), warm_up=0)
        return in_turns(contenders, self.rounds)


def equal_work(setting: Setting) -> None:
    """Measure the same epoch of EM by the plain loop, the good plain loop and askwell."""
    rows: list[dict[str, Any]] = []
    ratios: dict[str, dict[str, float]] = {"": {}, "against_good": {}, "deep": {}, "deep_against_good": {}}
    for name in setting.lms:
        lm = lm_of(name)
        for deep in (False, True):
            mixture = mixture_of(lm, 4 if setting.quick else 8, deep=deep)
            facts = facts_of(mixture, 2 if setting.quick else 8 if name == "base" else 32)
            contenders = {
                "plain": plain_epoch(mixture, facts),
                "good": good_epoch(mixture, facts),
                "askwell": our_epoch(mixture, facts, batch_facts=16),
            }
            times = setting.time(name, contenders)
            plain, good = (times[other].median / times["askwell"].median for other in ("plain", "good"))
            ratios["deep" if deep else ""][name] = round(plain, 2)
            ratios["deep_against_good" if deep else "against_good"][name] = round(good, 2)
            if name == "small" and not deep:
                as_it_stands = in_turns({"plain": plain_epoch(mixture, facts, freeze_table=False)}, 1, warm_up=0)
                ratios["plain_with_its_table"] = {
                    name: round(as_it_stands["plain"].median / times["askwell"].median, 2)
                }
            case = {"lm": name, "tuned": "deep" if deep else "layer 0", "pairs": len(facts) * len(mixture.prompts)}
            rows.append({**case, **_as_json(times), "plain / askwell": plain, "good / askwell": good})
    write_part(setting.folder, "equal_work", rows)
    merge_summary(
        setting.folder, {"equal_work": {**ratios[""], **{name: part for name, part in ratios.items() if name}}}
    )


def evaluation(setting: Setting) -> None:
    """Measure time and memory of evaluation over the whole vocabulary, with 28 prompts."""
    rows: list[dict[str, Any]] = []
    speed: dict[str, float] = {}
    memory: dict[str, float] = {}
    for name in setting.lms:
        mixture = mixture_of(lm_of(name), 4 if setting.quick else 28, deep=False)
        facts = facts_of(mixture, 4 if setting.quick or name == "base" else 32)
        row: dict[str, Any] = {"lm": name, "pairs": len(facts) * len(mixture.prompts)}
        if name != "base":  # before anything large has fragmented the memory
            more = facts_of(mixture, 4 if setting.quick else 128)
            few = facts_of(mixture, 2)
            our_evaluation(mixture, few)()  # so that what libraries allocate once is held before
            plain_evaluation(mixture, few)()
            ours = peak_bytes(our_evaluation(mixture, more))
            plain = peak_bytes(plain_evaluation(mixture, more))
            memory[name] = round(ours / plain, 4)
            row |= {"facts for memory": len(more), "plain MiB": plain / MIB, "askwell MiB": ours / MIB}
        contenders = {"plain": plain_evaluation(mixture, facts), "askwell": our_evaluation(mixture, facts)}
        times = setting.time(name, contenders)
        speed[name] = round(times["plain"].median / times["askwell"].median, 2)
        row |= {**_as_json(times), "plain / askwell": speed[name]}
        rows.append(row)
    write_part(setting.folder, "evaluation", rows)
    merge_summary(
        setting.folder,
        {"evaluation": speed} | ({"evaluation_memory_ratio": memory["small"]} if "small" in memory else {}),
    )


def gemm_fraction(setting: Setting) -> None:
    """Measure what fraction of the machine's best matrix product is reached, over the operations that are needed."""
    rows: list[dict[str, Any]] = []
    figures: dict[str, Any] = {}
    for name in setting.of("small", "base"):
        lm = lm_of(name)
        mixture = mixture_of(lm, 4 if setting.quick else 8, deep=False)
        some, many = facts_of(mixture, 2 if setting.quick else 4), facts_of(mixture, 4 if setting.quick else 16)
        products = _products(SHAPES[name].width, lm.vocabulary_size, quick=setting.quick)
        contenders: dict[str, Callable[[], object]] = {
            "train at 32": our_epoch(mixture, some, len(some)),
            "train at 128": our_epoch(mixture, many, len(many)),
            "evaluate at 128": our_evaluation(mixture, many),
            **{f"product {shape}": run for shape, (run, _) in products.items()},
        }
        times = setting.time(name, contenders)
        speeds = {shape: flops / times[f"product {shape}"].median / 1e9 for shape, (_, flops) in products.items()}
        best = max(speeds, key=lambda shape: speeds[shape])
        for work, facts, training in (
            ("train at 32", some, True),
            ("train at 128", many, True),
            ("evaluate at 128", many, False),
        ):
            flops = needed_flops(mixture, facts, training=training)
            reached = flops / times[work].median / 1e9
            figures[f"{name} {work}"] = round(reached / speeds[best], 3)
            rows.append(
                {
                    "lm": name,
                    "work": work,
                    "pairs": len(facts) * len(mixture.prompts),
                    "time": times[work].as_json(),
                    "GFLOP": flops / 1e9,
                    "GFLOP/s": reached,
                    "best product": best,
                    "its GFLOP/s": speeds[best],
                    "fraction": reached / speeds[best],
                }
            )
        figures[name] = figures[f"{name} train at 128"]
    write_part(setting.folder, "gemm_fraction", rows)
    merge_summary(setting.folder, {"gemm_fraction": figures})


def growth(setting: Setting) -> None:
    """Measure time and memory of training and evaluation as the work grows by 2, 4 and 8."""
    rows: list[dict[str, Any]] = []
    shape = SHAPES["small"]
    lm = random_lm(shape)
    for quantity in ("facts", "prompts", "vocabulary", "length of x"):
        first: dict[str, float] = {}
        for factor in (1, 2) if setting.quick else (1, 2, 4, 8):
            times_of = {name: factor if name == quantity else 1 for name in ("facts", "prompts", "length of x")}
            of_size = random_lm(shape, 7680 * factor) if quantity == "vocabulary" else lm
            mixture = mixture_of(of_size, (2 if setting.quick else 4) * times_of["prompts"], deep=False)
            count = (2 if setting.quick else 8) * times_of["facts"]
            facts = _longer(facts_of(mixture, count), times_of["length of x"])
            contenders = {
                "training": our_epoch(mixture, facts, batch_facts=64),
                "evaluation": our_evaluation(mixture, facts),
            }
            times = setting.time("small", contenders)
            measured: dict[str, float] = {}
            for work, run in contenders.items():
                measured[f"{work} s"] = times[work].median
                measured[f"{work} MiB"] = peak_bytes(run) / MIB
            first = first or measured
            growth_of = {f"{name} ×": value / max(first[name], 1e-9) for name, value in measured.items()}
            rows.append({"grows": quantity, "by": factor, **measured, **growth_of})
    write_part(setting.folder, "growth", rows)


def beside(setting: Setting) -> None:
    """Measure deep prompts, the data-dependent mixture's pass for p(x | t), and fine-tuning the whole LM."""
    rows: list[dict[str, Any]] = []
    for name in setting.of("small", "testbed:bert", "base"):
        lm = lm_of(name)
        prompts = 4 if setting.quick else 8
        static, dependent, deep = (
            mixture_of(lm, prompts, deep=is_deep, data_dependent=is_dependent)
            for is_deep, is_dependent in ((False, False), (False, True), (True, False))
        )
        facts = facts_of(static, 2 if setting.quick else 8)
        contenders = {
            "layer 0": our_epoch(static, facts, len(facts)),
            "deep": our_epoch(deep, facts, len(facts)),
            "data-dependent": our_epoch(dependent, facts, len(facts)),
            "whole LM": fine_tuning_step(static, plain_facts(facts)),
        }
        times = setting.time(name, contenders)
        for work, run in contenders.items():
            rows.append(
                {
                    "lm": name,
                    "tuned": work,
                    "pairs": len(facts) * prompts,
                    "time": times[work].as_json(),
                    "× layer 0": times[work].median / times["layer 0"].median,
                    "MiB": peak_bytes(run) / MIB,
                }
            )
    write_part(setting.folder, "beside", rows)


def padding(setting: Setting) -> None:
    """Measure what padding costs: packed rows, batches of pairs of similar lengths, and batches as they come."""
    rows: list[dict[str, Any]] = []
    for name in setting.lms:
        lm = lm_of(name)
        mixture = mixture_of(lm, 4 if setting.quick else 8, deep=False)
        facts = facts_of(mixture, 2 if setting.quick else 8 if name == "base" else 32)
        packed = our_epoch(mixture, facts, batch_facts=16)
        contenders = {
            "packed": packed,
            "sorted": _without_walk(lm, packed),
            "as they come": good_epoch(mixture, facts),
        }
        times = setting.time(name, contenders)
        ours = times["packed"].median
        rows.append(
            {
                "lm": name,
                "pairs": len(facts) * len(mixture.prompts),
                **_as_json(times),
                "sorted / packed": times["sorted"].median / ours,
                "as they come / packed": times["as they come"].median / ours,
            }
        )
    write_part(setting.folder, "padding", rows)


def _without_walk(lm: FrozenLM, run: Callable[[], object]) -> Callable[[], None]:
    def hooked() -> None:
        walk, lm.walk = lm.walk, None
        try:
            run()
        finally:
            lm.walk = walk

    return hooked


PARTS: Mapping[str, Callable[[Setting], None]] = {
    "equal_work": equal_work,
    "evaluation": evaluation,
    "gemm_fraction": gemm_fraction,
    "padding": padding,
    "growth": growth,
    "beside": beside,
    "answers": answers,
    "shared": shared,
    "start_of_ask": start_of_ask,
    "walks": walks,
    "threads": threads,
}


def _as_json(times: Mapping[str, Times]) -> dict[str, Any]:
    return {name: each.as_json() for name, each in times.items()}


def _longer(facts: EncodedFacts, factor: int) -> EncodedFacts:
    """Return the facts with every x repeated so many times."""
    ids = torch.zeros(*facts.xs.ids.shape[:2], facts.xs.ids.shape[2] * factor, dtype=torch.long)
    for place, text in torch.cartesian_prod(*(torch.arange(size) for size in facts.xs.lengths.shape)).tolist():
        length = int(facts.xs.lengths[place, text])
        ids[place, text, : length * factor] = facts.xs.ids[place, text, :length].repeat(factor)
    return replace(facts, xs=Words(ids, facts.xs.lengths * factor))


def _products(width: int, vocabulary: int, *, quick: bool) -> dict[str, tuple[Callable[[], object], float]]:
    """Return matrix products of the LM's own shapes and of squares, with their operations."""
    inner = 4 * width
    shapes = [(rows, a, b) for rows in (384, 1536) for a, b in ((width, width), (width, inner), (inner, width))]
    shapes += [(128, vocabulary, width)] + ([] if quick else [(n, n, n) for n in (1024, 2048, 4096)])
    made = {}
    for rows, inputs, outputs in shapes:
        left, right = torch.randn(rows, inputs), torch.randn(inputs, outputs)
        made[f"{rows}×{inputs}×{outputs}"] = ((lambda a=left, b=right: a @ b), 2.0 * rows * inputs * outputs)
    return made
