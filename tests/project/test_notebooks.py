"""The notebooks in examples/ run from top to bottom, and are kept with their outputs (scripts/run_notebooks.py)."""

import json
import os
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
NOTEBOOKS = sorted(EXAMPLES.glob("*.ipynb"))


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_kept_with_the_outputs_of_one_run_from_top_to_bottom(notebook):
    cells = [cell for cell in json.loads(notebook.read_text(encoding="utf-8"))["cells"] if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    outputs = [output for cell in cells for output in cell["outputs"]]
    shown = [sum("text/html" in output.get("data", {}) for output in cell["outputs"]) for cell in cells]
    assert sum(shown) >= 2
    assert max(shown) == 1, "an object shows itself once"
    assert not any(output["output_type"] == "error" or output.get("name") == "stderr" for output in outputs)


@pytest.mark.skipif(not os.environ.get("ASKWELL_TEST_FULL"), reason="each starts a kernel; set ASKWELL_TEST_FULL=1")
@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_from_top_to_bottom(notebook, tmp_path, monkeypatch):
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    monkeypatch.setenv("MPLBACKEND", "agg")
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    cells = nbformat.read(notebook, as_version=4)
    nbclient.NotebookClient(cells, timeout=600, resources={"metadata": {"path": str(tmp_path)}}).execute()
    shown = [output for cell in cells.cells if cell.cell_type == "code" for output in cell.outputs]
    assert not any(output.output_type == "error" for output in shown)
    # what stands last in a cell shows itself as HTML, once, and plots as pictures
    assert sum("text/html" in output.get("data", {}) for output in shown) >= 2
    assert not any("text/html" in output.get("data", {}) for output in shown if output.output_type == "display_data")
