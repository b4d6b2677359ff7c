"""`askwell compare`."""

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from rich.markup import escape
from rich.table import Table

from askwell.cli.options import Json, NotNegative, Where
from askwell.cli.tables import print_table
from askwell.cli.terminal import print_json, say
from askwell.display.summary import counted
from askwell.evaluation.metrics import METRICS, units_of

if TYPE_CHECKING:
    from askwell.runs.compare_runs import RunComparison

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
    other. The output names the answers that each ranks among. To compare two settings of one sweep:
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
    from askwell.runs.compare_runs import compare_runs

    compared = compare_runs(a, b, where_a=where_a, where_b=where_b, metric=metric, unit=unit, seed=seed)
    if json:
        print_json(compared.as_json(changed))
    else:
        _print(compared, changed)


def _print(compared: "RunComparison", changed: int) -> None:
    from askwell.evaluation.significance import SIGNIFICANT, interval_text

    comparison, among = compared.found, (compared.a.vocabulary, compared.b.vocabulary)
    several = len(comparison.relations) > 1
    averages = {"micro average": comparison.micro, "macro average": comparison.macro}
    digits = METRICS[comparison.metric].decimals
    title = f"{comparison.metric} {units_of([comparison.metric])}, A: {compared.a.name}, B: {compared.b.name}"
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
    if comparison.unsettled:
        facts = counted(comparison.unsettled, "fact")
        say(f"Left out: {facts} for which a search was cut before it was known whether y is found.")
    for name, of in averages.items() if several else [("difference", comparison.micro)]:
        unit, interval = comparison.unit, interval_text(of.low, of.high, f"{{:+.{digits}f}}".format)
        how = f"a relation with a single {unit}, or all alike" if of.low is None else f"bootstrap over {unit}s"
        say(
            f"{name}: {of.difference:+.{digits}f}, {100 * comparison.confidence:.0f} % interval {interval} ({how}); "
            f"permutation test p = {_p(of.p)} "
            f"({'exact' if of.exact else 'sampled'}), {'' if of.p < SIGNIFICANT else 'not '}significant at the paper's "
            f"threshold of {SIGNIFICANT}."
        )
    say(
        f"A is better on {counted(comparison.wins, comparison.unit)}, B on {comparison.losses}: sign test "
        f"p = {_p(comparison.sign_p)}."
    )
    shown = comparison.changed[:changed]
    if shown:
        names = ["relation"] if several else []
        title = f"{len(shown)} of {counted(len(comparison.changed), 'fact')} that changed"
        table = Table(*names, "x", "y", "rank A", "rank B", "answer A", "answer B", title=title)
        for fact in shown:
            ranks = (f"{rank:.5g}" if math.isfinite(rank) else "not found" for rank in (fact.a_rank, fact.b_rank))
            cells = (fact.x, fact.y, *ranks, fact.a_answer or "–", fact.b_answer or "–")
            table.add_row(*map(escape, (fact.relation, *cells) if several else cells))
        print_table(table)


def _p(p: float) -> str:
    return f"{p:.3f}" if p >= 0.001 else f"{p:.1g}"
