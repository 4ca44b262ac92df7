"""Nested state as JSON and tensors: what optimizers, schedulers and generators call their state, written without pickle."""

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor

# Every container and everything that JSON has no word for is a dict of one entry, whose name says what it is.
_TENSOR: Final = "tensor"
_ARRAY: Final = "array"
_LIST: Final = "list"
_TUPLE: Final = "tuple"
_DICT: Final = "dict"


def flatten(state: object, *, what: str) -> tuple[Any, dict[str, Tensor]]:
    """A JSON value, and the tensors it speaks of by name: copies on the CPU, contiguous.

    Takes None, numbers, texts, tensors, NumPy arrays, lists, tuples, and dicts with any of these as keys. ``TypeError``
    for everything else, naming where in ``what`` it is.
    """
    tensors: dict[str, Tensor] = {}
    return _flat(state, tensors, what), tensors


def restore(content: Any, tensors: Mapping[str, Tensor]) -> Any:
    """The inverse of ``flatten``. Tensors are copies in memory of torch's, by whose alignment kernels choose their path."""
    if not isinstance(content, dict):
        return content
    ((kind, value),) = content.items()
    match kind:
        case "tensor":
            return tensors[value].clone()
        case "array":
            return tensors[value].clone().numpy()
        case "list":
            return [restore(part, tensors) for part in value]
        case "tuple":
            return tuple(restore(part, tensors) for part in value)
        case "dict":
            return {restore(key, tensors): restore(part, tensors) for key, part in value}
        case _:
            raise ValueError(f"a state has no {kind!r}")


def _flat(state: object, tensors: dict[str, Tensor], at: str) -> Any:
    if state is None or isinstance(state, (bool, int, float, str)):
        return state
    if isinstance(state, np.generic):
        return state.item()
    if isinstance(state, Tensor):
        return {_TENSOR: _named(state.detach().to("cpu", copy=True), tensors)}
    if isinstance(state, np.ndarray):
        return {_ARRAY: _named(torch.from_numpy(state.copy()), tensors)}
    if isinstance(state, Mapping):
        return {
            _DICT: [[_flat(key, tensors, f"{at} (a key)"), _flat(part, tensors, f"{at}.{key}")] for key, part in state.items()]
        }
    if isinstance(state, (list, tuple)):
        parts = [_flat(part, tensors, f"{at}[{i}]") for i, part in enumerate(state)]
        return {_TUPLE if isinstance(state, tuple) else _LIST: parts}
    raise TypeError(f"{at} is a {type(state).__name__}; a checkpoint holds numbers, texts, tensors, arrays, lists and dicts")


def _named(tensor: Tensor, tensors: dict[str, Tensor]) -> str:
    name = str(len(tensors))
    tensors[name] = tensor.contiguous()
    return name
