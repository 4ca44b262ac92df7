"""Tensors of a state: storable dtypes, names without wrappers, and the exact bytes of the elements.

Dtypes are spelt as in safetensors files; those without a spelling there are stored as bytes. No value is ever interpreted, so
every bit pattern survives. Names lose the prefixes of ``torch.compile`` and of data-parallel wrappers.
"""

import math
from collections.abc import Mapping
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from modyn_dagster.errors import StorageError

#: Codes of the dtypes in safetensors files.
CODES: Final[Mapping[torch.dtype, str]] = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.float8_e4m3fn: "F8_E4M3",
    torch.float8_e5m2: "F8_E5M2",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint64: "U64",
    torch.uint32: "U32",
    torch.uint16: "U16",
    torch.uint8: "U8",
    torch.bool: "BOOL",
    torch.float8_e4m3fnuz: "F8_E4M3FNUZ",
    torch.float8_e5m2fnuz: "F8_E5M2FNUZ",
    torch.complex64: "C64",
}

DTYPES: Final[Mapping[str, torch.dtype]] = {code: dtype for dtype, code in CODES.items()}

#: Stored as bytes (``U8`` with the element's bytes as a last dimension); the dtype's name goes into the record.
VIEWED: Final[Mapping[str, torch.dtype]] = {
    "complex128": torch.complex128,
    "complex32": torch.complex32,
    "float8_e8m0fnu": torch.float8_e8m0fnu,
}

VIEWED_NAMES: Final[Mapping[torch.dtype, str]] = {dtype: name for name, dtype in VIEWED.items()}


def name_of(dtype: torch.dtype) -> str:
    """``float32`` for ``torch.float32``."""
    return str(dtype).removeprefix("torch.")


def words_of(dtype: torch.dtype) -> tuple[int, bool]:
    """Bytes of the numbers that the elements consist of, and whether these are floats: a complex number is two."""
    return dtype.itemsize // (2 if dtype.is_complex else 1), dtype.is_floating_point or dtype.is_complex


#: All dtypes that can be stored, by ``name_of``.
DTYPE_BY_NAME: Final[Mapping[str, torch.dtype]] = {name_of(dtype): dtype for dtype in [*CODES, *VIEWED_NAMES]}
#: Limit of the dimensions of a shape: multiplying a hundred thousand numbers takes minutes.
MAX_DIMENSIONS: Final = 1024


def is_shape(content: list[Any]) -> bool:
    """True if these numbers may be the dimensions of a tensor."""
    return len(content) <= MAX_DIMENSIONS and all(type(n) is int and 0 <= n < 2**63 for n in content)


_INTEGERS: Final = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def require_storable(name: str, value: object) -> Tensor:
    """The detached tensor under a name; ``StorageError`` for a value that cannot be stored."""
    if not isinstance(value, Tensor):
        raise StorageError(f"{name!r} is a {type(value).__name__}; a model's state holds only tensors")
    if is_lazy(value):
        raise StorageError(f"{name!r} is a lazy parameter that is not initialised: run the module once before saving it")
    if value.layout != torch.strided or value.device.type == "meta":
        raise StorageError(f"{name!r} is a {value.layout} tensor on {value.device}; only dense tensors can be stored")
    if value.dtype not in CODES and value.dtype not in VIEWED_NAMES:
        raise StorageError(f"{name!r} has dtype {name_of(value.dtype)}, which cannot be stored exactly")
    if value.dim() > MAX_DIMENSIONS:
        raise StorageError(f"{name!r} has {value.dim()} dimensions; at most {MAX_DIMENSIONS} can be stored")
    plain = value.detach()
    if type(plain) is not Tensor:
        raise StorageError(f"{name!r} is a {type(value).__name__}, a subclass of Tensor; store its parts instead")
    return plain


def bytes_of(tensor: Tensor) -> memoryview:
    """Elements in row-major order, whatever the strides; copied only where the memory is laid out otherwise."""
    plain = tensor.resolve_conj().resolve_neg()
    # Copied as integers: loading an element as a float might change its bits.
    plain = plain.view(_INTEGERS.get(plain.dtype.itemsize, plain.dtype)).cpu().contiguous()
    return plain.reshape(-1).view(torch.uint8).numpy().data


def n_bytes_of(dtype: torch.dtype, shape: tuple[int, ...]) -> int:
    """Bytes of the elements of a tensor."""
    return math.prod(shape) * dtype.itemsize


def allocate(n_bytes: int) -> Tensor:
    """Uninitialised ``uint8[n_bytes]`` in memory that torch aligned."""
    return torch.empty(n_bytes, dtype=torch.uint8)


def tensor_of(buffer: Tensor, dtype: torch.dtype, shape: tuple[int, ...]) -> Tensor:
    """View of a buffer of bytes as a tensor."""
    return buffer.view(dtype).reshape(shape)


_COMPILED: Final = "_orig_mod."
_PARALLEL: Final = "module."


def without_wrappers(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The state under the names it would have without wrappers, in its order.

    ``_orig_mod.`` is removed wherever it begins a part of a name, ``module.`` where every name begins with it.
    Raises ``StorageError`` when two names become one.
    """
    names = list(state)
    if all(isinstance(name, str) for name in names):
        plain = [_without_compiled(name) for name in names]
        while plain and all(name.startswith(_PARALLEL) for name in plain):
            plain = [_without_compiled(name.removeprefix(_PARALLEL)) for name in plain]
    else:
        plain = names
    unwrapped: dict[str, Tensor] = {}
    for name, short in zip(names, plain, strict=True):
        if short in unwrapped:
            raise StorageError(f"{name!r} and another tensor are both {short!r} without their wrappers")
        unwrapped[short] = state[name]
    return unwrapped


def load_into(module: nn.Module, state: Mapping[str, Tensor]) -> None:
    """Copy a state into a module, wrapped or not, on its device. ``StorageError`` names the tensors that do not fit."""
    own = module.state_dict()
    by_plain = dict(zip(without_wrappers(own), own, strict=True))
    missing, unknown = [n for n in by_plain if n not in state], [n for n in state if n not in by_plain]
    if missing or unknown:
        raise StorageError(f"the module lacks the tensors {unknown[:5]}, the model lacks {missing[:5]}")
    for plain, name in by_plain.items():
        if own[name].shape != state[plain].shape or own[name].dtype != state[plain].dtype:
            found, expected = state[plain], own[name]
            raise StorageError(
                f"{plain!r} is {found.dtype} {tuple(found.shape)}, the module's is {expected.dtype} {tuple(expected.shape)}"
            )
    module.load_state_dict({name: state[plain] for plain, name in by_plain.items()})


def _without_compiled(name: str) -> str:
    return name.removeprefix(_COMPILED).replace(f".{_COMPILED}", ".")
