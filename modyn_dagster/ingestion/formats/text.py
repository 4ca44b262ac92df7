"""UTF-8 text: where it begins, which byte is wrong, and its lines in runs of bounded size."""

from codecs import getincrementaldecoder
from typing import Final, TypeVar

import numpy as np
import pyarrow as pa

from modyn_dagster.ingestion.formats.base import ByteArray, Ranges

T = TypeVar("T")

_BOM: Final = b"\xef\xbb\xbf"
_STEP: Final = 1 << 20


def after_bom(data: ByteArray) -> int:
    """Where the text begins: behind a byte order mark, if there is one."""
    return len(_BOM) if data[: len(_BOM)].tobytes() == _BOM else 0


def first_bad_byte(data: ByteArray) -> int | None:
    """Position of the first byte that is not UTF-8; None when all are."""
    bounds = np.array([0, len(data)], dtype=np.int64)
    try:
        pa.LargeStringArray.from_buffers(1, pa.py_buffer(bounds), pa.py_buffer(data)).validate(full=True)
    except pa.ArrowInvalid:
        return _position_of_bad_byte(data)
    return None


def _position_of_bad_byte(data: ByteArray) -> int:
    decoder = getincrementaldecoder("utf-8")()
    for start in range(0, len(data), _STEP):
        waiting, _ = decoder.getstate()
        try:
            decoder.decode(data[start : start + _STEP].tobytes(), final=start + _STEP >= len(data))
        except UnicodeDecodeError as error:
            return start - len(waiting) + error.start
    raise ValueError("the text is UTF-8")


def spans(lines: Ranges, max_bytes: int) -> list[slice]:
    """Consecutive runs of lines, each at most ``max_bytes`` long or a single line."""
    found, first = [], 0
    ends = lines.offsets + lines.lengths
    while first < len(lines):
        last = int(np.searchsorted(ends, lines.offsets[first] + max_bytes, side="right"))
        found.append(slice(first, max(last, first + 1)))
        first = found[-1].stop
    return found


def span_bytes(data: ByteArray, lines: Ranges, span: slice) -> ByteArray:
    """The bytes from the first to the last line of a span, as they stand in the file."""
    last = span.stop - 1
    return data[lines.offsets[span.start] : lines.offsets[last] + lines.lengths[last]]
