"""Requests: keys are resolved to places, the places copied, and the files then compared with their expected version."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from fastpath.array_types import Int64Array, KeyArray
from fastpath.errors import CorruptFile, DeletedKey, UnknownKey
from fastpath.format.batch_table import BatchTable
from fastpath.format.file_table import FileTable
from fastpath.kernels._blobs import first_outside
from fastpath.kernels._resolve import CODES
from fastpath.rows.attempts import PIECE, TOO_MANY, Attempts, Scratch
from fastpath.rows.cold_pages import bring_in

#: ``copy(first, bases, scratch, n, threads)`` copies the n keys from ``first``, resolved in scratch, in up to so many threads;
#: returns 0 or the address of a fault.
Copy = Callable[[int, npt.NDArray[np.uint64], Scratch, int, int], int]
#: Offsets and lengths, ``int64[n]`` each.
Ranges = tuple[Int64Array, Int64Array]


class Requests:
    """Answers to requests from any thread."""

    def __init__(self, dataset: str, batches: BatchTable, files: FileTable) -> None:
        self._dataset, self._batches, self._files = dataset, batches, files
        self._attempts = Attempts(dataset, batches, files)

    def lengths(self, keys: KeyArray, out: Int64Array) -> None:
        """Fill in the bytes of each sample; no file of samples is read, but the indexes are compared with their versions."""

        def attempt(first: int, stop: int, scratch: Scratch) -> int | None:
            suspect = self._places(keys[first:stop], scratch, out[first:stop])
            return suspect if suspect is not None else self._files.changed_lasting(scratch.touched)

        self._attempts.run(keys, 1, attempt)

    def words(self, keys: KeyArray, out: Int64Array, *, labels: bool, threads: int) -> None:
        """Fill in labels, as words of 8 bytes, or times."""

        def attempt(first: int, stop: int, scratch: Scratch) -> int | None:
            piece, words = keys[first:stop], out[first:stop]
            suspect = self._resolved(piece, scratch, lambda: scratch.resolver.words(piece, words, labels))
            return suspect if suspect is not None else self._files.changed(scratch.touched)

        self._attempts.run(keys, threads, attempt)

    def copy(self, keys: KeyArray, copy: Copy, *, width: int | None, threads: int) -> None:
        """Copy samples; ``width`` is the common length in bytes, None where ``copy`` uses the lengths in ``scratch``."""
        pieces, within = _shared(len(keys), threads)

        def attempt(first: int, stop: int, scratch: Scratch) -> int | None:
            piece = keys[first:stop]
            length = scratch.length[: len(piece)] if width is None else None
            suspect = self._places(piece, scratch, length)
            return suspect if suspect is not None else self._copied(first, piece, scratch, copy, width, within)

        self._attempts.run(keys, pieces, attempt)

    def check_ranges(self, keys: KeyArray, ranges: Ranges) -> None:
        """Raise ``CorruptFile`` unless ranges, (offsets, lengths), lie inside the files that hold the samples."""

        def attempt(first: int, stop: int, scratch: Scratch) -> int | None:
            return self._ranges(keys[first:stop], scratch, ranges, first)

        self._attempts.run(keys, 1, attempt)

    def copy_ranges(self, keys: KeyArray, copy: Copy, ranges: Ranges, *, threads: int) -> None:
        """Copy such ranges."""
        pieces, within = _shared(len(keys), threads)

        def attempt(first: int, stop: int, scratch: Scratch) -> int | None:
            piece = keys[first:stop]
            suspect = self._ranges(piece, scratch, ranges, first)
            return suspect if suspect is not None else self._copied(first, piece, scratch, copy, None, within)

        self._attempts.run(keys, pieces, attempt)

    def locate(self, key: int) -> tuple[int, int, int]:
        """File, offset and length of one sample; the file is not opened."""
        place = np.zeros(3, dtype=np.int64)

        def attempt(first: int, stop: int, scratch: Scratch) -> int | None:
            suspect = self._places(keys[first:stop], scratch, scratch.length[:1])
            place[:] = scratch.file[0], scratch.offset[0], scratch.length[0]
            return suspect if suspect is not None else self._files.changed_lasting(scratch.touched)

        keys = np.array([key], dtype=np.uint64)
        self._attempts.run(keys, 1, attempt)
        file, offset, length = place.tolist()
        return file, offset, length

    def close(self) -> None:
        """End the threads; a later request starts new ones."""
        self._attempts.close()

    def _places(self, keys: KeyArray, scratch: Scratch, lengths: Int64Array | None) -> int | None:
        file, offset = scratch.file[: len(keys)], scratch.offset[: len(keys)]
        return self._resolved(keys, scratch, lambda: scratch.resolver.places(keys, file, offset, lengths))

    def _resolved(self, keys: KeyArray, scratch: Scratch, call: Callable[[], int]) -> int | None:
        scratch.resolver.begin()
        while (code := call()) != CODES["done"]:
            if code == CODES["fault"]:
                return self._files.at(scratch.resolver.fault)
            key = int(keys[scratch.resolver.at])
            if code == CODES["outside"]:
                return self._batches.index_file(key >> 32)
            self._handle_code(code, key, scratch)
        return None

    def _handle_code(self, code: int, key: int, scratch: Scratch) -> None:
        """Provide what the kernel needs to continue at a key, or raise the error that the code stands for."""
        if code == CODES["unknown"]:
            raise UnknownKey(key, self._dataset)
        try:
            if code == CODES["deleted"]:
                raise DeletedKey(key, self._dataset, *self._batches.locate(key))
            if code == CODES["not_open"]:
                self._batches.open(key >> 32)
        except CorruptFile as error:
            raise error.read_for(self._dataset, key) from error
        scratch.reserve(0, len(self._files.arrays.base))

    def _copied(self, first: int, keys: KeyArray, scratch: Scratch, copy: Copy, width: int | None, threads: int) -> int | None:
        touched, n = scratch.touched, len(keys)
        if not self._attempts.map(keys, scratch):
            return TOO_MANY
        arrays = self._files.use(touched)
        length = scratch.length[:n] if width is None else width
        bring_in(
            arrays.base,
            arrays.size,
            scratch.file[:n],
            scratch.offset[:n],
            length,
            residency_visible=self._files.residency_visible,
        )
        fault = copy(first, arrays.base, scratch, n, threads)
        return self._files.at(fault) if fault else self._files.changed(touched)

    def _ranges(self, keys: KeyArray, scratch: Scratch, ranges: Ranges, first: int) -> int | None:
        """Replace the places of samples by ranges in the same files, checked at each attempt, as the index may change."""
        n = len(keys)
        suspect = self._places(keys, scratch, scratch.length[:n])
        if suspect is not None:
            return suspect
        scratch.offset[:n], scratch.length[:n] = (values[first : first + n] for values in ranges)
        sizes = self._files.arrays.size
        broken = first_outside(scratch.file[:n], scratch.offset[:n], scratch.length[:n], sizes)
        if broken >= 0:
            file, offset, length = (int(values[broken]) for values in (scratch.file, scratch.offset, scratch.length))
            self._files.ensure(file)
            expected, actual = f"ranges inside its {sizes[file]} bytes", f"a range of {length} bytes at {offset}"
            raise CorruptFile(self._files.path(file), expected, actual, key=int(keys[broken]), dataset=self._dataset)
        return None


def _shared(n: int, threads: int) -> tuple[int, int]:
    """Threads for the pieces of a request of n keys, and for the copy of each piece.

    A batch is one piece whose copy the kernel's crew shares: it takes less time than Python threads need to wake up. Pieces of
    larger requests have a Python thread each.
    """
    return (1, threads) if n <= PIECE else (threads, 1)
