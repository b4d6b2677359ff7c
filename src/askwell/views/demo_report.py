"""The demo: a built-in sweep over relations of the second testbed, and the ordinary report on its runs."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from askwell.data.testbed import SECOND, lm_folder, testbed_relation
from askwell.errors import BadOption
from askwell.files import write_whole
from askwell.runs.folder import Run
from askwell.runs.plan import Plan
from askwell.runs.store import Store
from askwell.specs.run_spec import SweepSpec
from askwell.views.document import Code, Paragraph, Section
from askwell.views.study import Study, report_page, study_of
from askwell.views.study_rows import read_texts
from askwell.views.to_html import page_html

_DEMO = read_texts("demo.toml")
RELATIONS, QUICK_RELATIONS = tuple(_DEMO["relations"]), tuple(_DEMO["quick"]["relations"])
ELSEWHERE = Section("Is it always so?", (Paragraph(_DEMO["elsewhere"]),))
"""What the other testbed shows, where mixtures are not needed."""
_REPORT = "report.html"


def demo_sweep(lm: str, names: Sequence[str] | None = None, *, seed: int = 0, quick: bool = False) -> SweepSpec:
    """Return the sweep for these choices; invalid ones are refused before any work is done."""
    if not lm.startswith(SECOND):
        raise BadOption(
            f"--lm {lm}: the demo compares answers with what the LM was told and in which words, so it needs "
            f"{SECOND}bert or {SECOND}causal"
        )
    lm_folder(lm)  # refuses an LM that does not exist
    if quick and names:
        raise BadOption("--quick chooses its own relation; leave out --quick or --relations")
    bare = [name.removeprefix(SECOND) for name in names or (QUICK_RELATIONS if quick else RELATIONS)]
    for name in bare:
        testbed_relation(SECOND + name)
    if repeated := sorted({name for name in bare if bare.count(name) > 1}):
        raise BadOption(f"--relations names {', '.join(repeated)} twice")
    sweep = _DEMO["sweep"]
    chosen = {"lms": [{"source": lm}], "facts": [SECOND + name for name in bare], "seeds": [seed], "facts_seed": seed}
    if quick:
        settings = {name: sweep["settings"][name] for name in _DEMO["quick"]["settings"]}
        chosen |= _DEMO["quick"]["sweep"] | {"settings": settings}
    return SweepSpec.model_validate(sweep | chosen)


@dataclass(frozen=True)
class Demo:
    """A demo whose runs are done and whose report is written."""

    lm: str
    seed: int
    report: Path
    study: Study
    next_steps: tuple[tuple[str, str], ...]
    """Commands to try, each with what it does."""

    @property
    def findings(self) -> list[str]:
        """What was found, as sentences."""
        return [sentence for part in self.study.sets for found in part.findings for sentence in found.sentences]

    def as_json(self) -> dict[str, Any]:
        """Return what was found and in which runs, with all figures of the report."""
        relations = (run.record.spec.relation.removeprefix(SECOND) for run in self.study.runs)
        return {
            "lm": self.lm,
            "seed": self.seed,
            "report": str(self.report),
            "relations": list(dict.fromkeys(relations)),
            "findings": self.findings,
            "runs": [str(run.folder) for run in self.study.runs],
            **self.study.as_json(),
        }


def write_demo(sweep: SweepSpec, plan: Plan, store: Store) -> Demo:
    """Write the report on the demo's runs, all of which are in the store, and return what it says."""
    lm, seed = sweep.lms[0].source, sweep.seeds[0]
    study = study_of([store.read(task.spec.id) for task in plan.runs])
    is_quick = sweep == demo_sweep(lm, seed=seed, quick=True)
    which = "--quick" if is_quick else f"--relations {' '.join(name.removeprefix(SECOND) for name in sweep.facts)}"
    page = report_page(study, store.folder.name, f"askwell demo --lm {lm} {which} --seed {seed}")
    steps = tuple(next_steps(lm, store.folder, study.runs))
    sections = (*page.sections, ELSEWHERE, Section("What to try next", (Code(steps),)))
    page = replace(page, title=_DEMO["title"].format(lm=lm), lead=_DEMO["lead"], about=(), sections=sections)
    write_whole(store.folder / _REPORT, page_html(page))
    return Demo(lm, seed, store.folder / _REPORT, study, steps)


def next_steps(lm: str, out: Path, runs: Sequence[Run]) -> list[tuple[str, str]]:
    """Return commands to try after the demo, with what each does."""
    specs = [run.record.spec for run in runs]
    asked = {spec.relation.removeprefix(SECOND) for spec in specs}
    first = specs[0].relation.removeprefix(SECOND)
    here, of_first = shlex.quote(str(out)), f"relation = '{SECOND}{first}'"
    x = runs[0].test[0].x if runs[0].test else "x"
    other_lm = f"{SECOND}causal" if lm != f"{SECOND}causal" else f"{SECOND}bert"
    whole = (f"askwell demo --lm {lm}", f"The whole demo: {', '.join(RELATIONS)}.")
    return [
        (f'askwell ask {here} {shlex.quote(x)} --where "{of_first}"', f"Ask the best mixture for {first} about any x."),
        (
            f"askwell show {here} --where \"{of_first} and setting = 'soft'\"",
            "Show in the terminal what the soft prompts have moved to.",
        ),
        *([] if asked == {*RELATIONS} else [whole]),
        (f"askwell demo --lm {other_lm} --out {other_lm.removeprefix(SECOND)}-demo", "The same with another LM."),
        ("askwell testbed", "List all relations, prompts and LMs of the testbeds."),
        (
            'askwell train --lm bert-base-cased --facts facts.csv --prompts "[X] was born in [Y] ." --out mine',
            "Ask your own LM about your own facts, in columns x and y.",
        ),
    ]
