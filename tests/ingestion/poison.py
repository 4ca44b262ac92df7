"""Corpus of inputs that once left a batch open, ended the process, took minutes, or were read as something else.

What a fuzzer of ``fuzz_formats`` finds is added here, in the smallest form that shows it.
"""

import io
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

#: Settings of a dataset by kind of format, beside the name and the root. Its samples have a time and a label.
FORMATS: Final[Mapping[str, Mapping[str, Any]]] = {
    "csv": {"format": {"kind": "csv"}},
    "jsonl": {"format": {"kind": "jsonl"}},
    "parquet": {"format": {"kind": "parquet"}},
    "fixed_rows": {
        "format": {"kind": "fixed_rows", "dtype": [["time", "<M8[D]"], ["s", "<U2"], ["x", "<f8"], ["label", "<i8"]]},
        "attributes": ["s"],
    },
    "manifest": {"format": {"kind": "csv"}, "batches": {"kind": "manifest"}},
}


def parquet_of(**columns: pa.Array) -> bytes:
    """A Parquet file of these columns."""
    out = io.BytesIO()
    pq.write_table(pa.table(columns), out)
    return out.getvalue()


def _with_bad_text() -> bytes:
    rows = {"time": pa.array([datetime(2020, 1, 1)], pa.timestamp("us")), "x": pa.array([1.0]), "label": pa.array(["dog"])}
    bad = pa.Array.from_buffers(pa.string(), 1, [None, pa.py_buffer(np.array([0, 3], np.int32)), pa.py_buffer(b"\xff\xfe!")])
    return parquet_of(**rows | {"label": bad})


def _parquet_times(times: pa.Array) -> bytes:
    return parquet_of(time=times, x=pa.array([1.0]), label=pa.array([0]))


def _records(time: int, text: bytes) -> bytes:
    return np.array([time], "<i8").tobytes() + text + np.array([0.5], "<f8").tobytes() + np.array([1], "<i8").tobytes()


def _csv_of(columns: int) -> bytes:
    names = ",".join(f"c{i}" for i in range(columns))
    return f"time,x,label,{names}\n2020-01-01,1,0{',1' * columns}\n".encode()


_HEADER: Final = b"time,x,label\n"
_ROW: Final = b"2020-01-01,1,0\n"

#: A sound file of each format, and the ending of its name.
SOUND: Final[Mapping[str, tuple[str, bytes]]] = {
    "csv": ("csv", _HEADER + b"2020-01-01,1.5,0\n"),
    "jsonl": ("jsonl", b'{"time": "2020-01-01", "x": 1, "label": 0}\n'),
    "parquet": ("parquet", _parquet_times(pa.array([datetime(2020, 1, 1)], pa.timestamp("us")))),
    "fixed_rows": ("bin", _records(18_000, "ab".encode("utf-32-le"))),
    "manifest": ("manifest.csv", b"file\nrows.csv\n"),
}

#: Files by format and by the fault in them, with a part of the reason for which their batches fail.
POISON: Final[Mapping[str, Mapping[str, tuple[bytes, str]]]] = {
    "csv": {
        "mark before a later row": (_HEADER + _ROW + b"\xef\xbb\xbf" + _ROW, "row 2: the row begins with a byte order mark"),
        "mark before the first row": (_HEADER + b"\xef\xbb\xbf" + _ROW, "row 1: the row begins with a byte order mark"),
        "stray quote in a header with a break": (b'time,x"y\n",label\n' + _ROW, "in the header: bad quote"),
        "open quote in a header": (b'time,x,"label\n' + _ROW, "in the header: bad quote: it is never closed"),
        "long name": (b"time," + b"x" * 200_000 + b",label\n" + _ROW, "columns differ from the dataset's"),
        "many columns": (_csv_of(3_000), "columns differ from the dataset's"),
        "null character in a name": (b"time,x,lab\0el\n" + _ROW, "columns differ from the dataset's"),
        "null character in a class": (_HEADER + b"2020-01-01,1,do\0g\n", "label"),
        "number that is an integer and no fraction": (_HEADER + b"2020-01-01,0x10,0\n2020-01-01,,0\n", "'0x10' is not"),
        "no text": (b"\xff\xfe\0\0" * 9, "in the header: byte 0xff is not UTF-8"),
    },
    "jsonl": {
        "deep list": (b'{"time":' + b"[" * 100_000 + b"]" * 100_000 + b"}\n", "row 1: a value is nested thousands of times"),
        "deep objects": (b'{"time":' * 100_000 + b"1" + b"}" * 100_000 + b"\n", "row 1: a value is nested thousands of times"),
        "deep and broken": (b'{"time":' + b"[" * 100_000 + b"}\n", "row 1: a value is nested thousands of times"),
        "nested hundreds of times": (b'{"time":' + b"[" * 600 + b"]" * 600 + b"}\n", "column 'time': the value is nested"),
        "one field many times": (b"{" + b",".join([b'"x":1'] * 50_000) + b"}\n", "the object has this field twice"),
        "null character in a name": (b'{"time": "2020-01-01", "x\\u0000": 1, "label": 0}\n', "columns differ"),
        "half a character": (b'{"time": "\\ud800", "x": 1, "label": 0}\n', "surrogate pair"),
    },
    "parquet": {
        "texts that are not UTF-8": (_with_bad_text(), "is not a valid Parquet file"),
        "time before all calendars": (_parquet_times(pa.array([-(2**62)], pa.timestamp("us"))), "is not in the years 1 to 9999"),
        "day whose time overflows": (_parquet_times(pa.array([2**31 - 1], pa.date32())), "column 'time': cannot be read as"),
        "rows without end": (b"PAR1" + bytes(40) + b"\x28\0\0\0PAR1", "is not a valid Parquet file"),
    },
    "fixed_rows": {
        "day whose time overflows": (
            _records(2**53, "ab".encode("utf-32-le")),
            "row 1, column 'time': the time 9007199254740992",
        ),
        "no characters": (_records(18_000, b"\xff" * 8), "column 's': cannot be read as string"),
        "half a character": (_records(18_000, b"\0\xd8\0\0" * 2), "column 's': cannot be read as string"),
    },
    "manifest": {
        "mark before a later row": (b"file\nrows.csv\n\xef\xbb\xbfmore.csv\n", "the row begins with a byte order mark"),
        "long name": (b"file," + b"x" * 200_000 + b"\nrows.csv,\n", "already belongs to batch"),
        "path with a null character": (b"file\nro\0ws.csv\n", "is not a path"),
        "path of digits": (b"file\n" + b"7" * 5_000 + b".csv\n", "has too long a name"),
    },
}
