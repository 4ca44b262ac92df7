"""Compression of one tensor: chunks of byte planes, each plane compressed by zstd or, where that gains nothing, stored raw.

``planes of chunk 0 | planes of chunk 1 | … | uint32 lengths, plane by plane | uint64 checksums (XXH3), chunk by chunk``. A plane
as long as its chunk has words is raw; a frame that holds another number of bytes than words is packed. Differences refer to the
same elements of another tensor of the same dtype and shape. The hash of a tensor covers the content of its planes, not the unused
bits of a compressed frame: hence the checksums.

Planes of small numbers are packed several to a byte before zstd sees them. A byte-wise entropy coder spends at least a bit on
every number, and time on each; packed, zstd finds less to do and several numbers in each of its symbols (measured on differences
of 2e-3: 9.7 % of a plane instead of 17.1 %, in a fifth of the time). Numbers that do not fit follow the packed ones:
``bits | packed numbers | numbers of 2**bits - 1 and above``.
"""

import struct
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Final

import numpy as np
import numpy.typing as npt
import torch
import xxhash
import zstandard

from fastpath.arrays.planes import Buffer, Mode, count_large, join, pack_small, split_into, unpack_small
from modyn_dagster.model_store.format.tensors import words_of
from modyn_dagster.model_store.format.threads import ObjectPool, buffers

Plane = npt.NDArray[np.uint8]

#: By bits of a number: the largest share of misfits at which packing pays (measured).
_MAX_MISFITS: Final[Mapping[int, float]] = {2: 0.03, 4: 0.06}


def bits_for(sample: Plane) -> int | None:
    """Bits of a number for packing planes like this one; None where packing does not pay."""
    large = count_large(sample)
    return next((bits for bits, limit in _MAX_MISFITS.items() if large[bits] <= limit * sample.size), None)


def pack(plane: Plane, bits: int) -> bytes:
    """Pack ``uint8[n]`` with ``bits`` (2 or 4) a number."""
    packed, large = pack_small(plane, bits)
    return b"".join([bytes([bits]), packed.data, large.data])


