"""Atomic and staged files (temporary name, fsync, checksum, rename), and paths that stay below a root."""

import contextlib
import errno
import fcntl
import io
import os
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Final

from modyn_dagster.durability.incremental_fsync import HashingFile, IncrementalFsyncFile
from modyn_dagster.durability.names import durable_folder, final_name, sync_folder, temporary_name, write_errors
from modyn_dagster.errors import StorageError
from modyn_dagster.files.mounting import files_at

#: Errors of a file system without locks.
_NO_LOCKS: Final = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL)
_LOCAL_SCHEMES: Final = ("file://", "local://")


@contextmanager
def atomic_write(path: Path, mode: int = 0o666) -> Iterator[HashingFile]:
    """Write a file that appears complete and durable, or not at all.

    Args:
        path: of the file; its folder is created.
        mode: permissions before the umask, ``0o600`` for a secret.

    Raises:
        WriteFailed: the operating system refuses (disk full, permissions).
    """
    with atomic_file(path, mode) as raw:
        yield HashingFile(raw)


@contextmanager
def atomic_file(path: Path, mode: int = 0o666) -> Iterator[BinaryIO]:
    """Write a file as ``atomic_write`` does, through a plain file whose bytes are not hashed: its format has checksums."""
    with write_errors(path):
        durable_folder(path.parent)
        temporary, raw = _locked_temporary(path, mode)
    try:
        # Renamed before it is closed, as the lock ends then.
        with write_errors(path), raw, io.BufferedWriter(raw) as file:
            yield file
            file.flush()
            raw.sync()
            if final_name(path.name) is None:
                files_at(path).publish(temporary, path)
            else:
                _rename(temporary, path)
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


def _locked_temporary(path: Path, mode: int) -> tuple[Path, IncrementalFsyncFile]:
    """Create a file beside ``path`` whose lock tells sweeps, also of other processes, that its writer lives."""
    while True:
        temporary = temporary_name(path)
        raw = IncrementalFsyncFile(temporary, mode)
        try:
            # Not a shared lock: NFS grants it to descriptors alone that can read.
            fcntl.flock(raw.fileno(), fcntl.LOCK_EX)
        except OSError as error:
            # A file system without locks has none: sweeps then rely on there being one writer.
            if error.errno not in _NO_LOCKS:
                raw.close()
                temporary.unlink(missing_ok=True)
                raise
        if os.fstat(raw.fileno()).st_nlink > 0:
            return temporary, raw
        # A sweep came between the two calls.
        raw.close()


