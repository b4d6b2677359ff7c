"""How objects show themselves: as text where they are printed, as a table in a notebook, as frames of other libraries.

These libraries are no dependencies; they are imported when they are needed."""

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

from askwell.errors import BadOption
from askwell.views.document import Document


class ShowsItself:
    """Prints as its summary, and shows it as a table in a notebook."""

    def summary(self) -> Document:
        """Return what is worth seeing at a glance."""
        raise NotImplementedError  # abstract: each class that is used has its own

    def __repr__(self) -> str:
        from askwell.views.to_text import plain_text

        return plain_text(self.summary())

    def _repr_html_(self) -> str:
        from askwell.views.to_html import notebook_html

        return notebook_html(self.summary())


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
        return _need("pyarrow", "to_arrow").Table.from_pylist([dict(record) for record in self.records()])


def pandas_frame(records: Records) -> Any:
    """Return the records as a pandas.DataFrame."""
    return _need("pandas", "to_pandas").DataFrame([dict(record) for record in records])


def _need(package: str, method: str) -> Any:
    try:
        return import_module(package)
    except ImportError:
        raise BadOption(f"{method}() needs {package}, which is not installed: pip install {package}") from None
