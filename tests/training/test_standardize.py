import numpy as np
import numpy.typing as npt
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from sklearn.preprocessing import StandardScaler

from modyn_dagster.training.models.standardization import Float64, Moments, Scaling, Standardize

VALUES = st.floats(-1e6, 1e6, allow_subnormal=False).map(lambda x: round(x, 3))
TABLES = hnp.arrays(np.float64, st.tuples(st.integers(1, 40), st.integers(1, 4)), elements=VALUES)


def standardized(columns: Float64, cuts: list[int]) -> npt.NDArray[np.float32]:
    moments = Moments(columns.shape[1])
    for chunk in np.split(columns, sorted(cut % len(columns) for cut in cuts)):
        moments.update(chunk)
    module = Standardize(columns.shape[1])
    module.fit(moments)
    scaled: npt.NDArray[np.float32] = module(torch.from_numpy(columns)).numpy()
    return scaled


@given(TABLES, st.lists(st.integers(0, 100), max_size=4))
def test_it_agrees_with_scikit_learn_however_the_rows_are_cut(columns: Float64, cuts: list[int]) -> None:
    expected = StandardScaler().fit_transform(columns)
    varied = columns.min(axis=0) < columns.max(axis=0)
    # Where the spread is a rounding error of the mean, what is left is noise in any implementation.
    clear = varied & (np.ptp(columns, axis=0) > 1e-6 * np.abs(columns).max(axis=0))
    np.testing.assert_allclose(standardized(columns, cuts)[:, clear], expected[:, clear], rtol=1e-4, atol=1e-4)


@given(st.floats(-1e300, 1e300), st.integers(1, 50), st.lists(st.integers(0, 100), max_size=3))
def test_a_constant_column_becomes_exactly_zero(value: float, n: int, cuts: list[int]) -> None:
    assert (standardized(np.full((n, 1), value), cuts) == 0).all()


@given(TABLES, st.data())
def test_missing_values_become_zero_and_do_not_move_the_others(columns: Float64, data: st.DataObject) -> None:
    missing = data.draw(hnp.arrays(bool, columns.shape))
    holes = np.where(missing, data.draw(st.sampled_from([np.nan, np.inf, -np.inf])), columns)
    found = standardized(holes, [])
    assert (found[missing] == 0).all()
    for j in range(columns.shape[1]):
        present = columns[~missing[:, j], j : j + 1]
        if len(present):
            np.testing.assert_array_equal(found[~missing[:, j], j : j + 1], standardized(present, []))


def test_a_column_without_any_value_becomes_zero() -> None:
    assert (standardized(np.full((3, 2), np.nan), [1]) == 0).all()


def test_magnitudes_beyond_the_square_root_of_the_range_give_zeros_not_nan() -> None:
    assert (standardized(np.array([[1e300], [-1e300], [5.0]]), [1]) == 0).all()


@given(TABLES, st.integers(0, 39))
def test_a_row_has_the_same_bits_whatever_rows_are_beside_it(columns: Float64, row: int) -> None:
    moments = Moments(columns.shape[1])
    moments.update(columns)
    module = Standardize(columns.shape[1])
    module.fit(moments)
    alone = columns[row % len(columns)][None]
    together = module(torch.from_numpy(columns))[row % len(columns)][None]
    assert torch.equal(module(torch.from_numpy(alone)), together)


def test_a_large_offset_costs_no_precision() -> None:
    columns = np.random.default_rng(0).normal(size=(5000, 1))
    near, far = standardized(columns, [17, 400]), standardized(columns + 2.0**30, [17, 400])
    np.testing.assert_allclose(near, far, atol=1e-5)


@given(
    hnp.arrays(np.float64, st.tuples(st.integers(1, 40), st.just(3)), elements=st.floats(allow_nan=True, allow_infinity=True)),
    hnp.arrays(np.float64, 3, elements=st.floats(-1e300, 1e300)),
    hnp.arrays(np.float64, 3, elements=st.floats(0, 1e300)),
)
def test_arrays_are_scaled_to_the_bits_of_the_module(columns: Float64, mean: Float64, factor: Float64) -> None:
    module = Standardize(3)
    module.mean.copy_(torch.from_numpy(mean))
    module.factor.copy_(torch.from_numpy(factor))
    expected = module(torch.from_numpy(columns.copy())).numpy()
    found = module.scaling().scale(columns.copy())
    assert found.dtype == np.float32
    both_nan = np.isnan(found) & np.isnan(expected)
    assert (both_nan | (found.view(np.int32) == expected.view(np.int32))).all()
    assert found.ctypes.data % 64 == 0
    assert isinstance(module.scaling(), Scaling)


@given(
    hnp.arrays(np.float64, st.tuples(st.integers(1, 5), st.just(2)), elements=st.floats(-1e3, 1e3)),
    st.sampled_from([1.0, 1e30, 1e38, 1e300]),
    st.sampled_from([1e-300, 1.0, 1e300]),
)
def test_values_near_the_end_of_the_range_give_the_bits_of_the_module_and_no_warning(
    columns: Float64, magnitude: float, factor: float
) -> None:
    module = Standardize(2)
    module.mean.fill_(magnitude)
    module.factor.fill_(factor)
    wide = columns * magnitude if magnitude < 1e300 else columns * 1e297
    expected = module(torch.from_numpy(wide.copy())).numpy()
    found = module.scaling().scale(wide.copy())
    np.testing.assert_array_equal(found, expected)
