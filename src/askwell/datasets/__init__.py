"""Published data: what there is, pulled and verified; other projects' formats; statistics."""

from askwell.datasets.catalogue import SETS, DataSet, chosen_sets
from askwell.datasets.fetch import pull
from askwell.datasets.local_copy import take_from
from askwell.datasets.statistics import prompt_statistics, relation_statistics
from askwell.datasets.verify import Condition, condition

__all__ = [
    "SETS",
    "Condition",
    "DataSet",
    "chosen_sets",
    "condition",
    "prompt_statistics",
    "pull",
    "relation_statistics",
    "take_from",
]
