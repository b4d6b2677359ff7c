"""`askwell compare`."""

from pathlib import Path
from typing import TYPE_CHECKING, Literal

from askwell.cli.options import Json, NotNegative, Where
from askwell.cli.terminal import print_json, show
from askwell.evaluation.metrics import METRICS

if TYPE_CHECKING:
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
    from askwell.runs.query import compare_runs
    from askwell.views.compared import comparison_blocks

    compared = compare_runs(a, b, where_a=where_a, where_b=where_b, metric=metric, unit=unit, seed=seed)
    if json:
        print_json(compared.as_json(changed))
    else:
        show(*comparison_blocks(compared, changed))
