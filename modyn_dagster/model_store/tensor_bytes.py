"""Tensors as the bytes they hold, and back: no value is ever interpreted, so every bit pattern survives."""

import math
from typing import Final

import torch
from torch import Tensor
from torch.nn.parameter import is_lazy

from modyn_dagster.errors import StorageError
from modyn_dagster.model_store.dtypes import CODES, VIEWED_NAMES, name_of
from modyn_dagster.model_store.layout import MAX_DIMENSIONS

_INTEGERS: Final = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def require_storable(name: str, value: object) -> Tensor:
    """The tensor under a name, detached; ``StorageError`` says what cannot be stored."""
    if not isinstance(value, Tensor):
        raise StorageError(f"{name!r} is a {type(value).__name__}; a model's state holds only tensors")
    if is_lazy(value):
        raise StorageError(f"{name!r} is a parameter that is not initialised: run the module once before it is stored")
    if value.layout != torch.strided or value.device.type == "meta":
        raise StorageError(f"{name!r} is a {value.layout} tensor on {value.device}; only dense tensors can be stored")
    if value.dtype not in CODES and value.dtype not in VIEWED_NAMES:
        raise StorageError(f"{name!r} has dtype {name_of(value.dtype)}, which cannot be stored exactly")
    if value.dim() > MAX_DIMENSIONS:
        raise StorageError(f"{name!r} has {value.dim()} dimensions; at most {MAX_DIMENSIONS} can be stored")
    plain = value.detach()
    if type(plain) is not Tensor:
        raise StorageError(f"{name!r} is a {type(value).__name__}, a tensor with a meaning of its own; store its parts instead")
    return plain


def bytes_of(tensor: Tensor) -> memoryview:
    """The elements in row-major order, whatever the strides; a copy only where the tensor is not laid out like that."""
    plain = tensor.resolve_conj().resolve_neg()
    # Copied as integers: no element is ever loaded as a number of its own kind.
    plain = plain.view(_INTEGERS.get(plain.dtype.itemsize, plain.dtype)).cpu().contiguous()
    return plain.reshape(-1).view(torch.uint8).numpy().data


def n_bytes_of(dtype: torch.dtype, shape: tuple[int, ...]) -> int:
    """Size of a tensor's elements."""
    return math.prod(shape) * dtype.itemsize


def allocate(n_bytes: int) -> Tensor:
    """Uninitialised ``uint8[n_bytes]`` in memory that torch aligned."""
    return torch.empty(n_bytes, dtype=torch.uint8)


def tensor_of(buffer: Tensor, dtype: torch.dtype, shape: tuple[int, ...]) -> Tensor:
    """A buffer of bytes seen as a tensor."""
    return buffer.view(dtype).reshape(shape)
