"""Hostile values, and what can be done to bytes, JSON, text, tensors and tables. Everything is drawn (draws.py)."""

import copy
import json
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import duckdb
import torch
from fuzz.draws import Draws
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors

TEXTS = (
    "", " ", "\n", "\0", "a\0b", "\x1b[2J\x1b]0;title\x07", "\u202egnp.exe", "\u2028", "\ufeff", "a" * 300, "é" * 5000,
    "x" * 150_000, "9" * 400, "9" * 5000, "-" + "9" * 400, "0", "-0", "-1", "1.5", "1e999", "nan", "inf", "-inf", "٣",
    "true", "null", "None", "auto", "none", "../../../outside", "..", ".", "~", "/", "/dev/zero", "/dev/full",
    "/dev/null/x", "/proc/self/mem", "C:\\outside", "file:///etc/passwd", "a/b/c", "a/b", "-x", "--json",
    "=cmd|' /C calc'!A0", "@SUM(A1)", "<script>alert(1)</script>", "]]>", "{{7*7}}", "%s%n", "$(id)", "`id`", "a;b",
    "'; DROP TABLE runs; --", "1 = 1", "1/0", "((((", "[X]", "[X] [Y]", "[Y] [X] .", "[X][Y]", "[X] [X] [Y]",
    "[MASK]", "<mask> </s>", "[unused1]", "🙂" * 1000, "ﷺ", "a\u0300" * 500, "testbed:", "testbed:nothing",
    "testbed:../x", "testbed:single", "smollm2", "0,1,2", "1,,2", "70-15-15", "1-0-0", "99999999-1-1", "\udcff",
    "\ud800",     "[section]", "[/]", "[bold red]x[/bold red]", "\\", "\\u0000", '"', "'", ",", "\t", "a\r\nb",
)  # fmt: skip
"""What may stand where a text is expected: on the command line, in files, as names."""

NUMBERS = (
    0, -1, 1, 2, 3, 255, 2**31, -(2**31), 2**63, 2**64, 10**30, 10**400, 0.0, -0.0, 0.5, 1e-320, 1e308, -1e308, 1e-9,
    float("nan"), float("inf"), float("-inf"), 1_000_000,
)  # fmt: skip

# Pieces of files that parsers stumble over; they are written into the middle of one.
_PIECES = (
    b"", b"\0", b"\xff\xfe", b"\xef\xbb\xbf", b"\xed\xa0\x80", b"\xc3", b"\x1b[2J", b"\r", b"\n", b"\r\n", b"\n\n\n",
    b'"', b"'", b'""', b"{", b"}", b"[", b"]", b",", b":", b"\\", b"\\ud800", b"\\u0000", b"NaN", b"Infinity", b"-1",
    b"1e999", b"null", b"true", b"[]", b"{}", b"[" * 3000, b'{"x":' * 3000, b"9" * 400, b"9" * 5000, b"a" * 150_000,
    b"a." * 2000, b"\t", b"=", b"[[a]]", b"\xe2\x80\xae", b"/*", b"#", b"x,y\n", b'{"x": 1, "x": 2}', b" " * 1000,
    b"\xff\xff\xff\xff\xff\xff\xff\x7f", b"\0" * 64, b"PAR1", b"GGUF", b"cos\nsystem\n(S'id'\ntR.", b"PK\x03\x04",
)  # fmt: skip


def text(data: Draws) -> str:
    """A hostile text: one of the list, or anything at all."""
    return data.choice(TEXTS) if data.integer(0, 1) else data.text(40)


def value(data: Draws) -> Any:
    """A hostile value of JSON."""
    kind = data.integer(0, 5)
    if kind == 0:
        return data.choice((None, True, False, [], {}, [[]], [None], {"": {}}, {"x": None}, [{}]))
    if kind == 1:
        return data.choice(NUMBERS)
    if kind in (2, 3):
        return text(data)
    if kind == 4:
        return [value(data) for _ in range(data.integer(0, 3))]
    nested: Any = data.choice((1, "x", None))
    depth = data.choice((2, 50, 400))
    of_lists = data.integer(0, depth)
    for level in range(depth):
        nested = [nested] if level >= depth - of_lists else {"x": nested}
    return nested


