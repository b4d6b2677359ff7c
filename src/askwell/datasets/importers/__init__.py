"""Other projects' formats, read into ours."""

from collections.abc import Callable
from pathlib import Path
from typing import Literal

from askwell.datasets.importers.autoprompt import read_autoprompt
from askwell.datasets.importers.bear import read_bear
from askwell.datasets.importers.imported import Imported, write_imported
from askwell.datasets.importers.lama import read_lama
from askwell.datasets.importers.lpaqa import read_lpaqa
from askwell.datasets.importers.optiprompt import read_optiprompt

Format = Literal["lama", "lpaqa", "autoprompt", "optiprompt", "bear"]

READERS: dict[Format, Callable[[Path, str], Imported]] = {
    "lama": read_lama,
    "lpaqa": read_lpaqa,
    "autoprompt": read_autoprompt,
    "optiprompt": read_optiprompt,
    "bear": read_bear,
}

__all__ = ["READERS", "Format", "Imported", "write_imported"]
