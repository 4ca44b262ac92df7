"""A selection holds a partition and little more, however long its window is."""

import tracemalloc
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from modyn_dagster.keys import KeyArray
from modyn_dagster.selection import Selection, write_training_set
from modyn_dagster.spec.selection import SelectionSpec

CHUNK = 20_000


@dataclass
class LongPool:
    """Columns of a window that are made as they are asked for."""

    n: int

    def __iter__(self) -> Iterator[KeyArray]:
        return (np.arange(begin, begin + CHUNK, dtype=np.uint64) for begin in range(0, self.n, CHUNK))

    def labels(self) -> Iterator[tuple[KeyArray, Any]]:
        return ((keys, (keys % np.uint64(5)).astype(np.int64)) for keys in self)

    def scores(self, attribute: str | None, expression: str | None) -> Iterator[tuple[KeyArray, Any]]:
        return ((keys, 1.0 + (keys % np.uint64(3)).astype(np.float64)) for keys in self)

    def attribute(self, name: str) -> Iterator[tuple[KeyArray, list[str | None]]]:
        return ((keys, ["a", "b"] * (CHUNK // 2)) for keys in self)


def peak(folder: Any, strategy: dict[str, Any], n: int) -> int:
    spec = SelectionSpec.model_validate({"strategy": strategy, "partition_size": CHUNK, "backend": "postgres"})
    tracemalloc.start()
    try:
        written = write_training_set(folder / "set.arrow", Selection(spec, LongPool(n), seed=0, trigger=0))
        assert written.n_samples == (n if strategy["kind"] == "all" else n // 2)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    "strategy",
    [
        {"kind": "all"},
        {"kind": "uniform", "ratio": 0.5},
        {"kind": "balanced", "ratio": 0.5, "filling": "exact", "weights": "equal"},
        {"kind": "weighted", "attribute": "score", "ratio": 0.5},
    ],
    ids=lambda strategy: strategy["kind"],
)
def test_eight_times_the_window_takes_no_more_memory(tmp_path, strategy):
    peak(tmp_path, strategy, 5 * CHUNK)
    short, long = peak(tmp_path, strategy, 10 * CHUNK), peak(tmp_path, strategy, 80 * CHUNK)
    # Less than two chunks of keys, of 70 more; the table of partitions is a few bytes each.
    assert long - short < 2 * 8 * CHUNK
