"""Files and SQLite databases of tests need not survive a power cut, only kills: nobody waits until they are on the disk."""

import os
import sqlite3

import sqlalchemy as sa


def do_not_wait_for_the_disk() -> None:
    """In this process, from now on. What a killed process has written stays written: the operating system has it."""
    os.fsync = os.fdatasync = lambda fd: None
    sa.event.listen(sa.Engine, "connect", _asynchronous)


def _asynchronous(connection: object, _record: object) -> None:
    if isinstance(connection, sqlite3.Connection):
        connection.execute("pragma synchronous = off")
