"""The plan of `askwell probe`: a sweep over as many relations of a set as the time allows, in an order drawn by seed.

FOLDER/
  probe.toml      what was asked for, and what a unit of work was found to cost
  sweep.toml      the plan, as `askwell sweep` runs it; its store is the same folder
  results.jsonl   every run in short (see `probe_results`): what the card is made from, and enough to go on elsewhere

The order of the work is fixed: all settings of the first relation, then of the second, and so on; then everything again
with a second seed, and with a third. The minutes and settings only say how far to go, so more of them extend a plan and
change no run. The first relation is the measurement: what its runs took decides how many others fit.
"""

import json
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, ValidationError, field_validator

from askwell.data.names import load_prompts, relations_of, short_name
from askwell.data.testbed import PREFIXES
from askwell.errors import AskwellError, BadFile, BadOption, NoPrompts, did_you_mean
from askwell.files import problem_in, read_text, write_whole
from askwell.specs.base import Spec
from askwell.specs.mixture_spec import AnswersChoice
from askwell.specs.run_spec import SweepSpec

if TYPE_CHECKING:  # what to ask is checked without torch
    from askwell.runs.plan import Plan
    from askwell.runs.worker import RunTask

PROBE, SWEEP = "probe.toml", "sweep.toml"
ONE, SEVERAL = "one prompt", "several prompts"
HARD, ENSEMBLE, EXAMPLES, SOFT, MIXTURE = "hard prompt", "hard ensemble", "examples", "soft prompt", "mixture"
TUNED, SETTINGS = (SOFT, MIXTURE), (HARD, ENSEMBLE, EXAMPLES, SOFT, MIXTURE)
SettingName = Literal["hard prompt", "hard ensemble", "examples", "soft prompt", "mixture"]
SEEDS = (0, 1, 2)
"""Of the tuned settings; the second and third are for time that is left when all relations are done."""
MOST_PROMPTS = 8
"""How many prompts ensembles and mixtures have; more cost in proportion and bring out little."""
_TRAIN, _DEV = 400, 100
# One prompt has one opening and one weight: said, so that the defaults for several are no part of its run's id.
_ONE: dict[str, Any] = {"prompts": [ONE], "opening": "own", "weighting": "static"}
_BARE = {"lead_in": "none", "shots": 0, "opening": "own"}
_SETTINGS: dict[str, dict[str, Any]] = {
    HARD: {**_ONE, "tuned": False, **_BARE},
    ENSEMBLE: {"prompts": [SEVERAL], "tune_vectors": False, **_BARE},
    EXAMPLES: {**_ONE, "tuned": False, "shots": 16, "lead_in": "none"},
    SOFT: _ONE,
    MIXTURE: {"prompts": [SEVERAL]},
}
_LAMA = dict.fromkeys(("trex_original", "trex_extend", "trex_distinct"), ("trex", "trex_paraphrase", "trex_mine"))
_PROMPTS: dict[str, tuple[str, ...]] = {
    **_LAMA,
    "google_re": ("google_re", "google_re_paraphrase", "google_re_mine"),
    **{prefix.rstrip(":"): tuple(f"{prefix}{kind}" for kind in ("single", "paraphrased")) for prefix in PREFIXES},
}
"""The prompts of a set, the manual ones first; those of other sets have the name of the set."""
_TOKENISED = (*_LAMA, "google_re", "conceptnet")
"""Sets whose prompts have a space before punctuation: the LMs that write answers out are not used to it."""


class ProbeSpec(Spec):
    """What a probe asks for, and what it has measured."""

    lms: tuple[str, ...] = Field(min_length=1)
    facts_of: str
    """The set of relations."""
    prompts: tuple[str, ...] = Field(min_length=1)
    """Where prompts come from; the first one found for a relation is the hard prompt."""
    seed: int = Field(default=0, ge=0, lt=2**63)
    """Seed of the order of relations, and of the facts and prompts that are drawn."""
    test_facts: int = Field(default=150, ge=1, lt=2**63)
    answers: AnswersChoice = "auto"
    minutes: float = Field(default=60.0, gt=0)
    settings: tuple[SettingName, ...] = SETTINGS
    """The ways of asking."""
    seconds_per_unit: dict[str, Annotated[float, Field(ge=0, le=1e12)]] = Field(default_factory=dict)
    """By LM: what a unit of work took in the runs of the first relation, on one core."""

    @field_validator("settings")
    @classmethod
    def _can_make_a_card(cls, settings: tuple[SettingName, ...]) -> tuple[SettingName, ...]:
        if not {HARD, EXAMPLES} <= {*settings} or not {*TUNED} & {*settings}:
            raise ValueError(f"a card needs {HARD}, {EXAMPLES}, and {SOFT} or {MIXTURE}")
        return tuple(name for name in SETTINGS if name in settings)

    def differs_from(self, other: "ProbeSpec") -> list[str]:
        """Return what both ask for differently, apart from how far to go."""
        open_ended = ("minutes", "settings", "seconds_per_unit")
        fields = (name for name in type(self).model_fields if name not in open_ended)
        return [name for name in fields if getattr(self, name) != getattr(other, name)]


