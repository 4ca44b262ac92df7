"""Drift metrics of the user's own: a function of two windows, by import path, with p-values from random splits."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, Protocol, cast

import numpy as np
import numpy.typing as npt

from modyn_dagster.errors import ConfigError, ModynError
from modyn_dagster.imports import made_by_factory
from modyn_dagster.spec.triggers.drift import CustomMetric
from modyn_dagster.triggering.drift.score import Score, permutation_p_value, split_indicators
from modyn_dagster.triggering.drift.windows import Features, Float64, Windows

SOURCE: Final = "drift trigger"


class DriftDistance(Protocol):
    """Pure function of two windows: it keeps no state, and draws random numbers from the generator that it is given."""

    def __call__(self, reference: Features, current: Features, rng: np.random.Generator, /) -> float | None:
        """Distance of the windows, which grows with drift; None or NaN where it is undefined.

        Args:
            reference: samples that the model has seen, ``float[n, d]``, at least two, read-only.
            current: samples to compare with them, ``float[m, d]``, of the same dtype, at least two, read-only.
            rng: generator of this call; equal points of equal runs give equal numbers.
        """


def custom_distance(spec: CustomMetric, *, source: str = SOURCE, field: str = "metrics") -> DriftDistance:
    """Function that ``factory(**config)`` returns.

    Args:
        spec: of the metric.
        source: file or pipeline of the block, for errors.
        field: of the metric there.

    Raises:
        ImportPathError: the path cannot be imported, or its result cannot be called.
        ConfigError: the factory refused its config.
    """
    what = "a function of two windows and a generator"
    return cast(DriftDistance, made_by_factory(spec.factory, spec.config, what=what, source=source, field=field))


def custom(spec: CustomMetric, windows: Windows, *, p_value: bool) -> Score:
    """Distance of the user's, and its p-value by permutation.

    Args:
        spec: factory, config, permutations.
        windows: reference and current window.
        p_value: compute the p-value too: the function is called for each of ``permutations`` random splits.

    Raises:
        ConfigError: the function fails, or returns no number.
    """
    distance = custom_distance(spec)
    value = measured(distance, windows.reference, windows.current, windows.rng("custom", 0), spec.factory)
    if value is None:
        return Score.undefined(f"{spec.factory} has no distance of these windows")
    return Score(value, _p_value(spec, distance, value, windows) if p_value else None)


def measured(
    distance: DriftDistance, reference: Features, current: Features, rng: np.random.Generator, name: str
) -> float | None:
    """Call a function of the user's; None where the distance is undefined. Raises ``ConfigError``."""
    with _read_only(reference, current):
        try:
            value: Any = distance(reference, current, rng)
        except (ArithmeticError, np.linalg.LinAlgError, ModynError):
            raise
        except Exception as error:
            place = f"windows {reference.dtype}{list(reference.shape)} and {current.dtype}{list(current.shape)}"
            raise ConfigError(SOURCE, "metrics.factory", name, f"failed on {place}: {type(error).__name__}: {error}") from error
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        raise ConfigError(SOURCE, "metrics.factory", name, f"its function must return a number, not {type(value).__name__}")
    return None if np.isnan(value) else float(value)


@contextmanager
def _read_only(*arrays: npt.NDArray[Any]) -> Iterator[None]:
    """Other metrics of the need get the same arrays."""
    before = [array.flags.writeable for array in arrays]
    for array in arrays:
        array.flags.writeable = False
    try:
        yield
    finally:
        for array, writeable in zip(arrays, before, strict=True):
            array.flags.writeable = writeable


def _p_value(spec: CustomMetric, distance: DriftDistance, value: float, windows: Windows) -> float | None:
    members = split_indicators(windows.n, windows.m, spec.permutations, windows.rng("permutations")).astype(bool)
    statistics: Float64 = np.full(1 + spec.permutations, value)
    for split in range(1, len(statistics)):
        inside, rng = members[:, split], windows.rng("custom", split)
        found = measured(distance, windows.pooled[inside], windows.pooled[~inside], rng, spec.factory)
        if found is None:
            return None
        statistics[split] = found
    return float(permutation_p_value(statistics))
