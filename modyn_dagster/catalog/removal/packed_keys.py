"""Sets of keys as bytes: runs of neighbours, compressed.

A run is the distance of its end from the end of the one before, and its length, both as little-endian uint64. All first bytes
come first, then all second bytes, and so on, so that zlib finds the zeros together. Its checksum guards the content.
"""

import struct
import zlib
from typing import Final

import numpy as np

from modyn_dagster.errors import CatalogError
from modyn_dagster.keys import KeyArray

#: Version of the form, number of keys, number of runs.
_HEADER: Final = struct.Struct("<cQQ")
_VERSION: Final = b"1"


def pack_keys(keys: KeyArray) -> bytes:
    """Pack ascending distinct keys, ``uint64[n]``. Keys drawn at random from ten times as many take about a byte each.

    >>> len(pack_keys(np.arange(1_000_000, dtype=np.uint64)))
    33
    """
    first = np.flatnonzero(np.diff(keys) != 1) + 1
    bounds = np.concatenate(([0], first, [len(keys)])) if len(keys) else np.zeros(1, np.int64)
    starts, lengths = keys[bounds[:-1]], np.diff(bounds).astype(np.uint64)
    gaps = np.diff(starts + lengths, prepend=np.uint64(0))
    planes = np.stack([gaps, lengths]).astype("<u8").view(np.uint8).reshape(-1, 8).T
    return _HEADER.pack(_VERSION, len(keys), len(starts)) + zlib.compress(planes.tobytes())


def unpack_keys(packed: bytes) -> KeyArray:
    """Unpack keys, ``uint64[n]``. Raises ``CatalogError`` for other bytes than ``pack_keys`` gives."""
    try:
        version, n_keys, n_runs = _HEADER.unpack_from(packed)
        unpacking = zlib.decompressobj()
        planes = unpacking.decompress(packed[_HEADER.size :], 16 * n_runs + 1)
        is_whole = version == _VERSION and unpacking.eof and len(planes) == 16 * n_runs
    except (struct.error, zlib.error, OverflowError) as error:
        raise CatalogError(f"keys of a deletion request: expected packed keys, found {len(packed)} bytes: {error}") from error
    if not is_whole:
        raise CatalogError(f"keys of a deletion request: expected {n_runs} runs of keys, found {len(packed)} other bytes")
    gaps, lengths = np.frombuffer(planes, np.uint8).reshape(8, -1).T.copy().view("<u8").reshape(2, n_runs)
    if int(lengths.sum()) != n_keys:
        raise CatalogError(f"keys of a deletion request: expected {n_keys} keys, found {int(lengths.sum())}")
    # Places of the runs in the stream, less those in the answer.
    shifts: KeyArray = np.cumsum(gaps) - np.cumsum(lengths)
    keys: KeyArray = np.arange(n_keys, dtype=np.uint64)
    keys += np.repeat(shifts, lengths.astype(np.int64))
    return keys
