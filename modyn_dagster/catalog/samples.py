"""Sample rows: written by binary COPY, read back in key order."""

from collections.abc import Iterator, Sequence
from contextlib import closing
from io import BytesIO
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import sqlalchemy as sa
from psycopg2 import sql

from fastpath import COPY_HEADER, COPY_TRAILER, encode_rows
from modyn_dagster.catalog.batches import batch
from modyn_dagster.catalog.datasets import partition_of, sample
from modyn_dagster.catalog.deletions import present_in
from modyn_dagster.keys import KeyArray, key_of

_ROWS_PER_CHUNK: Final = 32_768
_BUFFER: Final = 1 << 20
#: Keys that one query asks for: 32 MiB.
_KEYS_PER_QUERY: Final = 1 << 22
#: Prefix of the value in a binary COPY row with one field: number of fields, length.
_FIELD_BYTES: Final = 2 + 4
_LABELLED: Final = np.dtype([("key", ">u8"), ("label", ">i8")])


#: Texts as their offsets, ``int64[n + 1]``, and their bytes, UTF-8.
Texts = tuple[npt.NDArray[np.int64], npt.NDArray[np.uint8]]


class SampleRows(NamedTuple):
    """Columns of ``sample`` for n samples of one dataset.

    Attributes:
        keys: ``uint64[n]``.
        times: ``datetime64[us][n]``, UTC.
        labels: ``int64[n]``, or None.
        targets: ``float64[n]``, or None.
        attributes: of JSON objects, or None.
    """

    keys: KeyArray
    times: npt.NDArray[np.datetime64]
    labels: npt.NDArray[np.int64] | None = None
    targets: npt.NDArray[np.float64] | None = None
    attributes: Texts | None = None


def joined_rows(parts: Sequence[SampleRows]) -> SampleRows:
    """Rows of several batches of one dataset, one after the other: all have the same columns."""
    if len(parts) == 1:
        return parts[0]
    keys, times, labels, targets, attributes = zip(*parts, strict=True)
    return SampleRows(np.concatenate(keys), np.concatenate(times), _joined(labels), _joined(targets), _joined_texts(attributes))


def _joined(columns: Sequence[npt.NDArray[Any] | None]) -> npt.NDArray[Any] | None:
    present = [column for column in columns if column is not None]
    return np.concatenate(present) if present else None


def _joined_texts(columns: Sequence[Texts | None]) -> Texts | None:
    present = [column for column in columns if column is not None]
    if not present:
        return None
    lengths = np.concatenate([np.diff(offsets) for offsets, _ in present])
    texts = np.concatenate([text[offsets[0] : offsets[-1]] for offsets, text in present])
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)]), texts


def copy_samples(conn: sa.Connection, dataset_id: int, rows: SampleRows) -> None:
    """Load samples into the dataset's partition, in the transaction of ``conn``."""
    copy_rows(conn, partition_of(dataset_id), rows)


def copy_rows(conn: sa.Connection, table: str, rows: SampleRows) -> None:
    """Load samples into a table with the columns of ``sample`` that they have, in the transaction of ``conn``."""
    present = zip(("key", "time", "label", "target", "attributes"), rows)
    columns = sql.SQL(", ").join(sql.Identifier(name) for name, values in present if values is not None)
    statement = sql.SQL("COPY {} ({}) FROM STDIN (FORMAT binary)").format(sql.Identifier(table), columns)
    _copy(conn, statement, _CopyStream(rows))


