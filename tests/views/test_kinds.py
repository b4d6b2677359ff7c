"""The kind of a run follows from its spec, whatever its setting is called."""

from typing import get_args

import pytest
from builders.stores import spec_of

from askwell.runs.run_group import fact_set_of
from askwell.specs.mixture_spec import WeightingName
from askwell.views.study_cells import extras_of, how_of, kind_of, source_of


@pytest.mark.parametrize(
    ("choices", "kind", "extras"),
    [
        ({"tuned": False}, "init", ()),
        ({"tuned": False, "mixture": {"deep": True}}, "init", ()),
        ({}, "soft", ()),
        ({"mixture": {"deep": True}}, "deep", ()),
        ({"training": {"tune_vectors": False}}, "weights only", ()),
        ({"training": {"tune_weights": False}}, "vectors only", ()),
        ({"training": {"tune_layers": False}}, "soft", ()),
        (
            {"mixture": {"deep": True}, "training": {"tune_weights": False}},
            "deep, vectors and layers tuned",
            (),
        ),
        ({"training": {"tune_weights": False, "tune_vectors": False}}, "nothing tuned", ()),
        ({"training": {"method": "em"}}, "soft", ("EM",)),
        ({"mixture": {"weighting": "data-dependent", "deep": True}}, "deep", ("weighted by x (data-dependent)",)),
        ({"mixture": {"copies": 3, "noise": 0.5}}, "soft", ("3 copies",)),
        ({"mixture": {"combine": "product"}}, "weights only", ("product of experts",)),
        ({"tuned": False, "mixture": {"weights": "file"}}, "init", ("published weights",)),
    ],
)
def test_the_spec_decides(choices, kind, extras):
    spec = spec_of(setting="any name", **choices)
    assert (kind_of(spec), extras_of(spec)) == (kind, extras)


def test_random_vectors_are_a_source_of_their_own():
    assert source_of(spec_of(prompts="mined")) == "mined"
    assert source_of(spec_of(prompts="mined", mixture={"initial": "random"})) == "random (mined)"
    assert source_of(spec_of(prompts="mined", mixture={"initial": "random-full"})) == "random-full (mined)"


def test_how_a_run_was_done_is_all_that_kind_row_and_seed_do_not_tell():
    plain = how_of(spec_of())
    for same in (
        spec_of(mixture={"deep": True}),
        spec_of(seed=5),
        spec_of(training={"tune_weights": False}),
        spec_of(training={"method": "em"}),
        spec_of(mixture={"copies": 2, "initial": "random"}),
        spec_of("set:b"),
    ):
        assert how_of(same) == plain
    for other in (
        spec_of(training={"pairs": 9}),
        spec_of(training={"recipe": "paper"}),
        spec_of(mixture={"noise": 1.0}),
        spec_of(threads=2),
        spec_of(dtype="float64"),
    ):
        assert how_of(other) != plain


def test_the_set_is_what_stands_before_the_relation():
    assert [fact_set_of(name) for name in ("testbed:capital", "trex_original/P19", "P19")] == [
        "testbed", "trex_original", "own facts",
    ]  # fmt: skip


def test_every_weighting_has_a_row_of_its_own():
    names = [name for name in get_args(WeightingName) if name != "auto"]
    kinds = {name: extras_of(spec_of(mixture={"weighting": name})) for name in names}
    assert kinds["static"] == extras_of(spec_of(mixture={"weighting": "auto"})) == ()
    assert len(set(kinds.values())) == len(names)