def unpack(content: bytes | memoryview, n: int) -> Plane:
    """Inverse of ``pack``, ``uint8[n]``; ``ValueError`` for bytes that ``pack`` cannot have made of ``n`` numbers."""
    bits = content[0] if content else 0
    end = 1 + -(-n * bits // 8)
    values = np.frombuffer(content, np.uint8)
    packed, large = values[1:end], values[end:]
    plane = unpack_small(packed, bits, large, n)
    if plane is None:
        raise ValueError(f"{len(content)} bytes that are not {n} numbers of {bits} bits")
    return plane


def max_packed_bytes(n: int) -> int:
    """Largest output of ``pack`` for ``n`` numbers."""
    return 1 + -(-n // 2) + n


#: Bytes of a chunk before it is compressed: a thread's share of the second-level cache.
CHUNK: Final = 1 << 20
# A sample of a plane shows whether compression gains anything: at least 1.5 %.
_PROBE: Final = 16 << 10
_WORTHWHILE: Final = 0.985
# Bytes of weights repeat by chance alone: matches that short cost more to encode than they save. With few of them found, planes
# of exponents get 14 % smaller than at plain level 1, in half the time (measured on normally distributed weights).
_PARAMETERS: Final = zstandard.ZstdCompressionParameters.from_level(1, min_match=7, hash_log=6, write_content_size=True)
_compressors: Final = ObjectPool(lambda: zstandard.ZstdCompressor(compression_params=_PARAMETERS))
_decompressors: Final = ObjectPool(zstandard.ZstdDecompressor)

#: Scratch memory of the size of a chunk.
CHUNK_BUFFERS: Final = buffers(CHUNK)

#: Stored planes of one chunk.
Planes = list[bytes | memoryview]


class Codec(StrEnum):
    """Encoding of the bytes of a tensor."""

    RAW = "raw"
    PLANES = "planes"
    XOR = "xor"
    SUBTRACT = "subtract"
    #: No bytes of its own: the file of another model holds the same tensor.
    ELSEWHERE = "elsewhere"

    @property
    def needs_base(self) -> bool:
        """True if decoding needs another tensor."""
        return self in (Codec.XOR, Codec.SUBTRACT)

    def mode(self, dtype: torch.dtype) -> tuple[Mode, int]:
        """Transformation of the words of a tensor, and the width of a word in bytes."""
        width, is_float = words_of(dtype)
        match self:
            case Codec.PLANES:
                return (Mode.ROTATE if is_float else Mode.PLAIN), width
            case Codec.XOR:
                return Mode.XOR, width
            case Codec.SUBTRACT:
                return (Mode.SUBTRACT_FLOAT if is_float else Mode.SUBTRACT), width
            case _:
                return Mode.PLAIN, width


class BadChunk(ValueError):
    """Stored bytes that no encoder wrote."""


def n_chunks(n_bytes: int) -> int:
    """Chunks of a tensor of so many bytes."""
    return -(-n_bytes // CHUNK)


def encode_chunk(codec: Codec, dtype: torch.dtype, words: Buffer, base: Buffer | None) -> Planes:
    """Planes of one chunk, each compressed where that gains something."""
    mode, width = codec.mode(dtype)
    with _compressors.borrow() as compressor, CHUNK_BUFFERS.borrow() as buffer:
        n_bytes = memoryview(words).nbytes if not isinstance(words, np.ndarray) else words.nbytes
        planes = np.frombuffer(buffer[:n_bytes], np.uint8).reshape(width, n_bytes // width)
        split_into(planes, words, base, mode)
        return [_compressed(plane.data, compressor) for plane in planes]


def decode_chunk(codec: Codec, dtype: torch.dtype, planes: Sequence[memoryview], base: Buffer | None, out: memoryview) -> None:
    """Fill ``out`` with the words given to ``encode_chunk``; ``BadChunk`` for planes it cannot have written."""
    mode, width = codec.mode(dtype)
    n_words = out.nbytes // width
    with _decompressors.borrow() as decompressor:
        join([_decompressed(plane, n_words, decompressor) for plane in planes], base, mode, width, out)


def table(chunks: Sequence[Planes]) -> bytes:
    """Lengths of all planes and checksums of all chunks, in stored order, for ``parse_table``."""
    lengths = [len(plane) for planes in chunks for plane in planes]
    return struct.pack(f"<{len(lengths)}I{len(chunks)}Q", *lengths, *(checksum(planes) for planes in chunks))


def table_bytes(dtype: torch.dtype, n_bytes: int) -> int:
    """Size of the table of a tensor of so many bytes."""
    return n_chunks(n_bytes) * (4 * words_of(dtype)[0] + 8)


def parse_table(text: bytes, n_chunks: int) -> tuple[Sequence[int], Sequence[int]]:
    """Lengths of the planes and checksums of the chunks in a table of ``table_bytes``."""
    n_lengths = (len(text) - 8 * n_chunks) // 4
    numbers = struct.unpack(f"<{n_lengths}I{n_chunks}Q", text)
    return numbers[:n_lengths], numbers[n_lengths:]


def checksum(planes: Iterable[bytes | memoryview]) -> int:
    """XXH3 of a stored chunk, 64 bits."""
    digest = xxhash.xxh3_64()
    for plane in planes:
        digest.update(plane)
    return digest.intdigest()


def _compressed(plane: memoryview, compressor: zstandard.ZstdCompressor) -> bytes:
    n_bytes, sample = plane.nbytes, plane
    if n_bytes > _PROBE:
        middle = n_bytes // 2
        sample = plane[middle : middle + _PROBE]
    bits = bits_for(np.frombuffer(sample, np.uint8))
    if bits is not None and len(packed := pack(np.frombuffer(plane, np.uint8), bits)) < n_bytes:
        frame = compressor.compress(packed)
    elif sample is not plane and len(compressor.compress(sample)) > _WORTHWHILE * _PROBE:
        return bytes(plane)
    else:
        frame = compressor.compress(plane)
    return frame if len(frame) < n_bytes else bytes(plane)


def _decompressed(plane: memoryview, n_bytes: int, decompressor: zstandard.ZstdDecompressor) -> Buffer:
    if plane.nbytes == n_bytes:
        return plane
    try:
        # The size in the frame is checked before anything of that size is allocated. Packed planes have another length.
        announced = zstandard.frame_content_size(plane[:18])
        if not 0 <= announced <= max_packed_bytes(n_bytes):
            raise BadChunk(f"a plane of {n_bytes} bytes, found a frame of {announced}")
        content = decompressor.decompress(plane, allow_extra_data=False)
        return content if announced == n_bytes else unpack(content, n_bytes)
    except zstandard.ZstdError as error:
        raise BadChunk(f"a compressed plane, found {error}") from error
    except BadChunk:
        raise
    except ValueError as error:
        raise BadChunk(f"a plane of {n_bytes} bytes, found {error}") from error
