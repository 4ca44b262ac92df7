import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from modyn_dagster.data.split import CALIBRATE, EVALUATE, TRAIN, side_of
from modyn_dagster.keys import keys_of
from modyn_dagster.reproducibility.randomness import hash_keys
from modyn_dagster.spec.dataset import Split

KEYS = keys_of(3, np.arange(100_000))


@pytest.mark.parametrize(
    "shares", [(1.0, 0.0, 0.0), (0.8, 0.0, 0.2), (0.5, 0.5, 0.0), (0.7, 0.1, 0.2), (0.9, 0.1, 0.0), (0.001, 0.0, 0.999)]
)
def test_each_side_gets_its_share_and_a_side_without_a_share_nothing(shares: tuple[float, float, float]) -> None:
    sides = side_of(KEYS, Split(train=shares[0], calibrate=shares[1], evaluate=shares[2], salt=5))
    for side, share in zip((TRAIN, CALIBRATE, EVALUATE), shares):
        n = int((sides == side).sum())
        assert abs(n - share * len(KEYS)) <= 5 * np.sqrt(share * (1 - share) * len(KEYS))
    assert sides.dtype == np.uint8


def test_the_sides_are_parts_of_the_hash_range() -> None:
    split = Split(train=0.5, calibrate=0.25, evaluate=0.25, salt=9)
    hashes = [int(value) for value in hash_keys(KEYS, 9)]
    expected = [TRAIN if value < 2**63 else CALIBRATE if value < 3 * 2**62 else EVALUATE for value in hashes]
    np.testing.assert_array_equal(side_of(KEYS, split), expected)


@given(st.lists(st.integers(0, 2**63 - 1), max_size=30), st.randoms(use_true_random=False))
def test_the_side_of_a_key_depends_on_nothing_but_the_key_and_the_split(keys: list[int], random: object) -> None:
    split = Split(train=0.6, evaluate=0.4, salt=1)
    together = side_of(np.array(keys, dtype=np.uint64), split)
    alone = [int(side_of(np.array([key], dtype=np.uint64), split)[0]) for key in keys]
    np.testing.assert_array_equal(together, alone)


def test_a_hash_is_that_of_splitmix_wherever_its_key_stands() -> None:
    def splitmix(key: int, salt: int) -> int:
        mixed = (key + (salt + 1) * 0x9E3779B97F4A7C15) % 2**64
        mixed = (mixed ^ mixed >> 30) * 0xBF58476D1CE4E5B9 % 2**64
        mixed = (mixed ^ mixed >> 27) * 0x94D049BB133111EB % 2**64
        return mixed ^ mixed >> 31

    hashes = hash_keys(KEYS, 9)
    for position in (0, 1, 8191, 8192, 16_383, 16_384, len(KEYS) - 1):
        assert int(hashes[position]) == splitmix(int(KEYS[position]), 9)
    np.testing.assert_array_equal(hash_keys(KEYS[::-1], 9), hashes[::-1])
    assert hash_keys(KEYS[:0], 9).tolist() == []


def test_another_salt_is_another_split() -> None:
    one, other = (side_of(KEYS, Split(train=0.5, evaluate=0.5, salt=salt)) for salt in (0, 1))
    assert 0.45 < float((one == other).mean()) < 0.55
