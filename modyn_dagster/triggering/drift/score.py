"""What a metric answers about two windows."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
import numpy.typing as npt

Float64 = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Score:
    """One metric's answer.

    Attributes:
        value: the statistic; None where it is undefined.
        p_value: by permutation or as the metric defines it; None where it was not asked for or is undefined.
        details: JSON values that show how it came about: bandwidth, per-column extremes, or why there is no value.
    """

    value: float | None
    p_value: float | None = None
    details: Mapping[str, Any] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """Statistic, p-value and details as one JSON object."""
        return {"statistic": self.value, "p_value": self.p_value, **self.details}

    @classmethod
    def undefined(cls, why: str) -> Self:
        """No value, and the reason."""
        return cls(None, None, {"why": why})
