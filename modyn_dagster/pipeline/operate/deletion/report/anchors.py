"""Choice of the window by which a piece is looked for: the rarest among the windows of all pieces.

Records often share most of their text, such as the names of fields. A window that stands in every record would make a candidate
of every record that is searched, and each candidate costs a hash.
"""

from collections.abc import Iterator
from typing import Final

import numpy as np
import numpy.typing as npt

from fastpath.arrays.windows import WIDTH, Key, window_marks

#: Fewer different bytes in every window of a piece are no proof: zeros, or one number repeated, stand in any file.
_FEWEST_DIFFERENT: Final = 6
#: Windows of a piece among which one is chosen.
_LOOKS: Final = 32
#: Windows are counted by the upper bits of their marks.
_COUNTED_BITS: Final = 22
_NO_PLACE: Final = 0xFFFF

Places = npt.NDArray[np.uint16]
Marks = npt.NDArray[np.uint32]


class Anchors:
    """Windows of pieces in batches, of which one of each piece is chosen at the end.

    Args:
        key: of the marks, ``uint64[3]``.
    """

    def __init__(self, key: Key) -> None:
        self._key = key
        self._pieces: list[tuple[Places, Marks]] = []
        self._batches: list[tuple[Places, Marks]] = []

    def add(self, piece: bytes) -> bool:
        """Take the windows of a piece; False, and nothing is taken, for a piece that proves nothing."""
        last = len(piece) - WIDTH
        if last < 0:
            return False
        places = np.arange(0, last + 1, max(1, (last + _LOOKS) // _LOOKS))
        windows = np.frombuffer(piece, np.uint8)[places[:, None] + np.arange(WIDTH)]
        different = 1 + np.count_nonzero(np.diff(np.sort(windows, axis=1), axis=1), axis=1)
        # Of equally rare windows the first is taken.
        order = np.argsort(-different, kind="stable")
        order = order[: np.count_nonzero(different >= _FEWEST_DIFFERENT)]
        if len(order):
            self._pieces.append((places[order].astype(np.uint16), window_marks(windows[order], self._key)))
        return len(order) > 0

    def end_batch(self) -> None:
        """End a batch: the pieces since the last one."""
        places = np.full((len(self._pieces), _LOOKS), _NO_PLACE, np.uint16)
        marks = np.zeros((len(self._pieces), _LOOKS), np.uint32)
        for i, (own_places, own_marks) in enumerate(self._pieces):
            places[i, : len(own_places)], marks[i, : len(own_marks)] = own_places, own_marks
        self._batches.append((places, marks))
        self._pieces = []

    def chosen(self) -> Iterator[tuple[Places, Marks]]:
        """Yield place (``uint16[n]``) and mark (``uint32[n]``) of the chosen window of each piece, batch by batch.

        Equal pieces have equal windows.
        """
        counts = np.zeros(1 << _COUNTED_BITS, np.int64)
        for places, marks in self._batches:
            counts += np.bincount(_counted(marks[places != _NO_PLACE]), minlength=len(counts))
        for places, marks in self._batches:
            frequency = np.where(places == _NO_PLACE, np.iinfo(np.int64).max, counts[_counted(marks)])
            rarest = np.argmin(frequency, axis=1)[:, None]
            yield np.take_along_axis(places, rarest, 1)[:, 0], np.take_along_axis(marks, rarest, 1)[:, 0]


def _counted(marks: Marks) -> npt.NDArray[np.int64]:
    return (marks >> np.uint32(32 - _COUNTED_BITS)).astype(np.int64)
