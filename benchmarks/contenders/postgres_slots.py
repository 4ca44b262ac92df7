"""Postgres as a key-value store of keys by slot, over binary COPY.

The table is unlogged: a store in memory would lose it in a crash as well. Each process keeps one connection.
"""

import io
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import numpy as np
import psycopg2
from psycopg2 import sql

from benchmarks.contenders.central_decisions import Positions
from fastpath.arrays.postgres_copy import COPY_HEADER, COPY_TRAILER
from modyn_dagster.keys import KeyArray

#: Rows of (slot, key) in the binary format: number of fields, and each field after its length.
_ROW: Final = np.dtype([("fields", ">i2"), ("slot_bytes", ">i4"), ("slot", ">i8"), ("key_bytes", ">i4"), ("key", ">i8")])
_SLOT: Final = np.dtype([("fields", ">i2"), ("slot_bytes", ">i4"), ("slot", ">i8")])

_MAKE: Final = "create unlogged table {table} (slot bigint primary key, key bigint not null)"
_CUT: Final = "delete from {table} where slot >= %s"
_INCOMING: Final = "create temp table if not exists incoming (slot bigint, key bigint) on commit delete rows"
_WANTED: Final = "create temp table if not exists wanted (place bigserial, slot bigint) on commit delete rows"
_PUT: Final = "insert into {table} select slot, key from incoming on conflict (slot) do update set key = excluded.key"
_GET: Final = "copy (select slot, key from {table} join wanted using (slot) order by place) to stdout (format binary)"


@dataclass(frozen=True, slots=True)
class PostgresSlots:
    """Keys by slot.

    Attributes:
        url: of the server, for libpq.
        table: name of the table.
    """

    url: str
    table: str

    def make(self) -> None:
        """Make the table."""
        with connection(self.url) as conn, conn.cursor() as cursor:
            cursor.execute(self._statement(_MAKE))

    def put(self, slots: Positions, keys: KeyArray) -> None:
        rows = np.empty(len(slots), _ROW)
        rows["fields"], rows["slot_bytes"], rows["key_bytes"] = 2, 8, 8
        rows["slot"], rows["key"] = slots, keys
        with connection(self.url) as conn, conn.cursor() as cursor:
            cursor.execute(_INCOMING)
            cursor.copy_expert("copy incoming from stdin (format binary)", _copied(rows))
            cursor.execute(self._statement(_PUT))

    def get(self, slots: Positions) -> KeyArray:
        rows = np.empty(len(slots), _SLOT)
        rows["fields"], rows["slot_bytes"], rows["slot"] = 1, 8, slots
        answer = io.BytesIO()
        with connection(self.url) as conn, conn.cursor() as cursor:
            cursor.execute(_WANTED)
            cursor.copy_expert("copy wanted (slot) from stdin (format binary)", _copied(rows))
            cursor.copy_expert(self._statement(_GET), answer)
        found = np.frombuffer(answer.getvalue()[len(COPY_HEADER) : -len(COPY_TRAILER)], _ROW)
        return found["key"].astype(np.uint64)

    def cut(self, size: int) -> None:
        with connection(self.url) as conn, conn.cursor() as cursor:
            cursor.execute(self._statement(_CUT), (size,))

    def _statement(self, text: str) -> sql.Composed:
        return sql.SQL(text).format(table=sql.Identifier(self.table))


@lru_cache(maxsize=1)
def connection(url: str) -> Any:
    """The connection of this process; a block of it is a transaction."""
    return psycopg2.connect(url)


def _copied(rows: "np.ndarray[Any, np.dtype[Any]]") -> io.BytesIO:
    return io.BytesIO(COPY_HEADER + rows.tobytes() + COPY_TRAILER)
