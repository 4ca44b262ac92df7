"""One process at a time works on a run. The lock saves work; what keeps data right is compare-and-set."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import sqlalchemy as sa
from sqlalchemy.exc import OperationalError

from modyn_dagster.catalog.runs import RunRow
from modyn_dagster.errors import RunError

_CLASS: Final = 0x6D6F6479


@contextmanager
def run_lock(engine: sa.Engine, run: RunRow) -> Iterator[None]:
    """Hold the advisory lock of a run; the server lets go of it when the process dies.

    Raises ``RunError`` when another process still holds it after ten seconds.
    """
    conn = engine.connect().execution_options(isolation_level="AUTOCOMMIT")
    try:
        conn.execute(sa.text("SET lock_timeout = '10s'"))
        try:
            conn.execute(sa.select(sa.func.pg_advisory_lock(_CLASS, run.id)))
        except OperationalError as error:
            raise RunError(f"another process works on {run.title}; wait for it or stop it") from error
        yield
    finally:
        # A connection that leaves the pool for good ends its session, and with it the lock, even on a dead server.
        conn.detach()
        conn.close()