def prompts_of(facts_of: str, given: Sequence[str] | None, data: Path | None) -> tuple[str, ...]:
    """Return where the prompts of a set come from: as given, those published with it, or those of the same name; raises
    if there is no such set, or if some of them are for none of its relations."""
    relations = _relations_of_set(facts_of, data)
    if not given and facts_of in _PROMPTS:
        return _PROMPTS[facts_of]
    sources = tuple(given or (Path(facts_of).name,))
    for source in sources:
        try:
            _need_prompts(source, relations, data)
        except (BadFile, NoPrompts) as missing:
            raise (
                BadOption(f"`prompts` {source}: {missing}", prompts="--prompts")
                if given
                else BadOption(
                    f"`facts_of` {facts_of}: it has no prompts ({missing}); name some with --prompts", facts_of="--set"
                )
            ) from None
    return sources


def _need_prompts(source: str, relations: Sequence[str], data: Path | None) -> None:
    """Raise if a source has prompts for none of the relations."""
    for number, relation in enumerate(relations, start=1):
        try:
            load_prompts(source, relation=short_name(relation), data=data)
        except NoPrompts:
            if number == len(relations):
                raise
        else:
            return


def relations_in_order(spec: ProbeSpec, data: Path | None) -> tuple[str, ...]:
    """Return the relations of the set, in the order in which they are asked."""
    names = _relations_of_set(spec.facts_of, data)
    Random(spec.seed).shuffle(names)
    return tuple(names)


def _relations_of_set(facts_of: str, data: Path | None) -> list[str]:
    prefix = f"{facts_of}:"
    try:
        return sorted(relations_of(prefix if prefix in PREFIXES else facts_of, data))
    except AskwellError as error:
        is_unknown = isinstance(error, BadFile) and not Path(facts_of).exists()
        known = (
            did_you_mean(facts_of, (*(prefix.rstrip(":") for prefix in PREFIXES), *_TOKENISED)) if is_unknown else ""
        )
        raise BadOption(f"`facts_of` {facts_of}: {error}{known}", **{**error.options, "facts_of": "--set"}) from error


def sweep_of(spec: ProbeSpec, relations: Sequence[str], seeds: int, store: Path) -> SweepSpec:
    """Return the sweep over some relations, with the first of the seeds."""
    settings = {
        name: _SETTINGS[name] | ({} if _SETTINGS[name].get("tuned") is False else {"seeds": list(SEEDS[:seeds])})
        for name in spec.settings
    }
    return SweepSpec.model_validate(
        {
            "store": str(store),
            "lms": [{"source": lm} for lm in spec.lms],
            "facts": list(relations),
            "prompts": {ONE: spec.prompts, SEVERAL: spec.prompts},
            "most_prompts": {ONE: 1, SEVERAL: MOST_PROMPTS},
            "joined_punctuation": spec.facts_of in _TOKENISED,
            "train_facts": _TRAIN,
            "dev_facts": _DEV,
            "test_facts": spec.test_facts,
            "facts_seed": spec.seed,
            "answers": spec.answers,
            "best_only": True,
            "settings": settings,
        }
    )


def sweep_toml(sweep: SweepSpec, about: str) -> str:
    """Return a sweep as a file for `askwell sweep`, under a comment."""
    tables = ("prompts", "most_prompts", "settings")
    given = sweep.model_dump(mode="json", exclude_unset=True)
    given["lms"] = [lm.source for lm in sweep.lms]
    for name, setting in sweep.settings.items():
        own = setting.model_dump(mode="json", exclude_unset=True)
        mixture, training = own.pop("mixture", {}), own.pop("training", {})
        given["settings"][name] = own | mixture | training
    lines = [*(f"# {line}" for line in about.splitlines())]
    lines += [f"{key} = {_toml(value)}" for key, value in given.items() if key not in tables]
    for key in tables:
        lines += ["", f"[{key}]", *(f"{_toml(name)} = {_toml(value)}" for name, value in given[key].items())]
    return "\n".join(lines) + "\n"


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return (
            "{ "
            + ", ".join(f"{_toml(name) if ' ' in name else name} = {_toml(of)}" for name, of in value.items())
            + " }"
        )
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_toml, value))}]"
    return json.dumps(value, ensure_ascii=True)  # strings and numbers of JSON are also TOML's


