"""Reads sets of questions: PopQA's table, EntityQuestions' lists, and LM-KBC's lines with several answers or none."""

import json
from collections.abc import Collection
from pathlib import Path
from typing import Any

from askwell.data.facts import SPLIT_FILES, Fact
from askwell.data.imported import Imported, files_below, need_folder
from askwell.data.readers import read_columns, text_of, texts_of
from askwell.errors import BadFile
from askwell.files import read_text

NO_ANSWER = "None"
"""The y of an x that has no right answer."""


def read_lm_kbc(imported: Imported, source: Path, name: str) -> None:
    """Take files of lines with SubjectEntity, Relation and ObjectEntities. Each object is a fact; a list in place of an
    object is the object with its aliases; where there is none, y is "None"."""
    for path in _files(source, ".jsonl"):
        for number, record in imported.records(path):
            imported.lines += 1
            x, relation = (text_of(path, number, record, key) for key in ("SubjectEntity", "Relation"))
            objects = record.get("ObjectEntities")
            if not isinstance(objects, list):
                raise BadFile(path, "'ObjectEntities' must be a list of texts", number)
            for one in objects or [NO_ANSWER]:
                y, *aliases = texts_of(path, number, {"ObjectEntities": one}, "ObjectEntities")
                imported.take(name, relation, path, number, Fact(x, y, aliases=tuple(aliases)))


def read_popqa(imported: Imported, source: Path, name: str) -> None:
    """Take a table with subj, prop, obj, possible_answers (a JSON list, whose others become aliases) and question, of
    which each that names subj is a template."""
    columns = ("subj", "prop", "obj", "possible_answers", "question")

    def choose(there: Collection[str]) -> tuple[str, ...]:
        if missing := [column for column in columns if column not in there]:
            raise ValueError(f"PopQA's table has a column {missing[0]!r}; found {', '.join(there)}")
        return columns

    templates: dict[tuple[str, str], int] = {}
    for path in _files(source, ".tsv"):
        imported.files += 1
        for number, (subject, prop, y, listed, question) in read_columns(path, choose):
            imported.lines += 1
            try:
                answers = json.loads(listed)
            except json.JSONDecodeError:
                answers = None
            if not isinstance(answers, list) or not all(isinstance(answer, str) for answer in answers):
                raise BadFile(path, "'possible_answers' must be a JSON list of texts", number)
            relation = prop.replace("/", " ")
            aliases = tuple(answer for answer in dict.fromkeys(answers) if answer not in ("", y))
            imported.take(name, relation, path, number, Fact(subject, y, aliases=aliases))
            if question.count(subject) == 1:
                templates.setdefault((relation, f"{question.replace(subject, '[X]')} [Y]"), number)
    for (relation, text), number in templates.items():
        imported.add_prompt(name, relation, source, number, text)


def read_entity_questions(imported: Imported, source: Path, name: str) -> None:
    """Take RELATION.{train,dev,test}.json files: lists of objects with a question, which is x as a whole, and its
    answers, the first of which is y."""
    need_folder(source, "P17.test.json and so on")
    for path in files_below(source, ".json"):
        relation, _, split = path.stem.partition(".")
        if f"{split}.jsonl" not in SPLIT_FILES:
            imported.skip(path, "is not named RELATION.train.json, RELATION.dev.json or RELATION.test.json")
            continue
        imported.files += 1
        for number, record in enumerate(_entries(path), start=1):
            imported.lines += 1
            question, answers = (
                record.get(key) if isinstance(record, dict) else None for key in ("question", "answers")
            )
            texts: list[Any] = [question, *(answers if isinstance(answers, list) else [None])]
            if len(texts) < 2 or not all(isinstance(text, str) and text.strip() for text in texts):
                raise BadFile(path, f'entry {number} is not of the form {{"question": "…", "answers": ["…", …]}}')
            x, y, *aliases = (text.strip() for text in texts)
            imported.take(name, relation, path, None, Fact(x, y, aliases=tuple(aliases)), SPLIT_FILES[f"{split}.jsonl"])
        if f"{relation}.jsonl" not in imported.sets["prompts"].get(name, {}):
            imported.add_prompt(name, relation, path, None, "[X] [Y]")
    imported.drop_partly_split(source)


def _entries(path: Path) -> list[Any]:
    try:
        entries = json.loads(read_text(path))
    except (ValueError, RecursionError) as error:
        raise BadFile(path, f"broken JSON: {error}") from None
    if not isinstance(entries, list):
        raise BadFile(path, "expected a list of questions with their answers")
    return entries


def _files(source: Path, suffix: str) -> list[Path]:
    """Return the file itself, or those with this ending in a folder."""
    if source.suffix == suffix and source.is_file():
        return [source]
    need_folder(source, f"files that end in {suffix}")
    return files_below(source, suffix)
