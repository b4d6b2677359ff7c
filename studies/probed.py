"""What public LMs know of published facts, by `askwell probe`: docs/findings/what-lms-know.md.

    askwell lm pull smollm2
    askwell lm pull gemma3-270m
    ASKWELL_DATA=… python studies/probed.py                 # goes on until everything is done, then writes the page
    ASKWELL_DATA=… python studies/probed.py --build FOLDER  # with the runs themselves in another folder
    python studies/probed.py --page                         # only writes the page, of what there is

It is the ordinary probe. What is kept is its plan (probe.toml) and its runs in short (results.jsonl), which are copied
to results/probed after each run, so that another machine goes on from there. Settings with one prompt come first.
"""

import argparse
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from lines import RESULTS
from pages import FINDINGS, fill

from askwell.cli.sweep import SweepBar
from askwell.cli.terminal import note
from askwell.errors import Failure
from askwell.lms.checkpoints import find_tokenizer, pulled_folder
from askwell.lms.tokenisation import Place, Wording
from askwell.runs.engines import Ended, Event
from askwell.runs.plan import Plan
from askwell.runs.probe_card import Card, LMCard, card_of
from askwell.runs.probe_lms import Probe, open_probe
from askwell.runs.probe_plan import ENSEMBLE, EXAMPLES, HARD, PROBE, SETTINGS, SOFT, ProbeSpec, SettingName, prompts_of
from askwell.runs.probe_results import RESULTS as IN_SHORT
from askwell.runs.probe_results import ProbedRun, read_results
from askwell.views.knowledge_card import (
    headline,
    part_table,
    relation_table,
    relations_chart,
    relations_csv,
    trust_lines,
)
from askwell.views.printable import signed
from askwell.views.scores import how_sure
from askwell.views.to_files import markdown_table

PROBED = RESULTS / "probed"
BUILD = Path(__file__).parents[1] / "build" / "probed"
ONE_PROMPT: tuple[SettingName, ...] = (HARD, EXAMPLES, SOFT)
FACTS_OF, RELATIONS, TEST_FACTS = "trex_original", 41, 150
LMS = ("smollm2", "gemma3-270m")
PAGE = FINDINGS / "what-lms-know.md"


@dataclass(frozen=True)
class Stage:
    """Some settings on all relations of a set."""

    lm: str
    facts_of: str
    settings: tuple[SettingName, ...]

    @property
    def name(self) -> str:
        """The folder of its probe, which it shares with other settings."""
        return f"{self.lm}-{self.facts_of}"


STAGES = (
    Stage("smollm2", FACTS_OF, ONE_PROMPT),
    Stage("gemma3-270m", FACTS_OF, ONE_PROMPT),
    Stage("smollm2", FACTS_OF, (*ONE_PROMPT, ENSEMBLE)),
    Stage("smollm2", FACTS_OF, SETTINGS),
)


class Following(SweepBar):
    """Shows progress, and copies the runs in short after each run."""

    def __init__(self, plan: Plan, folder: Path) -> None:
        super().__init__(plan, folder)
        self._probe = folder

    def __call__(self, event: Event) -> None:
        """Show an event, and keep what is new."""
        super().__call__(event)
        if isinstance(event, Ended):
            copy(self._probe, PROBED / self._probe.name)


def copy(source: Path, target: Path) -> None:
    """Copy the plan and the runs in short, as far as they are there."""
    target.mkdir(parents=True, exist_ok=True)
    for name in (PROBE, IN_SHORT):
        if (source / name).exists():
            shutil.copyfile(source / name, target / f"{name}.new")
            (target / f"{name}.new").replace(target / name)


def opened(stage: Stage, folder: Path) -> Probe:
    """Open the probe of a stage."""
    spec = ProbeSpec(
        lms=(stage.lm,),
        facts_of=stage.facts_of,
        prompts=prompts_of(stage.facts_of, None, None),
        test_facts=TEST_FACTS,
        minutes=1,
        settings=stage.settings,
    )
    return open_probe(spec, folder, data=None, workers=1, note=note)


def go_on(stage: Stage, build: Path) -> int:
    """Do what is missing of a stage, with one seed; return how many runs failed."""
    folder = build / stage.name
    if not (folder / PROBE).exists():
        copy(PROBED / stage.name, folder)
    probe = opened(stage, folder)
    failed = probe.run(Following, note)  # the first relation, which measures
    each = probe.steps.seconds(probe.rates)[: len(probe.steps.relations)]
    probe.spec = probe.spec.model_copy(update={"minutes": (sum(each) + 1) / 60})
    failed += probe.run(Following, note)
    copy(folder, PROBED / stage.name)
    return failed


