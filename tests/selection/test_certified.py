"""Checks of a training set: the facts they certify, and the faults they find."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from modyn_dagster.catalog.results.training_sets import TrainingSetRow
from modyn_dagster.pipeline.stages.training_set.checks import training_set_checks
from modyn_dagster.selection import Selection, TrainingSet, write_training_set
from modyn_dagster.selection.partitions import ProbabilityPartition
from modyn_dagster.spec.selection import SelectionSpec
from tests.selection.test_strategies import history_of, pool_of


def judged(keys: Sequence[int], weights: Sequence[float], *, n: int, n_pool: int) -> tuple[bool, bool]:
    training_set = TrainingSet.of(np.array(keys, np.uint64), np.array(weights, np.float32))
    once, total, untold = training_set_checks(TrainingSetRow(1, 9, 99, n_pool, n, None, None, "", "", None), training_set)
    assert (once.blocking, total.blocking) == (True, False)
    assert (untold.passed, untold.metadata) == (True, {})
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
    once, total, _ = training_set_checks(row, TrainingSet.open(tmp_path / "set.arrow"))
    assert (once.passed, total.passed) == (True, True)
    assert total.metadata["effective"] == pytest.approx(1_000)
    assert total.metadata["sum"] == pytest.approx(5_000)


@pytest.mark.parametrize(
    "strategy",
    [
        {"kind": "balanced", "by": "label", "filling": "exact", "weights": "equal"},
        {"kind": "freshness", "unused": 0.7, "weights": "equal"},
        {"kind": "weighted", "attribute": "score", "weights": "equal"},
    ],
)
def test_where_weights_are_equal_the_set_tells_the_chances_and_they_add_up(tmp_path, strategy):
    pool = pool_of(900, 4, chunk=50)
    fields: dict[str, Any] = {"strategy": strategy | {"size": 300}, "partition_size": 37, "backend": "postgres"}
    chosen = Selection(SelectionSpec.model_validate(fields), pool, seed=3, trigger=0, history=history_of(pool))
    unbiased = fields | {"strategy": strategy | {"size": 300, "weights": "unbiased"}}
    other = Selection(SelectionSpec.model_validate(unbiased), pool, seed=3, trigger=0, history=history_of(pool))
    written = write_training_set(tmp_path / "set.arrow", chosen)
    write_training_set(tmp_path / "other.arrow", other)
    found, expected = TrainingSet.open(tmp_path / "set.arrow", written.checksum), TrainingSet.open(tmp_path / "other.arrow")
    chances = np.concatenate([found.chances(i) for i in range(found.n_partitions)])
    np.testing.assert_array_equal(found.keys(), expected.keys())
    np.testing.assert_allclose(1 / chances, expected.weights(), rtol=1e-6)
    assert expected.chances(0) is None
    row = TrainingSetRow(1, int(pool.keys[0]) - 1, int(pool.keys[-1]), 900, written.n_samples, None, None, "", "", None)
    once, total, told = training_set_checks(row, found)
    assert (once.passed, total.passed, told.passed) == (True, True, True)
    assert total.metadata["effective"] == pytest.approx(300)
    assert told.metadata["effective"] == pytest.approx((1 / chances).sum() ** 2 / (1 / chances**2).sum(), rel=1e-5)


@pytest.mark.parametrize(
    ("chances", "n_pool", "passed"), [([0.5, 0.5], 4, True), ([0.5, 0.5], 40, False), ([0.5, 0.0], 2, False)]
)
def test_chances_that_are_none_or_do_not_add_up_are_found(tmp_path, chances, n_pool, passed):
    part = ProbabilityPartition(np.array([10, 11], np.uint64), np.full(2, n_pool / 2, np.float32), np.array(chances))
    part.chances = np.array(chances, np.float32)
    write_training_set(tmp_path / "set.arrow", [part])
    row = TrainingSetRow(1, 9, 99, n_pool, 2, None, None, "", "", None)
    *_, told = training_set_checks(row, TrainingSet.open(tmp_path / "set.arrow"))
    assert (told.name, told.passed, told.blocking) == ("chances_sum", passed, False)
