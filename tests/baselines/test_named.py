"""The table of baselines."""

from typing import get_args

import pytest

from askwell.baselines.named import BASELINES, need_prompts
from askwell.errors import BadOption
from askwell.specs.baselines import BaselineName


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
