"""Truths of several values per sample: several columns, or relevance and group of a ranking."""

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from modyn_dagster.data.samples import Samples
from modyn_dagster.errors import TrainingError
from modyn_dagster.reproducibility.randomness import stable_hash
from modyn_dagster.spec.tasks.task import MOST_RELEVANT, MultiLabelTask, RankingTask, TaskSpec, truth_columns

Float64 = npt.NDArray[np.float64]

#: Whole numbers up to this size are exact in float64.
_EXACT: Final = 1 << 53
#: Bits of a 64-bit hash beyond those that float64 holds.
_UNUSED_BITS: Final = 64 - 53


def several_columns(samples: Samples, task: TaskSpec | None, *, source: str) -> Float64:
    """Columns of the truth, ``float64[n, columns]``, NaN where one is missing.

    ``TrainingError`` names a column that the samples lack or that holds no numbers, and the key of a value that is neither
    0 nor 1 where labels must be.
    """
    what, found = f"{source}: training.task.columns", []
    names = truth_columns(task)
    for name in names:
        column = _column(samples, name, what)
        if column.ndim != 1 or column.dtype.kind not in "biuf":
            raise TrainingError(f"{what}: column {name!r} is {column.dtype}{list(column.shape)}, expected a number per sample")
        found.append(column.astype(np.float64))
    truth = np.column_stack(found)
    wrong = ~np.isin(truth, (0.0, 1.0)) & ~np.isnan(truth)
    if isinstance(task, MultiLabelTask) and wrong.any():
        row, place = (int(each[0]) for each in np.nonzero(wrong))
        made = f"column {names[place]!r} of the sample with key {samples.keys[row]} is {truth[row, place]:g}"
        raise TrainingError(f"{what}: {made}; a label is 1 where the sample has it, else 0")
    return truth


def ranking_truth(samples: Samples, task: RankingTask, *, source: str) -> Float64:
    """Relevance and number of the group of every sample, ``float64[n, 2]``; a missing relevance is NaN.

    ``TrainingError`` names the key of a relevance outside 0 to 31, and of a group that is missing or neither text nor whole.
    """
    if samples.targets is None:
        raise TrainingError(f"{source}: training.task.kind: the samples have no target, which is their relevance")
    outside = (samples.targets < 0) | (samples.targets > MOST_RELEVANT)
    if outside.any():
        row = int(np.argmax(outside))
        made = f"the relevance of the sample with key {samples.keys[row]} is {samples.targets[row]:g}"
        raise TrainingError(f"{source}: training.task: {made}; it must be 0 to {MOST_RELEVANT}, as gains are 2^relevance - 1")
    return np.column_stack([samples.targets, group_numbers(samples, task.group, source=source)])


def group_numbers(samples: Samples, name: str, *, source: str) -> Float64:
    """Numbers of the groups that a column names, ``float64[n]``: each depends on its value alone.

    Whole numbers up to 2^53 stay as they are. Text and larger numbers become 53 bits of their BLAKE2b digest: two of n different
    values have the same number with a probability below n^2 / 2^54, for 100,000 below 10^-6.

    ``TrainingError`` names a column that the samples lack or that holds no groups, and the key of a missing or fractional value.
    """
    what = f"{source}: training.task.group"
    column = _column(samples, name, what)
    if column.ndim != 1 or column.dtype.kind not in "iufOU":
        rule = "expected a whole number or text per sample"
        raise TrainingError(f"{what}: column {name!r} is {column.dtype}{list(column.shape)}, {rule}")
    values, places = np.unique(column, return_inverse=True) if column.dtype.kind in "iufU" else _distinct(column)
    numbers = np.array([_number_of(value) for value in values.tolist()], np.float64)[places]
    wrong = np.isnan(numbers)
    if wrong.any():
        row = int(np.argmax(wrong))
        made = f"column {name!r} of the sample with key {samples.keys[row]} is {column[row]!r}"
        raise TrainingError(f"{what}: {made}; every sample needs a group, which is a whole number or text")
    return numbers


def _column(samples: Samples, name: str, what: str) -> npt.NDArray[Any]:
    column = samples.columns.get(name)
    if column is None:
        known = ", ".join(samples.columns) or "none"
        raise TrainingError(f"{what}: the samples have no column {name!r}; they have {known}")
    return column


def _distinct(column: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], npt.NDArray[np.intp]]:
    """Distinct objects by their first occurrence, which need no order, and the place of each row's among them."""
    places: dict[object, int] = {}
    inverse = np.fromiter((places.setdefault(value, len(places)) for value in column.tolist()), np.intp, len(column))
    values = np.empty(len(places), dtype=object)
    values[:] = list(places)
    return values, inverse


def _number_of(value: object) -> float:
    """Number of a group; NaN for what is none. Readers make an empty text of a missing one."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int | str) or value == "":
        return float("nan")
    if isinstance(value, int) and abs(value) <= _EXACT:
        return float(value)
    return float(stable_hash(value) >> _UNUSED_BITS)
