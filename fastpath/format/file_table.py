"""Table of files: mappings, and the version of each file when it was mapped.

Kernels read these arrays without a lock, so an address in them always points to readable memory while a request is in flight: a
file that is mapped again keeps its old mapping until the requests of that time are over.
"""

import os
import threading
from bisect import bisect_right
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from fastpath.format.mapped_files import Version
from fastpath.kernels._files import address_of, first_changed
from fastpath.threads.forks import reset_after_fork
from fastpath.threads.workers import Use, Users


@dataclass(frozen=True, slots=True)
class FileArrays:
    """Columns by file id; a longer copy replaces them when files are added.

    Attributes:
        base: address of the mapping; 0 for a file that is not mapped.
        size: bytes of the mapping, or the size in the index before the file is mapped.
        path: address of the absolute path, for system calls of the kernels.
        inode, modified: version of the mapped file, ``modified`` in nanoseconds.
        used: time of the last use, on the table's own clock.
        lasting: whether the file is never unmapped.
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
        """Columns for so many files, none of which is mapped."""
        base, path, inode = np.zeros((3, capacity), dtype=np.uint64)
        size, modified, used = np.zeros((3, capacity), dtype=np.int64)
        return cls(base, size, path, inode, modified, used, np.zeros(capacity, dtype=np.bool_))

    def grown(self, capacity: int) -> "FileArrays":
        """Copy with room for more files."""
        longer = FileArrays.empty(capacity)
        for field in fields(self):
            getattr(longer, field.name)[: len(self.base)] = getattr(self, field.name)
        return longer


def residency_is_visible(path: Path | str) -> bool:
    """True if the kernel shows this process which pages of a file are in memory: only to owners and those who may write."""
    with suppress(OSError):  # a missing file is reported where it is read
        return os.stat(path).st_uid == os.geteuid() or os.access(path, os.W_OK)  # noqa: PTH116 - a path is a text here
    return False


#: Limit of the mappings of a store; the system's limit for a process is usually 65,530.
MAX_MAPPED: Final = 16_384


class Opened(NamedTuple):
    """Readable file: path, owner of its memory, address of the first byte, and version."""

    path: str
    holder: object
    address: int
    version: Version


class FileTable:
    """Files by id, with a bounded number of mappings unless the pieces in flight need more."""

    def __init__(self) -> None:
        self.arrays = FileArrays.empty(64)
        self._max_mapped = MAX_MAPPED
        self.n = 0
        self._firsts: list[int] = []
        self._openers: list[Callable[[int], Opened]] = []
        self._held: dict[int, tuple[object, bytes]] = {}
        self._n_lasting = 0
        #: True as long as ``residency_is_visible`` for all mapped files.
        self.residency_visible = True
        self._retired: list[object] = []
        self._clock = 0
        #: Counter raised before and after each change of a file's entry, so it is odd during a change. A request during which
        #: it changed may have read the old content and compared it with the new version.
        self.renewals = 0
        self.unlock()
        reset_after_fork(self.unlock)

    def unlock(self) -> None:
        """Renew the locks: in a forked process threads of the parent may hold the old ones for ever."""
        self._lock, self.opening = threading.RLock(), threading.RLock()
        self._in_flight = Users()
        # A change that a thread of the parent began does not end in this process.
        self.renewals += self.renewals % 2

    @property
    def locks(self) -> tuple[AbstractContextManager[bool], ...]:
        """All locks that ``unlock`` renews, in the order in which a thread takes them."""
        return self.opening, self._lock, self._in_flight.lock

    def begin(self) -> Use:
        """Begin a request, which ``end`` ends; while too many files are mapped, wait for others and unmap the least used."""
        while True:
            with self._lock:
                if len(self._held) - self._n_lasting > self._max_mapped and len(self._in_flight) == 0:
                    self._evict(self._max_mapped // 2)
                if len(self._held) - self._n_lasting <= self._max_mapped:
                    return self._in_flight.enter()
            self._in_flight.wait()

    def end(self, request: Use) -> None:
        """End a request."""
        with self._lock:
            self._in_flight.leave(request)
            if len(self._in_flight) == 0:
                self._retired.clear()

    def retire(self, held: object) -> None:
        """Keep an object that kernels may still read until all present requests are over."""
        with self._lock:
            if len(self._in_flight):
                self._retired.append(held)

    def add(self, sizes: Sequence[int] | npt.NDArray[np.int64], opener: Callable[[int], Opened]) -> int:
        """Add files; ``opener(i)`` opens the i-th of them, or raises ``CorruptFile``. Returns the id of the first."""
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
        """Enter a mapping, which kernels read from now on; a lasting one is never unmapped."""
        path = os.fsencode(os.path.abspath(opened.path))  # noqa: PTH100 - a path is a text here, and Path would keep its `..`
        is_visible = residency_is_visible(opened.path)
        with self._lock:
            self.residency_visible &= is_visible
            arrays = self.arrays
            self._n_lasting += lasting and not arrays.lasting[file]
            arrays.lasting[file] |= lasting
            arrays.path[file], arrays.inode[file] = address_of(path), opened.version.inode
            arrays.size[file], arrays.modified[file] = opened.version.size, opened.version.modified_ns
            arrays.base[file] = opened.address
            # In this order: in a process forked in between, the address points to memory that nobody unmaps.
            old = self._held.get(file)
            self._held[file] = opened.holder, path
            if old is not None:
                self._retired.append(old)

    def missing(self, touched: npt.NDArray[np.int32]) -> list[int]:
        """Unmapped files among these."""
        missing: list[int] = touched[self.arrays.base[touched] == 0].tolist()
        return missing

    def ensure(self, file: int) -> None:
        """Map a file during a request, unless it is mapped. Raises ``CorruptFile``."""
        with self.opening:
            if self.arrays.base[file] == 0:
                self.hold(file, self._open(file))

    def use(self, touched: npt.NDArray[np.int32]) -> FileArrays:
        """Columns for these mapped files, which count as used now."""
        arrays = self.arrays
        self._clock += 1
        arrays.used[touched] = self._clock
        return arrays

    def changed(self, touched: npt.NDArray[np.int32]) -> int | None:
        """First of these mapped files that changed since it was mapped; None if none did."""
        arrays = self.arrays
        file = first_changed(touched, arrays.path, arrays.inode, arrays.size, arrays.modified)
        return None if file < 0 else file

    def changed_lasting(self, touched: npt.NDArray[np.int32]) -> int | None:
        """First changed file among those of these files that are never unmapped."""
        return self.changed(touched[self.arrays.lasting[touched]])

    def renew(self, file: int) -> None:
        """Open a changed file again; raises ``CorruptFile`` unless it has the expected content."""
        with self.opening:
            # Comparing a checksum may take long, and disturbs no request.
            opened = self._open(file)
            self.renewals += 1
            try:
                self.hold(file, opened)
            finally:
                self.renewals += 1

    def at(self, address: int) -> int:
        """File that is or was mapped around an address; -1 for none."""
        arrays = self.arrays
        inside = (arrays.base <= address) & (address - arrays.base < np.maximum(arrays.size, 1).astype(np.uint64))
        files = np.flatnonzero(inside & (arrays.base > 0))
        return int(files[0]) if len(files) else -1

    def path(self, file: int) -> str:
        """Path of a mapped file."""
        return os.fsdecode(self._held[file][1])

    def close(self) -> None:
        """Unmap all files that can be mapped again, once no request is in flight."""
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
