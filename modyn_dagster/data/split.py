"""Sides of the split: the one rule by which triggering, training and evaluation assign keys."""

from fractions import Fraction
from typing import Final

import numpy as np
import numpy.typing as npt

from modyn_dagster.keys import KeyArray
from modyn_dagster.reproducibility.randomness import hash_keys
from modyn_dagster.spec.dataset import Split

TRAIN: Final = 0
CALIBRATE: Final = 1
EVALUATE: Final = 2

_RANGE: Final = 2**64


def side_of(keys: KeyArray, split: Split) -> npt.NDArray[np.uint8]:
    """``TRAIN``, ``CALIBRATE`` or ``EVALUATE`` for each key, ``uint8[n]``.

    The salted hash of a key is a number below 2**64. It lies below the share ``train`` of 2**64, below ``train + calibrate``,
    or above both. The last side with a share takes the remainder of rounding, so a side without a share gets no key.

    Args:
        keys: of the samples, in any order.
        split: shares and salt.

    >>> side_of(np.arange(8, dtype=np.uint64), Split(train=0.5, evaluate=0.5)).tolist()
    [2, 2, 2, 0, 0, 0, 2, 0]
    """
    sides = np.full(len(keys), _last_side(split), dtype=np.uint8)
    if _last_side(split) == TRAIN:
        return sides
    hashes = hash_keys(keys, split.salt)
    # From the last boundary to the first: hashes below both boundaries belong to the earlier side.
    for side, share in ((CALIBRATE, Fraction(split.train) + Fraction(split.calibrate)), (TRAIN, Fraction(split.train))):
        boundary = int(share * _RANGE)
        if side < _last_side(split):
            sides[hashes < np.uint64(min(boundary, _RANGE - 1))] = side
    return sides


def _last_side(split: Split) -> int:
    if split.evaluate > 0:
        return EVALUATE
    return CALIBRATE if split.calibrate > 0 else TRAIN
