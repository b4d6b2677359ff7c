"""`askwell demo`."""

import shlex
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter
from rich.table import Table
from rich.text import Text

from askwell.cli.options import Flag, Json, Seed, Several
from askwell.cli.terminal import counted, note, print_json, say, stdout
from askwell.errors import Failure
from askwell.files import need_writable_folder, write_whole

if TYPE_CHECKING:
    from askwell.report.cells import KeptRun
    from askwell.report.demo import DemoRuns, ShownQuestion
    from askwell.report.told import Findings, ToldFigures

REPORT = "report.html"


def demo(
    *,
    out: Path = Path("askwell-demo"),
    lm: str = "testbed:bert",
    relations: Annotated[Several, Parameter(consume_multiple=True)] = None,
    seed: Seed = 0,
    quick: Flag = False,
    json: Json = False,
) -> None:
    """See it work: tune soft prompts on the testbed, compare them with hard ones, and write a report.

    The testbed's LMs were trained on a text that tells most facts of a small world and withholds the rest, so the
    report can say what was elicited and what was guessed. If interrupted, it continues when started again.

    Args:
        out: The folder for the report and the runs behind it.
        lm: An LM of the testbed.
        relations: Relations of the testbed; default: four of them.
        quick: One relation only, in under a minute.
    """
    need_writable_folder(out, "--out")
    from askwell.cli.progress import SweepBar
    from askwell.report.demo import demo_page, demo_runs, demo_sweep, draw_questions
    from askwell.report.page import render_page
    from askwell.report.told import MIXTURE, findings_of
    from askwell.runs.plan import plan_sweep
    from askwell.runs.store import new_or_open_store
    from askwell.runs.sweep import choose_engine, go

    started = time.monotonic()
    sweep = demo_sweep(lm, relations, seed=seed, quick=quick)
    store = new_or_open_store(out)
    plan = plan_sweep(sweep, Path("askwell demo"), store)
    length = "under a minute" if len(sweep.facts) == 1 else f"about {len(sweep.facts)} minutes"
    to_do = "all done" if not plan.to_do else f"{len(plan.to_do)} to do, {length} on an idle machine"
    note(f"{counted(len(plan.runs), 'run')} on {lm}: {', '.join(sweep.facts)}; {to_do}")
    with SweepBar(plan, out) as live:
        failed = go(plan, choose_engine(sweep), store, live)
    if failed:
        raise Failure(f"{len(failed)} of {len(plan.runs)} runs failed ({failed[0].message}); {out / 'failed'} says why")
    done = demo_runs(plan, store)
    figures, questions = done.figures(), draw_questions(done, seed)
    curves = {relation: run.curve for relation, run in done.of(MIXTURE).items()}
    findings, steps = findings_of(figures, curves, lm), next_steps(lm, out, done, questions)
    report = out / REPORT
    write_whole(report, render_page(demo_page(sweep, done, figures, findings, questions, steps)))
    if json:
        print_json(
            {
                "report": str(report),
                "lm": lm,
                "relations": list(done.relations),
                "seed": seed,
                "findings": asdict(findings),
                "figures": {method: _figures(figures, method, done.relations) for method in figures.right},
                "questions": [asdict(question) for question in questions],
                "runs": [_run(*key, run) for key, run in done.runs.items()],
            }
        )
    else:
        _print_summary(findings, steps, report, time.monotonic() - started)


def next_steps(lm: str, out: Path, done: "DemoRuns", questions: "list[ShownQuestion]") -> list[tuple[str, str]]:
    """Commands to try after the demo, with what each does."""
    from askwell.report.demo import RELATIONS

    first = done.relations[0]
    here, of_first = shlex.quote(str(out)), f"relation = 'testbed:{first}'"
    mixture, deep = f"{of_first} and setting = 'mixture'", f"{of_first} and deep"
    x = next((question.x for question in questions if question.relation == first), "France")
    other_lm = "testbed:causal" if lm != "testbed:causal" else "testbed:bert"
    whole = (f"askwell demo --lm {lm}", f"The whole demo: {', '.join(RELATIONS)}.")
    return [
        (f'askwell ask {here} {shlex.quote(x)} --where "{of_first}"', f"Ask the best mixture for {first} about any x."),
        (f'askwell show {here} --where "{mixture}"', "See the soft prompts of the mixture in the terminal."),
        (f'askwell show {here} --where "{deep}"', "See how far the deep one moves each layer."),
        *([] if set(done.relations) == set(RELATIONS) else [whole]),
        (f"askwell demo --lm {other_lm} --out {other_lm.removeprefix('testbed:')}-demo", "The same with another LM."),
        ("askwell testbed", "List all relations, prompts and LMs of the testbed."),
        (
            'askwell train --lm bert-base-cased --facts facts.csv --prompts "[X] was born in [Y] ." --out mine',
            "Ask your own LM about your own facts: columns x and y.",
        ),
    ]


def _figures(figures: "ToldFigures", method: str, relations: Sequence[str]) -> dict[str, Any]:
    from askwell.report.told import FACT_KINDS

    by_relation = {
        relation: {
            kind: {"P@1": figures.p_at_1(method, relation, kind), "facts": len(figures.facts(kind, relation))}
            for kind in FACT_KINDS
        }
        for relation in relations
    }
    return by_relation | {"macro": {kind: {"P@1": figures.macro(method, kind)} for kind in FACT_KINDS}}


def _run(relation: str, method: str, run: "KeptRun") -> dict[str, Any]:
    return {
        "relation": relation,
        "method": method,
        "folder": str(run.folder),
        "vocabulary": run.record.test.vocabulary,
        "left_out": run.record.test.left_out,
        "prompts": len(run.record.prompts),
        "effective_prompts": run.record.effective_prompts,
        "history": [line.model_dump(mode="json", exclude_unset=True) for line in run.record.history],
    }


def _print_summary(findings: "Findings", steps: list[tuple[str, str]], report: Path, seconds: float) -> None:
    stdout.print("\nWhat was found", style="bold")
    table = Table.grid(padding=(0, 1))
    for sentence in (*findings.main, *findings.learning):
        table.add_row(" •", Text(sentence))
    stdout.print(table)
    stdout.print("\nThe report", style="bold")
    say(f" {report}")
    stdout.print("\nWhat to try next", style="bold")
    for command, purpose in steps:
        say(f" {command}")
        stdout.print(f"     {purpose}", style="dim", markup=False)
    stdout.print(f"\n{seconds:.0f} s in all.", style="dim")
