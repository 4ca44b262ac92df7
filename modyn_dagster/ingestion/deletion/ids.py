"""Keys of samples that a person names by their ids."""

import csv

import numpy as np
import sqlalchemy as sa

from modyn_dagster.catalog.datasets import DatasetRow
from modyn_dagster.catalog.labels.sample_ids import keys_of_ids
from modyn_dagster.errors import ConfigError
from modyn_dagster.ingestion.formats.ids import SEPARATOR, shown_id
from modyn_dagster.keys import KeyArray
from modyn_dagster.spec.dataset import DatasetSpec


def keys_of_id_text(conn: sa.Connection, spec: DatasetSpec, dataset: DatasetRow, text: str) -> KeyArray:
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
