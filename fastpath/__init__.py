"""Samples by key out of mapped files at memory speed, and rows into Postgres' binary COPY format.

The package depends on neither Dagster nor torch nor a Postgres client. Python validates, opens and allocates; the kernels run
without the GIL and trust their input. Names load on first use: importing the package loads no kernel, NumPy or pyarrow.
"""

import importlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from fastpath.arrays.postgres_copy import COPY_HEADER, COPY_TRAILER, encode_rows
    from fastpath.arrays.ranges import gather_into, gather_ranges
    from fastpath.batch import Batch
    from fastpath.errors import CorruptFile, DeletedKey, Error, StoreError, UnknownKey
    from fastpath.format.training_set_file import Partition
    from fastpath.format.training_set_writer import TrainingSetWriter
    from fastpath.order import Order
    from fastpath.rows.columns import Columns, Group
    from fastpath.rows.results import Blobs, FixedRows, Place
    from fastpath.store import SampleStore
    from fastpath.stream import BatchStream
    from fastpath.threads.ring import aligned_bytes
    from fastpath.training_set import TrainingSet

__all__ = [
    "COPY_HEADER",
    "COPY_TRAILER",
    "Batch",
    "BatchStream",
    "Blobs",
    "Columns",
    "CorruptFile",
    "DeletedKey",
    "Error",
    "FixedRows",
    "Group",
    "Order",
    "Partition",
    "Place",
    "SampleStore",
    "StoreError",
    "TrainingSet",
    "TrainingSetWriter",
    "UnknownKey",
    "aligned_bytes",
    "encode_rows",
    "gather_into",
    "gather_ranges",
]

_HOMES: Final[Mapping[str, str]] = {
    "COPY_HEADER": "fastpath.arrays.postgres_copy",
    "COPY_TRAILER": "fastpath.arrays.postgres_copy",
    "Batch": "fastpath.batch",
    "BatchStream": "fastpath.stream",
    "Blobs": "fastpath.rows.results",
    "Columns": "fastpath.rows.columns",
    "CorruptFile": "fastpath.errors",
    "DeletedKey": "fastpath.errors",
    "Error": "fastpath.errors",
    "FixedRows": "fastpath.rows.results",
    "Group": "fastpath.rows.columns",
    "Order": "fastpath.order",
    "Partition": "fastpath.format.training_set_file",
    "Place": "fastpath.rows.results",
    "SampleStore": "fastpath.store",
    "StoreError": "fastpath.errors",
    "TrainingSet": "fastpath.training_set",
    "TrainingSetWriter": "fastpath.format.training_set_writer",
    "UnknownKey": "fastpath.errors",
    "aligned_bytes": "fastpath.threads.ring",
    "encode_rows": "fastpath.arrays.postgres_copy",
    "gather_into": "fastpath.arrays.ranges",
    "gather_ranges": "fastpath.arrays.ranges",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)
