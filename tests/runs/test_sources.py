"""Which LMs an evaluation of many relations or mixtures loads, and how many workers a sweep uses."""

from pathlib import Path
from typing import Any

import pytest
from builders import tiny

from askwell.errors import BadOption
from askwell.lms.load import load_lm
from askwell.mixture.description import About
from askwell.mixture.learned_from import RelationRecord
from askwell.mixture.mixture import Mixture
from askwell.runs import engines as sweep
from askwell.runs import score_source, sources
from askwell.runs.engines import Pool
from askwell.runs.score_source import EvaluationSources, saved_jobs, untuned_jobs
from askwell.specs.mixture_spec import MixtureSpec
from askwell.specs.run_spec import SweepSpec

LOADING: dict[str, Any] = {"revision": None, "tokenizer": None, "device": "cpu", "dtype": "auto"}


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the LMs that were loaded."""
    names: list[str] = []

    def noted(name: str, **options: Any) -> Any:
        names.append(Path(name).name)
        return load_lm(name, **options)

    for module in (sources, score_source):
        monkeypatch.setattr(module, "load_lm", noted)
    return names


def nothing(_text: str) -> None:
    pass


def test_untuned_prompts_of_a_whole_set_load_the_lm_once(loads: list[str]) -> None:
    named = EvaluationSources(["testbed:"], "testbed:bert", LOADING)
    jobs = list(untuned_jobs(["testbed:single"], MixtureSpec(), named, nothing))
    assert len(jobs) > 10
    assert loads == ["testbed:bert"]
    assert len({id(mixture.lm) for mixture, _ in jobs}) == 1


def test_each_relation_of_a_set_is_asked_as_its_own_train_facts_say() -> None:
    names = ["testbed:capital", "testbed:currency"]
    jobs = untuned_jobs(["testbed:single"], MixtureSpec(), EvaluationSources(names, "testbed:causal", LOADING), nothing)
    for name, job in zip(names, jobs, strict=True):
        (alone,) = untuned_jobs(
            ["testbed:single"], MixtureSpec(), EvaluationSources([name], "testbed:causal", LOADING), nothing
        )
        spec, expected = job[0].spec, alone[0].spec
        assert (spec.begin, spec.lead_in, spec.shots) == (expected.begin, expected.lead_in, expected.shots)
        assert spec.context_scores == expected.context_scores
        assert spec.context_scores.begins


@pytest.mark.parametrize("moved", [False, True])
def test_mixtures_of_several_lms_load_each_once(loads: list[str], tmp_path: Path, moved: bool) -> None:
    """In whatever order they are named, and wherever the LM lies now."""
    folders = []
    for number, name in enumerate(["bert", "bert", "bert"] if moved else ["bert", "roberta", "bert", "roberta"]):
        checkpoint = tmp_path / name
        if not checkpoint.exists():
            tiny.save(*tiny.TINY[name](), checkpoint)
        folders.append(str(tmp_path / f"mixture-{number}"))
        Mixture(load_lm(checkpoint, device="cpu"), ["[X] lies in [Y] ."]).save_pretrained(folders[-1])
    elsewhere = None
    if moved:
        elsewhere = str((tmp_path / "bert").rename(tmp_path / "elsewhere"))
    facts = ["testbed:capital"] * len(folders)
    jobs = list(saved_jobs(folders, EvaluationSources(facts, elsewhere, LOADING), nothing))
    assert len(jobs) == len(folders)
    assert loads == (["elsewhere"] if moved else ["bert", "roberta"])


def test_a_run_of_its_relations_name_is_not_taken_for_the_facts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`train --facts rivers.csv --out rivers`, and then `evaluate rivers`."""
    monkeypatch.chdir(tmp_path)
    mixture = Mixture(load_lm("testbed:bert", device="cpu"), ["[X] lies in [Y] ."])
    mixture.save_pretrained(Path("rivers"), about=About(relation=RelationRecord(name="rivers")))
    with pytest.raises(BadOption, match=r"the facts that rivers was learned from cannot be read"):
        list(saved_jobs(["rivers"], EvaluationSources(loading=LOADING), nothing))


@pytest.mark.parametrize(("threads", "workers"), [(None, 6), (1, 6), (2, 3), (4, 1), (12, 1)])
def test_a_sweep_fills_all_cores_with_one_thread_workers(
    threads: int | None, workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweep, "available_threads", lambda: 6)
    grid: dict[str, Any] = {"lms": ["testbed:bert"], "facts": ["testbed:capital"], "store": "s"}
    grid |= {"prompts": {"single": ["testbed:single"]}, "settings": {"plain": {}}}
    engine = sweep.choose_engine(SweepSpec.model_validate(grid | ({} if threads is None else {"threads": threads})))
    assert isinstance(engine, Pool)
    assert engine.workers == workers
