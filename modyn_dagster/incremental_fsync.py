"""Files that hash their bytes on the way, or sync to the disk while they are written, so that the last sync is short."""

import hashlib
import io
import os
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, BinaryIO, Final

#: Bytes that are worth a sync of their own: a disk of today needs some 10 ms for them.
_EVERY: Final = 16 << 20


class IncrementalFsyncFile(io.FileIO):
    """A new raw file. Every 16 MiB the system is told to put on the disk what is there, by a thread of its own.

    Args:
        path: of the file.
        mode: its permissions before the umask.
    """

    def __init__(self, path: Path, mode: int) -> None:
        super().__init__(path, "wb", opener=lambda name, flags: os.open(name, flags, mode))
        self._since = 0
        self._thread: ThreadPoolExecutor | None = None
        self._under_way: Future[None] | None = None

    def write(self, data: Any, /) -> int:
        """As every raw file does."""
        n_bytes = super().write(data)
        self._since += n_bytes
        if self._since >= _EVERY and (self._under_way is None or self._under_way.done()):
            self._start()
        return n_bytes

    def sync(self) -> None:
        """Everything is on the disk afterwards. An error of an earlier sync, which the system tells only once, is raised too."""
        if self._under_way is not None:
            self._under_way.result()
        os.fsync(self.fileno())

    def close(self) -> None:
        """Waits for a sync under way: its file must not be another one by then."""
        if self._thread is not None:
            self._thread.shutdown()
        super().close()

    def _start(self) -> None:
        if self._under_way is not None:
            self._under_way.result()
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, "sync")
        self._since, self._under_way = 0, self._thread.submit(os.fdatasync, self.fileno())


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
