"""State of samplers and replay memories as plain JSON, and checks of their arguments."""

import base64
import math
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from modyn_dagster.keys import KeyArray

State = dict[str, Any]


def encoded(keys: KeyArray) -> str:
    """Keys as text: base64 of their little-endian bytes."""
    return base64.b64encode(keys.astype("<u8", copy=False).tobytes()).decode("ascii")


def decoded(text: str) -> KeyArray:
    """The keys that ``encoded`` wrote."""
    return np.frombuffer(base64.b64decode(text, validate=True), dtype="<u8").astype(np.uint64)


def no_keys() -> KeyArray:
    """``uint64[0]``."""
    return np.empty(0, dtype=np.uint64)


def checked_size(n: int) -> int:
    """A size of a sample; ``ValueError`` below 1, or for what is no whole number."""
    if not (math.isfinite(n) and n == int(n) and n >= 1):
        raise ValueError(f"n must be at least 1 and a whole number, not {n!r}")
    return int(n)


def checked_decay(decay: float) -> float:
    """A decay rate; ``ValueError`` when it is negative or not finite."""
    if not (math.isfinite(decay) and decay >= 0):
        raise ValueError(f"decay must be finite and not negative, not {decay!r}")
    return decay


def checked_elapsed(elapsed: float) -> float:
    """Time between two batches; ``ValueError`` when it is negative or not finite."""
    if not (math.isfinite(elapsed) and elapsed >= 0):
        raise ValueError(f"elapsed must be finite and not negative, not {elapsed!r}")
    return float(elapsed)


def checked_keys(keys: npt.NDArray[np.uint64]) -> KeyArray:
    """Keys of a batch, ``uint64[n]``; ``ValueError`` when they are not one row of unsigned 64-bit integers."""
    array = np.asarray(keys)
    if array.ndim != 1:
        raise ValueError(f"keys must have one dimension, not shape {array.shape}")
    if array.size == 0:
        return no_keys()
    if array.dtype.kind not in "iu" or (array.dtype.kind == "i" and array.min() < 0):
        raise ValueError(f"keys must be unsigned 64-bit integers, not {array.dtype} with the smallest {array.min()}")
    return array.astype(np.uint64, copy=False)


#: Marks a place that a forgotten item left empty.
NO_KEY: Final = np.uint64(2**64 - 1)
