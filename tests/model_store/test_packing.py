"""Packing of planes of small numbers: exact, and nothing else passes for a packed plane."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from modyn_dagster.model_store.format.codec import (
    BadChunk,
    Codec,
    bits_for,
    decode_chunk,
    encode_chunk,
    max_packed_bytes,
    pack,
    unpack,
)

PLANES = st.binary(max_size=300) | st.lists(st.sampled_from([0, 0, 0, 1, 2, 3, 14, 15, 255]), max_size=300).map(bytes)


def compressed(plane: bytes) -> bytes:
    """Bytes have one plane."""
    (stored,) = encode_chunk(Codec.PLANES, torch.uint8, plane, None)
    return bytes(stored)


def decompressed(stored: bytes, n: int) -> bytes:
    out = bytearray(n)
    decode_chunk(Codec.PLANES, torch.uint8, [memoryview(stored)], None, memoryview(out))
    return bytes(out)


def by_hand(plane: bytes, bits: int) -> bytes:
    """Number by number, by the definition."""
    top, per = 2**bits - 1, 8 // bits
    groups = [plane[i : i + per] for i in range(0, len(plane), per)]
    packed = bytes(sum(min(number, top) << (bits * k) for k, number in enumerate(group)) for group in groups)
    return bytes([bits]) + packed + bytes(number for number in plane if number >= top)


@given(PLANES, st.sampled_from([2, 4]))
def test_packing_is_the_definition_and_unpacking_its_inverse(plane, bits):
    packed = pack(np.frombuffer(plane, np.uint8), bits)
    assert packed == by_hand(plane, bits)
    assert len(packed) <= max_packed_bytes(len(plane))
    assert unpack(packed, len(plane)).tobytes() == plane


@given(st.binary(max_size=80), st.integers(0, 80))
def test_what_is_unpacked_is_what_pack_makes_of_it(content, n):
    try:
        plane = unpack(content, n)
    except ValueError:
        return
    assert plane.size == n
    assert by_hand(plane.tobytes(), content[0]) == content


@given(PLANES.filter(len))
def test_compressed_planes_come_back(plane):
    stored = compressed(plane)
    assert len(stored) <= len(plane)
    assert decompressed(stored, len(plane)) == plane


@pytest.mark.parametrize("n", [1, 70_000])
def test_a_packed_plane_of_another_length_is_refused(n):
    stored = compressed(bytes(100_000))
    with pytest.raises(BadChunk):
        decompressed(stored, n)


def test_small_numbers_are_packed_and_others_are_not():
    rng = np.random.default_rng(0)
    numbers = rng.choice(4, 100_000, p=[0.82, 0.16, 0.019, 0.001]).astype(np.uint8)
    assert bits_for(numbers) == 2
    assert bits_for(rng.integers(0, 15, 10_000).astype(np.uint8)) == 4
    assert bits_for(rng.integers(0, 256, 10_000).astype(np.uint8)) is None
    share = np.bincount(numbers) / numbers.size
    entropy = -(share * np.log2(share)).sum() / 8
    # A byte-wise Huffman code would need an eighth at least.
    assert len(compressed(numbers.tobytes())) / numbers.size < 1.1 * entropy < 0.125
