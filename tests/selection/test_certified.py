"""What the checks of a training set certify, and what they find."""

from collections.abc import Sequence

import numpy as np
import pytest

from modyn_dagster.catalog.training_sets import TrainingSetRow
from modyn_dagster.pipeline.checks import certified
from modyn_dagster.selection import Selection, TrainingSet, write_training_set
from modyn_dagster.spec.selection import SelectionSpec


def judged(keys: Sequence[int], weights: Sequence[float], *, n: int, n_pool: int) -> tuple[bool, bool]:
    training_set = TrainingSet.of(np.array(keys, np.uint64), np.array(weights, np.float32))
    once, total = certified(TrainingSetRow(1, 9, 99, n_pool, n, None, None, "", "", None), training_set)
    assert (once.blocking, total.blocking) == (True, False)
    return once.passed, total.passed


@pytest.mark.parametrize(
    ("keys", "weights", "n", "n_pool", "expected"),
    [
        ([10, 20, 99], [2, 2, 2], 3, 6, (True, True)),
        ([], [], 0, 0, (True, True)),
        ([10, 20], [3, 3], 3, 6, (False, True)),
        ([10, 10, 20], [2, 2, 2], 3, 6, (False, True)),
        ([9, 20, 30], [2, 2, 2], 3, 6, (False, True)),
        ([10, 20, 100], [2, 2, 2], 3, 6, (False, True)),
        ([10, 20, 30], [1, 1, 1], 3, 6, (True, False)),
        ([10, 20, 30], [6, 0, 0], 3, 6, (True, False)),
        ([10, 20, 30], [np.nan, 3, 3], 3, 6, (True, False)),
    ],
)
def test_missing_repeated_and_foreign_keys_and_wrong_sums_are_found(keys, weights, n, n_pool, expected):
    assert judged(keys, weights, n=n, n_pool=n_pool) == expected


def test_a_selection_passes_and_its_effective_size_is_told(tmp_path):
    keys = np.arange(10, 5_010, dtype=np.uint64)
    chosen = Selection(SelectionSpec(limit=1_000, partition_size=64), [keys], seed=0, trigger=0)
    written = write_training_set(tmp_path / "set.arrow", chosen)
    row = TrainingSetRow(1, 9, 6_000, chosen.n_pool, written.n_samples, None, None, "", "", None)
    once, total = certified(row, TrainingSet.open(tmp_path / "set.arrow"))
    assert (once.passed, total.passed) == (True, True)
    assert total.metadata["effective"] == pytest.approx(1_000)
    assert total.metadata["sum"] == pytest.approx(5_000)
