"""Search of streams of bytes for the pieces of fingerprints, in bounded memory."""

from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from fastpath.arrays.windows import WindowSearch
from modyn_dagster.pipeline.operate.deletion.report.fingerprints import LONGEST, Fingerprints

#: Bytes that are read at once: with what the search keeps beside them, they stay in a processor's second cache.
CHUNK: Final = 1 << 18


class Readable(Protocol):
    """A binary file that is read from its beginning to its end."""

    def read(self, n_bytes: int, /) -> Any:
        """At most so many bytes; none at the end."""


class Match(NamedTuple):
    """Bytes of a piece in a stream.

    Attributes:
        piece: its row in ``Fingerprints.pieces``.
        start: offset of its first byte in the stream.
        length: bytes.
    """

    piece: int
    start: int
    length: int


class PieceSearch:
    """Finds the pieces of deleted samples in streams of bytes.

    A stream is read in chunks of 256 KiB, each together with the last 4,096 bytes before it, so that a piece is found wherever it
    lies. A window whose mark is searched is a candidate; a match is a piece whose length and digest agree. Equal pieces of
    several samples are one: the first of them stands for all.
    """

    def __init__(self, fingerprints: Fingerprints) -> None:
        pieces = fingerprints.pieces
        marks = pieces["mark"].to_numpy()
        self._order = np.argsort(marks, kind="stable")
        self._marks: npt.NDArray[np.uint32] = marks[self._order]
        self._lengths, self._at = (pieces[name].to_numpy().astype(np.int64) for name in ("length", "at"))
        self._digests = pieces["digest"].to_pylist()
        self._hashing = fingerprints.hashing
        self._windows = WindowSearch(self._marks, self._hashing.marks)

    def find(self, stream: Readable, read: Callable[[int], None] = lambda _: None) -> Iterator[Match]:
        """Yield the matches in a stream, each place and piece once; ``read`` is called with the bytes of every chunk."""
        window = self.window()
        while chunk := stream.read(CHUNK):
            yield from window.feed(chunk)
            read(len(chunk))

    def window(self) -> "SlidingWindow":
        """Begin a stream whose chunks are handed in."""
        return SlidingWindow(self)

    def matches(self, data: bytes) -> Iterator[Match]:
        """Yield the matches in some bytes."""
        for positions, marks in self._windows.find(np.frombuffer(data, np.uint8)):
            firsts = np.searchsorted(self._marks, marks, side="left").tolist()
            lasts = np.searchsorted(self._marks, marks, side="right").tolist()
            for position, first, last in zip(positions.tolist(), firsts, lasts, strict=True):
                yield from self._confirmed(data, position, self._order[first:last].tolist())

    def _confirmed(self, data: bytes, position: int, pieces: list[int]) -> Iterator[Match]:
        """Pieces that begin where their window at ``position`` says."""
        seen: set[tuple[int, bytes]] = set()
        for piece in pieces:
            start, length = position - int(self._at[piece]), int(self._lengths[piece])
            if start < 0 or start + length > len(data) or (start, self._digests[piece]) in seen:
                continue
            if self._hashing.digest(data[start : start + length]) == self._digests[piece]:
                seen.add((start, self._digests[piece]))
                yield Match(piece, start, length)


class SlidingWindow:
    """A stream that is searched as its chunks come."""

    def __init__(self, search: PieceSearch) -> None:
        self._search, self._before, self._start = search, b"", 0

    def feed(self, chunk: bytes) -> Iterator[Match]:
        """Yield the matches that end in the next chunk."""
        data = self._before + chunk
        kept, first = len(self._before), self._start - len(self._before)
        self._before, self._start = data[-LONGEST:], self._start + len(chunk)
        for match in self._search.matches(data):
            # Pieces that end in what was kept of the last chunk were found there.
            if match.start + match.length > kept:
                yield match._replace(start=match.start + first)
