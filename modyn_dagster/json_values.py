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


def json_number(value: float | None) -> float | None:
    """A Python float; None for what is no number, or infinite.

    >>> json_number(float("nan")), json_number(np.float32(0.5))
    (None, 0.5)
    """
    return None if value is None or not math.isfinite(value) else float(value)


def json_values_of(content: Any) -> Any:
    """Nested details as JSON values: keys are text, arrays are lists, what is not finite is None, other objects their text."""
    match content:
        case None | str() | bool() | int():
            return content
        case np.generic():
            return json_values_of(content.item())
        case float():
            return json_number(content)
        case Mapping():
            return {str(name): json_values_of(value) for name, value in content.items()}
        case np.ndarray() | Sequence():
            return [json_values_of(value) for value in content]
        case _:
            return str(content)
