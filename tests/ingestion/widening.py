"""Files of rows before and after columns were added to a dataset, and its specs with rules for them."""

import io
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from modyn_dagster.spec.dataset import DatasetSpec
from tests.ingestion.world import dataset_spec

Row = Mapping[str, Any]
#: Columns that every file has.
OLD = ["time", "x", "label"]
#: Columns that appear later, with a value for the samples before.
NEW: Mapping[str, Any] = {"z": 0, "word": "none", "flag": True, "n": 7}
DTYPES = {"z": "float64", "word": "string", "flag": "bool", "n": "int64"}


def csv_bytes(rows: Sequence[Row], names: Sequence[str]) -> bytes:
    lines = [",".join(str(row[name]) for name in names) for row in rows]
    return "\n".join([",".join(names), *lines, ""]).encode()


def jsonl_bytes(rows: Sequence[Row], names: Sequence[str]) -> bytes:
    return "".join(json.dumps({name: row[name] for name in names}) + "\n" for row in rows).encode()


def parquet_bytes(rows: Sequence[Row], names: Sequence[str]) -> bytes:
    out = io.BytesIO()
    pq.write_table(pa.table({name: [row[name] for row in rows] for name in names}), out)
    return out.getvalue()


WRITERS: dict[str, Callable[[Sequence[Row], Sequence[str]], bytes]] = {
    "csv": csv_bytes,
    "jsonl": jsonl_bytes,
    "parquet": parquet_bytes,
}


def spec_of(kind: str, name: str, rules: Sequence[str] = ()) -> DatasetSpec:
    absent = {column: {"fill": NEW[column], "dtype": DTYPES[column]} for column in rules}
    return dataset_spec(name=name, format={"kind": kind}, absent=absent, batches={"kind": "file", "pattern": f"{name}_*"})


def rows_of(seed: int, n: int) -> list[Row]:
    rng = np.random.default_rng(seed)
    return [
        {
            "time": f"2020-01-{1 + seed:02d}T00:00:{i % 60:02d}",
            "x": float(rng.normal()),
            "label": int(rng.integers(2)),
            "z": float(rng.normal()),
            "word": f"w{rng.integers(9)}",
            "flag": bool(rng.integers(2)),
            "n": int(rng.integers(99)),
        }
        for i in range(n)
    ]


OLD_RECORD = np.dtype([("time", "<i8"), ("x", "<f4", (2,)), ("label", "<i4")])
#: A new field in the middle and one at the end.
NEW_RECORD = np.dtype([("time", "<i8"), ("z", ">f8"), ("x", "<f4", (2,)), ("label", "<i4"), ("v", "<i2", (3,))])
FILL = {"z": 0.5, "v": 3}


def record_spec(name: str, dtype: np.dtype[Any], rules: Mapping[str, Any]) -> DatasetSpec:
    fields = [
        [field, f"{dtype[field].shape}{dtype[field].base.str}" if dtype[field].shape else dtype[field].str]
        for field in dtype.names or ()
    ]
    return dataset_spec(
        name=name,
        format={"kind": "fixed_rows", "dtype": fields},
        time={"source": "column", "column": "time", "unit": "s"},
        batches={"kind": "file", "pattern": f"{name}_*"},
        absent={field: {"fill": value} for field, value in rules.items()},
    )


def records(seed: int, n: int) -> np.ndarray[Any, Any]:
    rng = np.random.default_rng(seed)
    rows = np.zeros(n, NEW_RECORD)
    rows["time"], rows["z"], rows["x"] = 1_000 * seed + np.arange(n), rng.normal(size=n), rng.normal(size=(n, 2))
    rows["label"], rows["v"] = rng.integers(0, 2, n), rng.integers(0, 99, (n, 3))
    return rows


def narrowed(rows: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    narrow = np.empty(len(rows), OLD_RECORD)
    for name in OLD_RECORD.names or ():
        narrow[name] = rows[name]
    return narrow
