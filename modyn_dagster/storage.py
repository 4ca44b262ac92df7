"""Atomic and staged files (temporary name, fsync, checksum, rename), and paths that stay below a root."""

import contextlib
import io
import os
import secrets
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Final

from modyn_dagster.durability.incremental_fsync import HashingFile, IncrementalFsyncFile
from modyn_dagster.durability.names import durable_folder, sync_folder
from modyn_dagster.errors import CorruptFile, StorageError, WriteFailed
from modyn_dagster.values.digest import checksum_of

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
    temporary = temporary_name(path)
    try:
        with _write_errors(path):
            durable_folder(path.parent)
            with IncrementalFsyncFile(temporary, mode) as raw, io.BufferedWriter(raw) as file:
                yield file
                file.flush()
                raw.sync()
            os.replace(temporary, path)
            sync_folder(path.parent)
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


class StagedFile:
    """A file that is written and synced under a temporary name, and renamed once a transaction is about to commit it.

    Attributes:
        path: the final name.
        temporary: the name until then.
        size: bytes, after ``finish``.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.temporary = temporary_name(path)
        with _write_errors(path):
            durable_folder(path.parent)
            self._synced = IncrementalFsyncFile(self.temporary, 0o666)
        self._plain = io.BufferedWriter(self._synced)
        self._file = HashingFile(self._plain)

    def write(self, data: bytes | memoryview) -> None:
        """Append. Raises ``WriteFailed`` when the operating system refuses."""
        with _write_errors(self.path):
            self._file.write(data)

    def finish(self) -> None:
        """Make everything written durable. Raises ``WriteFailed``."""
        with _write_errors(self.path):
            self.size = self._file.tell()
            self._plain.flush()
            self._synced.sync()
            self._plain.close()

    @contextmanager
    def as_file(self) -> Iterator[BinaryIO]:
        """The plain file, for a writer that needs one; finished after the block, and not hashed. Raises ``WriteFailed``."""
        with _write_errors(self.path):
            yield self._plain
        self.finish()

    @contextmanager
    def as_hashed_file(self) -> Iterator[HashingFile]:
        """The file, for a writer that needs one; finished after the block. Raises ``WriteFailed``."""
        with _write_errors(self.path):
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
        with _write_errors(self.path):
            os.replace(self.temporary, self.path)
            sync_folder(self.path.parent)

    def discard(self) -> None:
        """Remove the file, unless it was published."""
        with contextlib.suppress(OSError):
            self._plain.close()
        with contextlib.suppress(OSError):
            self.temporary.unlink(missing_ok=True)


def replace_durably(temporary: Path, path: Path) -> None:
    """Rename a durable file beside ``path`` to it, for good. Raises ``WriteFailed``."""
    with _write_errors(path):
        os.replace(temporary, path)
        sync_folder(path.parent)


def linked_copy(existing: Path, path: Path) -> None:
    """Replace ``path`` by a second name of an existing file; removing either leaves the other. Raises ``WriteFailed``."""
    temporary = temporary_name(path)
    with _write_errors(path):
        durable_folder(path.parent)
        os.link(existing, temporary)
    replace_durably(temporary, path)


def temporary_name(path: Path) -> Path:
    """A hidden name beside ``path`` that no other writer has; ``sweep_unfinished`` finds it."""
    return path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")


def sweep_unfinished(paths: Iterable[Path], except_for: Iterable[StagedFile] = ()) -> None:
    """Remove the temporary files that killed writers of ``paths`` left. Nobody but ``except_for`` may be writing them.

    Each folder is listed once, however many of its files are named: to list it costs more the more it holds.
    """
    by_folder: dict[Path, set[str]] = {}
    for path in paths:
        by_folder.setdefault(path.parent, set()).add(path.name)
    kept = {file.temporary for file in except_for}
    for folder, names in by_folder.items():
        for name in _names_in(folder):
            if _final_name(name) in names and folder / name not in kept:
                (folder / name).unlink(missing_ok=True)


def _names_in(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)  # noqa: PTH208 - a `Path` of each of many files would cost more than the list
    except FileNotFoundError:
        return []


def sweep_abandoned(folder: Path, older_than: float) -> int:
    """Remove the temporary files below a folder that are so many seconds old; no writer needs that long. Returns their bytes."""
    n_bytes = 0
    for path in folder.rglob(".*.tmp"):
        with contextlib.suppress(FileNotFoundError):
            about = path.stat()
            if _final_name(path.name) is not None and about.st_mtime < time.time() - older_than:
                path.unlink()
                n_bytes += about.st_size
    return n_bytes


def _final_name(name: str) -> str | None:
    """Name of the file that a file with a temporary name would become; None for other names."""
    if name.startswith(".") and name.endswith(".tmp"):
        return name[1:].removesuffix(".tmp").rpartition(".")[0]
    return None


def verify_checksum(path: Path, expected: str) -> None:
    """Raise ``CorruptFile`` unless the file exists and has this checksum."""
    if not path.is_file():
        raise CorruptFile(path, f"a file with checksum {expected}", "no file")
    checksum = checksum_of(path)
    if checksum != expected:
        raise CorruptFile(path, f"checksum {expected}", checksum)


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


@contextmanager
def _write_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise WriteFailed(path, error.strerror or str(error)) from error
