"""Results as tables of other libraries, which are no dependencies and are imported only when needed."""

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

from askwell.errors import BadOption

Records = Sequence[Mapping[str, Any]]
"""Rows with the same keys."""


class AsFrame:
    """Turns its records into a pandas frame or an Arrow table."""

    def records(self) -> Records:
        """Return its rows, as dictionaries with the same keys."""
        raise NotImplementedError  # abstract: each class that is used has its own

    def to_pandas(self) -> Any:
        """Return its records as a pandas.DataFrame."""
        return pandas_frame(self.records())

    def to_arrow(self) -> Any:
        """Return its records as a pyarrow.Table, which polars, DuckDB and datasets read as well."""
        return arrow_table(self.records())


def pandas_frame(records: Records) -> Any:
    """Return the records as a pandas.DataFrame."""
    return _need("pandas", "to_pandas").DataFrame([dict(record) for record in records])


def arrow_table(records: Records) -> Any:
    """Return the records as a pyarrow.Table."""
    return _need("pyarrow", "to_arrow").Table.from_pylist([dict(record) for record in records])


def _need(package: str, method: str) -> Any:
    try:
        return import_module(package)
    except ImportError:
        raise BadOption(f"{method}() needs {package}, which is not installed: pip install {package}") from None
