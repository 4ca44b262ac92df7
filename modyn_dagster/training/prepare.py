"""Inputs as the model's body takes them, made while the model is at work on earlier ones."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from modyn_dagster.training.features import Arrays
from modyn_dagster.training.layout import Layout
from modyn_dagster.training.memory import Allocate, aligned
from modyn_dagster.training.standardize import Scaling


class Preparation:
    """What ``Network.prepare`` does, bit for bit, in NumPy: threads that prefetch must not start torch's own.

    Args:
        layout: of the inputs.
        scalings: of the standardised ones, by name.
        double: whether the body computes in float64.
        allocate: memory for what it makes.
    """

    def __init__(self, layout: Layout, scalings: Mapping[str, Scaling], *, double: bool, allocate: Allocate) -> None:
        self._tabular = {each.name for each in layout.inputs if each.tabular}
        self._scalings, self._allocate = scalings, allocate
        self._dtype = np.dtype(np.float64 if double else np.float32)

    def __call__(self, inputs: Arrays) -> Arrays:
        """Takes the arrays over: their memory may be changed or returned."""
        return {name: self._prepared(name, array) for name, array in inputs.items()}

    def _prepared(self, name: str, array: npt.NDArray[Any]) -> npt.NDArray[Any]:
        if name in self._scalings:
            single = self._scalings[name].scale(array, self._allocate)
            return self._cast(single)
        return self._cast(array) if name in self._tabular or array.dtype.kind == "f" else aligned(array, self._allocate)

    def _cast(self, array: npt.NDArray[Any]) -> npt.NDArray[Any]:
        if array.dtype == self._dtype:
            return aligned(array, self._allocate)
        cast = self._allocate(array.shape, self._dtype)
        with np.errstate(over="ignore"):
            np.copyto(cast, array, casting="unsafe")
        return cast
