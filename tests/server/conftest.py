"""A small folder of runs to be served, made once."""

import shutil
from pathlib import Path
from typing import Any

import pytest
from builders.once import once


@pytest.fixture(scope="session")
def made_runs(tmp_path_factory) -> Path:
    """Two tuned runs of the testbed (symbol, shallow and deep) and an untuned one. No test may change it."""
    from builders.testbed import load_testbed_lm

    from askwell.data.testbed import testbed_prompts, testbed_relation
    from askwell.runs.build_spec import build_run_spec
    from askwell.runs.run import run
    from askwell.specs.mixture_spec import MixtureSpec
    from askwell.specs.training_spec import TrainingSpec

    def make(folder: Path) -> None:
        lm, relation = load_testbed_lm("bert"), testbed_relation("symbol")
        templates = testbed_prompts("mined", "symbol")[:3]
        for name, mixture, training in (
            ("soft", MixtureSpec(), TrainingSpec(pairs=800)),
            ("deep", MixtureSpec(deep=True, seed=1), TrainingSpec(pairs=120)),
            ("hard", MixtureSpec(), None),
        ):
            how: Any = {"mixture": mixture, "training": training, "prompts": "mined", "threads": 1}
            spec = build_run_spec(lm, relation, templates, **how)
            run(spec, lm, relation, folder / name, untuned=training is not None)

    return once(tmp_path_factory, "served-runs", make)


@pytest.fixture
def runs(made_runs, tmp_path) -> Path:
    """The same runs, to be changed at will."""
    return Path(shutil.copytree(made_runs, tmp_path / "runs"))
