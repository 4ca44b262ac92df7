"""Names of files and folders that survive a power cut: a name is durable once its folder is synced, whatever its file is."""

import contextlib
import errno
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from modyn_dagster.errors import WriteFailed

#: Folders whose names survive, as far as this process knows.
_synced: Final = set[Path]()
#: Errors of a file system that syncs no folders.
_CANNOT_SYNC: Final = (errno.EINVAL, errno.ENOTSUP)


def temporary_name(path: Path) -> Path:
    """A hidden name beside ``path`` that no other writer has; ``final_name`` undoes it."""
    return path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")


def final_name(name: str) -> str | None:
    """Name of the file that a file with a temporary name would become; None for other names.

    >>> final_name(".7.arrow.0badcafe.tmp"), final_name("7.arrow")
    ('7.arrow', None)
    """
    if name.startswith(".") and name.endswith(".tmp"):
        return name[1:].removesuffix(".tmp").rpartition(".")[0]
    return None


@contextlib.contextmanager
def write_errors(path: Path) -> Iterator[None]:
    """Raise ``WriteFailed`` for every ``OSError`` of the block."""
    try:
        yield
    except OSError as error:
        raise WriteFailed(path, error.strerror or str(error)) from error


def sync_folder(folder: Path) -> None:
    """Let the names in a folder, and the removal of others, survive a power cut. Raises ``OSError``."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def durable_folder(folder: Path) -> None:
    """Create a folder unless it exists, so that its name and those of its parents survive. Raises ``OSError``.

    A process that was killed after it created a folder may not have synced it, so folders that exist are synced once per
    process; that costs next to nothing where they have not changed.
    """
    exists = folder.is_dir()
    if (exists and folder in _synced) or folder.parent == folder:
        return
    durable_folder(folder.parent)
    if not exists:
        folder.mkdir(exist_ok=True)
    try:
        sync_folder(folder.parent)
    except PermissionError:
        # A folder that this account may not read is none that it has made.
        pass
    except OSError as error:
        # Nor is one above a mount point of autofs, FUSE or 9p, which cannot be synced.
        if not exists or error.errno not in _CANNOT_SYNC:
            raise
    _synced.add(folder)


def durable_link(existing: Path, path: Path) -> None:
    """Give a file a second name; one that exists is left as it is. Raises ``OSError``."""
    durable_folder(path.parent)
    with contextlib.suppress(FileExistsError):
        os.link(existing, path)
    sync_folder(path.parent)


def settle(folder: Path) -> None:
    """Let names in a folder, and removals, survive that another process, killed since, may not have synced.

    A folder that is missing has neither. Raises ``WriteFailed`` when the operating system refuses.
    """
    if not folder.is_dir():
        return
    with write_errors(folder):
        durable_folder(folder)
        sync_folder(folder)
