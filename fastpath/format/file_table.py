"""Table of files: the mapping of each, and its version at that time.

Kernels read the arrays here without a lock, so an address in them is always that of memory that can be read while a request
is in flight: a file that is mapped again keeps its old mapping until all requests of that time are over.
"""

import os
import threading
import weakref
from bisect import bisect_right
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from fastpath.format.mapped_files import Version
from fastpath.kernels._files import address_of, first_changed
from fastpath.threads.workers import Mark, Users


@dataclass(frozen=True, slots=True)
class FileArrays:
    """Facts by file id; a longer copy takes their place when files are added.

    Attributes:
        base: address of the mapping; 0 where the file is not mapped.
        size: in bytes, of what is mapped, or as the index says before that.
        path: address of the absolute path, for the kernel's own calls.
        inode, modified: what the file was when it was mapped, ``modified`` in nanoseconds.
        used: when it was last asked for, on the table's own clock.
        lasting: whether it is never unmapped.
    """

    base: npt.NDArray[np.uint64]
    size: npt.NDArray[np.int64]
    path: npt.NDArray[np.uint64]
    inode: npt.NDArray[np.uint64]
    modified: npt.NDArray[np.int64]
    used: npt.NDArray[np.int64]
    lasting: npt.NDArray[np.bool_]

    @classmethod
    def empty(cls, capacity: int) -> "FileArrays":
        """For so many files, none of which is mapped."""
        base, path, inode = np.zeros((3, capacity), dtype=np.uint64)
        size, modified, used = np.zeros((3, capacity), dtype=np.int64)
        return cls(base, size, path, inode, modified, used, np.zeros(capacity, dtype=np.bool_))

    def grown(self, capacity: int) -> "FileArrays":
        """A copy with room for more."""
        longer = FileArrays.empty(capacity)
        for field in fields(self):
            getattr(longer, field.name)[: len(self.base)] = getattr(self, field.name)
        return longer


def residency_is_visible(path: Path | str) -> bool:
    """Whether the kernel tells this process which pages of a file are in memory: only owners and who may write learn it."""
    with suppress(OSError):  # gone meanwhile: whoever reads it will say so
        return os.stat(path).st_uid == os.geteuid() or os.access(path, os.W_OK)  # noqa: PTH116 - a path is a text here
    return False


#: Mappings that a store keeps; the system's limit for a process is usually 65,530.
MAX_MAPPED: Final = 16_384


class Opened(NamedTuple):
    """A file that can be read: its path, what keeps its memory, where that begins, and what the file was."""

    path: str
    holder: object
    address: int
    version: Version


