"""Tiny made-up data sets, with their hashes."""

import hashlib

from askwell.data.published import DataSet, Origin

# Two sets of two files each, long enough to be cut off in the middle.
CONTENT = {
    "facts/tiny/P1/train.jsonl": b'{"sub": "France", "obj": "Paris"}\n' * 3000,
    "facts/tiny/P1/test.jsonl": b'{"sub": "Norway", "obj": "Oslo"}',
    "prompts/tiny/bert.jsonl": '{"template": "[X] \u2192 [Y]"}\n'.encode(),
    "prompts/tiny/roberta.jsonl": b'{"template": "[X] is [Y] ."}\n' * 7,
}
FACTS = DataSet("facts/tiny", "tiny facts", "MIT", "facts", Origin("someone/facts", "a" * 40, "db/tiny"))
PROMPTS = DataSet(
    "prompts/tiny",
    "tiny prompts",
    "MIT",
    "prompts",
    Origin("someone/prompts", "b" * 40, "prompts"),
    {"bert.jsonl": Origin("someone/prompts", "c" * 40, "prompts/of bert.jsonl")},
)
TINY = (FACTS, PROMPTS)
UPSTREAM = {
    "facts/tiny/P1/train.jsonl": f"/someone/facts/{'a' * 40}/db/tiny/P1/train.jsonl",
    "facts/tiny/P1/test.jsonl": f"/someone/facts/{'a' * 40}/db/tiny/P1/test.jsonl",
    "prompts/tiny/bert.jsonl": f"/someone/prompts/{'c' * 40}/prompts/of%20bert.jsonl",
    "prompts/tiny/roberta.jsonl": f"/someone/prompts/{'b' * 40}/prompts/roberta.jsonl",
}
TRAIN = "facts/tiny/P1/train.jsonl"
TEST = "facts/tiny/P1/test.jsonl"
BERT = "prompts/tiny/bert.jsonl"


def manifest_of(content: dict[str, bytes]) -> dict[str, dict[str, int | str]]:
    return {
        path: {
            "bytes": len(data),
            "lines": len(data.strip().split(b"\n")),
            "sha256": hashlib.sha256(data).hexdigest(),
        }
        for path, data in content.items()
    }
