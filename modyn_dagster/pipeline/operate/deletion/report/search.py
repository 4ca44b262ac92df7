"""Search of streams of bytes for the pieces of fingerprints, in bounded memory."""

from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple, Protocol

import numpy as np

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
    lies. A window whose mark is searched is a candidate; a match is a piece whose length and digest agree. However many pieces
    have the same window, its bytes are hashed once for each place in a piece and length. Equal pieces of several samples are one:
    the first of them stands for all.
    """

    def __init__(self, fingerprints: Fingerprints) -> None:
        pieces = fingerprints.pieces
        forms = np.stack([pieces[name].to_numpy().astype(np.int64) for name in ("mark", "at", "length")], axis=1)
        self._at = forms[:, 1]
        #: Forms of pieces, by mark: place of the window in the piece, and length.
        self._forms = np.unique(forms, axis=0)
        self._marks = self._forms[:, 0].astype(np.uint32)
        self._pieces: dict[bytes, int] = {}
        for piece, digest in enumerate(pieces["digest"].to_pylist()):
            self._pieces.setdefault(digest, piece)
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
                yield from self._confirmed(data, position, self._forms[first:last, 1:].tolist())

    def _confirmed(self, data: bytes, position: int, forms: list[tuple[int, int]]) -> Iterator[Match]:
        """Pieces that begin where their window at ``position`` says."""
        for at, length in forms:
            start = position - at
            if start < 0 or start + length > len(data):
                continue
            piece = self._pieces.get(self._hashing.digest(data[start : start + length]))
            # With another window it is found there.
            if piece is not None and self._at[piece] == at:
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
