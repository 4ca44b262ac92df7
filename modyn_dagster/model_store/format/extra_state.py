"""Extra state of a model, such as that of an optimizer, a schedule or a generator, stored as tensors without pickle.

Nested lists, tuples and dictionaries (ordered and counting ones too) of numbers, NumPy's as well, texts, bytes, tensors and
arrays come back with these types; instances of subclasses come back as the base type. The tensors are stored like those of the
model, under names no module can have; the nesting is one more tensor: the bytes of a JSON text.
"""

import json
import math
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor

from modyn_dagster.errors import StorageError
from modyn_dagster.model_store.format.tensors import require_storable

#: Prefix of the names of extra tensors: no module can have such a name.
PREFIX: Final = "\0extra"
_MAPPINGS: Final[Mapping[str, Callable[[dict[Any, Any]], Mapping[Any, Any]]]] = {
    "Counter": Counter,
    "OrderedDict": OrderedDict,
    "dict": dict,
}


def with_extra_state(state: Mapping[str, Tensor], extra: object) -> dict[str, Tensor]:
    """The state, and all of ``extra`` as further tensors; ``StorageError`` names the part that cannot be stored."""
    if taken := [name for name in state if isinstance(name, str) and name.startswith(PREFIX)]:
        raise StorageError(f"{taken[0]!r} cannot be the name of a tensor: it would be taken for extra state")
    return {**state, **_to_tensors(extra)}


def _to_tensors(extra: object) -> dict[str, Tensor]:
    if extra is None:
        return {}
    tensors: dict[str, Tensor] = {}
    try:
        text = json.dumps(_encode(extra, "extra", tensors), separators=(",", ":"))
    except RecursionError:
        raise StorageError("extra is nested too deeply to be stored, or holds itself") from None
    except ValueError as error:
        # Numbers of thousands of digits.
        raise StorageError(f"extra cannot be written: {error}") from error
    return {PREFIX: torch.tensor(bytearray(text.encode()), dtype=torch.uint8), **tensors}


def split_extra_state(state: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], Any]:
    """Inverse of ``with_extra_state``; ``StorageError`` for tensors that it never wrote."""
    model = {name: tensor for name, tensor in state.items() if not name.startswith(PREFIX)}
    if PREFIX not in state:
        return model, None
    try:
        return model, _decode(json.loads(bytes(state[PREFIX].numpy()).decode()), state)
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise StorageError(f"the extra state of a model cannot be read: {type(error).__name__}: {error}") from error


def _encode(value: object, place: str, tensors: dict[str, Tensor]) -> Any:
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else ["float", repr(value)]
        case bytes():
            return ["bytes", value.hex()]
        case Tensor() | np.ndarray() | np.generic():
            name = f"{PREFIX}.{len(tensors)}"
            tensor = value if isinstance(value, Tensor) else _as_tensor(np.array(value), place)
            tensors[name] = require_storable(place, tensor)
            return ["tensor" if isinstance(value, Tensor) else "array" if isinstance(value, np.ndarray) else "scalar", name]
        case list() | tuple():
            parts = [_encode(part, f"{place}[{n}]", tensors) for n, part in enumerate(value)]
            return ["list" if isinstance(value, list) else "tuple", parts]
        case Mapping():
            pairs = [[_encode(key, place, tensors), _encode(part, f"{place}[{key!r}]", tensors)] for key, part in value.items()]
            return [next((kind for kind in _MAPPINGS if type(value).__name__ == kind), "dict"), pairs]
    raise StorageError(f"{place} is a {type(value).__name__}, which cannot be stored without pickle")


def _decode(value: Any, state: Mapping[str, Tensor]) -> Any:
    match value:
        case None | bool() | int() | float() | str():
            return value
        case ["list" | "tuple" as kind, list(parts)]:
            values = [_decode(part, state) for part in parts]
            return values if kind == "list" else tuple(values)
        case [str(kind), list(pairs)] if kind in _MAPPINGS:
            return _MAPPINGS[kind]({_decode(key, state): _decode(part, state) for key, part in pairs})
        case ["float" | "bytes" as kind, str(text)]:
            return float(text) if kind == "float" else bytes.fromhex(text)
        case ["tensor" | "array" | "scalar" as kind, str(name)]:
            tensor = state[name]
            return tensor if kind == "tensor" else tensor.numpy() if kind == "array" else tensor.numpy()[()]
    raise ValueError(f"{str(value)[:100]} was never written")


def _as_tensor(array: np.ndarray[Any, Any], place: str) -> Tensor:
    try:
        return torch.from_numpy(array)
    except (TypeError, ValueError):
        raise StorageError(f"{place} is an array of {array.dtype}, a dtype that torch lacks") from None
