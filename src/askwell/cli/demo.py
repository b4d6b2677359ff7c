"""`askwell demo`."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from askwell.cli.options import Json
from askwell.files import need_writable_folder, write_whole

if TYPE_CHECKING:
    from askwell.demo.findings import Figures, Findings, Question
    from askwell.demo.results import Plan, RunResult

REPORT = "report.html"


def demo(
    *,
    out: Annotated[Path, Parameter(help="The folder for the report and the runs behind it.")] = Path("askwell-demo"),
    lm: Annotated[str, Parameter(help="An LM of the testbed.")] = "testbed:bert",
    relations: Annotated[
        list[str] | None,
        Parameter(help="Relations of the testbed; four of them, if not given.", consume_multiple=True, negative=""),
    ] = None,
    seed: Annotated[int, Parameter(help="Seed of everything that is drawn at random.")] = 0,
    quick: Annotated[bool, Parameter(help="One relation only, in under a minute.", negative="")] = False,
    json: Json = False,
) -> None:
    """See it work: tune soft prompts on the testbed, compare them with hard ones, and write a report.

    The testbed's LMs were trained on a text that tells most facts of a small world and withholds the rest, so the
    report can say what was elicited and what was guessed. Interrupted, it goes on when started again.
    """
    need_writable_folder(out, "--out")
    from askwell.cli.progress import DemoProgress
    from askwell.cli.terminal import note, print_json
    from askwell.demo.document import document_of
    from askwell.demo.findings import draw_questions, figures_of, findings_of
    from askwell.demo.results import plan_demo, run_demo

    started = time.monotonic()
    plan = plan_demo(lm, relations, seed=seed, quick=quick)
    length = "under a minute" if len(plan.relations) == 1 else f"about {len(plan.relations) / 2:.0f} minutes"
    note(f"{len(plan.runs)} runs on {plan.lm}: {', '.join(plan.relations)}; {length} on a machine at rest")
    try:
        with DemoProgress() as live:
            results = run_demo(plan, out, live)
    except KeyboardInterrupt:
        note(f"interrupted: what was done is kept in {out}; the same command goes on from there")
        raise
    figures = figures_of(results)
    findings, questions = findings_of(figures, results, plan.lm), draw_questions(results, seed)
    steps = next_steps(plan, results, questions)
    report = out / REPORT
    write_whole(report, document_of(plan, results, figures, findings, questions, steps))
    if json:
        print_json(_document(plan, results, figures, findings, questions, report))
    else:
        _print_summary(findings, steps, report, time.monotonic() - started)


def next_steps(plan: "Plan", results: "list[RunResult]", questions: "list[Question]") -> list[tuple[str, str]]:
    """Commands to try after the demo, with what each does."""
    from askwell.demo.results import DEEP, MIXTURE, RELATIONS, SAVED

    folders = {(result.run.relation, result.run.method.name): result.folder / SAVED for result in results}
    first = plan.relations[0]
    mixture = folders[first, MIXTURE.name]
    x = next((question.x for question in questions if question.relation == first), "France")
    other_lm = "testbed:causal" if plan.lm != "testbed:causal" else "testbed:bert"
    steps = [
        (f"askwell ask {_quoted(mixture)} {_quoted(x)}", f"Ask the mixture for {first} about any x."),
        (f"askwell show {_quoted(mixture)}", "See its soft prompts in the terminal."),
        (f"askwell show {_quoted(folders[first, DEEP.name])}", "See how far the deep one moves each layer."),
        (f"askwell demo --lm {other_lm} --out {other_lm.removeprefix('testbed:')}-demo", "The same with another LM."),
        ("askwell testbed", "See which relations, prompts and LMs there are."),
        (
            'askwell train --lm bert-base-cased --facts facts.csv --prompts "[X] was born in [Y] ." --out mine',
            "Ask an LM of yours about facts of yours: columns x and y.",
        ),
    ]
    if set(plan.relations) != set(RELATIONS):
        steps.insert(3, (f"askwell demo --lm {plan.lm}", f"The whole demo: {', '.join(RELATIONS)}."))
    return steps


def _document(
    plan: "Plan",
    results: "list[RunResult]",
    figures: "Figures",
    findings: "Findings",
    questions: "list[Question]",
    report: Path,
) -> dict[str, Any]:
    from dataclasses import asdict

    from askwell.demo.findings import KINDS

    def of_method(method: str) -> dict[str, Any]:
        return {
            relation: {
                kind: {"P@1": figures.p_at_1(method, relation, kind), "facts": len(figures.facts(relation, kind))}
                for kind in KINDS
            }
            for relation in plan.relations
        } | {"macro": {kind: {"P@1": figures.macro(method, kind)} for kind in KINDS}}

    return {
        "report": str(report),
        "lm": plan.lm,
        "relations": list(plan.relations),
        "seed": plan.seed,
        "findings": asdict(findings),
        "figures": {method: of_method(method) for method in figures.right},
        "questions": [asdict(question) for question in questions],
        "runs": [
            {
                "relation": result.run.relation,
                "method": result.run.method.name,
                "folder": str(result.folder),
                "vocabulary": result.vocabulary,
                "left_out": result.left_out,
                "prompts": result.prompts,
                "effective_prompts": result.effective_prompts,
                "history": list(result.history),
            }
            for result in results
        ],
    }


def _print_summary(findings: "Findings", steps: list[tuple[str, str]], report: Path, seconds: float) -> None:
    from rich.table import Table
    from rich.text import Text

    from askwell.cli.terminal import out as terminal

    terminal.print("\nWhat was found", style="bold")
    table = Table.grid(padding=(0, 1))
    for sentence in (*findings.main, *findings.learning):
        table.add_row(" •", Text(sentence))
    terminal.print(table)
    terminal.print("\nThe report", style="bold")
    terminal.print(f" {report}", soft_wrap=True, markup=False)
    terminal.print("\nWhat to try next", style="bold")
    for command, purpose in steps:
        terminal.print(f" {command}", soft_wrap=True, markup=False)  # whole, so that it can be copied
        terminal.print(f"     {purpose}", style="dim", markup=False)
    terminal.print(f"\n{seconds:.0f} s in all.", style="dim")


def _quoted(argument: object) -> str:
    import shlex

    return shlex.quote(str(argument))
