"""Attempts at the pieces of a request, repeated when a file changed since it was mapped, and their scratch memory."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import numpy as np
import numpy.typing as npt

from fastpath.array_types import KeyArray
from fastpath.errors import CorruptFile
from fastpath.format.batch_table import BatchTable
from fastpath.format.file_table import FileTable
from fastpath.kernels._resolve import Resolver
from fastpath.threads.workers import Workers


class Scratch:
    """Places of the keys of one piece, and the files that hold them. For one thread at a time.

    Attributes:
        resolver: kernel that fills the arrays.
        file, offset, length: place by key; ``reserve`` makes the arrays long enough.
    """

    def __init__(self, resolver: Resolver) -> None:
        self.resolver = resolver
        self.file = np.empty(0, dtype=np.int32)
        self.offset = np.empty(0, dtype=np.int64)
        self.length = np.empty(0, dtype=np.int64)
        self._marks = np.zeros(0, dtype=np.uint8)
        self._touched = np.empty(0, dtype=np.int32)

    def reserve(self, keys: int, files: int) -> None:
        """Make room for so many keys and file ids; existing marks stay."""
        if keys > len(self.file):
            self.file = np.empty(keys, dtype=np.int32)
            self.offset, self.length = np.empty((2, keys), dtype=np.int64)
        if files > len(self._marks):
            marks, touched = np.zeros(files, dtype=np.uint8), np.empty(files, dtype=np.int32)
            n = self.resolver.n_touched
            marks[: len(self._marks)], touched[:n] = self._marks, self._touched[:n]
            self._marks, self._touched = marks, touched
            self.resolver.make_room(marks, touched)

    @property
    def touched(self) -> npt.NDArray[np.int32]:
        """Files that hold the samples, and the indexes that were read for the keys."""
        return self._touched[: self.resolver.n_touched]


#: Function that handles the keys from ``first`` to ``stop``. Returns None on success, else the file to open again.
Attempt = Callable[[int, int, Scratch], int | None]

#: Keys of one piece: the memory of a request besides its result stays below 6 MB a thread.
PIECE: Final = 1 << 18
#: Keys of one piece where nearly every sample has a file of its own: a bound on the files mapped at once.
PIECE_OF_FILES: Final = 1 << 12
_ATTEMPTS: Final = 3
#: Limit of repetitions of a piece because other requests opened files again in the meantime.
_MAX_OVERTAKEN: Final = 1_000
#: Results of an attempt besides a file: an unknown file, or a piece with too many files.
SOME_FILE: Final = -1
TOO_MANY: Final = -2


class Attempts:
    """Cuts requests into pieces and ensures that each piece has read files in their expected state."""

    def __init__(self, dataset: str, batches: BatchTable, files: FileTable) -> None:
        self._dataset, self._batches, self._files = dataset, batches, files
        self._free: list[Scratch] = []
        self._workers = Workers()

    def run(self, keys: KeyArray, threads: int, attempt: Attempt) -> None:
        """Attempt all pieces of a request in up to ``threads`` threads. Raises ``CorruptFile``, and errors of ``attempt``."""

        def work(start: int, stop: int) -> None:
            if not self._attempt_piece(keys, start, stop, attempt):
                for at in range(start, stop, PIECE_OF_FILES):
                    self._attempt_piece(keys, at, min(at + PIECE_OF_FILES, stop), attempt)

        self._workers.run(len(keys), PIECE, threads, work)

    def map(self, keys: KeyArray, scratch: Scratch) -> bool:
        """Map the files of a piece; False when these are too many at once."""
        missing = self._files.missing(scratch.touched)
        if len(missing) > PIECE_OF_FILES:
            return False
        for file in missing:
            with self._reading(keys, scratch, file):
                self._files.ensure(file)
        return True

    def close(self) -> None:
        """End the threads; a later request starts new ones."""
        self._workers.close()

    @contextmanager
    def _reading(self, keys: KeyArray, scratch: Scratch, file: int) -> Iterator[None]:
        """Context in which errors about a file name the sample it was read for."""
        try:
            yield
        except CorruptFile as error:
            ordinal = self._batches.ordinal_of(file)
            if ordinal is not None:
                at = int(np.argmax(keys >> np.uint64(32) == ordinal))
                raise error.read_for(self._dataset, int(keys[at])) from error
            at = int(np.argmax(scratch.file[: len(keys)] == file))
            raise error.read_for(self._dataset, int(keys[at]), int(scratch.offset[at])) from error

    def _attempt_piece(self, keys: KeyArray, start: int, stop: int, attempt: Attempt) -> bool:
        """Attempt a piece, again when a file changed since it was mapped; False when it must be cut smaller."""
        path, attempts, overtaken = self._dataset, 0, 0
        with self._scratch(stop - start) as scratch:
            while attempts < _ATTEMPTS and overtaken < _MAX_OVERTAKEN:
                renewals = self._files.renewals
                suspect = attempt(start, stop, scratch)
                if suspect is None and self._files.renewals == renewals and renewals % 2 == 0:
                    return True
                if suspect == TOO_MANY:
                    return False
                if suspect is None:
                    overtaken += 1
                    continue
                attempts += 1
                if suspect != SOME_FILE:
                    path = self._files.path(suspect)
                    self._renew(keys[start:stop], scratch, suspect)
        expected = "a file that can be read and that nobody writes"
        raise CorruptFile(path, expected, "changes or bus errors at each attempt", key=int(keys[start]), dataset=self._dataset)

    def _renew(self, keys: KeyArray, scratch: Scratch, suspect: int) -> None:
        """Open a file again, and all others of the request that changed."""
        touched = scratch.touched
        mapped = touched[self._files.arrays.base[touched] != 0]
        for file in [suspect, *(file for file in mapped.tolist() if self._has_changed(file))]:
            with self._reading(keys, scratch, file):
                self._files.renew(file)

    def _has_changed(self, file: int) -> bool:
        return self._files.changed(np.array([file], dtype=np.int32)) is not None

    @contextmanager
    def _scratch(self, n: int) -> Iterator[Scratch]:
        scratch = self._free.pop() if self._free else Scratch(self._batches.resolver())
        request = self._files.begin()
        try:
            scratch.reserve(n, len(self._files.arrays.base))
            yield scratch
        finally:
            self._files.end(request)
            self._free.append(scratch)
