"""Facts of a data set on the Hugging Face hub, or in a folder with the hub's layout, read by `datasets`."""

from pathlib import Path
from typing import Any

from askwell.errors import BadFile, BadOption
from askwell.views.printable import clipped

HUB = "hub:"


def read_hub(source: str) -> tuple[str, Any]:
    """Return the name of a data set and its rows, given hub:NAME:SPLIT, or its splits, given hub:NAME.

    NAME is that of a data set, `owner/name` or a folder on this machine; one of its configurations is named after a
    "@": hub:owner/name@config:train. SPLIT is whatever `datasets` takes, such as train[:500].
    """
    try:
        import datasets
    except ImportError:
        raise BadOption(
            f"{source}: data sets of the hub are read by `datasets`, which is not installed: pip install 'askwell[hub]'"
        ) from None
    name, _, split = source.removeprefix(HUB).partition(":")
    path, _, config = name.partition("@")
    if not path:
        raise BadOption(f"{source} names no data set: write hub:NAME:SPLIT, e.g. hub:owner/capitals:train")
    try:
        rows: Any = datasets.load_dataset(path, config or None, split=split or None)
    except Exception as error:  # datasets raises errors of many libraries
        problem = str(error).strip().splitlines() or [type(error).__name__]
        raise BadFile(source, f"datasets cannot read it: {clipped(problem[0], 300)}") from error
    only = next(iter(rows.values())) if not split and len(rows) == 1 else None
    return Path(path).name, rows if only is None else only
