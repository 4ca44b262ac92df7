"""Avoidable misclassifications: those beyond the number expected of the newest model."""

from collections.abc import Mapping
from typing import Any, Final, Literal

from modyn_dagster.triggering.measurement import Measured
from modyn_dagster.triggering.policies.batched import value_of
from modyn_dagster.triggering.policy import State

#: Digits kept: a product like 100 * (0.95 - 0.9) falls just short of the whole number it stands for.
_DIGITS: Final = 9


class MisclassificationTally:
    """Count of avoidable misclassifications since the last trigger.

    A stretch of ``n`` samples with accuracy ``a`` adds ``max(0, n * (expected - a))``.

    Args:
        expected_accuracy: a number, or ``calibrate`` to measure it on the ``calibrate`` split of the last training window.
        allow_reduction: subtract stretches that are better than expected.

    >>> MisclassificationTally(0.9).avoidable_among(100, accuracy=0.75, expected=0.9)
    15.0
    """

    def __init__(self, expected_accuracy: float | Literal["calibrate"], *, allow_reduction: bool = False) -> None:
        self.expected_accuracy = expected_accuracy
        self.allow_reduction = allow_reduction
        self.total = 0.0

    def __repr__(self) -> str:
        return f"MisclassificationTally({self.expected_accuracy!r}, allow_reduction={self.allow_reduction})"

    @property
    def calibrates(self) -> bool:
        """The expected accuracy is measured."""
        return self.expected_accuracy == "calibrate"

    def avoidable_among(self, n: float, accuracy: float, expected: float) -> float:
        """Avoidable misclassifications among ``n`` samples."""
        avoidable = round(n * (expected - accuracy), _DIGITS)
        return avoidable if self.allow_reduction else max(0.0, avoidable)

    def expected(self, measured: Measured | None, point: int) -> float | None:
        """Expected accuracy; None where it could not be measured."""
        if isinstance(self.expected_accuracy, str):
            return value_of(measured, "expected_accuracy", point)
        return self.expected_accuracy

    def add(self, amount: float) -> None:
        """Add to the count."""
        self.total = round(self.total + amount, _DIGITS)

    def reset(self) -> None:
        """Set the count to 0, as at a trigger."""
        self.total = 0.0

    def state_dict(self) -> State:
        """The count."""
        return {"total": self.total}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the count."""
        self.total = float(state.get("total", 0.0))
