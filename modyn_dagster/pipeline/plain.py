"""Numbers and details as JSON has them: what is decided from memory and from Postgres must be the same to the last bit."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from modyn_dagster.triggering import Measured, Measurement


def plain_number(value: float | None) -> float | None:
    """A Python float; None for what is no number, or infinite.

    >>> plain_number(float("nan")), plain_number(np.float32(0.5))
    (None, 0.5)
    """
    return None if value is None or not math.isfinite(value) else float(value)


def plain_values(content: Any) -> Any:
    """Nested details as JSON values: keys are text, arrays are lists, what is not finite is None, other objects their text."""
    match content:
        case None | str() | bool() | int():
            return content
        case np.generic():
            return plain_values(content.item())
        case float():
            return plain_number(content)
        case Mapping():
            return {str(name): plain_values(value) for name, value in content.items()}
        case np.ndarray() | Sequence():
            return [plain_values(value) for value in content]
        case _:
            return str(content)


def plain_measurement(measurement: Measurement) -> dict[str, Measured]:
    """The same answers with plain values and details."""
    return {
        path: Measured({name: plain_number(value) for name, value in found.values.items()}, plain_values(found.details))
        for path, found in measurement.items()
    }
