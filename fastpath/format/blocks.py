"""Digests of the blocks of a file (XXH3, 64 bits), taken at ingestion and kept in the index of a batch.

A store opened with ``strict`` compares them once for each file that it opens, and so finds bytes that changed while the size and
the time of change of the file stayed.
"""

from typing import Final

import numpy as np
import numpy.typing as npt
import xxhash

from fastpath.array_types import ByteArray
from fastpath.kernels._take import copy_out

#: Bytes of a block; the last one of a file may be shorter.
BLOCK_BYTES: Final = 1 << 16
#: Bytes copied before they are hashed: a page that is missing ends a copy, and would end the process if it was hashed in place.
_PIECE: Final = 16 * BLOCK_BYTES

Digests = npt.NDArray[np.uint64]


def n_blocks(size: int) -> int:
    """Number of blocks of a file with so many bytes."""
    return -(-size // BLOCK_BYTES)


class BlockHasher:
    """Digests of the blocks of a file that arrives in parts of any size."""

    def __init__(self) -> None:
        self._digests: list[int] = []
        self._begun = xxhash.xxh3_64()
        self._n = 0

    def update(self, data: bytes | memoryview) -> None:
        """Add the next bytes."""
        view = memoryview(data).cast("B")
        at = 0
        while at < len(view):
            part = view[at : at + BLOCK_BYTES - self._n]
            at += len(part)
            if len(part) == BLOCK_BYTES:
                self._digests.append(xxhash.xxh3_64_intdigest(part))
                continue
            self._begun.update(part)
            self._n += len(part)
            if self._n == BLOCK_BYTES:
                self._end()

    def digests(self) -> Digests:
        """Digests of all bytes so far, ``uint64[n_blocks]``; nothing may be added afterwards."""
        if self._n:
            self._end()
        return np.array(self._digests, dtype=np.uint64)

    def _end(self) -> None:
        self._digests.append(self._begun.intdigest())
        self._begun.reset()
        self._n = 0


def block_digests(data: ByteArray) -> Digests:
    """Digests of the blocks of a whole file, ``uint64[n_blocks]``."""
    hasher = BlockHasher()
    hasher.update(data.data)
    return hasher.digests()


def first_changed_block(address: int, size: int, expected: Digests) -> int | None:
    """First block of mapped memory with another digest, or that cannot be read; None where all are as expected.

    Args:
        address: of the first byte.
        size: bytes.
        expected: ``uint64[n_blocks(size)]``.
    """
    piece = np.empty(min(size, _PIECE), dtype=np.uint8)
    for start in range(0, size, _PIECE):
        part = piece[: min(_PIECE, size - start)]
        first = start // BLOCK_BYTES
        if copy_out(address + start, part):
            return first
        for number, at in enumerate(range(0, len(part), BLOCK_BYTES), first):
            if xxhash.xxh3_64_intdigest(part[at : at + BLOCK_BYTES].data) != expected[number]:
                return number
    return None
