"""A relation as a multiple-choice task of the lm-evaluation-harness: its YAML file, its data, and how to read them."""

import json
import re
from pathlib import Path

from askwell.answers.candidates import Candidates
from askwell.data.facts import Relation
from askwell.data.templates import Template
from askwell.errors import BadOption, NothingLeft
from askwell.files import write_all

_TASK = """\
task: {task}
custom_dataset: !function data.load
output_type: multiple_choice
test_split: test
doc_to_text: text
doc_to_choice: choices
doc_to_target: gold
target_delimiter: " "
num_fewshot: 0
metric_list:
  - metric: acc
    aggregation: mean
    higher_is_better: true
metadata:
  version: 1.0
  relation: {relation}
"""
_READER = '''\
"""Reads the data beside this file, wherever the folder is."""

from pathlib import Path

import datasets


def load(**_options):
    return datasets.load_dataset("json", data_files={"test": str(Path(__file__).with_name("test.jsonl"))})
'''


def write_task(
    relation: Relation, folder: Path, *, template: Template | None = None, candidates: Candidates | None = None
) -> str:
    """Write the test facts of a relation as a task, and return the task's name.

    The choices are the candidates or all ys of the relation, without the other right answers of the same x; they are
    also written as candidates.txt, for `askwell evaluate --candidates`. The text is x alone, which the model askwell
    puts into its prompts; with a template, it is the sentence up to y, for every other model.
    """
    if template is not None and not template.x_first:
        raise BadOption(f"{template.text!r} asks for y before it names x: give a prompt with [X] before [Y]")
    ys = candidates.names if candidates else tuple(sorted({y for golds in relation.golds.values() for y in golds}))
    lines = []
    for fact in relation.test:
        others = {*relation.golds[fact.x]} - {fact.y}
        choices = [y for y in ys if y not in others]
        if fact.y in choices:
            text = fact.x if template is None else f"{template.before}{fact.x}{template.between}".rstrip()
            question = {"x": fact.x, "y": fact.y, "text": text, "choices": choices, "gold": choices.index(fact.y)}
            lines.append(json.dumps(question, ensure_ascii=False) + "\n")
    if not lines:
        raise NothingLeft("test facts", {"y is not among the candidates": len(relation.test)})
    task = "askwell_" + re.sub(r"\W+", "_", relation.name).strip("_")
    write_all(
        {
            folder / "test.jsonl": "".join(lines),
            folder / "candidates.txt": "".join(f"{y}\n" for y in ys),
            folder / "data.py": _READER,
            folder / f"{task}.yaml": _TASK.format(task=task, relation=json.dumps(relation.name)),
        }
    )
    return task
