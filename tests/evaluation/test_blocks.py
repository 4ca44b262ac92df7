import numpy as np
import numpy.typing as npt
from hypothesis import given
from hypothesis import strategies as st

from modyn_dagster.evaluation import BLOCK, BatchRange, Block, fixed_blocks
from modyn_dagster.keys import keys_of, positions_of

Positions = npt.NDArray[np.int64]


@st.composite
def batches(draw: st.DrawFn) -> tuple[BatchRange, int]:
    n = draw(st.integers(0, 60))
    some = st.lists(st.integers(0, n - 1), unique=True).map(sorted) if n else st.just([])
    wanted = draw(st.none() | some)
    deleted = draw(st.none() | some)
    as_array = [None if part is None else np.array(part, dtype=np.int64) for part in (wanted, deleted)]
    return BatchRange(7, n, *as_array), draw(st.integers(1, 16))


@given(batches())
def test_every_wanted_position_is_in_one_block_at_its_place(case: tuple[BatchRange, int]) -> None:
    batch, size = case
    wanted = set(range(batch.n_samples)) if batch.positions is None else set(batch.positions)
    wanted -= set() if batch.deleted is None else set(batch.deleted)
    found = [int(p) for block in fixed_blocks(*batch, block=size) for p in positions_of(block.keys[block.rows])]
    assert found == sorted(wanted)
    for block in fixed_blocks(*batch, block=size):
        assert len(block.rows) > 0
        assert (positions_of(block.keys[block.rows]) % size == block.rows).all()


def number_of(block: Block, size: int) -> int:
    return int(positions_of(block.keys)[0]) // size


@given(batches())
def test_a_block_does_not_depend_on_what_is_wanted(case: tuple[BatchRange, int]) -> None:
    batch, size = case
    whole = {number_of(each, size): each.keys for each in fixed_blocks(*batch._replace(positions=None), block=size)}
    for block in fixed_blocks(*batch, block=size):
        np.testing.assert_array_equal(block.keys, whole[number_of(block, size)])


@given(batches())
def test_a_block_is_full_and_reads_nothing_deleted_and_nothing_beyond_the_batch(case: tuple[BatchRange, int]) -> None:
    batch, size = case
    gone = set() if batch.deleted is None else set(batch.deleted.tolist())
    for block in fixed_blocks(*batch, block=size):
        positions = positions_of(block.keys)
        assert len(positions) == size
        assert not set(positions.tolist()) & gone
        assert ((positions >= 0) & (positions < batch.n_samples)).all()
        assert len(set((positions // size).tolist())) == 1


def test_places_without_a_sample_repeat_the_one_before_or_the_first() -> None:
    blocks = list(fixed_blocks(1, 6, None, np.array([0, 2]), block=4))
    assert [positions_of(block.keys).tolist() for block in blocks] == [[1, 1, 1, 3], [4, 5, 5, 5]]
    assert [block.rows.tolist() for block in blocks] == [[1, 3], [0, 1]]


def test_blocks_of_a_large_batch_are_1024_positions() -> None:
    blocks = list(fixed_blocks(2, 2500))
    assert BLOCK == 1024
    np.testing.assert_array_equal(blocks[1].keys, keys_of(2, np.arange(1024, 2048)))
    assert [len(block.rows) for block in blocks] == [1024, 1024, 452]
