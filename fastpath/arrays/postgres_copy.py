"""Sample rows in the binary format of Postgres' COPY, in one pass over the columns.

Format: https://www.postgresql.org/docs/current/sql-copy.html, "Binary Format". Every number is in network order, a
``timestamptz`` is microseconds since 2000-01-01 UTC.
"""

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from fastpath.kernels._copy import encode

COPY_HEADER: Final = b"PGCOPY\n\xff\r\n\0" + bytes(8)
COPY_TRAILER: Final = b"\xff\xff"

_EPOCH: Final = np.datetime64("2000-01-01", "us").astype(np.int64)
#: Bytes of the number of fields of a row; each field begins with its length.
_ROW_BYTES: Final = 2
_WORD_BYTES: Final = 4 + 8
_JSONB_BYTES: Final = 4 + 1
_MAX_JSON_BYTES: Final = 2**28


def encode_rows(
    keys: npt.NDArray[np.uint64],
    times: npt.NDArray[np.datetime64],
    labels: npt.NDArray[np.int64] | None = None,
    targets: npt.NDArray[np.float64] | None = None,
    attributes: tuple[npt.NDArray[np.int64], npt.NDArray[np.uint8]] | None = None,
) -> npt.NDArray[np.uint8]:
    """Encode rows of (key, time[, label][, target][, attributes]) to stand between ``COPY_HEADER`` and ``COPY_TRAILER``.

    Args:
        keys: ``uint64[n]`` below 2**63.
        times: ``datetime64[us][n]``.
        labels: ``int64[n]``, a bigint field; None leaves the field out.
        targets: ``float64[n]``, a double precision field; None leaves it out.
        attributes: ``(offsets int64[n + 1], UTF-8 bytes)`` of JSON texts, a jsonb field; None leaves it out.

    Raises:
        ValueError: types or lengths differ, offsets do not ascend inside the text, or one text exceeds 256 MiB (jsonb's limit).
    """
    n = len(keys)
    for name, column, dtype in (
        ("keys", keys, "u8"),
        ("times", times, "M8[us]"),
        ("labels", labels, "i8"),
        ("targets", targets, "f8"),
    ):
        if column is not None:
            _check_column(name, column, n, np.dtype(dtype))
    words = 2 + (labels is not None) + (targets is not None)
    size = n * (_ROW_BYTES + words * _WORD_BYTES)
    offsets = text = None
    if attributes is not None:
        offsets, text = attributes
        _check_texts(n, offsets, text)
        size += n * _JSONB_BYTES + int(offsets[-1] - offsets[0])
    out = np.empty(size, dtype=np.uint8)
    microseconds = times.astype(np.int64) - _EPOCH
    encode(keys.view(np.int64), microseconds, labels, targets, offsets, text, out)
    return out


def _check_column(name: str, column: npt.NDArray[Any], n: int, dtype: np.dtype[Any]) -> None:
    # The kernel would read an array of another type beyond its end.
    if column.shape != (n,) or column.dtype != dtype or not (column.flags.c_contiguous and column.flags.aligned):
        raise ValueError(f"{name} must be a contiguous {dtype} of shape ({n},), not {column.dtype} of {column.shape}")


def _check_texts(n: int, offsets: npt.NDArray[np.int64], text: npt.NDArray[np.uint8]) -> None:
    _check_column("offsets of attributes", offsets, n + 1, np.dtype(np.int64))
    _check_column("the text of attributes", text, len(text), np.dtype(np.uint8))
    lengths = np.diff(offsets)
    if offsets[0] < 0 or offsets[-1] > len(text) or (lengths < 0).any():
        raise ValueError(f"offsets of attributes must ascend inside the text of {len(text)} bytes")
    if n and lengths.max() >= _MAX_JSON_BYTES:
        raise ValueError(f"the attributes of one sample take {lengths.max()} bytes, at most {_MAX_JSON_BYTES - 1} are possible")
