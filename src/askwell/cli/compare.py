"""`askwell compare`."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from rich.markup import escape
from rich.table import Table

from askwell.cli.options import Json, NotNegative, Where
from askwell.cli.tables import print_table
from askwell.cli.terminal import print_json, say
from askwell.display.summary import counted
from askwell.evaluation.metrics import METRICS
from askwell.files import to_json

if TYPE_CHECKING:
    from askwell.evaluation.compare import Comparison

    MetricName = str
else:
    MetricName = Literal[tuple(METRICS)]


def compare(
    a: Path,
    b: Path,
    /,
    *,
    metric: MetricName = "P@1",
    unit: Literal["fact", "x", "y"] = "fact",
    where_a: Where = None,
    where_b: str | None = None,
    seed: NotNegative = 0,
    changed: NotNegative = 10,
    json: Json = False,
) -> None:
    """Compare two runs on the facts that both answered: difference, interval, significance, what changed.

    A folder of runs counts as one run: its relations are taken together, its seeds paired with the same seeds of the
    other. It says among which answers each ranks. To compare two settings of one sweep:
    `askwell compare STORE STORE --where-a "setting = 'soft'" --where-b "setting = 'init'"`.

    Args:
        a: A run's folder, a folder of runs, a sweep's store, or a Parquet file of facts.
        b: The same for the run to compare it with.
        metric: The score to compare.
        unit: What counts as one independent unit: a fact, all facts of an x, or all facts of a y.
        where_b: The same for the other side.
        seed: Seed of the random sign flips and of the bootstrap.
        changed: How many of the changed facts to show.
    """
    from askwell.evaluation.compare import compare_outcomes
    from askwell.runs.query import outcomes_at, vocabularies_at

    comparison = compare_outcomes(
        outcomes_at(a, where_a, option="--where-a"),
        outcomes_at(b, where_b, option="--where-b"),
        metric=metric,
        unit=unit,
        seed=seed,
    )
    among = [
        "; ".join(vocabularies_at(path, where, option=option))
        for path, where, option in ((a, where_a, "--where-a"), (b, where_b, "--where-b"))
    ]
    a_named, b_named = (
        str(path) if where is None else f"{path} ({where})" for path, where in ((a, where_a), (b, where_b))
    )
    if json:
        shown = replace(comparison, changed=comparison.changed[:changed])
        ranked = {"a_vocabulary": among[0] or None, "b_vocabulary": among[1] or None}
        print_json({"a": a_named, "b": b_named, **ranked, **to_json(shown), "changed_facts": len(comparison.changed)})
    else:
        _print(comparison, a_named, b_named, changed, among)


def _print(comparison: "Comparison", a: str, b: str, changed: int, among: Sequence[str]) -> None:
    from askwell.evaluation.significance import SIGNIFICANT

    several = len(comparison.relations) > 1
    averages = {"micro average": comparison.micro, "macro average": comparison.macro}
    digits = METRICS[comparison.metric].decimals
    title = escape(f"{comparison.metric}, A: {a}, B: {b}")
    table = Table("", "facts", "A", "B", "A − B", "A better", "B better", title=title)

    def add(name: str, of: Any, counts: Any) -> None:
        scores = (f"{of.a:.{digits}f}", f"{of.b:.{digits}f}", f"{of.difference:+.{digits}f}")
        table.add_row(escape(name), str(counts.facts), *scores, str(counts.wins), str(counts.losses))

    for name, of in comparison.relations.items():
        add(name, of, of)
    if several:
        table.add_section()
        for name, of in averages.items():
            add(name, of, comparison)
    print_table(table)
    if any(among) and among[0] == among[1]:
        say(f"Ranked among {among[0]}.")
    elif any(among):
        say(*(f"{side} ranks among {of_side}." for side, of_side in zip("AB", among, strict=True) if of_side))
    seeds = f", each with seeds {', '.join(map(str, comparison.seeds))}" if comparison.seeds else ""
    say(
        f"{counted(comparison.facts, 'fact')} answered by both{seeds}; {comparison.only_a} only by A, "
        f"{comparison.only_b} only by B."
    )
    for name, of in averages.items() if several else [("difference", comparison.micro)]:
        say(
            f"{name}: {of.difference:+.{digits}f}, {100 * comparison.confidence:.0f} % interval {of.low:+.{digits}f} "
            f"to {of.high:+.{digits}f} (bootstrap over {comparison.unit}s); permutation test p = {_p(of.p)} "
            f"({'exact' if of.exact else 'sampled'}), {'' if of.p < SIGNIFICANT else 'not '}significant at the paper's "
            f"threshold of {SIGNIFICANT}."
        )
    say(
        f"A is better on {comparison.wins}, B on {comparison.losses} {comparison.unit}s: sign test "
        f"p = {_p(comparison.sign_p)}."
    )
    shown = comparison.changed[:changed]
    if shown:
        names = ["relation"] if several else []
        title = f"{len(shown)} of {counted(len(comparison.changed), 'fact')} that changed"
        table = Table(*names, "x", "y", "rank A", "rank B", "answer A", "answer B", title=title)
        for fact in shown:
            ranks = (f"{fact.a_rank:.5g}", f"{fact.b_rank:.5g}")
            cells = (fact.x, fact.y, *ranks, fact.a_answer or "–", fact.b_answer or "–")
            table.add_row(*map(escape, (fact.relation, *cells) if several else cells))
        print_table(table)


def _p(p: float) -> str:
    return f"{p:.3f}" if p >= 0.001 else f"{p:.1g}"
