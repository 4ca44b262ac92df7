"""Mutations of whole input files by their structure: lines, cells, names and columns, and then by bytes."""

import io
from collections.abc import Iterator, Mapping
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tests.fastpath.damaging import EDGES, variants

#: Texts in the place of a cell, a name or a piece of a line: what parsers read in more than one way.
TOKENS: Final = (
    *(
        b"",
        b" ",
        b'"',
        b'""',
        b'"\n"',
        b"\n",
        b"\r",
        b"\r\n",
        b",",
        b",,",
        b"\0",
        b"\xff",
        b"\xef\xbb\xbf",
        b"\xc3",
        b"\xed\xa0\x80",
    ),
    *(
        b"NaN",
        b"NA",
        b"null",
        b"inf",
        b"-0",
        b"1e400",
        b"0x10",
        b"1_000",
        b"true",
        b"True",
        b"9" * 30,
        b"9" * 5_000,
        b"-1",
        b"1.5",
    ),
    *(b"9223372036854775807", b"9223372036854775808", b"-9223372036854775809", "é€\U0001f600".encode(), "\u2028".encode()),
    *(b"0000-00-00", b"9999-12-31", b"2020-02-30", b"2020-01-01T24:00", b"2020-01-01T00:00+99:99", b"10000-01-01", b"1"),
    *(b"{", b"}", b"[", b"]", b"[1]", b'{"a":1}', b'"\\ud800"', b'"\\u0000"', b'"x":1', b"\\", b"x" * 300_000, b"[" * 3_000),
)

#: Sound files of text: several rows, quotes, breaks in quotes, gaps, more than one class.
CSV: Final = (
    b'time,x,label,s\n2020-01-01,1,0,a\n2020-01-02,,1,"b,c"\n2020-01-03T05:06:07Z,2.5,0,"d\ne"\n2020-01-01,NA,2,"f""g"\n',
    b'\xef\xbb\xbftime,x,label,s\r\n1999-12-31,1e3,dog,\r\n2020-01-01,-0,cat,"\xc3\xa9"\r\n',
)
JSONL: Final = (
    b'{"time": "2020-01-01", "x": 1, "label": 0, "s": "a"}\n{"time": "2020-01-02", "x": null, "label": 1, "s": "b[{"}\n'
    b'{"label": 2, "s": "\\u00e9", "time": "2020-01-03T05:06:07Z", "x": -2.5e3}\r\n\n',
    b'{"time":"2020-01-01","label":"dog","s":"","x":true}\n{"time":"2020-01-02","label":"cat","s":"c"}\n',
)


def mutated(kind: str, seed: int, n: int) -> Iterator[tuple[str, bytes]]:
    """Mutations, n of them: a name for people, and the content of the file."""
    rng = np.random.default_rng(seed)
    for i in range(n):
        content = _structured(kind, rng)
        done = "structure"
        if rng.random() < 0.25:
            [(how, content)] = variants(content, int(rng.integers(2**32)), 1)
            done = f"structure, {how}"
        yield f"{kind} {seed}/{i}: {done}", content


def _structured(kind: str, rng: np.random.Generator) -> bytes:
    if kind == "parquet":
        return _parquet(rng)
    if kind == "fixed_rows":
        return b"".join(_record(rng) for _ in range(rng.integers(1, 6)))
    content = (CSV if kind == "csv" else JSONL)[rng.integers(2)]
    for _ in range(rng.integers(1, 3)):
        content = _edited(content, rng, b"," if rng.random() < 0.7 else b"\n")
    return content


def _edited(content: bytes, rng: np.random.Generator, separator: bytes) -> bytes:
    """Pieces between separators: one is removed, doubled, moved, or has a token in or around it."""
    parts = content.split(separator)
    at, to = rng.integers(len(parts), size=2)
    token = TOKENS[rng.integers(len(TOKENS))]
    match rng.integers(6):
        case 0:
            del parts[at]
        case 1:
            parts.insert(to, parts[at])
        case 2:
            parts[at], parts[to] = parts[to], parts[at]
        case 3:
            parts[at] = token
        case 4:
            parts[at] = token + parts[at]
        case _:
            cut = int(rng.integers(len(parts[at]) + 1))
            parts[at] = parts[at][:cut] + token + parts[at][cut:]
    return separator.join(parts)


def _record(rng: np.random.Generator) -> bytes:
    """A row of ``poison.FORMATS["fixed_rows"]``: day, two characters, float, class."""
    numbers = [EDGES[rng.integers(len(EDGES))] if rng.random() < 0.3 else int(rng.integers(30_000)) for _ in range(2)]
    text = rng.bytes(8) if rng.random() < 0.2 else "é\0".encode("utf-32-le")
    return np.int64(numbers[0]).tobytes() + text + rng.normal(size=1).tobytes() + np.int64(abs(numbers[1]) % 5).tobytes()


def _parquet(rng: np.random.Generator) -> bytes:
    """A table whose columns have any types and values, in any order, some of them missing or twice."""
    n = int(rng.integers(0, 5))
    columns = [(name, _column(name, n, rng)) for name in ("time", "x", "label", "s")]
    if rng.random() < 0.1:
        columns.append((columns[rng.integers(4)][0] if rng.random() < 0.5 else "é\0", columns[1][1]))
    table = pa.Table.from_arrays([values for _, values in columns], names=[name for name, _ in columns])
    out = io.BytesIO()
    compression = ("none", "snappy", "zstd")[rng.integers(3)]
    pq.write_table(table, out, compression=compression, use_dictionary=bool(rng.integers(2)), row_group_size=2)
    return out.getvalue()


def _column(name: str, n: int, rng: np.random.Generator) -> pa.Array:
    sound: Mapping[str, pa.Array] = {
        "time": pa.array(rng.integers(0, 2**50, n), pa.timestamp("us")),
        "x": pa.array(rng.normal(size=n)),
        "label": pa.array(rng.integers(0, 3, n)),
        "s": pa.array([chr(97 + i) for i in range(n)], pa.string()),
    }
    if rng.random() < 0.7:
        return sound[name]
    edges = rng.choice(np.array(EDGES, dtype=np.int64), n)
    strange: list[Any] = [
        pa.array(edges, pa.timestamp(("ms", "us", "ns")[rng.integers(3)], tz="UTC" if rng.random() < 0.5 else None)),
        pa.array((edges % 2**31).astype(np.int32), pa.date32()),
        pa.array([[1]] * n, pa.list_(pa.int64())),
        pa.array([b"\xff"] * n, pa.binary()),
        pa.array([None] * n, pa.int64()),
        pa.array(["x\0"] * n).dictionary_encode(),
        pa.array(edges.view(np.uint64)),
        pa.array(np.full(n, np.inf, np.float16)),
        pa.array([True] * n),
        pa.nulls(n),
    ]
    return strange[rng.integers(len(strange))]