def spoil_bytes(data: Draws, content: bytes) -> bytes:
    """The bytes with some of them flipped, cut out, repeated, or replaced by a hostile piece."""
    for _ in range(data.integer(1, 3)):
        size = len(content)
        start = data.integer(0, size)
        end = min(size, start + data.choice((0, 1, 2, 4, 8, 64, size)))
        match data.integer(0, 5):
            case 0 if start < size:
                flipped = content[start] ^ (1 << data.integer(0, 7))
                content = content[:start] + bytes([flipped]) + content[start + 1 :]
            case 1:
                content = content[:start] + content[end:]
            case 2:
                content = content[:start]
            case 3:
                content = content[:end] + content[start:end] * data.integer(1, 3) + content[end:]
            case 4:
                content = content[:start] + data.bytes(16) + content[end:]
            case _:
                content = content[:start] + data.choice(_PIECES) + content[end:]
    return content


def spoil_json(data: Draws, document: Any) -> Any:
    """The document with some of its values replaced, removed, renamed, moved or wrapped."""
    document = copy.deepcopy(document)
    for _ in range(data.integer(1, 3)):
        places = list(_places(document))
        if not places:
            return value(data)
        holder, key = data.choice(places)
        match data.integer(0, 7):
            case 0 | 1 | 2:
                holder[key] = value(data)
            case 3:
                del holder[key]
            case 4:
                other, name = data.choice(places)
                holder[key] = copy.deepcopy(other[name]) if _is_in(other, name) else None
            case 5:
                holder[key] = [holder[key]]
            case 6 if isinstance(holder, dict):
                holder[text(data)] = holder.pop(key)
            case _:
                holder[key] = {} if isinstance(holder[key], list) else []
    return document


def _is_in(holder: Any, key: Any) -> bool:
    return key in holder if isinstance(holder, dict) else key < len(holder)


def _places(document: Any) -> Iterator[tuple[Any, Any]]:
    """Every holder and key in a document, which may be too deep for a function that calls itself."""
    waiting = [document]
    while waiting:
        holder = waiting.pop()
        for key, inner in holder.items() if isinstance(holder, dict) else enumerate(holder):
            yield holder, key
            if isinstance(inner, dict | list):
                waiting.append(inner)


def as_json(document: Any) -> bytes:
    """JSON as others may write it: NaN, lone surrogates as escapes."""
    try:
        return json.dumps(document, ensure_ascii=True).encode()
    except RecursionError:  # several deep values in each other
        return b"[" * 1200 + b"]" * 1200


def spoil_json_file(data: Draws, content: bytes) -> bytes:
    """A JSON document that is no longer what it was, though mostly still JSON."""
    if data.integer(0, 3) == 0:
        return spoil_bytes(data, content)
    return as_json(spoil_json(data, json.loads(content)))


def spoil_json_lines(data: Draws, content: bytes) -> bytes:
    """JSON lines, some of which are no longer what they were."""
    if data.integer(0, 2) == 0:
        return spoil_bytes(data, content)
    lines = [json.loads(line) for line in content.splitlines()]
    spoilt = spoil_json(data, lines)
    return b"".join(as_json(line) + b"\n" for line in (spoilt if isinstance(spoilt, list) else [spoilt]))


def spoil_table(data: Draws, content: bytes, delimiter: str) -> bytes:
    """A table of texts with some cells, rows or its header spoilt."""
    if data.integer(0, 1) == 0:
        return spoil_bytes(data, content)
    rows = [line.split(delimiter) for line in content.decode().splitlines()]
    for _ in range(data.integer(1, 3)):
        row = data.choice(rows)
        if data.integer(0, 1) and row:
            row[data.integer(0, len(row) - 1)] = text(data)
        else:
            row.append(text(data))
    return "\n".join(delimiter.join(row) for row in rows).encode("utf-8", "surrogatepass")


