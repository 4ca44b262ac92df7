"""Commands that use an embedded server at the same time: the one that started it for itself leaves it to the others."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from modyn_dagster.catalog.embedded.server import EmbeddedPostgres
from modyn_dagster.errors import WriteFailed
from modyn_dagster.private_files import make_home


@contextmanager
def in_use(home: Path) -> Iterator[None]:
    """Hold a share of the server of ``home``, from before its start: ``stop_unless_used`` of other processes leaves it running.

    The share ends with the process. Raises ``WriteFailed`` where ``home`` cannot be written.
    """
    descriptor = _open(home)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        yield
    finally:
        os.close(descriptor)


def stop_unless_used(server: EmbeddedPostgres) -> bool:
    """Stop a server that no process holds a share of; False where one does. Who asks for a share meanwhile waits for the end."""
    descriptor = _open(server.home)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        server.stop()
    except BlockingIOError:
        return False
    finally:
        os.close(descriptor)
    return True


def _open(home: Path) -> int:
    path = home / "postgres.users"
    try:
        make_home(home)
        return os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise WriteFailed(path, error.strerror or str(error)) from error
