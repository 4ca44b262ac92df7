"""Default labels: samples that still have no label when the stream is some time older than they are.

The time of the stream at a position in the sequence of arrivals is the largest sample time among the batches that have arrived by
then, deleted samples included. So it never goes back, and is the same live and in a replay.
"""

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from fastpath.format.index import BatchIndex
from fastpath.format.labels.known_labels import Defaults
from modyn_dagster.catalog.batches import BatchRow
from modyn_dagster.data.known_batches import BatchColumns
from modyn_dagster.spec.base import timedelta_of
from modyn_dagster.spec.dataset import DatasetSpec


def time_at(batches: Sequence[BatchRow], columns: BatchColumns, position: int) -> np.datetime64 | None:
    """Largest sample time among the batches that have arrived by a position; None where they have no sample."""
    times = columns.last[_arrived(batches, position) & ~np.isnat(columns.last)]
    return times.max() if len(times) else None


def n_older(times: npt.NDArray[np.datetime64], age: np.timedelta64, now: np.datetime64) -> int:
    """Number of samples of at least an age, by their times in ascending order.

    >>> n_older(np.array(["2024-01-01", "2024-01-02"], "datetime64[us]"), np.timedelta64(1, "D"), np.datetime64("2024-01-02"))
    1
    """
    return int(np.searchsorted(times, now - age, side="right"))


def defaults_at(
    spec: DatasetSpec,
    batches: Sequence[BatchRow],
    columns: BatchColumns,
    index: Callable[[int], BatchIndex],
    position: int,
) -> Defaults | None:
    """Default label of a dataset as of a position; None where it has none.

    Args:
        spec: of the dataset.
        batches: visible ones, in ordinal order; those that arrived later are left out.
        columns: facts of these batches.
        index: opens the index of a batch by its ordinal, where it has older and younger samples.
        position: in the sequence of arrivals.
    """
    label = spec.label
    if label is None or label.default_after is None:
        return None
    now, age, n_closed = time_at(batches, columns, position), timedelta_of(label.default_after.after), dict[int, int]()
    if now is not None:
        begun = _arrived(batches, position) & (columns.first + age <= now)
        for row in np.flatnonzero(begun).tolist():
            batch, whole = batches[row], columns.last[row] + age <= now
            n_closed[batch.ordinal] = int(batch.n_samples or 0) if whole else n_older(index(batch.ordinal).times, age, now)
    return Defaults(label.default_after.value(label.kind, label.classes), n_closed)


def _arrived(batches: Sequence[BatchRow], position: int) -> npt.NDArray[np.bool_]:
    return np.array([batch.arrival is not None and batch.arrival <= position for batch in batches], dtype=bool)