class StagedFile:
    """A file that is written and synced under a temporary name, and renamed once a transaction is about to commit it.

    Where files are stored elsewhere, it is sent there when it is finished.

    Attributes:
        path: the final name.
        temporary: the name until then.
        size: bytes, after ``finish``.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.temporary = temporary_name(path)
        self._is_staged = False
        with write_errors(path):
            durable_folder(path.parent)
            self._synced = IncrementalFsyncFile(self.temporary, 0o666)
        self._plain = io.BufferedWriter(self._synced)
        self._file = HashingFile(self._plain)

    def write(self, data: bytes | memoryview) -> None:
        """Append. Raises ``WriteFailed`` when the operating system refuses."""
        with write_errors(self.path):
            self._file.write(data)

    def finish(self) -> None:
        """Make everything written durable. Raises ``WriteFailed``."""
        with write_errors(self.path):
            self.size = self._file.tell()
            self._plain.flush()
            self._synced.sync()
            self._plain.close()
        files_at(self.path).stage(self.temporary)
        self._is_staged = True

    @contextmanager
    def as_file(self) -> Iterator[BinaryIO]:
        """The plain file, for a writer that needs one; finished after the block, and not hashed. Raises ``WriteFailed``."""
        with write_errors(self.path):
            yield self._plain
        self.finish()

    @contextmanager
    def as_hashed_file(self) -> Iterator[HashingFile]:
        """The file, for a writer that needs one; finished after the block. Raises ``WriteFailed``."""
        with write_errors(self.path):
            yield self._file
        self.finish()

    @property
    def checksum(self) -> str:
        """Hex BLAKE2b digest (16 bytes) of everything written by ``write``."""
        return self._file.checksum

    @property
    def is_unpublished(self) -> bool:
        """True while the file can be published: no other writer of the same path has published since this one began."""
        return self.temporary.exists()

    def publish(self, *, swept: bool = False) -> None:
        """Rename the finished file to ``path`` and remove the remains of other writers, unless the caller has swept them.

        Nobody else may be writing it.
        """
        if not swept:
            sweep_unfinished([self.path], except_for=[self])
        files_at(self.path).publish(self.temporary, self.path, staged=True)
        self._is_staged = False

    def discard(self) -> None:
        """Remove the file, unless it was published."""
        with contextlib.suppress(OSError):
            self._plain.close()
        with contextlib.suppress(OSError):
            self.temporary.unlink(missing_ok=True)
        if self._is_staged:
            # What a store that is away keeps goes when it is a day old.
            with contextlib.suppress(StorageError):
                files_at(self.path).discard(self.temporary)
            self._is_staged = False


def replace_durably(temporary: Path, path: Path) -> None:
    """Rename a durable file beside ``path`` to it, for good. Raises ``WriteFailed``."""
    files_at(path).publish(temporary, path)


def linked_copy(existing: Path, path: Path) -> None:
    """Replace ``path`` by a second name of an existing file; removing either leaves the other. Raises ``WriteFailed``."""
    with write_errors(path):
        files_at(path).link(existing, path, replace=True)


def sweep_unfinished(paths: Iterable[Path], except_for: Iterable[StagedFile] = ()) -> None:
    """Remove the temporary files that killed writers of ``paths`` left.

    Files of ``atomic_file`` whose writers live are left as they are. Nobody but ``except_for`` may be writing staged ones. Each
    folder is listed once, however many of its files are named: to list it costs more the more it holds.
    """
    by_folder: dict[Path, set[str]] = {}
    for path in paths:
        by_folder.setdefault(path.parent, set()).add(path.name)
    kept = {file.temporary for file in except_for}
    for folder, names in by_folder.items():
        for name in _names_in(folder):
            if final_name(name) in names and folder / name not in kept:
                _remove_abandoned(folder / name)


def _remove_abandoned(path: Path) -> None:
    """Remove a temporary file, unless its writer holds the lock on it."""
    try:
        # Opened for writing, as network file systems lock no others for one process alone.
        descriptor = os.open(path, os.O_RDWR)
    except PermissionError:
        # Of another account, whose writers have no business in these folders.
        path.unlink(missing_ok=True)
        return
    except OSError:
        # It is gone, or too many files are open, or the disk does not answer: its writer may live, and a later sweep comes.
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        path.unlink(missing_ok=True)
    except BlockingIOError:
        return
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
        path.unlink(missing_ok=True)
    finally:
        os.close(descriptor)


def _names_in(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)  # noqa: PTH208 - a `Path` of each of many files would cost more than the list
    except FileNotFoundError:
        return []


def sweep_abandoned(folder: Path, older_than: float) -> int:
    """Remove the temporary files below a folder that are so many seconds old; no writer needs that long. Returns their bytes."""
    n_bytes, files = 0, files_at(folder)
    for file in files.unfinished(folder):
        if file.modified is not None and file.modified < time.time() - older_than:
            files.remove(file.path)
            n_bytes += file.n_bytes
    return n_bytes


def verify_checksum(path: Path, expected: str) -> None:
    """Raise ``CorruptFile`` unless the file exists and has this checksum."""
    with files_at(path).verified(path, expected):
        pass


def inside(root: Path, relative: str) -> Path:
    """Resolve ``root / relative``. Raises ``StorageError`` when the path, or a symlink in it, leaves ``root``."""
    resolved = (root / relative).resolve()
    if not resolved.is_relative_to(root.resolve()):
        raise StorageError(f"{relative}: lies outside {root}")
    return resolved


def local_folder(root: str) -> Path | None:
    """The folder that a root names; None for a URL that needs fsspec.

    >>> local_folder("file:///data/clicks"), local_folder("s3://bucket/clicks")
    (PosixPath('/data/clicks'), None)
    """
    for scheme in _LOCAL_SCHEMES:
        root = root.removeprefix(scheme)
    return None if "://" in root else Path(root)


def _rename(temporary: Path, path: Path) -> None:
    with write_errors(path):
        os.replace(temporary, path)
        sync_folder(path.parent)
