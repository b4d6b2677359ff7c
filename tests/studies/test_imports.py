"""Every study can be loaded: what it takes from the package is there under that name."""

import importlib
import sys
from pathlib import Path

import pytest

STUDIES = Path(__file__).parents[2] / "studies"
sys.path.insert(0, str(STUDIES))


@pytest.mark.parametrize("study", sorted(path.stem for path in STUDIES.glob("*.py")))
def test_a_study_can_be_loaded(study: str) -> None:
    assert importlib.import_module(study)
