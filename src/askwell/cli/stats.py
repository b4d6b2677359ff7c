"""`askwell stats`: the paper's two tables about its data."""

from dataclasses import asdict
from typing import TYPE_CHECKING

from askwell.cli.options import Data, Json

if TYPE_CHECKING:
    from collections.abc import Mapping

    from askwell.datasets.statistics import PromptStatistics, RelationStatistics

_HEADINGS = {
    "avg_unique_x": "distinct x",
    "avg_unique_y": "distinct y",
    "min_pairs": "least pairs",
    "max_pairs": "most",
    "mean_pairs": "mean",
    "avg_prompts": "prompts",
    "min_prompts": "least",
    "max_prompts": "most",
    "avg_tokens": "tokens",
}


def stats(*, data: Data = None, json: Json = False) -> None:
    """Print the paper's statistics of relations and prompts, counted on the data folder or the pulled data.

    Pairs are lines of all splits, repeated ones each time; distinct x and y are means over relations. Tokens are
    pieces between white space, both blanks included, as a mean over prompts.
    """
    from askwell.data_folder import data_folder, pulled_data_folder
    from askwell.datasets.statistics import prompt_statistics, relation_statistics, statistics_json
    from askwell.errors import BadOption

    folder = data_folder(data)
    if folder is None:
        raise BadOption(
            f"there is no data in {pulled_data_folder()}; get it with `askwell data pull`, or name a folder with --data"
        )
    from askwell.cli.terminal import note, print_json

    if json:
        print_json(statistics_json(folder))
        return
    _print_table("Relations", relation_statistics(folder))
    _print_table("Prompts", prompt_statistics(folder))
    note(
        "The paper prints 1580 for the distinct x of T-REx original and 507 for the distinct y of ConceptNet; counted"
        " on the published files, they are 1581 and 552."
    )


def _print_table(
    title: str, rows: "Mapping[str, RelationStatistics | None] | Mapping[str, PromptStatistics | None]"
) -> None:
    from rich.table import Table

    from askwell.cli.terminal import out

    keys = list(dict.fromkeys(key for row in rows.values() if row is not None for key in asdict(row)))
    table = Table(title=title, title_justify="left", box=None, header_style="dim", pad_edge=False)
    table.add_column("", no_wrap=True, style="bold")
    for key in keys:
        table.add_column(_HEADINGS.get(key, key), justify="right", no_wrap=True)
    for name, row in rows.items():
        table.add_row(name, *(["missing"] if row is None else map(str, asdict(row).values())))
    out.print(table)
