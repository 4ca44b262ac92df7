"""Loads of sample rows into a table without a binary encoder."""

import io
from typing import Final

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv as arrow_csv
import sqlalchemy as sa
from psycopg2.extras import execute_values

from modyn_dagster.catalog.samples import SampleRows

_COLUMNS: Final = ("key", "time", "label")


def copy_text(conn: sa.Connection, leaf: str, text: io.BytesIO) -> None:
    """COPY comma-separated text into a table."""
    cursor = conn.connection.cursor()
    cursor.copy_expert(f"COPY {leaf} ({', '.join(_COLUMNS)}) FROM STDIN (FORMAT csv)", text)


def arrow_csv_of(rows: SampleRows) -> io.BytesIO:
    """Rows as text, written by Arrow."""
    table = pa.table({"key": rows.keys.view(np.int64), "time": rows.times, "label": rows.labels})
    out = io.BytesIO()
    arrow_csv.write_csv(table, out, arrow_csv.WriteOptions(include_header=False))
    out.seek(0)
    return out


def pandas_csv(rows: SampleRows) -> io.BytesIO:
    """Rows as text, written by pandas."""
    frame = pd.DataFrame({"key": rows.keys.view(np.int64), "time": rows.times, "label": rows.labels})
    out = io.BytesIO()
    frame.to_csv(out, header=False, index=False)
    out.seek(0)
    return out


def insert(conn: sa.Connection, leaf: str, rows: SampleRows) -> None:
    """INSERT statements of 10,000 rows each."""
    labels = [] if rows.labels is None else rows.labels.tolist()
    values = zip(rows.keys.tolist(), rows.times.tolist(), labels)
    execute_values(conn.connection.cursor(), f"INSERT INTO {leaf} ({', '.join(_COLUMNS)}) VALUES %s", values, page_size=10_000)
