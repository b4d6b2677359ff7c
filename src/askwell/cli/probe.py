"""`askwell probe`."""

import shlex
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

from cyclopts import Parameter, validators

from askwell.cli.options import Data, Flag, Json, Prompts, Seed
from askwell.cli.terminal import note, note_loading, print_json, say, show_document
from askwell.errors import BadOption, Failure
from askwell.files import need_writable_folder
from askwell.specs.mixture_spec import AnswersChoice
from askwell.views.printable import counted

if TYPE_CHECKING:
    from askwell.runs.probe_plan import ProbeSpec


_Setting = Literal["hard-prompt", "hard-ensemble", "examples", "soft-prompt", "mixture"]


def probe(
    lm: str,
    /,
    *more_lms: str,
    facts_of: Annotated[str, Parameter(name="--set")] = "trex_original",
    minutes: Annotated[float, Parameter(validator=validators.Number(gt=0, lte=1e6))] = 60.0,
    out: Path | None = None,
    prompts: Prompts = None,
    facts: Annotated[int, Parameter(validator=validators.Number(gte=1, lt=2**63))] = 150,
    settings: Annotated[list[_Setting] | None, Parameter(negative="", consume_multiple=True)] = None,
    answers: AnswersChoice = "auto",
    seed: Seed = 0,
    workers: Annotated[int | None, Parameter(validator=validators.Number(gte=1, lte=1024))] = None,
    plan: Flag = False,
    card: Flag = False,
    data: Data = None,
    json: Json = False,
) -> None:
    """Ask what an LM knows: the relations of a set, in five ways, as many as the time allows; write a knowledge card.

    Each relation is asked with one hard prompt, a hard ensemble, in-context examples, one soft prompt and a mixture,
    beside answers that need no knowledge. The same command continues an interrupted probe; with more minutes, it goes
    on to further relations, and repeats no run. Several LMs are asked the same facts and compared.

    Args:
        lm: The frozen LM, as for `askwell train --lm`.
        more_lms: Further LMs.
        facts_of: The set of relations: trex_original, google_re, conceptnet, testbed, testbed2, one that `askwell data
            import` wrote (bear), or a folder with a folder or a file for each relation.
        minutes: How long it may take in all, estimated from the first relation.
        out: The folder for the card and the runs behind it; default: named after the LMs and the set.
        prompts: Prompts for a set of your own; the first of each relation is the hard prompt.
        settings: The ways of asking; default: all five. Mixtures take most of the time, and can be added later.
        facts: Draw at most this many test facts of each relation.
        answers: Answers of one token, of any length, or (auto) of any length if a relation needs it.
        workers: How many runs are executed at once; default: as many as there are cores.
        plan: Print the plan as TOML, which `askwell sweep` runs, with how long it will take, and run nothing.
        card: Only write the card, of the runs that are there.
    """
    from askwell.runs.probe_plan import SETTINGS, ProbeSpec, prompts_of

    started = time.monotonic()
    lms = (lm, *more_lms)
    if repeated := sorted({name for name in lms if lms.count(name) > 1}):
        raise BadOption(f"{repeated[0]} is named twice")
    out = out or Path("-".join(["probe", *(Path(name).name.replace(":", "-") for name in lms), Path(facts_of).name]))
    need_writable_folder(out, "--out")
    fields: dict[str, Any] = {
        "lms": lms,
        "facts_of": facts_of,
        "prompts": prompts_of(facts_of, prompts, data),
        "seed": seed,
        "test_facts": facts,
        "answers": answers,
        "minutes": minutes,
        "settings": tuple(name.replace("-", " ") for name in settings) if settings else SETTINGS,
    }
    spec = ProbeSpec.given(None, fields, to=probe)
    note_loading(*lms)
    from askwell.cli.sweep import SweepBar
    from askwell.runs.probe_lms import open_probe
    from askwell.views.knowledge_card import card_page, write_card

    opened = open_probe(spec, out, data=data, workers=workers, note=note)
    for line in opened.steps.plan.without:
        note(f"left out: {line}")
    if plan:
        say(opened.toml().rstrip("\n"))
        return
    failed = 0
    if not card:
        note(opened.in_short())
        failed = opened.run(SweepBar, note)
    made = opened.card()
    command = _command(spec, out)
    page = card_page(made, opened, command)
    written = write_card(made, page, out)
    if json:
        print_json({"folder": str(out), "card": str(written[0]), **made.as_json()})
    else:
        show_document(page.in_short)
        say(f"The card: {written[0]}; {time.monotonic() - started:.0f} s.")
    if failed:
        raise Failure(f"{counted(failed, 'run')} failed; {out / 'failed'} says why, and the same command retries them")


def _command(spec: "ProbeSpec", out: Path) -> str:
    options = ["--set", spec.facts_of, "--minutes", f"{spec.minutes:g}", "--facts", str(spec.test_facts)]
    options += ["--seed", str(spec.seed), "--answers", spec.answers, "--out", out.name]
    if len(spec.settings) < len(get_args(_Setting)):
        options += ["--settings", *(name.replace(" ", "-") for name in spec.settings)]
    return shlex.join(["askwell", "probe", *spec.lms, *options])