def spoil_tensors(data: Draws, content: bytes) -> bytes:
    """Safetensors with numbers that are none, other shapes or types, or tensors that are missing or foreign."""
    if data.integer(0, 3) == 0:
        return spoil_bytes(data, content)
    return save_tensors(spoil_tensor_values(data, load_tensors(content)))


def spoil_tensor_values(data: Draws, tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The tensors with numbers that are none, other shapes or types, and some of them missing or renamed."""
    for _ in range(data.integer(1, 2)):
        name = data.choice(sorted(tensors))
        tensor = tensors[name]
        match data.integer(0, 6):
            case 0:
                odd = data.choice((float("nan"), float("inf"), -1e38))
                tensors[name] = torch.full_like(tensor if tensor.is_floating_point() else tensor.float(), odd)
            case 1:
                tensors.pop(name)
            case 2:
                tensors["foreign" + name] = tensors.pop(name)
            case 3:
                tensors[name] = tensor.reshape(-1)[: data.integer(0, 3)]
            case 4:
                kinds = (torch.int64, torch.bool, torch.float64, torch.bfloat16, torch.uint8)
                tensors[name] = tensor.to(data.choice(kinds))
            case 5:
                tensors[name] = tensor[None]
            case _:
                tensors[name] = torch.cat([tensor.reshape(-1), tensor.reshape(-1)])
        if not tensors:
            break
    return {name: tensor.contiguous() for name, tensor in tensors.items()}


_SQL = (
    "SELECT * FROM rows LIMIT 0",
    "SELECT * REPLACE (NULL AS {column}) FROM rows",
    "SELECT * EXCLUDE ({column}) FROM rows",
    "SELECT * REPLACE (CAST({column} AS VARCHAR) AS {column}) FROM rows",
    "SELECT * REPLACE ([{column}] AS {column}) FROM rows",
    "SELECT * REPLACE ('nan'::DOUBLE AS {column}) FROM rows",
    "SELECT * REPLACE (-1 AS {column}) FROM rows",
    "SELECT * REPLACE (0 AS {column}) FROM rows",
    "SELECT * REPLACE ('' AS {column}) FROM rows",
    "SELECT * REPLACE (repeat('ab', 100000) AS {column}) FROM rows",
    "SELECT * REPLACE (chr(27) || '[2J' AS {column}) FROM rows",
    "SELECT * REPLACE ({{'a': {column}}} AS {column}) FROM rows",
    "SELECT * RENAME ({column} AS other) FROM rows",
    "SELECT *, 1 AS other FROM rows",
    "SELECT 1 AS one",
    "SELECT * FROM rows UNION ALL SELECT * FROM rows",
    "SELECT COLUMNS(*)::VARCHAR FROM rows",
    "SELECT * REPLACE (CASE WHEN random() < 0.5 THEN NULL ELSE {column} END AS {column}) FROM rows",
    "SELECT * REPLACE ('inf'::DOUBLE AS {column}) FROM rows",
)


@cache
def _database() -> duckdb.DuckDBPyConnection:
    """Opened once: that takes longer than all else that is done to a table."""
    return duckdb.connect()


def spoil_parquet(data: Draws, path: Path, aside: Path) -> bytes:
    """A Parquet file whose bytes, or whose columns and values, are no longer what they were."""
    if data.integer(0, 1):
        return spoil_bytes(data, path.read_bytes())
    with _database().cursor() as database:
        database.execute(f"CREATE OR REPLACE VIEW rows AS SELECT * FROM read_parquet('{path}')")
        columns = [row[0] for row in database.execute("DESCRIBE rows").fetchall()]
        sql = data.choice(_SQL).format(column=data.choice(columns))
        database.execute(f"COPY ({sql}) TO '{aside}' (FORMAT parquet)")
    content = aside.read_bytes()
    aside.unlink()
    return content


def chosen(data: Draws, among: Sequence[Any]) -> Any:
    """One of several."""
    return data.choice(among)