class FileTable:
    """Files by id. Their mappings are bounded, as long as the pieces in flight do not need more."""

    def __init__(self) -> None:
        self.arrays = FileArrays.empty(64)
        self._most = MAX_MAPPED
        self.n = 0
        self._firsts: list[int] = []
        self._openers: list[Callable[[int], Opened]] = []
        self._held: dict[int, tuple[object, bytes]] = {}
        self._n_lasting = 0
        #: Whether the kernel tells what of the files is in memory, see ``cold.residency_is_visible``.
        self.told = True
        self._retired: list[object] = []
        self._clock = 0
        #: Goes up before and after what is known of a file changes, so it is odd while it does. A request during which that
        #: happened may have read what was there before, and compared it with what is there now.
        self.renewals = 0
        self.unlock()
        _tables.add(self)

    def unlock(self) -> None:
        """New locks: after a fork those of the parent may be held by threads that are not here."""
        self._lock, self.opening = threading.RLock(), threading.RLock()
        self._in_flight = Users()
        # One that changed a file when the process was forked does not go on here.
        self.renewals += self.renewals % 2

    def begin(self) -> Mark:
        """A request starts; ``end`` takes its mark. While too much is mapped it waits for those in flight, and files not used
        lately go.
        """
        while True:
            with self._lock:
                if len(self._held) - self._n_lasting > self._most and len(self._in_flight) == 0:
                    self._evict(self._most // 2)
                if len(self._held) - self._n_lasting <= self._most:
                    return self._in_flight.enter()
            self._in_flight.wait()

    def end(self, request: Mark) -> None:
        """The request is over."""
        with self._lock:
            self._in_flight.leave(request)
            if len(self._in_flight) == 0:
                self._retired.clear()

    def retire(self, held: object) -> None:
        """Keep what kernels may still read until all requests of now are over."""
        with self._lock:
            if len(self._in_flight):
                self._retired.append(held)

    def add(self, sizes: Sequence[int] | npt.NDArray[np.int64], opener: Callable[[int], Opened]) -> int:
        """Enter files; ``opener(i)`` opens the i-th of them, or raises ``CorruptFile``. Returns the id of the first."""
        with self._lock:
            first, self.n = self.n, self.n + len(sizes)
            if self.n > len(self.arrays.base):
                self.arrays = self.arrays.grown(2 * self.n)
            self.arrays.size[first : self.n] = sizes
            if len(sizes):
                self._firsts.append(first)
                self._openers.append(opener)
            return first

    def hold(self, file: int, opened: Opened, *, lasting: bool = False) -> None:
        """Kernels read the file at this address from now on; a lasting one is never unmapped."""
        path = os.fsencode(os.path.abspath(opened.path))  # noqa: PTH100 - a path is a text here, and Path would keep its `..`
        told = residency_is_visible(opened.path)
        with self._lock:
            self.told &= told
            arrays = self.arrays
            self._n_lasting += lasting and not arrays.lasting[file]
            arrays.lasting[file] |= lasting
            arrays.path[file], arrays.inode[file] = address_of(path), opened.version.inode
            arrays.size[file], arrays.modified[file] = opened.version.size, opened.version.modified_ns
            arrays.base[file] = opened.address
            # After that: in a process forked in between, the address is that of memory which nobody takes away.
            old = self._held.get(file)
            self._held[file] = opened.holder, path
            if old is not None:
                self._retired.append(old)

    def missing(self, touched: npt.NDArray[np.int32]) -> list[int]:
        """Which of these files are not mapped now."""
        missing: list[int] = touched[self.arrays.base[touched] == 0].tolist()
        return missing

    def ensure(self, file: int) -> None:
        """Map a file, in a request, unless it is. Raises ``CorruptFile``."""
        with self.opening:
            if self.arrays.base[file] == 0:
                self.hold(file, self._open(file))

    def use(self, touched: npt.NDArray[np.int32]) -> FileArrays:
        """The arrays that have these mapped files, who count as used now."""
        arrays = self.arrays
        self._clock += 1
        arrays.used[touched] = self._clock
        return arrays

    def changed(self, touched: npt.NDArray[np.int32]) -> int | None:
        """The first of these mapped files that is not what it was when it was mapped; None when all are."""
        arrays = self.arrays
        found = first_changed(touched, arrays.path, arrays.inode, arrays.size, arrays.modified)
        return None if found < 0 else found

    def changed_lasting(self, touched: npt.NDArray[np.int32]) -> int | None:
        """The same of those among any files that are never unmapped."""
        return self.changed(touched[self.arrays.lasting[touched]])

    def renew(self, file: int) -> None:
        """Look at a file again that changed; raises ``CorruptFile`` unless its content is the one expected."""
        with self.opening:
            # It may take long to compare a checksum; that disturbs nobody.
            opened = self._open(file)
            self.renewals += 1
            try:
                self.hold(file, opened)
            finally:
                self.renewals += 1

    def at(self, address: int) -> int:
        """The file that is or was mapped around an address; -1 for none."""
        arrays = self.arrays
        inside = (arrays.base <= address) & (address - arrays.base < np.maximum(arrays.size, 1).astype(np.uint64))
        found = np.flatnonzero(inside & (arrays.base > 0))
        return int(found[0]) if len(found) else -1

    def path(self, file: int) -> str:
        """Where a mapped file lies."""
        return os.fsdecode(self._held[file][1])

    def close(self) -> None:
        """Unmap what can be mapped again, once no request is in flight."""
        while True:
            with self._lock:
                if len(self._in_flight) == 0:
                    self._evict(0)
                    return
            self._in_flight.wait()

    def _open(self, file: int) -> Opened:
        place = bisect_right(self._firsts, file) - 1
        return self._openers[place](file - self._firsts[place])

    def _evict(self, kept: int) -> None:
        files = np.array([file for file in self._held if not self.arrays.lasting[file]], dtype=np.int64)
        oldest = files[np.argsort(self.arrays.used[files], kind="stable")][: max(0, len(files) - kept)]
        self.arrays.base[oldest] = 0
        for file in oldest.tolist():
            del self._held[file]


_tables: "weakref.WeakSet[FileTable]" = weakref.WeakSet()


def _unlock_all() -> None:
    for table in _tables:
        table.unlock()


os.register_at_fork(after_in_child=_unlock_all)
