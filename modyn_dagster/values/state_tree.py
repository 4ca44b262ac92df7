"""Nested state of optimizers, schedulers and generators as JSON and tensors, without pickle.

Checkpoints and the model store share the encoding. Lists, tuples and dictionaries (ordered and counting ones too) of numbers,
NumPy's as well, texts, bytes, tensors and arrays come back with these types; instances of subclasses come back as the base type.
"""

import math
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor

#: Take a tensor of a place in the state, and return the name under which ``decode`` finds it again.
Keep = Callable[[Tensor, str], str]

_MAPPINGS: Final[Mapping[str, Callable[[dict[Any, Any]], Mapping[Any, Any]]]] = {
    "Counter": Counter,
    "OrderedDict": OrderedDict,
    "dict": dict,
}


def encode(value: object, place: str, keep: Keep) -> Any:
    """Encode a state as a JSON value; ``keep`` takes its tensors and arrays, in order.

    What JSON has no word for becomes a list of two: its kind and its content. ``TypeError`` names the place of a value of
    another type, ``RecursionError`` comes from a state that is nested too deeply or contains itself.
    """
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else ["float", repr(value)]
        case bytes():
            return ["bytes", value.hex()]
        case Tensor() | np.ndarray() | np.generic():
            tensor = value if isinstance(value, Tensor) else _as_tensor(np.array(value), place)
            return [
                "tensor" if isinstance(value, Tensor) else "array" if isinstance(value, np.ndarray) else "scalar",
                keep(tensor, place),
            ]
        case list() | tuple():
            parts = [encode(part, f"{place}[{n}]", keep) for n, part in enumerate(value)]
            return ["list" if isinstance(value, list) else "tuple", parts]
        case Mapping():
            pairs = [[encode(key, place, keep), encode(part, f"{place}[{key!r}]", keep)] for key, part in value.items()]
            return [next((kind for kind in _MAPPINGS if type(value).__name__ == kind), "dict"), pairs]
    raise TypeError(f"{place} is a {type(value).__name__}, which cannot be stored without pickle")


def decode(content: Any, tensor_of: Callable[[str], Tensor]) -> Any:
    """Decode what ``encode`` returned; ``tensor_of`` finds tensors by name. ``ValueError`` for anything else."""
    match content:
        case None | bool() | int() | float() | str():
            return content
        case ["list" | "tuple" as kind, list(parts)]:
            values = [decode(part, tensor_of) for part in parts]
            return values if kind == "list" else tuple(values)
        case [str(kind), list(pairs)] if kind in _MAPPINGS:
            return _MAPPINGS[kind]({decode(key, tensor_of): decode(part, tensor_of) for key, part in pairs})
        case ["float" | "bytes" as kind, str(text)]:
            return float(text) if kind == "float" else bytes.fromhex(text)
        case ["tensor" | "array" | "scalar" as kind, str(name)]:
            tensor = tensor_of(name)
            return tensor if kind == "tensor" else tensor.numpy() if kind == "array" else tensor.numpy()[()]
    raise ValueError(f"{str(content)[:100]} was never written")


def _as_tensor(array: np.ndarray[Any, Any], place: str) -> Tensor:
    try:
        return torch.from_numpy(array)
    except (TypeError, ValueError):
        raise TypeError(f"{place} is an array of {array.dtype}, a dtype that torch lacks") from None
