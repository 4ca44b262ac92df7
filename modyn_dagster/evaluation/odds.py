"""The softmax of two classes from one exponential per sample, shared by all that is made of it.

To the bit what the softmax over columns gives: one of the two powers is always exp(0).
"""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Float64 = npt.NDArray[np.float64]


class Odds(NamedTuple):
    """Of samples with two classes, ``float64[n]`` each.

    Attributes:
        difference: logit of class 1 less that of class 0.
        smaller: the smaller one of the two powers; the other one is 1.
        total: the sum of both.
    """

    difference: Float64
    smaller: Float64
    total: Float64

    def losses(self, labels: npt.NDArray[Any]) -> Float64:
        """``-log p(class)``."""
        # What the logit of the class lies below the larger one: nothing, or all of the difference.
        below = np.maximum(np.where(labels == 1, -self.difference, self.difference), 0.0)
        return np.asarray(np.add(np.log(self.total), below, out=below))

    def squares(self, labels: npt.NDArray[Any]) -> Float64:
        """Squared distance of the probability of class 1 from the truth."""
        found = np.where(self.difference > 0, 1.0, self.smaller)
        found /= self.total
        found -= labels
        return np.asarray(np.square(found, out=found))

    def confidences(self) -> Float64:
        """Probability of the likelier class."""
        return np.asarray(1 / self.total)


def odds_of(outputs: npt.NDArray[np.float32]) -> Odds:
    """Of logits ``float32[n, 2]``; what is not finite has no meaning."""
    difference = np.subtract(outputs[:, 1], outputs[:, 0], dtype=np.float64)
    smaller = np.abs(difference)
    np.negative(smaller, out=smaller)
    np.exp(smaller, out=smaller)
    return Odds(difference, smaller, 1.0 + smaller)
