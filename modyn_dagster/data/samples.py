"""Samples as readers return them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from modyn_dagster.keys import KeyArray


@dataclass(frozen=True, slots=True)
class Samples:
    """``n`` samples in the order of the requested keys.

    Attributes:
        keys: ``uint64[n]``.
        times: ``datetime64[us][n]``, UTC.
        labels: class indices ``int64[n]``; None where the dataset has no classes.
        targets: regression targets ``float64[n]``; None where the dataset has none.
        columns: parsed columns by name, each of length n (int64, float64, bool or str objects; fixed rows: the field's own
            dtype, sub-arrays keep their shape; Parquet timestamps: datetime64[us]); empty where the format has no columns.
        blobs: bytes of the samples; None where the format has columns.
    """

    keys: KeyArray
    times: npt.NDArray[np.datetime64]
    labels: npt.NDArray[np.int64] | None
    targets: npt.NDArray[np.float64] | None
    columns: Mapping[str, npt.NDArray[Any]]
    blobs: Sequence[bytes] | None = None

    def __len__(self) -> int:
        return len(self.keys)
