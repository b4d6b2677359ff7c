"""What public LMs know of published facts, by `askwell probe`: results/probed.

    askwell lm pull smollm2
    ASKWELL_DATA=… python studies/probed.py                 # goes on until everything is done
    ASKWELL_DATA=… python studies/probed.py --build FOLDER  # with the runs themselves in another folder

It is the ordinary probe. What is kept is its plan (probe.toml) and its runs in short (results.jsonl), which are copied
to results/probed after each run, so that another machine goes on from there. Settings with one prompt come first.
"""

import argparse
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from lines import RESULTS

from askwell.cli.running import SweepBar
from askwell.cli.terminal import note
from askwell.runs.engines import Ended, Event
from askwell.runs.plan import Plan
from askwell.runs.probe_lms import Probe, open_probe
from askwell.runs.probe_plan import ENSEMBLE, EXAMPLES, HARD, PROBE, SETTINGS, SOFT, ProbeSpec, SettingName, prompts_of
from askwell.runs.probe_results import RESULTS as IN_SHORT

PROBED = RESULTS / "probed"
BUILD = Path(__file__).parents[1] / "build" / "probed"
ONE_PROMPT: tuple[SettingName, ...] = (HARD, EXAMPLES, SOFT)
TEST_FACTS = 150


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
    Stage("smollm2", "trex_original", ONE_PROMPT),
    Stage("gemma3-270m", "trex_original", ONE_PROMPT),
    Stage("smollm2", "trex_original", (*ONE_PROMPT, ENSEMBLE)),
    Stage("smollm2", "trex_original", SETTINGS),
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


def main() -> None:
    """Do all stages."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=Path, default=BUILD, help="where the runs themselves are kept")
    chosen = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    for stage in STAGES:
        if failed := go_on(stage, chosen.build):
            note(f"{stage.name}: {failed} runs failed")


if __name__ == "__main__":
    main()