@dataclass(frozen=True)
class Found:
    """What is there of an LM: its runs, and the card of those relations that have all of some settings."""

    lm: str
    runs: tuple[ProbedRun, ...]
    card: LMCard


def found(lm: str, settings: tuple[SettingName, ...] = ONE_PROMPT) -> Found | None:
    """Return what is there of an LM; None as long as no relation is complete."""
    runs = tuple(read_results(PROBED / f"{lm}-{FACTS_OF}" / IN_SHORT).values())
    relations = tuple(dict.fromkeys(run.relation for run in runs))
    try:
        (card,) = card_of(runs, relations, [lm], settings).lms
    except Failure:
        return None
    asked = {one.relation for one in card.relations}
    return Found(lm, tuple(run for run in runs if run.relation in asked and run.setting in settings), card)


def one_token_sentence(of: Found) -> str:
    """Say what is answered of the facts whose y is one token of the LM, as a mean over relations."""
    wording = Wording(find_tokenizer(str(pulled_folder(of.lm))))
    is_one = {y: len(wording.encode(y, Place.SPACED)) == 1 for y in {fact.y for run in of.runs for fact in run.facts}}
    scores = {}
    for setting in of.card.scores:
        shares = []
        for run in (run for run in of.runs if run.setting == setting and run.seed == 0):
            short = [fact.is_first for fact in run.facts if is_one[fact.y]]
            shares += [100 * fmean(short)] if short else []
        scores[setting] = f"{setting} {fmean(shares):.1f}"
    count = sum(is_one[fact.y] for run in of.runs if run.setting == HARD for fact in run.facts)
    return f"Of the {count:,} facts whose answer is one token of {of.lm}, P@1: {', '.join(scores.values())}."


def places_of(of: Found) -> dict[str, str]:
    """Return the places of the page for an LM."""
    card, runs = of.card, of.runs
    made = sorted({f"askwell {one.askwell}, torch {one.torch}" for one in (run.environment for run in runs)})
    done = f"{len(card.relations)} of {RELATIONS}"
    seeds = sorted({run.seed for run in runs})
    return {
        f"{card.lm}: headline": headline(card),
        f"{card.lm}: relations": done,
        f"{card.lm}: one token": one_token_sentence(of),
        f"{card.lm}: gains": f"Tuned minus the hard prompt: {signed(card.over_hard.difference)} points "
        f"({how_sure(card.over_hard)}); tuned minus 16 examples: {signed(card.over_examples.difference)} "
        f"({how_sure(card.over_examples)}).",
        f"{card.lm}: table": markdown_table(relation_table(card)),
        f"{card.lm}: parts": markdown_table(part_table(card.parts)),
        f"{card.lm}: trust": "\n".join(f"- {line}" for line in trust_lines(card)),
        f"{card.lm}: made": f"{done} relations, seed{'s' * (len(seeds) > 1)} {', '.join(map(str, seeds))}, "
        f"{card.seconds / 3600:.1f} core-hours, {'; '.join(made)}",
    }


def write_page() -> None:
    """Write the page, its charts and the data by relation."""
    there = [of for of in map(found, LMS) if of is not None]
    if not there:
        note("no relation is done yet, so there is no page")
        return
    text = PAGE.read_text(encoding="utf-8")
    for of in there:
        if f"<!-- begin {of.lm}: headline -->" in text:
            fill(PAGE, places_of(of))
            (drawing,) = relations_chart(of.card, [of.card]).drawings
            PAGE.with_name(f"what-lms-know-{of.lm}.svg").write_text(drawing.chart.svg(), encoding="utf-8")
    csv_of_all = relations_csv(Card(tuple(of.card for of in there), ()))
    PAGE.with_suffix(".csv").write_text(csv_of_all, encoding="utf-8")


def main() -> None:
    """Do all stages, then write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=Path, default=BUILD, help="where the runs themselves are kept")
    parser.add_argument("--page", action="store_true", help="only write the page")
    chosen = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    for stage in () if chosen.page else STAGES:
        if failed := go_on(stage, chosen.build):
            note(f"{stage.name}: {failed} runs failed")
    write_page()


if __name__ == "__main__":
    main()
