"""Files that are there as a whole or not at all: temporary name, fsync, checksum, rename."""

import contextlib
import hashlib
import io
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from modyn_dagster.errors import CorruptFile, StorageError, WriteFailed
from modyn_dagster.synced_along import SyncedAlong

_CHUNK = 1 << 20


class HashingFile:
    """A write-only binary file that knows the BLAKE2b digest of what went through it."""

    def __init__(self, raw: BinaryIO) -> None:
        self._raw = raw
        self._hash = hashlib.blake2b(digest_size=16)
        self.closed = False

    def write(self, data: bytes | memoryview) -> int:
        """Write all of ``data``; returns its length in bytes."""
        view = memoryview(data).cast("B")
        self._hash.update(view)
        self._raw.write(view)
        return view.nbytes

    def tell(self) -> int:
        """Bytes written so far."""
        return self._raw.tell()

    def flush(self) -> None:
        """Hand buffered bytes to the operating system."""
        self._raw.flush()

    def close(self) -> None:
        """The context of ``atomic_write`` closes the file; writers such as Arrow's may call this before."""

    def readable(self) -> bool:
        """Never: this file is for writing."""
        return False

    def writable(self) -> bool:
        """Always."""
        return True

    def seekable(self) -> bool:
        """Never: the digest follows the order of writes."""
        return False

    @property
    def checksum(self) -> str:
        """Hex digest of everything written so far."""
        return self._hash.hexdigest()


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
        with SyncedAlong(temporary, mode) as raw, io.BufferedWriter(raw) as file:
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


def checksum_of(path: Path) -> str:
    """Hex BLAKE2b digest (16 bytes) of a file's content."""
    digest = hashlib.blake2b(digest_size=16)
    with open(path, "rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


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
