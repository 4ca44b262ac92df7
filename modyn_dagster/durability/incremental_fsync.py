"""Write-only files for large outputs: one syncs to the disk while it is written, one hashes its bytes."""

import io
import os
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, BinaryIO, Final

from modyn_dagster.values.digest import new_hash

#: Bytes worth a sync of their own: a solid-state disk needs about 10 ms for them.
_SYNC_EVERY: Final = 16 << 20


class IncrementalFsyncFile(io.FileIO):
    """A new raw file. A thread syncs it every 16 MiB, so that the last sync is short.

    Args:
        path: of the file.
        mode: its permissions before the umask.
    """

    def __init__(self, path: Path, mode: int) -> None:
        super().__init__(path, "wb", opener=lambda name, flags: os.open(name, flags, mode))
        self._unsynced = 0
        self._thread: ThreadPoolExecutor | None = None
        self._sync: Future[None] | None = None

    def write(self, data: Any, /) -> int:
        """Write as every raw file does."""
        n_bytes = super().write(data)
        self._unsynced += n_bytes
        if self._unsynced >= _SYNC_EVERY and (self._sync is None or self._sync.done()):
            self._start()
        return n_bytes

    def sync(self) -> None:
        """Make everything durable. Also raises the error of an earlier sync, which the system reports only once."""
        if self._sync is not None:
            self._sync.result()
        os.fsync(self.fileno())

    def close(self) -> None:
        """Close the file after a running sync, whose descriptor must not belong to another file by then."""
        if self._thread is not None:
            self._thread.shutdown()
        super().close()

    def _start(self) -> None:
        if self._sync is not None:
            self._sync.result()
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, "sync")
        self._unsynced, self._sync = 0, self._thread.submit(os.fdatasync, self.fileno())


class HashingFile:
    """A write-only binary file that hashes the bytes written to it."""

    def __init__(self, raw: BinaryIO) -> None:
        self._raw = raw
        self._hash = new_hash()
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
        """Do nothing: writers such as Arrow's call this before the context of ``atomic_write`` closes the file."""

    def readable(self) -> bool:
        """Always false."""
        return False

    def writable(self) -> bool:
        """Always true."""
        return True

    def seekable(self) -> bool:
        """Always false: the digest follows the order of writes."""
        return False

    @property
    def checksum(self) -> str:
        """Hex digest of everything written so far."""
        return self._hash.hexdigest()
