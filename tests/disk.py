"""Files and databases of tests need not survive a power cut, only kills: nobody waits until they are on the disk."""

import os
import shutil
import sqlite3
from pathlib import Path
from typing import Final

import sqlalchemy as sa

_MEMORY: Final = Path("/dev/shm")  # noqa: S108 - folders there have names of their own
#: Bytes that have to be free: every process of pytest has a server, and other programs need memory too.
_ROOM: Final = 8 * 2**30


def roomy_memory() -> Path | None:
    """A folder whose files are in memory, where there is one with room for databases."""
    return _MEMORY if _MEMORY.is_dir() and shutil.disk_usage(_MEMORY).free > _ROOM else None


def do_not_wait_for_the_disk() -> None:
    """In this process, from now on. What a killed process has written stays written: the operating system has it."""
    os.fsync = os.fdatasync = lambda fd: None
    sa.event.listen(sa.Engine, "connect", _asynchronous)


def _asynchronous(connection: object, _record: object) -> None:
    if isinstance(connection, sqlite3.Connection):
        connection.execute("pragma synchronous = off")