def iter_keys(
    conn: sa.Connection, dataset_id: int, after: int, until: int, chunk: int = 100_000, *, present: bool = False
) -> Iterator[KeyArray]:
    """Yield the keys with ``after < key <= until`` in key order, as ``uint64`` arrays of at most ``chunk`` keys.

    ``present`` leaves out deleted samples.
    """
    # Large parts: each query may have to scan samples that Postgres has not summarized yet.
    for start, stop in _spans(conn, dataset_id, after, until, max(1, _KEYS_PER_QUERY // chunk) * chunk):
        keys = _fetch_keys(conn, dataset_id, start, stop, present=present)
        for begin in range(0, len(keys), chunk):
            yield keys[begin : begin + chunk]


def iter_labels(
    conn: sa.Connection, dataset_id: int, after: int, until: int, chunk: int = 100_000
) -> Iterator[tuple[KeyArray, npt.NDArray[np.int64]]]:
    """Yield keys with ``after < key <= until`` in key order and their class indices, -1 without one, ``chunk`` at a time."""
    for start, stop in _spans(conn, dataset_id, after, until, max(1, _KEYS_PER_QUERY // 2 // chunk) * chunk):
        rows = _fetch(conn, dataset_id, start, stop, value="|| int8send(coalesce(label, -1))", dtype=_LABELLED)
        keys, labels = rows["key"].astype(np.uint64), rows["label"].astype(np.int64)
        if not (keys[1:] > keys[:-1]).all():
            order = np.argsort(keys)
            keys, labels = keys[order], labels[order]
        for begin in range(0, len(keys), chunk):
            yield keys[begin : begin + chunk], labels[begin : begin + chunk]


def iter_values(
    conn: sa.Connection, dataset_id: int, after: int, until: int, value: sa.ColumnElement[Any], chunk: int = 100_000
) -> Iterator[tuple[KeyArray, list[Any]]]:
    """Yield keys with ``after < key <= until`` in key order and values of an expression over ``sample``, ``chunk`` at a time."""
    for start, stop in _spans(conn, dataset_id, after, until, max(1, _KEYS_PER_QUERY // chunk) * chunk):
        statement = sa.select(sample.c.key, value).where(_window(dataset_id, start, stop)).order_by(sample.c.key)
        result = conn.execute(statement, execution_options={"stream_results": True, "max_row_buffer": _ROWS_PER_CHUNK})
        for rows in result.partitions(chunk):
            keys, values = zip(*rows, strict=True)
            yield np.array(keys, np.uint64), list(values)


def _window(dataset_id: int, after: int, until: int) -> sa.ColumnElement[bool]:
    return (sample.c.dataset_id == dataset_id) & (sample.c.key > after) & (sample.c.key <= until)


def _spans(conn: sa.Connection, dataset_id: int, after: int, until: int, chunk: int) -> Iterator[tuple[int, int]]:
    """Cut ``(after, until]`` into spans of at most ``chunk`` keys; keys are positions, so batch sizes give the cuts."""
    where = (batch.c.dataset_id == dataset_id) & (batch.c.state == "ingested")
    statement = sa.select(batch.c.ordinal, batch.c.n_samples).where(where).order_by(batch.c.ordinal)
    start, room = after, chunk
    for ordinal, n_samples in conn.execute(statement).tuples().all():
        first, stop = max(key_of(ordinal, 0), after + 1), min(key_of(ordinal, n_samples), until + 1)
        while stop - first > room:
            yield start, first + room - 1
            start, first, room = first + room - 1, first + room, chunk
        room -= max(0, stop - first)
    yield start, until


def _fetch_keys(conn: sa.Connection, dataset_id: int, after: int, until: int, *, present: bool) -> KeyArray:
    keys = _fetch(conn, dataset_id, after, until, present=present).astype(np.uint64)
    # Parallel workers, and a table that was rewritten, hand out keys in another order.
    return keys if bool((keys[1:] > keys[:-1]).all()) else np.sort(keys)


def _fetch(
    conn: sa.Connection,
    dataset_id: int,
    after: int,
    until: int,
    *,
    value: str = "",
    dtype: npt.DTypeLike = ">u8",
    present: bool = False,
) -> npt.NDArray[Any]:
    # One value with all keys instead of one row per key: neither the server nor libpq handles them one by one.
    query = (
        "COPY (SELECT string_agg(int8send(key) {value}, ''::bytea) FROM {leaf} WHERE key > {after} AND key <= {until}{present})"
        " TO STDOUT (FORMAT binary)"
    )
    leaf = sql.Identifier(partition_of(dataset_id))
    parts = {"leaf": leaf, "after": sql.Literal(after), "until": sql.Literal(until), "value": sql.SQL(value)}
    condition = present_in(leaf, dataset_id, after, until) if present else sql.SQL("")
    received = BytesIO()
    _copy(conn, sql.SQL(query).format(**parts, present=condition), received)
    # An aggregate of no rows is null, which has no bytes either.
    return np.frombuffer(received.getbuffer()[len(COPY_HEADER) + _FIELD_BYTES : -len(COPY_TRAILER)], dtype=dtype)


def _copy(conn: sa.Connection, statement: sql.Composed, file: "BytesIO | _CopyStream") -> None:
    # COPY is psycopg2's own: SQLAlchemy knows neither the method nor the cursor's context manager.
    cursor: Any = conn.connection.cursor()
    with closing(cursor):
        cursor.copy_expert(statement, file, size=_BUFFER)


class _CopyStream:
    """Readable file of sample rows in binary COPY format, encoded chunk by chunk as it is read."""

    def __init__(self, rows: SampleRows) -> None:
        self._chunks = self._encode(rows)
        self._rest = memoryview(b"")

    def read(self, size: int) -> bytes:
        """At most ``size`` bytes; empty at the end."""
        while not self._rest:
            following = next(self._chunks, None)
            if following is None:
                return b""
            self._rest = following
        piece, self._rest = self._rest[:size], self._rest[size:]
        return bytes(piece)

    @staticmethod
    def _encode(rows: SampleRows) -> Iterator[memoryview]:
        yield memoryview(COPY_HEADER)
        for start in range(0, len(rows.keys), _ROWS_PER_CHUNK):
            yield _encoded(rows, start, start + _ROWS_PER_CHUNK).data
        yield memoryview(COPY_TRAILER)


def _encoded(rows: SampleRows, start: int, stop: int) -> npt.NDArray[np.uint8]:
    span = slice(start, stop)
    attributes = None
    if rows.attributes is not None:
        offsets, text = rows.attributes
        attributes = offsets[start : stop + 1], text
    labels = None if rows.labels is None else rows.labels[span]
    targets = None if rows.targets is None else rows.targets[span]
    return encode_rows(rows.keys[span], rows.times[span], labels, targets, attributes)
