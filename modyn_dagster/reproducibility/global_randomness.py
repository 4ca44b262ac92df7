"""Global random states of a process, which code of the user's must leave alone and depend on in no way."""

import random
import sys
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

_T = TypeVar("_T")


def global_states() -> dict[str, Any]:
    """States of the generators of ``random``, NumPy and, where it is loaded, torch, by library."""
    name, words, *rest = np.random.get_state()
    states: dict[str, Any] = {"random": random.getstate(), "numpy": (name, np.asarray(words).tobytes(), *rest)}
    if (torch := sys.modules.get("torch")) is not None:
        states["torch"] = torch.random.get_rng_state().numpy().tobytes()
    return states


def with_global_seed(number: int, work: Callable[[], _T]) -> _T:
    """Do something while the states of ``random`` and NumPy are other ones; they are put back afterwards."""
    python, numpy_state = random.getstate(), np.random.get_state()
    random.seed(number)
    np.random.seed(number)
    try:
        return work()
    finally:
        random.setstate(python)
        np.random.set_state(numpy_state)
