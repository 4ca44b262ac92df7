"""Which keys a deletion is about: listed, in a file, or found by a condition."""

import csv
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

import numpy as np
import sqlalchemy as sa

from modyn_dagster.catalog.batches import BatchRow, list_batches
from modyn_dagster.catalog.datasets import DatasetRow
from modyn_dagster.catalog.tables import sample
from modyn_dagster.errors import ConfigError, DataError
from modyn_dagster.ingestion.deletion import require_known
from modyn_dagster.ingestion.deletion_fields import fields_of
from modyn_dagster.ingestion.deletion_where import parse_where
from modyn_dagster.keys import MAX_BATCH_SIZE, MAX_ORDINAL, KeyArray, key_of, keys_of
from modyn_dagster.spec.dataset import DatasetSpec

_SPAN: Final = re.compile(r"\s*(\d{1,19})\s*(?:-\s*(\d{1,19})\s*)?")
_FETCHED: Final = 100_000
_END: Final = key_of(MAX_ORDINAL, MAX_BATCH_SIZE)


def keys_of_text(conn: sa.Connection, dataset: DatasetRow, text: str) -> KeyArray:
    """Keys of ``K,K2-K3``: single ones, and all samples from one to another, both included; ascending.

    Raises ``ConfigError`` for text of another form, ``UnknownKey`` for a key, or an end of a range, that no sample has.
    """
    spans = [_span(part) for part in text.split(",")]
    batches = list_batches(conn, dataset.id, "ingested")
    ends = np.array(spans, dtype=np.uint64).ravel()
    require_known(ends, batches, dataset.name)
    found: KeyArray = np.unique(np.concatenate([keys for span in spans for keys in _inside(span, batches)]))
    return found


def keys_of_file(path: Path) -> KeyArray:
    """Keys in a text file, one per line, or in the column ``key`` of a CSV file, in their order.

    Raises ``DataError`` naming the row that holds no key.
    """
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            return np.fromiter(_keys_in_rows(path, csv.reader(file)), dtype=np.uint64)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(str(path), f"cannot be read: {error}") from error


def keys_where(conn: sa.Connection, spec: DatasetSpec, dataset: DatasetRow, text: str) -> KeyArray:
    """Keys of the samples for which a condition (``parse_where``) holds, ascending."""
    condition = parse_where(text, fields_of(spec, dataset))
    statement = sa.select(sample.c.key).where(sample.c.dataset_id == dataset.id, condition)
    result = conn.execution_options(yield_per=_FETCHED).execute(statement).scalars()
    chunks = [np.array(chunk, dtype=np.uint64) for chunk in result.partitions()]
    return np.sort(np.concatenate([np.empty(0, np.uint64), *chunks]))


def _span(part: str) -> tuple[int, int]:
    match = _SPAN.fullmatch(part)
    if match is None:
        raise ConfigError("dataset delete", "--keys", part, "must be keys and ranges of keys: 17, 17-42 or 3,5-9")
    first, last = int(match[1]), int(match[2] or match[1])
    if not first <= last < _END:
        rule = f"must be keys below {_END}, the first of a range not above its last"
        raise ConfigError("dataset delete", "--keys", part, rule)
    return first, last


def _inside(span: tuple[int, int], batches: Sequence[BatchRow]) -> Iterator[KeyArray]:
    first, last = span
    for batch in batches:
        base, n = key_of(batch.ordinal, 0), int(batch.n_samples or 0)
        yield keys_of(batch.ordinal, np.arange(max(0, first - base), min(n, last + 1 - base)))


def _keys_in_rows(path: Path, lines: Iterable[list[str]]) -> Iterator[int]:
    rows = ((number, row) for number, row in enumerate(lines, 1) if any(cell.strip() for cell in row))
    _, first = next(rows, (0, [""]))
    header, column = [cell.strip() for cell in first], 0
    if "key" in header:
        column = header.index("key")
    elif len(header) > 1 or not _is_key(header[0]):
        raise DataError(str(path), f"must hold one key per line, or have a column 'key'; it begins with {header}")
    else:
        yield int(header[0])
    for number, row in rows:
        text = row[column].strip() if column < len(row) else ""
        if not _is_key(text):
            raise DataError(str(path), f"must be a key, a whole number, found {text!r}", row=number, column="key")
        yield int(text)


def _is_key(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= 19 and int(text) < _END
