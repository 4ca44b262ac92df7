"""Copies of a store's objects on the disk of a node: fetched under a lock, verified, renamed, and opened from there."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import Final, Protocol

from modyn_dagster.durability.names import temporary_name, write_errors
from modyn_dagster.errors import CorruptFile, StorageError
from modyn_dagster.files.cache_room import CacheRoom, locked
from modyn_dagster.values.digest import new_hash

_REMEDY: Final = "`modyn-dagster repair` makes it again where it can; else restore a backup of the store"


class Source(Protocol):
    """Store of the objects, by their names."""

    def url_of(self, name: str) -> str:
        """URL of an object, for messages."""

    def size_of(self, name: str) -> int | None:
        """Bytes of an object; None where there is none."""

    def pieces_of(self, name: str, size: int) -> Iterator[bytes]:
        """Content of an object of ``size`` bytes, piece by piece."""


class NodeCache:
    """Copies below ``folder/files``, at the names of their objects; see ``fastpath.copies.Copies``.

    Processes of one machine share a cache. Removing its folder loses nothing: what is needed is fetched again.

    Args:
        folder: of this cache alone; it is created.
        limit: bytes of copies that are not in use, at most.
        source: store of the objects.

    Attributes:
        root: folder of the copies.
        room: count of their bytes.
    """

    def __init__(self, folder: Path, limit: int, source: Source) -> None:
        self.root = folder / "files"
        self.root.mkdir(parents=True, exist_ok=True)
        self.room = CacheRoom(self.root, folder / "uses", folder / "locks", limit)
        self._source = source

    def name_of(self, path: Path) -> str:
        """Name of the object that a path is the copy of. Raises ``StorageError`` for a path outside the cache."""
        relative = PurePosixPath(path.relative_to(self.root)) if path.is_relative_to(self.root) else PurePosixPath()
        if not relative.parts or ".." in relative.parts:
            raise StorageError(f"{path}: lies outside {self.root}")
        return str(relative)

    def open(self, path: Path, checksum: str | None = None) -> int:
        """Descriptor of a copy, fetched if it is missing; it stays as long as the descriptor, or a mapping of it, does.

        Raises:
            CorruptFile: the store has no such object, or one with another checksum.
            StorageError: the store does not answer.
            WriteFailed: the disk of this node refuses.
        """
        name = self.name_of(path)
        while True:
            descriptor = _shared_descriptor(path)
            if descriptor is not None:
                self.room.mark(name)
                return descriptor
            self._fetch(path, name, checksum)

    def forget(self, path: Path) -> None:
        """Remove a copy, in use or not: those who use it keep what they have."""
        with suppress(FileNotFoundError), locked(self.room.lock_of(self.name_of(path))):
            n_bytes = path.stat().st_size
            path.unlink()
            self.room.give_back(n_bytes)
            self.room.unmark(self.name_of(path))

    def adopt(self, temporary: Path, path: Path) -> None:
        """Rename a file that this node has stored, beside it, to its copy. Raises ``WriteFailed``."""
        name = self.name_of(path)
        with write_errors(path), locked(self.room.lock_of(name)):
            old = path.stat().st_size if path.exists() else 0
            self.room.take(temporary)
            self.room.mark(name)
            os.replace(temporary, path)
            self.room.give_back(old)

    def _fetch(self, path: Path, name: str, checksum: str | None) -> None:
        with write_errors(path), locked(self.room.lock_of(name)):
            if path.exists():
                # Whoever held the lock before has fetched it.
                return
            size = self._source.size_of(name)
            if size is None:
                raise CorruptFile(path, "a stored file", f"none at {self._source.url_of(name)}; {_REMEDY}")
            path.parent.mkdir(parents=True, exist_ok=True)
            temporary = temporary_name(path)
            try:
                with temporary.open("xb") as file:
                    # From the beginning as long as it will be, so that others count all of it.
                    file.truncate(size)
                self.room.take(temporary)
                self._copy(path, name, size, checksum, temporary)
                self.room.mark(name)
                os.replace(temporary, path)
            except BaseException:
                # If it was not counted yet the count is too low until the next one.
                temporary.unlink(missing_ok=True)
                self.room.give_back(size)
                raise

    def _copy(self, path: Path, name: str, size: int, checksum: str | None, temporary: Path) -> None:
        digest, n_bytes = new_hash(), 0
        try:
            with temporary.open("r+b") as file:
                for piece in self._source.pieces_of(name, size):
                    file.write(piece)
                    digest.update(piece)
                    n_bytes += len(piece)
        except FileNotFoundError:
            raise CorruptFile(path, "a stored file", f"none any more at {self._source.url_of(name)}") from None
        if n_bytes != size:
            raise CorruptFile(path, f"{size} bytes", f"{n_bytes} at {self._source.url_of(name)}; {_REMEDY}")
        if checksum is not None and digest.hexdigest() != checksum:
            found = f"{digest.hexdigest()} at {self._source.url_of(name)}; {_REMEDY}"
            raise CorruptFile(path, f"checksum {checksum}", found)


def _shared_descriptor(path: Path) -> int | None:
    """Open a copy with a shared lock; None where there is none, or it was removed before it was locked."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        return None
    try:
        # Not for long: those who remove a copy never wait with the lock in hand.
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        if os.fstat(descriptor).st_nlink:
            return descriptor
    except BaseException:
        os.close(descriptor)
        raise
    os.close(descriptor)
    return None
