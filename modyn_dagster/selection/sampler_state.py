"""State of samplers and replay memories as plain JSON, and checks of their arguments."""

import base64
import math
from typing import Any, Final

import numpy as np

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


#: Marks a place that a forgotten item left empty.
NO_KEY: Final = np.uint64(2**64 - 1)
