"""JSON values: conversion to values that survive a round trip, a check for them, and canonical and compact text."""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from modyn_dagster.errors import NotJson


def require_json(source: str, field: str, value: object) -> None:
    """Raise ``NotJson``, naming the field, for a value that JSON cannot hold or would return changed."""
    rule = "must be made of values of JSON: lists, not tuples, texts as keys"
    try:
        text = json.dumps(value, allow_nan=False, ensure_ascii=False)
        text.encode()
    except (TypeError, ValueError, RecursionError) as error:
        # A value that nests too deep has no ``repr`` either.
        shown = type(value).__name__ if isinstance(error, RecursionError) else value
        raise NotJson(source, field, shown, f"{rule}: {error}") from error
    if json.loads(text) != value:
        raise NotJson(source, field, value, rule)


def canonical_json(value: object, default: Callable[[Any], Any] | None = None) -> str:
    """The text that is hashed for a JSON value: keys in order.

    Args:
        value: made of JSON values.
        default: converts other objects, as for ``json.dumps``.

    >>> canonical_json({"b": 1, "a": [None]})
    '{"a": [null], "b": 1}'
    """
    return json.dumps(value, sort_keys=True, default=default)


def compact_json(value: object, *, sort_keys: bool = False) -> str:
    """The shortest text of a JSON value, for file headers.

    >>> compact_json({"shape": [2, 3], "name": "é"})
    '{"shape":[2,3],"name":"é"}'
    """
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, sort_keys=sort_keys)


def json_number(value: float | None) -> float | None:
    """A Python float; None for NaN and infinities.

    >>> json_number(float("nan")), json_number(np.float32(0.5))
    (None, 0.5)
    """
    return None if value is None or not math.isfinite(value) else float(value)


def json_values_of(content: Any) -> Any:
    """Nested details as JSON values: keys become text, arrays lists, non-finite numbers None, other objects their text."""
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
