"""Keys of samples that a person names in a line of text: by keys and ranges of keys, or by ids."""

import csv
import re
from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import sqlalchemy as sa

from modyn_dagster.catalog.batches import BatchRow, list_batches
from modyn_dagster.catalog.datasets import DatasetRow
from modyn_dagster.catalog.labels.sample_ids import keys_of_ids
from modyn_dagster.errors import ConfigError
from modyn_dagster.ingestion.deletion.delete import require_known
from modyn_dagster.ingestion.formats.ids import SEPARATOR, shown_id
from modyn_dagster.keys import MAX_BATCH_SIZE, MAX_ORDINAL, KeyArray, key_of, keys_of
from modyn_dagster.spec.dataset import DatasetSpec

_SPAN: Final = re.compile(r"\s*(\d{1,19})\s*(?:-\s*(\d{1,19})\s*)?")
#: Above all keys.
END: Final = key_of(MAX_ORDINAL, MAX_BATCH_SIZE)


def keys_of_text(conn: sa.Connection, dataset: DatasetRow, text: str) -> KeyArray:
    """Parse ``K,K2-K3``: single keys and ranges, whose ends are included; the result is ascending.

    Raises ``ConfigError`` for other text, ``UnknownKey`` for a key, or an end of a range, that no sample has.
    """
    spans = [_span(part) for part in text.split(",")]
    batches = list_batches(conn, dataset.id, "ingested")
    ends = np.array(spans, dtype=np.uint64).ravel()
    require_known(ends, batches, dataset.name)
    keys: KeyArray = np.unique(np.concatenate([part for span in spans for part in _keys_in_span(span, batches)]))
    return keys


def keys_of_ids_text(conn: sa.Connection, spec: DatasetSpec, dataset: DatasetRow, text: str) -> KeyArray:
    """Keys of ``ID,ID2``, ascending: ids as a line of CSV, the columns of an id of several with ``|`` between them.

    Raises ``ConfigError`` for a dataset without ids, and for the first id that no sample has.
    """
    if spec.id is None:
        raise ConfigError(f"dataset {dataset.name}", "id", None, "is missing: samples have no ids here; name them by their keys")
    rows = list(csv.reader([text], skipinitialspace=True))
    named = [part.strip() for row in rows for part in row]
    several = len(spec.id_columns) > 1
    ids = [part.replace("|", SEPARATOR) if several else part for part in named]
    keys, found = keys_of_ids(conn, dataset.id, ids)
    if not ids or not found.all():
        unknown = shown_id(ids[int(np.argmin(found))]) if ids else text
        raise ConfigError(f"dataset {dataset.name}", "--ids", unknown, "must be the id of a sample that was ingested")
    return np.unique(keys)


def _span(part: str) -> tuple[int, int]:
    match = _SPAN.fullmatch(part)
    if match is None:
        raise ConfigError("dataset delete", "--keys", part, "must be keys and ranges of keys: 17, 17-42 or 3,5-9")
    first, last = int(match[1]), int(match[2] or match[1])
    if not first <= last < END:
        rule = f"must be keys below {END}, the first of a range not above its last"
        raise ConfigError("dataset delete", "--keys", part, rule)
    return first, last


def _keys_in_span(span: tuple[int, int], batches: Sequence[BatchRow]) -> Iterator[KeyArray]:
    first, last = span
    for batch in batches:
        base, n = key_of(batch.ordinal, 0), int(batch.n_samples or 0)
        yield keys_of(batch.ordinal, np.arange(max(0, first - base), min(n, last + 1 - base)))
