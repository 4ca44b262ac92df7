"""JSON values: numbers and nested details in the form that JSON gives back unchanged, and a check that a value has it."""

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from modyn_dagster.errors import NotJson


def require_json(source: str, field: str, value: object) -> None:
    """``NotJson`` names the field whose value would come back as another one, or not at all."""
    rule = "must be made of values of JSON: lists, not tuples, texts as keys"
    try:
        text = json.dumps(value, allow_nan=False, ensure_ascii=False)
        text.encode()
    except (TypeError, ValueError, RecursionError) as error:
        # What nests too deep cannot be shown either.
        shown = type(value).__name__ if isinstance(error, RecursionError) else value
        raise NotJson(source, field, shown, f"{rule}: {error}") from error
    if json.loads(text) != value:
        raise NotJson(source, field, value, rule)


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
