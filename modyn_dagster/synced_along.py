"""A file that goes to the disk while it is written, so that the sync at its end finds little left to do."""

import io
import os
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

#: Bytes that are worth a sync of their own: a disk of today needs some 10 ms for them.
_EVERY: Final = 16 << 20


class SyncedAlong(io.FileIO):
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
