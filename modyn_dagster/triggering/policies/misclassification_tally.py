"""Avoidable misclassifications: those beyond what the newest model was expected to make."""

from collections.abc import Mapping
from typing import Any, Final, Literal

from modyn_dagster.triggering.measurement import Measured
from modyn_dagster.triggering.policies.batched import value_of
from modyn_dagster.triggering.policy import State

#: Sums of products like 100 * (0.95 - 0.9) fall just short of the whole numbers that they mean.
_DIGITS: Final = 9


class MisclassificationTally:
    """Counted since the last trigger: of ``n`` samples judged with accuracy ``a``, ``max(0, n * (expected - a))``.

    Args:
        expected_accuracy: given, or measured on the ``calibrate`` split of the last training window.
        allow_reduction: whether stretches that are better than expected are subtracted.
    """

    def __init__(self, expected_accuracy: float | Literal["calibrate"], *, allow_reduction: bool = False) -> None:
        self.expected_accuracy = expected_accuracy
        self.allow_reduction = allow_reduction
        self.total = 0.0

    def __repr__(self) -> str:
        return f"MisclassificationTally({self.expected_accuracy!r}, allow_reduction={self.allow_reduction})"

    @property
    def calibrates(self) -> bool:
        """Whether the expected accuracy is measured."""
        return self.expected_accuracy == "calibrate"

    def among(self, n: float, accuracy: float, expected: float) -> float:
        """How many of ``n`` samples."""
        avoidable = round(n * (expected - accuracy), _DIGITS)
        return avoidable if self.allow_reduction else max(0.0, avoidable)

    def expected(self, measured: Measured | None, point: int) -> float | None:
        """The accuracy to expect; None where it could not be measured."""
        if isinstance(self.expected_accuracy, str):
            return value_of(measured, "expected_accuracy", point)
        return self.expected_accuracy

    def add(self, amount: float) -> None:
        """Count so many more."""
        self.total = round(self.total + amount, _DIGITS)

    def reset(self) -> None:
        """Begin again: a trigger was made."""
        self.total = 0.0

    def state_dict(self) -> State:
        """The count."""
        return {"total": self.total}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take up the count."""
        self.total = float(state.get("total", 0.0))