def read_probe(folder: Path) -> ProbeSpec | None:
    """Return the probe of a folder; None if there is none."""
    path = folder / PROBE
    if not path.is_file():
        return None
    try:
        return ProbeSpec.model_validate(tomllib.loads(read_text(path)))
    except ValidationError as error:
        raise BadFile(path, problem_in(error)) from None
    except ValueError as error:
        raise BadFile(path, f"is not TOML: {error}") from None


def write_probe(spec: ProbeSpec, sweep: SweepSpec, folder: Path) -> None:
    """Write what was asked for, and the plan."""
    of_spec = spec.model_dump(mode="json")
    lines = ["# Written by `askwell probe`, which goes on from here."]
    lines += [f"{key} = {_toml(value)}" for key, value in of_spec.items() if key != "seconds_per_unit"]
    lines += ["", "[seconds_per_unit]", *(f"{_toml(lm)} = {cost}" for lm, cost in spec.seconds_per_unit.items())]
    write_whole(folder / PROBE, "\n".join(lines) + "\n")
    write_whole(folder / SWEEP, sweep_toml(sweep, "The plan of `askwell probe`; `askwell sweep` runs it, too."))


@dataclass(frozen=True)
class Steps:
    """All work of a probe, in order: the runs of each relation, then those of each further seed."""

    plan: "Plan"
    sources: tuple[str, ...]
    """The relations as they were named, in order."""

    @cached_property
    def relations(self) -> tuple[str, ...]:
        """The relations that can be asked, in order, by their own names."""
        return tuple(dict.fromkeys(task.spec.relation for task in self.plan.runs))

    def sources_of(self, relations: Sequence[str]) -> list[str]:
        """Return relations as they were named: one at a path is called by its last part."""
        by_name = {name: source for source in self.sources for name in (short_name(source), source)}
        return [by_name[name] for name in relations]

    @cached_property
    def steps(self) -> "tuple[tuple[RunTask, ...], ...]":
        """Return the runs of each step, ordered by LM and setting."""
        order = {name: number for number, name in enumerate(_SETTINGS)}
        tasks = sorted(self.plan.runs, key=lambda task: order[task.spec.setting])  # stable: LMs stay together
        first = [
            [task for task in tasks if (task.spec.relation, task.spec.seed) == (name, 0)] for name in self.relations
        ]
        places = {name: number for number, name in enumerate(self.relations)}
        again = [[task for task in tasks if task.spec.seed == seed] for seed in SEEDS[1:]]
        for of_seed in again:
            of_seed.sort(key=lambda task: places[task.spec.relation])
        return tuple(tuple(step) for step in [*first, *again] if step)

    def seconds(self, rates: Mapping[str, float]) -> list[float]:
        """Return what each step costs on one core, at these seconds per unit of work."""
        return [sum(rates[task.spec.lm] * _work(task) for task in step) for step in self.steps]

    def roughly(self) -> dict[str, float]:
        """Return the seconds per unit of work of each LM as the sweep's plan measured it, before any run."""
        rates: dict[str, float] = {}
        for task in self.plan.to_do:
            if task.spec.id in self.plan.seconds:
                rates.setdefault(task.spec.lm, self.plan.seconds[task.spec.id] / _work(task))
        return rates

    def measured(self, seconds: Mapping[str, float]) -> dict[str, float]:
        """Return the seconds per unit of work of each LM, by what the runs of the first step took, by id."""
        rates = {}
        for lm in dict.fromkeys(task.spec.lm for task in self.steps[0]):
            done = [task for task in self.steps[0] if task.spec.lm == lm and task.spec.id in seconds]
            if done:
                work = sum(map(_work, done))
                rates[lm] = float(f"{sum(seconds[task.spec.id] for task in done) / work:.3g}")
        return rates


def _work(task: "RunTask") -> float:
    from askwell.runs.plan import work_of

    return work_of(task.spec, task.relation)


def steps_within(seconds: Sequence[float], minutes: float, workers: int) -> int:
    """Return how many steps, from the first, fit into the minutes with this many workers; at least one."""
    left, fit = 60 * minutes * workers, 0
    for cost in seconds:
        left -= cost
        if left < 0:
            break
        fit += 1
    return max(1, fit)
