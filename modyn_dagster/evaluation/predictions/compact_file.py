"""Compact prediction files: codes of outputs alone. Keys, times and labels of the samples are those of the batches' indexes.

Layout, little-endian: the header (``_HEADER``); keys of the evaluation samples that were deleted already, ``uint64[n_deleted]``;
exact logits, ``float32[n_exact, 2]``; widths and bases of the blocks, ``uint16[n_blocks]`` and ``int32[n_blocks]``; the low bytes
of the codes, ``uint8[n]``; their upper 7 bits, of eight samples in seven bytes. A file holds no run, path or date, so equal
predictions are equal bytes.
"""

import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

import numpy as np
import numpy.typing as npt

from modyn_dagster.errors import CorruptFile
from modyn_dagster.evaluation.predictions.codes import EXACT, LARGEST, MOST, STEPS, CodedOutputs
from modyn_dagster.files.mounting import files_at
from modyn_dagster.keys import KeyArray
from modyn_dagster.spec.evaluation import PredictionForm
from modyn_dagster.values.digest import bytes_digest

#: Suffix of a prediction file, by its form.
SUFFIXES: Final[dict[PredictionForm, str]] = {"exact": ".arrow", "compact": ".codes"}
_MAGIC: Final = b"modynpc1"
#: Magic; samples; deleted samples; exact samples; blocks; digest of the keys.
_HEADER: Final = struct.Struct("<8sQQQQ16s")
#: Samples whose upper bits share as many bytes, less one.
_OCTET: Final = 8


def form_of(path: str | Path) -> PredictionForm:
    """Form of a prediction file, by its name."""
    return "compact" if str(path).endswith(SUFFIXES["compact"]) else "exact"


@dataclass(frozen=True, slots=True)
class CompactFile:
    """Content of a compact prediction file.

    Attributes:
        digest: of the keys of its samples (``key_digest``).
        deleted: keys of evaluation samples that were deleted before, ``uint64``, ascending; they have no prediction.
        coded: outputs.
    """

    digest: bytes
    deleted: KeyArray
    coded: CodedOutputs

    def to_bytes(self) -> bytes:
        """Serialise the content."""
        widths, bases, codes, exact = self.coded
        header = _HEADER.pack(_MAGIC, len(codes), len(self.deleted), len(exact), len(widths), self.digest)
        low, high = (codes & 0xFF).astype(np.uint8), (codes >> 8).astype(np.uint8)
        columns = (
            self.deleted.astype("<u8"),
            exact.astype("<f4"),
            widths.astype("<u2"),
            bases.astype("<i4"),
            low,
            _seven_of_eight(high),
        )
        return b"".join([header, *(column.tobytes() for column in columns)])

    @classmethod
    def from_bytes(cls, content: bytes) -> Self:
        """Parse a content; ``ValueError`` for one that is never written. Memory is bounded by its size."""
        if len(content) < _HEADER.size:
            raise ValueError(f"{len(content)} bytes, fewer than a header has")
        magic, n, n_deleted, n_exact, n_blocks, digest = _HEADER.unpack_from(content)
        if magic != _MAGIC:
            raise ValueError(f"a header that begins with {magic!r}")
        n_octets = -(-n // _OCTET)
        sizes = [8 * n_deleted, 8 * n_exact, 2 * n_blocks, 4 * n_blocks, n, (_OCTET - 1) * n_octets]
        if len(content) != _HEADER.size + sum(sizes):
            raise ValueError(f"{len(content)} bytes, not the {_HEADER.size + sum(sizes)} of {n} samples")
        parts, begin = [], _HEADER.size
        for size in sizes:
            parts.append(np.frombuffer(content, np.uint8, size, begin))
            begin += size
        deleted, exact, widths, bases, low, high = parts
        upper = _eight_of_seven(high)
        codes = upper[:n].astype(np.uint16)
        codes <<= 8
        codes |= low
        coded = CodedOutputs(
            widths.view("<u2").astype(np.uint16, copy=False),
            bases.view("<i4").astype(np.int32, copy=False),
            codes,
            exact.view("<f4").astype(np.float32, copy=False).reshape(-1, 2),
        )
        _check(coded, upper[n:])
        keys = deleted.view("<u8").astype(np.uint64, copy=False)
        if not (keys[1:] > keys[:-1]).all():
            raise ValueError("deleted keys that are not strictly ascending")
        return cls(digest, keys, coded)


def read_compact(path: Path, checksum: str) -> CompactFile:
    """Read a compact prediction file; ``CorruptFile`` for another checksum, or content that is never written."""
    content = files_at(path).read(path, checksum)
    try:
        return CompactFile.from_bytes(content)
    except ValueError as error:
        raise CorruptFile(path, "compact predictions", str(error)) from error


def key_digest(keys: KeyArray) -> bytes:
    """Digest of the keys of a file's samples, 16 bytes."""
    return bytes.fromhex(bytes_digest(np.ascontiguousarray(keys, dtype="<u8").data.cast("B")))


def _check(coded: CodedOutputs, padding: npt.NDArray[np.uint8]) -> None:
    if len(coded.widths) and int(coded.widths.max()) >= len(STEPS):
        raise ValueError(f"the width {coded.widths.max()}, larger than any")
    if ((np.abs(coded.bases.astype(np.int64)) + LARGEST) * STEPS[coded.widths] > MOST).any():
        raise ValueError("codes of differences beyond any")
    if not bool(len(coded.codes)) <= len(coded.widths) <= len(coded.codes):
        raise ValueError(f"{len(coded.codes)} samples in {len(coded.widths)} blocks")
    if len(coded.codes) and int(coded.codes.max()) > LARGEST:
        raise ValueError(f"the code {coded.codes.max()}, larger than any")
    if (n_exact := int((coded.codes == EXACT).sum())) != len(coded.exact):
        raise ValueError(f"exact logits of {len(coded.exact)} samples, codes that announce {n_exact}")
    if padding.any():
        raise ValueError("bits behind the last code")


def _seven_of_eight(values: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """Pack values of 7 bits: every eighth one gives a bit to each of the seven before it."""
    octets = np.zeros((-(-len(values) // _OCTET), _OCTET), np.uint8)
    octets.reshape(-1)[: len(values)] = values
    shifts = np.arange(_OCTET - 1, dtype=np.uint8)
    return np.asarray(octets[:, :-1] | (octets[:, -1:] >> shifts & 1) << 7)


def _eight_of_seven(packed: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """Unpack the values of ``_seven_of_eight``, with zeros up to a multiple of eight."""
    octets = packed.reshape(-1, _OCTET - 1)
    shifts = np.arange(_OCTET - 1, dtype=np.uint8)
    last = np.bitwise_or.reduce(octets >> 7 << shifts, axis=1)
    return np.asarray(np.concatenate([octets & 0x7F, last[:, None]], axis=1).reshape(-1))
