"""Room of a node's copies: their bytes are counted before they come, and the least recently used ones make place.

*In use* is a copy that a process has open or mapped: it opened it with a shared lock, which the operating system keeps until the
last descriptor and the last mapping are gone, also those of a process that was killed. Such a copy is never removed, even where
all that is in use exceeds the limit.
"""

import fcntl
import logging
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple

from modyn_dagster.durability.names import final_name
from modyn_dagster.values.digest import bytes_digest

logger = logging.getLogger(__name__)

#: Share of the limit that is left once copies had to go, so that the next ones need not be listed for each file that comes.
_LEFT: Final = 0.9
#: Seconds of the processor that a vain look for copies to remove may take without a pause, and the pause after a longer one, in
#: multiples of it: the next look would find the same copies in use.
_QUICK: Final = 0.01
_PAUSE: Final = 9
#: Seconds after which a temporary file counts as abandoned by its writer.
_ABANDONED: Final = 86_400.0


@contextmanager
def locked(path: Path, operation: int = fcntl.LOCK_EX) -> Iterator[int]:
    """Hold a lock among the threads and processes of a machine, on a file that is created and never removed.

    Yields its descriptor. Raises ``BlockingIOError`` where the operation is not to wait.
    """
    # Somebody may have removed all copies with their locks.
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        fcntl.flock(descriptor, operation)
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Hold a copy that nobody else has open or mapped. Raises ``BlockingIOError``."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)


class _Copy(NamedTuple):
    """A file in the folder of copies; ``used`` is the time of its last use in nanoseconds."""

    used: int
    n_bytes: int
    path: Path


class CacheRoom:
    """Count of the bytes of copies, shared by the processes of a machine.

    Args:
        copies: folder of the copies.
        uses: folder of empty files, one per copy, whose times of change are those of the last uses.
        locks: folder of the locks of copies, and of the count.
        limit: most bytes of copies that are not in use.
    """

    def __init__(self, copies: Path, uses: Path, locks: Path, limit: int) -> None:
        self._copies, self._uses, self._locks, self.limit = copies, uses, locks, limit
        self._count = locks / "bytes"
        self._look_from = 0.0

    def lock_of(self, name: str) -> Path:
        """Lock of everybody who replaces or removes a copy. Many names share one, so that locks do not pile up."""
        return self._locks / bytes_digest(name.encode(), 1)

    def take(self, coming: Path) -> None:
        """Count a file that becomes a copy, with the length that it will have, and remove copies for it if need be.

        The file is there already, so that whoever counts anew meanwhile counts it.
        """
        n_bytes = coming.stat().st_size
        with locked(self._count) as descriptor:
            total = self._read(descriptor, coming) + n_bytes
            if total > self.limit and time.monotonic() >= self._look_from:
                began = time.thread_time()
                total = self._make_room(coming) + n_bytes
                if total > self.limit:
                    logger.warning("%s: copies in use exceed MODYN_CACHE_SIZE: %d bytes of %d", self._copies, total, self.limit)
                    looked = time.thread_time() - began
                    self._look_from = time.monotonic() + (_PAUSE * looked if looked > _QUICK else 0)
            self._write(descriptor, total)

    def give_back(self, n_bytes: int) -> None:
        """Count bytes that are gone."""
        with locked(self._count) as descriptor:
            self._write(descriptor, max(0, self._read(descriptor) - n_bytes))

    def mark(self, name: str) -> None:
        """Note that a copy is used now."""
        use, now = self._uses / name, time.time_ns()
        try:
            os.utime(use, ns=(now, now))
        except FileNotFoundError:
            use.parent.mkdir(parents=True, exist_ok=True)
            use.touch()
            os.utime(use, ns=(now, now))

    def unmark(self, name: str) -> None:
        """Forget the uses of a copy that is gone."""
        (self._uses / name).unlink(missing_ok=True)

    def _make_room(self, coming: Path) -> int:
        """Remove the least recently used copies; returns the bytes of those that stay."""
        copies = sorted(self._listed(coming))
        total = sum(copy.n_bytes for copy in copies)
        to_be_left = _LEFT * self.limit - coming.stat().st_size
        for copy in copies:
            if total <= to_be_left:
                break
            if self._removed(copy.path):
                total -= copy.n_bytes
        return total

    def _listed(self, coming: Path | None) -> Iterator[_Copy]:
        """All copies and files that become one, but the one that is being counted."""
        for folder, _, names in os.walk(self._copies):
            for name in names:
                path = Path(folder, name)
                if path == coming:
                    continue
                with suppress(FileNotFoundError):
                    status = path.stat()
                    yield _Copy(self._used(path, status.st_mtime_ns), status.st_size, path)

    def _used(self, path: Path, otherwise: int) -> int:
        try:
            return (self._uses / path.relative_to(self._copies)).stat().st_mtime_ns
        except FileNotFoundError:
            return otherwise

    def _removed(self, path: Path) -> bool:
        """Remove a copy that nobody uses; False for one in use, and for a file that is still being written."""
        name = str(path.relative_to(self._copies))
        try:
            if final_name(path.name) is not None and path.stat().st_mtime > time.time() - _ABANDONED:
                return False
            # Without waiting: whoever asks for room holds a lock of a copy already.
            with locked(self.lock_of(name), fcntl.LOCK_EX | fcntl.LOCK_NB), _alone(path):
                path.unlink()
        except FileNotFoundError:
            pass
        except BlockingIOError:
            return False
        self.unmark(name)
        return True

    def _read(self, descriptor: int, coming: Path | None = None) -> int:
        text = os.pread(descriptor, 32, 0).split(b"\n")[0]
        return int(text) if text.isdigit() else sum(copy.n_bytes for copy in self._listed(coming))

    def _write(self, descriptor: int, total: int) -> None:
        os.pwrite(descriptor, f"{total}\n".encode(), 0)
