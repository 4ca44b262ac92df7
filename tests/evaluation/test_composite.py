import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from modyn_dagster.evaluation import comparable_intervals, composite_scores, currently_active, currently_trained, pipeline_score

TIMES = st.lists(st.integers(0, 12), max_size=8)


def active_of(ends: list[int], anchor: int) -> int:
    """The definition: the newest model whose last training time lies strictly before the anchor."""
    return max((i for i, end in enumerate(ends) if end < anchor), default=-1)


def trained_of(ends: list[int], anchor: int) -> int:
    """The definition: the next one; the last has none after it; the first if none is active yet."""
    if not ends:
        return -1
    active = active_of(ends, anchor)
    if active == -1:
        return 0
    return active if active == len(ends) - 1 else active + 1


@given(TIMES, TIMES, st.booleans())
def test_both_composites_agree_with_their_definitions(ends: list[int], anchors: list[int], as_times: bool) -> None:
    def of(values: list[int]) -> npt.NDArray[np.generic]:
        return np.array(values, dtype="datetime64[us]") if as_times else np.array(values, dtype=np.int64)

    active, trained = currently_active(of(ends), of(anchors)), currently_trained(of(ends), of(anchors))
    assert active.tolist() == [active_of(ends, anchor) for anchor in anchors]
    assert trained.tolist() == [trained_of(ends, anchor) for anchor in anchors]
    assert active.dtype == trained.dtype == np.int64


def test_a_model_that_saw_the_anchor_itself_is_not_active_there() -> None:
    assert currently_active([2010], [2009, 2010, 2011]).tolist() == [-1, -1, 0]


def test_the_example_of_the_paper() -> None:
    """A model after each of three periods; in each period the active one was trained on those before, the trained one on it."""
    ends, anchors = [2010.9, 2011.9, 2012.9], [2010, 2011, 2012, 2013]
    assert currently_active(ends, anchors).tolist() == [-1, 0, 1, 2]
    assert currently_trained(ends, anchors).tolist() == [0, 1, 2, 2]


VALUES = np.array([[0.1, 0.2, 0.3, np.nan], [0.4, 0.5, 0.6, np.nan], [0.7, np.nan, 0.9, np.nan]])


def test_a_composite_reads_the_cell_of_its_model() -> None:
    np.testing.assert_array_equal(composite_scores(VALUES, np.array([-1, 0, 2, 1])), [np.nan, 0.2, 0.9, np.nan])


def test_the_pipeline_score_is_the_mean_over_defined_intervals_with_an_active_model() -> None:
    active = np.array([-1, 0, 1, 2])
    found = pipeline_score(composite_scores(VALUES, active), active)
    assert found.value == pytest.approx((0.2 + 0.6) / 2)
    assert (found.n, found.undefined) == (2, None)


def test_other_composites_are_judged_where_a_model_is_active() -> None:
    active, trained = np.array([-1, 0, 1, 2]), np.array([0, 1, 2, 2])
    found = pipeline_score(composite_scores(VALUES, trained), active)
    assert found.value == pytest.approx((0.5 + 0.9) / 2)
    assert found.n == 2


def test_comparisons_use_the_intervals_in_which_all_pipelines_have_an_active_model() -> None:
    one, other = np.array([-1, 0, 0, 1]), np.array([-1, -1, 0, 0])
    among = comparable_intervals([one, other])
    assert among.tolist() == [False, False, True, True]
    found = pipeline_score(composite_scores(VALUES, one), one, among=among)
    assert found.value == pytest.approx(0.3)
    assert found.n == 1


def test_a_score_of_nothing_says_why() -> None:
    none = np.array([-1, -1, -1, -1])
    assert pipeline_score(composite_scores(VALUES, none), none).undefined == "no interval has an active model"
    last = np.array([-1, -1, -1, 2])
    found = pipeline_score(composite_scores(VALUES, last), last)
    assert (found.value, found.undefined) == (None, "the score is undefined in all of 1 intervals with an active model")
