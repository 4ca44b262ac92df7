"""Lines of UTF-8 text: where they begin and end, and which byte is wrong."""

from typing import Final

import numpy as np

from modyn_dagster.ingestion.formats.base import ByteArray, Int64Array, Ranges

_BOM: Final = b"\xef\xbb\xbf"
NEWLINE: Final = 10
RETURN: Final = 13


def after_bom(data: ByteArray) -> int:
    """Where the text begins: behind a byte order mark, if there is one."""
    return len(_BOM) if data[: len(_BOM)].tobytes() == _BOM else 0


def first_bad_byte(data: ByteArray) -> int | None:
    """Position of the first byte that is not UTF-8; None when all are."""
    if not (data & 0x80).any():
        return None
    try:
        data.tobytes().decode("utf-8")
    except UnicodeDecodeError as error:
        return error.start
    return None


def line_breaks(data: ByteArray) -> Int64Array:
    """Positions of all line feeds and carriage returns, ascending."""
    return np.flatnonzero((data == NEWLINE) | (data == RETURN))


def lines_between(start: int, breaks: Int64Array, stop: int) -> Ranges:
    """Lines of ``[start, stop)`` without their breaks; empty ones are left out, so CR LF counts as one break."""
    starts = np.concatenate(([start], breaks + 1))
    lengths = np.concatenate((breaks, [stop])) - starts
    filled = lengths > 0
    return Ranges(starts[filled], lengths[filled])


def spans(lines: Ranges, max_bytes: int) -> list[slice]:
    """Consecutive runs of lines, each at most ``max_bytes`` long or a single line."""
    found, first = [], 0
    while first < len(lines):
        limit = lines.offsets[first] + max_bytes
        last = int(np.searchsorted(lines.offsets + lines.lengths, limit, side="right"))
        found.append(slice(first, max(last, first + 1)))
        first = found[-1].stop
    return found


def span_bytes(data: ByteArray, lines: Ranges, span: slice) -> ByteArray:
    """The bytes from the first to the last line of a span, as they stand in the file."""
    last = span.stop - 1
    return data[lines.offsets[span.start] : lines.offsets[last] + lines.lengths[last]]
