"""The table of baselines."""

from typing import get_args

import pytest

from askwell.baselines.registry import BASELINES, baseline_settings, need_prompts
from askwell.errors import BadOption
from askwell.specs.mixture_spec import MixtureSpec
from askwell.specs.training_spec import BaselineName


def test_every_name_is_in_the_table():
    assert tuple(BASELINES) == get_args(BaselineName)


@pytest.mark.parametrize(
    ("name", "fitting", "wrong"),
    [
        ("lama", [1], [0, 2]),
        ("lpaqa-top1", [2, 40], [0, 1]),
        ("optiprompt-manual", [1], [0, 2]),
        ("optiprompt-random", [0], [1]),
        ("autoprompt", [0, 1], [2]),
        ("fine-tuning", [1], [0, 2]),
    ],
)
def test_how_many_prompts_a_baseline_takes(name, fitting, wrong):
    for count in fitting:
        need_prompts(name, count)
    for count in wrong:
        with pytest.raises(BadOption, match=name):
            need_prompts(name, count)


def test_the_longest_answer_is_chosen_as_in_training():
    assert baseline_settings("lama", longest_answer=4)["mixture"].longest_answer == 4
    assert baseline_settings("lama")["mixture"].longest_answer == MixtureSpec().longest_answer
    with pytest.raises(BadOption, match="`longest_answer` 0: input should be greater than or equal to 1"):
        baseline_settings("lama", longest_answer=0)
    with pytest.raises(BadOption, match="`longest_answer`: autoprompt only searches with answers that are one token"):
        baseline_settings("autoprompt", longest_answer=4)
    assert "one token" in BASELINES["autoprompt"].about
