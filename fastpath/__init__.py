"""Samples by key out of mapped files at memory speed, and rows into Postgres' binary COPY format.

Knows no Dagster, no torch and no Postgres client. Python validates, opens and allocates; the kernels beside it run without the
GIL and trust their input.
"""

from fastpath.arrays.postgres_copy import COPY_HEADER, COPY_TRAILER, encode_rows
from fastpath.arrays.ranges import gather_into, gather_ranges
from fastpath.batch import Batch
from fastpath.errors import CorruptFile, DeletedKey, StoreError, UnknownKey
from fastpath.format.training_set_file import Partition
from fastpath.format.training_set_writer import TrainingSetWriter
from fastpath.order import Order
from fastpath.rows.columns import Columns, Group
from fastpath.rows.results import Blobs, FixedRows, Place
from fastpath.store import SampleStore
from fastpath.stream import BatchStream
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
    "encode_rows",
    "gather_into",
    "gather_ranges",
]
