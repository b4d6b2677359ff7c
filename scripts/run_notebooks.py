"""Run the notebooks of examples/ from top to bottom and keep their outputs in them.

    python scripts/run_notebooks.py [NOTEBOOK …]

What goes to stderr (progress) and what depends on the moment (times of execution) is left out, so that a notebook
changes only when its outputs do.
"""

import os
import sys
import tempfile
from pathlib import Path

import nbclient
import nbformat

EXAMPLES = Path(__file__).parents[1] / "examples"


def run(notebook: Path) -> None:
    """Execute a notebook in a temporary folder, and write it with its outputs."""
    cells = nbformat.read(notebook, as_version=4)
    with tempfile.TemporaryDirectory() as folder:
        nbclient.NotebookClient(
            cells, timeout=1200, record_timing=False, resources={"metadata": {"path": folder}}
        ).execute()
    for cell in cells.cells:
        if cell.cell_type == "code":
            cell.outputs = [output for output in cell.outputs if output.get("name") != "stderr"]
    nbformat.write(cells, notebook)


def main() -> None:
    """Run the notebooks that are named, or all of them."""
    os.environ["MPLBACKEND"] = "module://matplotlib_inline.backend_inline"
    for notebook in map(Path, sys.argv[1:]) if len(sys.argv) > 1 else sorted(EXAMPLES.glob("*.ipynb")):
        print(notebook.name, flush=True)
        run(notebook)


if __name__ == "__main__":
    main()
