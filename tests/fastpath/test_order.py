"""An order is a permutation, whatever its size, and any slice of it is the slice."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastpath import Order
from fastpath.kernels._order import permute, place_of
from fastpath.order import Shuffle

#: Small and large, powers of two and their neighbours, and what words of 32 bits do not hold.
sizes = st.one_of(
    st.integers(0, 5_000),
    st.integers(0, 62).flatmap(lambda bits: st.integers(max(0, 2**bits - 2), min(2**bits + 2, 2**62))),
    st.integers(1, 2**62),
)
seeds = st.integers(-(2**70), 2**70)
shuffles = st.sampled_from([False, True, "blocks"])


def whole(n: int, shuffle: Shuffle = True, *, block_size: int = 65_536, seed: int = 0, epoch: int = 0) -> np.ndarray:
    return Order(n, shuffle=shuffle, block_size=block_size, seed=seed, epoch=epoch).positions(0, n)


@pytest.mark.parametrize("seed", [0, 1, -7, 2**64])
def test_every_size_up_to_some_thousands_gives_a_permutation(seed):
    for n in [*range(600), *range(1_000, 3_000, 97), 4_095, 4_096, 4_097]:
        np.testing.assert_array_equal(np.sort(whole(n, seed=seed)), np.arange(n))


@pytest.mark.parametrize("block_size", [1, 2, 3, 7, 64, 100, 1_000])
def test_blocks_of_every_size_give_a_permutation(block_size):
    for n in [*range(150), *range(200, 1_100, 71), 4_096]:
        np.testing.assert_array_equal(np.sort(whole(n, "blocks", block_size=block_size, seed=n)), np.arange(n))


@given(sizes, shuffles, st.integers(1, 2**40), seeds, st.integers(0, 9), st.data())
def test_any_slice_of_any_order_holds_different_positions_inside_it(n, shuffle, block_size, seed, epoch, data):
    start = data.draw(st.integers(0, n))
    stop = data.draw(st.integers(start, min(n, start + 3_000)))
    found = Order(n, shuffle=shuffle, block_size=block_size, seed=seed, epoch=epoch).positions(start, stop)
    assert found.shape == (stop - start,)
    assert len(np.unique(found)) == len(found)
    assert ((found >= 0) & (found < n)).all()


@given(st.integers(1, 2**62), st.integers(0, 2**64 - 1), st.data())
def test_every_position_of_a_large_set_has_one_place(n, key, data):
    value = data.draw(st.integers(0, n - 1))
    place = place_of(key, n, value)
    found = np.empty(1, dtype=np.int64)
    permute(key, n, place, place + 1, found)
    assert found[0] == value


@given(st.integers(1, 6_000), shuffles, st.integers(1, 2_000), seeds, st.data())
def test_slices_agree_with_the_whole(n, shuffle, block_size, seed, data):
    start = data.draw(st.integers(0, n))
    stop = data.draw(st.integers(start, n))
    order = Order(n, shuffle=shuffle, block_size=block_size, seed=seed, epoch=1)
    np.testing.assert_array_equal(order.positions(start, stop), order.positions(0, n)[start:stop])


def test_a_slice_of_a_large_order_agrees_with_its_parts():
    for shuffle in (True, "blocks"):
        order = Order(10**12 + 7, shuffle=shuffle, block_size=1_000, seed=4, epoch=2)
        start = 987_654_321_098
        together = order.positions(start, start + 5_000)
        apart = [order.positions(at, at + 1) for at in range(start, start + 5_000, 333)]
        np.testing.assert_array_equal(np.concatenate(apart), together[::333])


@given(st.integers(1, 5_000), st.integers(1, 700), seeds)
def test_blocks_stay_together_and_only_one_is_short(n, block_size, seed):
    blocks = whole(n, "blocks", block_size=block_size, seed=seed) // block_size
    starts = np.flatnonzero(np.concatenate(([True], blocks[1:] != blocks[:-1])))
    assert len(starts) == len(np.unique(blocks))
    lengths = dict(zip(blocks[starts].tolist(), np.diff([*starts, n]).tolist()))
    assert lengths == {b: min(block_size, n - b * block_size) for b in range(-(-n // block_size))}


def test_without_shuffling_every_position_stays():
    np.testing.assert_array_equal(Order(100, shuffle=False, seed=1, epoch=1).positions(40, 60), np.arange(40, 60))


@pytest.mark.parametrize("shuffle", [True, "blocks"])
def test_another_seed_or_epoch_is_another_order_and_the_same_is_the_same(shuffle):
    base = whole(1_000, shuffle, block_size=100, seed=5, epoch=3)
    np.testing.assert_array_equal(base, whole(1_000, shuffle, block_size=100, seed=5, epoch=3))
    for seed, epoch in [(6, 3), (5, 4), (3, 5), (-5, 3), (5 + 2**64, 3)]:
        other = whole(1_000, shuffle, block_size=100, seed=seed, epoch=epoch)
        # Independent permutations agree in one place on average.
        assert np.count_nonzero(base == other) < 12


def test_an_order_does_not_change_from_release_to_release():
    # A resumed epoch must go on where it was, also after an update.
    assert whole(10, seed=1, epoch=2).tolist() == [0, 9, 1, 2, 8, 5, 3, 7, 4, 6]
    assert whole(10, "blocks", block_size=4, seed=1, epoch=2).tolist() == [2, 1, 0, 3, 9, 8, 5, 6, 7, 4]
    assert Order(2**40, shuffle=True, seed=1, epoch=2).positions(7, 10).tolist() == [955505956158, 322569801162, 21234523423]


def chi_square_is_ordinary(counts: np.ndarray, expected: float, freedom: int) -> bool:
    statistic = float(((counts - expected) ** 2 / expected).sum())
    # About normal for many degrees of freedom; seeds are fixed, so this holds or fails for good.
    return abs(statistic - freedom) < 4 * float(np.sqrt(2 * freedom))


@pytest.mark.parametrize("n", [5, 16, 33, 100])
def test_every_position_is_as_likely_at_every_place(n):
    seeds = 8_000
    counts = np.zeros((n, n))
    for seed in range(seeds):
        counts[np.arange(n), whole(n, seed=seed)] += 1
    assert chi_square_is_ordinary(counts, seeds / n, (n - 1) ** 2)


def test_the_permutations_of_four_are_equally_likely():
    found: dict[tuple[int, ...], int] = {}
    for seed in range(9_600):
        order = tuple(whole(4, seed=seed).tolist())
        found[order] = found.get(order, 0) + 1
    assert len(found) == 24
    assert chi_square_is_ordinary(np.array(list(found.values())), 400, 23)


@pytest.mark.parametrize("n", [65_536, 100_003, 1_000_000])
@pytest.mark.parametrize("lag", [1, 2, 64])
def test_neighbours_in_the_order_are_no_neighbours_in_the_set(n, lag):
    order = whole(n, seed=n)
    cells = order * 16 // n
    counts = np.bincount(cells[:-lag] * 16 + cells[lag:], minlength=256)
    assert chi_square_is_ordinary(counts, (n - lag) / 256, 225)


def test_every_stretch_of_an_epoch_is_a_fair_sample_of_the_set():
    order = whole(1_000_000, seed=3)
    for start in range(0, 1_000_000, 100_000):
        counts = np.bincount(order[start : start + 100_000] * 100 // 1_000_000, minlength=100)
        # Drawn without replacement the variance is smaller by the share that is left.
        assert chi_square_is_ordinary(1_000 + (counts - 1_000) / np.sqrt(0.9), 1_000, 99)


def test_positions_go_into_an_array_that_is_there():
    order = Order(1_000, shuffle=True, seed=0, epoch=0)
    out = np.full(12, -1, dtype=np.int64)
    assert order.positions(10, 20, out=out[1:11]).base is out
    assert out[0] == out[11] == -1
    np.testing.assert_array_equal(out[1:11], order.positions(10, 20))


@pytest.mark.parametrize("slice_", [(-1, 3), (3, 2), (0, 11), (11, 11)], ids=str)
def test_a_slice_outside_the_order_is_refused(slice_):
    with pytest.raises(ValueError, match="does not lie inside an order of 10 positions"):
        Order(10, shuffle=True, seed=0, epoch=0).positions(*slice_)


@pytest.mark.parametrize(
    "out", [np.empty(4, np.int64), np.empty(5, np.int32), np.empty((5, 2), np.int64)[:, 0]], ids=["short", "int32", "strided"]
)
def test_an_unsuitable_output_is_refused(out):
    with pytest.raises(ValueError, match=r"out must be a contiguous int64\[5\]"):
        Order(10, shuffle=True, seed=0, epoch=0).positions(0, 5, out=out)


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ({"n": -1}, "n must"),
        ({"n": 2**62 + 1}, "n must"),
        ({"block_size": 0}, "block_size"),
        ({"epoch": -1}, "epoch must"),
        ({"shuffle": "rows"}, "shuffle must"),
    ],
    ids=str,
)
def test_an_impossible_order_is_refused(arguments, match):
    with pytest.raises(ValueError, match=match):
        Order(**{"n": 10, "shuffle": True, "seed": 0, "epoch": 0, **arguments})


@pytest.mark.parametrize("n", [0, 1, 10, 1_000])
def test_one_block_is_one_block_however_long(n):
    same = Order(n, shuffle="blocks", block_size=max(n, 1), seed=1, epoch=0).positions(0, n)
    for block_size in (n + 1, 2**62, 2**63 - 1, 2**80):
        found = Order(n, shuffle="blocks", block_size=block_size, seed=1, epoch=0).positions(0, n)
        np.testing.assert_array_equal(found, same)
