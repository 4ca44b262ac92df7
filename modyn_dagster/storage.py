"""Atomic files: temporary name, fsync, checksum, rename. A file is there as a whole or not at all."""

import contextlib
import io
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Final

from fastpath import errors as native
from modyn_dagster.digest import checksum_of
from modyn_dagster.errors import CorruptFile, DeletedKey, StorageError, UnknownKey, WriteFailed
from modyn_dagster.incremental_fsync import HashingFile, IncrementalFsyncFile


@contextlib.contextmanager
def atomic_write(path: Path, mode: int = 0o666) -> Iterator[HashingFile]:
    """Write ``path`` so that it appears complete and durable, or not at all.

    ``mode`` are its permissions before the umask: ``0o600`` for a secret.
    Raises ``WriteFailed`` when the operating system refuses (disk full, permissions).
    """
    with atomic_file(path, mode) as raw:
        yield HashingFile(raw)


@contextlib.contextmanager
def atomic_file(path: Path, mode: int = 0o666) -> Iterator[BinaryIO]:
    """The same for a format that has checksums of its own: a plain file, whose bytes are not hashed."""
    temporary = _temporary_name(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with IncrementalFsyncFile(temporary, mode) as raw, io.BufferedWriter(raw) as file:
            yield file
            file.flush()
            raw.sync()
        os.replace(temporary, path)
        _sync_directory(path.parent)
    except OSError as error:
        raise WriteFailed(path, error.strerror or str(error)) from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


class StagedFile:
    """A file that is written under a temporary name now and gets its own later, when it is known that it counts."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._temporary = _temporary_name(path)
        with _as_write_failed(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            self._raw = open(self._temporary, "wb")  # noqa: SIM115 - finish and discard close it
        self._file = HashingFile(self._raw)

    def write(self, data: bytes | memoryview) -> None:
        """Append. Raises ``WriteFailed`` when the operating system refuses."""
        with _as_write_failed(self.path):
            self._file.write(data)

    def finish(self) -> None:
        """Make everything written durable."""
        with _as_write_failed(self.path):
            self.size = self._file.tell()
            self._raw.flush()
            os.fsync(self._raw.fileno())
            self._raw.close()

    @contextlib.contextmanager
    def as_file(self) -> Iterator[BinaryIO]:
        """The plain file, for a writer that needs one; finished after the block, and not hashed. Raises ``WriteFailed``."""
        with _as_write_failed(self.path):
            yield self._raw
        self.finish()

    @property
    def checksum(self) -> str:
        """Hex BLAKE2b digest (16 bytes) of what was written by ``write``."""
        return self._file.checksum

    @property
    def is_there(self) -> bool:
        """Whether it can still be published: no other writer of the same file was since it was begun."""
        return self._temporary.exists()

    def publish(self) -> None:
        """Give the finished file its name, and remove what other writers of it left behind: nobody else may be writing it now."""
        sweep_unfinished(self.path, keep=self._temporary)
        with _as_write_failed(self.path):
            os.replace(self._temporary, self.path)
            _sync_directory(self.path.parent)

    def discard(self) -> None:
        """Remove it, unless it was published."""
        with contextlib.suppress(OSError):
            self._raw.close()
        with contextlib.suppress(OSError):
            self._temporary.unlink(missing_ok=True)


def sweep_unfinished(path: Path, keep: Path | None = None) -> None:
    """Remove what killed writers of ``path`` left behind; nobody else may be writing it now."""
    for leftover in path.parent.glob(f".{path.name}.*.tmp"):
        if leftover != keep:
            leftover.unlink(missing_ok=True)


def verify_checksum(path: Path, expected: str) -> None:
    """Raise ``CorruptFile`` unless the file exists and has this checksum."""
    if not path.is_file():
        raise CorruptFile(path, f"a file with checksum {expected}", "no file")
    found = checksum_of(path)
    if found != expected:
        raise CorruptFile(path, f"checksum {expected}", found)


def inside(root: Path, relative: str) -> Path:
    """``root / relative``, refused when it, or a symlink on its way, leaves ``root``."""
    resolved = (root / relative).resolve()
    if not resolved.is_relative_to(root.resolve()):
        raise StorageError(f"{relative}: lies outside {root}")
    return resolved


def _temporary_name(path: Path) -> Path:
    return path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")


@contextlib.contextmanager
def _as_write_failed(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise WriteFailed(path, error.strerror or str(error)) from error


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def storage_errors() -> Iterator[None]:
    """Raise what the block raises about keys and files as ``UnknownKey``, ``DeletedKey``, ``CorruptFile`` or ``StorageError``."""
    try:
        yield
    except native.UnknownKey as error:
        raise UnknownKey(error.key, error.dataset) from error
    except native.DeletedKey as error:
        raise DeletedKey(error.key, error.dataset, error.path, error.offset) from error
    except native.CorruptFile as error:
        raise CorruptFile(
            error.path, error.expected, error.found, key=error.key, offset=error.offset, dataset=error.dataset
        ) from error
    except native.StoreError as error:
        raise StorageError(str(error)) from error


_LOCAL_SCHEMES: Final = ("file://", "local://")


def local_folder(root: str) -> Path | None:
    """The folder that a root is; None for what only fsspec knows."""
    for scheme in _LOCAL_SCHEMES:
        root = root.removeprefix(scheme)
    return None if "://" in root else Path(root)
